//! The causes of time, by name.

use serde::{Deserialize, Serialize};

/// The cause of a part of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The thread ran on a processor.
    Running,
    /// The thread could have gone on, and waited for a processor.
    Processor,
    /// Another thread's work. It is not known whether the thread ran.
    Work,
    /// The device had the awaited request, and nothing else.
    Device,
    /// The device had the awaited request, and other requests.
    DeviceShared,
    /// The device had the awaited request, and a flush.
    DeviceFlush,
    /// The device had the awaited request, and discards.
    DeviceDiscard,
    /// An elevator held the awaited request back.
    Elevator,
    /// The awaited request had not been sent.
    Unsent,
    /// A flush of the device.
    Flush,
    /// A wait for fsyncs that were about to need the same flush.
    Company,
    /// The request queue was full.
    Room,
    /// A lock that other threads held.
    Lock,
    /// A lock that a checkpoint held to freeze operations.
    Freeze,
    /// A checkpoint that was asked for.
    Checkpoint,
    /// A commit of the journal that was asked for.
    Commit,
    /// A handle of the journal that a commit waited for.
    Handle,
    /// A step of a checkpoint, or a phase of a commit.
    Step,
    /// Segments were short and had to be cleaned.
    Cleaning,
    /// The flusher, which writes dirty pages.
    Flusher,
    /// A sync of another thread, which serves this one.
    SyncPass,
    /// Another thread, which woke the sleeping thread.
    Thread,
    /// A sleep of the thread until a time.
    Pause,
    /// The cause is not known.
    Unknown,
}

/// A share of an operation's time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// The cause.
    pub cause: Cause,
    /// The cause in words, with threads and things by name.
    pub what: String,
    /// How long, in nanoseconds.
    pub ns: u64,
    /// Its parts, largest first, as far as they are known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Part>,
}

impl Part {
    pub(super) fn new(cause: Cause, what: impl Into<String>, ns: u64) -> Part {
        Part { cause, what: what.into(), ns, parts: Vec::new() }
    }

    pub(super) fn with(self, parts: Vec<Part>) -> Part {
        Part { parts, ..self }
    }
}

impl Part {
    /// How much of it has no known cause: time without a name, work of a thread that is not known to have
    /// run, and time that no part covers within a part that only names an owner, not a cause.
    pub(super) fn unnamed(&self) -> u64 {
        match self.cause {
            Cause::Unknown | Cause::Work => self.ns,
            Cause::Running | Cause::Processor => 0,
            Cause::Step
            | Cause::Handle
            | Cause::Commit
            | Cause::Checkpoint
            | Cause::Cleaning
            | Cause::Flusher
            | Cause::SyncPass
            | Cause::Unsent
            | Cause::Thread => unnamed(&self.parts, self.ns),
            _ => self.parts.iter().map(Part::unnamed).sum::<u64>().min(self.ns),
        }
    }
}

/// How much of `ns`, of which these are the parts, has no known cause.
pub(super) fn unnamed(parts: &[Part], ns: u64) -> u64 {
    let named: u64 = parts.iter().map(|p| p.ns - p.unnamed()).sum();
    ns.saturating_sub(named)
}

/// Joins parts of one kind. The largest comes first.
pub(super) fn joined(parts: Vec<Part>) -> Vec<Part> {
    let mut all: Vec<Part> = Vec::new();
    for part in parts.into_iter().filter(|p| p.ns > 0) {
        match all.iter_mut().find(|a| a.cause == part.cause && a.what == part.what) {
            Some(a) => {
                a.ns += part.ns;
                a.parts.extend(part.parts);
            }
            None => all.push(part),
        }
    }
    for a in &mut all {
        a.parts = joined(std::mem::take(&mut a.parts));
    }
    all.sort_by_key(|p| std::cmp::Reverse(p.ns));
    all
}
