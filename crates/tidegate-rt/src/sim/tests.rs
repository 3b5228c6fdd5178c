use super::*;
use crate::{Condvar, LockClass, Mutex, RwLock, WaitQueue, channel, clock, thread, trace};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

static PUSH: trace::EventPoint<3> = trace::EventPoint::new("push", ["who", "n", "seen"]);

static A: LockClass = LockClass::new("test->a", 10);
static B: LockClass = LockClass::new("test->b", 20);

fn config(seed: u64, cpus: usize) -> Config {
    Config { seed, cpus, trace: 1 << 16, ..Config::default() }
}

#[test]
fn time_jumps_to_where_something_happens() {
    let started = std::time::Instant::now();
    let slept = run(1, 1, || {
        let from = clock::now();
        thread::sleep(Duration::from_secs(3600));
        clock::now().since(from).duration()
    });
    assert!(slept >= Duration::from_secs(3600) && slept < Duration::from_secs(3601), "{slept:?}");
    assert!(started.elapsed() < Duration::from_secs(60));
}

#[test]
fn work_takes_as_long_as_there_are_cpus_for_it() {
    let four_tasks_of_10_ms = |cpus| {
        let work = || {
            let tasks: Vec<_> =
                (0..4).map(|_| thread::spawn("w", || charge(Nanos(10_000_000))).unwrap()).collect();
            tasks.into_iter().for_each(thread::JoinHandle::join);
        };
        run_with(&config(7, cpus), work).unwrap().elapsed.duration().as_micros()
    };
    for (cpus, ms) in [(1, 40), (2, 20), (4, 10), (9, 10)] {
        let took = four_tasks_of_10_ms(cpus);
        assert!((ms * 1000..ms * 1000 + 200).contains(&took), "{cpus} cpus: {took} us");
    }
}

/// Runs writers, readers, a queue and a channel. Returns the results.
fn bustle() -> Vec<u64> {
    let shared = Arc::new((Mutex::new(&A, Vec::new()), RwLock::new(&B, 0u64), Condvar::new()));
    let count = Arc::new((AtomicU64::new(0), WaitQueue::new()));
    let (sender, receiver) = channel::bounded(3);
    let mut tasks = Vec::new();
    for i in 0..6u64 {
        let (s, c, sender) = (shared.clone(), count.clone(), sender.clone());
        let body = move || {
            for n in 0..40 {
                charge(Nanos(clock::entropy() % 5_000));
                if n % 8 == i {
                    thread::sleep(Duration::from_micros(i * 7 + 1));
                }
                let seen = *s.1.read();
                let mut list = s.0.lock();
                PUSH.record([i, n, seen]);
                list.push(i * 1000 + n);
                *s.1.write() += 1;
                s.2.notify_one();
                drop(list);
                sender.send(i, 1).unwrap();
            }
            c.0.fetch_add(1, Relaxed);
            c.1.wake_all();
        };
        tasks.push(thread::spawn("worker", body).unwrap());
    }
    drop(sender);
    let receive = move || std::iter::from_fn(|| receiver.recv()).count();
    let received = thread::spawn("receiver", receive).unwrap();
    let mut list = shared.0.lock();
    while list.len() < 50 {
        shared.2.wait(&mut list);
    }
    drop(list);
    assert_eq!(received.join(), 240);
    count.1.wait_until(|| count.0.load(Relaxed) == 6);
    tasks.into_iter().for_each(thread::JoinHandle::join);
    assert_eq!(*shared.1.read(), 240);
    shared.0.lock().clone()
}

/// The events of the test itself. Tracing of locks is switched for the process, also by other tests.
fn pushes(events: &[crate::trace::Event]) -> Vec<&crate::trace::Event> {
    events.iter().filter(|e| e.name == "push").collect()
}

#[test]
fn one_seed_one_trace() {
    let tell = |seed, cpus| {
        let o = run_with(&config(seed, cpus), bustle).unwrap();
        assert!(o.switches > 100, "{}", o.switches);
        let mut order = o.value.clone();
        order.sort_unstable();
        assert_eq!(order, (0..6).flat_map(|i| (0..40).map(move |n| i * 1000 + n)).collect::<Vec<_>>());
        format!("{:?} {:?} {:?}", o.value, o.elapsed, pushes(&o.events))
    };
    for cpus in [1, 2, 5] {
        let first = tell(42, cpus);
        assert!(first.contains("\"push\""));
        assert_eq!(first, tell(42, cpus));
        assert_ne!(first, tell(43, cpus));
    }
}

#[test]
fn a_jittered_run_is_as_repeatable() {
    let config = Config { jitter: 8, quantum: Nanos(0), ..config(5, 3) };
    let tell = || {
        let o = run_with(&config, bustle).unwrap();
        format!("{:?} {:?}", o.elapsed, pushes(&o.events))
    };
    assert_eq!(tell(), tell());
}

#[test]
fn a_deadlock_is_told_with_its_locks() {
    let crossed = || {
        let locks = Arc::new((Mutex::new(&A, ()), Mutex::new(&A, ())));
        let other = locks.clone();
        let task = thread::spawn("other", move || {
            let _second = other.1.lock();
            thread::sleep(Duration::from_millis(1));
            let _first = other.0.lock_nested();
        });
        let _first = locks.0.lock();
        thread::sleep(Duration::from_millis(1));
        let _second = locks.1.lock_nested();
        task.unwrap().join();
    };
    let deadlock = run_with(&config(3, 2), crossed).unwrap_err();
    let told = deadlock.to_string();
    assert!(told.contains("main waits for test->a (held by other) at "), "{told}");
    assert!(told.contains("other waits for test->a (held by main) at "), "{told}");
    assert!(told.contains("tests.rs:") && told.contains("; holds test->a"), "{told}");
}

#[test]
fn who_is_never_woken_is_told() {
    let forgotten = || WaitQueue::new().wait_until(|| false);
    let told = run_with(&config(3, 2), forgotten).unwrap_err().to_string();
    assert!(told.contains("main waits for a condition at "), "{told}");
}

#[test]
fn waits_end_in_time() {
    run(9, 2, || {
        let from = clock::now();
        assert!(!WaitQueue::new().wait_timeout(Duration::from_millis(5), || false));
        let lock = Mutex::new(&A, ());
        assert!(!Condvar::new().wait_for(&mut lock.lock(), Duration::from_millis(5)));
        let took = clock::now().since(from).duration();
        assert!(took >= Duration::from_millis(10) && took < Duration::from_millis(11), "{took:?}");
    });
}

#[test]
fn a_writer_is_not_starved_by_readers() {
    run(11, 4, || {
        let lock = Arc::new(RwLock::new(&A, 0));
        let reader = |n: u64| {
            let lock = lock.clone();
            let body = move || {
                let mut after = 0;
                for _ in 0..200 {
                    let v = lock.read();
                    charge(Nanos(10_000 + n));
                    after += *v;
                }
                after
            };
            thread::spawn("reader", body).unwrap()
        };
        let readers = [reader(0), reader(1), reader(2)];
        thread::sleep(Duration::from_micros(50));
        // The writer's wake-up takes longer than the time between two readers.
        for _ in 0..20 {
            *lock.write() += 1;
        }
        let after: Vec<u64> = readers.map(thread::JoinHandle::join).into();
        assert!(after.iter().all(|n| *n > 20 * 100), "{after:?}");
    });
}

/// A task that tries first, and waits where that fails, comes behind a writer like a task that waits at once.
/// Its hold lasts longer than the writer's wake-up, and between two holds it copies a page, as in a pass of
/// write-back.
#[test]
fn a_writer_is_not_overtaken_by_those_who_try() {
    for seed in 0..10 {
        let waited = run(seed, 4, || {
            let lock = Arc::new((RwLock::new(&A, ()), AtomicU64::new(0)));
            let theirs = lock.clone();
            let flusher = thread::spawn("flusher", move || {
                while theirs.1.load(Relaxed) == 0 {
                    let guard = theirs.0.try_read().unwrap_or_else(|| theirs.0.read());
                    thread::sleep(Duration::from_micros(200));
                    drop(guard);
                    charge(Nanos(1_000));
                    assert!(clock::now() < Nanos(1_000_000_000), "the writer waits for ever");
                }
            });
            thread::sleep(Duration::from_millis(1));
            let since = clock::now();
            drop(lock.0.write());
            lock.1.store(1, Relaxed);
            flusher.unwrap().join();
            clock::now().since(since).duration()
        });
        assert!(waited < Duration::from_micros(500), "seed {seed}: {waited:?}");
    }
}

/// Tries to take the lock by `how` while the lock is free and another task, which was woken for it or has
/// waited long, does not have it yet.
fn tried_in_between(
    wants: fn(&RwLock<()>, &Mutex<()>),
    held: u64,
    how: fn(&RwLock<()>, &Mutex<()>) -> bool,
) -> bool {
    run(5, 4, move || {
        let locks = Arc::new((RwLock::new(&A, ()), Mutex::new(&A, ())));
        let (rw, mutex) = (locks.0.write(), locks.1.lock_nested());
        let theirs = locks.clone();
        let waiter = thread::spawn("waits", move || wants(&theirs.0, &theirs.1)).unwrap();
        thread::sleep(Duration::from_micros(held));
        drop((mutex, rw));
        let got = how(&locks.0, &locks.1);
        waiter.join();
        got
    })
}

/// As in Linux's `down_read_trylock`, `down_write_trylock` and `mutex_trylock`.
#[test]
fn tries_fail_where_the_order_of_waiters_says_so() {
    let read: fn(&RwLock<()>, &Mutex<()>) = |rw, _| drop(rw.read());
    let write: fn(&RwLock<()>, &Mutex<()>) = |rw, _| drop(rw.write());
    let lock: fn(&RwLock<()>, &Mutex<()>) = |_, m| drop(m.lock());
    let try_read: fn(&RwLock<()>, &Mutex<()>) -> bool = |rw, _| rw.try_read().is_some();
    let try_write: fn(&RwLock<()>, &Mutex<()>) -> bool = |rw, _| rw.try_write().is_some();
    let try_lock: fn(&RwLock<()>, &Mutex<()>) -> bool = |_, m| m.try_lock().is_some();
    assert!(tried_in_between(read, 100, try_read), "readers share");
    assert!(!tried_in_between(write, 100, try_read), "a writer waits");
    assert!(!tried_in_between(read, 100, try_write) && !tried_in_between(write, 100, try_write));
    assert!(tried_in_between(lock, 100, try_lock), "a free mutex may be stolen");
    assert!(!tried_in_between(lock, 5_000, try_lock), "unless it is handed over");
}

/// A task that takes a lock again sooner than a waiter wakes up does not keep others from it. Where holds are longer
/// than others should wait, it does not get a third hold.
#[test]
fn nobody_is_kept_from_a_lock_by_a_short_loop() {
    let ways = |seed| [(seed, false, 100, 2), (seed, true, 100, 2), (seed, false, 10_000, 25)];
    for (seed, shared, hold, most) in (0..20).flat_map(ways) {
        let waited = run(seed, 4, move || {
            let lock = Arc::new((RwLock::new(&A, ()), AtomicU64::new(0)));
            let greedy = lock.clone();
            let loops = move || {
                for _ in 0..10_000 {
                    let guard = greedy.0.write();
                    thread::sleep(Duration::from_micros(hold));
                    drop(guard);
                    if greedy.1.load(Relaxed) > 0 {
                        break;
                    }
                }
            };
            let loops = thread::spawn("greedy", loops).unwrap();
            thread::sleep(Duration::from_millis(1));
            let since = clock::now();
            match shared {
                true => drop(lock.0.read()),
                false => drop(lock.0.write()),
            }
            lock.1.store(1, Relaxed);
            loops.join();
            clock::now().since(since).duration()
        });
        let most = Duration::from_millis(most);
        assert!(waited < most, "seed {seed}, shared {shared}, hold {hold}: {waited:?}");
    }
}

#[test]
#[should_panic(expected = "broken on purpose")]
fn a_panic_comes_out() {
    run(1, 2, || thread::spawn("t", || panic!("broken on purpose")).unwrap().join());
}

/// A lock of the process that is held by another world or outside of all.
#[test]
fn a_lock_of_the_process_is_waited_for_outside_of_time() {
    static POOL: Mutex<u64> = Mutex::new(&A, 0);
    let world = |seed| {
        let take = || {
            for _ in 0..2_000 {
                let mut g = POOL.lock();
                *g += 1;
                std::thread::yield_now();
            }
        };
        run(seed, 2, move || {
            let task = thread::spawn("t", take).unwrap();
            take();
            task.join();
            clock::now()
        })
    };
    let other = std::thread::spawn(move || world(1));
    let (here, there) = (world(1), other.join().unwrap());
    assert_eq!(*POOL.lock(), 8_000);
    assert_eq!(here, there);
}

#[test]
fn worlds_lie_side_by_side() {
    let outside: Vec<_> =
        (0..4).map(|_| std::thread::spawn(|| run_with(&config(42, 2), bustle).unwrap().value)).collect();
    let all: Vec<_> = outside.into_iter().map(|t| t.join().unwrap()).collect();
    assert!(all.iter().all(|v| *v == all[0]));
    assert!(!active());
}
