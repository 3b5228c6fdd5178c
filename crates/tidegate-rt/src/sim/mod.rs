//! The simulated world: runs a program in virtual time, in an order that a seed decides.
//!
//! It does: run tasks (coroutines on one thread of the operating system) on a number of simulated CPUs; jump over time
//! in which no task has anything to do; charge CPU time for the work in [`Costs`]; record trace events of its own;
//! detect a deadlock, and report the waiting tasks, their lock classes and the holders. It does not: see calls that
//! bypass this crate. Memory accesses cost nothing, and a task that waits for the real world (a device, a socket) stops
//! the simulated one.
//!
//! | module | holds |
//! |---|---|
//! | `config` | [`Config`], [`Costs`] |
//! | `sched` | CPUs, events in virtual time, the next task |
//! | `state` | tasks, their waits, events to come |
//! | `task` | a task: the current task, payment of CPU time, its end |
//! | `world` | the thread on which a world runs, and its coroutines |
//! | `sync` | waiting for locks, condition variables and wait queues |
//! | `report` | [`Deadlock`] |
//!
//! **Time.** A task's code takes no time except its charges. Charges add up until the task meets others (a
//! lock, a wake-up, a wait) and the sum exceeds [`Config::quantum`]. Then the task holds its CPU for that
//! time while other tasks move. A task that became ready waits for a free CPU. The seed decides which of the
//! ready tasks gets it, and which of those due at one instant moves first.
//!
//! **Same seed, same run.** A run depends only on its seed and its program. A program must not depend on
//! addresses, on the order of a hash map, or on threads outside.
//!
//! Worlds do not mix: objects of one run (a held lock, a thread) must not be used in another. Several runs
//! may go on in one process, each on the thread that began it.

mod config;
#[cfg(test)]
mod pinned;
mod report;
mod sched;
mod state;
pub(crate) mod sync;
pub(crate) mod task;
#[cfg(test)]
mod tests;
mod world;

pub use config::{Config, Costs};
pub use report::Deadlock;

use crate::clock::Nanos;
use crate::trace::Event;
use sched::Sim;
use std::panic::resume_unwind;

/// The outcome of a run.
#[derive(Debug)]
pub struct Outcome<R> {
    /// The program's result.
    pub value: R,
    /// Virtual time that it took.
    pub elapsed: Nanos,
    /// How often one task gave way to another.
    pub switches: u64,
    /// Trace events in the order in which they happened, if [`Config::trace`] asked for them.
    pub events: Vec<Event>,
}

/// Runs `f` in a simulated world with `cpus` CPUs, the order chosen by `seed`.
///
/// # Panics
/// When `f` or a task that it joins panics, and on a deadlock, with its report.
pub fn run<R: Send + 'static>(seed: u64, cpus: usize, f: impl FnOnce() -> R + Send + 'static) -> R {
    let config = Config { seed, cpus, ..Config::default() };
    match run_with(&config, f) {
        Ok(outcome) => outcome.value,
        Err(deadlock) => panic!("{deadlock}"),
    }
}

/// As [`run`], with all settings. Returns when every task has ended.
///
/// # Errors
/// [`Deadlock`] when tasks are left that can never go on. Their stacks are never freed.
///
/// # Panics
/// When `f` or a task that it joins panics, or there is no memory for a stack.
pub fn run_with<R: Send + 'static>(
    config: &Config,
    f: impl FnOnce() -> R + Send + 'static,
) -> Result<Outcome<R>, Deadlock> {
    let sim = Sim::new(config);
    let main = task::start(&sim, "main", f).expect("a stack for the simulated world");
    let ended = world::run(&sim);
    // Other tasks may wait for a task that panicked: the panic is then the cause.
    match main.result() {
        Some(Ok(value)) => {
            ended?;
            let (elapsed, switches, events) = sim.results();
            Ok(Outcome { value, elapsed, switches, events })
        }
        Some(Err(panic)) => resume_unwind(panic),
        None => Err(ended.err().unwrap_or_default()),
    }
}

/// Whether the calling thread runs in a simulated world.
#[inline]
pub fn active() -> bool {
    task::is_simulated()
}

/// Sets the wall clock forward, or back, by so many seconds. Does nothing outside a simulated world.
pub fn set_wall_clock(by: i64) {
    task::with(|t| t.sim().set_wall_clock(by));
}

/// Charges CPU time to the calling task. Does nothing outside a simulated world.
#[inline]
pub fn charge(time: Nanos) {
    task::with(|t| t.charge(time.0));
}

/// Charges the entry into a system call and the return from it.
#[inline]
pub fn syscall() {
    task::with(|t| t.charge(t.sim().costs().syscall.0));
}

/// Charges a copy of so many bytes.
#[inline]
pub fn copy(bytes: usize) {
    task::with(|t| t.charge((bytes as u64).saturating_mul(t.sim().costs().copy_page.0) / 4096));
}

/// Charges writes to so many pages of the cache, beside their copy.
#[inline]
pub fn cache_pages(pages: usize) {
    task::with(|t| t.charge((pages as u64).saturating_mul(t.sim().costs().cache_page.0)));
}

/// Charges taking so many dirty pages for writing.
#[inline]
pub fn write_pages(pages: usize) {
    task::with(|t| t.charge((pages as u64).saturating_mul(t.sim().costs().write_page.0)));
}

/// Charges one search for a place on the device.
#[inline]
pub fn place() {
    task::with(|t| t.charge(t.sim().costs().place.0));
}

/// Charges a bio.
#[inline]
pub fn bio() {
    task::with(|t| t.charge(t.sim().costs().bio.0));
}

/// The CPU time that all tasks used since the world began, including spinning for locks and switches; and the
/// charges of the calling task. `None` outside a simulated world.
pub fn cpu_time() -> Option<(Nanos, Nanos)> {
    task::with(|t| {
        t.settle();
        (Nanos(t.sim().cpu_time()), Nanos(t.ran()))
    })
}

/// A number from the run's seed; `None` outside a simulated world.
pub(crate) fn random() -> Option<u64> {
    task::with(|t| t.sim().random())
}

/// Whether the calling task's world records trace events.
#[inline]
pub(crate) fn records() -> bool {
    task::with(|t| t.sim().records()).unwrap_or(false)
}

/// Gives the world of the calling task an event, if it keeps any.
pub(crate) fn keep(event: Event) {
    task::with(|t| t.sim().record(event));
}
