//! Write-back throttling: while somebody waits for a request, few writes that nobody waits for are on their way.
//!
//! A device serves requests about in the order in which they come. A request that somebody waits for takes as
//! long as the requests in front of it: 16 MiB of write-back are 4 ms on a fast device and 100 ms on a disk,
//! and an fsync waits for three such requests, one behind the other. Linux bounds write-back for that
//! (`block/blk-wbt.c`) while somebody waits or did within a tenth of a second. It counts requests, and moves
//! its bound with the latency that it sees. Here the bound is one of bytes, and constant; it holds where a request
//! that somebody waits for finds more than half of that before it. Two kinds do not count: requests of the
//! flusher ([`writes_back`]), as a sync that waits for them waits for all write-back; and those of a thread that sends
//! so much itself that its own requests are before each other, as in an fsync of a large file.
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

/// The time in which the next request that somebody waits for is expected, after one: as long as in Linux.
const WINDOW: Duration = Duration::from_millis(100);

/// A thread sends much while more than so many bytes of its requests are remembered.
const MUCH: u64 = 512 << 10;
/// Bytes that are forgotten in each microsecond.
const FORGOTTEN: u64 = 256;
/// No more bytes are remembered than are down to [`MUCH`] after 8 ms: a thread that pauses as long sends little again.
const MOST: u64 = 8000 * FORGOTTEN + MUCH;

/// The requests of the calling thread that it waits for.
#[derive(Clone, Copy)]
enum Own {
    /// Bytes that were remembered at the time of the last request.
    Sent(u64, Nanos),
    /// The thread writes back: nobody waits for its requests alone.
    WriteBack,
}

thread::local!(static OWN: Cell<Own> = const { Cell::new(Own::Sent(0, Nanos(0))) });

/// Says that the calling thread is one that writes back, as long as it lives: write-back makes no way for its requests.
pub fn writes_back() {
    OWN.set(Own::WriteBack);
}

/// Whether write-back is to make way for a request of so many bytes that the calling thread waits for.
fn matters(bytes: u64, now: Nanos) -> bool {
    let Own::Sent(before, at) = OWN.get() else { return false };
    let sent = before.saturating_sub(now.since(at).0 / 1000 * FORGOTTEN) + bytes;
    OWN.set(Own::Sent(sent.min(MOST), now));
    sent <= MUCH
}

/// The most write-back that is on its way while somebody waits for a request.
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

/// The write-back that is on its way in a queue.
#[derive(Default)]
pub(crate) struct Throttle {
    booked: Booked,
    /// When somebody last began to wait for a request, or had waited for one, in nanoseconds plus one; 0: never.
    waited: AtomicU64,
    off: AtomicBool,
}

impl Throttle {
    /// Whether the bound holds.
    pub fn is_on(&self) -> bool {
        !self.off.load(Relaxed)
    }

    /// Has the bound hold, or not.
    pub fn turn(&self, on: bool) {
        self.off.store(!on, Relaxed);
    }

    /// The calling thread begins to wait for a request of so many bytes; whether its end is to be told, too.
    pub fn begins_to_wait(&self, bytes: u64, limits: &QueueLimits) -> bool {
        let tell = limits.wbt.is_some() && matters(bytes, clock::now());
        if tell {
            self.somebody_waits(limits);
        }
        tell
    }

    /// Somebody waits for a request, or has waited. A request with little write-back before it is in no need of the
    /// bound: a sync or a read does not hold back the stream that begins after it.
    pub fn somebody_waits(&self, limits: &QueueLimits) {
        if limits.wbt.is_some_and(|l| !self.booked.is_at_most(l.requests / 2, l.bytes / 2)) {
            self.waited.store(clock::now().0 + 1, Relaxed);
        }
    }

    /// Books a request of write-back in, unless it has to wait. It may go once another has ended.
    pub fn enter(&self, bytes: u64, limits: &QueueLimits) -> bool {
        let (requests, most) = self.bound(limits);
        // A request goes while less than the bound is on its way, however long it is: short ones do not keep it out.
        self.booked.enter(bytes, requests, most.saturating_add(bytes).saturating_sub(PAGE_SIZE as u64))
    }

    /// Whether at most half of what may be on its way is.
    pub fn is_half_empty(&self, limits: &QueueLimits) -> bool {
        let (requests, bytes) = self.bound(limits);
        self.booked.is_at_most(requests / 2, bytes / 2)
    }

    /// Requests and bytes that may be on their way now.
    fn bound(&self, limits: &QueueLimits) -> (usize, u64) {
        let wbt = limits.wbt.filter(|_| self.is_on() && self.is_near());
        wbt.map_or((limits.nr_requests, limits.max_inflight_bytes), |l| (l.requests, l.bytes))
    }

    /// Books it out.
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
    /// Whether somebody waits for it.
    pub(crate) fn is_sync(&self) -> bool {
        self.flags.contains(BioFlags::SYNC) || (self.op == Op::Read && !self.flags.contains(BioFlags::RAHEAD))
    }

    /// Whether a thread waits for it that does not work in the background.
    pub(crate) fn is_awaited(&self) -> bool {
        self.is_sync() && !self.flags.contains(BioFlags::BACKGROUND)
    }

    /// Whether it is write-back: a write that nobody waits for. Metadata is not, from any thread: it is
    /// little, and a thread that wants room in a log waits for it.
    pub(crate) fn is_write_back(&self) -> bool {
        matches!(self.op, Op::Write | Op::WriteZeroes)
            && !self.is_sync()
            && !self.flags.contains(BioFlags::META)
    }
}
