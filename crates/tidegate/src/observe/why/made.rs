//! Recordings made by hand.

use super::*;
use tidegate_rt::Nanos;
use tidegate_rt::trace::causes::UNKNOWN;
use tidegate_rt::trace::{Event, NO_ARGS, Phase};

pub(super) const MS: u64 = 1_000_000;
pub(super) const WRITE: u64 = 1;
pub(super) const FLUSH: u64 = 2;
pub(super) const DISCARD: u64 = 3;

/// Times are in tenths of milliseconds.
#[derive(Default)]
pub(super) struct Made(pub Vec<Event>);

impl Made {
    pub fn event(
        &mut self,
        at: u64,
        thread: u32,
        name: &'static str,
        phase: Phase,
        args: &[(&'static str, u64)],
    ) {
        let mut all = NO_ARGS;
        all[..args.len()].copy_from_slice(args);
        self.0.push(Event { at: Nanos(at * MS / 10), thread, name, phase, args: all });
    }

    pub fn span(
        &mut self,
        thread: u32,
        (from, to): (u64, u64),
        name: &'static str,
        args: &[(&'static str, u64)],
    ) -> &mut Self {
        self.event(from, thread, name, Phase::Begin, args);
        self.event(to, thread, name, Phase::End, &[]);
        self
    }

    pub fn waits(
        &mut self,
        thread: u32,
        (from, to): (u64, u64),
        class: &'static str,
        lock: u64,
    ) -> &mut Self {
        self.event(from, thread, class, Phase::ContentionBegin, &[("x.rs", 1), ("lock", lock)]);
        self.event(to, thread, class, Phase::ContentionEnd, &[]);
        self
    }

    pub fn holds(
        &mut self,
        thread: u32,
        (from, to): (u64, u64),
        class: &'static str,
        lock: u64,
    ) -> &mut Self {
        let held = (to - from) * MS / 10;
        self.event(to, thread, class, Phase::Instant, &[("held", held), ("lock", lock)]);
        self
    }

    /// A request of 4 KiB at a block, which thread 90 completes.
    pub fn request(&mut self, thread: u32, (from, to): (u64, u64), op: u64, block: u64) -> &mut Self {
        self.request_by(thread, (from, to), 90, op, block)
    }

    pub fn request_by(
        &mut self,
        thread: u32,
        (from, to): (u64, u64),
        ends: u32,
        op: u64,
        block: u64,
    ) -> &mut Self {
        let args = [("sector", block * 8), ("bytes", 4096), ("op", op), ("flags", 0)];
        self.event(from, thread, "block_rq_issue", Phase::Instant, &args);
        self.event(to, ends, "block_rq_complete", Phase::Instant, &args);
        self
    }

    pub fn page(&mut self, at: u64, thread: u32, ino: u64, block: u64) -> &mut Self {
        let args = [("ino", ino), ("index", 0), ("addrs", block), ("what", 1)];
        self.event(at, thread, "f2fs_submit_page_write", Phase::Begin, &args);
        self.event(at, thread, "f2fs_submit_page_write", Phase::End, &[]);
        self
    }

    /// Adds a sleep of a thread at a queue.
    pub fn sleeps(&mut self, thread: u32, (from, to): (u64, u64), queue: u64) -> &mut Self {
        self.event(from, thread, "schedule", Phase::Begin, &[("/x/crates/y/src/z.rs", 12), ("queue", queue)]);
        self.event(to, thread, "schedule", Phase::End, &[]);
        self
    }

    pub fn wakes(&mut self, at: u64, thread: u32, queue: u64) -> &mut Self {
        self.event(at, thread, "sched_wakeup", Phase::Instant, &[("queue", queue)]);
        self
    }

    pub fn cpu(&mut self, at: u64, thread: u32, ran: u64, delayed: Option<u64>) -> &mut Self {
        let delayed = delayed.map_or(UNKNOWN, |d| d * MS / 10);
        let args = [("ran", ran * MS / 10), ("delayed", delayed)];
        self.event(at, thread, "thread_cpu", Phase::Instant, &args);
        self
    }

    pub fn explain(&mut self) -> Report {
        // The order of a recording: of spans that begin at one time, the longest comes first, as they were
        // added.
        self.0.sort_by_key(|e| e.at);
        let mut o = Observed::default();
        o.recorded.events = std::mem::take(&mut self.0);
        for (thread, name) in [
            (1, "tg-fuse-0"),
            (2, "tg-fuse-1"),
            (3, "tg-jbd2"),
            (7, "tg-ckpt"),
            (8, "tg-flusher"),
            (9, "tg-f2fs-gc"),
        ] {
            o.recorded.threads.insert(thread, name.into());
        }
        explain(&o, 0, 10)
    }

    /// The parts of the only fsync: causes, and times in tenths of milliseconds.
    pub fn parts(&mut self) -> Vec<(Cause, u64)> {
        tenths(&self.explain().kinds[0].slowest[0].parts)
    }
}

pub(super) fn tenths(parts: &[Part]) -> Vec<(Cause, u64)> {
    parts.iter().map(|p| (p.cause, p.ns * 10 / MS)).collect()
}

/// An fsync of inode 5 by thread 1 that consists of one wait of this name.
pub(super) fn fsync(name: &'static str, until: u64, args: &[(&'static str, u64)]) -> Made {
    let mut m = Made::default();
    m.event(0, 1, "vfs_fsync_range", Phase::Begin, &[("ino", 5), ("datasync", 0)]);
    m.span(1, (0, until), name, args);
    m.event(until, 1, "vfs_fsync_range", Phase::End, &[]);
    m
}
