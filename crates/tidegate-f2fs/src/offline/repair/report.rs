//! What a repair is asked for and what it tells.

use crate::offline::check::CheckReport;
use std::fmt;
use tidegate_rt::Timespec;

/// How to repair.
#[derive(Clone, Copy, Debug, Default)]
pub struct RepairOptions {
    /// Say what would be done and change nothing.
    pub dry_run: bool,
    /// The time that what is made anew bears.
    pub now: Timespec,
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// What kind of thing is changed, such as `sit` or `dentry`.
    pub what: &'static str,
    /// Where it is.
    pub place: String,
    /// What it says.
    pub from: String,
    /// What it is made to say.
    pub to: String,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {} -> {}", self.what, self.place, self.from, self.to)
    }
}

/// How a repair ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// There was nothing to do.
    Clean,
    /// There was, and it is done.
    Corrected,
    /// There is still: the last check's problems say what.
    Left,
}

/// What a repair did.
#[derive(Clone, Debug)]
pub struct RepairReport {
    /// How it ended.
    pub outcome: Outcome,
    /// Changes made, or that a dry run would make.
    pub changes: u64,
    /// Checks that found something, each followed by a repair.
    pub rounds: u32,
    /// Things to know beside the changes.
    pub notes: Vec<String>,
    /// The last check.
    pub check: CheckReport,
}

/// Told each change as it is decided.
pub type OnChange<'a> = &'a mut dyn FnMut(&Change);
