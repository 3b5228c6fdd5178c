//! [`VolumeOps`] for the volume.

use crate::volume::sbi::Ext4;
use std::ops::Range;
use tidegate_rt::Distribution;
use tidegate_vfs::{CommitStats, Error, ErrorKind, Inode, Result, VolumeOps, VolumeStats};

impl VolumeOps for Ext4 {
    fn stats(&self) -> VolumeStats {
        VolumeStats::default()
    }

    fn commit(&self, _: bool) -> Result<()> {
        self.check_writable()?;
        self.write_all()
    }

    fn commit_stats(&self) -> CommitStats {
        CommitStats::default()
    }

    fn commit_times(&self) -> (Distribution, Distribution) {
        Default::default()
    }

    fn trim(&self, _: Range<u64>, _: u64) -> Result<u64> {
        self.check_writable()?;
        Err(Error::new(ErrorKind::Unsupported, "ext4 volumes are not trimmed yet"))
    }

    fn fragments(&self, inode: &Inode) -> Result<u64> {
        self.count_fragments(inode)
    }

    fn remount(&self, options: &str) -> Result<()> {
        match options.split(',').find(|o| !o.is_empty()) {
            None => Ok(()),
            Some(option) => {
                let what = format!("ext4 has no switch for option \"{option}\"");
                Err(Error::new(ErrorKind::InvalidArgument, what))
            }
        }
    }

    fn recovered(&self) -> u64 {
        // A journal has blocks in transactions, and does not know whose they are.
        0
    }
}
