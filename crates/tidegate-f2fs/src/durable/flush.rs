//! Device flushes for fsync: one flush serves all waiting threads (the kernel's `flush_merge`).
//!
//! Writes are counted when they complete. A flush makes durable every write that completed before it began,
//! so a waiting thread knows from two numbers whether it still has to wait.
//!
//! A flush that takes long is worth a short wait for the fsyncs that are about to need one. An fsync
//! announces itself while it writes ([`FlushControl::approach`]). The flush begins when no announced fsync is
//! left, or after the time that a flush takes.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::time::Duration;
use tidegate_block::RequestQueue;
use tidegate_rt::{WaitQueue, clock, thread, trace::SpanPoint};
use tidegate_vfs::{Error, Result};

static ISSUE_FLUSH: SpanPoint<1> = SpanPoint::new("f2fs_issue_flush", ["flush_merge"]);
static WAIT_FOR_FLUSH: SpanPoint<1> = SpanPoint::timed("f2fs_wait_for_flush", ["thread"]);
static WAIT_FOR_FSYNCS: SpanPoint<0> = SpanPoint::timed("f2fs_wait_for_fsyncs", []);

/// A flush that takes less time than a switch of threads does not wait for company.
const WORTH_WAITING: Duration = Duration::from_micros(20);
/// No flush waits longer than this, however long flushes take.
const LONGEST_WAIT: Duration = Duration::from_millis(5);

/// Counts completed writes and flushes, and joins the threads that wait for a flush.
#[derive(Default)]
pub(crate) struct FlushControl {
    /// Writes of file data and nodes that completed.
    completed: AtomicU64,
    /// The number of writes that are durable for certain.
    flushed: AtomicU64,
    /// fsyncs that are writing and will want a flush afterwards.
    coming: AtomicU64,
    arrived: WaitQueue,
    /// Durations of the last flushes, in nanoseconds.
    took: AtomicU64,
    /// The error of a flush that failed. Blocks that this flush was for may be lost: a later flush that
    /// succeeds says nothing about them.
    failed: OnceLock<Error>,
    /// The thread whose flush is under way, or 0.
    running: AtomicU32,
    done: WaitQueue,
}

/// An fsync on its way to a flush. It counts as arrived when this is dropped.
pub(crate) struct Approach<'a>(&'a FlushControl);

impl Drop for Approach<'_> {
    fn drop(&mut self) {
        if self.0.coming.fetch_sub(1, SeqCst) == 1 {
            self.0.arrived.wake_all();
        }
    }
}

impl FlushControl {
    /// Counts a completed write and returns its number.
    pub(crate) fn write_completed(&self) -> u64 {
        self.completed.fetch_add(1, SeqCst) + 1
    }

    /// The number of the last completed write.
    pub(crate) fn completed(&self) -> u64 {
        self.completed.load(SeqCst)
    }

    /// Whether the write numbered `n` is durable.
    pub(crate) fn is_durable(&self, n: u64) -> bool {
        self.flushed.load(SeqCst) >= n
    }

    /// Notes the end of a flush that began when `n` writes had completed.
    pub(crate) fn flushed(&self, n: u64) {
        self.flushed.fetch_max(n, SeqCst);
        self.done.wake_all();
    }

    /// Announces an fsync, before it writes what it will want flushed.
    pub(crate) fn approach(&self) -> Approach<'_> {
        self.coming.fetch_add(1, SeqCst);
        Approach(self)
    }

    /// Makes every write completed before the call durable. With `merge`, one flush of the first thread
    /// serves all that wait for the next.
    ///
    /// # Errors
    /// The device's.
    pub(crate) fn flush(&self, queue: &RequestQueue, merge: bool) -> Result<()> {
        let need = self.completed();
        let _span = ISSUE_FLUSH.enter([merge as u64]);
        while merge && !self.is_durable(need) {
            let running = self.running.compare_exchange(0, thread::id(), SeqCst, SeqCst);
            let Err(whose) = running else {
                self.wait_for_company();
                let r = self.issue(queue);
                self.running.store(0, SeqCst);
                self.done.wake_all();
                return r;
            };
            let _span = WAIT_FOR_FLUSH.enter([whose.into()]);
            self.done.wait_until(|| self.is_durable(need) || self.running.load(SeqCst) != whose);
        }
        if merge { Ok(()) } else { self.issue(queue) }
    }

    /// Waits for fsyncs that are on their way, if a flush takes longer than the wait.
    fn wait_for_company(&self) {
        let took = Duration::from_nanos(self.took.load(Relaxed)).min(LONGEST_WAIT);
        if took >= WORTH_WAITING && self.coming.load(SeqCst) > 0 {
            let _span = WAIT_FOR_FSYNCS.enter([]);
            self.arrived.wait_timeout(took, || self.coming.load(SeqCst) == 0);
        }
    }

    fn issue(&self, queue: &RequestQueue) -> Result<()> {
        let (mark, start) = (self.completed(), clock::now());
        let r = match self.failed.get() {
            Some(e) => Err(e.clone()),
            None => queue.flush().map_err(|e| Error::device(e, "flushing the device")),
        };
        r.inspect_err(|e| self.fail(e))?;
        let (last, now) = (self.took.load(Relaxed), clock::now().since(start).0);
        self.took.store(last - last / 4 + now / 4, Relaxed);
        self.flushed(mark);
        Ok(())
    }

    /// Notes that a flush failed: from now on every flush fails.
    pub(crate) fn fail(&self, e: &Error) {
        let _ = self.failed.set(e.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use tidegate_block::{Errno, Fault, Faulty, MemoryDevice, Op, QueueLimits, Rule};
    use tidegate_rt::{sim, thread};

    #[test]
    fn whoever_waits_finds_its_writes_durable() {
        let queue = Arc::new(RequestQueue::new(Arc::new(MemoryDevice::new(1 << 20)), QueueLimits::default()));
        let fcc = Arc::new(FlushControl::default());
        let threads: Vec<_> = (0..8)
            .map(|i| {
                let (queue, fcc) = (queue.clone(), fcc.clone());
                let body = move || {
                    for _ in 0..500 {
                        let n = fcc.write_completed();
                        fcc.flush(&queue, i != 0).unwrap();
                        assert!(fcc.is_durable(n));
                    }
                };
                thread::spawn("fsync", body).unwrap()
            })
            .collect();
        threads.into_iter().for_each(|t| t.join());
        assert!(queue.stats().flushes <= 8 * 500);
    }

    const TAKES: Duration = Duration::from_millis(2);

    /// Runs `f` in simulated worlds, with a device whose flushes take [`TAKES`].
    fn each_seed(f: impl Fn(Arc<FlushControl>, Arc<RequestQueue>) + Copy + Send + 'static) {
        for seed in 0..4 {
            println!("seed {seed}");
            sim::run(seed, 3, move || {
                let late = Rule::new(Fault::Late(TAKES)).op(Op::Flush);
                let device = Faulty::new(Arc::new(MemoryDevice::new(1 << 20)), [late]);
                let queue = RequestQueue::new(device, QueueLimits::default());
                f(Arc::new(FlushControl::default()), Arc::new(queue));
            });
        }
    }

    #[test]
    fn what_is_written_while_a_flush_runs_needs_another() {
        each_seed(|fcc, queue| {
            let before = fcc.write_completed();
            let (f, q) = (fcc.clone(), queue.clone());
            let flushing = thread::spawn("fsync", move || f.flush(&q, true).unwrap()).unwrap();
            thread::sleep(TAKES / 2);
            let later = fcc.write_completed();
            flushing.join();
            assert!(fcc.is_durable(before) && !fcc.is_durable(later));
            fcc.flush(&queue, true).unwrap();
            assert!(fcc.is_durable(later));
            assert_eq!(queue.stats().flushes, 2);
        });
    }

    /// An fsync that is about to want a flush shares a long one.
    #[test]
    fn a_flush_that_takes_long_waits_for_fsyncs_on_their_way() {
        each_seed(|fcc, queue| {
            for _ in 0..20 {
                fcc.write_completed();
                fcc.flush(&queue, true).unwrap();
            }
            let (before, f, q) = (queue.stats().flushes, fcc.clone(), queue.clone());
            let writes = move || {
                let coming = f.approach();
                thread::sleep(TAKES / 2);
                f.write_completed();
                drop(coming);
                f.flush(&q, true).unwrap();
            };
            let coming = thread::spawn("fsync", writes).unwrap();
            thread::sleep(TAKES / 8);
            fcc.write_completed();
            fcc.flush(&queue, true).unwrap();
            coming.join();
            assert_eq!(queue.stats().flushes - before, 1);
        });
    }

    #[test]
    fn what_a_failed_flush_was_for_is_never_durable() {
        let fails = Rule::new(Fault::Fail(Errno::IO)).op(Op::Flush).which(0..1);
        let device = Faulty::new(Arc::new(MemoryDevice::new(1 << 20)), [fails]);
        let queue = RequestQueue::new(device, QueueLimits::default());
        for merge in [true, false] {
            let fcc = FlushControl::default();
            let n = fcc.write_completed();
            let first = fcc.flush(&queue, merge);
            // The device says nothing any more; the first was the one that knew.
            if first.is_err() {
                let again = fcc.flush(&queue, merge).unwrap_err();
                assert_eq!((again.errno(), fcc.is_durable(n)), (Some(Errno::IO), false));
            }
            assert_eq!(first.is_err(), merge, "the rule is for the first flush");
        }
    }
}
