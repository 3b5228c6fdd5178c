//! Locks with a class. Guards release on drop; a panic while held does not poison.

use crate::class::{self, LockClass};
use crate::clock;
use crate::lockstat::{self, Since};
use crate::sim;
use crate::sim::sync::{self, Address, Want};
use crate::trace;
use std::ops::{Deref, DerefMut};
use std::panic::Location;
use std::time::Duration;

/// A lock underneath, to be taken in one way.
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

/// What a guard needs to account for itself when it goes.
struct Held {
    class: &'static LockClass,
    lock: Address,
    since: Option<Since>,
}

impl Held {
    /// Takes a lock, and counts it when statistics are on. Code for who waits and for simulated worlds stays out of
    /// the way, in one piece for each kind of lock; code for who looks is the same piece for all, so that looking
    /// does not drive something else out of the processor's caches.
    #[inline]
    fn acquire<R: Raw>(
        raw: R,
        class: &'static LockClass,
        nested: bool,
        at: &'static Location<'static>,
    ) -> (R::Guard, Held) {
        class::push(class, nested);
        let taken = class.taking(R::SHARED);
        let g = Self::take(raw, class, at);
        (g, Held { class, lock: raw.address(), since: class.acquired(taken) })
    }

    #[inline]
    fn take<R: Raw>(raw: R, class: &'static LockClass, at: &'static Location<'static>) -> R::Guard {
        // In the simulated world only that knows whose turn it is.
        let free = if sim::active() { None } else { raw.try_take() };
        free.unwrap_or_else(|| Self::waiting(raw, class, at))
    }

    #[cold]
    #[inline(never)]
    fn waiting<R: Raw>(raw: R, class: &'static LockClass, at: &'static Location<'static>) -> R::Guard {
        if !lockstat::enabled() && !trace::recording() {
            return Self::simulated(raw, class, at).0;
        }
        trace::causes::calls();
        let t = clock::stamp();
        let (g, waited) = Self::simulated(raw, class, at);
        if waited {
            class.waited(raw.address().number(), t, at);
        }
        g
    }

    /// Takes a lock as the calling thread's world does, and whether it was not free at first.
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

    /// Of a lock that was free.
    fn tried(class: &'static LockClass, lock: Address) -> Held {
        class::push(class, true);
        sync::acquired(lock, class);
        Held { class, lock, since: class.acquired(class.taking(false)) }
    }
}

/// Goes before a lock is free: time that the holder was charged with the lock in its hands is time it was held.
struct Paid;

impl Drop for Paid {
    #[inline]
    fn drop(&mut self) {
        sync::pay();
    }
}

impl Drop for Held {
    #[inline]
    fn drop(&mut self) {
        class::pop(self.class);
        if let Some(t) = self.since {
            self.class.held(self.lock.number(), t);
        }
        sync::released(self.lock);
    }
}

/// Mutual exclusion.
pub struct Mutex<T: ?Sized> {
    class: &'static LockClass,
    inner: parking_lot::Mutex<T>,
}

/// Exclusive access to a [`Mutex`]'s value.
pub struct MutexGuard<'a, T: ?Sized> {
    _paid: Paid,
    inner: parking_lot::MutexGuard<'a, T>,
    held: Held,
}

impl<T> Mutex<T> {
    /// A lock of `class` around `value`.
    pub const fn new(class: &'static LockClass, value: T) -> Self {
        Mutex { class, inner: parking_lot::Mutex::new(value) }
    }

    /// The value, when nobody else can hold the lock.
    pub fn into_inner(self) -> T {
        self.inner.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Takes the lock, waiting for it.
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
        let (inner, held) = Held::acquire(&self.inner, self.class, nested, Location::caller());
        MutexGuard { _paid: Paid, inner, held }
    }

    /// Takes the lock if it is free.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let inner = self.inner.try_lock()?;
        Some(MutexGuard { _paid: Paid, inner, held: Held::tried(self.class, Address::of(&self.inner)) })
    }

    /// The value, by a borrow that proves nobody else has it.
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
    class: &'static LockClass,
    inner: parking_lot::RwLock<T>,
}

/// Shared access to a [`RwLock`]'s value.
pub struct RwLockReadGuard<'a, T: ?Sized> {
    _paid: Paid,
    inner: parking_lot::RwLockReadGuard<'a, T>,
    _held: Held,
}

/// Exclusive access to a [`RwLock`]'s value.
pub struct RwLockWriteGuard<'a, T: ?Sized> {
    _paid: Paid,
    inner: parking_lot::RwLockWriteGuard<'a, T>,
    _held: Held,
}

impl<T> RwLock<T> {
    /// A lock of `class` around `value`.
    pub const fn new(class: &'static LockClass, value: T) -> Self {
        RwLock { class, inner: parking_lot::RwLock::new(value) }
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Takes the lock shared, waiting for it. Not re-entrant: a waiting writer blocks a second read.
    #[track_caller]
    #[inline]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        let (inner, held) = Held::acquire(Read(&self.inner), self.class, false, Location::caller());
        RwLockReadGuard { _paid: Paid, inner, _held: held }
    }

    /// Takes the lock shared unless somebody has it exclusive or waits for that.
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        let inner = self.inner.try_read()?;
        Some(RwLockReadGuard { _paid: Paid, inner, _held: Held::tried(self.class, Address::of(&self.inner)) })
    }

    /// Takes the lock exclusive, waiting for it.
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
        let (inner, held) = Held::acquire(Write(&self.inner), self.class, nested, Location::caller());
        RwLockWriteGuard { _paid: Paid, inner, _held: held }
    }

    /// Takes the lock exclusive if it is free.
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        let inner = self.inner.try_write()?;
        Some(RwLockWriteGuard {
            _paid: Paid,
            inner,
            _held: Held::tried(self.class, Address::of(&self.inner)),
        })
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

/// Waits for a change of what a [`Mutex`] protects.
#[derive(Default)]
pub struct Condvar(parking_lot::Condvar);

impl Condvar {
    /// A condition variable with no waiter.
    pub const fn new() -> Self {
        Condvar(parking_lot::Condvar::new())
    }

    /// Gives the lock up, waits for a wake-up, takes the lock again: another acquisition. Time asleep is not time
    /// held.
    #[track_caller]
    pub fn wait<T: ?Sized>(&self, g: &mut MutexGuard<'_, T>) {
        self.asleep(g, None, Location::caller());
    }

    /// As [`Condvar::wait`], for at most `d`; false when the time ran out.
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
        if let Some(t) = g.held.since {
            g.held.class.held(g.held.lock.number(), t);
        }
        class::pop(g.held.class);
        let lock = Want { lock: g.held.lock, class: g.held.class, shared: false, at };
        let simulated = sync::wait(Address::of(self), &lock, &mut g.inner, limit);
        let woken = simulated.unwrap_or_else(|| match limit {
            None => {
                self.0.wait(&mut g.inner);
                true
            }
            Some(d) => !self.0.wait_for(&mut g.inner, d).timed_out(),
        });
        class::push(g.held.class, true);
        g.held.since = g.held.class.acquired(g.held.class.taking(false));
        woken
    }

    /// Wakes one waiter.
    pub fn notify_one(&self) {
        if !sync::wake(Address::of(self), 1) {
            self.0.notify_one();
        }
    }

    /// Wakes every waiter.
    pub fn notify_all(&self) {
        if !sync::wake(Address::of(self), usize::MAX) {
            self.0.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

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
        assert_eq!((s.acquisitions, s.contentions), (2, 1));
        assert!(s.wait.min > 1_000_000, "{s:?}");
        assert!(s.hold.max >= s.wait.max / 2);
        assert!(s.points[0].0.contains("lock.rs:"), "{s:?}");
    }
}
