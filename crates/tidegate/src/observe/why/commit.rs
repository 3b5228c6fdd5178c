//! Commits of a journal: each phase of one, and its waits.
//!
//! A commit begins when its transaction is locked and ends when its record is durable. While the transaction
//! is locked the commit waits for handles. An event at the end of each handle (`jbd2_handle_stats`) tells
//! which handles, and so their threads' time meanwhile. The blocks of the log are requests of the threads
//! that write them.

use super::device::Awaited;
use super::part::{Cause, Part, joined};
use super::processor;
use super::timeline::{Id, Span, Timeline};
use super::walk::Walk;
use std::collections::{BTreeMap, HashMap};
use tidegate_rt::trace::Event;

/// The span that stands for a commit. It is made from the events of the commit's phases.
pub(super) const COMMIT: &str = "jbd2_commit";

/// The span in which the blocks of a commit are sent.
const BODY: &str = "jbd2_journal_commit_transaction";

/// The name of the number of a transaction in events.
const TRANSACTION: &str = "transaction";

/// The times of the phases of a commit.
#[derive(Clone, Copy, Default)]
pub(super) struct Phases {
    locked: Option<u64>,
    flushing: Option<u64>,
    logging: Option<u64>,
    /// The thread that locked the transaction.
    thread: u32,
    /// The thread that wrote the commit record.
    ended_by: u32,
}

/// A handle that has ended.
pub(super) struct HandleEnd {
    thread: u32,
    from: u64,
    to: u64,
}

/// Commits and handles of a recording.
#[derive(Default)]
pub(super) struct Commits {
    open: HashMap<u64, Phases>,
    /// The commits that have ended, by transaction, with their spans.
    ended: BTreeMap<u64, (Phases, Id)>,
    handles: HashMap<u64, Vec<HandleEnd>>,
}

impl Commits {
    /// Adds an event of a commit or a handle, if it is one. When the event ends a commit, returns the
    /// transaction, the time when it was locked, and the thread.
    pub fn event(&mut self, e: &Event) -> Option<(u64, u64, u32)> {
        let n = |name: &str| e.args.iter().find(|a| a.0 == name).map(|a| a.1);
        let tid = n(TRANSACTION)?;
        match e.name {
            "jbd2_commit_locking" => {
                let locked = Phases { locked: Some(e.at.0), thread: e.thread, ..Phases::default() };
                self.open.insert(tid, locked);
            }
            "jbd2_commit_flushing" => self.open.entry(tid).or_default().flushing = Some(e.at.0),
            "jbd2_commit_logging" => self.open.entry(tid).or_default().logging = Some(e.at.0),
            "jbd2_handle_stats" => {
                let from = e.at.0.saturating_sub(n("interval")?);
                self.handles.entry(tid).or_default().push(HandleEnd { thread: e.thread, from, to: e.at.0 });
            }
            "jbd2_end_commit" => {
                let phases = self.open.get_mut(&tid)?;
                phases.ended_by = e.thread;
                return Some((tid, phases.locked?, phases.thread));
            }
            _ => {}
        }
        None
    }

    /// Notes the span of a commit that has ended.
    pub fn ended(&mut self, tid: u64, span: Id) {
        if let Some(phases) = self.open.remove(&tid) {
            self.ended.insert(tid, (phases, span));
        }
    }

    /// The times when the commits that have not ended were locked.
    pub fn lasting(&self) -> impl Iterator<Item = u64> {
        self.open.values().filter_map(|p| p.locked)
    }

    /// The handle of a transaction that ended last in an interval, if it took any time.
    fn last_handle(&self, tid: u64, from: u64, to: u64) -> Option<&HandleEnd> {
        let all = self.handles.get(&tid)?.iter();
        all.filter(|h| h.to > from && h.to <= to && h.from < h.to).max_by_key(|h| h.to)
    }
}

impl Walk<'_> {
    /// The parts of a commit in an interval.
    pub(super) fn commit(&self, id: Id, from: u64, to: u64) -> Vec<Part> {
        let s = &self.t.spans[id];
        let Some(tid) = s.arg(TRANSACTION) else { return Vec::new() };
        let Some((phases, _)) = self.t.commits.ended.get(&tid) else { return Vec::new() };
        let flushing = phases.flushing.unwrap_or(s.end);
        let logging = phases.logging.unwrap_or(flushing);
        let mut parts = Vec::new();
        let cut = |a: u64, b: u64| (a.max(from), b.min(to));
        let phase = |name: &str, (a, b): (u64, u64), within: Vec<Part>| {
            (a < b).then(|| Part::new(Cause::Step, name, b - a).with(joined(within)))
        };
        let locked = cut(s.begin, flushing);
        parts.extend(phase("locked", locked, self.locked(tid, s.thread, locked)));
        let flush = cut(flushing, logging);
        parts.extend(phase("flushing, data that goes first", flush, self.other_thread(s.thread, flush)));
        let log = cut(logging, s.end);
        // The whole phase is searched: the interval may begin after the blocks were sent.
        let sent = self.t.ends(s.thread, BODY, logging, s.end).into_iter().min().unwrap_or(s.end);
        parts.extend(phase("logging", log, self.logging(s, (sent, phases.ended_by), log)));
        joined(parts)
    }

    /// The parts of the time in which the blocks and the record are written. While they are in flight: where they are.
    /// Before, between and after that: the work of the thread that sends the blocks and, once they are `sent`, of the
    /// thread that writes the record. The first thread then goes on with later transactions.
    fn logging(&self, s: &Span, (sent, ended_by): (u64, u32), (from, to): (u64, u64)) -> Vec<Part> {
        let (mut parts, mut at) = (Vec::new(), from);
        let turns = |a: u64, b: u64| {
            let turn = sent.clamp(a, b.max(a));
            let mut parts = self.other_thread(s.thread, (a, turn));
            parts.extend(self.other_thread(ended_by, (turn, b)));
            parts
        };
        for (a, b) in self.log_writes(from, to) {
            parts.extend(turns(at, a));
            self.pages(s, Awaited::Log, a, b, &mut parts);
            at = b;
        }
        parts.extend(turns(at, to));
        parts
    }

    /// The handles that a commit waited for while its transaction was locked: the one that ended last, then
    /// the one that had ended last when the former began, and so on. Handles for the end of I/O also begin in
    /// a locked transaction.
    fn locked(&self, tid: u64, committer: u32, (from, to): (u64, u64)) -> Vec<Part> {
        let (mut parts, mut until) = (Vec::new(), to);
        while let Some(h) = self.t.commits.last_handle(tid, from, until) {
            parts.extend(self.other_thread(committer, (h.to, until)));
            let begin = h.from.max(from);
            let who = self.t.name(h.thread);
            let doing =
                self.t.handle_of(h.thread, begin, h.to).map(|d| format!(" ({d})")).unwrap_or_default();
            let within = self.other_thread(h.thread, (begin, h.to));
            parts.push(
                Part::new(Cause::Handle, format!("a handle of {who}{doing}"), h.to - begin).with(within),
            );
            until = begin;
        }
        parts.extend(self.other_thread(committer, (from, until)));
        parts
    }

    fn other_thread(&self, thread: u32, (from, to): (u64, u64)) -> Vec<Part> {
        let parts = if from < to { self.thread(thread, from, to) } else { Vec::new() };
        processor::running(parts, self.t.accounts.ran_at_least(thread, from, to))
    }

    /// The part for a wait for the commit of a transaction, or until it has no handles.
    pub(super) fn for_commit(&self, tid: Option<u64>, from: u64, to: u64) -> Option<Part> {
        let asked = tid.is_some();
        let (tid, id) = match tid {
            Some(tid) => (tid, self.t.commits.ended.get(&tid)?.1),
            None => {
                let all = self.t.commits.ended.iter().map(|(tid, (_, id))| (*tid, *id));
                all.max_by_key(|(_, id)| self.t.spans[*id].within(from, to))?
            }
        };
        let s = &self.t.spans[id];
        let is_over = asked && s.end <= from;
        if s.within(from, to) == 0 && !is_over {
            return None;
        }
        let mut parts = self.commit(id, from.max(s.begin), to.min(s.end));
        // Before the transaction is locked, other commits are running, or handles still begin.
        let before = (from, s.begin.min(to));
        if from < before.1 {
            let within = self.other_thread(s.thread, before);
            let what = "before it was locked";
            parts.push(Part::new(Cause::Step, what, before.1 - from).with(joined(within)));
        }
        // The thread that wrote the record may lose its processor before it wakes the waiting threads.
        let after = (s.end.max(from), to);
        if after.0 < to {
            let ended_by = self.t.commits.ended.get(&tid).map_or(s.thread, |c| c.0.ended_by);
            let within = self.other_thread(ended_by, after);
            let what = "behind its record, until that was told";
            parts.push(Part::new(Cause::Step, what, to - after.0).with(joined(within)));
        }
        let what = format!("the commit of transaction {tid} by {}", self.t.name(s.thread));
        Some(Part::new(Cause::Commit, what, to - from).with(joined(parts)))
    }
}

impl Timeline {
    /// The purpose of a thread's handle in an interval: the operation that the thread was in, with its inode.
    pub(super) fn handle_of(&self, thread: u32, from: u64, to: u64) -> Option<String> {
        let mut at = self.roots(thread, from, to).max_by_key(|id| self.spans[*id].within(from, to))?;
        let mut found = None;
        loop {
            let s = &self.spans[at];
            let named = s.arg("ino").map(|ino| match s.name {
                "vfs_fsync_range" => format!("an fsync of inode {ino}"),
                "vfs_write" => format!("a write to inode {ino}"),
                "writeback_single_inode" => format!("write-back of inode {ino}"),
                name => format!("{name} of inode {ino}"),
            });
            found = named.or(found);
            let inner = self.children(at, from, to).max_by_key(|id| self.spans[*id].within(from, to));
            // Only spans that fill more than half of the interval count.
            match inner.filter(|id| self.spans[*id].within(from, to) * 2 > to - from) {
                Some(inner) => at = inner,
                None => return found.or_else(|| self.doing(thread, from, to)),
            }
        }
    }
}
