//! The counts of each thread. No other thread writes to them, so that counting needs no atomic operation and
//! no cache line moves between processors. Places of waits, which are rarer, are under a lock.

use super::LOOKING;
pub(super) use super::sum::{Sum, most_frequent};
use crate::clock::Nanos;
use crate::thread;
use std::cell::Cell;
use std::panic::Location;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

/// The most classes that can be counted. More are left out.
const CLASSES: usize = 256;
/// Of drawn acquisitions, one in so many observes the next one.
const ASKS: u64 = 8;

static THREADS: parking_lot::Mutex<Threads> =
    parking_lot::Mutex::new(Threads { live: Vec::new(), ended: Vec::new(), spare: Vec::new() });

thread::local!(
    /// The thread's counts, once it has any. The value needs no drop, so that access is a single load.
    static MINE: Cell<Option<&'static Slots>> = const { Cell::new(None) }
);
thread::local!(static OWNER: Owner = Owner::of_this_thread());

/// The counts of threads.
struct Threads {
    live: Vec<&'static Slots>,
    /// The counts of threads that have ended, by class.
    ended: Vec<Sum>,
    /// The memory of ended threads, for new threads: as many as there ever were at once.
    spare: Vec<&'static Slots>,
}

/// Owns the counts of a thread until it ends.
struct Owner(&'static Slots);

impl Owner {
    fn of_this_thread() -> Owner {
        let mut threads = THREADS.lock();
        let slots = threads.spare.pop().unwrap_or_else(Slots::made);
        slots.begin_anew();
        // The state of the generator depends on the thread, not on the former owner of the memory: in a
        // simulated world, draws must depend only on the seed.
        slots.lots.store(u64::from(thread::id()).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1, Relaxed);
        threads.live.push(slots);
        MINE.set(Some(slots));
        Owner(slots)
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        // A task's value is dropped after the task has ended, when the caller is no longer that task.
        if MINE.get().is_some_and(|mine| std::ptr::eq(mine, self.0)) {
            MINE.set(None);
        }
        let threads = &mut *THREADS.lock();
        threads.live.retain(|s| !std::ptr::eq(*s, self.0));
        if self.0.is_current() {
            let used = self.0.used.load(Relaxed);
            if threads.ended.len() < used {
                threads.ended.resize_with(used, Sum::default);
            }
            threads.ended.iter_mut().enumerate().for_each(|(class, sum)| sum.add(self.0, class));
        }
        threads.spare.push(self.0);
    }
}

/// The calling thread's counts, of the present epoch. `None` when the thread is about to end.
#[cold]
fn mine() -> Option<&'static Slots> {
    let mine = OWNER.try_with(|owner| owner.0)?;
    if !mine.is_current() {
        mine.begin_anew();
    }
    Some(mine)
}

/// Forgets all counts.
pub(super) fn reset() {
    let mut threads = THREADS.lock();
    threads.ended.clear();
    LOOKING.epoch.fetch_add(1, Relaxed);
}

/// The counts of a class by all threads.
pub(super) fn sum(class: usize) -> Sum {
    let threads = THREADS.lock();
    let mut sum = threads.ended.get(class).cloned().unwrap_or_default();
    let current = threads.live.iter().filter(|s| s.is_current());
    current.for_each(|slots| sum.add(slots, class));
    sum
}

/// How an acquisition is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timed {
    /// Like all of its kind.
    Always,
    /// As one of several, drawn at random.
    Drawn,
    /// As the first of its thread, of a kind of which others are drawn.
    First,
}

/// The counts of one thread.
pub(super) struct Slots {
    epoch: AtomicU64,
    /// The state of the random generator.
    lots: AtomicU64,
    /// Classes from here on were not counted in this epoch.
    pub used: AtomicUsize,
    /// The counts that every acquisition uses, apart from the rest, so that several classes share a cache
    /// line.
    pub counts: [Count; CLASSES],
    pub times: [Times; CLASSES],
    pub waits: [Waits; CLASSES],
    /// The places where the thread waited, and those of the holders, by class. The lock is contended only
    /// with readers of statistics.
    pub places: parking_lot::Mutex<Vec<(usize, Place)>>,
}

/// The end of a wait at which a place is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// A thread waited for a lock there.
    Waits,
    /// The lock had been taken there.
    Holds,
}

/// A place in the source, and how often it was at that end of a wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub end: End,
    pub at: &'static Location<'static>,
    pub count: u64,
}

impl Place {
    /// Whether the other differs at most in its count.
    pub fn is(&self, other: &Place) -> bool {
        self.end == other.end && (std::ptr::eq(self.at, other.at) || self.at == other.at)
    }
}

/// Waits for locks of a class.
#[derive(Default)]
pub(super) struct Waits {
    pub n: AtomicU64,
    pub total: AtomicU64,
    pub min: AtomicU64,
    pub max: AtomicU64,
    /// Waits before which another thread had waited.
    pub bounces: AtomicU64,
}

/// The number of acquisitions, and in the low sixteen bits how many are left until one is drawn.
#[derive(Default)]
pub(super) struct Count(AtomicU64);

#[derive(Default)]
pub(super) struct Times {
    /// Acquisitions that were timed in any case.
    pub always: AtomicU64,
    pub holds: [Holds; 3],
    pub min: AtomicU64,
    pub max: AtomicU64,
}

/// Holds that were timed, by [`Timed`].
#[derive(Default)]
pub(super) struct Holds {
    pub n: AtomicU64,
    pub total: AtomicU64,
}

/// Adds to a count. Only the thread itself does so.
fn add(to: &AtomicU64, n: u64) {
    to.store(to.load(Relaxed) + n, Relaxed);
}

impl Slots {
    /// Separate from the code that reuses slots: it needs more stack than the C library leaves to an ending
    /// thread, and giving stack back interrupts all processors.
    #[cold]
    #[inline(never)]
    fn made() -> &'static Slots {
        Box::leak(Box::new(Slots::new()))
    }

    fn new() -> Slots {
        Slots {
            epoch: AtomicU64::new(0),
            lots: AtomicU64::new(1),
            used: AtomicUsize::new(0),
            counts: std::array::from_fn(|_| Count::default()),
            times: std::array::from_fn(|_| Times::default()),
            waits: std::array::from_fn(|_| Waits::default()),
            places: parking_lot::Mutex::new(Vec::new()),
        }
    }

    fn is_current(&self) -> bool {
        self.epoch.load(Acquire) == LOOKING.epoch.load(Relaxed)
    }

    /// The next number, by Marsaglia's xorshift.
    fn draw(&self) -> u64 {
        let mut x = self.lots.load(Relaxed);
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.lots.store(x, Relaxed);
        x
    }

    #[cold]
    fn begin_anew(&self) {
        let used = self.used.swap(0, Relaxed);
        self.counts.iter().take(used).for_each(|c| c.set(0, 0));
        self.times.iter().take(used).for_each(Times::clear);
        self.waits.iter().take(used).for_each(Waits::clear);
        self.places.lock().clear();
        // The epoch is set last: a thread that finds it finds the counts cleared.
        self.epoch.store(LOOKING.epoch.load(Relaxed), Release);
    }
}

impl Count {
    pub fn taken(&self) -> u64 {
        self.0.load(Relaxed) >> 16
    }

    fn left(&self) -> u64 {
        self.0.load(Relaxed) & 0xFFFF
    }

    /// Counts an acquisition that is not drawn. False when it is drawn: then it is not counted here.
    #[inline]
    fn pass(&self) -> bool {
        let n = self.0.load(Relaxed);
        if n & 0xFFFF != 0 {
            self.0.store(n + (1 << 16) - 1, Relaxed);
        }
        n & 0xFFFF != 0
    }

    pub fn set(&self, taken: u64, left: u64) {
        self.0.store(taken << 16 | left, Relaxed);
    }
}

impl Times {
    fn clear(&self) {
        let holds = self.holds.iter().flat_map(|h| [&h.n, &h.total]);
        [&self.always, &self.min, &self.max].into_iter().chain(holds).for_each(|a| a.store(0, Relaxed));
    }
}

impl Waits {
    fn clear(&self) {
        let Waits { n, total, min, max, bounces } = self;
        [n, total, min, max, bounces].into_iter().for_each(|a| a.store(0, Relaxed));
    }
}

/// The result of counting an acquisition, and the further work on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Taken {
    /// Whether it was counted.
    pub counted: bool,
    /// How it is timed, if it is.
    pub timed: Option<Timed>,
    /// Whether to observe if the next acquisition of the class is another thread's.
    pub asks: bool,
}

/// Counts an acquisition of a class. One in `one_in` is drawn, and a thread's first in any case: a class that
/// is seldom taken would else have no times at all. Drawn acquisitions are timed, with `always` all are. Of
/// the drawn ones, one in [`ASKS`] observes the next acquisition: other threads see that, at the cost of a
/// cache line.
#[inline]
pub(super) fn taken(class: usize, always: bool, one_in: u16) -> Taken {
    let mine = MINE.get().filter(|mine| !always && mine.is_current());
    if mine.and_then(|mine| mine.counts.get(class)).is_some_and(Count::pass) {
        return Taken { counted: true, ..Taken::default() };
    }
    taken_and_timed(class, always, one_in).unwrap_or_default()
}

/// Counts an acquisition that may be drawn, or is timed in any case.
#[inline(never)]
fn taken_and_timed(class: usize, always: bool, one_in: u16) -> Option<Taken> {
    let mine = MINE.get().filter(|mine| mine.is_current()).or_else(mine)?;
    let (count, times) = mine.counts.get(class).zip(mine.times.get(class))?;
    let (before, left) = (count.taken(), count.left());
    let (first, drawn) = (before == 0, left == 0);
    if first {
        mine.used.fetch_max(class + 1, Relaxed);
    }
    let lot = if drawn { mine.draw() } else { 0 };
    // The gaps are uniformly distributed with a mean of `one_in`, so that periodic acquisitions are not
    // missed.
    let left = if drawn { (lot >> 8) % (2 * u64::from(one_in) - 1) } else { left - 1 };
    count.set(before + 1, left);
    let asks = drawn && (first || (lot >> 40).is_multiple_of(ASKS));
    if always || first {
        add(&times.always, 1);
    }
    let timed = match (always, drawn) {
        (true, _) => Some(Timed::Always),
        (false, true) => Some(if first { Timed::First } else { Timed::Drawn }),
        (false, false) => None,
    };
    Some(Taken { counted: true, timed, asks })
}

/// Counts a hold that was timed.
pub(super) fn held(class: usize, timed: Timed, time: Nanos) {
    let Some(mine) = MINE.get().filter(|mine| mine.is_current()) else { return };
    // The lock was taken before the counts were reset.
    if class >= mine.used.load(Relaxed) {
        return;
    }
    let Some(times) = mine.times.get(class) else { return };
    let holds = &times.holds[timed as usize];
    let first = times.holds.iter().all(|h| h.n.load(Relaxed) == 0);
    add(&holds.n, 1);
    add(&holds.total, time.0);
    if first || time.0 < times.min.load(Relaxed) {
        times.min.store(time.0, Relaxed);
    }
    if time.0 > times.max.load(Relaxed) {
        times.max.store(time.0, Relaxed);
    }
}

/// Counts a wait, with the place that waited, and the place where the lock had been taken, if known.
/// `bounced` says whether another thread had waited last.
pub(super) fn waited(
    class: usize,
    time: Nanos,
    bounced: bool,
    (waiter, holder): (&'static Location<'static>, Option<&'static Location<'static>>),
) {
    let Some(mine) = MINE.get().filter(|mine| mine.is_current()) else { return };
    // The acquisition was counted before the counts were reset.
    if class >= mine.used.load(Relaxed) {
        return;
    }
    let Some(waits) = mine.waits.get(class) else { return };
    if waits.n.load(Relaxed) == 0 || time.0 < waits.min.load(Relaxed) {
        waits.min.store(time.0, Relaxed);
    }
    if time.0 > waits.max.load(Relaxed) {
        waits.max.store(time.0, Relaxed);
    }
    add(&waits.n, 1);
    add(&waits.total, time.0);
    add(&waits.bounces, bounced as u64);
    let mut places = mine.places.lock();
    let ends = [(End::Waits, Some(waiter)), (End::Holds, holder)];
    for (end, at) in ends.into_iter().filter_map(|(end, at)| Some((end, at?))) {
        match places.iter_mut().find(|(c, p)| *c == class && p.end == end && std::ptr::eq(p.at, at)) {
            Some((_, p)) => p.count += 1,
            None => places.push((class, Place { end, at, count: 1 })),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_in_sixteen_is_drawn_and_all_are_counted() {
        let of_this_test = CLASSES - 1;
        let timed = (0..160_000).filter_map(|_| taken(of_this_test, false, 16).timed).count();
        assert!((9_500..10_500).contains(&timed), "{timed}");
        let always: Vec<Taken> = (0..160_000).map(|_| taken(of_this_test, true, 16)).collect();
        assert!(always.iter().all(|t| t.timed == Some(Timed::Always)));
        let asks = always.iter().filter(|t| t.asks).count();
        assert!((1_000..1_500).contains(&asks), "{asks}");
        assert_eq!(sum(of_this_test).taken, 320_000);
    }
}
