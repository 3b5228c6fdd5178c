//! Requests: in an elevator, and at the device.

use crate::observe::words::arg;
use std::collections::{HashMap, VecDeque};
use tidegate_block::{BioFlags, Op, SECTOR_SIZE};
use tidegate_rt::trace::Event;

/// A request that was issued.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub op: u64,
    pub flags: BioFlags,
    pub from: u64,
    pub to: u64,
    pub bytes: u64,
    /// When an elevator got it, or else when it was issued.
    pub inserted: u64,
    pub issued: u64,
    pub done: u64,
    /// The thread that submitted it.
    pub by: u32,
    /// Whether the thread that submitted it also executed it.
    pub here: bool,
    /// The thread that reported its end.
    pub ended_by: u32,
}

impl Request {
    pub fn is(&self, op: Op) -> bool {
        self.op == op as u64
    }

    pub fn is_write(&self) -> bool {
        self.is(Op::Write)
    }

    /// Whether it is at the device at a time.
    pub fn is_there(&self, at: u64) -> bool {
        self.issued <= at && at < self.done
    }
}

/// All requests, in order of issue.
#[derive(Default)]
pub(super) struct Requests {
    all: Vec<Request>,
    /// The longest time from the beginning to the end of a request.
    longest: u64,
    open: HashMap<(u64, u64, u64), VecDeque<usize>>,
    /// The requests by the thread that reported their ends, in the order of the ends.
    ended: HashMap<u32, Vec<usize>>,
    /// The requests in elevators, by operation and first sector: when they came, and from which thread.
    held: HashMap<(u64, u64), VecDeque<(u64, u32)>>,
}

impl Requests {
    /// Adds an event of a request, if it is one.
    pub fn event(&mut self, e: &Event) {
        let n = |name| arg(e, name).unwrap_or(0);
        let (sector, bytes, op) = (n("sector"), n("bytes"), n("op"));
        match e.name {
            "block_rq_insert" => {
                self.held.entry((op, sector)).or_default().push_back((e.at.0, e.thread));
            }
            "block_rq_issue" => {
                let (inserted, by) = self.inserted(e.thread, op, sector, bytes).unwrap_or((e.at.0, e.thread));
                self.open.entry((sector, bytes, op)).or_default().push_back(self.all.len());
                self.all.push(Request {
                    op,
                    flags: BioFlags::from_bits_truncate(n("flags") as u16),
                    from: sector,
                    to: sector + bytes / SECTOR_SIZE,
                    bytes,
                    inserted,
                    issued: e.at.0,
                    done: u64::MAX,
                    by,
                    here: false,
                    ended_by: e.thread,
                });
            }
            "block_rq_complete" => {
                // Flushes look alike: a thread that executes one ends its own.
                let all = &self.all;
                let open = self.open.get_mut(&(sector, bytes, op));
                let own = |open: &VecDeque<usize>| open.iter().position(|i| all[*i].by == e.thread);
                if let Some(i) = open.and_then(|open| open.remove(own(open).unwrap_or(0))) {
                    let r = &mut self.all[i];
                    (r.done, r.here, r.ended_by) = (e.at.0, r.by == e.thread, e.thread);
                    self.ended.entry(e.thread).or_default().push(i);
                    self.longest = self.longest.max(r.done - r.inserted);
                }
            }
            _ => {}
        }
    }

    /// Takes a request out of the elevator: the one that begins at `sector`, that of `thread` if there are
    /// several, and all that were merged into it.
    fn inserted(&mut self, thread: u32, op: u64, sector: u64, bytes: u64) -> Option<(u64, u32)> {
        let held = self.held.get_mut(&(op, sector))?;
        let own = held.iter().position(|h| h.1 == thread);
        let first = held.remove(own.unwrap_or(0))?;
        let end = sector + bytes / SECTOR_SIZE;
        self.held.retain(|(o, s), at| *o != op || !(sector + 1..end).contains(s) || at.pop_front().is_none());
        self.held.retain(|_, at| !at.is_empty());
        Some(first)
    }

    /// Ends the requests that are in flight at the end of the recording.
    pub fn close(&mut self, last: u64) {
        for r in self.all.iter_mut().filter(|r| r.done == u64::MAX) {
            r.done = last.max(r.issued);
            self.longest = self.longest.max(r.done - r.inserted);
        }
    }

    /// Writes that ended between the previous flush and this one.
    pub fn since_flush(&self, flush: &Request) -> Vec<&Request> {
        let until = self.all.partition_point(|r| r.issued < flush.issued);
        let durable = |r: &&Request| {
            r.done <= flush.issued && (r.is(Op::Flush) || r.flags.contains(BioFlags::PREFLUSH))
        };
        let before = self.all[..until].iter().rev().find(durable).map_or(0, |r| r.issued);
        let first = self.all.partition_point(|r| r.issued + self.longest < before);
        let ended = |r: &&Request| r.is_write() && r.done > before && r.done <= flush.issued;
        self.all[first..until].iter().filter(ended).collect()
    }

    /// The last request whose end a thread reported until `at`.
    pub fn last_ended(&self, thread: u32, at: u64) -> Option<&Request> {
        let all = self.ended.get(&thread)?;
        all[..all.partition_point(|i| self.all[*i].done <= at)].last().map(|i| &self.all[*i])
    }

    /// How long a thread executed each request of its own in an interval.
    pub fn done_here(&self, thread: u32, from: u64, to: u64) -> Vec<u64> {
        let all = self.ended.get(&thread).map_or(&[][..], |e| e);
        let after = all[all.partition_point(|i| self.all[*i].done <= from)..].iter().map(|i| &self.all[*i]);
        let near = after.take_while(|r| r.issued < to).filter(|r| r.here);
        near.map(|r| r.done.min(to).saturating_sub(r.issued.max(from))).collect()
    }

    /// The requests that were in an elevator or at the device in an interval.
    pub fn within(&self, from: u64, to: u64) -> impl Iterator<Item = &Request> {
        let first = self.all.partition_point(|r| r.issued < from.saturating_sub(self.longest));
        // A request in an elevator is issued later.
        let until = to.saturating_add(self.longest);
        let near = self.all[first..].iter().take_while(move |r| r.issued < until);
        near.filter(move |r| r.done > from && r.inserted < to)
    }
}
