//! sync(2): everything dirty is written and waited for. The thread that waits, and the pages that it waits
//! for, are a switch.
//!
//! A sync has two halves. The flusher submits every dirty page; somebody waits for the submitted ones.
//! [`SyncWait`] says who. Pages that are dirtied after a sync began are not its business. When pages could
//! not be submitted or come back unwritten meanwhile, the sync writes all dirty pages once more, inode by
//! inode.
//!
//! **Epochs.** Every page that is dirty or under write-back bears the epoch in which it was dirtied, as one bit
//! in its chunk, and [`Epochs`] counts those pages. A sync closes the current epoch and waits until none of its
//! pages is left. One pass goes on at a time: a sync that comes meanwhile waits for its end and then closes the
//! next epoch, together with all who came. Pages that could not be written do not keep a sync: they are left,
//! counted, for the next epoch of their parity, and the sync looks for them, to say why.

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
    /// The thread that waits in a sync for the pages it has written (`sync_wait=`).
    pub enum SyncWait {
        /// The flusher, after each inode, before it submits the next (Linux before 3.11).
        Flusher = "flusher",
        /// The caller, when everything is submitted: over all inodes (`wait_sb_inodes`, Linux since 3.11).
        #[default]
        Caller = "caller",
        /// The caller, for a counter of the epoch's pages. Callers share a pass.
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
    /// Times that pages under write-back became dirty again, by a failure or without one.
    given_back: AtomicU64,
    pub(crate) drained: WaitQueue,
}

impl Epochs {
    /// Counts pages that are dirtied now, and pages that are written though they were clean; the parity of
    /// their epoch. A sync that closes that epoch later finds them counted.
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
            // An epoch that was closed meanwhile may have been waited for without these pages.
            if current() == epoch {
                return parity;
            }
            self.leave(parity, dirty, writeback);
        }
    }

    /// Dirty pages of an epoch are under write-back.
    pub(crate) fn send(&self, parity: usize, pages: u64) {
        if pages > 0 {
            self.writeback[parity].fetch_add(pages, SeqCst);
            self.dirty[parity].fetch_sub(pages, SeqCst);
        }
    }

    /// Pages of an epoch are clean, or gone.
    pub(crate) fn leave(&self, parity: usize, dirty: u64, writeback: u64) {
        if dirty + writeback > 0 {
            self.dirty[parity].fetch_sub(dirty, SeqCst);
            self.writeback[parity].fetch_sub(writeback, SeqCst);
            if self.is_drained(parity) {
                self.drained.wake_all();
            }
        }
    }

    /// Pages are dirty again. Between entering the current epoch and leaving theirs: a sync that sees this
    /// when it begins closes the epoch that they have entered, one that does not sees it when theirs drains.
    pub(crate) fn give_back(&self) {
        self.given_back.fetch_add(1, SeqCst);
    }

    /// Begins the next epoch; the parity of the one that was current.
    fn close(&self) -> usize {
        (self.current.fetch_add(1, SeqCst) & 1) as usize
    }

    fn is_drained(&self, parity: usize) -> bool {
        // In this order: pages go from the one to the other.
        self.dirty[parity].load(SeqCst) == 0 && self.writeback[parity].load(SeqCst) == 0
    }
}

/// The state that callers share which sync by epochs.
pub(crate) struct Shared {
    state: Mutex<Passes>,
    ended: WaitQueue,
}

struct Passes {
    begun: u64,
    ended: u64,
    running: bool,
    /// The thread that does the pass which runs.
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
    /// Does `pass`, or takes the result of one that somebody else began after this was called.
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

/// A pass; it ends when this goes, by a panic as well.
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

    /// Turns the switch; syncs that have begun end as they began.
    pub fn set_sync_wait(&self, position: SyncWait) {
        self.sync_switch.set(position);
    }

    /// Writes everything and makes it durable. Takes `s_umount` shared.
    ///
    /// # Errors
    /// The first failure; everything was tried. `Stale` when it is unmounted.
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

    /// Writes every inode that has dirty pages and waits for it: after pages could not be submitted or came back
    /// unwritten, to write them after all or to learn why not. The first error.
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
        // Pages that are dirty still could not be written, or their inode came onto the lists too late.
        // Nobody else may ever write it, so nobody waits for its epoch: it is written here.
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

    /// A sync that asks before a pass begins is served by it; none takes one that began before.
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
