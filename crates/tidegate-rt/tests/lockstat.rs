//! Lock statistics in a process of their own: the figures of waits, in a simulated world where they are exact.

use std::sync::Arc;
use std::time::Duration;
use tidegate_rt::{LockClass, Mutex, lockstat, sim, thread};

static CLASS: LockClass = LockClass::new("test->contended", 10);

const HELD: Duration = Duration::from_millis(1);

/// So many threads come for a lock one after the other while it is held, each for the lock's whole hold; then what
/// was counted.
fn contend(seed: u64, waiters: u32, rounds: u32) -> lockstat::LockStat {
    println!("seed {seed}");
    let _collecting = lockstat::collect();
    lockstat::reset();
    sim::run(seed, 8, move || {
        let lock = Arc::new(Mutex::new(&CLASS, ()));
        let waiter = |i: u32| {
            let lock = lock.clone();
            let body = move || {
                for n in 0..rounds {
                    // Each has a slot of its own in each round: it waits for the holder and for nobody else.
                    let round = n * waiters + i;
                    let at = 4 * HELD * round + HELD / 2;
                    let now = Duration::from_nanos(tidegate_rt::clock::now().0);
                    thread::sleep(at.saturating_sub(now));
                    drop(lock.lock());
                }
            };
            thread::spawn("waits", body).unwrap()
        };
        let waiters_at_work: Vec<_> = (0..waiters).map(waiter).collect();
        for round in 0..rounds * waiters {
            let now = Duration::from_nanos(tidegate_rt::clock::now().0);
            thread::sleep((4 * HELD * round).saturating_sub(now));
            let held = lock.lock();
            thread::sleep(HELD);
            drop(held);
        }
        waiters_at_work.into_iter().for_each(thread::JoinHandle::join);
    });
    lockstat::snapshot().into_iter().find(|l| l.class == "test->contended").unwrap()
}

#[test]
fn waits_are_counted_and_timed() {
    for seed in 0..5 {
        let s = contend(seed, 1, 10);
        assert_eq!(s.contentions, 10, "{s:?}");
        // Half of each hold, and a wake-up: these times are virtual.
        let wait = HELD.as_nanos() as u64 / 2;
        for mean in [s.wait.total / 10, s.wait.min, s.wait.max, s.wait.avg] {
            assert!((wait - 20_000..wait + 20_000).contains(&mean), "{s:?}");
        }
        // The same thread each time: only the first comes after somebody else.
        assert_eq!(s.con_bounces, 1, "{s:?}");
        assert_eq!(s.acquisitions, 20, "{s:?}");
        assert!(
            s.points.len() == 1 && s.points[0].0.contains("lockstat.rs:") && s.points[0].1 == 10,
            "{s:?}"
        );
        let hold = s.hold.total;
        assert!((10_000_000..10_100_000).contains(&hold), "{s:?}");

        // Two that take turns in waiting: each wait comes after the other's.
        let s = contend(seed, 2, 10);
        assert!(s.contentions == 20 && s.con_bounces >= 19, "{s:?}");
        assert!(s.acq_bounces > 30, "{s:?}");
    }
}
