//! [`VolumeOps`] for the volume.

use crate::volume::options::{F2fsOptions, FsyncMode, spelling};
use crate::volume::sbi::F2fs;
use std::ops::Range;
use tidegate_rt::Distribution;
use tidegate_vfs::{CommitStats, Error, ErrorKind, Inode, Result, VolumeOps, VolumeStats};

impl VolumeOps for F2fs {
    fn stats(&self) -> VolumeStats {
        self.stats.snapshot()
    }

    fn commit(&self, force: bool) -> Result<()> {
        self.write_checkpoint(force)
    }

    fn commit_stats(&self) -> CommitStats {
        self.ckpt_stats()
    }

    fn commit_times(&self) -> (Distribution, Distribution) {
        self.ckpt_times()
    }

    fn trim(&self, bytes: Range<u64>, minimum: u64) -> Result<u64> {
        F2fs::trim(self, bytes, minimum)
    }

    fn discard_now(&self) {
        F2fs::discard_now(self);
    }

    fn fragments(&self, inode: &Inode) -> Result<u64> {
        self.fragments_of(inode)
    }

    fn remount(&self, options: &str) -> Result<()> {
        let mut to = F2fsOptions::default();
        self.switches.read_into(&mut to);
        for option in options.split(',').filter(|o| !o.is_empty()) {
            if !to.set_switch(&spelling(option))? {
                let what = format!("f2fs has no switch for option \"{option}\"");
                return Err(Error::new(ErrorKind::InvalidArgument, what));
            }
        }
        to.check_streams()?;
        let flushes = |mode| mode != FsyncMode::Nobarrier;
        let begins = !flushes(self.switches.fsync_mode()) && flushes(to.fsync_mode);
        self.turn(&to);
        // A file that was fsynced before has nothing to write, and its next fsync would send no flush.
        if begins && self.check_writable().is_ok() { self.flush_device() } else { Ok(()) }
    }

    fn clean(&self, sync: bool) -> Result<bool> {
        self.garbage_collect(sync)
    }

    fn recovered(&self) -> u64 {
        F2fs::recovered(self)
    }
}

#[cfg(test)]
mod tests {
    use crate::testing;
    use crate::volume::options::{FsyncMode, IoPriority};
    use tidegate_vfs::VolumeOps;

    #[test]
    fn a_remount_turns_what_it_names_or_nothing() {
        let fs = testing::new_volume().fs;
        VolumeOps::remount(&*fs, "fsync_mode=strict,ckpt_thread_ioprio=rt/1").unwrap();
        VolumeOps::remount(&*fs, "nodiscard").unwrap();
        let now = || (fs.switches.fsync_mode(), fs.switches.ckpt_thread_ioprio(), fs.switches.discard());
        let turned = (FsyncMode::Strict, IoPriority { class: 1, level: 1 }, false);
        assert_eq!(now(), turned);
        for wrong in [
            "discard,fsync_mode=none",
            "discard,norecovery",
            "discard,cache=1M",
            "discard,hot_streams=5,warm_streams=8",
        ] {
            assert!(VolumeOps::remount(&*fs, wrong).is_err());
            assert_eq!(now(), turned, "{wrong}");
        }
    }
}
