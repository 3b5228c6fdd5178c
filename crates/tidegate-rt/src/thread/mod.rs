//! Threads of the operating system behind names of our own.

use crate::sim::task;
use crate::trace::causes;
use std::panic::Location;
use std::time::Duration;

pub use crate::thread_local as local;
pub use local::Local;

mod local;

/// A handle to wait for a thread and take its result.
pub struct JoinHandle<T>(Handle<T>);

enum Handle<T> {
    Thread(std::thread::JoinHandle<T>),
    Task(task::Joined<T>),
}

impl<T> JoinHandle<T> {
    /// Waits for the thread to end. A panic in it continues in the caller.
    #[track_caller]
    pub fn join(self) -> T {
        let ended = match self.0 {
            Handle::Thread(t) => t.join(),
            Handle::Task(t) => t.join(),
        };
        match ended {
            Ok(v) => v,
            Err(p) => std::panic::resume_unwind(p),
        }
    }

    /// Whether the thread has ended.
    pub fn is_finished(&self) -> bool {
        match &self.0 {
            Handle::Thread(t) => t.is_finished(),
            Handle::Task(t) => t.is_finished(),
        }
    }
}

/// Starts a named thread. Fails when the operating system refuses another one.
pub fn spawn<T: Send + 'static>(
    name: &str,
    f: impl FnOnce() -> T + Send + 'static,
) -> std::io::Result<JoinHandle<T>> {
    if let Some(sim) = task::with(|t| t.sim().clone()) {
        return task::start(&sim, name, f).map(|t| JoinHandle(Handle::Task(t)));
    }
    std::thread::Builder::new().name(name.to_string()).spawn(f).map(|t| JoinHandle(Handle::Thread(t)))
}

/// Sleeps for `d`.
#[track_caller]
pub fn sleep(d: Duration) {
    let _asleep = causes::asleep(None, Location::caller());
    if task::with(|t| t.pause(d)).is_none() {
        std::thread::sleep(d);
    }
}

/// How many threads can run at once; at least 1.
pub fn parallelism() -> usize {
    let machine = || std::thread::available_parallelism().map_or(1, |n| n.get());
    task::with(|t| t.sim().cpus()).unwrap_or_else(machine)
}

/// The number of the processor that runs the calling thread. `None` in a simulated world, whose tasks have no
/// fixed processor.
pub fn cpu() -> Option<u32> {
    (!task::is_simulated()).then(|| rustix::thread::sched_getcpu() as u32)
}

/// A small number that names the calling thread in trace events.
pub fn id() -> u32 {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(1);
    thread_local!(static ID: u32 = NEXT.fetch_add(1, Ordering::Relaxed));
    task::with(|t| t.id() as u32 + 1).unwrap_or_else(|| ID.with(|i| *i))
}

/// The calling thread's name; `thread` where it has none.
pub(crate) fn name() -> String {
    let of_thread = || std::thread::current().name().unwrap_or("thread").to_owned();
    task::with(|t| t.name().to_owned()).unwrap_or_else(of_thread)
}
