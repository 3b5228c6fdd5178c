//! Waiting for a condition that lives in atomics or behind somebody else's lock.

use crate::clock::{self, Nanos};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

/// A queue of threads that wait until a condition holds.
///
/// The waker first makes the condition true, then calls [`WaitQueue::wake_all`]. A waiter looks at the
/// condition under the queue's own lock, so no wake-up falls between its look and its sleep. The
/// condition may take other locks: none is held by the queue's caller but the queue's own.
#[derive(Default)]
pub struct WaitQueue {
    waiters: AtomicU32,
    lock: parking_lot::Mutex<()>,
    cond: parking_lot::Condvar,
}

impl WaitQueue {
    /// A queue with nobody in it.
    pub const fn new() -> Self {
        WaitQueue {
            waiters: AtomicU32::new(0),
            lock: parking_lot::Mutex::new(()),
            cond: parking_lot::Condvar::new(),
        }
    }

    /// Waits until `cond` is true.
    pub fn wait_until(&self, mut cond: impl FnMut() -> bool) {
        self.wait(None, &mut cond);
    }

    /// Waits until `cond` is true or `d` has passed; whether `cond` was true.
    pub fn wait_timeout(&self, d: Duration, mut cond: impl FnMut() -> bool) -> bool {
        self.wait(Some(d), &mut cond)
    }

    fn wait(&self, limit: Option<Duration>, cond: &mut dyn FnMut() -> bool) -> bool {
        if cond() {
            return true;
        }
        let start = clock::now();
        self.waiters.fetch_add(1, SeqCst);
        let mut g = self.lock.lock();
        let met = loop {
            if cond() {
                break true;
            }
            match limit {
                None => self.cond.wait(&mut g),
                Some(d) => {
                    let left = d.saturating_sub(clock::now().since(start).duration());
                    if left.is_zero() {
                        break false;
                    }
                    self.cond.wait_for(&mut g, left);
                }
            }
        };
        drop(g);
        self.waiters.fetch_sub(1, SeqCst);
        met
    }

    /// Lets every waiter look at its condition again. Cheap when nobody waits.
    pub fn wake_all(&self) {
        // Pairs with the increment in `wait`: either we see the waiter, or it sees the new condition.
        std::sync::atomic::fence(SeqCst);
        if self.waiters.load(SeqCst) != 0 {
            drop(self.lock.lock());
            self.cond.notify_all();
        }
    }
}

/// Time left of `limit` since `start`; `None` when it has run out.
pub fn remaining(start: Nanos, limit: Duration) -> Option<Duration> {
    limit.checked_sub(clock::now().since(start).duration()).filter(|d| !d.is_zero())
}
