//! Lock statistics by class, with the columns of `/proc/lock_stat`: exclusive and shared holds separately,
//! and the places where contended locks were taken.
//!
//! Statistics are off by default: a lock then costs one relaxed load. When they are on, each thread has its own counts.
//! All acquisitions are counted and all waits are timed. All exclusive holds of the outer classes (below rank
//! [`MOMENTS`]) are timed: operations and checkpoints hold them for long. Other locks are taken all the time and held
//! for a moment: one hold in [`ONE_IN`], drawn at random, is timed and stands for the rest, so that totals and means
//! are unbiased; minimum and maximum are those of the timed holds. `acq_bounces` is estimated from some acquisitions
//! for which the next one was observed.

use crate::class::LockClass;
use crate::clock::{self, Nanos};
use crate::thread;
use crate::trace::{self, causes};
pub use figures::{CallPoint, Figures, LockStat, Span};
pub(crate) use places::TakenAt;
pub(crate) use slots::Taken;
use slots::{End, Timed};
use std::num::NonZeroU64;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};

mod figures;
mod places;
mod slots;
mod sum;

/// The fields that acquisitions read, in a cache line that is seldom written.
#[repr(align(64))]
struct Looking {
    /// The number of users of statistics: holders of [`Collecting`], and [`enable`].
    users: AtomicUsize,
    /// The number of the last reset. Older counts are not used.
    epoch: AtomicU64,
}

static LOOKING: Looking = Looking { users: AtomicUsize::new(0), epoch: AtomicU64::new(1) };
static SWITCHED: AtomicBool = AtomicBool::new(false);
/// The entries by number, from 1: a class, and whether its shared acquisitions are meant.
static REGISTRY: parking_lot::Mutex<Vec<(&'static LockClass, bool)>> = parking_lot::Mutex::new(Vec::new());

/// The number of places that are reported for each class, as many as in the kernel.
const POINTS: usize = 4;
/// The first rank of the classes that are held only for a moment.
pub const MOMENTS: u16 = 110;
/// Where not all holds are timed, one in so many is.
pub const ONE_IN: u16 = 32;

/// Switches collection on or off, for every lock of the process.
pub fn enable(on: bool) {
    match (SWITCHED.swap(on, Relaxed), on) {
        (false, true) => std::mem::forget(look()),
        (true, false) => drop(Collecting(())),
        _ => {}
    }
}

/// Keeps statistics on until it is dropped.
#[must_use]
pub struct Collecting(());

fn look() -> Collecting {
    clock::prepare_stamps();
    LOOKING.users.fetch_add(1, Relaxed);
    Collecting(())
}

/// Switches collection on until the result is dropped. The first user begins with empty counts.
pub fn collect() -> Collecting {
    if !enabled() {
        reset();
    }
    look()
}

impl Drop for Collecting {
    fn drop(&mut self) {
        LOOKING.users.fetch_sub(1, Relaxed);
    }
}

/// Whether statistics are being collected.
#[inline]
pub fn enabled() -> bool {
    LOOKING.users.load(Relaxed) != 0
}

/// Clears the figures of every class seen so far.
pub fn reset() {
    slots::reset();
    places::reset();
    for (class, shared) in REGISTRY.lock().iter() {
        class.counted(*shared).reset();
    }
}

/// The figures of every class that was used since the last [`reset`], in descending order of waiting time,
/// then by name.
pub fn snapshot() -> Vec<LockStat> {
    let registered = REGISTRY.lock().clone();
    let mut classes: Vec<&'static LockClass> = Vec::new();
    for (class, _) in registered {
        if !classes.iter().any(|c| std::ptr::eq(*c, class)) {
            classes.push(class);
        }
    }
    let read = classes.into_iter().map(LockClass::read).map(|s| (s.all(), s));
    let mut all: Vec<(Figures, LockStat)> = read.filter(|(f, _)| f.acquisitions > 0).collect();
    let order = |f: &Figures, s: &LockStat| (std::cmp::Reverse((f.wait.total, f.hold.total)), s.class);
    all.sort_by(|(a, of_a), (b, of_b)| order(a, of_a).cmp(&order(b, of_b)));
    all.into_iter().map(|(_, s)| s).collect()
}

/// The figures of one way to take locks of a class that all threads count together.
pub(crate) struct Counted {
    /// The number among all counted ways, from 1; 0 before it was used.
    number: AtomicUsize,
    bounces: Bounces,
    last_waited: LastWaited,
}

impl Counted {
    pub(crate) const fn new() -> Self {
        Counted { number: AtomicUsize::new(0), bounces: Bounces::new(), last_waited: LastWaited::new() }
    }

    fn reset(&self) {
        self.bounces.reset();
        self.last_waited.0.store(0, Relaxed);
    }

    /// The figures, and the places.
    fn read(&self) -> (Figures, slots::Sum) {
        // A way that was never used has no number.
        let sum = match self.number.load(Relaxed) {
            0 => slots::Sum::default(),
            n => slots::sum(n),
        };
        let figures = Figures {
            contentions: sum.waits,
            wait: sum.waited(),
            acquisitions: sum.taken,
            hold: sum.span(),
            con_bounces: sum.bounces,
            acq_bounces: self.bounces.of(sum.taken),
        };
        (figures, sum)
    }
}

/// The thread that waited last for a lock of a class. It begins a cache line, so that its writes do not
/// disturb the fields of a class that every acquisition reads.
#[repr(align(64))]
struct LastWaited(AtomicU32);

impl LastWaited {
    const fn new() -> Self {
        LastWaited(AtomicU32::new(0))
    }

    /// Notes that `me` waited. Returns whether another thread had waited before.
    fn is_new(&self, me: u32) -> bool {
        let other = self.0.load(Relaxed) != me;
        if other {
            self.0.store(me, Relaxed);
        }
        other
    }
}

/// How often a class goes from thread to thread. For some acquisitions it is observed whether the next one of
/// the class is another thread's: these stand for all.
struct Bounces {
    /// The thread of such an acquisition, until the next acquisition.
    asks: AtomicU32,
    asked: AtomicU64,
    other: AtomicU64,
}

impl Bounces {
    const fn new() -> Self {
        Bounces { asks: AtomicU32::new(0), asked: AtomicU64::new(0), other: AtomicU64::new(0) }
    }

    #[inline]
    fn is_asked(&self) -> bool {
        self.asks.load(Relaxed) != 0
    }

    /// Notes an acquisition. `asks` says that the next one is to be observed.
    fn taken(&self, asks: bool) {
        if self.is_asked() {
            let (me, before) = (thread::id(), self.asks.swap(0, Relaxed));
            if before != 0 {
                self.asked.fetch_add(1, Relaxed);
                self.other.fetch_add((before != me) as u64, Relaxed);
            }
        }
        if asks {
            self.asks.store(thread::id(), Relaxed);
        }
    }

    fn reset(&self) {
        self.asks.store(0, Relaxed);
        [&self.asked, &self.other].into_iter().for_each(|a| a.store(0, Relaxed));
    }

    fn of(&self, taken: u64) -> u64 {
        let (asked, other) = (u128::from(self.asked.load(Relaxed)), u128::from(self.other.load(Relaxed)));
        (u128::from(taken) * other).checked_div(asked).unwrap_or(0) as u64
    }
}

impl LockClass {
    fn read(&'static self) -> LockStat {
        let ((alone, a), (shared, b)) = (self.alone.read(), self.shared.read());
        let points = |end| slots::most_frequent(a.places.iter().chain(&b.places), end, POINTS);
        let (waiting, holding) = (points(End::Waits), points(End::Holds));
        LockStat { class: self.name(), alone, shared, waiting, holding }
    }

    fn counted(&'static self, shared: bool) -> &'static Counted {
        if shared { &self.shared } else { &self.alone }
    }

    /// The number of a way to take its locks, which is assigned at first use.
    #[inline]
    fn number(&'static self, shared: bool) -> usize {
        match self.counted(shared).number.load(Relaxed) {
            0 => self.register(shared),
            n => n,
        }
    }

    #[cold]
    fn register(&'static self, shared: bool) -> usize {
        let mut all = REGISTRY.lock();
        let number = &self.counted(shared).number;
        if number.load(Relaxed) == 0 {
            all.push((self, shared));
            number.store(all.len(), Relaxed);
        }
        number.load(Relaxed)
    }

    /// Counts a hold of the lock numbered `lock` that ends now.
    #[inline(never)]
    pub(crate) fn held(&'static self, lock: u64, since: Since) {
        let now = clock::stamp();
        slots::held(self.number(since.shared()), since.timed(), now.since(since.at()));
        if causes::wanted() {
            causes::hold(self.name(), lock, since.at(), now);
        }
    }
    /// Counts and traces a wait for the lock numbered `lock` that began at `since` and is over now, with the place that
    /// waited and the place where the lock had been taken.
    pub(crate) fn waited(
        &'static self,
        lock: u64,
        since: Nanos,
        shared: bool,
        (at, holder): (&'static Location<'static>, Option<&'static Location<'static>>),
    ) {
        let now = clock::stamp();
        trace::contention(self.name(), lock, (since, now), at);
        if !enabled() {
            return;
        }
        let bounced = self.counted(shared).last_waited.is_new(thread::id());
        slots::waited(self.number(shared), now.since(since), bounced, (at, holder));
    }

    /// Counts an acquisition that is about to happen, a shared one if `shared`. It is counted before, so that
    /// threads that wait for the lock do not wait for the counting.
    #[inline]
    pub(crate) fn taking(&'static self, shared: bool) -> Taken {
        if enabled() { self.count(shared) } else { Taken::default() }
    }

    #[inline(never)]
    fn count(&'static self, shared: bool) -> Taken {
        // A search for causes needs all threads that kept others waiting: also shared holders, and holders of
        // inner locks that lost their processor or wait for a device.
        let always = causes::wanted() || (self.rank() < MOMENTS && !shared);
        slots::taken(self.number(shared), always, ONE_IN)
    }

    /// Notes that a counted acquisition has happened, at a place in the source. Returns the beginning of its hold if
    /// that is to be timed.
    #[inline]
    pub(crate) fn acquired(
        &'static self,
        taken: Taken,
        shared: bool,
        at: &'static Location<'static>,
    ) -> Option<Since> {
        let more = taken.asks || taken.timed.is_some() || self.counted(shared).bounces.is_asked();
        if more { self.follow(taken, shared, at) } else { None }
    }

    #[inline(never)]
    fn follow(&'static self, taken: Taken, shared: bool, at: &'static Location<'static>) -> Option<Since> {
        self.counted(shared).bounces.taken(taken.asks);
        let timed = taken.timed?;
        places::tell(at);
        Since::now(timed, shared)
    }
}

/// The beginning of a timed hold, with the kind of timing in the low three bits. It is one word, since every guard has
/// it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Since(NonZeroU64);

impl Since {
    fn now(timed: Timed, shared: bool) -> Option<Since> {
        NonZeroU64::new(clock::stamp().0 << 3 | u64::from(shared) << 2 | (timed as u64 + 1)).map(Since)
    }

    fn at(self) -> Nanos {
        Nanos(self.0.get() >> 3)
    }

    fn shared(self) -> bool {
        self.0.get() & 4 != 0
    }

    fn timed(self) -> Timed {
        match self.0.get() & 3 {
            1 => Timed::Always,
            2 => Timed::Drawn,
            _ => Timed::First,
        }
    }
}
