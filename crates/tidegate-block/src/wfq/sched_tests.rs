//! The scheduler in virtual time: nothing here depends on the machine.

use super::*;
use crate::{Bio, BioFlags, IoContext, PageBuf, Sector, Segment};
use std::sync::Arc;

const MS: u64 = 1_000_000;
const PAGE: u64 = 4096;

fn key(class: u8, group: u32, level: u8) -> Key {
    Key::of(IoContext { group, class, level })
}

fn write(at: u64, pages: usize) -> Request {
    let segment = Segment::pages(Arc::new(PageBuf::zeroed(pages)), 0, pages);
    Request::new(Bio::write(Sector(at), vec![segment], BioFlags::empty()))
}

/// Queues `n` requests of `pages` pages that do not continue each other.
fn fill(s: &mut Sched, k: Key, n: usize, pages: usize, now: u64) {
    (0..n).for_each(|i| s.insert(k, Entry::send(write(i as u64 * 10_000, pages), false, Nanos(now))));
}

fn sync(s: &mut Sched, k: Key, now: u64) {
    s.insert(k, Entry::send(write(0, 1), true, Nanos(now)));
}

fn next(s: &mut Sched, now: u64) -> Result<Key, u64> {
    match s.next(Nanos(now)) {
        Next::Job(k, _) => Ok(k),
        Next::Wait(t) => Err(t.0),
    }
}

/// Sends and ends `n` requests at one time, and returns their queues.
fn serve(s: &mut Sched, n: usize, now: u64) -> Vec<Key> {
    let one = |_| {
        let k = next(s, now).expect("something to send");
        s.complete(k, Nanos(now));
        k
    };
    (0..n).map(one).collect()
}

fn sched(strict_guarantees: bool) -> Sched {
    Sched::new(WfqOptions { strict_guarantees, ..Default::default() })
}

#[test]
fn groups_share_by_weight_and_levels_within_a_group() {
    let mut s = sched(false);
    s.set_weight(2, 20);
    fill(&mut s, key(2, 1, 0), 400, 1, 1);
    fill(&mut s, key(2, 1, 6), 400, 1, 1);
    fill(&mut s, key(2, 2, 4), 400, 8, 1);
    let served = serve(&mut s, 500, 2);
    let bytes = |g, l| {
        let n = served.iter().filter(|k| k.group == g && k.level == l).count();
        (n * if g == 2 { 8 } else { 1 }) as f64
    };
    let shares = (bytes(1, 0) + bytes(1, 6)) / bytes(2, 4);
    assert!((4.5..5.5).contains(&shares), "{shares}");
    let levels = bytes(1, 0) / bytes(1, 6);
    assert!((3.9..4.1).contains(&levels), "8 - 0 to 8 - 6: {levels}");
}

#[test]
fn a_group_that_was_silent_has_no_credit() {
    let mut s = sched(false);
    fill(&mut s, key(2, 1, 4), 300, 1, 1);
    serve(&mut s, 200, 2);
    fill(&mut s, key(2, 2, 4), 100, 1, 3);
    let late = serve(&mut s, 40, 4).iter().filter(|k| k.group == 2).count();
    assert!((19..=21).contains(&late), "{late} of 40");
}

#[test]
fn classes_go_strictly_and_the_idle_class_last() {
    let mut s = sched(false);
    fill(&mut s, key(3, 1, 0), 3, 1, 10 * MS);
    fill(&mut s, key(2, 1, 7), 3, 1, 10 * MS);
    fill(&mut s, key(1, 1, 7), 3, 1, 10 * MS);
    let order: Vec<_> = serve(&mut s, 6, 11 * MS).iter().map(|k| k.class).collect();
    assert_eq!(order, [0, 0, 0, 1, 1, 1]);
    assert_eq!(next(&mut s, 11 * MS), Err(13 * MS), "others have only just ended");
    assert_eq!(next(&mut s, 13 * MS), Ok(key(3, 1, 0)));
}

#[test]
fn the_idle_class_gets_one_request_each_time_it_has_waited_too_long() {
    let mut s = sched(false);
    fill(&mut s, key(3, 1, 0), 3, 1, 0);
    fill(&mut s, key(1, 2, 0), 100, 1, 0);
    let mut served = Vec::new();
    for t in 0..60 {
        served.extend(serve(&mut s, 1, t * 10 * MS));
    }
    let at: Vec<_> = (0..60).filter(|i| served[*i].class == 2).collect();
    assert_eq!(at, [25, 50], "each 250 ms");
}

/// The queues of the requests of 1 ms that are served, in order, until `a` had `requests`. `a` thinks for 3
/// ms after each, and `b` always has more.
fn beside_a_flood(s: &mut Sched, a: Key, b: Key, requests: usize) -> Vec<Key> {
    fill(s, b, 10 * requests, 1, 0);
    let (mut now, mut comes, mut served) = (1, 1, Vec::new());
    while served.iter().filter(|k| **k == a).count() < requests {
        if comes <= now {
            sync(s, a, now);
            comes = u64::MAX;
        }
        match next(s, now) {
            Ok(k) => {
                now += MS;
                s.complete(k, Nanos(now));
                served.push(k);
                comes = if k == a { now + 3 * MS } else { comes };
            }
            Err(until) => now = until.min(comes),
        }
    }
    served
}

#[test]
fn strict_guarantees_keep_the_device_for_the_queue_in_service() {
    let mut s = sched(true);
    s.set_weight(2, 20);
    let (a, b) = (key(2, 1, 4), key(2, 2, 4));
    let served = beside_a_flood(&mut s, a, b, 10_000);
    let flood = served.len() - 10_000;
    // The flood is in service, too, and then has 125 ms for itself.
    assert!((1850..=2150).contains(&flood), "10000 requests of weight 100 beside {flood} of weight 20");
    let turns: Vec<_> = served.chunk_by(|x, y| x == y).map(|t| (t[0] == a, t.len())).collect();
    let floods: Vec<_> = turns.iter().filter(|t| !t.0).map(|t| t.1).collect();
    assert!(floods.iter().all(|n| (124..=126).contains(n)), "{floods:?}");
    // The number of requests in between is what is due, in turns of 31 or 32, which makes no difference here.
    let between: Vec<_> = turns[1..turns.len() - 1].iter().filter(|t| t.0).map(|t| t.1).collect();
    assert!(between.iter().all(|n| (590..=660).contains(n)), "{between:?}");
    assert!(s.stats()[0].idled > 9000);
}

/// The service in a minute of two queues that think for 0.1 ms after each request of 1 ms; whether they are
/// synchronous.
fn two_that_think(s: &mut Sched, is_sync: [bool; 2]) -> [u32; 2] {
    s.set_weight(2, 20);
    let queues = [key(2, 1, 4), key(2, 2, 4)];
    let (mut now, mut comes, mut served) = (1, [1, 1], [0; 2]);
    while now < 60_000 * MS {
        for (i, at) in comes.iter_mut().enumerate().filter(|(_, at)| **at <= now) {
            s.insert(queues[i], Entry::send(write(0, 1), is_sync[i], Nanos(now)));
            *at = u64::MAX;
        }
        match next(s, now) {
            Ok(k) => {
                now += MS;
                s.complete(k, Nanos(now));
                let i = usize::from(k == queues[1]);
                served[i] += 1;
                comes[i] = now + MS / 10;
            }
            Err(until) => now = until.min(comes[0]).min(comes[1]),
        }
    }
    served
}

/// As in BFQ, strict guarantees hold for every queue: the device idles for a queue even when no thread waits for its
/// requests.
#[test]
fn weights_hold_among_queues_that_think() {
    for is_sync in [[true, true], [true, false], [false, true], [false, false]] {
        let mut s = sched(true);
        let served = two_that_think(&mut s, is_sync);
        let ratio = f64::from(served[0]) / f64::from(served[1]);
        assert!((4.5..5.5).contains(&ratio), "{is_sync:?}: {served:?}");
        assert!(s.stats().iter().all(|q| q.idled > 1000), "{is_sync:?}: {:?}", s.stats());
    }
}

/// Without strict guarantees the device is kept idle for no asynchronous queue.
#[test]
fn asynchronous_queues_are_not_waited_for_otherwise() {
    let mut s = Sched::new(WfqOptions { depth: 1, ..Default::default() });
    let served = two_that_think(&mut s, [false, false]);
    assert!(served[0].abs_diff(served[1]) <= 1, "{served:?}");
    assert!(s.stats().iter().all(|q| q.idled == 0));
}

/// Strict guarantees include the idle class. Requests of other classes that come meanwhile do not wait for it.
#[test]
fn the_idle_class_in_service_gives_way() {
    let mut s = sched(true);
    let (idle, other) = (key(3, 1, 4), key(2, 2, 4));
    fill(&mut s, idle, 2, 1, 0);
    assert_eq!(serve(&mut s, 1, 10 * MS), [idle]);
    fill(&mut s, other, 1, 1, 11 * MS);
    assert_eq!(serve(&mut s, 1, 11 * MS), [other]);
}

#[test]
fn a_queue_gives_way_after_its_budget() {
    let max_budget = 10 * PAGE;
    let mut s = Sched::new(WfqOptions { strict_guarantees: true, max_budget, ..Default::default() });
    let (a, b) = (key(2, 1, 4), key(2, 2, 4));
    for _ in 0..40 {
        sync(&mut s, a, 0);
        sync(&mut s, b, 0);
    }
    let order: Vec<_> = serve(&mut s, 60, MS).iter().map(|k| k.group).collect();
    assert!(order.chunks(10).all(|c| c.iter().all(|g| *g == c[0])), "{order:?}");
    assert_eq!(order.iter().filter(|g| **g == 1).count(), 30, "{order:?}");
}

#[test]
fn a_higher_class_does_not_wait_for_the_queue_in_service() {
    let mut s = sched(true);
    let (a, b) = (key(2, 1, 4), key(1, 2, 4));
    sync(&mut s, a, 0);
    sync(&mut s, a, 0);
    assert_eq!(serve(&mut s, 1, MS), [a]);
    sync(&mut s, b, MS);
    assert_eq!(serve(&mut s, 1, MS), [b]);
}

#[test]
fn keeping_the_device_ends_with_slice_idle() {
    let mut s = sched(true);
    let (a, b) = (key(2, 1, 4), key(2, 2, 4));
    fill(&mut s, b, 1, 16, 0);
    sync(&mut s, a, 0);
    assert_eq!(serve(&mut s, 1, 2 * MS), [a]);
    assert_eq!(next(&mut s, 3 * MS), Err(10 * MS));
    assert_eq!(next(&mut s, 4 * MS), Err(10 * MS));
    assert_eq!(s.stats()[0].idled, 1, "one wait, however often it is looked at");
    assert_eq!(next(&mut s, 10 * MS), Ok(b));
    s.complete(b, Nanos(11 * MS));
    // Now the device is kept idle for b, though no thread waits for its requests.
    sync(&mut s, a, 11 * MS);
    assert_eq!(next(&mut s, 12 * MS), Err(19 * MS));
    assert_eq!(next(&mut s, 19 * MS), Ok(a));
    s.complete(a, Nanos(20 * MS));
    fill(&mut s, b, 1, 16, 21 * MS);
    assert_eq!(next(&mut s, 21 * MS), Err(28 * MS));
    s.close();
    assert_eq!(next(&mut s, 21 * MS), Ok(b));
}

#[test]
fn without_strict_guarantees_only_different_weights_are_worth_it() {
    for (weight, held) in [(100, false), (20, true)] {
        let mut s = sched(false);
        s.set_weight(2, weight);
        let (a, b) = (key(2, 1, 4), key(2, 2, 4));
        fill(&mut s, b, 50, 16, 0);
        sync(&mut s, a, 0);
        assert_eq!(serve(&mut s, 2, MS), [a, b]);
        sync(&mut s, a, MS);
        assert_eq!(next(&mut s, MS), Ok(a));
        // The request is at the device, which has room for more.
        assert_eq!(next(&mut s, MS) == Err(NEVER.0), held);
        if held {
            s.complete(a, Nanos(2 * MS));
            assert_eq!(next(&mut s, 3 * MS), Err(10 * MS));
        }
    }
}

#[test]
fn a_queue_that_thinks_for_long_is_not_waited_for() {
    let mut s = sched(false);
    s.set_weight(2, 20);
    let (a, b) = (key(2, 1, 4), key(2, 2, 4));
    let mut now = 1;
    for _ in 0..20 {
        sync(&mut s, a, now);
        serve(&mut s, 1, now);
        now += 100 * MS;
    }
    fill(&mut s, b, 50, 64, now);
    assert_eq!(serve(&mut s, 1, now), [b]);
    sync(&mut s, a, now);
    assert_eq!(serve(&mut s, 2, now), [a, b]);
}

#[test]
fn adjacent_requests_of_one_queue_merge_and_ordered_ones_do_not() {
    let mut s = sched(false);
    let (k, limits) = (Key::of(IoContext::default()), QueueLimits::default());
    s.insert(k, Entry::send(write(0, 1), false, Nanos(1)));
    s.insert(k, Entry::send(write(800, 1), false, Nanos(1)));
    assert!(s.merge(k, write(8, 2), &limits).is_ok());
    assert!(s.merge(k, write(24, 1), &limits).is_ok());
    assert!(s.merge(k, write(40, 1), &limits).is_err(), "a gap");
    assert!(s.merge(key(2, 0, 5), write(32, 1), &limits).is_err(), "another queue");
    for flag in [BioFlags::FUA, BioFlags::PREFLUSH] {
        let ordered = |at| {
            let segment = Segment::pages(Arc::new(PageBuf::zeroed(1)), 0, 1);
            Request::new(Bio::write(Sector(at), vec![segment], flag))
        };
        assert!(s.merge(k, ordered(32), &limits).is_err());
        s.insert(k, Entry::send(ordered(1600), false, Nanos(1)));
        assert!(s.merge(k, ordered(1608), &limits).is_err());
    }
    let Next::Job(_, Job::Send(rq)) = s.next(Nanos(2)) else { panic!("nothing to send") };
    assert_eq!((rq.bytes, rq.bios.len()), (4 * 4096, 3));
}

fn by_process() -> Sched {
    Sched::new(WfqOptions { queues: Queues::Processes, ..Default::default() })
}

#[test]
fn asynchronous_writes_together_have_the_share_of_one_thread() {
    let mut s = by_process();
    let ctx = IoContext::default();
    let log = s.key(IoContext { level: 0, ..ctx }, 3, true);
    // Asynchronous requests of three threads are all in one queue.
    (1..4).for_each(|thread| {
        let k = s.key(ctx, thread, false);
        fill(&mut s, k, 100, 1, 1);
    });
    for thread in 1..3 {
        let k = s.key(ctx, thread, true);
        fill(&mut s, k, 100, 1, 1);
    }
    fill(&mut s, log, 100, 1, 1);
    let served = serve(&mut s, 150, 2);
    let of = |k: Key| served.iter().filter(|s| **s == k).count();
    // Weights 100, 100, 100 and 200.
    let counts = [s.key(ctx, 7, false), s.key(ctx, 1, true), s.key(ctx, 2, true), log].map(of);
    assert!(counts[..3].iter().all(|n| (28..=32).contains(n)), "{counts:?}");
    assert!((58..=62).contains(&counts[3]), "{counts:?}");
    let stats: Vec<_> = s.stats().iter().map(|s| (s.group, s.requests as usize)).collect();
    assert_eq!(stats, [(0, counts[0]), (1, 150 - counts[0])]);
}

#[test]
fn queues_of_threads_that_are_gone_go_and_stay_counted() {
    let mut s = by_process();
    for thread in 0..10_000 {
        let k = s.key(IoContext::default(), thread, true);
        fill(&mut s, k, 1, 1, 1);
        serve(&mut s, 1, 2);
    }
    assert!(s.classes[1].nodes.len() <= MANY + 1, "{}", s.classes[1].nodes.len());
    assert_eq!(s.stats().iter().map(|s| s.requests).collect::<Vec<_>>(), [10_000]);
}
