//! Changes of a group's descriptor, and the locks on groups.

use super::damaged::Bitmap;
use crate::format::gate::group::desc_csum;
use crate::format::raw::*;
use crate::format::units::{BlockAddr, GroupNo};
use crate::volume::handle::Handle;
use crate::volume::sbi::Ext4;
use tidegate_rt::{LockClass, Mutex, MutexGuard};
use tidegate_vfs::Result;
use zerocopy::IntoBytes;

static GROUP: LockClass = LockClass::new("ext4->group", 405);

/// Number of locks, which groups share.
const LOCKS: usize = 64;

/// A lock for each group; some groups share a lock.
pub(crate) struct GroupLocks([Mutex<()>; LOCKS]);

impl Default for GroupLocks {
    fn default() -> Self {
        GroupLocks(std::array::from_fn(|_| Mutex::new(&GROUP, ())))
    }
}

impl GroupLocks {
    /// Locks a group's bitmaps. A thread holds only one such lock.
    pub(super) fn lock(&self, group: GroupNo) -> MutexGuard<'_, ()> {
        self.0[group.0 as usize % LOCKS].lock()
    }
}

/// A descriptor's counts and checksums, for a change.
pub(super) struct DescChange {
    raw: RawGroupDesc,
}

macro_rules! halves {
    ($($(#[$m:meta])* $set:ident: $lo:ident, $hi:ident;)+) => {
        $($(#[$m])* pub(super) fn $set(&mut self, n: u32) {
            self.raw.$lo.set(n as u16);
            self.raw.$hi.set((n >> 16) as u16);
        })+
    };
}

impl DescChange {
    halves! {
        /// Free blocks.
        set_free_blocks: bg_free_blocks_count_lo, bg_free_blocks_count_hi;
        /// Free inodes.
        set_free_inodes: bg_free_inodes_count_lo, bg_free_inodes_count_hi;
        /// Directories.
        set_used_dirs: bg_used_dirs_count_lo, bg_used_dirs_count_hi;
        /// Inodes never used.
        set_itable_unused: bg_itable_unused_lo, bg_itable_unused_hi;
        /// Checksum of the block bitmap.
        set_block_bitmap_csum: bg_block_bitmap_csum_lo, bg_block_bitmap_csum_hi;
        /// Checksum of the inode bitmap.
        set_inode_bitmap_csum: bg_inode_bitmap_csum_lo, bg_inode_bitmap_csum_hi;
    }

    /// Clears flags: a table is written now.
    pub(super) fn clear(&mut self, flags: GroupFlags) {
        let now = GroupFlags::from_bits_retain(self.raw.bg_flags.get()) - flags;
        self.raw.bg_flags.set(now.bits());
    }
}

impl Ext4 {
    /// The block of the descriptor of `group`, and the offset in it.
    fn desc_place(&self, group: GroupNo) -> (BlockAddr, usize) {
        let per_block = self.sb.descs_per_block();
        let addr = self.sb.desc_block((group.0 / per_block).into());
        (addr, (group.0 % per_block * self.sb.desc_size) as usize)
    }

    /// Locks a group for a change of its bitmap. With `journal=jbd2`, the thread first waits while the bitmap or the
    /// descriptor is on its way to the log, and then takes the lock, as in Linux: other threads want the lock meanwhile.
    ///
    /// # Errors
    /// Those of reading the descriptor.
    pub(super) fn lock_group(
        &self,
        handle: &Handle<'_>,
        group: GroupNo,
        bitmap: Bitmap,
    ) -> Result<MutexGuard<'_, ()>> {
        if handle.waits_for_log() {
            let desc = self.group(group)?;
            handle.wait_for_log(self.desc_place(group).0);
            handle.wait_for_log(match bitmap {
                Bitmap::Blocks => desc.block_bitmap,
                Bitmap::Inodes => desc.inode_bitmap,
            });
        }
        Ok(self.group_locks.lock(group))
    }

    /// Takes a descriptor into a change, before its bitmap is changed.
    pub(super) fn hold_desc(&self, handle: &mut Handle<'_>, group: GroupNo) -> Result<()> {
        handle.hold(self.desc_place(group).0)
    }

    /// Changes the descriptor of `group`, whose lock is held.
    pub(super) fn change_desc(
        &self,
        handle: &mut Handle<'_>,
        group: GroupNo,
        mut f: impl FnMut(&mut DescChange),
    ) -> Result<()> {
        let sb = &self.sb;
        let (addr, at) = self.desc_place(group);
        let len = sb.desc_size as usize;
        handle.write(addr, |block| {
            let bytes = &mut block[at..at + len];
            let mut change = DescChange { raw: RawGroupDesc::default() };
            let n = len.min(DESC_SIZE_64);
            change.raw.as_mut_bytes()[..n].copy_from_slice(&bytes[..n]);
            f(&mut change);
            bytes[..n].copy_from_slice(&change.raw.as_bytes()[..n]);
            let csum = desc_csum(sb, group, bytes);
            bytes[DESC_CSUM_OFFSET..DESC_CSUM_OFFSET + 2].copy_from_slice(&csum.to_le_bytes());
        })
    }
}
