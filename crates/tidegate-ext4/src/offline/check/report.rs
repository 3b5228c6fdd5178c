//! Findings of a check so far.

use tidegate_vfs::offline::Problem;

/// Gathers problems up to a limit.
pub(super) struct Findings {
    pub(super) problems: Vec<Problem>,
    pub(super) total: u64,
    /// The number of problems of hash trees.
    pub(super) trees: u64,
    pub(super) notes: Vec<String>,
    max: usize,
}

impl Findings {
    pub(super) fn new(max: usize) -> Self {
        Findings { problems: Vec::new(), total: 0, trees: 0, notes: Vec::new(), max }
    }

    /// Notes a problem; `text` is called only when the problem is kept.
    pub(super) fn add(&mut self, rule: &'static str, text: impl FnOnce() -> String) {
        self.total += 1;
        self.trees += u64::from(rule.starts_with("htree"));
        if self.problems.len() < self.max {
            self.problems.push(Problem { rule, text: text() });
        }
    }

    /// Notes problems from which others may follow, before those.
    pub(super) fn add_first(&mut self, rule: &'static str, texts: impl Iterator<Item = String>) {
        let first: Vec<Problem> = texts.map(|text| Problem { rule, text }).collect();
        self.total += first.len() as u64;
        self.problems.splice(0..0, first);
        self.problems.truncate(self.max);
    }

    /// Notes a problem unless `holds`; returns `holds`.
    pub(super) fn require(&mut self, holds: bool, rule: &'static str, text: impl FnOnce() -> String) -> bool {
        if !holds {
            self.add(rule, text);
        }
        holds
    }
}
