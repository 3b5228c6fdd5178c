//! Findings of a check so far.

use tidegate_vfs::offline::Problem;

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

    /// Notes a problem; `text` is called only when the problem is kept.
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
