//! The records of each thread, and those of threads that have ended.

use super::points::PointId;
use super::record::{self, Record};
use super::ring::{self, End, Ring};
use super::{Lasting, RECORDING, Recorded, causes};
use crate::clock::{self, Nanos};
use crate::profile::Tree;
use crate::profile::live::{Live, Shown};
use crate::sim::task;
use crate::thread;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{Ordering::Acquire, Ordering::Relaxed, fence};

/// The most full rings of events that ended threads leave.
pub(super) const ENDED_RINGS: usize = 4;
/// The most ended threads whose names are remembered.
const ENDED_NAMES: usize = 4096;

static THREADS: parking_lot::Mutex<Threads> = parking_lot::Mutex::new(Threads::new());

/// The records of one thread.
pub(super) struct Local {
    thread: u32,
    /// The system's thread id. A task of a simulated world has none.
    tid: Option<u32>,
    name: String,
    events: parking_lot::Mutex<Ring>,
    calls: parking_lot::Mutex<Shown>,
    /// The open timed spans, outermost first.
    lasting: parking_lot::Mutex<Vec<Lasting>>,
}

/// The thread's own end of its records. The fields are dropped in this order, so that the records of an ended
/// thread have no other writer.
pub(super) struct Mine {
    end: RefCell<End>,
    calls: RefCell<Live>,
    local: Shared,
}

impl Mine {
    /// Adds a record. `point` is `None` when there are too many points.
    #[inline(always)]
    pub fn push(&self, recording: u32, at: (Nanos, Nanos), point: Option<PointId>, numbers: &[u64; 4]) {
        let end = &mut *self.end.borrow_mut();
        if !point.is_some_and(|point| end.push(recording, at, point, numbers)) {
            self.push_slowly(end, recording, at, point, numbers);
        }
    }

    #[cold]
    fn push_slowly(
        &self,
        end: &mut End,
        recording: u32,
        at: (Nanos, Nanos),
        point: Option<PointId>,
        numbers: &[u64; 4],
    ) {
        let ring = &mut *self.local.events.lock();
        let Some(point) = point else {
            ring.dropped += 1;
            return;
        };
        end.begin(ring, point.events(), self.local.thread, recording, at.0);
        let there_is_room = end.push(recording, at, point, numbers);
        debug_assert!(there_is_room, "an empty chunk has room for one record of any length");
    }

    pub fn enter(&self, name: &'static str, is_lock: bool, at: Nanos) {
        self.calls.borrow_mut().enter(&self.local.calls, name, is_lock, at);
    }

    pub fn leave(&self, at: Nanos) {
        self.calls.borrow_mut().leave(at);
    }

    /// Notes that a timed span begins.
    pub fn begins(&self, name: &'static str, since: Nanos) {
        self.local.lasting.lock().push(Lasting { name, thread: self.local.thread, since });
    }

    /// Notes that the timed span that began last ends.
    pub fn ends(&self) {
        self.local.lasting.lock().pop();
    }
}

type Shared = Arc<Local>;

struct Threads {
    live: Vec<Shared>,
    /// The records of ended threads.
    events: Ring,
    calls: BTreeMap<String, Tree>,
    names: BTreeMap<u32, String>,
}

impl Threads {
    const fn new() -> Self {
        Threads { live: Vec::new(), events: Ring::new(), calls: BTreeMap::new(), names: BTreeMap::new() }
    }

    /// Takes over the records of ended threads.
    fn sweep(&mut self) {
        let (ended, live) = self.live.drain(..).partition(|l| Arc::strong_count(l) == 1);
        self.live = live;
        // Pairs with the drop in the ended threads: all their writes are visible.
        fence(Acquire);
        let ended: Vec<Shared> = ended;
        for local in ended {
            let (mut events, mut calls) = (local.events.lock(), local.calls.lock());
            if events.is_empty() && calls.is_empty() {
                continue;
            }
            // A later task may reuse the number of a task with events.
            let name = self.names.entry(local.thread).or_insert_with(|| local.name.clone());
            if !events.is_empty() {
                name.clone_from(&local.name);
            }
            self.events.append(&mut events, ring::capacity().saturating_mul(ENDED_RINGS));
            // The ended thread has left all spans.
            self.calls.entry(local.name.clone()).or_default().absorb(calls.take(Nanos(0)));
        }
        while self.names.len() > ENDED_NAMES {
            self.names.pop_first();
        }
    }
}

thread::local!(static LOCAL: Mine = {
    let mut threads = THREADS.lock();
    threads.sweep();
    let local = Arc::new(Local {
        thread: thread::id(),
        tid: (!task::is_simulated()).then(|| rustix::thread::gettid().as_raw_nonzero().get() as u32),
        name: thread::name(),
        events: parking_lot::Mutex::new(Ring::default()),
        calls: parking_lot::Mutex::new(Shown::default()),
        lasting: parking_lot::Mutex::new(Vec::new()),
    });
    threads.live.push(local.clone());
    Mine { end: RefCell::new(End::default()), calls: RefCell::new(Live::default()), local }
});

/// Calls `f` with the thread's own end. Does nothing for a thread that is about to end.
#[inline]
pub(super) fn with(f: impl FnOnce(&Mine)) {
    let _ = LOCAL.try_with(f);
}

impl Recorded {
    /// Takes the records of a ring.
    fn take(&mut self, ring: &mut Ring, now: Nanos, to: &mut Vec<Record>) {
        let before = to.len();
        let dropped = ring.take(RECORDING.load(Relaxed), to);
        if dropped > 0 {
            // Records are in the order of their ends, and the oldest were dropped.
            let first = to.get(before).map_or(now, |r| r.until);
            self.complete_from = self.complete_from.max(first);
        }
        self.dropped += dropped;
    }
}

/// The work of [`super::take`].
pub(super) fn take() -> Recorded {
    let mut r = Recorded::default();
    let mut threads = THREADS.lock();
    threads.sweep();
    let now = clock::stamp();
    let mut calls = std::mem::take(&mut threads.calls);
    let mut records: Vec<Record> = Vec::new();
    r.take(&mut threads.events, now, &mut records);
    r.threads = std::mem::take(&mut threads.names);
    let accounts_before = causes::accounts_before();
    for local in &threads.live {
        let mut events = local.events.lock();
        let before = records.len();
        let account = local.tid.and_then(|tid| accounts_before(tid, local.thread));
        records.extend(account);
        let first = records.len();
        // The lock is held, so no chunk here belongs to a later recording.
        r.take(&mut events, now, &mut records);
        drop(events);
        if records.len() == first {
            records.truncate(before);
        }
        // A task may have the number of a thread that sleeps during the task's world.
        let name = r.threads.entry(local.thread).or_insert_with(|| local.name.clone());
        if records.len() > before {
            name.clone_from(&local.name);
        }
        r.lasting.extend(local.lasting.lock().iter());
        let tree = local.calls.lock().take(now);
        calls.entry(local.name.clone()).or_default().absorb(tree);
    }
    drop(threads);
    r.events = record::in_order(records);
    let trees = calls.into_iter().filter(|(_, t)| !t.is_empty());
    r.calls = trees.map(|(name, tree)| tree.finish(name)).collect();
    r
}
