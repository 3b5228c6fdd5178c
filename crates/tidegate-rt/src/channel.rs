//! A bounded channel between threads, many senders and many receivers.
//!
//! The bound is on the sum of the weights of the values inside (bytes, say), not on their number. A value
//! heavier than the bound passes alone.

use crate::class::LockClass;
use crate::lock::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;

static CHANNEL: LockClass = LockClass::new("channel", 980);

struct Inner<T> {
    queue: VecDeque<(T, usize)>,
    weight: usize,
    senders: usize,
    receivers: usize,
}

struct Shared<T> {
    inner: Mutex<Inner<T>>,
    bound: usize,
    filled: Condvar,
    emptied: Condvar,
}

/// The sending end. The channel closes when the last clone is dropped.
pub struct Sender<T>(Arc<Shared<T>>);

/// The receiving end. Sending fails when the last clone is dropped.
pub struct Receiver<T>(Arc<Shared<T>>);

/// The other end is dropped. The value is returned.
#[derive(Debug, PartialEq, Eq)]
pub struct Closed<T>(pub T);

/// A channel that holds values up to a total weight of `bound`.
pub fn bounded<T>(bound: usize) -> (Sender<T>, Receiver<T>) {
    let inner = Inner { queue: VecDeque::new(), weight: 0, senders: 1, receivers: 1 };
    let shared = Arc::new(Shared {
        inner: Mutex::new(&CHANNEL, inner),
        bound,
        filled: Condvar::new(),
        emptied: Condvar::new(),
    });
    (Sender(shared.clone()), Receiver(shared))
}

impl<T> Sender<T> {
    /// Sends `value`, waiting until there is room for its `weight`.
    ///
    /// # Errors
    /// [`Closed`] when no receiver is left.
    pub fn send(&self, value: T, weight: usize) -> Result<(), Closed<T>> {
        let mut i = self.0.inner.lock();
        while i.receivers > 0 && !i.queue.is_empty() && i.weight + weight > self.0.bound {
            self.0.emptied.wait(&mut i);
        }
        if i.receivers == 0 {
            return Err(Closed(value));
        }
        i.weight += weight;
        i.queue.push_back((value, weight));
        drop(i);
        self.0.filled.notify_one();
        Ok(())
    }
}

impl<T> Receiver<T> {
    /// Waits for the next value. `None` when all senders are gone and no value is left.
    pub fn recv(&self) -> Option<T> {
        let mut i = self.0.inner.lock();
        loop {
            if let Some((value, weight)) = i.queue.pop_front() {
                i.weight -= weight;
                drop(i);
                // Senders wait for different weights, so each must check for itself.
                self.0.emptied.notify_all();
                return Some(value);
            }
            if i.senders == 0 {
                return None;
            }
            self.0.filled.wait(&mut i);
        }
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.0.inner.lock().senders += 1;
        Sender(self.0.clone())
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        self.0.inner.lock().receivers += 1;
        Receiver(self.0.clone())
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.0.inner.lock().senders -= 1;
        self.0.filled.notify_all();
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let mut i = self.0.inner.lock();
        i.receivers -= 1;
        // Values that no receiver will take are dropped outside the lock: their drop may run any code.
        let left = if i.receivers == 0 { std::mem::take(&mut i.queue) } else { VecDeque::new() };
        drop(i);
        drop(left);
        self.0.emptied.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::thread;
    use std::time::Duration;

    #[test]
    fn values_arrive_in_order_within_the_bound() {
        let (tx, rx) = bounded(10);
        let t = thread::spawn("sender", move || {
            for i in 0..1000usize {
                tx.send(i, 1 + i % 7).unwrap();
            }
        })
        .unwrap();
        for i in 0..1000 {
            assert_eq!(rx.recv(), Some(i));
            assert!(rx.0.inner.lock().weight <= 10);
        }
        assert_eq!(rx.recv(), None);
        t.join();
    }

    #[test]
    fn a_heavy_value_passes_alone() {
        let (tx, rx) = bounded(4);
        tx.send("heavy", 100).unwrap();
        let t = thread::spawn("sender", move || tx.send("next", 1)).unwrap();
        thread::sleep(Duration::from_millis(10));
        assert!(!t.is_finished());
        assert_eq!(rx.recv(), Some("heavy"));
        assert_eq!(rx.recv(), Some("next"));
        t.join().unwrap();
    }

    #[test]
    fn a_closed_end_wakes_the_other() {
        let (tx, rx) = bounded(1);
        tx.send(1, 1).unwrap();
        let t = thread::spawn("sender", move || tx.send(2, 1)).unwrap();
        thread::sleep(Duration::from_millis(10));
        drop(rx);
        assert_eq!(t.join(), Err(Closed(2)));
    }
}
