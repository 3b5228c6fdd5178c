//! Shares of a device model, by weight, in a simulated world: groups share the time of the model.

use std::sync::Arc;
use std::time::Duration;
use tidegate_block::{
    Bio, BioFlags, Elevator, IoContext, Model, PageBuf, Preset, RequestQueue, Sector, Segment, WfqOptions,
};
use tidegate_rt::{Nanos, WaitQueue, clock, sim, thread};

const RUN: Duration = Duration::from_secs(4);
const PAGES: usize = 64;

/// How a group submits: the number of requests at a time, and whether they are synchronous.
#[derive(Clone, Copy, Debug)]
struct Submits {
    at_once: usize,
    sync: bool,
}

/// Writes at random places while the run lasts.
fn submit(q: &Arc<RequestQueue>, group: u32, how: Submits) {
    let done = Arc::new((std::sync::atomic::AtomicUsize::new(0), WaitQueue::new()));
    let mut sent = 0;
    let flags = if how.sync { BioFlags::SYNC } else { BioFlags::BACKGROUND };
    while clock::now() < Nanos(RUN.as_nanos() as u64) {
        let at = Sector(clock::entropy() % 100_000 * 128);
        let segment = Segment::pages(Arc::new(PageBuf::zeroed(PAGES)), 0, PAGES);
        let d = done.clone();
        let ended = move |r: Result<(), _>, _| {
            assert!(r.is_ok());
            d.0.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            d.1.wake_all();
        };
        let ctx = IoContext { group, ..Default::default() };
        q.submit(Bio::write(at, vec![segment], flags).with_ctx(ctx).on_end(ended));
        sent += 1;
        let room = || done.0.load(std::sync::atomic::Ordering::SeqCst) + how.at_once > sent;
        done.1.wait_until(room);
    }
}

/// Bytes that groups of weight 100 and 20 were served.
fn shares(seed: u64, preset: Preset, options: WfqOptions, how: [Submits; 2]) -> [u64; 2] {
    println!("seed {seed}, {preset}, {how:?}");
    sim::run(seed, 4, move || {
        let device = Model::new(preset, 8 << 30);
        let limits = preset.spec().queue_limits();
        let q = Arc::new(RequestQueue::with_elevator(device, limits, Elevator::Wfq(options)));
        q.set_group_weight(1, 100);
        q.set_group_weight(2, 20);
        let threads = [1, 2].map(|group| {
            let q = q.clone();
            thread::spawn("submits", move || submit(&q, group, how[group as usize - 1])).unwrap()
        });
        threads.into_iter().for_each(thread::JoinHandle::join);
        let bytes: Vec<u64> = q.elevator_stats().iter().map(|s| s.bytes).collect();
        q.drain();
        [bytes[0], bytes[1]]
    })
}

fn strict() -> WfqOptions {
    WfqOptions { strict_guarantees: true, ..Default::default() }
}

/// Shares follow the weights while both queues have something to send, whatever kind of queue each is.
#[test]
fn strict_guarantees_share_by_weight_among_all_kinds_of_queues() {
    let how = |at_once, sync| Submits { at_once, sync };
    let (one, many, one_waits, many_wait) = (how(1, false), how(32, false), how(1, true), how(32, true));
    let pairs = [(one, one), (one, many), (many, one), (many, many), (one_waits, many), (many, many_wait)];
    for (n, (a, b)) in pairs.into_iter().enumerate() {
        let [heavy, light] = shares(n as u64, Preset::Ufs, strict(), [a, b]);
        let ratio = heavy as f64 / light as f64;
        assert!((4.0..6.0).contains(&ratio), "{a:?} beside {b:?}: {heavy} to {light} bytes, {ratio:.1}");
    }
}

/// Without strict guarantees, an asynchronous queue that is empty for a moment loses its turn: two queues that send one
/// request at a time alternate.
#[test]
fn asynchronous_queues_that_run_empty_share_alike_otherwise() {
    let one = Submits { at_once: 1, sync: false };
    let options = WfqOptions { depth: 1, ..Default::default() };
    let [a, b] = shares(1, Preset::Ufs, options, [one, one]);
    let ratio = a as f64 / b as f64;
    assert!((0.9..1.1).contains(&ratio), "{a} to {b} bytes");
}
