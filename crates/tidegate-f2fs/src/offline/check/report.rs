//! What a check is asked for and what it tells.

/// Told how far the check is: nodes done and nodes in all, the latter as the checkpoint counts them.
pub type Progress = Box<dyn FnMut(u64, u64)>;

/// How to check.
pub struct CheckOptions {
    /// Problems to keep; what comes after them is counted only. 1000 unless told.
    pub max_problems: usize,
    /// Called now and then.
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
    /// What is wrong and where.
    pub text: String,
}

/// What the check found.
#[derive(Clone, Debug, Default)]
pub struct CheckReport {
    /// The first problems, in the order in which they were found.
    pub problems: Vec<Problem>,
    /// Problems, those not kept included.
    pub total_problems: u64,
    /// Things to know that break no rule.
    pub notes: Vec<String>,
    /// Regular files in the tree.
    pub files: u64,
    /// Directories in the tree, the root included.
    pub directories: u64,
    /// Symbolic links, devices, fifos and sockets in the tree.
    pub others: u64,
    /// Nodes in use.
    pub nodes: u64,
    /// Blocks of the main area in use, nodes included.
    pub blocks: u64,
    /// Orphans: files without a name that the next mount removes.
    pub orphans: u64,
    /// Whether the last checkpoint is not one of a clean unmount.
    pub unclean: bool,
    /// Every rule there is: name and one sentence.
    pub rules: &'static [(&'static str, &'static str)],
}

impl CheckReport {
    /// Whether every rule holds.
    pub fn is_clean(&self) -> bool {
        self.total_problems == 0
    }
}

/// Gathers problems up to a limit.
pub(super) struct Findings {
    pub(super) problems: Vec<Problem>,
    pub(super) total: u64,
    pub(super) notes: Vec<String>,
    max: usize,
}

impl Findings {
    pub(super) fn new(max: usize) -> Self {
        Findings { problems: Vec::new(), total: 0, notes: Vec::new(), max }
    }

    /// Books a problem; `text` is only made when it is kept.
    pub(super) fn add(&mut self, rule: &'static str, text: impl FnOnce() -> String) {
        self.total += 1;
        if self.wanted() {
            self.problems.push(Problem { rule, text: text() });
        }
    }

    /// Whether the next problem will be kept.
    pub(super) fn wanted(&self) -> bool {
        self.problems.len() < self.max
    }
}
