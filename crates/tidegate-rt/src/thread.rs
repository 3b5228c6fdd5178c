//! Threads of the operating system behind names of our own.

use std::time::Duration;

/// Declares statics of which each thread has its own: `thread::local!(static X: Cell<u32> = const { … })`.
pub use std::thread_local as local;

/// Waits for a thread and takes its result.
pub struct JoinHandle<T>(std::thread::JoinHandle<T>);

impl<T> JoinHandle<T> {
    /// Waits for the thread to end. A panic in it goes on in the caller.
    pub fn join(self) -> T {
        match self.0.join() {
            Ok(v) => v,
            Err(p) => std::panic::resume_unwind(p),
        }
    }

    /// Whether the thread has ended.
    pub fn is_finished(&self) -> bool {
        self.0.is_finished()
    }
}

/// Starts a named thread; fails when the operating system refuses another one.
pub fn spawn<T: Send + 'static>(
    name: &str,
    f: impl FnOnce() -> T + Send + 'static,
) -> std::io::Result<JoinHandle<T>> {
    std::thread::Builder::new().name(name.to_string()).spawn(f).map(JoinHandle)
}

/// Sleeps for `d`.
pub fn sleep(d: Duration) {
    std::thread::sleep(d);
}

/// How many threads can run at once; at least 1.
pub fn parallelism() -> usize {
    std::thread::available_parallelism().map_or(1, |n| n.get())
}

/// A small number that names the calling thread in trace events.
pub fn id() -> u32 {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(1);
    thread_local!(static ID: u32 = NEXT.fetch_add(1, Ordering::Relaxed));
    ID.with(|i| *i)
}
