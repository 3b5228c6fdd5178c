//! `checkpoint_merge`: one thread writes checkpoints, each for all threads that wait for one.
//!
//! A request queues behind others. The checkpoint thread takes all queued requests, writes one checkpoint,
//! and answers the requests with its result. The next checkpoint serves the requests that come meanwhile. The
//! thread has an I/O priority of its own, so a checkpoint is not slower when a thread of low priority asks
//! for it.
//!
//! The thread starts with the first request and ends with the volume, which it does not keep alive. Without
//! the thread (`nocheckpoint_merge`, a deterministic volume, no thread to be had) each caller writes its own
//! checkpoint.

use crate::durable::checkpoint::CpReason;
use crate::durable::ckpt_stat::CkptStat;
use crate::volume::options::IoPriority;
use crate::volume::sbi::F2fs;
use std::sync::{Arc, OnceLock, Weak};
use tidegate_block::IoContext;
use tidegate_rt::{
    Condvar, Distribution, LockClass, Mutex, Nanos, WaitQueue, clock, thread, trace::SpanPoint,
};
use tidegate_vfs::{CommitStats, Error, ErrorKind, Result};

static ISSUE_CHECKPOINT: SpanPoint<0> = SpanPoint::timed("f2fs_issue_checkpoint", []);

static ISSUE_LIST: LockClass = LockClass::new("cprc->issue_list", 85);

/// A thread that waits for a checkpoint.
struct Request {
    force: bool,
    asked: Nanos,
    result: OnceLock<Result<()>>,
    done: WaitQueue,
}

#[derive(Default)]
struct Issues {
    list: Vec<Arc<Request>>,
    /// The thread is running and will look at the list again.
    running: bool,
    handle: Option<thread::JoinHandle<()>>,
    /// Threads that wait for the checkpoint thread to end.
    ending: u32,
    /// The volume is being unmounted: no new thread.
    closed: bool,
}

struct Shared {
    issues: Mutex<Issues>,
    work: Condvar,
    ended: Condvar,
    fs: Weak<F2fs>,
}

/// The checkpoint thread of a volume (the kernel's `ckpt_req_control`).
#[derive(Default)]
pub(crate) struct CkptThread(OnceLock<Arc<Shared>>);

impl F2fs {
    /// Makes everything done so far durable: by the checkpoint thread, or by the caller where there is no
    /// such thread. Takes `cprc->issue_list`, or the locks of a checkpoint; the caller holds no lock of the
    /// volume.
    ///
    /// # Errors
    /// The checkpoint's failure; the volume takes no more changes then.
    pub(crate) fn issue_checkpoint(&self) -> Result<()> {
        self.write_checkpoint(false)
    }

    /// Writes a checkpoint (`F2FS_IOC_WRITE_CHECKPOINT`): with `force` also when nothing has changed. With
    /// `checkpoint_merge` one checkpoint may serve other requests, too. The caller holds no lock of the
    /// volume.
    ///
    /// # Errors
    /// `ReadOnly` where nothing may be written; else the failure, and the volume takes no more changes then.
    pub fn write_checkpoint(&self, force: bool) -> Result<()> {
        self.check_writable()?;
        let asked = clock::now();
        if self.switches.checkpoint_merge()
            && let Some(request) = self.ckpt_thread.ask(force, asked, &self.ckpt_stat)
        {
            let _span = ISSUE_CHECKPOINT.enter([]);
            return request.wait();
        }
        self.ckpt_stat.asked();
        let r = self.checkpoint_for(CpReason::asked(force));
        self.ckpt_stat.answered([asked].into_iter(), matches!(r, Ok(true)));
        r.map(drop)
    }

    /// Requests for checkpoints, the way they were served, and the time of each step.
    pub fn ckpt_stats(&self) -> CommitStats {
        self.ckpt_stat.snapshot(self.switches.checkpoint_merge())
    }

    /// How long checkpoints took in all, and how long they froze operations, in nanoseconds.
    pub fn ckpt_times(&self) -> (Distribution, Distribution) {
        self.ckpt_stat.times()
    }

    /// The I/O context of the checkpoint thread: no user's, at a priority of its own.
    fn ckpt_io_context(&self) -> IoContext {
        let IoPriority { class, level } = self.switches.ckpt_thread_ioprio();
        IoContext { group: 0, class, level }
    }
}

impl CkptThread {
    /// Sets the volume that the thread works for. Until then every caller writes its own checkpoint.
    pub(crate) fn bind(&self, fs: Weak<F2fs>) {
        let issues = Mutex::new(&ISSUE_LIST, Issues::default());
        let shared = Shared { issues, work: Condvar::new(), ended: Condvar::new(), fs };
        let _ = self.0.set(Arc::new(shared));
    }

    /// Queues a request, and starts the thread for the first. `None` when there is to be no thread.
    fn ask(&self, force: bool, asked: Nanos, stat: &CkptStat) -> Option<Arc<Request>> {
        let shared = self.0.get()?;
        let request = Arc::new(Request { force, asked, result: OnceLock::new(), done: WaitQueue::new() });
        let mut q = shared.issues.lock();
        if !q.running {
            if q.closed {
                return None;
            }
            let s = shared.clone();
            q.handle = Some(thread::spawn("tg-ckpt", move || s.run()).ok()?);
            q.running = true;
        }
        q.list.push(request.clone());
        stat.asked();
        drop(q);
        shared.work.notify_one();
        Some(request)
    }

    /// Lets the thread serve all waiting requests, then ends it. It starts again with the next request.
    pub(crate) fn stop(&self) {
        let Some(shared) = self.0.get() else { return };
        let mut q = shared.issues.lock();
        q.ending += 1;
        shared.work.notify_all();
        while q.running {
            shared.ended.wait(&mut q);
        }
        q.ending -= 1;
        let handle = q.handle.take();
        drop(q);
        if let Some(h) = handle {
            h.join();
        }
    }

    /// Ends the thread as [`CkptThread::stop`] does, and for good.
    pub(crate) fn close(&self) {
        if let Some(shared) = self.0.get() {
            shared.issues.lock().closed = true;
        }
        self.stop();
    }
}

impl Drop for CkptThread {
    fn drop(&mut self) {
        self.close();
    }
}

impl Request {
    fn wait(&self) -> Result<()> {
        self.done.wait_until(|| self.result.get().is_some());
        self.result.get().cloned().unwrap_or(Ok(()))
    }
}

impl Shared {
    fn run(&self) {
        let mut life = Life { shared: self, over: false };
        while let Some(requests) = life.next() {
            Batch { requests, fs: self.fs.upgrade(), result: None }.serve();
        }
    }
}

/// The thread's own part of the list.
struct Life<'a> {
    shared: &'a Shared,
    over: bool,
}

impl Life<'_> {
    /// All queued requests, once there is one; `None` when the thread is to end.
    fn next(&mut self) -> Option<Vec<Arc<Request>>> {
        let mut q = self.shared.issues.lock();
        while q.list.is_empty() {
            if q.ending > 0 {
                q.running = false;
                self.over = true;
                self.shared.ended.notify_all();
                return None;
            }
            self.shared.work.wait(&mut q);
        }
        Some(std::mem::take(&mut q.list))
    }
}

impl Drop for Life<'_> {
    /// A thread that panics must leave no other thread waiting.
    fn drop(&mut self) {
        if self.over {
            return;
        }
        let mut q = self.shared.issues.lock();
        q.running = false;
        let requests = std::mem::take(&mut q.list);
        self.shared.ended.notify_all();
        drop(q);
        if !requests.is_empty() {
            drop(Batch { requests, fs: self.shared.fs.upgrade(), result: None });
        }
    }
}

/// Requests that one checkpoint serves. They are answered when the batch is dropped, with an error if that
/// happens early.
struct Batch {
    requests: Vec<Arc<Request>>,
    fs: Option<Arc<F2fs>>,
    result: Option<Result<bool>>,
}

impl Batch {
    fn serve(mut self) {
        if let Some(fs) = &self.fs {
            let _io = fs.ckpt_io_context().enter();
            let force = self.requests.iter().any(|r| r.force);
            self.result = Some(fs.checkpoint_for(CpReason::asked(force)));
        }
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        let result = self.result.take().unwrap_or_else(|| {
            let e = Error::new(ErrorKind::Io, "the checkpoint thread failed");
            self.fs.as_ref().inspect(|fs| fs.stop(&e));
            Err(e)
        });
        if let Some(fs) = &self.fs {
            fs.ckpt_stat.answered(self.requests.iter().map(|r| r.asked), matches!(result, Ok(true)));
        }
        // The reference goes before the answers, while the thread that asked still has the volume: the thread
        // that drops the last reference waits for this thread.
        self.fs = None;
        for r in self.requests.drain(..) {
            let _ = r.result.set(result.clone().map(drop));
            r.done.wake_all();
        }
    }
}
