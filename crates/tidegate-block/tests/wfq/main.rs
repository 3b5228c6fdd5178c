//! The elevator `wfq` through the request queue.

mod device;
mod random;
mod weights;

use device::{Served, SlowDevice, queue};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;
use tidegate_block::{
    Bio, BioFlags, IoContext, MemoryDevice, PageBuf, RequestQueue, Sector, Segment, WfqOptions,
};
use tidegate_rt::{WaitQueue, thread};

fn of(group: u32) -> IoContext {
    IoContext { group, ..Default::default() }
}

fn write(sector: u64, pages: usize) -> Bio {
    let segment = Segment::pages(Arc::new(PageBuf::zeroed(pages)), 0, pages);
    Bio::write(Sector(sector), vec![segment], BioFlags::empty())
}

/// Submits `n` writes that do not continue each other.
fn flood(q: &RequestQueue, ctx: IoContext, n: usize, pages: usize) {
    (0..n as u64).for_each(|i| q.submit(write(i * 10_000, pages).with_ctx(ctx)));
}

fn bytes(served: &[Served], group: u32) -> u64 {
    served.iter().filter(|s| s.ctx.group == group).map(|s| s.bytes).sum()
}

#[test]
fn backlogged_groups_share_by_weight() {
    let device = SlowDevice::new(Duration::from_micros(50), false);
    let q = queue(device.clone(), WfqOptions::default(), 1000);
    q.set_group_weight(2, 20);
    flood(&q, of(2), 100, 16);
    flood(&q, of(1), 900, 4);
    device.open();
    q.drain();
    let served = device.served();
    let last = served.iter().rposition(|s| s.ctx.group == 1).unwrap();
    let (heavy, light) = (bytes(&served[..=last], 1), bytes(&served[..=last], 2));
    let ratio = heavy as f64 / light as f64;
    assert!((4.0..6.0).contains(&ratio), "{heavy} to {light} bytes, {ratio}");
    assert_eq!(device.most(), WfqOptions::default().depth);
    let stats = q.elevator_stats();
    assert_eq!(stats.iter().map(|s| (s.group, s.weight)).collect::<Vec<_>>(), [(1, 100), (2, 20)]);
    assert_eq!((stats[0].requests, stats[0].bytes), (900, 900 * 4 * 4096));
    assert!(stats[0].wait_max <= stats[0].wait_total && stats[0].wait_max.0 > 0);
}

#[test]
fn classes_go_in_order() {
    let device = SlowDevice::new(Duration::ZERO, false);
    let options = WfqOptions { depth: 1, idle_class_expire: Duration::from_secs(60), ..Default::default() };
    let q = queue(device.clone(), options, 100);
    // The first request is at the device before the others come.
    flood(&q, IoContext { class: 2, level: 7, group: 9 }, 1, 1);
    for class in [3, 2, 1] {
        flood(&q, IoContext { class, ..Default::default() }, 20, 1);
    }
    device.open();
    q.drain();
    let order: Vec<_> = device.served()[1..].iter().map(|s| s.ctx.class).collect();
    assert!(order.is_sorted() && order.len() == 60, "{order:?}");
}

#[test]
fn the_idle_class_does_not_starve() {
    let device = SlowDevice::new(Duration::from_micros(100), true);
    let options = WfqOptions {
        depth: 1,
        idle_class_delay: Duration::from_secs(60),
        idle_class_expire: Duration::from_millis(5),
        ..Default::default()
    };
    let q = queue(device.clone(), options, 32);
    let done = Arc::new(AtomicUsize::new(0));
    let d = done.clone();
    let idle = IoContext { class: 3, ..Default::default() };
    flood(&q, of(1), 32, 1);
    q.submit(write(0, 1).with_ctx(idle).on_end(move |_, _| d.store(1, SeqCst)));
    // This ends only because the idle request is served though there is always another one.
    while done.load(SeqCst) == 0 {
        flood(&q, of(1), 1, 1);
    }
}

#[test]
fn strict_guarantees_give_a_sync_group_its_share() {
    let device = SlowDevice::new(Duration::from_micros(50), true);
    // The idling is so long that only a request can end it, on however slow a machine.
    let long = Duration::from_secs(3600);
    // The flood has turns as well, and they end with its budget.
    let options = WfqOptions {
        strict_guarantees: true,
        slice_idle: long,
        timeout_sync: long,
        max_budget: 8 * 4096,
        ..Default::default()
    };
    let q = queue(device.clone(), options, 1000);
    q.set_group_weight(2, 20);
    flood(&q, of(2), 1000, 1);
    let sync = of(1).enter();
    for i in 0..150 {
        q.submit_wait(write(i * 8, 1)).unwrap();
    }
    drop(sync);
    let served = device.served();
    let at: Vec<_> = (0..served.len()).filter(|i| served[*i].ctx.group == 1).collect();
    let between = at[149] - at[0] - 149;
    assert!((22..=38).contains(&between), "{between} of the flood's requests between");
    assert_eq!(device.most(), 1);
    assert!(q.elevator_stats()[0].idled > 0);
    // The device is kept idle for a request that will not come. Dropping the queue ends the idling.
    drop(q);
    assert_eq!(device.served().len(), 1150);
}

#[test]
fn a_full_group_blocks_nobody_else() {
    let device = SlowDevice::new(Duration::ZERO, false);
    let q = queue(device.clone(), WfqOptions::default(), 4);
    flood(&q, of(1), 4, 1);
    let (q2, gone) = (q.clone(), Arc::new(AtomicUsize::new(0)));
    let g = gone.clone();
    let full = thread::spawn("full", move || {
        flood(&q2, of(1), 1, 1);
        g.store(1, SeqCst);
    });
    // No request is served yet, so this returns only if each group has its own queue.
    flood(&q, of(2), 4, 1);
    while q.stats().congested == 0 {
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(gone.load(SeqCst), 0, "nobody made room");
    device.open();
    full.unwrap().join();
    q.drain();
    assert_eq!(device.served().len(), 9);
    assert_eq!(q.stats().congested, 1);
}

#[test]
fn adjacent_bios_merge_while_they_wait() {
    let device = SlowDevice::new(Duration::ZERO, false);
    let q = queue(device.clone(), WfqOptions { depth: 1, ..Default::default() }, 100);
    flood(&q, of(0), 1, 1);
    let ended = Arc::new(AtomicUsize::new(0));
    for i in 0..10 {
        let e = ended.clone();
        q.submit(write((1 << 20) + i * 8, 1).on_end(move |r, _| {
            e.fetch_add(r.is_ok() as usize, SeqCst);
        }));
    }
    device.open();
    q.drain();
    let sizes: Vec<_> = device.served().iter().map(|s| (s.bytes, s.bios)).collect();
    assert_eq!(sizes, [(4096, 1), (40960, 10)]);
    assert_eq!((ended.load(SeqCst), q.stats().write_requests), (10, 2));
}

#[test]
fn a_device_that_completes_inline_costs_no_stack() {
    let q = queue(Arc::new(MemoryDevice::new(1 << 30)), WfqOptions::default(), 1 << 20);
    let small = thread::spawn("gate", move || {
        // Each completion submits the next request, so completions would nest as deep.
        fn chain(q: &Arc<RequestQueue>, left: Arc<AtomicUsize>, done: Arc<WaitQueue>) {
            let q2 = q.clone();
            q.submit(write(0, 1).on_end(move |_, _| {
                if left.fetch_sub(1, SeqCst) > 1 {
                    chain(&q2, left, done);
                } else {
                    done.wake_all();
                }
            }));
        }
        let (left, done) = (Arc::new(AtomicUsize::new(200_000)), Arc::new(WaitQueue::new()));
        chain(&q, left.clone(), done.clone());
        done.wait_until(|| left.load(SeqCst) == 0);
        q.drain();
    });
    small.unwrap().join();
}
