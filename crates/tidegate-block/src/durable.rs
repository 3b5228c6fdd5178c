//! Flushing a file. After a flush has failed, all later flushes fail.
//!
//! The kernel reports to each open file description once that a page could not be written, and drops the page. When two
//! threads flush through one description at the same time, only one of them gets the error, though the lost page may be
//! the other thread's. So each flush has a description to itself, opened before anything was written. After one flush
//! has failed, all fail: a later success would say nothing about the lost page.

use crate::Errno;
use rustix::fs::{Mode, OFlags};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering::AcqRel, Ordering::Acquire};
use tidegate_rt::WaitQueue;

/// The number of descriptions beside the file's own. A thread that finds no free description waits for one.
const MORE: u32 = 3;

/// The state that flushes of a file share.
pub(crate) struct Durable {
    more: Vec<OwnedFd>,
    /// The descriptions that no flush uses, a bit for each.
    free: AtomicU32,
    given_back: WaitQueue,
    failed: OnceLock<Errno>,
}

/// A description that one flush uses. It is free again when this is dropped.
struct Turn<'a>(&'a Durable, u32);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.free.fetch_or(1 << self.1, AcqRel);
        self.0.given_back.wake_all();
    }
}

impl Durable {
    /// The state for the file that is open as `fd`; `written` says whether it may be written. Where /proc
    /// does not lead to the file, one flush runs at a time.
    pub(crate) fn new(fd: &OwnedFd, written: bool) -> Self {
        let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
        let again = || rustix::fs::open(&path, OFlags::CLOEXEC | OFlags::RDONLY, Mode::empty()).ok();
        let more: Vec<_> = (0..if written { MORE } else { 0 }).map_while(|_| again()).collect();
        let free = AtomicU32::new((2 << more.len()) - 1);
        Durable { more, free, given_back: WaitQueue::new(), failed: OnceLock::new() }
    }

    /// Calls `sync` to make the file durable, with a description that no other flush uses: `own` or another.
    ///
    /// # Errors
    /// The first error that `sync` ever returned.
    pub(crate) fn flush(
        &self,
        own: &OwnedFd,
        sync: impl FnOnce(BorrowedFd<'_>) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let turn = self.turn();
        if let Some(e) = self.failed.get() {
            return Err(*e);
        }
        let fd = match turn.1 {
            0 => own.as_fd(),
            n => self.more[n as usize - 1].as_fd(),
        };
        sync(fd).map_err(|e| *self.failed.get_or_init(|| e))
    }

    fn turn(&self) -> Turn<'_> {
        loop {
            let lowest = |free: u32| (free != 0).then(|| free & (free - 1));
            match self.free.fetch_update(AcqRel, Acquire, lowest) {
                Ok(free) => return Turn(self, free.trailing_zeros()),
                Err(_) => self.given_back.wait_until(|| self.free.load(Acquire) != 0),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::RawFd;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use tidegate_rt::{LockClass, Mutex, thread};

    static SEEN: LockClass = LockClass::new("test->seen", 1000);

    fn file() -> OwnedFd {
        tempfile::tempfile().unwrap().into()
    }

    /// Eight threads flush. No two threads use one description at once, and as many threads flush at once as
    /// there are descriptions.
    #[test]
    fn each_flush_has_a_description_of_its_own() {
        let (own, most) = (Arc::new(file()), Arc::new(AtomicUsize::new(0)));
        let durable = Arc::new(Durable::new(&own, true));
        let used = Arc::new(Mutex::new(&SEEN, Vec::<RawFd>::new()));
        let body = |own: Arc<OwnedFd>,
                    durable: Arc<Durable>,
                    used: Arc<Mutex<Vec<RawFd>>>,
                    most: Arc<AtomicUsize>| {
            for _ in 0..50 {
                let sync = |fd: BorrowedFd<'_>| {
                    let fd = fd.as_raw_fd();
                    let mut seen = used.lock();
                    assert!(!seen.contains(&fd), "{fd} is in use");
                    seen.push(fd);
                    most.fetch_max(seen.len(), SeqCst);
                    drop(seen);
                    for _ in 0..5000 {
                        if most.load(SeqCst) == 1 + MORE as usize {
                            break;
                        }
                        thread::sleep(std::time::Duration::from_millis(1));
                    }
                    used.lock().retain(|f| *f != fd);
                    Ok(())
                };
                durable.flush(&own, sync).unwrap();
            }
        };
        let threads: Vec<_> = (0..8)
            .map(|_| {
                let (own, durable, used, most) = (own.clone(), durable.clone(), used.clone(), most.clone());
                thread::spawn("flushes", move || body(own, durable, used, most)).unwrap()
            })
            .collect();
        threads.into_iter().for_each(|t| t.join());
        assert_eq!(most.load(SeqCst), 1 + MORE as usize);
    }

    #[test]
    fn a_loss_is_told_for_ever() {
        let own = file();
        let durable = Durable::new(&own, true);
        assert_eq!(durable.flush(&own, |_| Ok(())), Ok(()));
        assert_eq!(durable.flush(&own, |_| Err(Errno::NOSPC)), Err(Errno::NOSPC));
        assert_eq!(durable.flush(&own, |_| Ok(())), Err(Errno::NOSPC));
        assert_eq!(durable.flush(&own, |_| Err(Errno::IO)), Err(Errno::NOSPC));
    }
}
