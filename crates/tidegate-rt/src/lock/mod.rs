//! Locks with a class. Guards release on drop; a panic while held does not poison.

use crate::class::{self, LockClass};
use crate::clock;
use crate::lockstat::{self, Since, Taken, TakenAt};
use crate::sim;
use crate::sim::sync::{self, Address, Entry, Want};
use crate::trace;
use std::ops::{Deref, DerefMut};
use std::panic::Location;

mod condvar;

pub use condvar::Condvar;

/// The underlying lock, and one way to take it.
trait Raw: Copy {
    type Guard;
    const SHARED: bool;
    fn try_take(self) -> Option<Self::Guard>;
    fn take(self) -> Self::Guard;
    fn address(self) -> Address;
}

impl<'a, T: ?Sized> Raw for &'a parking_lot::Mutex<T> {
    type Guard = parking_lot::MutexGuard<'a, T>;
    const SHARED: bool = false;
    #[inline]
    fn try_take(self) -> Option<Self::Guard> {
        self.try_lock()
    }
    #[inline]
    fn take(self) -> Self::Guard {
        self.lock()
    }
    #[inline]
    fn address(self) -> Address {
        Address::of(self)
    }
}

struct Read<'a, T: ?Sized>(&'a parking_lot::RwLock<T>);
struct Write<'a, T: ?Sized>(&'a parking_lot::RwLock<T>);

macro_rules! raw_rwlock {
    ($way:ident, $guard:ident, $shared:literal, $try_take:ident, $take:ident) => {
        impl<T: ?Sized> Clone for $way<'_, T> {
            fn clone(&self) -> Self {
                *self
            }
        }
        impl<T: ?Sized> Copy for $way<'_, T> {}
        impl<'a, T: ?Sized> Raw for $way<'a, T> {
            type Guard = parking_lot::$guard<'a, T>;
            const SHARED: bool = $shared;
            #[inline]
            fn try_take(self) -> Option<Self::Guard> {
                self.0.$try_take()
            }
            #[inline]
            fn take(self) -> Self::Guard {
                self.0.$take()
            }
            #[inline]
            fn address(self) -> Address {
                Address::of(self.0)
            }
        }
    };
}
raw_rwlock!(Read, RwLockReadGuard, true, try_read, read);
raw_rwlock!(Write, RwLockWriteGuard, false, try_write, write);

/// The parts of a lock beside the value that it protects.
struct Head {
    class: &'static LockClass,
    taken_at: TakenAt,
}

impl Head {
    const fn new(class: &'static LockClass) -> Head {
        Head { class, taken_at: TakenAt::nowhere() }
    }

    /// Notes that the lock has been taken at a place in the source. Returns the beginning of its hold if that
    /// is to be timed. The arguments are separate, since a struct would be stored in memory for every lock.
    #[inline]
    fn acquired(&self, taken: Taken, shared: bool, at: &'static Location<'static>) -> Option<Since> {
        if !taken.counted {
            return None;
        }
        self.taken_at.set(at);
        self.class.acquired(taken, shared, at)
    }
}

/// The facts that a guard needs for its accounting when it is dropped.
struct Held<'a> {
    head: &'a Head,
    lock: Address,
    since: Option<Since>,
}

impl<'a> Held<'a> {
    /// Takes a lock, and counts it when statistics are on. The code for waiting threads and for simulated
    /// worlds is out of line, in one copy for each kind of lock. The code for observers is one copy for all,
    /// so that observation evicts little from the processor's caches.
    #[inline]
    fn acquire<R: Raw>(
        raw: R,
        head: &'a Head,
        nested: bool,
        at: &'static Location<'static>,
    ) -> (R::Guard, Held<'a>) {
        class::push(head.class, nested);
        let taken = head.class.taking(R::SHARED);
        let g = Self::take(raw, head, at);
        (g, Held { head, lock: raw.address(), since: head.acquired(taken, R::SHARED, at) })
    }

    #[inline]
    fn take<R: Raw>(raw: R, head: &Head, at: &'static Location<'static>) -> R::Guard {
        // Inside a simulated world, only the world knows whose turn it is.
        let free = if sim::active() { None } else { raw.try_take() };
        free.unwrap_or_else(|| Self::waiting(raw, head, at))
    }

    #[cold]
    #[inline(never)]
    fn waiting<R: Raw>(raw: R, head: &Head, at: &'static Location<'static>) -> R::Guard {
        if !lockstat::enabled() && !trace::recording() {
            let (g, waited) = Self::simulated(raw, head.class, at);
            if waited && trace::causes::wanted() {
                // A search for causes that began meanwhile records the wait from its own beginning on.
                let (since, lock) = (trace::causes::began(), raw.address().number());
                trace::contention(head.class.name(), lock, (since, clock::stamp()), at);
            }
            return g;
        }
        trace::causes::calls();
        // The holder's place is read before the wait: afterwards it would be another holder's.
        let (t, holder) = (clock::stamp(), head.taken_at.get());
        let (g, waited) = Self::simulated(raw, head.class, at);
        if waited {
            head.class.waited(raw.address().number(), t, R::SHARED, (at, holder));
        }
        g
    }

    /// Takes a lock in the calling thread's world. Also returns whether the lock was not free at first.
    #[cold]
    #[inline(never)]
    fn simulated<R: Raw>(
        raw: R,
        class: &'static LockClass,
        at: &'static Location<'static>,
    ) -> (R::Guard, bool) {
        let want = Want { lock: raw.address(), class, shared: R::SHARED, at };
        let taken = sync::acquire(&want, || raw.try_take(), &|| raw.take());
        taken.unwrap_or_else(|| (raw.take(), true))
    }

    /// Takes a lock if it is free, and in a simulated world only if waiting tasks do not go first.
    fn attempt<R: Raw>(
        raw: R,
        head: &'a Head,
        entry: Entry,
        at: &'static Location<'static>,
    ) -> Option<(R::Guard, Held<'a>)> {
        let lock = raw.address();
        if sim::active() && !sync::may_try(lock, entry) {
            return None;
        }
        let g = raw.try_take()?;
        class::push(head.class, true);
        sync::acquired(lock, head.class);
        Some((g, Held { head, lock, since: head.acquired(head.class.taking(R::SHARED), R::SHARED, at) }))
    }
}

/// Dropped before the lock is released: CPU time that the holder was charged under the lock passes while the lock is
/// held.
struct Paid;

impl Drop for Paid {
    #[inline]
    fn drop(&mut self) {
        sync::pay();
    }
}

impl Drop for Held<'_> {
    #[inline]
    fn drop(&mut self) {
        class::pop(self.head.class);
        if let Some(t) = self.since {
            self.head.class.held(self.lock.number(), t);
        }
        sync::released(self.lock);
    }
}

/// Mutual exclusion.
pub struct Mutex<T: ?Sized> {
    head: Head,
    inner: parking_lot::Mutex<T>,
}

/// Exclusive access to a [`Mutex`]'s value.
pub struct MutexGuard<'a, T: ?Sized> {
    _paid: Paid,
    inner: parking_lot::MutexGuard<'a, T>,
    held: Held<'a>,
}

impl<T> Mutex<T> {
    /// A lock of `class` around `value`.
    pub const fn new(class: &'static LockClass, value: T) -> Self {
        Mutex { head: Head::new(class), inner: parking_lot::Mutex::new(value) }
    }

    /// The value. No other thread can hold the lock.
    pub fn into_inner(self) -> T {
        self.inner.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Takes the lock, and waits for it if need be.
    #[track_caller]
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.take(false)
    }

    /// Takes the lock while another of the same rank is held; the caller orders the two.
    #[track_caller]
    pub fn lock_nested(&self) -> MutexGuard<'_, T> {
        self.take(true)
    }

    #[track_caller]
    #[inline]
    fn take(&self, nested: bool) -> MutexGuard<'_, T> {
        let (inner, held) = Held::acquire(&self.inner, &self.head, nested, Location::caller());
        MutexGuard { _paid: Paid, inner, held }
    }

    /// Takes the lock if it is free.
    #[track_caller]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let at = Location::caller();
        let (inner, held) = Held::attempt(&self.inner, &self.head, Entry::Mutex, at)?;
        Some(MutexGuard { _paid: Paid, inner, held })
    }

    /// The value. The exclusive borrow proves that no thread holds the lock.
    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut()
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.inner
    }
}
impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

/// Many readers or one writer.
pub struct RwLock<T: ?Sized> {
    head: Head,
    inner: parking_lot::RwLock<T>,
}

/// Shared access to a [`RwLock`]'s value.
pub struct RwLockReadGuard<'a, T: ?Sized> {
    _paid: Paid,
    inner: parking_lot::RwLockReadGuard<'a, T>,
    _held: Held<'a>,
}

/// Exclusive access to a [`RwLock`]'s value.
pub struct RwLockWriteGuard<'a, T: ?Sized> {
    _paid: Paid,
    inner: parking_lot::RwLockWriteGuard<'a, T>,
    _held: Held<'a>,
}

impl<T> RwLock<T> {
    /// A lock of `class` around `value`.
    pub const fn new(class: &'static LockClass, value: T) -> Self {
        RwLock { head: Head::new(class), inner: parking_lot::RwLock::new(value) }
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Takes the lock shared, and waits for it if need be. Not re-entrant: a waiting writer blocks a second
    /// read.
    #[track_caller]
    #[inline]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        let (inner, held) = Held::acquire(Read(&self.inner), &self.head, false, Location::caller());
        RwLockReadGuard { _paid: Paid, inner, _held: held }
    }

    /// Takes the lock shared unless a thread holds it exclusive or waits for that.
    #[track_caller]
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        let at = Location::caller();
        let (inner, held) = Held::attempt(Read(&self.inner), &self.head, Entry::Read, at)?;
        Some(RwLockReadGuard { _paid: Paid, inner, _held: held })
    }

    /// Takes the lock exclusive, and waits for it if need be.
    #[track_caller]
    #[inline]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.take_write(false)
    }

    /// Takes the lock exclusive while another of the same rank is held; the caller orders the two.
    #[track_caller]
    pub fn write_nested(&self) -> RwLockWriteGuard<'_, T> {
        self.take_write(true)
    }

    #[track_caller]
    #[inline]
    fn take_write(&self, nested: bool) -> RwLockWriteGuard<'_, T> {
        let (inner, held) = Held::acquire(Write(&self.inner), &self.head, nested, Location::caller());
        RwLockWriteGuard { _paid: Paid, inner, _held: held }
    }

    /// Takes the lock exclusive if it is free; in a simulated world not before waiting tasks.
    #[track_caller]
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        let at = Location::caller();
        let (inner, held) = Held::attempt(Write(&self.inner), &self.head, Entry::Write, at)?;
        Some(RwLockWriteGuard { _paid: Paid, inner, _held: held })
    }
}

impl<T: ?Sized> Deref for RwLockReadGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.inner
    }
}
impl<T: ?Sized> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.inner
    }
}
impl<T: ?Sized> DerefMut for RwLockWriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::time::Duration;

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "lock order: taking low (rank 1) while holding high (rank 2)")]
    fn descending_rank_panics() {
        static LOW: LockClass = LockClass::new("low", 1);
        static HIGH: LockClass = LockClass::new("high", 2);
        let (a, b) = (Mutex::new(&LOW, ()), Mutex::new(&HIGH, ()));
        let _b = b.lock();
        let _a = a.lock();
    }

    #[test]
    fn contention_is_counted_with_its_place() {
        static C: LockClass = LockClass::new("test->contended", 1);
        lockstat::enable(true);
        let m = Arc::new(Mutex::new(&C, 0));
        let g = m.lock();
        let m2 = m.clone();
        let t = crate::thread::spawn("waiter", move || *m2.lock() += 1).unwrap();
        crate::thread::sleep(Duration::from_millis(30));
        drop(g);
        t.join();
        lockstat::enable(false);
        let s = lockstat::snapshot().into_iter().find(|s| s.class == "test->contended").unwrap();
        assert_eq!((s.alone.acquisitions, s.alone.contentions), (2, 1));
        assert!(s.alone.wait.min > 1_000_000, "{s:?}");
        assert!(s.alone.hold.max >= s.alone.wait.max / 2);
        let (waits, holds) = (&s.waiting[0], &s.holding[0]);
        assert!(waits.file.ends_with("lock/mod.rs") && holds.file == waits.file, "{s:?}");
        assert!(holds.line + 2 == waits.line, "{s:?}");
    }
}
