//! Features that a volume gets when they are first needed, as in Linux: a program that does not know such a
//! feature must not change the volume.

use crate::format::raw::{Compat, GOOD_OLD_FIRST_INO, GOOD_OLD_INODE_SIZE, RawSuperblock, RoCompat};
use crate::volume::handle::Handle;
use crate::volume::sbi::Ext4;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use tidegate_vfs::Result;

/// Features that the superblock has now and did not have when the volume was opened.
#[derive(Default)]
pub(crate) struct Announced {
    xattrs: AtomicBool,
    large_file: AtomicBool,
}

impl Ext4 {
    /// Called before an inode gets a block of attributes.
    ///
    /// # Errors
    /// Those of changing the superblock.
    pub(crate) fn announce_xattrs(&self, handle: &mut Handle<'_>) -> Result<()> {
        if self.sb.compat.contains(Compat::EXT_ATTR) || self.announced.xattrs.swap(true, Relaxed) {
            return Ok(());
        }
        let bit = Compat::EXT_ATTR.bits();
        let done = self.announce(handle, |raw| raw.s_feature_compat.set(raw.s_feature_compat.get() | bit));
        done.inspect_err(|_| self.announced.xattrs.store(false, Relaxed))
    }

    /// Called before a file gets longer than 31 bits can count.
    ///
    /// # Errors
    /// Those of changing the superblock.
    pub(crate) fn announce_large_file(&self, handle: &mut Handle<'_>) -> Result<()> {
        if self.sb.ro_compat.contains(RoCompat::LARGE_FILE) || self.announced.large_file.swap(true, Relaxed) {
            return Ok(());
        }
        let bit = RoCompat::LARGE_FILE.bits();
        let done =
            self.announce(handle, |raw| raw.s_feature_ro_compat.set(raw.s_feature_ro_compat.get() | bit));
        done.inspect_err(|_| self.announced.large_file.store(false, Relaxed))
    }

    /// Makes a volume of revision 0, which has no features, one of revision 1, with the values that revision
    /// 0 implies.
    fn announce(&self, handle: &mut Handle<'_>, f: impl Fn(&mut RawSuperblock)) -> Result<()> {
        self.change_super_in(handle, |raw| {
            if raw.s_rev_level.get() == 0 {
                raw.s_rev_level.set(1);
                raw.s_first_ino.set(GOOD_OLD_FIRST_INO);
                raw.s_inode_size.set(GOOD_OLD_INODE_SIZE);
            }
            f(raw);
        })
    }
}
