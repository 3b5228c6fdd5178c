//! Why a volume takes no changes.

use crate::error::Error;
use std::fmt;
use tidegate_block::Errno;

/// Why a volume takes no changes. `Display` makes the sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReadOnly {
    /// It was opened so, or the device takes no writes.
    Asked,
    /// It has features that are read and never written.
    Features {
        /// The format.
        format: &'static str,
        /// Their names.
        features: String,
    },
    /// It is in a state in which it is not changed: `its journal is on a device of its own`.
    State(&'static str),
    /// Its device's zones do not let it be changed: `the zone at sector 0x80000 is offline`.
    Zones(String),
    /// It wants a repair first.
    Unrepaired {
        /// The sentence that gives the reason: `an earlier error is recorded in it`.
        what: &'static str,
        /// The program that mends it.
        tool: &'static str,
    },
    /// The newest state of it is damaged, and the one before was taken.
    PassedOver(Error),
    /// Changes are refused since this error.
    Stopped(Error),
    /// One of these, and something that was promised is not to be seen.
    Without(Box<ReadOnly>, Unseen),
}

/// Promised content that is not to be seen in a volume that is only read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unseen {
    /// Changes that were fsynced after the last checkpoint of an F2FS volume.
    Fsynced,
    /// A transaction of a journal that is damaged, and all behind it.
    Transaction(u32),
    /// Changes that were fsynced after a journal's last commit, by fast commits.
    FastCommits,
}

impl ReadOnly {
    /// The device's error since which changes are refused, if that is why.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            ReadOnly::Stopped(e) => e.errno(),
            ReadOnly::Without(why, _) => why.errno(),
            _ => None,
        }
    }

    /// This reason, and `unseen` is not to be seen.
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
