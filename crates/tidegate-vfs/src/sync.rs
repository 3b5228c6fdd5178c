//! sync(2): writes all dirty pages and waits for them. A switch says which thread waits, and for which pages.
//!
//! A sync has two halves. The flusher submits every dirty page, and a thread waits for the submitted pages.
//! [`SyncWait`] says which thread. A sync ignores pages that are dirtied after it began. When pages could not
//! be submitted or come back unwritten meanwhile, the sync writes all dirty pages once more, inode by inode.
//!
//! **Epochs.** Every page that is dirty or under write-back has the epoch in which it was dirtied, as one bit in its
//! chunk, and [`Epochs`] counts these pages. A sync closes the current epoch and waits until none of its pages is left.
//! One pass runs at a time: a sync that comes meanwhile waits for the end of the pass and then closes the next epoch,
//! together with all other syncs that came. Pages that could not be written do not hold up a sync: they stay counted,
//! for the next epoch of their parity, and the sync looks for them, to report why.

use crate::bdi::Bdi;
use crate::error::{Error, ErrorKind, Result};
use crate::flusher::Flusher;
use crate::vfs::Vfs;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use tidegate_rt::{LockClass, Mutex, WaitQueue, thread, trace::SpanPoint};

static SYNC_FILESYSTEM: SpanPoint<1> = SpanPoint::timed("sync_filesystem", ["sync_wait"]);
static WAIT_SB_INODES: SpanPoint<0> = SpanPoint::timed("wait_sb_inodes", []);
static WAIT_SHARED_PASS: SpanPoint<1> = SpanPoint::timed("wait_for_sync_pass", ["thread"]);
static WAIT_EPOCH: SpanPoint<1> = SpanPoint::timed("wait_epoch", ["pages"]);

static SYNC: LockClass = LockClass::new("sb->s_sync", 12);

crate::positions! {
    /// The thread that waits for the written pages in a sync (`sync_wait=`).
    pub enum SyncWait {
        /// The flusher, which waits for each inode before it submits the next (Linux before 3.11).
        Flusher = "flusher",
        /// The caller, which waits for each inode when all are submitted (`wait_sb_inodes`, Linux since 3.11).
        #[default]
        Caller = "caller",
        /// The caller, which waits for one counter of the epoch's pages. Callers share a pass.
        Epoch = "epoch",
    }
}

/// Pages that are dirty and pages that are under write-back, each by the parity of the epoch in which they were
/// dirtied.
#[derive(Default)]
pub(crate) struct Epochs {
    current: AtomicU64,
    dirty: [AtomicU64; 2],
    writeback: [AtomicU64; 2],
    /// How often pages under write-back became dirty again, by a failure or without one.
    given_back: AtomicU64,
    pub(crate) drained: WaitQueue,
}

impl Epochs {
    /// Counts pages that are dirtied now, and pages that are written though they were clean. Returns the
    /// parity of their epoch. A sync that closes that epoch later finds them counted.
    pub(crate) fn enter(&self, dirty: u64, writeback: u64) -> usize {
        self.enter_in(|| self.current.load(SeqCst), dirty, writeback)
    }

    /// Counts pages as [`Self::enter`], with a function that tells the current epoch.
    #[inline]
    fn enter_in(&self, current: impl Fn() -> u64, dirty: u64, writeback: u64) -> usize {
        loop {
            let epoch = current();
            let parity = (epoch & 1) as usize;
            self.dirty[parity].fetch_add(dirty, SeqCst);
            self.writeback[parity].fetch_add(writeback, SeqCst);
            // If the epoch was closed meanwhile, a sync may already have waited for it without these pages.
            if current() == epoch {
                return parity;
            }
            self.leave(parity, dirty, writeback);
        }
    }

    /// Notes that dirty pages of an epoch are now under write-back.
    pub(crate) fn send(&self, parity: usize, pages: u64) {
        if pages > 0 {
            self.writeback[parity].fetch_add(pages, SeqCst);
            self.dirty[parity].fetch_sub(pages, SeqCst);
        }
    }

    /// Notes that pages of an epoch are clean, or dropped.
    pub(crate) fn leave(&self, parity: usize, dirty: u64, writeback: u64) {
        if dirty + writeback > 0 {
            self.dirty[parity].fetch_sub(dirty, SeqCst);
            self.writeback[parity].fetch_sub(writeback, SeqCst);
            if self.is_drained(parity) {
                self.drained.wake_all();
            }
        }
    }

    /// Notes that pages are dirty again. To be called after the pages entered the current epoch and before
    /// they leave their old one: a sync that sees the count when it begins closes the epoch that the pages
    /// entered, and a sync that does not sees the count when their old epoch is drained.
    pub(crate) fn give_back(&self) {
        self.given_back.fetch_add(1, SeqCst);
    }

    /// Begins the next epoch. Returns the parity of the previous one.
    fn close(&self) -> usize {
        (self.current.fetch_add(1, SeqCst) & 1) as usize
    }

    fn is_drained(&self, parity: usize) -> bool {
        // The order matters: pages go from dirty to write-back.
        self.dirty[parity].load(SeqCst) == 0 && self.writeback[parity].load(SeqCst) == 0
    }
}

/// The state that is shared by callers that sync by epochs.
pub(crate) struct Shared {
    state: Mutex<Passes>,
    ended: WaitQueue,
}

struct Passes {
    begun: u64,
    ended: u64,
    running: bool,
    /// The thread that runs the present pass.
    whose: u32,
    /// The result of the last pass.
    result: Result<()>,
}

impl Default for Shared {
    fn default() -> Self {
        let passes = Passes { begun: 0, ended: 0, running: false, whose: 0, result: Ok(()) };
        Shared { state: Mutex::new(&SYNC, passes), ended: WaitQueue::new() }
    }
}

impl Shared {
    /// Runs `pass`, or takes the result of a pass that another thread began after this call.
    fn share(&self, pass: impl FnOnce() -> Result<()>) -> Result<()> {
        let mine = self.state.lock().begun + 1;
        loop {
            let mut s = self.state.lock();
            if s.ended >= mine {
                return s.result.clone();
            }
            if !s.running {
                (s.running, s.whose, s.begun) = (true, thread::id(), s.begun + 1);
                break;
            }
            let (running, whose) = (s.begun, s.whose);
            drop(s);
            let _span = WAIT_SHARED_PASS.enter([whose.into()]);
            self.ended.wait_until(|| self.state.lock().ended >= running);
        }
        let mut running = Running { shared: self, result: Err(ErrorKind::Io.into()) };
        running.result = pass();
        running.result.clone()
    }
}

/// A running pass. It ends when this is dropped, also by a panic.
struct Running<'a> {
    shared: &'a Shared,
    result: Result<()>,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let mut s = self.shared.state.lock();
        (s.running, s.ended, s.result) = (false, s.begun, self.result.clone());
        drop(s);
        self.shared.ended.wake_all();
    }
}

impl Vfs {
    /// The thread that waits in a sync.
    pub fn sync_wait(&self) -> SyncWait {
        self.sync_switch.get()
    }

    /// Sets the switch. Syncs that have begun keep their position.
    pub fn set_sync_wait(&self, position: SyncWait) {
        self.sync_switch.set(position);
    }

    /// Writes everything and makes it durable. Takes `s_umount` shared.
    ///
    /// # Errors
    /// The first failure; everything was tried. `Stale` when the volume is unmounted.
    pub fn sync(&self) -> Result<()> {
        tidegate_rt::sim::syscall();
        let flusher = self.flusher.read();
        match &*flusher {
            Some(f) => self.sync_with(f),
            None if self.unmounted.load(SeqCst) => Err(Error::unmounted()),
            None => Ok(()),
        }
    }

    pub(crate) fn sync_with(&self, flusher: &Flusher) -> Result<()> {
        let how = self.sync_wait();
        let _span = SYNC_FILESYSTEM.enter([how as u64]);
        match how {
            SyncWait::Epoch => self.sync_shared.share(|| self.sync_epoch(flusher)),
            _ => {
                let before = self.bdi.epochs.given_back.load(SeqCst);
                let submitted = flusher.sync(how);
                self.wait_sb_inodes();
                let failed = submitted.is_err() || self.bdi.epochs.given_back.load(SeqCst) != before;
                let again = if failed { self.write_again() } else { Ok(()) };
                again.and(self.fs.sync_fs())
            }
        }
    }

    /// Waits for every inode's write-back. Pages that were dirtied since the sync began stay dirty.
    fn wait_sb_inodes(&self) {
        let _span = WAIT_SB_INODES.enter([]);
        for inode in self.icache.all() {
            inode.mapping.wait_writeback(0, u64::MAX);
        }
    }

    /// Writes every inode that has dirty pages and waits for it. Called after pages could not be submitted or came back
    /// unwritten, to write them after all or to learn why they cannot be written. Returns the first error.
    fn write_again(&self) -> Result<()> {
        let mut first = Ok(());
        for inode in self.icache.all() {
            let mapping = &inode.mapping;
            if mapping.nr_dirty() > 0 || mapping.nr_writeback() > 0 {
                let seen = AtomicU32::new(mapping.errseq());
                first = first.and(self.write_pages(&inode, None)).and_then(|()| mapping.check_error(&seen));
            }
        }
        first
    }

    fn sync_epoch(&self, flusher: &Flusher) -> Result<()> {
        let epochs = &self.bdi.epochs;
        let before = epochs.given_back.load(SeqCst);
        let parity = epochs.close();
        let submitted = flusher.sync(SyncWait::Epoch);
        // Pages that are still dirty could not be written, or their inode was listed too late. It is possible
        // that no other thread ever writes them, so the sync does not wait for the epoch, but writes them
        // here.
        let stranded = epochs.dirty[parity].load(SeqCst) > 0;
        if stranded {
            self.wait_sb_inodes();
        } else {
            wait_for_epoch(&self.bdi, parity);
        }
        let failed = submitted.is_err() || epochs.given_back.load(SeqCst) != before;
        let again = if stranded || failed { self.write_again() } else { Ok(()) };
        again.and(self.fs.sync_fs())
    }
}

fn wait_for_epoch(bdi: &Bdi, parity: usize) {
    let pages = bdi.epochs.writeback[parity].load(SeqCst);
    let _span = WAIT_EPOCH.enter([pages]);
    let done = || bdi.epochs.is_drained(parity);
    if !done() {
        bdi.wait_sending(None, &bdi.epochs.drained, done);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::time::Duration;
    use tidegate_rt::{Nanos, sim, thread};

    /// A pass serves a sync that asked before the pass began, and none that asked later.
    #[test]
    fn a_pass_serves_those_who_came_before_it() {
        for seed in 0..50 {
            sim::run(seed, 3, || {
                let shared = Arc::new((Shared::default(), AtomicU64::new(0)));
                let passes: Vec<_> = (0..16)
                    .map(|i| {
                        let s = shared.clone();
                        let body = move || {
                            thread::sleep(Duration::from_micros(i % 5));
                            let before = s.1.load(SeqCst);
                            let pass = || {
                                thread::sleep(Duration::from_micros(100));
                                sim::charge(Nanos(1000));
                                s.1.fetch_add(1, SeqCst);
                                Ok(())
                            };
                            s.0.share(pass).unwrap();
                            assert!(s.1.load(SeqCst) > before, "served by a pass that had ended");
                        };
                        thread::spawn("syncer", body).unwrap()
                    })
                    .collect();
                passes.into_iter().for_each(thread::JoinHandle::join);
                let passes = shared.1.load(SeqCst);
                assert!((2..=4).contains(&passes), "{passes} passes for 16 callers");
            });
        }
    }

    #[test]
    fn pages_are_counted_in_the_epoch_that_is_closed_after_them() {
        let epochs = Epochs::default();
        let first = epochs.enter(3, 0);
        assert_eq!(epochs.close(), first);
        let second = epochs.enter(2, 0);
        assert_ne!(first, second);
        epochs.leave(first, 1, 0);
        epochs.send(first, 2);
        assert!(!epochs.is_drained(first));
        epochs.leave(first, 0, 2);
        assert!(epochs.is_drained(first) && !epochs.is_drained(second));
    }
}

#[cfg(test)]
#[path = "sync_tests.rs"]
mod pinned;
