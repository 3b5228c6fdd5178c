//! The commits of a run one by one, as the file system reports them.
//!
//! The file system remembers only the last commits, so it is asked again and again during a run. Each commit
//! is an operation [`JBD2_COMMIT`], whose time is that of locking, flushing and logging its transaction. The
//! slowest commits are events, too, with the time of each phase.

use crate::record::Recorder;
use crate::result::Event;
use crate::target::Target;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use tidegate_rt::Nanos;
use tidegate_vfs::CommitRun;

/// The name of a commit as an operation, and of a slow one as an event.
pub const JBD2_COMMIT: &str = "jbd2_commit";
/// Number of slow commits that are reported phase by phase.
pub const SLOWEST: usize = 10;

/// Commits since a time.
pub(crate) struct CommitLog {
    /// The newest commit seen.
    last: Option<u64>,
    runs: Vec<CommitRun>,
    /// Commits that the file system had forgotten before it was asked.
    missed: u64,
}

impl CommitLog {
    /// A log of the commits from now on.
    pub fn new(target: &dyn Target) -> Self {
        let last = target.recent_commits().last().map(|r| r.number);
        CommitLog { last, runs: Vec::new(), missed: 0 }
    }

    /// Takes new commits from the file system.
    pub fn look(&mut self, target: &dyn Target) {
        let recent = target.recent_commits();
        let new = recent.iter().filter(|r| self.last.is_none_or(|last| r.number > last));
        let before = self.runs.len();
        self.runs.extend(new);
        if let (Some(last), Some(first)) = (self.last, self.runs.get(before)) {
            self.missed += first.number - last - 1;
        }
        self.last = self.runs.last().map(|r| r.number).or(self.last);
    }

    /// The note for the report.
    pub fn note(&self) -> Option<String> {
        (self.missed > 0).then(|| format!("{} commits were too many at once to be measured", self.missed))
    }

    /// Adds the commits to the measurements.
    pub fn record(mut self, to: &mut Recorder) {
        for r in &self.runs {
            to.add(JBD2_COMMIT, 0, Nanos(r.at_ns), Nanos(r.at_ns + r.commit_ns));
        }
        self.runs.sort_by_key(|r| (Reverse(r.commit_ns), r.number));
        self.runs.iter().take(SLOWEST).for_each(|r| to.add_event(event(r, to.start())));
    }
}

fn event(r: &CommitRun, start: Nanos) -> Event {
    let values = [
        ("transaction", r.number),
        ("running", r.running_ns),
        ("locked", r.locked_ns),
        ("flushing", r.flushing_ns),
        ("logging", r.logging_ns),
        ("handles", r.handles),
        ("blocks", r.blocks),
    ];
    let values: BTreeMap<String, u64> = values.into_iter().map(|(k, v)| (k.to_string(), v)).collect();
    Event {
        at_ns: Nanos(r.at_ns).since(start).0,
        took_ns: r.commit_ns,
        name: JBD2_COMMIT.to_string(),
        values,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Result;
    use crate::target::{OpenHow, TargetFile};
    use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

    /// Remembers its last three commits; each lasts as many ms as its number.
    struct Three(AtomicU64);

    impl Target for Three {
        fn describe(&self) -> String {
            "three".into()
        }
        fn mkdir(&self, _: &str) -> Result<()> {
            unreachable!()
        }
        fn open(&self, _: &str, _: OpenHow) -> Result<Box<dyn TargetFile>> {
            unreachable!()
        }
        fn open_dir(&self, _: &str) -> Result<Box<dyn TargetFile>> {
            unreachable!()
        }
        fn touch(&self, _: &str) -> Result<()> {
            unreachable!()
        }
        fn unlink(&self, _: &str) -> Result<()> {
            unreachable!()
        }
        fn exists(&self, _: &str) -> Result<bool> {
            unreachable!()
        }
        fn remove_tree(&self, _: &str) -> Result<()> {
            unreachable!()
        }
        fn sync(&self) -> Result<()> {
            unreachable!()
        }
        fn recent_commits(&self) -> Vec<CommitRun> {
            let newest = self.0.load(SeqCst);
            let one = |number| CommitRun {
                number,
                at_ns: number * 1_000_000_000,
                commit_ns: number * 1_000_000,
                ..CommitRun::default()
            };
            (newest.saturating_sub(2).max(1)..=newest).map(one).collect()
        }
    }

    #[test]
    fn each_commit_is_counted_once_and_lost_ones_are_told() {
        let t = Three(AtomicU64::new(5));
        let mut log = CommitLog::new(&t);
        log.look(&t);
        for newest in [6, 6, 8] {
            t.0.store(newest, SeqCst);
            log.look(&t);
        }
        assert_eq!(
            (log.runs.iter().map(|r| r.number).collect::<Vec<_>>(), log.note()),
            (vec![6, 7, 8], None)
        );
        t.0.store(15, SeqCst);
        log.look(&t);
        assert_eq!(log.note().unwrap(), "4 commits were too many at once to be measured");
        let mut r = Recorder::new(Nanos(1_000_000_000), 1_000_000_000);
        log.record(&mut r);
        let (ops, _, events) = r.report();
        let of = &ops[JBD2_COMMIT].latency;
        assert_eq!((of.count, of.longest[0]), (6, 15_000_000));
        assert_eq!((events.len(), events[5].at_ns, events[5].took_ns), (6, 14_000_000_000, 15_000_000));
    }
}
