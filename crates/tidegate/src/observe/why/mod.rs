//! Why the slowest fsyncs, syncs, checkpoints and commits of a recording took so long.
//!
//! [`explain`] is a function of a recording ([`Wanted::causes`](super::Wanted)) and of nothing else. Each
//! part of an operation's time gets a name: the event that was waited for, and the parts of that, in any
//! thread.
//!
//! | module | holds |
//! |---|---|
//! | `timeline` | the recording, to be asked by thread and time |
//! | `requests` | requests in elevators and at the device |
//! | `walk` | spans, locks, flushes, checkpoints: from a thread to the one that it waits for |
//! | `asleep` | where no span says more: running, waiting for a processor, asleep until another thread wakes it |
//! | `accounts` | how long processors had threads, where these slept, and who woke them |
//! | `commit` | commits of a journal, and the handles that they wait for |
//! | `device` | waits for requests |
//! | `processor` | what is left: running, or waiting for a processor |
//! | `part` | names and times |
//! | `advice` | what to do about each cause |
//! | [`page`] | all that on a page |

mod accounts;
mod advice;
mod asleep;
mod commit;
#[cfg(test)]
mod commit_tests;
mod device;
#[cfg(test)]
mod made;
pub mod page;
mod part;
mod processor;
mod requests;
#[cfg(test)]
mod tests;
mod timeline;
#[cfg(test)]
mod told_tests;
mod walk;

use super::Observed;
pub use advice::Advice;
pub use part::{Cause, Part};
use serde::{Deserialize, Serialize};
use timeline::{Id, Timeline};
use walk::Walk;

/// The operation that is explained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// An fsync of one inode.
    Fsync,
    /// A sync of the volume.
    Sync,
    /// A checkpoint, on any thread's request.
    Checkpoint,
    /// A commit of a journal, from when its transaction is locked.
    Commit,
}

impl Operation {
    const ALL: [Operation; 4] = [Operation::Fsync, Operation::Sync, Operation::Checkpoint, Operation::Commit];

    /// The span that it is.
    fn span(self) -> &'static str {
        match self {
            Operation::Fsync => "vfs_fsync_range",
            Operation::Sync => "sync_filesystem",
            Operation::Checkpoint => "f2fs_write_checkpoint",
            Operation::Commit => commit::COMMIT,
        }
    }

    /// Its name.
    pub fn word(self) -> &'static str {
        match self {
            Operation::Fsync => "fsync",
            Operation::Sync => "sync",
            Operation::Checkpoint => "checkpoint",
            Operation::Commit => "commit",
        }
    }

    /// Whether somebody waits for it as such; else it is a part of what others wait for, too.
    fn is_waited_for(self) -> bool {
        matches!(self, Operation::Fsync | Operation::Sync)
    }
}

/// One slow operation. Times are in nanoseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Slow {
    /// The operation.
    pub operation: Operation,
    /// Of which inode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ino: Option<u64>,
    /// Of which transaction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transaction: Option<u64>,
    /// The inode's path, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The thread that did it.
    pub thread: String,
    /// When it began, from the beginning of the recording.
    pub at_ns: u64,
    /// How long it took.
    pub ns: u64,
    /// How long a processor had the thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ran_ns: Option<u64>,
    /// How long the thread could have run and waited for a processor, in all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delayed_ns: Option<u64>,
    /// The thread that asked for it, where that is another.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub asked_by: Vec<String>,
    /// The share of its time that has a name, of 1. Time that no part covers has none, nor has work of a
    /// thread of which nothing says that a processor had it.
    pub named: f64,
    /// Its parts, largest first.
    pub parts: Vec<Part>,
}

/// All operations of one kind. Times are in nanoseconds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Kind {
    /// Which kind.
    pub operation: Operation,
    /// How many ended in the recording, having begun in it.
    pub count: usize,
    /// How many of them took longer than the threshold.
    pub over: usize,
    /// How many began in the recording and had not ended with it.
    #[serde(default)]
    pub lasting: usize,
    /// How many of those had taken longer than the threshold by then.
    #[serde(default)]
    pub lasting_over: usize,
    /// How long the longest of those had taken by then.
    #[serde(default)]
    pub lasting_ns: u64,
    /// Half of all took no longer.
    pub p50_ns: u64,
    /// 99 of 100 took no longer.
    pub p99_ns: u64,
    /// The longest.
    pub max_ns: u64,
    /// The slowest that took longer than the threshold, slowest first, of those that can be explained.
    pub slowest: Vec<Slow>,
}

/// The findings.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// How long was recorded.
    pub recorded_ns: u64,
    /// The threshold.
    pub over_ns: u64,
    /// Events that were looked at.
    pub events: u64,
    /// Events that were dropped, the oldest, since more came than are kept.
    pub dropped: u64,
    /// Operations that began before this time of the recording are counted, and not explained: the event that they
    /// waited for may be among those that were dropped.
    #[serde(default)]
    pub explained_from_ns: u64,
    /// By kind.
    pub kinds: Vec<Kind>,
    /// Advice, for the largest cause first.
    pub advice: Vec<Advice>,
}

/// Explains the `most` slowest operations of each kind that took longer than `over` nanoseconds.
pub fn explain(observed: &Observed, over: u64, most: usize) -> Report {
    let t = Timeline::of(&observed.recorded);
    let complete_from = observed.recorded.complete_from;
    let since = (observed.since.0, complete_from.0);
    let kind = |operation| {
        let lasting = lasting(&t, operation, observed);
        Kind {
            lasting: lasting.len(),
            lasting_over: lasting.iter().filter(|ns| **ns > over).count(),
            lasting_ns: lasting.into_iter().max().unwrap_or(0),
            ..kind(&t, operation, since, over, most)
        }
    };
    let kinds: Vec<Kind> = Operation::ALL.into_iter().map(kind).collect();
    Report {
        explained_from_ns: complete_from.since(observed.since).0,
        recorded_ns: observed.until.since(observed.since).0,
        over_ns: over,
        events: observed.recorded.events.len() as u64,
        dropped: observed.recorded.dropped,
        advice: advice::of(&kinds),
        kinds,
    }
}

/// How long those of a kind had taken at the end of the recording that began in it and had not ended.
fn lasting(t: &Timeline, operation: Operation, observed: &Observed) -> Vec<u64> {
    let spans = observed.recorded.lasting.iter().filter(|l| l.name == operation.span()).map(|l| l.since.0);
    let commits = t.commits.lasting().filter(|_| operation == Operation::Commit);
    let within = |begin: &u64| (observed.since.0..=observed.until.0).contains(begin);
    spans.chain(commits).filter(within).map(|begin| observed.until.0 - begin).collect()
}

/// All operations of a kind that have ended, of a recording that began at `since` and is `complete` from then on.
fn kind(t: &Timeline, operation: Operation, (since, complete): (u64, u64), over: u64, most: usize) -> Kind {
    let took = |id: &Id| t.spans[*id].end - t.spans[*id].begin;
    // One that was under way when the recording began is there from then on, for those that waited for it.
    let is_one = |id: &Id| t.spans[*id].name == operation.span() && t.spans[*id].begin >= since;
    let mut ids: Vec<Id> = (0..t.spans.len()).filter(is_one).collect();
    // The earlier of two that took as long.
    ids.sort_by_key(|id| (std::cmp::Reverse(took(id)), *id));
    let at = |percent: usize| ids.get(ids.len() * (100 - percent) / 100).map_or(0, took);
    let slow: Vec<Id> = ids.iter().copied().take_while(|id| took(id) > over).collect();
    Kind {
        operation,
        count: ids.len(),
        over: slow.len(),
        lasting: 0,
        lasting_over: 0,
        lasting_ns: 0,
        p50_ns: at(50),
        p99_ns: at(99),
        max_ns: ids.first().map_or(0, took),
        slowest: {
            let known = slow.into_iter().filter(|id| t.spans[*id].begin >= complete);
            known.take(most).map(|id| one(t, operation, id, since)).collect()
        },
    }
}

fn one(t: &Timeline, operation: Operation, id: Id, since: u64) -> Slow {
    let s = &t.spans[id];
    let ns = s.end - s.begin;
    // A commit is of two threads.
    let processor = t.accounts.processor(s.thread, s.begin, s.end).filter(|_| operation != Operation::Commit);
    let parts = match operation {
        Operation::Commit => Walk::new(t).commit(id, s.begin, s.end),
        _ => Walk::new(t).span(id),
    };
    let parts = processor::split(parts, processor);
    let unknown = part::unnamed(&parts, ns);
    Slow {
        operation,
        ino: s.arg("ino"),
        transaction: s.arg("transaction").filter(|_| operation == Operation::Commit),
        path: None,
        thread: t.name(s.thread),
        at_ns: s.begin.saturating_sub(since),
        ns,
        ran_ns: processor.map(|p| p.0),
        delayed_ns: processor.and_then(|p| p.1),
        asked_by: if operation == Operation::Checkpoint { asked_by(t, id) } else { Vec::new() },
        named: 1.0 - unknown as f64 / ns.max(1) as f64,
        parts,
    }
}

/// Threads that waited for a checkpoint when it began, and until it ended.
fn asked_by(t: &Timeline, id: Id) -> Vec<String> {
    let s = &t.spans[id];
    let asks = |a: &&timeline::Span| {
        a.name == "f2fs_issue_checkpoint"
            && a.begin <= s.begin
            && a.end >= s.end
            && a.within(s.begin, s.end) > 0
    };
    let who = |a: &timeline::Span| {
        let doing = t.doing(a.thread, a.begin, a.end).unwrap_or_default();
        let why = t.reason(a.thread, a.begin.saturating_sub(1_000_000), a.begin);
        let why = why.map(|n| format!(": {}", super::words::cp_reason(n))).unwrap_or_default();
        format!("{} ({doing}{why})", t.name(a.thread))
    };
    let mut all: Vec<String> = t.spans.iter().filter(asks).map(who).collect();
    if all.is_empty() && s.parent.is_some() {
        all.extend(t.doing(s.thread, s.begin, s.end));
    }
    all.dedup();
    all
}
