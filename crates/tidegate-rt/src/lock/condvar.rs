//! Waiting for a change of what a mutex protects.

use super::MutexGuard;
use crate::class;
use crate::sim::sync::{self, Address, Want};
use crate::trace::causes;
use std::panic::Location;
use std::time::Duration;

/// Waits for a change of what a [`Mutex`](crate::Mutex) protects.
#[derive(Default)]
pub struct Condvar(parking_lot::Condvar);

impl Condvar {
    /// A condition variable with no waiter.
    pub const fn new() -> Self {
        Condvar(parking_lot::Condvar::new())
    }

    /// Releases the lock, waits for a wake-up, and takes the lock again, which is another acquisition. Time asleep is
    /// not time held.
    #[track_caller]
    pub fn wait<T: ?Sized>(&self, g: &mut MutexGuard<'_, T>) {
        self.asleep(g, None, Location::caller());
    }

    /// As [`Condvar::wait`], for at most `d`. False when the time ran out.
    #[track_caller]
    pub fn wait_for<T: ?Sized>(&self, g: &mut MutexGuard<'_, T>, d: Duration) -> bool {
        self.asleep(g, Some(d), Location::caller())
    }

    fn asleep<T: ?Sized>(
        &self,
        g: &mut MutexGuard<'_, T>,
        limit: Option<Duration>,
        at: &'static Location<'static>,
    ) -> bool {
        let class = g.held.head.class;
        if let Some(t) = g.held.since {
            class.held(g.held.lock.number(), t);
        }
        class::pop(class);
        let lock = Want { lock: g.held.lock, class, shared: false, at };
        let mut asleep = causes::asleep(Some(Address::of(self)), at);
        let simulated = sync::wait(Address::of(self), &lock, &mut g.inner, limit);
        let woken = simulated.unwrap_or_else(|| match limit {
            None => {
                self.0.wait(&mut g.inner);
                true
            }
            Some(d) => !self.0.wait_for(&mut g.inner, d).timed_out(),
        });
        if !woken {
            asleep.timed_out();
        }
        drop(asleep);
        class::push(class, true);
        g.held.since = g.held.head.acquired(class.taking(false), false, at);
        woken
    }

    /// Wakes one waiter.
    pub fn notify_one(&self) {
        self.wake(1, || u64::from(self.0.notify_one()));
    }

    /// Wakes every waiter.
    pub fn notify_all(&self) {
        self.wake(usize::MAX, || self.0.notify_all() as u64);
    }

    #[inline]
    fn wake(&self, most: usize, notify: impl FnOnce() -> u64) {
        let (queue, at) = (Address::of(self), causes::waking());
        let slept = sync::wake(queue, most).unwrap_or_else(notify);
        if let Some(at) = at.filter(|_| slept > 0) {
            causes::woke(queue, at);
        }
    }
}
