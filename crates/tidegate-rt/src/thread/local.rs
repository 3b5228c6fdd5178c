//! Thread-local values.

use crate::sim::task;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread::LocalKey;

/// Declares statics as [`Local`], of which each thread, and each task of a simulated world, has its own:
/// `thread::local!(static X: Cell<u32> = const { … })`.
#[macro_export]
macro_rules! thread_local {
    ($(#[$doc:meta])* $v:vis static $name:ident: $type:ty = const $initial:block) => {
        $(#[$doc])*
        $v static $name: $crate::thread::Local<$type> = {
            std::thread_local!(static OF_THREAD: $type = const $initial);
            $crate::thread::Local::new(&OF_THREAD, || $initial)
        };
    };
    ($(#[$doc:meta])* $v:vis static $name:ident: $type:ty = $initial:expr) => {
        $(#[$doc])*
        $v static $name: $crate::thread::Local<$type> = {
            std::thread_local!(static OF_THREAD: $type = $initial);
            $crate::thread::Local::new(&OF_THREAD, || $initial)
        };
    };
}

/// A value of which each thread has its own, and so has each task of a simulated world, though tasks share a
/// thread. It is dropped when its owner has ended.
pub struct Local<T: 'static> {
    of_thread: &'static LocalKey<T>,
    initial: fn() -> T,
    /// Its number among the locals of tasks; 0 while it has none.
    number: AtomicUsize,
}

static NUMBERED: AtomicUsize = AtomicUsize::new(0);

impl<T: 'static> Local<T> {
    /// For [`thread_local!`](crate::thread_local).
    #[doc(hidden)]
    pub const fn new(of_thread: &'static LocalKey<T>, initial: fn() -> T) -> Self {
        Local { of_thread, initial, number: AtomicUsize::new(0) }
    }

    /// Calls `f` with the caller's value. `None` when the thread is about to end and has no value any more.
    #[inline]
    pub fn try_with<R>(&'static self, f: impl FnOnce(&T) -> R) -> Option<R> {
        match self.of_task() {
            Some(own) => Some(f(&own)),
            None => self.of_thread.try_with(f).ok(),
        }
    }

    /// Calls `f` with the caller's value.
    ///
    /// # Panics
    /// When the thread is about to end and has no value any more.
    #[inline]
    pub fn with<R>(&'static self, f: impl FnOnce(&T) -> R) -> R {
        match self.of_task() {
            Some(own) => f(&own),
            None => self.of_thread.with(f),
        }
    }

    /// The calling task's value, if the caller is a task.
    #[inline]
    fn of_task(&'static self) -> Option<Rc<T>> {
        task::with(|t| t.own(self.number(), self.initial))
    }

    fn number(&self) -> usize {
        match self.number.load(Relaxed) {
            0 => self.numbered(),
            n => n - 1,
        }
    }

    /// If two threads assign a number at once, one of them is too late and uses the other's.
    #[cold]
    fn numbered(&self) -> usize {
        let new = NUMBERED.fetch_add(1, Relaxed) + 1;
        self.number.compare_exchange(0, new, Relaxed, Relaxed).map_or_else(|theirs| theirs, |_| new) - 1
    }
}

impl<T: 'static> Local<Cell<T>> {
    /// A copy of the caller's value.
    #[inline]
    pub fn get(&'static self) -> T
    where
        T: Copy,
    {
        self.with(Cell::get)
    }

    /// Sets the caller's value.
    #[inline]
    pub fn set(&'static self, value: T) {
        self.with(|own| own.set(value));
    }

    /// Sets the caller's value. Returns the previous one.
    #[inline]
    pub fn replace(&'static self, value: T) -> T {
        self.with(|own| own.replace(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{sim, thread};
    use std::cell::RefCell;
    use std::sync::Arc;
    use std::time::Duration;

    thread::local!(static COUNT: Cell<u32> = const { Cell::new(7) });
    thread::local!(static LIST: RefCell<Vec<u32>> = RefCell::new(vec![1]));

    fn count(own: u32) -> Vec<u32> {
        for n in 0..3 {
            assert_eq!(COUNT.replace(own + n), if n == 0 { 7 } else { own + n - 1 });
            LIST.with(|l| l.borrow_mut().push(own + n));
            thread::sleep(Duration::from_micros(10));
        }
        LIST.with(|l| l.borrow().clone())
    }

    #[test]
    fn threads_and_tasks_have_their_own() {
        let both = || {
            let other = thread::spawn("other", || count(100)).unwrap();
            assert_eq!(count(10), [1, 10, 11, 12]);
            assert_eq!(other.join(), [1, 100, 101, 102]);
        };
        COUNT.set(1);
        sim::run(1, 2, both);
        assert_eq!(COUNT.get(), 1, "the thread that the world ran on");
        thread::spawn("outside", both).unwrap().join();
    }

    #[test]
    fn they_are_dropped_with_their_task() {
        thread::local!(static HELD: RefCell<Option<Arc<()>>> = const { RefCell::new(None) });
        let held = Arc::new(());
        let theirs = held.clone();
        sim::run(1, 1, move || HELD.with(|h| *h.borrow_mut() = Some(theirs)));
        assert_eq!(Arc::strong_count(&held), 1);
    }
}
