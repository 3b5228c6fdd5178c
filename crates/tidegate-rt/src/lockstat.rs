//! Lock statistics by class, with the columns of `/proc/lock_stat`.
//!
//! Off by default: a lock then pays one relaxed load. On, an uncontended acquisition pays two clock
//! readings; only contended ones touch the contention-point table. Waits are all timed, and so are holds of
//! the outer classes, below rank [`MOMENTS`], which operations and checkpoints hold for long. The inner ones
//! are taken all the time and held for a moment: of their holds one in [`ONE_IN`] is timed and stands for the rest.

use crate::class::LockClass;
use crate::clock::{self, Nanos};
use crate::{thread, trace};
use std::panic::Location;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};

/// Who looks: holders of [`Collecting`], and [`enable`].
static LOOKING: AtomicUsize = AtomicUsize::new(0);
/// Of these, who wants holds, too.
static USERS: AtomicUsize = AtomicUsize::new(0);
static SWITCHED: AtomicBool = AtomicBool::new(false);
static REGISTRY: parking_lot::Mutex<Vec<&'static LockClass>> = parking_lot::Mutex::new(Vec::new());

const POINTS: usize = 4;
/// Parts that a class's figures are kept in.
const PARTS: usize = 8;
/// The first rank of the classes that are held for a moment only.
pub const MOMENTS: u16 = 110;
/// Of their holds, one in so many is timed.
pub const ONE_IN: u64 = 16;

/// Switches collection on or off, for every lock of the process.
pub fn enable(on: bool) {
    match (SWITCHED.swap(on, Relaxed), on) {
        (false, true) => std::mem::forget(look(true)),
        (true, false) => drop(Collecting { holds: true }),
        _ => {}
    }
}

/// Keeps statistics on until it is dropped.
#[must_use]
pub struct Collecting {
    holds: bool,
}

fn look(holds: bool) -> Collecting {
    USERS.fetch_add(holds as usize, Relaxed);
    LOOKING.fetch_add(1, Relaxed);
    Collecting { holds }
}

/// Switches collection on for as long as somebody holds what this returns. The first begins from nothing.
pub fn collect() -> Collecting {
    if USERS.load(Relaxed) == 0 {
        reset();
    }
    look(true)
}

/// Has waits for locks noticed, for traces and profiles, without what else there is to count.
pub fn notice_waits() -> Collecting {
    look(false)
}

impl Drop for Collecting {
    fn drop(&mut self) {
        USERS.fetch_sub(self.holds as usize, Relaxed);
        LOOKING.fetch_sub(1, Relaxed);
    }
}

/// Whether anybody looks at locks.
#[inline]
pub fn enabled() -> bool {
    LOOKING.load(Relaxed) != 0
}

/// Whether statistics are being collected.
pub fn collecting() -> bool {
    USERS.load(Relaxed) != 0
}

/// Clears the figures of every class seen so far.
pub fn reset() {
    for c in REGISTRY.lock().iter() {
        c.stats.reset();
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
    let mut all: Vec<LockStat> = REGISTRY.lock().iter().map(|c| c.stats.read(c.name())).collect();
    all.retain(|s| s.acquisitions > 0);
    all.sort_by_key(|s| std::cmp::Reverse((s.wait.total, s.hold.total)));
    all
}

/// Figures of some of the threads, so that threads do not take each other's cache lines.
#[repr(align(128))]
struct Agg {
    /// Acquisitions; of waits the same as `n`.
    taken: AtomicU64,
    n: AtomicU64,
    min: AtomicU64,
    max: AtomicU64,
    total: AtomicU64,
}

impl Agg {
    const fn new() -> Self {
        Agg {
            taken: AtomicU64::new(0),
            n: AtomicU64::new(0),
            min: AtomicU64::new(u64::MAX),
            max: AtomicU64::new(0),
            total: AtomicU64::new(0),
        }
    }
    fn add(&self, v: u64) {
        self.n.fetch_add(1, Relaxed);
        self.total.fetch_add(v, Relaxed);
        // Seldom so: a look is cheaper.
        if v < self.min.load(Relaxed) {
            self.min.fetch_min(v, Relaxed);
        }
        if v > self.max.load(Relaxed) {
            self.max.fetch_max(v, Relaxed);
        }
    }
    fn reset(&self) {
        self.taken.store(0, Relaxed);
        self.n.store(0, Relaxed);
        self.total.store(0, Relaxed);
        self.min.store(u64::MAX, Relaxed);
        self.max.store(0, Relaxed);
    }
}

fn span(parts: &[Agg]) -> (u64, Span) {
    let sum = |f: fn(&Agg) -> &AtomicU64| parts.iter().map(|a| f(a).load(Relaxed)).sum::<u64>();
    let (taken, n, total) = (sum(|a| &a.taken), sum(|a| &a.n), sum(|a| &a.total));
    let min = parts.iter().map(|a| a.min.load(Relaxed)).min().filter(|m| *m != u64::MAX).unwrap_or(0);
    let max = parts.iter().map(|a| a.max.load(Relaxed)).max().unwrap_or(0);
    let avg = total.checked_div(n).unwrap_or(0);
    // Where not all were timed, those that were stand for the rest.
    let total = if taken > n { (total as u128 * taken as u128 / n.max(1) as u128) as u64 } else { total };
    (taken.max(n), Span { min, max, total, avg })
}

type Point = (&'static Location<'static>, u64);

pub(crate) struct ClassStats {
    registered: AtomicBool,
    wait: Agg,
    hold: [Agg; PARTS],
    /// The thread that took a lock of the class last, and the one that waited last.
    last: AtomicU32,
    last_waited: AtomicU32,
    acq_bounces: AtomicU64,
    con_bounces: AtomicU64,
    points: parking_lot::Mutex<[Option<Point>; POINTS]>,
}

impl ClassStats {
    pub(crate) const fn new() -> Self {
        ClassStats {
            registered: AtomicBool::new(false),
            wait: Agg::new(),
            hold: [const { Agg::new() }; PARTS],
            last: AtomicU32::new(0),
            last_waited: AtomicU32::new(0),
            acq_bounces: AtomicU64::new(0),
            con_bounces: AtomicU64::new(0),
            points: parking_lot::Mutex::new([None; POINTS]),
        }
    }

    fn reset(&self) {
        self.wait.reset();
        self.hold.iter().for_each(Agg::reset);
        self.acq_bounces.store(0, Relaxed);
        self.con_bounces.store(0, Relaxed);
        *self.points.lock() = [None; POINTS];
    }

    fn read(&self, class: &'static str) -> LockStat {
        let (contentions, wait) = span(std::slice::from_ref(&self.wait));
        let (acquisitions, hold) = span(&self.hold);
        let (con_bounces, acq_bounces) = (self.con_bounces.load(Relaxed), self.acq_bounces.load(Relaxed));
        let mut points: Vec<(String, u64)> = self
            .points
            .lock()
            .iter()
            .flatten()
            .map(|(l, n)| (format!("{}:{}", l.file(), l.line()), *n))
            .collect();
        points.sort_by_key(|p| std::cmp::Reverse(p.1));
        LockStat { class, contentions, wait, acquisitions, hold, con_bounces, acq_bounces, points }
    }
}

impl LockClass {
    fn register(&'static self) {
        if !self.stats.registered.load(Relaxed) && !self.stats.registered.swap(true, Relaxed) {
            REGISTRY.lock().push(self);
        }
    }

    /// Counts a wait that began at `since` and is over now.
    pub(crate) fn waited(&'static self, since: Nanos, at: &'static Location<'static>) {
        let now = clock::now();
        trace::contention(self.name(), since, now, at);
        if !collecting() {
            return;
        }
        self.stats.wait.add(now.since(since).0);
        let me = thread::id();
        if self.stats.last_waited.swap(me, Relaxed) != me {
            self.stats.con_bounces.fetch_add(1, Relaxed);
        }
        let mut points = self.stats.points.lock();
        if let Some(p) = points.iter_mut().flatten().find(|p| std::ptr::eq(p.0, at) || p.0 == at) {
            p.1 += 1;
        } else if let Some(free) = points.iter_mut().find(|p| p.is_none()) {
            *free = Some((at, 1));
        }
    }

    /// Counts an acquisition; from when on its hold is to be timed.
    pub(crate) fn acquired(&'static self) -> Option<Nanos> {
        if !collecting() {
            return None;
        }
        self.register();
        let (s, me) = (&self.stats, thread::id());
        let n = s.hold[me as usize % PARTS].taken.fetch_add(1, Relaxed);
        let moment = self.rank() >= MOMENTS;
        if moment && !n.is_multiple_of(ONE_IN) {
            return None;
        }
        if s.last.load(Relaxed) != me {
            s.last.store(me, Relaxed);
            s.acq_bounces.fetch_add(if moment { ONE_IN } else { 1 }, Relaxed);
        }
        Some(clock::now())
    }

    /// Counts a hold since `since` that ends now.
    pub(crate) fn held(&'static self, since: Nanos) {
        self.stats.hold[thread::id() as usize % PARTS].add(clock::now().since(since).0);
    }
}
