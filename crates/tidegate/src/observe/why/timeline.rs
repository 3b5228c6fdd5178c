//! A recording as spans within spans, holds of locks, processor time and requests, searchable by thread and time.

use super::accounts::Accounts;
use super::commit::{COMMIT, Commits};
use super::requests::Requests;
use crate::observe::words::{addresses, arg, page_write};
use std::collections::{BTreeMap, HashMap};
use tidegate_block::SECTOR_SIZE;
use tidegate_rt::trace::causes::{HELD, LOCK, PROCESSOR, SLEEP, WAKE};
use tidegate_rt::trace::{Args, Event, NO_ARGS, Phase, Recorded};

/// Sectors of a block.
const SECTORS: u64 = 4096 / SECTOR_SIZE;

/// The number of a span among all spans.
pub(super) type Id = usize;

/// A span, or a wait for a lock.
pub(super) struct Span {
    pub name: &'static str,
    pub thread: u32,
    pub begin: u64,
    pub end: u64,
    pub args: Args,
    pub is_lock: bool,
    pub parent: Option<Id>,
    pub children: Vec<Id>,
}

impl Span {
    pub fn arg(&self, name: &str) -> Option<u64> {
        self.args.iter().find(|a| a.0 == name).map(|a| a.1)
    }

    /// How much of it is within an interval.
    pub fn within(&self, from: u64, to: u64) -> u64 {
        self.end.min(to).saturating_sub(self.begin.max(from))
    }
}

/// A long hold of a lock by a thread.
pub(super) struct Hold {
    pub thread: u32,
    pub lock: u64,
    pub from: u64,
    pub to: u64,
}

/// Holds of one class, in order of their ends.
#[derive(Default)]
struct Holds {
    all: Vec<Hold>,
    longest: u64,
}

/// A write of pages of an inode to sectors.
pub(super) struct PageWrite {
    pub at: u64,
    pub from: u64,
    pub to: u64,
}

/// A recording, searchable by thread and time.
#[derive(Default)]
pub(super) struct Timeline {
    pub spans: Vec<Span>,
    pub requests: Requests,
    pub commits: Commits,
    pub accounts: Accounts,
    names: BTreeMap<u32, String>,
    roots: HashMap<u32, Vec<Id>>,
    holds: HashMap<&'static str, Holds>,
    pages: HashMap<u64, Vec<PageWrite>>,
    /// The reasons why fsyncs took a checkpoint, by thread: time, and number of the reason.
    reasons: HashMap<u32, Vec<(u64, u64)>>,
}

impl Timeline {
    /// The timeline of events, which are in order of time.
    pub fn of(recorded: &Recorded) -> Timeline {
        let mut t = Timeline { names: recorded.threads.clone(), ..Timeline::default() };
        let mut open: HashMap<u32, Vec<Id>> = HashMap::new();
        for e in &recorded.events {
            match e.phase {
                Phase::Begin if e.name == SLEEP => t.accounts.falls_asleep(e),
                Phase::End if e.name == SLEEP => t.accounts.slept(e),
                Phase::Begin | Phase::ContentionBegin => {
                    let stack = open.entry(e.thread).or_default();
                    t.begin(e, stack.last().copied());
                    stack.push(t.spans.len() - 1);
                }
                Phase::End | Phase::ContentionEnd => {
                    let stack = open.entry(e.thread).or_default();
                    // The beginning may have been dropped.
                    if let Some(id) = stack.pop_if(|id| t.spans[*id].name == e.name) {
                        t.end(id, e);
                    }
                }
                Phase::Instant => t.point(e),
            }
        }
        let last = recorded.events.last().map_or(0, |e| e.at.0);
        for id in open.into_values().flatten() {
            t.spans[id].end = last;
        }
        t.requests.close(last);
        t.accounts.close(last);
        t
    }

    fn end(&mut self, id: Id, e: &Event) {
        let s = &mut self.spans[id];
        s.end = e.at.0;
        if s.is_lock {
            self.accounts.waited(s.thread, s.begin, s.end);
        }
    }

    fn begin(&mut self, e: &Event, parent: Option<Id>) {
        if e.name == "f2fs_submit_page_write" {
            let from = u64::from(addresses(e).1) * SECTORS;
            let to = from + page_write(e).0 * SECTORS;
            let ino = arg(e, "ino").unwrap_or(0);
            self.pages.entry(ino).or_default().push(PageWrite { at: e.at.0, from, to });
        }
        let id = self.spans.len();
        match parent {
            Some(p) => self.spans[p].children.push(id),
            None => self.roots.entry(e.thread).or_default().push(id),
        }
        self.spans.push(Span {
            name: e.name,
            thread: e.thread,
            begin: e.at.0,
            end: e.at.0,
            args: e.args,
            is_lock: e.phase == Phase::ContentionBegin,
            parent,
            children: Vec::new(),
        });
    }

    fn point(&mut self, e: &Event) {
        let n = |name| arg(e, name).unwrap_or(0);
        match e.name {
            PROCESSOR => self.accounts.account(e),
            WAKE => self.accounts.wakes(e),
            "f2fs_fsync_checkpoint" => {
                self.reasons.entry(e.thread).or_default().push((e.at.0, n("reason")));
            }
            class if e.args[0].0 == HELD => {
                let holds = self.holds.entry(class).or_default();
                let (held, to) = (n(HELD), e.at.0);
                holds.longest = holds.longest.max(held);
                let from = to.saturating_sub(held);
                holds.all.push(Hold { thread: e.thread, lock: n(LOCK), from, to });
            }
            _ => {
                self.requests.event(e);
                if let Some((tid, locked, thread)) = self.commits.event(e) {
                    self.commit(tid, thread, (locked, e.at.0));
                }
            }
        }
    }

    /// Adds a commit that has ended, as a span beside those of its threads.
    fn commit(&mut self, tid: u64, thread: u32, (begin, end): (u64, u64)) {
        let mut args = NO_ARGS;
        args[0] = ("transaction", tid);
        self.commits.ended(tid, self.spans.len());
        let (parent, children) = (None, Vec::new());
        self.spans.push(Span { name: COMMIT, thread, begin, end, args, is_lock: false, parent, children });
    }

    /// The name of a thread.
    pub fn name(&self, thread: u32) -> String {
        self.names.get(&thread).cloned().unwrap_or_else(|| format!("thread {thread}"))
    }

    /// A thread of this name that recorded anything.
    pub fn called(&self, name: &str) -> Option<u32> {
        self.names.iter().find(|(t, n)| *n == name && self.roots.contains_key(t)).map(|(t, _)| *t)
    }

    /// The outermost spans of a thread that are in an interval, in order.
    pub fn roots(&self, thread: u32, from: u64, to: u64) -> impl Iterator<Item = Id> {
        let all = self.roots.get(&thread).map_or(&[][..], |r| r);
        self.in_order(all, from, to)
    }

    /// The end of the last span of this name of a thread that ends in an interval.
    pub fn last_end(&self, thread: u32, name: &str, from: u64, to: u64) -> Option<u64> {
        self.ends(thread, name, from, to).into_iter().max()
    }

    /// The ends in an interval of spans of this name of a thread.
    pub fn ends(&self, thread: u32, name: &str, from: u64, to: u64) -> Vec<u64> {
        let mut open: Vec<Id> = self.roots(thread, from, to).collect();
        let mut ends = Vec::new();
        while let Some(id) = open.pop() {
            let s = &self.spans[id];
            match s.name == name && s.end <= to {
                true => ends.push(s.end),
                false => open.extend(self.children(id, from, to)),
            }
        }
        ends
    }

    /// The spans directly in a span that are in an interval, in order.
    pub fn children(&self, id: Id, from: u64, to: u64) -> impl Iterator<Item = Id> {
        self.in_order(&self.spans[id].children, from, to)
    }

    /// The spans of `all` that are in an interval. Adjacent spans do not overlap.
    fn in_order<'a>(&'a self, all: &'a [Id], from: u64, to: u64) -> impl Iterator<Item = Id> + use<'a> {
        let first = all.partition_point(|id| self.spans[*id].end <= from);
        all[first..].iter().copied().take_while(move |id| self.spans[*id].begin < to)
    }

    /// Long holds of locks of a class by other threads than `thread` in an interval. A `lock` of 0 means any
    /// lock.
    pub fn holds(&self, class: &str, lock: u64, thread: u32, from: u64, to: u64) -> Vec<&Hold> {
        let Some(holds) = self.holds.get(class) else { return Vec::new() };
        let first = holds.all.partition_point(|h| h.to <= from);
        let until = to.saturating_add(holds.longest);
        let near = holds.all[first..].iter().take_while(|h| h.to <= until);
        near.filter(|h| h.from < to && h.thread != thread && (lock == 0 || h.lock == lock)).collect()
    }

    /// The writes of pages of an inode until `to`.
    pub fn pages(&self, ino: u64, to: u64) -> &[PageWrite] {
        let all = self.pages.get(&ino).map_or(&[][..], |p| p);
        &all[..all.partition_point(|p| p.at <= to)]
    }

    /// The reason why a thread took a checkpoint in an interval.
    pub fn reason(&self, thread: u32, from: u64, to: u64) -> Option<u64> {
        self.reasons.get(&thread)?.iter().find(|(at, _)| (from..=to).contains(at)).map(|(_, reason)| *reason)
    }

    /// A thread's activity for most of an interval, in words for users.
    pub fn doing(&self, thread: u32, from: u64, to: u64) -> Option<String> {
        let longest = self.roots(thread, from, to).max_by_key(|id| self.spans[*id].within(from, to))?;
        Some(self.called_operation(longest, from, to).unwrap_or_else(|| {
            let name = self.spans[longest].name;
            name.strip_prefix("fuse_").map_or_else(|| name.to_string(), |what| format!("a request: {what}"))
        }))
    }

    fn called_operation(&self, id: Id, from: u64, to: u64) -> Option<String> {
        let s = &self.spans[id];
        let of = |what: &str| Some(format!("{what} inode {}", s.arg("ino")?));
        let known = match s.name {
            "vfs_fsync_range" => of("an fsync of"),
            "vfs_write" => of("a write to"),
            "sync_filesystem" => Some("a sync".into()),
            "vfs_create" => Some("making a file".into()),
            "vfs_unlink" => Some("removing a file".into()),
            "f2fs_write_checkpoint" => Some("a checkpoint".into()),
            "f2fs_gc" => Some("cleaning".into()),
            "wb_background" | "wb_start" | "wb_sync" => Some("write-back".into()),
            _ => None,
        };
        known.or_else(|| {
            let inner = self.children(id, from, to).max_by_key(|c| self.spans[*c].within(from, to))?;
            self.called_operation(inner, from, to)
        })
    }
}
