//! How many switches between tasks the simulated world makes in a second: `cargo run --release -p tidegate-rt
//! --example sim_switches`.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // it measures the world outside

use std::time::Instant;
use tidegate_rt::sim::{Config, run_with};
use tidegate_rt::{LockClass, Mutex, Nanos, sim, thread};

static CLASS: LockClass = LockClass::new("example->turns", 1);

fn main() {
    let start = Instant::now();
    let config = Config { cpus: 2, quantum: Nanos(0), ..Config::default() };
    let program = || {
        let turns = std::sync::Arc::new(Mutex::new(&CLASS, 0u64));
        let task = |_| {
            let turns = turns.clone();
            let body = move || {
                (0..25_000).for_each(|_| {
                    *turns.lock() += 1;
                    sim::charge(Nanos(1_000));
                })
            };
            thread::spawn("turns", body).expect("a thread")
        };
        let tasks: Vec<_> = (0..8).map(task).collect();
        tasks.into_iter().for_each(thread::JoinHandle::join);
        *turns.lock()
    };
    let outcome = run_with(&config, program).expect("no deadlock");
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{} locks, {} switches in {seconds:.2} s: {:.0} switches/s; virtual time {:.3} s",
        outcome.value,
        outcome.switches,
        outcome.switches as f64 / seconds,
        outcome.elapsed.0 as f64 / 1e9
    );
}
