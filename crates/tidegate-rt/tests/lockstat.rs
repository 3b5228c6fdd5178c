//! Lock statistics in a separate process: the figures of waits, in a simulated world, where they are exact.

use std::sync::Arc;
use std::time::Duration;
use tidegate_rt::{LockClass, Mutex, RwLock, lockstat, sim, thread};

static CLASS: LockClass = LockClass::new("test->contended", 10);

const HELD: Duration = Duration::from_millis(1);

/// So many threads come for a lock one after the other while it is held, and each waits during the hold. Returns the
/// counts.
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
                    // Each thread has a slot of its own in each round: it waits only for the holder.
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

/// The cases are in one test, since statistics belong to the process.
#[test]
fn classes_are_counted_and_timed() {
    waits_are_counted_and_timed();
    those_who_share_are_told_apart();
}

fn waits_are_counted_and_timed() {
    for seed in 0..5 {
        let class = contend(seed, 1, 10);
        let s = &class.alone;
        assert_eq!(s.contentions, 10, "{s:?}");
        // Half of each hold, and a wake-up: these times are virtual.
        let wait = HELD.as_nanos() as u64 / 2;
        for mean in [s.wait.total / 10, s.wait.min, s.wait.max, s.wait.avg] {
            assert!((wait - 20_000..wait + 20_000).contains(&mean), "{s:?}");
        }
        // One thread waits each time: only its first wait comes after that of another thread.
        assert_eq!(s.con_bounces, 1, "{s:?}");
        assert_eq!(s.acquisitions, 20, "{s:?}");
        // One place waits, and finds that the other has it.
        let [[waits], [holds]] =
            [&class.waiting, &class.holding].map(|p| <[_; 1]>::try_from(&p[..]).unwrap());
        assert!(
            waits.file.ends_with("tests/lockstat.rs") && (waits.count, holds.count) == (10, 10),
            "{class:?}"
        );
        assert!(holds.line > waits.line, "{class:?}");
        assert_eq!(class.shared.acquisitions, 0, "{class:?}");
        let hold = s.hold.total;
        assert!((10_000_000..10_100_000).contains(&hold), "{s:?}");

        // Two threads wait in turns: each wait comes after one of the other thread.
        let s = contend(seed, 2, 10).alone;
        assert!(s.contentions == 20 && s.con_bounces >= 19, "{s:?}");
        assert!(s.acq_bounces > 30, "{s:?}");
    }
}

static SHARED: LockClass = LockClass::new("test->shared", 20);

fn those_who_share_are_told_apart() {
    let _collecting = lockstat::collect();
    sim::run(3, 8, || {
        let lock = Arc::new(RwLock::new(&SHARED, ()));
        let readers: Vec<_> = (0..3)
            .map(|i| {
                let lock = lock.clone();
                let read = move || {
                    thread::sleep(HELD / 2 + HELD / 100 * i);
                    drop(lock.read());
                };
                thread::spawn("reads", read).unwrap()
            })
            .collect();
        let held = lock.write();
        thread::sleep(HELD);
        drop(held);
        readers.into_iter().for_each(thread::JoinHandle::join);
        let tries = lock.clone();
        thread::spawn("tries", move || drop(tries.try_read())).unwrap().join();
        // A writer meets a reader.
        let reads = lock.read();
        let writer = lock.clone();
        let writer = thread::spawn("writes", move || drop(writer.write())).unwrap();
        thread::sleep(HELD);
        drop(reads);
        writer.join();
    });
    let s = lockstat::snapshot().into_iter().find(|l| l.class == "test->shared").unwrap();
    assert_eq!((s.alone.acquisitions, s.alone.contentions), (2, 1), "{s:?}");
    assert_eq!((s.shared.acquisitions, s.shared.contentions), (5, 3), "{s:?}");
    assert!(s.alone.hold.max >= HELD.as_nanos() as u64 && s.shared.wait.max < s.alone.hold.max, "{s:?}");
    let all = s.all();
    assert_eq!((all.acquisitions, all.contentions, all.con_bounces), (7, 4, 4), "{s:?}");
    assert_eq!(all.wait.total, s.alone.wait.total + s.shared.wait.total);
    let lines = |points: &[lockstat::CallPoint]| points.iter().map(|p| p.count).collect::<Vec<_>>();
    assert_eq!((lines(&s.waiting), lines(&s.holding)), (vec![3, 1], vec![3, 1]), "{s:?}");
    // While the writer held the lock, three waited at one place; while a reader held it, one waited at
    // another.
    assert!(s.waiting[0].line < s.holding[0].line && s.holding[0].line < s.holding[1].line, "{s:?}");
}
