//! [`VolumeOps`] for the volume.

use crate::volume::options::{DataMode, Ext4Options};
use crate::volume::sbi::Ext4;
use std::ops::Range;
use tidegate_rt::Distribution;
use tidegate_vfs::{CommitRun, CommitStats, Error, ErrorKind, Inode, Result, VolumeOps, VolumeStats};

impl VolumeOps for Ext4 {
    fn stats(&self) -> VolumeStats {
        self.stats_now()
    }

    fn commit(&self, _: bool) -> Result<()> {
        self.check_writable()?;
        self.settle_all()?;
        self.write_all()
    }

    fn commit_stats(&self) -> CommitStats {
        self.commit_stats_now()
    }

    fn recent_commits(&self) -> Vec<CommitRun> {
        self.recent_commits_now()
    }

    fn commit_times(&self) -> (Distribution, Distribution) {
        self.commit_times_now()
    }

    fn trim(&self, bytes: Range<u64>, minimum: u64) -> Result<u64> {
        self.trim_free(bytes, minimum)
    }

    fn fragments(&self, inode: &Inode) -> Result<u64> {
        self.count_fragments(inode)
    }

    fn remount(&self, options: &str) -> Result<()> {
        let mut to = Ext4Options::default();
        self.switches.read_into(&mut to);
        let (before, logs) = (to.journal, to.data == DataMode::Journal);
        let invalid = |what: String| Err(Error::new(ErrorKind::InvalidArgument, what));
        for option in options.split(',').filter(|o| !o.is_empty()) {
            if !to.set_known(option)? {
                return invalid(format!("ext4 has no switch for option \"{option}\""));
            }
            if to.journal != before {
                return invalid(format!("option \"{option}\": a journal is as it was opened"));
            }
            if (to.data == DataMode::Journal) != logs {
                // Otherwise each block's content could be in the log or in its place.
                let how = if logs { "in" } else { "past" };
                return invalid(format!(
                    "option \"{option}\": the volume was opened with its data {how} the journal"
                ));
            }
        }
        self.switches.turn(&to);
        if let Some(journal) = self.blocks.journal() {
            journal.set_interval(to.interval());
        }
        Ok(())
    }

    fn recovered(&self) -> u64 {
        // A journal has blocks in transactions, and does not know their owners.
        0
    }
}
