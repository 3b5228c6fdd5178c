//! The requests for a check and a repair of a volume that is not in use, and their reports.

use std::fmt;
use tidegate_rt::Timespec;

/// The function that gets the progress of the check: nodes done and nodes in all, the latter as the volume
/// counts them.
pub type Progress = Box<dyn FnMut(u64, u64)>;

/// How to check.
pub struct CheckOptions {
    /// The most problems to keep. Later ones are only counted. The default is 1000.
    pub max_problems: usize,
    /// Called from time to time.
    pub progress: Option<Progress>,
}

impl Default for CheckOptions {
    fn default() -> Self {
        CheckOptions { max_problems: 1000, progress: None }
    }
}

/// A broken rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The rule's name, one of [`CheckReport::rules`].
    pub rule: &'static str,
    /// The fault and its place.
    pub text: String,
}

/// The findings of the check.
#[derive(Clone, Debug, Default)]
pub struct CheckReport {
    /// The first problems, in the order in which they were found.
    pub problems: Vec<Problem>,
    /// The number of problems, including those not kept.
    pub total_problems: u64,
    /// Notes on findings that break no rule.
    pub notes: Vec<String>,
    /// Regular files in the tree.
    pub files: u64,
    /// Directories in the tree, the root included.
    pub directories: u64,
    /// Symbolic links, devices, fifos and sockets in the tree.
    pub others: u64,
    /// Nodes in use: blocks that hold an inode or addresses.
    pub nodes: u64,
    /// Blocks in use, those of nodes included.
    pub blocks: u64,
    /// Orphans: files without a name that the next mount removes.
    pub orphans: u64,
    /// Whether the volume was not cleanly unmounted.
    pub unclean: bool,
    /// Every rule: name and one sentence.
    pub rules: &'static [(&'static str, &'static str)],
}

impl CheckReport {
    /// Whether every rule holds.
    pub fn is_clean(&self) -> bool {
        self.total_problems == 0
    }
}

/// How to repair.
#[derive(Clone, Copy, Debug, Default)]
pub struct RepairOptions {
    /// Report the changes and make none.
    pub dry_run: bool,
    /// The time that new structures get.
    pub now: Timespec,
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The kind of thing that is changed, such as `sit` or `dentry`.
    pub what: &'static str,
    /// Where it is.
    pub place: String,
    /// The old value.
    pub from: String,
    /// The new value.
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
    /// Problems were found, and all are corrected.
    Corrected,
    /// Problems are left: the last check reports them.
    Left,
}

/// The result of a repair.
#[derive(Clone, Debug)]
pub struct RepairReport {
    /// How it ended.
    pub outcome: Outcome,
    /// The number of changes made, or that a dry run would make.
    pub changes: u64,
    /// The number of checks that found problems, each followed by a repair.
    pub rounds: u32,
    /// Notes beside the changes.
    pub notes: Vec<String>,
    /// The last check.
    pub check: CheckReport,
}

/// The function that gets each change when it is decided.
pub type OnChange<'a> = &'a mut dyn FnMut(&Change);
