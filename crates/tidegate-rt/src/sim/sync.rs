//! Waiting in virtual time: for locks, condition variables and wait queues.
//!
//! The locks themselves are the real ones. Since one task moves at a time, a lock that cannot be taken at
//! once is held by a task that sleeps or pays, and a task that wants the lock sleeps here until it is
//! released. An exception is a lock of the process (such as that of a pool of buffers) that is held outside:
//! then the whole world waits, and no virtual time passes.

use super::state::{Key, Mode, Reason, Ticket};
use super::task::{self, Task};
use crate::class::LockClass;
use std::panic::Location;
use std::time::Duration;

/// The address of a lock, condition variable or queue.
#[derive(Clone, Copy)]
pub(crate) struct Address(usize);

impl Address {
    #[inline]
    pub fn of<T: ?Sized>(of: &T) -> Address {
        Address(std::ptr::from_ref(of).cast::<()>().addr())
    }

    /// A number of half a word that distinguishes it from most others.
    pub fn number(self) -> u64 {
        u64::from((self.0 >> 3) as u32)
    }

    fn key(self) -> Key {
        Key::At(self.0)
    }
}

/// The way in which a task wants a lock.
pub(crate) struct Want {
    pub lock: Address,
    pub class: &'static LockClass,
    pub shared: bool,
    pub at: &'static Location<'static>,
}

/// The way to take a lock without waiting for it.
#[derive(Clone, Copy)]
pub(crate) enum Entry {
    Mutex,
    Read,
    Write,
}

/// Whether a task that does not wait may take `lock` if it is free. As in Linux, `down_read_trylock` fails
/// where a writer waits and `down_write_trylock` where any task waits; `mutex_trylock` goes before waiters,
/// unless the lock is handed to one of them.
pub(crate) fn may_try(lock: Address, entry: Entry) -> bool {
    let may = task::with(|t| {
        let key = lock.key();
        let behind = match entry {
            Entry::Mutex => t.sim().goes_behind(key, Mode::Exclusive),
            Entry::Read => t.sim().goes_behind(key, Mode::Shared),
            Entry::Write => t.sim().is_wanted(key),
        };
        if behind {
            t.charge(t.sim().costs().lock.0);
        }
        !behind
    });
    may.unwrap_or(true)
}

/// Takes a lock by trying, and sleeps while it is not free. Also returns whether a task held it at first.
/// `None` outside a simulated world.
#[inline]
pub(crate) fn acquire<G>(
    want: &Want,
    try_lock: impl FnMut() -> Option<G>,
    lock: &dyn Fn() -> G,
) -> Option<(G, bool)> {
    task::with(|t| take(t, want, try_lock, lock))
}

fn take<G>(
    t: &Task,
    want: &Want,
    mut try_lock: impl FnMut() -> Option<G>,
    lock: &dyn Fn() -> G,
) -> (G, bool) {
    t.charge(t.sim().costs().lock.0);
    t.meet();
    let key = want.lock.key();
    let mode = if want.shared { Mode::Shared } else { Mode::Exclusive };
    let (mut again, mut waited) = (false, false);
    let guard = loop {
        let behind = !again && t.sim().goes_behind(key, mode);
        if !behind && let Some(guard) = try_lock() {
            break guard;
        }
        if !behind && !t.sim().is_held(key) {
            break lock();
        }
        waited = true;
        // Other tasks move while this one pays, so it checks again. Between the check and its sleep no other
        // task moves.
        if t.settle() {
            continue;
        }
        if !again {
            t.sim().want(t.id(), key, mode);
        }
        let ticket = t.sim().enroll(t.id(), key, mode, again);
        t.sim().sleep(t.id(), (key, ticket), None, Reason::Lock(want.class), want.at);
        again = true;
    };
    if again {
        t.sim().got(t.id(), key);
    }
    t.sim().acquired(t.id(), key, want.class);
    (guard, waited)
}

/// Notes a lock that was taken at once.
#[inline]
pub(crate) fn acquired(lock: Address, class: &'static LockClass) {
    task::with(|t| {
        t.charge(t.sim().costs().lock.0);
        t.sim().acquired(t.id(), lock.key(), class);
    });
}

/// Called before a lock is released. Its holder pays the charges so far.
#[inline]
pub(crate) fn pay() {
    task::with(Task::pay);
}

/// Called after a lock was released.
#[inline]
pub(crate) fn released(lock: Address) {
    task::with(|t| {
        let costs = t.sim().costs();
        let slept = t.sim().released(t.id(), lock.key());
        t.charge(costs.lock.0 + slept * costs.wake.0);
        t.meet();
    });
}

/// Wakes at most `most` waiters at `queue`. Returns how many slept. `None` outside a simulated world.
#[inline]
pub(crate) fn wake(queue: Address, most: usize) -> Option<u64> {
    task::with(|t| {
        t.meet();
        let slept = t.sim().wake(queue.key(), most);
        t.charge(slept * t.sim().costs().wake.0);
        slept
    })
}

/// A place in a list of waiters. It is given up when dropped.
pub(crate) struct Place<'a> {
    task: &'a Task,
    key: Key,
    ticket: Ticket,
}

impl<'a> Place<'a> {
    pub fn take(task: &'a Task, key: Key) -> Self {
        task.settle();
        Place { task, key, ticket: task.sim().enroll(task.id(), key, Mode::Exclusive, false) }
    }

    /// Sleeps until woken or until `limit` is over. Returns whether it was woken.
    pub fn sleep(&self, limit: Option<Duration>, reason: Reason, at: &'static Location<'static>) -> bool {
        self.task.sim().sleep(self.task.id(), (self.key, self.ticket), limit, reason, at)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.task.sim().withdraw(self.task.id(), self.key, self.ticket);
    }
}

/// Waits at the condition variable `condvar` with the lock of `guard` released, and takes that lock again. Returns
/// whether it was woken. `None` outside a simulated world.
pub(crate) fn wait<T: ?Sized>(
    condvar: Address,
    lock: &Want,
    guard: &mut parking_lot::MutexGuard<'_, T>,
    limit: Option<Duration>,
) -> Option<bool> {
    task::with(|t| {
        let place = Place::take(t, condvar.key());
        let mutex = parking_lot::MutexGuard::mutex(guard);
        parking_lot::MutexGuard::unlocked(guard, || {
            t.sim().released(t.id(), lock.lock.key());
            let woken = place.sleep(limit, Reason::Condvar, lock.at);
            // The real lock is taken when this returns, so it must be free then.
            let free = || (!mutex.is_locked()).then_some(());
            take(t, lock, free, &|| {
                while mutex.is_locked() {
                    std::thread::yield_now();
                }
            });
            woken
        })
    })
}

/// Waits at `queue` until `cond` holds or `limit` is over. Returns whether it holds. `None` outside a simulated world.
pub(crate) fn wait_until(
    queue: Address,
    limit: Option<Duration>,
    cond: &mut dyn FnMut() -> bool,
    at: &'static Location<'static>,
) -> Option<bool> {
    task::with(|t| {
        let end = limit.map(|d| t.now().saturating_add(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)));
        loop {
            let place = Place::take(t, queue.key());
            if cond() {
                return true;
            }
            t.settle();
            let left = end.map(|e| Duration::from_nanos(e.saturating_sub(t.now())));
            if left.is_some_and(|l| l.is_zero()) {
                return false;
            }
            place.sleep(left, Reason::WaitQueue, at);
        }
    })
}
