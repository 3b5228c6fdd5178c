//! Waiting for a condition in atomics or behind another lock.

use crate::clock::{self, Nanos};
use crate::sim::sync::{self, Address};
use crate::thread;
use crate::trace::causes;
use std::cell::RefCell;
use std::panic::Location;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

/// A function that does work for which threads may wait. Returns whether there was any work.
pub type Poll = Rc<dyn Fn() -> bool>;

thread::local!(static POLL: RefCell<Option<Poll>> = const { RefCell::new(None) });

/// Ends polling when dropped; see [`poll_with`].
#[must_use]
pub struct Polling(Option<Poll>);

/// From now on the calling thread sleeps in a [`WaitQueue`] only when `poll` has no work left. So a thread
/// can wait for a device that completes requests only when polled, in an order of its own.
pub fn poll_with(poll: Poll) -> Polling {
    Polling(POLL.with(|p| p.replace(Some(poll))))
}

impl Drop for Polling {
    fn drop(&mut self) {
        POLL.with(|p| p.replace(self.0.take()));
    }
}

/// Polls once, if polling is on. Returns whether there was any work.
pub fn poll() -> bool {
    let poll = POLL.with(|p| p.borrow().clone());
    poll.is_some_and(|p| p())
}

/// A queue of threads that wait until a condition holds.
///
/// The waker first makes the condition true, then calls [`WaitQueue::wake_all`]. A waiter checks the
/// condition under the queue's own lock, so no wake-up is lost between its check and its sleep. The condition
/// may take other locks: only the queue's own lock is held while it is checked.
#[derive(Default)]
pub struct WaitQueue {
    waiters: AtomicU32,
    lock: parking_lot::Mutex<()>,
    cond: parking_lot::Condvar,
}

impl WaitQueue {
    /// A queue without waiters.
    pub const fn new() -> Self {
        WaitQueue {
            waiters: AtomicU32::new(0),
            lock: parking_lot::Mutex::new(()),
            cond: parking_lot::Condvar::new(),
        }
    }

    /// Waits until `cond` is true.
    #[track_caller]
    pub fn wait_until(&self, mut cond: impl FnMut() -> bool) {
        self.wait(None, &mut cond, Location::caller());
    }

    /// Waits until `cond` is true or `d` has passed. Returns whether `cond` was true.
    #[track_caller]
    pub fn wait_timeout(&self, d: Duration, mut cond: impl FnMut() -> bool) -> bool {
        self.wait(Some(d), &mut cond, Location::caller())
    }

    fn wait(
        &self,
        limit: Option<Duration>,
        cond: &mut dyn FnMut() -> bool,
        at: &'static Location<'static>,
    ) -> bool {
        loop {
            if cond() {
                return true;
            }
            if !poll() {
                break;
            }
        }
        self.waiters.fetch_add(1, SeqCst);
        let mut asleep = causes::asleep(Some(Address::of(self)), at);
        let met = sync::wait_until(Address::of(self), limit, cond, at)
            .unwrap_or_else(|| self.wait_for(limit, cond));
        if !met {
            asleep.timed_out();
        }
        drop(asleep);
        self.waiters.fetch_sub(1, SeqCst);
        met
    }

    fn wait_for(&self, limit: Option<Duration>, cond: &mut dyn FnMut() -> bool) -> bool {
        let start = clock::now();
        let mut g = self.lock.lock();
        loop {
            if cond() {
                return true;
            }
            match limit {
                None => self.cond.wait(&mut g),
                Some(d) => {
                    let left = d.saturating_sub(clock::now().since(start).duration());
                    if left.is_zero() {
                        return false;
                    }
                    self.cond.wait_for(&mut g, left);
                }
            }
        }
    }

    /// How many threads are asleep here. It may change at any time.
    pub fn waiters(&self) -> usize {
        self.waiters.load(SeqCst) as usize
    }

    /// Lets every waiter check its condition again. Cheap when no thread waits.
    pub fn wake_all(&self) {
        // Pairs with the increment in `wait`: either this thread sees the waiter, or the waiter sees the new
        // condition.
        std::sync::atomic::fence(SeqCst);
        if self.waiters.load(SeqCst) == 0 {
            return;
        }
        let (queue, at) = (Address::of(self), causes::waking());
        let slept = sync::wake(queue, usize::MAX).unwrap_or_else(|| {
            drop(self.lock.lock());
            self.cond.notify_all() as u64
        });
        if let Some(at) = at.filter(|_| slept > 0) {
            causes::woke(queue, at);
        }
    }
}

/// Time left of `limit` since `start`; `None` when it has run out.
pub fn remaining(start: Nanos, limit: Duration) -> Option<Duration> {
    limit.checked_sub(clock::now().since(start).duration()).filter(|d| !d.is_zero())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn who_would_sleep_polls_first_and_no_longer_than_asked() {
        let done = Rc::new(Cell::new(0));
        let d = done.clone();
        let polling = poll_with(Rc::new(move || {
            d.set(d.get() + 1);
            true
        }));
        WaitQueue::new().wait_until(|| done.get() == 3);
        assert_eq!(done.get(), 3);
        drop(polling);
        assert!(!WaitQueue::new().wait_timeout(Duration::from_millis(1), || done.get() == 4));
    }
}
