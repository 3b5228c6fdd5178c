//! The costs of a run and the rules for the order of its tasks. Each of these tests fails when one cost or
//! rule is left out.

use super::*;
use crate::{LockClass, Mutex, WaitQueue, clock, thread};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

static LOG: LockClass = LockClass::new("test->log", 10);

const FREE: Costs = Costs::FREE;

fn value<R: Send + 'static>(config: &Config, f: impl FnOnce() -> R + Send + 'static) -> R {
    println!("seed {}", config.seed);
    run_with(config, f).unwrap().value
}

/// A sleep ends at its time, and then the task has to get onto a CPU.
#[test]
fn a_switch_takes_its_time() {
    for switch in [0, 1_500, 20_000] {
        let costs = Costs { switch: Nanos(switch), ..FREE };
        let slept = value(&Config { costs, ..Config::default() }, || {
            let from = clock::now();
            thread::sleep(Duration::from_millis(1));
            clock::now().since(from)
        });
        assert_eq!(slept, Nanos(1_000_000 + switch));
    }
}

#[test]
fn a_wake_up_takes_its_time() {
    for wake_up in [0, 3_000, 20_000] {
        let costs = Costs { wake_up: Nanos(wake_up), ..FREE };
        let between = value(&Config { costs, ..Config::default() }, || {
            let shared = Arc::new((AtomicBool::new(false), WaitQueue::new()));
            let s = shared.clone();
            let waits = move || {
                s.1.wait_until(|| s.0.load(SeqCst));
                clock::now()
            };
            let waits = thread::spawn("waits", waits).unwrap();
            thread::sleep(Duration::from_millis(1));
            let woken = clock::now();
            shared.0.store(true, SeqCst);
            shared.1.wake_all();
            waits.join().since(woken)
        });
        assert_eq!(between, Nanos(wake_up));
    }
}

#[test]
fn who_wakes_pays_for_each_that_sleeps() {
    for wake in [0, 7_000] {
        let costs = Costs { wake: Nanos(wake), ..FREE };
        let took = value(&Config { costs, ..Config::default() }, || {
            let shared = Arc::new((AtomicBool::new(false), WaitQueue::new()));
            let waits = |_| {
                let s = shared.clone();
                thread::spawn("waits", move || s.1.wait_until(|| s.0.load(SeqCst))).unwrap()
            };
            let tasks: Vec<_> = (0..3).map(waits).collect();
            thread::sleep(Duration::from_millis(1));
            shared.0.store(true, SeqCst);
            let from = clock::now();
            shared.1.wake_all();
            let took = clock::now().since(from);
            tasks.into_iter().for_each(thread::JoinHandle::join);
            took
        });
        assert_eq!(took, Nanos(3 * wake));
    }
}

/// Two tasks on one CPU that never wait take turns, each for a time slice.
#[test]
fn a_time_slice_ends() {
    const STEP: u64 = 100_000;
    for (seed, steps) in (0..10).flat_map(|seed| [(seed, 5), (seed, 20)]) {
        let config = Config { seed, cpus: 1, costs: FREE, slice: Nanos(steps * STEP), ..Config::default() };
        let log = value(&config, || {
            let log = Arc::new(Mutex::new(&LOG, Vec::new()));
            let task = |i: u64| {
                let log = log.clone();
                let work = move || {
                    for _ in 0..100 {
                        charge(Nanos(STEP));
                        log.lock().push(i);
                    }
                };
                thread::spawn("works", work).unwrap()
            };
            [task(0), task(1)].into_iter().for_each(thread::JoinHandle::join);
            log.lock().clone()
        });
        let turns: Vec<usize> = log.chunk_by(|a, b| a == b).map(<[u64]>::len).collect();
        // Only the time in which both tasks run counts: the last task goes on alone, and the same task may be drawn
        // again.
        let longest = turns[..turns.len() - 1].iter().max().unwrap();
        assert!(*longest <= 12 * steps as usize && turns.len() > 100 / steps as usize / 2, "{turns:?}");
        assert!(turns.iter().filter(|n| **n <= steps as usize + 1).count() > turns.len() / 4, "{turns:?}");
    }
}

/// The seed chooses which of several ready tasks moves.
#[test]
fn the_seed_chooses_who_is_next() {
    const TASKS: u64 = 6;
    let orders: Vec<Vec<u64>> = (0..60)
        .map(|seed| {
            let config = Config { seed, cpus: 1, costs: FREE, ..Config::default() };
            value(&config, || {
                let log = Arc::new(Mutex::new(&LOG, Vec::new()));
                let task = |i| {
                    let log = log.clone();
                    thread::spawn("logs", move || log.lock().push(i)).unwrap()
                };
                let tasks: Vec<_> = (0..TASKS).map(task).collect();
                tasks.into_iter().for_each(thread::JoinHandle::join);
                log.lock().clone()
            })
        })
        .collect();
    let first: BTreeSet<u64> = orders.iter().map(|o| o[0]).collect();
    let last: BTreeSet<u64> = orders.iter().map(|o| o[TASKS as usize - 1]).collect();
    assert!(first.len() as u64 == TASKS && last.len() as u64 == TASKS, "{orders:?}");
    let all: BTreeSet<_> = orders.iter().collect();
    assert!(all.len() > 50, "{} orders of 60 seeds", all.len());
}

/// Uncontended locks cost CPU time, which tasks pay in parallel on as many CPUs as there are.
#[test]
fn charges_are_paid_on_as_many_cpus_as_there_are() {
    let took = |cpus| {
        let costs = Costs { lock: Nanos(1_000), ..FREE };
        let config = Config { cpus, costs, quantum: Nanos(0), ..Config::default() };
        value(&config, || {
            let done = Arc::new(AtomicU64::new(0));
            let from = clock::now();
            let task = |_| {
                let done = done.clone();
                let mine = Mutex::new(&LOG, ());
                let work = move || {
                    (0..100).for_each(|_| drop(mine.lock()));
                    done.fetch_add(1, SeqCst);
                };
                thread::spawn("locks", work).unwrap()
            };
            (0..4).map(task).collect::<Vec<_>>().into_iter().for_each(thread::JoinHandle::join);
            assert_eq!(done.load(SeqCst), 4);
            clock::now().since(from).0
        })
    };
    // A lock is paid for when it is taken and when it is released.
    assert_eq!([1, 2, 4].map(took), [800_000, 400_000, 200_000]);
}

/// One task holds a lock during `hold`, and another wants it 2 µs after the beginning. Returns when the other has it,
/// and the CPU time of both, in nanoseconds.
fn second(spin: bool, hold: fn()) -> (u64, u64) {
    let costs = Costs { wake_up: Nanos(3_000), switch: Nanos(500), ..FREE };
    value(&Config { costs, spin, quantum: Nanos(0), ..Config::default() }, move || {
        let lock = Arc::new(Mutex::new(&LOG, ()));
        let theirs = lock.clone();
        let holds = thread::spawn("holds", move || {
            let _held = theirs.lock();
            hold();
        });
        thread::sleep(Duration::from_micros(2));
        drop(lock.lock());
        let (got, used) = (clock::now().0, cpu_time().unwrap().0.0);
        holds.unwrap().join();
        (got, used)
    })
}

/// A spinning task keeps its CPU, and needs no wake-up and no switch.
#[test]
fn a_task_spins_while_the_holder_runs() {
    let work = || charge(Nanos(10_000));
    let (slept, spun) = (second(false, work), second(true, work));
    assert_eq!(slept.0 - spun.0, 3_500);
    // It spins from 2.5 µs, when it is awake, to 10.5, and saves the switch.
    assert_eq!(spun.1 - slept.1, 8_000 - 500);
}

/// No task spins for a holder that sleeps.
#[test]
fn a_task_does_not_spin_while_the_holder_sleeps() {
    let sleep = || thread::sleep(Duration::from_micros(10));
    assert_eq!(second(false, sleep), second(true, sleep));
}

/// A spinning task gives its CPU up when the holder loses its own, and in favour of others after a slice.
#[test]
fn a_task_stops_spinning() {
    let work_then_sleep = || {
        charge(Nanos(10_000));
        thread::sleep(Duration::from_millis(1));
    };
    let (slept, spun) = (second(false, work_then_sleep), second(true, work_then_sleep));
    assert_eq!((slept.0, spun.1 - slept.1), (spun.0, 8_000));
    let slice = Config::default().slice.0;
    let long = || charge(Nanos(20_000_000));
    let (slept, spun) = (second(false, long), second(true, long));
    assert_eq!((slept.0, spun.1 - slept.1), (spun.0, slice));
}

/// A task that sleeps for a lock is woken, finds that a spinning task has taken it, and gets it from that
/// task, though a third also spins for it.
#[test]
fn a_task_that_sleeps_is_overtaken_once() {
    let costs = Costs { wake_up: Nanos(3_000), ..FREE };
    let config = Config { costs, cpus: 4, quantum: Nanos(0), ..Config::default() };
    let before = value(&config, || {
        let lock = Arc::new(Mutex::new(&LOG, 0));
        let first = lock.lock();
        let theirs = lock.clone();
        let sleeps = thread::spawn("sleeps", move || *theirs.lock()).unwrap();
        thread::sleep(Duration::from_micros(10));
        let spins = |_| {
            let lock = lock.clone();
            let rounds = move || {
                for _ in 0..5 {
                    let mut turns = lock.lock();
                    *turns += 1;
                    charge(Nanos(5_000));
                }
            };
            thread::spawn("spins", rounds).unwrap()
        };
        let spinning: Vec<_> = (0..2).map(spins).collect();
        charge(Nanos(10_000));
        drop(first);
        let before = sleeps.join();
        spinning.into_iter().for_each(thread::JoinHandle::join);
        before
    });
    assert_eq!(before, 1);
}

/// The deadlock of two tasks that spin for each other's locks, each on its own CPU, is detected.
#[test]
fn spinning_for_each_other_is_a_deadlock() {
    let crossed = || {
        let locks = Arc::new([Mutex::new(&LOG, ()), Mutex::new(&LOG, ())]);
        let tasks = [[0, 1], [1, 0]].map(|[first, then]| {
            let locks = locks.clone();
            let body = move || {
                let _first = locks[first].lock();
                charge(Nanos(10_000));
                drop(locks[then].lock_nested());
            };
            thread::spawn("crossed", body).unwrap()
        });
        tasks.into_iter().for_each(thread::JoinHandle::join);
    };
    let found = run_with(&Config::default(), crossed).unwrap_err();
    assert_eq!(found.tasks.len(), 3, "{found}");
}

/// Time that is charged under a lock passes before the lock is free.
#[test]
fn a_lock_is_held_for_what_is_charged_under_it() {
    let switch = 500;
    assert_eq!(second(false, || charge(Nanos(50_000))).0, 1 + 2 * switch + 50_000 + 3_000 + switch);
}
