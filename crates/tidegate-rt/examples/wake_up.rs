//! The cost of a wake-up on this machine, for `sim::Costs`: `cargo run --release -p tidegate-rt --example wake_up`.
//! Measures the CPU time of the waking thread, and the time until the other thread runs. Prints the median and the
//! deciles of 3000 runs.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // it measures the world outside

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread::{park, sleep};
use std::time::{Duration, Instant};

static RAN: AtomicU64 = AtomicU64::new(0);
const TIMES: usize = 3000;

fn main() {
    let start = Instant::now();
    let now = move || start.elapsed().as_nanos() as u64;
    let sleeper = std::thread::spawn(move || {
        for _ in 0..TIMES {
            park();
            RAN.store(now(), SeqCst);
        }
    });
    let (mut wake, mut woken) = (Vec::new(), Vec::new());
    for _ in 0..TIMES {
        sleep(Duration::from_micros(300));
        RAN.store(0, SeqCst);
        let begun = now();
        sleeper.thread().unpark();
        wake.push(now() - begun);
        while RAN.load(SeqCst) == 0 {
            std::hint::spin_loop();
        }
        woken.push(RAN.load(SeqCst) - begun);
    }
    sleeper.join().expect("the thread that sleeps");
    for (what, mut times) in [("the thread that wakes", wake), ("until the other runs", woken)] {
        times.sort_unstable();
        let [low, median, high] = [1, 5, 9].map(|tenth| times[TIMES * tenth / 10]);
        println!("{what}: {median} ns ({low} to {high})");
    }
}
