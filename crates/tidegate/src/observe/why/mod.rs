//! Why the slowest fsyncs, syncs, checkpoints and commits of a recording took so long.
//!
//! [`explain`] depends only on a recording ([`Wanted::causes`](super::Wanted)). Each part of an operation's
//! time gets a name: the event that the thread waited for, and the parts of that event's time, in any thread.
//!
//! | module | holds |
//! |---|---|
//! | `timeline` | the recording, searchable by thread and time |
//! | `requests` | requests in elevators and at the device |
//! | `walk` | spans, locks, flushes, checkpoints: from a thread to the one that it waits for |
//! | `asleep` | time outside of named waits: running, waiting for a processor, asleep until another thread wakes it |
//! | `accounts` | how long threads ran on processors, where they slept, and which threads woke them |
//! | `commit` | commits of a journal, and the handles that they wait for |
//! | `device` | waits for requests |
//! | `processor` | the remaining time: running, or waiting for a processor |
//! | `part` | names and times |
//! | `advice` | the advice for each cause |
//! | [`page`] | the findings on a page |

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
    /// A checkpoint, whichever thread asked for it.
    Checkpoint,
    /// A commit of a journal, from when its transaction is locked.
    Commit,
}

impl Operation {
    const ALL: [Operation; 4] = [Operation::Fsync, Operation::Sync, Operation::Checkpoint, Operation::Commit];

    /// The span of such an operation.
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

    /// Whether threads wait for the operation as such. Otherwise it is also a part of operations that they
    /// wait for.
    fn is_waited_for(self) -> bool {
        matches!(self, Operation::Fsync | Operation::Sync)
    }
}

/// One slow operation. Times are in nanoseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Slow {
    /// The operation.
    pub operation: Operation,
    /// The inode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ino: Option<u64>,
    /// The transaction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transaction: Option<u64>,
    /// The inode's path, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The thread that ran it.
    pub thread: String,
    /// When it began, from the beginning of the recording.
    pub at_ns: u64,
    /// How long it took.
    pub ns: u64,
    /// How long the thread ran on a processor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ran_ns: Option<u64>,
    /// How long the thread was ready to run and waited for a processor, in all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delayed_ns: Option<u64>,
    /// The threads that asked for it, where they are others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub asked_by: Vec<String>,
    /// The share of its time that has a name, from 0 to 1. Time that no part covers has no name, and neither
    /// has work of a thread that is not known to have run.
    pub named: f64,
    /// Its parts, largest first.
    pub parts: Vec<Part>,
}

/// All operations of one kind. Times are in nanoseconds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Kind {
    /// The kind.
    pub operation: Operation,
    /// How many began and ended in the recording.
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
    /// The time that half of all did not exceed.
    pub p50_ns: u64,
    /// The time that 99 of 100 did not exceed.
    pub p99_ns: u64,
    /// The longest time.
    pub max_ns: u64,
    /// The slowest of those that took longer than the threshold and can be explained, slowest first.
    pub slowest: Vec<Slow>,
}

/// The findings.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// The length of the recording.
    pub recorded_ns: u64,
    /// The threshold.
    pub over_ns: u64,
    /// Events that were looked at.
    pub events: u64,
    /// The number of events that were dropped, the oldest, since more came than are kept.
    pub dropped: u64,
    /// Operations that began before this time of the recording are counted, but not explained: the events that they
    /// waited for may have been dropped.
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

/// How long the operations of a kind that began in the recording and did not end in it had taken at its end.
fn lasting(t: &Timeline, operation: Operation, observed: &Observed) -> Vec<u64> {
    let spans = observed.recorded.lasting.iter().filter(|l| l.name == operation.span()).map(|l| l.since.0);
    let commits = t.commits.lasting().filter(|_| operation == Operation::Commit);
    let within = |begin: &u64| (observed.since.0..=observed.until.0).contains(begin);
    spans.chain(commits).filter(within).map(|begin| observed.until.0 - begin).collect()
}

/// All operations of a kind that have ended. The recording began at `since`, and no event is missing from `complete`
/// on.
fn kind(t: &Timeline, operation: Operation, (since, complete): (u64, u64), over: u64, most: usize) -> Kind {
    let took = |id: &Id| t.spans[*id].end - t.spans[*id].begin;
    // An operation that was running when the recording began is recorded from then on, for the threads that
    // waited for it.
    let is_one = |id: &Id| t.spans[*id].name == operation.span() && t.spans[*id].begin >= since;
    let mut ids: Vec<Id> = (0..t.spans.len()).filter(is_one).collect();
    // Of two that took equally long, the earlier comes first.
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
    // Two threads run a commit.
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
