//! The reason why a volume takes no changes.

use crate::error::Error;
use std::fmt;
use tidegate_block::Errno;

/// The reason why a volume takes no changes. `Display` makes the sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReadOnly {
    /// It was opened read-only, or the device takes no writes.
    Asked,
    /// It has features that this program can only read.
    Features {
        /// The format.
        format: &'static str,
        /// Their names.
        features: String,
    },
    /// It is in a state in which it must not be changed: `its journal is on a device of its own`.
    State(&'static str),
    /// The zones of its device prevent changes: `the zone at sector 0x80000 is offline`.
    Zones(String),
    /// It needs a repair first.
    Unrepaired {
        /// The sentence that gives the reason: `an earlier error is recorded in it`.
        what: &'static str,
        /// The program that repairs it.
        tool: &'static str,
    },
    /// Its newest state is damaged, and the state before that was taken.
    PassedOver(Error),
    /// This error occurred, and changes are refused since then.
    Stopped(Error),
    /// Another reason, and content that was promised cannot be seen.
    Without(Box<ReadOnly>, Unseen),
}

/// Promised content that cannot be seen in a volume that is only read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unseen {
    /// Changes that were fsynced after the last checkpoint of an F2FS volume.
    Fsynced,
    /// A damaged transaction of a journal, and all transactions after it.
    Transaction(u32),
    /// Changes that were fsynced after a journal's last commit, by fast commits.
    FastCommits,
}

impl ReadOnly {
    /// The error of the device since which changes are refused, if that is the reason.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            ReadOnly::Stopped(e) => e.errno(),
            ReadOnly::Without(why, _) => why.errno(),
            _ => None,
        }
    }

    /// Adds that `unseen` cannot be seen.
    pub fn without(self, unseen: Unseen) -> Self {
        ReadOnly::Without(Box::new(self), unseen)
    }
}

impl fmt::Display for ReadOnly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReadOnly::Asked => f.write_str("opened read-only"),
            ReadOnly::Features { format, features } => {
                write!(f, "{format} feature {features} is not supported: opened read-only")
            }
            ReadOnly::Zones(what) => write!(f, "{what}: opened read-only"),
            ReadOnly::State(what) => write!(f, "{what}: opened read-only"),
            ReadOnly::Unrepaired { what, tool } => write!(f, "{what}: run {tool}; opened read-only"),
            ReadOnly::PassedOver(e) => {
                write!(f, "{e}: damaged, run check --repair; opened read-only as it was before")
            }
            ReadOnly::Stopped(e) => write!(f, "stopped after an error: {e}"),
            ReadOnly::Without(why, Unseen::Fsynced) => {
                write!(f, "{why}, without what was fsynced after its last checkpoint")
            }
            ReadOnly::Without(why, unseen) => write!(f, "{why}; {unseen}"),
        }
    }
}

impl fmt::Display for Unseen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unseen::Fsynced => f.write_str("what was fsynced after its last checkpoint is left out"),
            Unseen::Transaction(tid) => {
                write!(f, "transaction {tid} of its journal is damaged and left out")
            }
            Unseen::FastCommits => {
                f.write_str("what was fsynced after its last commit (fast commits) is left out")
            }
        }
    }
}
