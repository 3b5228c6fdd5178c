//! A thread's time, from the spans that it was in: the causes of each wait and, if the cause was another
//! thread, the time of that thread meanwhile.

use super::asleep::Within;
use super::device::Awaited;
use super::part::{Cause, Part, joined};
use super::timeline::{Hold, Id, Span, Timeline};
use tidegate_rt::trace::causes::{LOCK, LONG_HOLD};

/// The most steps from a thread to the one that it waits for.
const DEEPEST: u32 = 8;
/// The longest time that an idle processor takes to switch to a thread.
pub(super) const SWITCH: u64 = 100_000;
/// The longest gap between holds of a lock that is ignored: shorter holds are not recorded.
const SLACK: u64 = LONG_HOLD.0;

/// A wait for a lock of a class that no thread is known to have held meanwhile. Up to the time of a switch, the thread
/// that got the lock may not have run yet. A longer wait has no known cause: a hold without an end in the recording, or
/// many short holds.
fn no_holder(class: &str, ns: u64) -> Part {
    if ns <= SWITCH {
        return Part::new(Cause::Lock, format!("lock {class}, given back and not got yet"), ns);
    }
    let unknown = Part::new(Cause::Unknown, "a holder that is not known", ns);
    let what = format!("lock {class}: others for a moment each, or one that still has it");
    Part::new(Cause::Lock, what, ns).with(vec![unknown])
}

/// A walk through a recording.
pub(super) struct Walk<'a> {
    pub t: &'a Timeline,
    depth: u32,
}

impl<'a> Walk<'a> {
    pub fn new(t: &'a Timeline) -> Self {
        Walk { t, depth: 0 }
    }

    /// The parts of one span.
    pub fn span(&self, id: Id) -> Vec<Part> {
        let s = &self.t.spans[id];
        let mut parts = Vec::new();
        self.through(id, s.begin, s.end, &mut parts);
        joined(parts)
    }

    /// A thread's time from `from` to `to`.
    pub(super) fn thread(&self, thread: u32, from: u64, to: u64) -> Vec<Part> {
        if self.depth >= DEEPEST {
            return Vec::new();
        }
        let deeper = Walk { t: self.t, depth: self.depth + 1 };
        let (mut parts, mut at) = (Vec::new(), from);
        for id in self.t.roots(thread, from, to) {
            let s = &self.t.spans[id];
            let (begin, end) = (s.begin.max(at), s.end.min(to));
            parts.extend(deeper.idle(thread, at, begin));
            deeper.inside(id, begin, end, &mut parts);
            at = end;
        }
        parts.extend(deeper.idle(thread, at, to));
        joined(parts)
    }

    /// The parts of the time in which a thread has not begun its work, or has ended it.
    fn idle(&self, thread: u32, from: u64, to: u64) -> Vec<Part> {
        let mut parts = Vec::new();
        self.plain(thread, Within::Nothing, (from, to), &mut parts);
        parts
    }

    /// The end of a wait without the time that the thread then waited for a processor, which is added to
    /// `out`. `event` is the time of the awaited event: a thread that had no processor before that would have
    /// waited anyway.
    pub(super) fn woken(
        &self,
        s: &Span,
        (from, to): (u64, u64),
        event: Option<u64>,
        out: &mut Vec<Part>,
    ) -> u64 {
        if to < s.end {
            return to;
        }
        let after = format!("after {}", s.name);
        let waited = (from.max(event.unwrap_or(from).min(to)), to);
        self.woken_after(s.thread, after, waited, s.end - s.begin, out)
    }

    /// The end of a wait as in [`Self::woken`], at the end of a call that took `call` in all.
    pub(super) fn woken_after(
        &self,
        thread: u32,
        after: String,
        (from, to): (u64, u64),
        call: u64,
        out: &mut Vec<Part>,
    ) -> u64 {
        let delay = self.t.accounts.delay(thread, from, to, call).unwrap_or(0);
        if delay > 0 {
            let within = vec![Part::new(Cause::Processor, after, delay)];
            out.push(Part::new(Cause::Processor, "waiting for a CPU", delay).with(within));
        }
        to - delay
    }

    fn inside(&self, id: Id, from: u64, to: u64, out: &mut Vec<Part>) {
        let s = &self.t.spans[id];
        let ns = to.saturating_sub(from);
        if ns == 0 {
            return;
        }
        if s.is_lock {
            return self.lock(s, from, to, out);
        }
        match s.name {
            "f2fs_wait_for_flush" => {
                let whose = s.arg("thread").map(|t| t as u32);
                self.other(Cause::Flush, "a flush that {} issued", whose, s, (from, to), out);
            }
            "wait_for_sync_pass" => {
                let whose = s.arg("thread").map(|t| t as u32);
                self.other(Cause::SyncPass, "a sync that {} does", whose, s, (from, to), out);
            }
            "f2fs_issue_checkpoint" => {
                let whose = self.busiest("f2fs_write_checkpoint", "tg-ckpt", from, to);
                let what = match self.t.reason(s.thread, self.outermost(id).begin, from) {
                    Some(n) => format!("a checkpoint ({}) by {{}}", crate::observe::words::cp_reason(n)),
                    None => "a checkpoint by {}".into(),
                };
                self.other(Cause::Checkpoint, &what, whose, s, (from, to), out);
            }
            "wb_wait_for_completion" => {
                let whose = self.busiest("wb_sync", "tg-flusher", from, to);
                self.other(Cause::Flusher, "{}, which writes what is dirty", whose, s, (from, to), out);
            }
            "jbd2_log_wait_commit" | "wait_transaction_locked" => {
                let to = self.woken(s, (from, to), None, out);
                match self.for_commit(s.arg("transaction"), from, to) {
                    Some(part) => out.push(part),
                    None => self.through(id, from, to, out),
                }
            }
            "f2fs_wait_for_fsyncs" => {
                out.push(Part::new(Cause::Company, "fsyncs that are about to need the same flush", ns));
            }
            "f2fs_write_checkpoint" if s.parent.is_some() => {
                let mut parts = Vec::new();
                self.through(id, from, to, &mut parts);
                out.push(Part::new(Cause::Checkpoint, "a checkpoint of its own", ns).with(parts));
            }
            "f2fs_gc" => {
                let mut parts = Vec::new();
                self.through(id, from, to, &mut parts);
                out.push(Part::new(Cause::Cleaning, "cleaning, since segments were short", ns).with(parts));
            }
            _ if self.is_step(s) => {
                let frozen = if s.arg("frozen") == Some(1) { ", operations frozen" } else { "" };
                let mut parts = Vec::new();
                self.through(id, from, to, &mut parts);
                let what = format!("{}{frozen}", s.name);
                out.push(Part::new(Cause::Step, what, ns).with(parts));
            }
            _ => self.through(id, from, to, out),
        }
    }

    /// The parts of the spans within a span, and of the time between them.
    fn through(&self, id: Id, from: u64, to: u64, out: &mut Vec<Part>) {
        let mut at = from;
        for c in self.t.children(id, from, to) {
            let (begin, end) = (self.t.spans[c].begin.max(at), self.t.spans[c].end.min(to));
            self.own(id, at, begin, out);
            self.inside(c, begin, end, out);
            at = end.max(at);
        }
        self.own(id, at, to, out);
    }

    /// The parts of a span's own time.
    fn own(&self, id: Id, from: u64, to: u64, out: &mut Vec<Part>) {
        if from >= to {
            return;
        }
        let s = &self.t.spans[id];
        match s.name {
            "folio_wait_writeback" => self.pages(s, Awaited::Pages(self.ino(id)), from, to, out),
            "filemap_fdatawait" => self.pages(s, Awaited::Pages(s.arg("ino")), from, to, out),
            "f2fs_wait_on_node_pages_writeback" => self.pages(s, Awaited::Nodes, from, to, out),
            "f2fs_ra_meta_pages" => self.pages(s, Awaited::Ahead, from, to, out),
            "wait_epoch" | "wait_sb_inodes" | "f2fs_wait_on_all_pages" => {
                self.pages(s, Awaited::All, from, to, out);
            }
            "blk_mq_get_tag" => {
                let to = self.woken(s, (from, to), None, out);
                out.push(self.room(s.thread, from, to));
            }
            name => {
                for (from, to, request) in self.here(s.thread, from, to) {
                    match request {
                        Some(r) => self.at_device(s.thread, r, from, to, out),
                        None => self.plain(s.thread, Within::Span(name), (from, to), out),
                    }
                }
            }
        }
    }

    /// A wait for another thread, and that thread's work meanwhile. `{}` in `what` becomes the name of the
    /// thread.
    fn other(
        &self,
        cause: Cause,
        what: &str,
        whose: Option<u32>,
        s: &Span,
        (from, to): (u64, u64),
        out: &mut Vec<Part>,
    ) {
        let to = self.woken(s, (from, to), whose.and_then(|t| self.over(cause, t, from, to)), out);
        let name = whose.map_or("another thread".into(), |t| self.t.name(t));
        let parts = whose.map(|t| self.thread(t, from, to)).unwrap_or_default();
        let what = match (cause, whose.and_then(|t| self.t.doing(t, from, to))) {
            (Cause::Flush, Some(doing)) => what.replace("{}", &format!("{name} ({doing})")),
            _ => what.replace("{}", &name),
        };
        out.push(Part::new(cause, what, to - from).with(parts));
    }

    /// The time when another thread last ended the awaited work.
    fn over(&self, cause: Cause, thread: u32, from: u64, to: u64) -> Option<u64> {
        let name = match cause {
            Cause::Checkpoint => "f2fs_write_checkpoint",
            Cause::Flush => "f2fs_issue_flush",
            Cause::Flusher => "wb_sync",
            Cause::SyncPass => "sync_filesystem",
            _ => return None,
        };
        self.t.last_end(thread, name, from, to)
    }

    /// The thread with the name `otherwise`, if an outermost span of it in an interval has the name `span`;
    /// else the thread with the most of one such span in the interval; else the thread `otherwise`.
    fn busiest(&self, span: &str, otherwise: &str, from: u64, to: u64) -> Option<u32> {
        let usual = self.t.called(otherwise);
        let does = |t: &u32| self.t.roots(*t, from, to).any(|id| self.t.spans[id].name == span);
        usual.filter(does).or_else(|| {
            let all = self.t.spans.iter().filter(|s| s.name == span && s.within(from, to) > 0);
            all.max_by_key(|s| s.within(from, to)).map(|s| s.thread).or(usual)
        })
    }

    /// The threads that held a lock during a wait for it, and their work meanwhile.
    fn lock(&self, s: &Span, from: u64, to: u64, out: &mut Vec<Part>) {
        let class = s.name;
        let holds = self.t.holds(class, s.arg(LOCK).unwrap_or(0), s.thread, s.begin, s.end);
        let to = self.locked_and_not_running(s, &holds, (from, to), out);
        let mut at = from;
        while at < to {
            let now = holds.iter().filter(|h| h.from <= at + SLACK && h.to > at).max_by_key(|h| h.to);
            match now {
                Some(h) => {
                    let end = h.to.min(to);
                    let doing = self.t.doing(h.thread, at, end);
                    let cause =
                        if doing.as_deref() == Some("a checkpoint") { Cause::Freeze } else { Cause::Lock };
                    let doing = doing.map(|d| format!(" ({d})")).unwrap_or_default();
                    let what = format!("lock {class}, which {}{doing} had", self.t.name(h.thread));
                    out.push(Part::new(cause, what, end - at).with(self.thread(h.thread, at, end)));
                    at = end;
                }
                None => {
                    let next = holds.iter().map(|h| h.from).filter(|f| *f > at).min().unwrap_or(to).min(to);
                    out.push(no_holder(class, next - at));
                    at = next;
                }
            }
        }
    }

    /// Adds to `out` the time of an interval in which a thread already had the lock and waited for a processor. Returns
    /// the beginning of that time. Other threads may share the lock.
    fn locked_and_not_running(
        &self,
        s: &Span,
        holds: &[&Hold],
        (from, to): (u64, u64),
        out: &mut Vec<Part>,
    ) -> u64 {
        let call = s.end - s.begin;
        let delay = self.t.accounts.delay(s.thread, s.begin, s.end, call).unwrap_or(0);
        let ends = || holds.iter().map(|h| h.to).filter(|end| *end <= s.end);
        let first = ends().filter(|end| *end + delay + SWITCH >= s.end).min();
        let given_back = first.or_else(|| ends().max()).unwrap_or(s.begin);
        let since = (s.end - delay.min(s.end - given_back)).clamp(from, to);
        if since < to {
            let within = vec![Part::new(Cause::Processor, format!("after lock {}", s.name), to - since)];
            out.push(Part::new(Cause::Processor, "waiting for a CPU", to - since).with(within));
        }
        since
    }

    fn is_step(&self, s: &Span) -> bool {
        let parent = s.parent.map(|p| self.t.spans[p].name);
        s.name != "f2fs_block_operations"
            && matches!(parent, Some("f2fs_write_checkpoint" | "f2fs_block_operations"))
    }

    fn outermost(&self, mut id: Id) -> &Span {
        while let Some(p) = self.t.spans[id].parent {
            id = p;
        }
        &self.t.spans[id]
    }

    /// The inode of a span, or of one around it.
    fn ino(&self, mut id: Id) -> Option<u64> {
        loop {
            let s = &self.t.spans[id];
            match (s.arg("ino"), s.parent) {
                (Some(ino), _) => return Some(ino),
                (None, Some(p)) => id = p,
                (None, None) => return None,
            }
        }
    }
}
