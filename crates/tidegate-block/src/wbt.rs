//! Write-back throttling: while a thread waits for a request, few bytes of write-back are in flight.
//!
//! A device serves requests about in the order in which they come. A request that a thread waits for takes as long as
//! the requests in front of it: 16 MiB of write-back take 4 ms on a fast device and 100 ms on a disk, and an fsync
//! waits for three such requests in sequence. So Linux bounds write-back (`block/blk-wbt.c`) while a thread waits, and
//! for a tenth of a second afterwards. Linux counts requests, and adapts its bound to the latency that it sees. Here
//! the bound is constant, in requests and bytes, and it holds after a request that a thread waits for found more than
//! half of the bound in front of it. Two kinds of such requests do not count: those of the flusher ([`writes_back`]),
//! as a sync that waits for them waits for all write-back; and those of a thread that sends so much that its own
//! requests are in front of each other, as in an fsync of a large file.
//!
//! ```text
//!   bound   16 MiB ─────────┐                     ┌────────
//!           Wbt::bytes      └─────────────────────┘
//!                           ▲ somebody waits      ▲ WINDOW after the last that somebody waited for
//! ```

use crate::bio::{BioFlags, Op};
use crate::inflight::Booked;
use crate::{PAGE_SIZE, QueueLimits, Request};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tidegate_rt::{Nanos, clock, thread};

/// How long the bound holds after a request that a thread waited for, as another such request is expected: as
/// long as in Linux.
const WINDOW: Duration = Duration::from_millis(100);

/// A thread counts as one that sends much while more than so many bytes of its requests are remembered.
const MUCH: u64 = 512 << 10;
/// The bytes that are forgotten in each microsecond.
const FORGOTTEN: u64 = 256;
/// The most bytes that are remembered: they fall to [`MUCH`] within 8 ms, so a thread that pauses for 8 ms sends little
/// again.
const MOST: u64 = 8000 * FORGOTTEN + MUCH;

/// The requests that the calling thread sends and waits for.
#[derive(Clone, Copy)]
enum Own {
    /// Bytes that were remembered at the time of the last request.
    Sent(u64, Nanos),
    /// The thread is a flusher: no thread waits for its requests alone.
    WriteBack,
}

thread::local!(static OWN: Cell<Own> = const { Cell::new(Own::Sent(0, Nanos(0))) });

/// Marks the calling thread as a flusher, as long as it lives: its requests do not throttle write-back.
pub fn writes_back() {
    OWN.set(Own::WriteBack);
}

/// Whether a request of so many bytes that the calling thread waits for throttles write-back.
fn matters(bytes: u64, now: Nanos) -> bool {
    let Own::Sent(before, at) = OWN.get() else { return false };
    let sent = before.saturating_sub(now.since(at).0 / 1000 * FORGOTTEN) + bytes;
    OWN.set(Own::Sent(sent.min(MOST), now));
    sent <= MUCH
}

/// The most write-back in flight while a thread waits for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wbt {
    /// Requests.
    pub requests: usize,
    /// Bytes; the last request may exceed it.
    pub bytes: u64,
}

impl Default for Wbt {
    fn default() -> Self {
        Wbt { requests: 16, bytes: 1 << 20 }
    }
}

/// The write-back in flight in a queue.
#[derive(Default)]
pub(crate) struct Throttle {
    booked: Booked,
    /// When a thread last began or ended to wait for a request, in nanoseconds plus one; 0: never.
    waited: AtomicU64,
    off: AtomicBool,
}

impl Throttle {
    /// Whether the bound is on.
    pub fn is_on(&self) -> bool {
        !self.off.load(Relaxed)
    }

    /// Turns the bound on or off.
    pub fn turn(&self, on: bool) {
        self.off.store(!on, Relaxed);
    }

    /// The calling thread begins to wait for a request of so many bytes. Returns whether the end of the
    /// request is to be told, too.
    pub fn begins_to_wait(&self, bytes: u64, limits: &QueueLimits) -> bool {
        let tell = limits.wbt.is_some() && matters(bytes, clock::now());
        if tell {
            self.somebody_waits(limits);
        }
        tell
    }

    /// A thread waits for a request, or has waited. A request with little write-back in front of it does not need the
    /// bound: a sync or a read does not hold back the stream that begins after it.
    pub fn somebody_waits(&self, limits: &QueueLimits) {
        if limits.wbt.is_some_and(|l| !self.booked.is_at_most(l.requests / 2, l.bytes / 2)) {
            self.waited.store(clock::now().0 + 1, Relaxed);
        }
    }

    /// Counts a request of write-back, unless it has to wait. A request that has to wait may go once another
    /// has ended.
    pub fn enter(&self, bytes: u64, limits: &QueueLimits) -> bool {
        let (requests, most) = self.bound(limits);
        // A request goes while less than the bound is in flight, however long it is: so short requests do not keep it
        // out.
        self.booked.enter(bytes, requests, most.saturating_add(bytes).saturating_sub(PAGE_SIZE as u64))
    }

    /// Whether at most half of the bound is in flight.
    pub fn is_half_empty(&self, limits: &QueueLimits) -> bool {
        let (requests, bytes) = self.bound(limits);
        self.booked.is_at_most(requests / 2, bytes / 2)
    }

    /// The most requests and bytes that may be in flight now.
    fn bound(&self, limits: &QueueLimits) -> (usize, u64) {
        let wbt = limits.wbt.filter(|_| self.is_on() && self.is_near());
        wbt.map_or((limits.nr_requests, limits.max_inflight_bytes), |l| (l.requests, l.bytes))
    }

    /// Takes a request of write-back off.
    pub fn leave(&self, bytes: u64) {
        self.booked.leave(bytes);
    }

    fn is_near(&self) -> bool {
        match self.waited.load(Relaxed) {
            0 => false,
            t => clock::now().since(Nanos(t - 1)).duration() < WINDOW,
        }
    }
}

impl Request {
    /// Whether a thread waits for the request.
    pub(crate) fn is_sync(&self) -> bool {
        self.flags.contains(BioFlags::SYNC) || (self.op == Op::Read && !self.flags.contains(BioFlags::RAHEAD))
    }

    /// Whether a thread that does not work in the background waits for the request.
    pub(crate) fn is_awaited(&self) -> bool {
        self.is_sync() && !self.flags.contains(BioFlags::BACKGROUND)
    }

    /// Whether the request is write-back: a write that no thread waits for. Metadata of any thread is not: it
    /// is little, and a thread that needs room in a log waits for it.
    pub(crate) fn is_write_back(&self) -> bool {
        matches!(self.op, Op::Write | Op::WriteZeroes)
            && !self.is_sync()
            && !self.flags.contains(BioFlags::META)
    }
}
