//! Waits for a device with locks held that other threads need.
//!
//! A class declares with [`LockClass::off_device`](crate::LockClass::off_device) that no thread may wait for
//! a device under its locks. Debug builds panic where a thread is about to do so ([`check`]), unless a
//! [`Permit`] gives the reason for it. [`holds`] tells such waits, so that they can be counted.

use crate::{class, thread};
use std::cell::Cell;
use std::marker::PhantomData;

thread::local!(
    /// The number of locks of such classes that the thread holds.
    static HOLDS: Cell<u32> = const { Cell::new(0) }
);
thread::local!(static PERMITS: Cell<u32> = const { Cell::new(0) });

pub(crate) fn taken() {
    HOLDS.set(HOLDS.get() + 1);
}

pub(crate) fn released() {
    HOLDS.set(HOLDS.get().saturating_sub(1));
}

/// Whether the calling thread holds a lock under which it may not wait for a device.
pub fn holds() -> bool {
    HOLDS.get() > 0
}

/// Declares that the calling thread may wait for a device here. It costs nothing in release builds.
///
/// # Panics
/// In debug builds, when the thread holds such a lock and has no [`Permit`].
#[inline]
#[track_caller]
pub fn check() {
    // If a panic is unwinding, that panic is the one to be reported.
    if cfg!(debug_assertions) && holds() && PERMITS.get() == 0 && !std::thread::panicking() {
        panic!("waiting for a device with {} held", class::off_device_held());
    }
}

/// A permit to wait for a device with such locks held, for the calling thread, until it is dropped.
pub struct Permit(PhantomData<*const ()>);

/// Gives a permit. `why` is for readers of the source: each exception states its reason.
pub fn permit(why: &'static str) -> Permit {
    let _ = why;
    PERMITS.set(PERMITS.get() + 1);
    Permit(PhantomData)
}

impl Drop for Permit {
    fn drop(&mut self) {
        PERMITS.set(PERMITS.get() - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Condvar, LockClass, Mutex, RwLock, sim};
    use std::sync::Arc;
    use std::time::Duration;

    static WANTED: LockClass = LockClass::new("wanted", 1).off_device();
    static OWN: LockClass = LockClass::new("own", 2);
    static ALSO_WANTED: LockClass = LockClass::new("also wanted", 3).off_device();

    #[test]
    fn it_is_known_what_a_thread_holds() {
        let (a, b, c) = (RwLock::new(&WANTED, ()), Mutex::new(&OWN, ()), Mutex::new(&ALSO_WANTED, ()));
        let own = b.lock();
        assert!(!holds());
        drop(own);
        let shared = a.read();
        let also = c.lock();
        drop(shared);
        assert!(holds(), "one of two");
        drop(also);
        assert!(!holds());
        let tried = a.try_write();
        assert!(tried.is_some() && holds());
        thread::spawn("other", || assert!(!holds(), "another thread's")).unwrap().join();
    }

    #[test]
    fn a_lock_that_is_given_up_meanwhile_is_not_held() {
        sim::run(1, 2, || {
            let both = Arc::new((Mutex::new(&WANTED, ()), Condvar::new()));
            let mut g = both.0.lock();
            both.1.wait_for(&mut g, Duration::from_millis(1));
            assert!(holds(), "it is taken again");
            drop(g);
            assert!(!holds());
        });
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "waiting for a device with wanted held")]
    fn a_wait_under_such_a_lock_panics() {
        let a = RwLock::new(&WANTED, ());
        let _shared = a.read();
        check();
    }

    #[test]
    fn leave_lasts_as_long_as_its_permit() {
        let a = RwLock::new(&WANTED, ());
        let shared = a.read();
        let permit = permit("a test");
        check();
        drop(permit);
        assert_eq!((holds(), PERMITS.get()), (true, 0));
        drop(shared);
        check();
    }
}
