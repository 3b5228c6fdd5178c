//! Memory that is taken from the system before it is needed.
//!
//! The system clears a huge page when it is first touched. In a virtual machine the host may have to allocate
//! the page first, which takes milliseconds. A thread that runs only where a CPU has nothing else to do fills
//! the reserve, so that a thread that needs a buffer seldom waits for that. No thread waits for the reserve:
//! when it has no slab, memory comes from the system at once.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use tidegate_rt::{Condvar, LockClass, Mutex, thread};
use tidegate_sys::host::run_when_idle;
use tidegate_sys::slab::{SLAB_BYTES, Slab};

static READY_CLASS: LockClass = LockClass::new("slab->ready", 1001);
/// The process has one reserve, as it has one pool of buffers. It is as large as the largest that was asked
/// for.
static READY: Mutex<Vec<Slab>> = Mutex::new(&READY_CLASS, Vec::new());
/// How many slabs are ready. Where there is no reserve, the lock is not taken: a simulated world would see whether
/// memory was needed, and that depends on what ran in the process before.
static COUNT: AtomicUsize = AtomicUsize::new(0);
static CHANGED: Condvar = Condvar::new();

/// A slab that is ready, if one can be had without waiting.
pub(crate) fn take() -> Option<Slab> {
    if COUNT.load(SeqCst) == 0 {
        return None;
    }
    // The holder of the lock may be off the CPU for long while other threads want to run.
    let mut ready = READY.try_lock()?;
    let slab = ready.pop();
    COUNT.store(ready.len(), SeqCst);
    drop(ready);
    if slab.is_some() {
        CHANGED.notify_all();
    }
    slab
}

/// Keeps memory ready until it is dropped. Memory that is ready at that time stays ready.
pub struct Reserve {
    over: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Reserve {
    /// Makes `bytes` bytes ready soon, in whole slabs, and again whenever some were taken.
    ///
    /// # Errors
    /// The errors of starting a thread.
    pub fn keep(bytes: usize) -> io::Result<Self> {
        let over = Arc::<AtomicBool>::default();
        let told = over.clone();
        let thread = thread::spawn("tg-reserve", move || fill(bytes / SLAB_BYTES, &told))?;
        Ok(Reserve { over, thread: Some(thread) })
    }
}

impl Drop for Reserve {
    fn drop(&mut self) {
        let ready = READY.lock();
        self.over.store(true, SeqCst);
        drop(ready);
        CHANGED.notify_all();
        if let Some(thread) = self.thread.take() {
            thread.join();
        }
    }
}

/// Keeps `wanted` slabs ready until `over` is set, which is done under the lock.
fn fill(wanted: usize, over: &AtomicBool) {
    // At any other priority this thread might delay threads that need no memory.
    if run_when_idle().is_err() {
        return;
    }
    let mut ready = READY.lock();
    while !over.load(SeqCst) {
        if ready.len() >= wanted {
            CHANGED.wait(&mut ready);
            continue;
        }
        drop(ready);
        let slab = Slab::map();
        ready = READY.lock();
        match slab {
            Some(slab) => {
                ready.push(slab);
                COUNT.store(ready.len(), SeqCst);
            }
            // The next thread that needs memory gets the error.
            None => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn what_was_taken_is_made_ready_again() {
        let ready = || READY.lock().len();
        let until = |n: usize| {
            for _ in 0..20_000 {
                if ready() >= n {
                    return;
                }
                thread::sleep(Duration::from_millis(1));
            }
            panic!("{} slabs are ready, not {n}", ready());
        };
        let reserve = Reserve::keep(3 * SLAB_BYTES).unwrap();
        until(3);
        // Other tests of the process may take slabs, too.
        for _ in 0..5 {
            for mut piece in take().into_iter().flat_map(|slab| slab.cut(SLAB_BYTES)) {
                piece.fill(1);
            }
        }
        until(3);
        drop(reserve);
        while take().is_some() {}
        thread::sleep(Duration::from_millis(20));
        assert_eq!(ready(), 0, "nobody wants any more");
    }
}
