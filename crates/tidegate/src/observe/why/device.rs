//! Waits for requests: where each request was meanwhile, and the device's other work.

use super::asleep::{self, Within};
use super::part::{Cause, Part, joined};
use super::requests::Request;
use super::timeline::Span;
use super::walk::Walk;
use std::collections::HashMap;
use tidegate_block::{BioFlags, Op};

/// The object of a wait.
#[derive(Clone, Copy)]
pub(super) enum Awaited {
    /// Pages, of an inode if it is known.
    Pages(Option<u64>),
    /// Nodes.
    Nodes,
    /// All pages under write-back.
    All,
    /// Blocks that the waiting thread reads ahead.
    Ahead,
    /// Blocks and records of a journal's log.
    Log,
}

/// The names of threads that write a journal's log.
const JOURNAL_THREADS: [&str; 2] = ["tg-jbd2", "tg-jbd2-rec"];

impl Awaited {
    fn words(self) -> &'static str {
        match self {
            Awaited::Pages(Some(_)) => "its own pages",
            Awaited::Pages(None) => "pages",
            Awaited::Nodes => "nodes",
            Awaited::All => "pages in flight",
            Awaited::Ahead => "blocks read ahead",
            Awaited::Log => "the log",
        }
    }

    /// The device's work on it, in words.
    fn done(self) -> &'static str {
        match self {
            Awaited::Ahead => "read",
            _ => "written",
        }
    }
}

impl Walk<'_> {
    /// The parts of a wait until pages are written, or blocks read.
    pub(super) fn pages(&self, s: &Span, subject: Awaited, from: u64, to: u64, out: &mut Vec<Part>) {
        let near: Vec<&Request> = self.t.requests.within(from, to).collect();
        let of_nodes = |r: &Request| r.flags.contains(BioFlags::META);
        let mut own: Vec<&Request> = match subject {
            Awaited::Pages(Some(ino)) => {
                let pages = self.t.pages(ino, to);
                // Long ago, their sectors may have belonged to other pages.
                let is_own = |r: &&Request| pages.iter().rev().any(|p| r.from < p.to && p.from < r.to);
                near.iter().copied().filter(|r| r.is_write()).filter(is_own).collect()
            }
            Awaited::Nodes => near.iter().copied().filter(|r| r.is_write() && of_nodes(r)).collect(),
            Awaited::Ahead => near.iter().copied().filter(|r| r.is(Op::Read) && r.by == s.thread).collect(),
            Awaited::Log => near.iter().copied().filter(|r| self.is_of_log(r)).collect(),
            Awaited::Pages(None) | Awaited::All => Vec::new(),
        };
        if own.is_empty() && !matches!(subject, Awaited::Ahead | Awaited::Log) {
            own = near.iter().copied().filter(|r| r.is_write()).collect();
        }
        let what = subject.words();
        let ended = own.iter().map(|r| r.done).filter(|d| *d <= to).max();
        let last = ended.unwrap_or(from);
        let to = self.woken(s, (from, to), ended, out);
        for (a, b) in moments(&near, from, to) {
            let there = own.iter().find(|r| r.is_there(a));
            let (cause, how) = match there {
                Some(_) => self.beside(s.thread, &near, &own, a, (from, to)),
                None if own.iter().any(|r| r.inserted <= a && a < r.issued) => {
                    (Cause::Elevator, "in the elevator".into())
                }
                None if a >= last => {
                    let what = format!("woken after {what} were {}, and not running yet", subject.done());
                    out.push(Part::new(Cause::Processor, what, b - a));
                    continue;
                }
                None => {
                    // The waiting thread sleeps until another thread has sent the requests.
                    let mut meanwhile = Vec::new();
                    self.plain(s.thread, Within::Span(s.name), (a, b), &mut meanwhile);
                    let what = format!("{what}: not sent to the device yet");
                    out.push(Part::new(Cause::Unsent, what, b - a).with(joined(meanwhile)));
                    continue;
                }
            };
            out.push(Part::new(cause, format!("{what}: {how}"), b - a));
        }
    }

    fn is_of_log(&self, r: &Request) -> bool {
        let writes = (r.is_write() && r.flags.contains(BioFlags::META)) || r.is(Op::Flush);
        writes && JOURNAL_THREADS.contains(&&*self.t.name(r.by))
    }

    /// The parts of an interval in which writes of a journal's log were in an elevator or at the device, in
    /// order.
    pub(super) fn log_writes(&self, from: u64, to: u64) -> Vec<(u64, u64)> {
        let of_log = self.t.requests.within(from, to).filter(|r| self.is_of_log(r));
        let mut all: Vec<(u64, u64)> = of_log.map(|r| (r.inserted.max(from), r.done.min(to))).collect();
        all.sort_unstable();
        let mut joined: Vec<(u64, u64)> = Vec::new();
        for (a, b) in all {
            match joined.last_mut() {
                Some(last) if a <= last.1 => last.1 = last.1.max(b),
                _ => joined.push((a, b)),
            }
        }
        joined
    }

    /// The device's work beside the request that is waited for.
    pub(super) fn beside(
        &self,
        me: u32,
        near: &[&Request],
        own: &[&Request],
        at: u64,
        within: (u64, u64),
    ) -> (Cause, String) {
        let is_other = |r: &&&Request| r.is_there(at) && !own.iter().any(|o| std::ptr::eq(*o, **r));
        let others: Vec<&Request> = near.iter().filter(is_other).copied().collect();
        let whose = |op: Op| others.iter().filter(|r| r.is(op)).map(|r| self.t.name(r.by)).next();
        if let Some(name) = whose(Op::Discard) {
            return (Cause::DeviceDiscard, format!("at the device, as were discards of {name}"));
        }
        if let Some(name) = whose(Op::Flush) {
            return (Cause::DeviceFlush, format!("at the device, as was a flush of {name}"));
        }
        match self.most(me, near, own, within).filter(|_| !others.is_empty()) {
            Some(who) => (Cause::DeviceShared, format!("at the device, as were requests of {who}")),
            None => (Cause::Device, "at the device, alone".into()),
        }
    }

    /// The thread with the most bytes of requests in flight, and its work.
    fn most(&self, me: u32, near: &[&Request], own: &[&Request], within: (u64, u64)) -> Option<String> {
        let mut bytes: HashMap<u32, u64> = HashMap::new();
        let is_data = |r: &&&Request| r.is_write() || r.is(Op::Read);
        let is_other = |r: &&&Request| !own.iter().any(|o| std::ptr::eq(*o, **r));
        for r in near.iter().filter(is_data).filter(is_other) {
            *bytes.entry(r.by).or_default() += r.bytes;
        }
        let (by, _) = bytes.into_iter().max_by_key(|(thread, bytes)| (*bytes, *thread))?;
        if by == me {
            return Some("its own".into());
        }
        let doing = self.t.doing(by, within.0, within.1).map(|d| format!(" ({d})")).unwrap_or_default();
        Some(format!("{}{doing}", self.t.name(by)))
    }

    /// The writes that a flush has to make durable: those since the previous flush.
    fn written_before(&self, flush: &Request) -> String {
        let (mut all, mut by) = (0, HashMap::<u32, u64>::new());
        for r in self.t.requests.since_flush(flush) {
            all += r.bytes;
            *by.entry(r.by).or_default() += r.bytes;
        }
        let most = by.into_iter().max_by_key(|(thread, bytes)| (*bytes, *thread));
        match most {
            Some((thread, _)) if all >= 1 << 20 => {
                format!(", of {} MiB written since the last, most by {}", all >> 20, self.t.name(thread))
            }
            _ => String::new(),
        }
    }

    /// The part for a wait for room in the request queue.
    pub(super) fn room(&self, me: u32, from: u64, to: u64) -> Part {
        let near: Vec<&Request> = self.t.requests.within(from, to).collect();
        let whose = self.most(me, &near, &[], (from, to));
        let full = whose.map(|w| format!(", which was full of requests of {w}")).unwrap_or_default();
        Part::new(Cause::Room, format!("room in the request queue{full}"), to - from)
    }

    /// The parts of an interval in which the thread executed a request of its own.
    pub(super) fn here(&self, thread: u32, from: u64, to: u64) -> Vec<(u64, u64, Option<&Request>)> {
        let (mut parts, mut at) = (Vec::new(), from);
        for r in self.t.requests.within(from, to).filter(|r| r.here && r.by == thread) {
            let (begin, end) = (r.issued.max(at), r.done.min(to));
            if begin < end {
                parts.push((at, begin, None));
                parts.push((begin, end, Some(r)));
                at = end;
            }
        }
        parts.push((at, to, None));
        parts.retain(|(from, to, _)| from < to);
        parts
    }

    /// The parts of a request that its own thread executes.
    pub(super) fn at_device(&self, thread: u32, r: &Request, from: u64, to: u64, out: &mut Vec<Part>) {
        let after = if r.is(Op::Flush) { "after a flush" } else { "after a request that it did itself" };
        let to = if to == r.done {
            self.woken_after(thread, after.into(), (from, to), to - from, out)
        } else {
            to
        };
        let near: Vec<&Request> = self.t.requests.within(from, to).collect();
        let mut parts = Vec::new();
        for (a, b) in moments(&near, from, to) {
            let (cause, how) = self.beside(thread, &near, &[r], a, (from, to));
            parts.push(Part::new(cause, how, b - a));
        }
        if r.is(Op::Flush) {
            let what = format!("a flush of its own{}", self.written_before(r));
            out.push(Part::new(Cause::Flush, what, to - from).with(parts));
            return;
        }
        let what = match asleep::words(r) {
            "pages" => "its own pages",
            words => words,
        };
        out.extend(parts.into_iter().map(|p| Part { what: format!("{what}: {}", p.what), ..p }));
    }
}

/// An interval, cut where a request comes, goes to the device, or ends.
pub(super) fn moments(near: &[&Request], from: u64, to: u64) -> Vec<(u64, u64)> {
    let mut cuts: Vec<u64> = near.iter().flat_map(|r| [r.inserted, r.issued, r.done]).collect();
    cuts.retain(|c| from < *c && *c < to);
    cuts.extend([from, to]);
    cuts.sort_unstable();
    cuts.dedup();
    cuts.windows(2).map(|w| (w[0], w[1])).collect()
}
