//! Events that say why threads waited: long holds of locks, sleeps with their wakers, and how long operations
//! ran on a processor.
//!
//! They are recorded beside other events while a search for causes is on ([`super::enable_causes`]), but not
//! among the events that a simulated world keeps for itself.

use super::points::{self, Named};
use super::record::{Kind, Record};
use super::{CAUSES, EVENTS, KEPT, RECORDING, mode, with};
use crate::clock::{self, Nanos};
use crate::sim::sync::Address;
use crate::sim::task;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// A thread's time on processors, and how long it was ready and waited for one, since it began.
pub const PROCESSOR: &str = "thread_cpu";
/// The number of [`PROCESSOR`] for the time that the thread ran.
pub const RAN: &str = "ran";
/// The number of [`PROCESSOR`] for the time that the thread waited for a processor; [`UNKNOWN`] where the
/// system does not tell.
pub const DELAYED: &str = "delayed";
/// The value of [`DELAYED`] where the time is not known.
pub const UNKNOWN: u64 = u64::MAX;
/// The number of an event at the end of a hold that says how long the hold was. The event has the name of the
/// lock's class.
pub const HELD: &str = "held";
/// The number of such an event, and of a wait, that distinguishes a lock from others of its class.
pub const LOCK: &str = "lock";
/// Shorter holds are not recorded. Several in a row keep others waiting for long, so the bound is little more than the
/// time from the end of one hold to the beginning of the next.
pub const LONG_HOLD: Nanos = Nanos(20_000);

/// A thread that was in a call for at least so long may have waited for a processor at its end.
pub const LONG_CALL: Nanos = Nanos(100_000);

/// A span in which the thread sleeps until another wakes it, or for a time. Its first number is the place in
/// the source: a file and a line.
pub const SLEEP: &str = "schedule";
/// A thread wakes the sleepers of a queue.
pub const WAKE: &str = "sched_wakeup";
/// The number of [`SLEEP`] and [`WAKE`] that distinguishes a queue from others; 0 where only time wakes the thread.
pub const QUEUE: &str = "queue";

static WOKE: Named = Named::new(Kind::Instant, WAKE, [QUEUE]);
static THREAD: Named = Named::new(Kind::Instant, PROCESSOR, [RAN, DELAYED]);

/// Whether a search for causes is on.
#[inline]
pub(crate) fn wanted() -> bool {
    mode() & (CAUSES | EVENTS | KEPT) == CAUSES | EVENTS
}

/// Called before a call that may sleep.
pub fn calls() {
    if wanted() {
        processor();
    }
}

/// Called after a call that may have slept, which began at `since`. If it was long, records how long the
/// thread has waited for a processor.
pub fn called(since: Nanos) {
    if wanted() && clock::stamp().since(since) >= LONG_CALL {
        processor();
    }
}

/// Records how long the calling thread has run on processors. Returns the time of the record.
#[cold]
#[inline(never)]
pub(super) fn processor() -> Nanos {
    let mut at = Nanos(0);
    if wanted() {
        let simulated = task::with(|t| [t.ran(), t.delayed(), 0, 0]);
        let numbers = simulated.unwrap_or_else(|| [ran(), delayed().unwrap_or(UNKNOWN), 0, 0]);
        at = clock::stamp();
        with(|l| l.push(RECORDING.load(Relaxed), (at, at), THREAD.id(Kind::Instant), &numbers));
    }
    at
}

/// A sleep of the calling thread. It is recorded when dropped: from its beginning, or from that of the
/// recording.
#[must_use = "the sleep lasts as long as this"]
pub(crate) struct Asleep {
    since: Option<Nanos>,
    queue: Option<Address>,
    at: &'static Location<'static>,
}

/// Called before the calling thread sleeps at a queue, or, without one, for a time.
#[inline]
pub(crate) fn asleep(queue: Option<Address>, at: &'static Location<'static>) -> Asleep {
    Asleep { since: wanted().then(falls_asleep), queue, at }
}

#[cold]
#[inline(never)]
fn falls_asleep() -> Nanos {
    // The accounts of the processor have the times of the beginning and the end of the sleep.
    processor()
}

impl Asleep {
    /// Notes that no thread woke this one: its time was over.
    #[inline]
    pub(crate) fn timed_out(&mut self) {
        self.queue = None;
    }
}

impl Drop for Asleep {
    #[inline]
    fn drop(&mut self) {
        if wanted() {
            slept(self.since, self.queue, self.at);
        }
    }
}

/// When the present search for causes began, and whether by the clock of a simulated world.
static BEGAN: AtomicU64 = AtomicU64::new(0);
static BEGAN_SIMULATED: AtomicBool = AtomicBool::new(false);

/// The processor time of the process's threads when the search began, by their system thread ids: a thread that neither
/// sleeps nor ends an operation for a while records nothing itself.
static BEFORE: parking_lot::Mutex<BTreeMap<u32, [u64; 2]>> = parking_lot::Mutex::new(BTreeMap::new());

pub(super) fn begins() {
    *BEFORE.lock() = if task::is_simulated() { BTreeMap::new() } else { of_all_threads() };
    BEGAN.store(clock::stamp().0, Relaxed);
    BEGAN_SIMULATED.store(task::is_simulated(), Relaxed);
}

/// The accounts of threads from the beginning of the search, by system thread id. They are returned once.
pub(super) fn accounts_before() -> impl Fn(u32, u32) -> Option<Record> {
    let (all, at) = (std::mem::take(&mut *BEFORE.lock()), Nanos(BEGAN.load(Relaxed)));
    move |tid, thread| {
        let [ran, delayed] = *all.get(&tid)?;
        let args = THREAD.args(&[ran, delayed, 0, 0]);
        Some(Record { at, until: at, ended: 0, thread, name: PROCESSOR, kind: Kind::Instant, args })
    }
}

fn of_all_threads() -> BTreeMap<u32, [u64; 2]> {
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let of = |t: std::fs::DirEntry| {
        let text = std::fs::read_to_string(t.path().join("schedstat")).ok()?;
        let mut numbers = text.split(' ').map_while(|n| n.parse().ok());
        Some((t.file_name().to_str()?.parse().ok()?, [numbers.next()?, numbers.next()?]))
    };
    threads.filter_map(of).collect()
}

/// When the search began for the calling thread. A simulated world that began during the search has a clock
/// of its own.
pub(crate) fn began() -> Nanos {
    let same_clock = BEGAN_SIMULATED.load(Relaxed) == task::is_simulated();
    Nanos(if same_clock { BEGAN.load(Relaxed) } else { 0 })
}

#[cold]
#[inline(never)]
fn slept(since: Option<Nanos>, queue: Option<Address>, at: &'static Location<'static>) {
    let since = since.unwrap_or_default().max(began());
    let (until, point) = (processor(), points::sleep(at.file()));
    let numbers = [u64::from(at.line()), queue.map_or(0, Address::number), 0, 0];
    with(|l| l.push(RECORDING.load(Relaxed), (since, until), point, &numbers));
}

/// The time now, for a thread that is about to wake others, if a search for causes is on.
#[inline]
pub(crate) fn waking() -> Option<Nanos> {
    wanted().then(clock::stamp)
}

/// Records that the calling thread has woken a sleeper of `queue`, and was about to do so at `at`. The woken
/// thread may run before this is recorded.
#[cold]
#[inline(never)]
pub(crate) fn woke(queue: Address, at: Nanos) {
    if wanted() {
        let numbers = [queue.number(), 0, 0, 0];
        with(|l| l.push(RECORDING.load(Relaxed), (at, at), WOKE.id(Kind::Instant), &numbers));
    }
}

fn ran() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// How long the calling thread has waited for a processor, which Linux counts for each thread.
fn delayed() -> Option<u64> {
    thread_local!(static STATISTICS: Option<File> = File::open("/proc/thread-self/schedstat").ok());
    let mut text = [0; 64];
    let n = STATISTICS.try_with(|f| f.as_ref()?.read_at(&mut text, 0).ok()).ok()??;
    std::str::from_utf8(&text[..n]).ok()?.split(' ').nth(1)?.parse().ok()
}

/// Records that the calling thread held the lock numbered `lock`, of `class`, from `since` to `until`.
#[cold]
#[inline(never)]
pub(crate) fn hold(class: &'static str, lock: u64, since: Nanos, until: Nanos) {
    let held = until.since(since);
    if held >= LONG_HOLD && wanted() {
        let point = points::instant(class, [HELD, LOCK, "", ""], 2);
        with(|l| l.push(RECORDING.load(Relaxed), (until, until), point, &[held.0, lock, 0, 0]));
    }
}
