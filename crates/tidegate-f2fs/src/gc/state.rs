//! The state of cleaning: its thread, victims, inodes that were moved, segments to be discarded.

use super::victim::Victims;
use crate::format::units::SegNo;
use crate::volume::options::F2fsOptions;
use crate::volume::sbi::F2fs;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, OnceLock, Weak};
use tidegate_rt::{Condvar, LockClass, Mutex, thread};
use tidegate_vfs::Ino;
use tidegate_vfs::icache::Inodes;

static GC_LOCK: LockClass = LockClass::new("sbi->gc_lock", 18);
static GC_THREAD: LockClass = LockClass::new("gc_th->state", 610);
static DISCARDS: LockClass = LockClass::new("dcc->cmd_lock", 525);

const MOVE_SLOTS: usize = 64;

/// The thread's state, under `gc_th->state`.
#[derive(Default)]
pub(super) struct Thread {
    pub(super) stop: bool,
    pub(super) has_discards: bool,
    /// A checkpoint freed zones, or left zones to be finished.
    pub(super) has_zones: bool,
    pub(super) running: Option<thread::JoinHandle<()>>,
}

/// The state of cleaning, one for each volume.
pub(crate) struct Gc {
    pub(super) inodes: OnceLock<Inodes>,
    pub(super) owner: OnceLock<Weak<F2fs>>,
    /// Lets one thread clean at a time.
    pub(super) lock: Mutex<Victims>,
    /// Counts moves of pages, in a slot chosen by the inode number: a read that overlaps a move is repeated.
    pub(super) moves: Arc<[AtomicU32; MOVE_SLOTS]>,
    /// Dirty pages of directories at the last count.
    pub(crate) dir_pages: AtomicU64,
    pub(super) thread: Mutex<Thread>,
    pub(super) wake: Condvar,
    /// Segments freed by checkpoints, to be discarded.
    pub(crate) to_discard: Mutex<BTreeSet<u32>>,
    pub(crate) discard_refused: AtomicBool,
    pub(crate) deterministic: bool,
}

impl Gc {
    pub(crate) fn new(o: &F2fsOptions) -> Gc {
        Gc {
            inodes: OnceLock::new(),
            owner: OnceLock::new(),
            lock: Mutex::new(&GC_LOCK, Victims::default()),
            moves: Arc::new(std::array::from_fn(|_| AtomicU32::new(0))),
            dir_pages: AtomicU64::new(0),
            thread: Mutex::new(&GC_THREAD, Thread::default()),
            wake: Condvar::new(),
            to_discard: Mutex::new(&DISCARDS, BTreeSet::new()),
            discard_refused: AtomicBool::new(false),
            deterministic: o.deterministic,
        }
    }

    pub(crate) fn set_owner(&self, fs: Weak<F2fs>) {
        let _ = self.owner.set(fs);
    }

    pub(crate) fn attach(&self, inodes: Inodes) {
        let _ = self.inodes.set(inodes);
    }

    /// How often pages of `ino` may have been moved.
    pub(crate) fn moves(&self, ino: Ino) -> u32 {
        self.moves[ino.0 as usize % MOVE_SLOTS].load(SeqCst)
    }

    /// Begins to watch pages of `ino`; the result tells whether none of them may have been moved since.
    pub(crate) fn watch_moves(&self, ino: Ino) -> impl FnOnce() -> bool + Send + 'static {
        let (moves, before) = (self.moves.clone(), self.moves(ino));
        move || moves[ino.0 as usize % MOVE_SLOTS].load(SeqCst) == before
    }

    pub(crate) fn moving(&self, ino: Ino) {
        self.moves[ino.0 as usize % MOVE_SLOTS].fetch_add(1, SeqCst);
    }

    /// Notes segments that a checkpoint freed.
    pub(crate) fn freed(&self, segments: Vec<SegNo>) {
        self.to_discard.lock().extend(segments.iter().map(|s| s.0));
    }

    /// Ends the thread and waits for its end. The caller holds no lock of rank `gc_lock` or below.
    pub(crate) fn stop_thread(&self) {
        let mut t = self.thread.lock();
        t.stop = true;
        let running = t.running.take();
        self.wake.notify_all();
        drop(t);
        if let Some(r) = running {
            r.join();
        }
    }

    /// Wakes the thread to discard freed segments; false when there is no thread.
    pub(crate) fn wake_for_discards(&self) -> bool {
        let mut t = self.thread.lock();
        t.has_discards = t.running.is_some();
        if t.has_discards {
            self.wake.notify_all();
        }
        t.has_discards
    }

    /// Wakes the thread to reset and finish zones; false when there is no thread.
    pub(crate) fn wake_for_zones(&self) -> bool {
        let mut t = self.thread.lock();
        t.has_zones = t.running.is_some() && !t.stop;
        if t.has_zones {
            self.wake.notify_all();
        }
        t.has_zones
    }
}
