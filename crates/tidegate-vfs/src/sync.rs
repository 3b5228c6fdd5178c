//! sync(2): everything dirty is written and waited for. Who waits, and for what, is a switch.
//!
//! A sync has two halves. The flusher submits every dirty page; somebody waits for what was submitted.
//! [`SyncWait`] says who. Pages that are dirtied after a sync began are not its business.
//!
//! **Epochs.** Every page that is dirty or under write-back bears the epoch in which it was dirtied, as one bit
//! in its chunk, and [`Epochs`] counts those pages. A sync closes the current epoch and waits until none of its
//! pages is left. There are never more than two: a sync that comes while an epoch drains waits until it is gone
//! and then closes the next one, together with all who came meanwhile.

use crate::bdi::Bdi;
use crate::error::{Error, ErrorKind, Result};
use crate::flusher::Flusher;
use crate::vfs::Vfs;
use std::str::FromStr;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::time::Duration;
use tidegate_rt::{LockClass, Mutex, WaitQueue, trace};

static SYNC: LockClass = LockClass::new("sb->s_sync", 12);

/// How long who waits for an epoch sleeps before looking for bios to send.
const RESUBMIT: Duration = Duration::from_millis(2);

/// Who waits in a sync for the pages it has written (`sync_wait=`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum SyncWait {
    /// The flusher, after each inode, before it submits the next (Linux before 3.11).
    Flusher,
    /// The caller, when everything is submitted: over all inodes (`wait_sb_inodes`, Linux since 3.11).
    #[default]
    Caller,
    /// The caller, for a counter of the epoch's pages. Callers share a pass.
    Epoch,
}

impl SyncWait {
    /// Every position.
    pub const ALL: &[SyncWait] = &[SyncWait::Flusher, SyncWait::Caller, SyncWait::Epoch];

    /// As it is spelled in options.
    pub fn word(self) -> &'static str {
        match self {
            SyncWait::Flusher => "flusher",
            SyncWait::Caller => "caller",
            SyncWait::Epoch => "epoch",
        }
    }
}

impl FromStr for SyncWait {
    type Err = Error;

    fn from_str(word: &str) -> Result<Self> {
        Self::ALL.iter().copied().find(|p| p.word() == word).ok_or_else(|| {
            let words: Vec<_> = Self::ALL.iter().map(|p| p.word()).collect();
            let text = format!("option \"sync_wait={word}\": it must be one of {}", words.join(", "));
            Error::new(ErrorKind::InvalidArgument, text)
        })
    }
}

/// The switch, turned while the volume is in use.
#[derive(Default)]
pub(crate) struct Switch(AtomicU8);

impl Switch {
    pub(crate) fn new(position: SyncWait) -> Self {
        Switch(AtomicU8::new(position as u8))
    }

    pub(crate) fn get(&self) -> SyncWait {
        SyncWait::ALL.get(usize::from(self.0.load(SeqCst))).copied().unwrap_or_default()
    }

    pub(crate) fn set(&self, position: SyncWait) {
        self.0.store(position as u8, SeqCst);
    }
}

/// Pages that are dirty or under write-back, by the parity of the epoch in which they were dirtied.
#[derive(Default)]
pub(crate) struct Epochs {
    current: AtomicU64,
    pages: [AtomicU64; 2],
    drained: WaitQueue,
}

impl Epochs {
    /// Counts pages that are dirtied now; the parity of their epoch. Whoever closes that epoch later finds
    /// them counted.
    pub(crate) fn enter(&self, pages: u64) -> usize {
        loop {
            let epoch = self.current.load(SeqCst);
            let parity = (epoch & 1) as usize;
            self.pages[parity].fetch_add(pages, SeqCst);
            if self.current.load(SeqCst) == epoch {
                return parity;
            }
            self.leave(parity, pages);
        }
    }

    /// Pages of an epoch are clean, or gone.
    pub(crate) fn leave(&self, parity: usize, pages: u64) {
        if pages > 0 && self.pages[parity].fetch_sub(pages, SeqCst) == pages {
            self.drained.wake_all();
        }
    }

    /// Begins the next epoch; the parity of the one that was current. None of the epoch before is left.
    fn close(&self) -> usize {
        (self.current.fetch_add(1, SeqCst) & 1) as usize
    }

    fn is_drained(&self, parity: usize) -> bool {
        self.pages[parity].load(SeqCst) == 0
    }
}

/// What callers share that sync by epochs.
pub(crate) struct Shared {
    state: Mutex<Passes>,
    ended: WaitQueue,
}

struct Passes {
    begun: u64,
    ended: u64,
    running: bool,
    /// What the last pass came to.
    result: Result<()>,
}

impl Default for Shared {
    fn default() -> Self {
        let passes = Passes { begun: 0, ended: 0, running: false, result: Ok(()) };
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
                (s.running, s.begun) = (true, s.begun + 1);
                break;
            }
            let running = s.begun;
            drop(s);
            self.ended.wait_until(|| self.state.lock().ended >= running);
        }
        let result = pass();
        let mut s = self.state.lock();
        (s.running, s.ended, s.result) = (false, s.begun, result.clone());
        drop(s);
        self.ended.wake_all();
        result
    }
}

impl Vfs {
    /// Who waits in a sync.
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
    /// The first failure; everything was tried.
    pub fn sync(&self) -> Result<()> {
        tidegate_rt::sim::syscall();
        let flusher = self.flusher.read();
        match &*flusher {
            Some(f) => self.sync_with(f),
            None => Ok(()),
        }
    }

    pub(crate) fn sync_with(&self, flusher: &Flusher) -> Result<()> {
        let how = self.sync_wait();
        let _span = trace::span("sync_filesystem", [("sync_wait", how as u64), ("", 0), ("", 0), ("", 0)]);
        match how {
            SyncWait::Epoch => self.sync_shared.share(|| self.sync_epoch(flusher)),
            _ => {
                flusher.sync(how == SyncWait::Flusher);
                self.wait_sb_inodes().and(self.fs.sync_fs())
            }
        }
    }

    /// Waits for every inode's write-back; the first error.
    fn wait_sb_inodes(&self) -> Result<()> {
        let _span = trace::span("wait_sb_inodes", [("", 0); 4]);
        let mut first = Ok(());
        for inode in self.icache.all() {
            let mapping = &inode.mapping;
            mapping.wait_writeback(0, u64::MAX);
            // The flusher could not write it, or is at it again; once more, to learn why.
            if mapping.nr_dirty() > 0 || mapping.nr_writeback() > 0 {
                let seen = AtomicU32::new(mapping.errseq());
                first = first.and(self.write_pages(&inode, None)).and_then(|()| mapping.check_error(&seen));
            }
        }
        first
    }

    fn sync_epoch(&self, flusher: &Flusher) -> Result<()> {
        let gave_up = self.bdi.given_back();
        let parity = self.bdi.epochs.close();
        flusher.sync(false);
        wait_for_epoch(&self.bdi, parity);
        // Pages that were not written have gone to the current epoch: they are looked for as others do.
        let walked = if self.bdi.given_back() == gave_up { Ok(()) } else { self.wait_sb_inodes() };
        walked.and(self.fs.sync_fs())
    }
}

fn wait_for_epoch(bdi: &Bdi, parity: usize) {
    let _span = trace::span(
        "wait_epoch",
        [("pages", bdi.epochs.pages[parity].load(SeqCst)), ("", 0), ("", 0), ("", 0)],
    );
    let done = || bdi.epochs.is_drained(parity);
    while !done() {
        // As in `wait_writeback`: who grows a bio may wait for us.
        bdi.submit_pending_here();
        bdi.epochs.drained.wait_timeout(RESUBMIT, done);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use tidegate_rt::{Nanos, sim, thread};

    #[test]
    fn words_are_told_when_one_is_wrong() {
        assert_eq!("epoch".parse::<SyncWait>().unwrap(), SyncWait::Epoch);
        let e = "later".parse::<SyncWait>().unwrap_err().to_string();
        assert!(e.contains("flusher, caller, epoch"), "{e}");
    }

    /// Whoever asks before a pass begins is served by it; nobody takes one that began before.
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
        let first = epochs.enter(3);
        assert_eq!(epochs.close(), first);
        let second = epochs.enter(2);
        assert_ne!(first, second);
        epochs.leave(first, 2);
        assert!(!epochs.is_drained(first));
        epochs.leave(first, 1);
        assert!(epochs.is_drained(first) && !epochs.is_drained(second));
    }
}
