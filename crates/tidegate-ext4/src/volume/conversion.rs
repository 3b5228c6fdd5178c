//! The thread that marks blocks written when their data is on the device: the end of a bio must not wait for
//! a transaction (`ext4-rsv-conversion`). A pass of an fsync itself marks the blocks that have arrived by its
//! end.

use crate::inode::own;
use crate::volume::sbi::Ext4;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::AcqRel, Ordering::Acquire};
use std::sync::{Arc, Weak};
use tidegate_jbd2::Reserved;
use tidegate_rt::thread::{self, JoinHandle};
use tidegate_rt::{Condvar, LockClass, Mutex, WaitQueue};
use tidegate_vfs::{Error, ErrorKind, Inode, Result};

static QUEUE: LockClass = LockClass::new("ei->i_completed_io_lock", 599);
static THREAD: LockClass = LockClass::new("ext4->conversion", 587);

/// A run of pages whose data is on the device. Their write-back lasts until [`Written::end`].
pub(crate) struct Written {
    pub inode: Arc<Inode>,
    /// The first page.
    pub index: u64,
    pub pages: usize,
    /// The blocks of the file that were sent, in order. Other blocks of the pages may have got places since then.
    pub blocks: Vec<Range<u64>>,
    pub turn: Turn,
}

/// The position of a run in the order in which the runs of its file were sent. It also keeps the volume in
/// memory.
pub(crate) struct Turn {
    queue: Arc<Queue>,
    inode: Arc<Inode>,
    pub number: u64,
    /// The number of bytes of the file, with the run.
    pub end: u64,
    /// Credits for the change that marks the run.
    pub later: Option<Reserved>,
    /// The pass that sends the run, if it waits for it.
    pub here: Option<Arc<Here>>,
}

impl Turn {
    /// The turn of a run that is sent now.
    pub(crate) fn new(queue: &Arc<Queue>, inode: &Arc<Inode>, end: u64) -> Turn {
        queue.on_way.fetch_add(1, AcqRel);
        let number = own(inode).sent.lock().send(end);
        Turn { queue: queue.clone(), inode: inode.clone(), number, end, later: None, here: None }
    }

    /// Notes that only the part of the run up to byte `end` is sent.
    pub(crate) fn shorten(&mut self, end: u64) {
        if end < self.end {
            self.end = end;
            own(&self.inode).sent.lock().shorten(self.number, end);
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let free = own(&self.inode).sent.lock().end(self.number);
        free.into_iter().for_each(|run| self.queue.add(run));
        if self.queue.on_way.fetch_sub(1, AcqRel) == 1 {
            self.queue.idle.wake_all();
        }
    }
}

/// Runs that arrive while a pass is at work whose thread waits for them: that thread marks them.
pub(crate) struct Here(Mutex<Option<Vec<Written>>>);

impl Here {
    /// The list of a pass that begins.
    pub(crate) fn new() -> Arc<Here> {
        Arc::new(Here(Mutex::new(&QUEUE, Some(Vec::new()))))
    }

    /// Returns the runs that have arrived; the volume's thread marks later ones.
    pub(crate) fn close(&self) -> Vec<Written> {
        self.0.lock().take().unwrap_or_default()
    }
}

impl Written {
    /// Has the run's blocks marked, by the pass that waits for it or by the thread. Does not wait.
    pub(crate) fn arrived(mut self) {
        if let Some(here) = self.turn.here.take()
            && let Some(runs) = here.0.lock().as_mut()
        {
            return runs.push(self);
        }
        self.turn.queue.clone().add(self);
    }

    /// Ends the write-back; with `failed` the pages stay dirty.
    pub(crate) fn end(self, failed: Option<&Error>) {
        // A truncation waits for the write-back alone. From here on the table's size says how far data is there.
        own(&self.inode).sent.lock().shorten(self.turn.number, 0);
        if let Some(e) = failed.and_then(Error::errno) {
            self.inode.mapping.record_errno(e);
        }
        let kind = failed.map(|e| match e.kind() {
            ErrorKind::NoSpace => ErrorKind::NoSpace,
            _ => ErrorKind::Io,
        });
        self.inode.end_writeback(self.index, self.pages, kind);
    }
}

struct State {
    written: Vec<Written>,
    /// No more runs will come.
    ending: bool,
    /// The thread.
    thread: u32,
}

fn gone() -> Error {
    Error::new(ErrorKind::Io, "the volume was let go of")
}

/// Runs that wait for the thread.
pub(crate) struct Queue {
    state: Mutex<State>,
    came: Condvar,
    /// Number of runs that were sent and have not ended.
    on_way: AtomicU64,
    idle: WaitQueue,
}

impl Queue {
    /// Adds a run. Does not wait.
    pub(crate) fn add(&self, run: Written) {
        let mut state = self.state.lock();
        if !state.ending {
            state.written.push(run);
            self.came.notify_all();
            return;
        }
        drop(state);
        run.end(Some(&gone()));
    }

    /// All waiting runs; empty at the end.
    fn take(&self) -> Vec<Written> {
        let mut state = self.state.lock();
        state.thread = thread::id();
        while state.written.is_empty() && !state.ending {
            self.came.wait(&mut state);
        }
        std::mem::take(&mut state.written)
    }

    fn run(&self, fs: &Weak<Ext4>) {
        loop {
            let written = self.take();
            if written.is_empty() {
                return;
            }
            match fs.upgrade() {
                Some(fs) => fs.convert(written),
                None => written.into_iter().for_each(|w| w.end(Some(&gone()))),
            }
        }
    }
}

/// The queue and its thread, which ends when this is dropped.
pub(crate) struct Conversions {
    queue: Arc<Queue>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Conversions {
    pub(super) fn new() -> Self {
        let state = State { written: Vec::new(), ending: false, thread: 0 };
        let queue = Queue {
            state: Mutex::new(&QUEUE, state),
            came: Condvar::new(),
            on_way: AtomicU64::new(0),
            idle: WaitQueue::new(),
        };
        Conversions { queue: Arc::new(queue), thread: Mutex::new(&THREAD, None) }
    }

    /// Starts the thread, which works for `fs`.
    ///
    /// # Errors
    /// When the system refuses another thread.
    pub(super) fn start(&self, fs: &Arc<Ext4>) -> Result<()> {
        let (queue, fs) = (self.queue.clone(), Arc::downgrade(fs));
        let thread = thread::spawn("tg-ext4-conv", move || queue.run(&fs));
        let refused = |e| Error::new(ErrorKind::OutOfMemory, format!("the volume's thread: {e}"));
        *self.thread.lock() = Some(thread.map_err(refused)?);
        Ok(())
    }

    pub(crate) fn queue(&self) -> &Arc<Queue> {
        &self.queue
    }

    /// Waits until all runs that were sent have ended.
    pub(super) fn wait_idle(&self) {
        self.queue.idle.wait_until(|| self.queue.on_way.load(Acquire) == 0);
    }
}

impl Drop for Conversions {
    fn drop(&mut self) {
        let own = {
            let mut state = self.queue.state.lock();
            state.ending = true;
            self.queue.came.notify_all();
            state.thread == thread::id()
        };
        // The thread itself may hold the last reference to the volume.
        if let Some(thread) = self.thread.get_mut().take().filter(|_| !own) {
            thread.join();
        }
    }
}
