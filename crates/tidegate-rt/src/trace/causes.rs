//! Events that say why others waited: who held a lock for long, and how long a processor had an operation.
//!
//! They are recorded beside others while somebody looks for causes ([`super::enable_causes`]), and not into the events
//! that a simulated world keeps for itself.

use super::points::{self, Named};
use super::record::Kind;
use super::{CAUSES, EVENTS, KEPT, RECORDING, mode, with};
use crate::clock::{self, Nanos};
use crate::sim::task;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering::Relaxed;

/// A thread's time on a processor, and how long it was ready to run while others had them, since it began.
pub const PROCESSOR: &str = "thread_cpu";
/// The number of [`PROCESSOR`] for time that a processor had the thread.
pub const RAN: &str = "ran";
/// The number of [`PROCESSOR`] for time that it waited for one; [`UNKNOWN`] where the system does not say.
pub const DELAYED: &str = "delayed";
/// What [`DELAYED`] is where nobody knows.
pub const UNKNOWN: u64 = u64::MAX;
/// The number of an event at the end of a hold, called as the lock's class, that says how long it was.
pub const HELD: &str = "held";
/// The number of such an event, and of a wait, that tells a lock from others of its class.
pub const LOCK: &str = "lock";
/// Shorter holds are not recorded.
pub const LONG_HOLD: Nanos = Nanos(100_000);

/// A thread that was in a call for at least so long may have waited for a processor when it was over.
pub const LONG_CALL: Nanos = Nanos(200_000);

static THREAD: Named = Named::new(Kind::Instant, PROCESSOR, [RAN, DELAYED]);

/// Whether somebody looks for causes.
#[inline]
pub(crate) fn wanted() -> bool {
    mode() & (CAUSES | EVENTS | KEPT) == CAUSES | EVENTS
}

/// The calling thread is about to call what may sleep.
pub fn calls() {
    if wanted() {
        processor();
    }
}

/// The calling thread was in a call since `since` that may have slept: if that was long, records how long it waited for
/// a processor then.
pub fn called(since: Nanos) {
    if wanted() && clock::stamp().since(since) >= LONG_CALL {
        processor();
    }
}

/// Records how long processors have had the calling thread.
#[cold]
#[inline(never)]
pub(super) fn processor() {
    if wanted() {
        let simulated = task::with(|t| [t.ran(), t.delayed(), 0, 0]);
        let numbers = simulated.unwrap_or_else(|| [ran(), delayed().unwrap_or(UNKNOWN), 0, 0]);
        let at = clock::stamp();
        with(|l| l.push(RECORDING.load(Relaxed), (at, at), THREAD.id(Kind::Instant), &numbers));
    }
}

fn ran() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// How long the calling thread has waited for a processor, which Linux counts for each.
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
