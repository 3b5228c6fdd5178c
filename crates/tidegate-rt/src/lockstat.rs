//! Lock statistics by class, with the columns of `/proc/lock_stat`.
//!
//! Off by default: a lock then pays one relaxed load. On, each thread counts for itself. All acquisitions are
//! counted and all waits are timed. Of holds, those are all timed that others cannot share, of the outer
//! classes (below rank [`MOMENTS`]), which operations and checkpoints hold for long. Others are taken all the
//! time and held for a moment: of these one in [`ONE_IN`], drawn by lot, is timed and stands for the rest, so
//! that totals and means are unbiased; the least and the longest are of those that were timed. `acq_bounces` is
//! a share of all acquisitions, from some that were followed up to the next.

use crate::class::LockClass;
use crate::clock::{self, Nanos};
use crate::thread;
use crate::trace::{self, causes};
pub(crate) use slots::Taken;
use slots::Timed;
use std::num::NonZeroU64;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};

mod slots;

/// What acquisitions look at: in a cache line that is seldom written to.
#[repr(align(64))]
struct Looking {
    /// Who looks: holders of [`Collecting`], and [`enable`].
    users: AtomicUsize,
    /// Number of the last reset: counts that are older are of no use.
    epoch: AtomicU64,
}

static LOOKING: Looking = Looking { users: AtomicUsize::new(0), epoch: AtomicU64::new(1) };
static SWITCHED: AtomicBool = AtomicBool::new(false);
static REGISTRY: parking_lot::Mutex<Vec<&'static LockClass>> = parking_lot::Mutex::new(Vec::new());

const POINTS: usize = 4;
/// The first rank of the classes that are held for a moment only.
pub const MOMENTS: u16 = 110;
/// Of holds that are not all timed, one in so many is.
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

/// Switches collection on for as long as somebody holds what this returns. The first begins from nothing.
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
    for c in REGISTRY.lock().iter() {
        c.bounces.reset();
    }
}

/// One class's figures; times in nanoseconds.
#[derive(Clone, Debug, Default)]
pub struct LockStat {
    /// The class's name.
    pub class: &'static str,
    /// Acquisitions that had to wait.
    pub contentions: u64,
    /// Time waited in contended acquisitions.
    pub wait: Span,
    /// All acquisitions.
    pub acquisitions: u64,
    /// Time held.
    pub hold: Span,
    /// Contended acquisitions by another thread than the class's last contended one.
    pub con_bounces: u64,
    /// Acquisitions by another thread than the class's last one.
    pub acq_bounces: u64,
    /// Source places (`file:line`) that waited most often, with their counts.
    pub points: Vec<(String, u64)>,
}

/// Minimum, maximum and total of a time, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Span {
    /// Shortest; 0 when nothing was counted.
    pub min: u64,
    /// Longest.
    pub max: u64,
    /// Sum.
    pub total: u64,
    /// Mean; 0 when nothing was counted.
    pub avg: u64,
}

/// The figures of every class that was used since the last [`reset`], most waited first.
pub fn snapshot() -> Vec<LockStat> {
    let mut all: Vec<LockStat> = REGISTRY.lock().iter().map(|c| c.read()).collect();
    all.retain(|s| s.acquisitions > 0);
    all.sort_by_key(|s| std::cmp::Reverse((s.wait.total, s.hold.total)));
    all
}

/// The thread that waited last for a lock of a class. Begins at a cache line: what is written here is not beside what
/// every acquisition reads of a class.
#[repr(align(64))]
pub(crate) struct LastWaited(AtomicU32);

impl LastWaited {
    pub(crate) const fn new() -> Self {
        LastWaited(AtomicU32::new(0))
    }

    /// Notes that `me` waited; whether another thread had.
    fn is_new(&self, me: u32) -> bool {
        let other = self.0.load(Relaxed) != me;
        if other {
            self.0.store(me, Relaxed);
        }
        other
    }
}

/// How often a class goes from thread to thread. Of some acquisitions it is found out whether the next one of
/// the class is another thread's: these stand for all.
pub(crate) struct Bounces {
    /// The thread of such an acquisition until the next one.
    asks: AtomicU32,
    asked: AtomicU64,
    other: AtomicU64,
}

impl Bounces {
    pub(crate) const fn new() -> Self {
        Bounces { asks: AtomicU32::new(0), asked: AtomicU64::new(0), other: AtomicU64::new(0) }
    }

    #[inline]
    fn is_asked(&self) -> bool {
        self.asks.load(Relaxed) != 0
    }

    /// An acquisition; `asks` whether the next one is another's.
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
        [&self.asked, &self.other].into_iter().for_each(|a| a.store(0, Relaxed));
    }

    fn of(&self, taken: u64) -> u64 {
        let (asked, other) = (u128::from(self.asked.load(Relaxed)), u128::from(self.other.load(Relaxed)));
        (u128::from(taken) * other).checked_div(asked).unwrap_or(0) as u64
    }
}

impl LockClass {
    fn read(&'static self) -> LockStat {
        let sum = slots::sum(self.number());
        let place = |(at, n): &slots::Place| (format!("{}:{}", at.file(), at.line()), *n);
        let mut points: Vec<(String, u64)> = sum.places.iter().map(place).collect();
        points.sort_by_key(|p| std::cmp::Reverse(p.1));
        points.truncate(POINTS);
        LockStat {
            class: self.name(),
            contentions: sum.waits,
            wait: sum.waited(),
            acquisitions: sum.taken,
            hold: sum.span(),
            con_bounces: sum.bounces,
            acq_bounces: self.bounces.of(sum.taken),
            points,
        }
    }

    /// Its number, given when it is first asked for.
    #[inline]
    fn number(&'static self) -> usize {
        match self.number.load(Relaxed) {
            0 => self.register(),
            n => n,
        }
    }

    #[cold]
    fn register(&'static self) -> usize {
        let mut all = REGISTRY.lock();
        if self.number.load(Relaxed) == 0 {
            all.push(self);
            self.number.store(all.len(), Relaxed);
        }
        self.number.load(Relaxed)
    }

    /// Counts a wait for the lock numbered `lock` that began at `since` and is over now, and has it traced.
    pub(crate) fn waited(&'static self, lock: u64, since: Nanos, at: &'static Location<'static>) {
        let now = clock::stamp();
        trace::contention(self.name(), lock, (since, now), at);
        if !enabled() {
            return;
        }
        let bounced = self.last_waited.is_new(thread::id());
        slots::waited(self.number(), now.since(since), bounced, at);
    }

    /// Counts an acquisition that is about to be, together with others if `shared`. Before it, not after: who
    /// waits for the lock need not wait for this.
    #[inline]
    pub(crate) fn taking(&'static self, shared: bool) -> Taken {
        if enabled() { self.count(shared) } else { Taken::default() }
    }

    #[inline(never)]
    fn count(&'static self, shared: bool) -> Taken {
        // Who looks for causes is to learn who kept a checkpoint waiting: all who share are among them.
        let always = self.rank() < MOMENTS && (!shared || causes::wanted());
        slots::taken(self.number(), always, ONE_IN)
    }

    /// The acquisition has happened; from when on its hold is to be timed.
    #[inline]
    pub(crate) fn acquired(&'static self, taken: Taken) -> Option<Since> {
        let more = taken.counted && (taken.asks || taken.timed.is_some() || self.bounces.is_asked());
        if more { self.follow(taken) } else { None }
    }

    #[inline(never)]
    fn follow(&'static self, taken: Taken) -> Option<Since> {
        self.bounces.taken(taken.asks);
        taken.timed.and_then(Since::now)
    }

    /// Counts a hold of the lock numbered `lock` that ends now.
    #[inline(never)]
    pub(crate) fn held(&'static self, lock: u64, since: Since) {
        let now = clock::stamp();
        slots::held(self.number(), since.timed(), now.since(since.at()));
        if causes::wanted() {
            causes::hold(self.name(), lock, since.at(), now);
        }
    }
}

/// From when on a lock is held that is timed, and in the low two bits how: a word, since every guard has one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Since(NonZeroU64);

impl Since {
    fn now(timed: Timed) -> Option<Since> {
        NonZeroU64::new(clock::stamp().0 << 2 | (timed as u64 + 1)).map(Since)
    }

    fn at(self) -> Nanos {
        Nanos(self.0.get() >> 2)
    }

    fn timed(self) -> Timed {
        match self.0.get() & 3 {
            1 => Timed::Always,
            2 => Timed::Drawn,
            _ => Timed::First,
        }
    }
}
