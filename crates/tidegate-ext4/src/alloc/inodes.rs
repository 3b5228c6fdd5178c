//! Allocates inodes near their directory, and frees them.
//!
//! [`super::orlov`] chooses the group.

use super::bitmap::{clear_in, fill, first_clear, is_set};
use super::blocks::no_room;
use super::damaged::{Bitmap, costs_group};
use crate::format::gate::{GroupDesc, rule};
use crate::format::raw::GroupFlags;
use crate::format::units::GroupNo;
use crate::volume::handle::Handle;
use crate::volume::sbi::Ext4;
use tidegate_vfs::{Error, ErrorKind, Inode, Result};

/// Unreadable blocks of a group's table after which a creation leaves the group: each costs the device's
/// time-out while the group is locked. The next creation goes on behind them.
const UNREAD_AT_ONCE: u32 = 8;

impl Ext4 {
    /// Takes an inode for a new file in directory `parent`. Passes over groups whose bitmap is damaged or
    /// cannot be read, and over inodes whose block of the table cannot be read.
    ///
    /// # Errors
    /// `NoSpace`, which says so, also where such a group is all that might have one; those of reading
    /// descriptors, and tables where no other inode is free.
    pub(crate) fn take_inode(&self, handle: &mut Handle<'_>, parent: &Inode, is_dir: bool) -> Result<u32> {
        let mut passed = None;
        for group in self.groups_for_inode(parent, is_dir)? {
            let desc = self.group(group)?;
            if desc.free_inodes == 0 {
                self.note_full(group)?;
                continue;
            }
            if let Some(e) = self.damage_of(Bitmap::Inodes, &desc) {
                passed = Some(no_room(Some(e)));
                continue;
            }
            if let Some(ino) = self.take_inode_in(handle, group, is_dir, &mut passed)? {
                return Ok(ino);
            }
        }
        Err(passed.unwrap_or_else(|| {
            let what = format!("all {} inodes are in use", self.sb.raw.s_inodes_count.get());
            Error::new(ErrorKind::NoSpace, what)
        }))
    }

    /// Has later creations pass over a group that has no free inode.
    fn note_full(&self, group: GroupNo) -> Result<()> {
        let flex = self.flex_groups()?;
        if flex.is_first(group) {
            let _lock = self.group_locks.lock(group);
            if self.group(group)?.free_inodes == 0 {
                flex.pass(group);
            }
        }
        Ok(())
    }

    fn take_inode_in(
        &self,
        handle: &mut Handle<'_>,
        group: GroupNo,
        is_dir: bool,
        passed: &mut Option<Error>,
    ) -> Result<Option<u32>> {
        let _lock = self.lock_group(handle, group, Bitmap::Inodes)?;
        let desc = self.group(group)?;
        let mut map = match self.inode_bitmap(&desc) {
            Err(e) if costs_group(&e) => {
                self.pass_over(Bitmap::Inodes, &desc, &e);
                *passed = Some(no_room(Some(e)));
                return Ok(None);
            }
            map => map?,
        };
        // The first inodes of the first group are the volume's own.
        let first = if group.0 == 0 { self.sb.first_ino - 1 } else { 0 };
        let Some(bit) = self.hold_free_inode(handle, &desc, &map, first, passed)? else { return Ok(None) };
        fill(&mut map, bit..bit + 1, true);
        let used = self.sb.inodes_per_group - bit - 1;
        self.store_inode_bitmap(handle, &desc, &map, -1, is_dir, desc.itable_unused.min(used))?;
        Ok(Some(group.0 * self.sb.inodes_per_group + bit + 1))
    }

    /// The first free inode of a group, from `first` on, whose block of the table can be read; that block is
    /// held for the change. Unreadable blocks are remembered, so that no later creation waits for the device
    /// to report them again. A block that may never have been written is not passed over: from then on it
    /// would count as used, with whatever it holds.
    fn hold_free_inode(
        &self,
        handle: &mut Handle<'_>,
        desc: &GroupDesc,
        map: &[u8],
        mut first: u32,
        passed: &mut Option<Error>,
    ) -> Result<Option<u32>> {
        let per_block = self.sb.block_size / self.sb.inode_size;
        let (mut unread, never_written) = (0, self.never_written(desc));
        while let Some(bit) = first_clear(map, first..self.sb.inodes_per_group) {
            let block = desc.inode_table.plus((bit / per_block).into());
            let behind = (bit / per_block + 1) * per_block;
            let is_end = behind > never_written;
            let why = match self.unread_table(block) {
                Some(known) => known,
                None => match self.hold_inode(handle, desc.group.0 * self.sb.inodes_per_group + bit + 1) {
                    Ok(()) => return Ok(Some(bit)),
                    // An error of the journal is not an error of the block.
                    Err(e) if self.blocks.read(block).is_ok() => return Err(e),
                    Err(e) => {
                        let end = if is_end { self.sb.inodes_per_group } else { behind };
                        self.pass_over_table(block, clear_in(map, bit..end), &e);
                        unread += 1;
                        e
                    }
                },
            };
            *passed = Some(why);
            if is_end || unread == UNREAD_AT_ONCE {
                return Ok(None);
            }
            first = behind;
        }
        Ok(None)
    }

    /// The first inode of a group's table from which on nothing may ever have been written.
    pub(super) fn never_written(&self, desc: &GroupDesc) -> u32 {
        let all = self.sb.inodes_per_group;
        match desc.flags {
            _ if !self.sb.has_group_csum() => all,
            flags if flags.contains(GroupFlags::INODE_ZEROED) => all,
            flags if flags.contains(GroupFlags::INODE_UNINIT) => 0,
            _ => all - desc.itable_unused,
        }
    }

    /// Frees an inode. An inode of a group whose bitmap is damaged, cannot be read, or has the inode as free,
    /// stays as it is for e2fsck.
    ///
    /// # Errors
    /// Those of the journal.
    pub(crate) fn free_inode(&self, handle: &mut Handle<'_>, ino: u32, is_dir: bool) -> Result<()> {
        let (group, bit) = self.inode_group(ino);
        let _lock = self.lock_group(handle, group, Bitmap::Inodes)?;
        let desc = self.group(group)?;
        if self.frees_nothing(Bitmap::Inodes, &desc) {
            self.leave_in_use();
            return Ok(());
        }
        let found = self.inode_bitmap(&desc).and_then(|map| {
            self.was_read(Bitmap::Inodes, &desc);
            rule(is_set(&map, bit), "it is free, and is freed").map_err(|e| e.in_inode(ino))?;
            Ok(map)
        });
        let mut map = match found {
            Ok(map) => map,
            Err(e) => {
                self.pass_over(Bitmap::Inodes, &desc, &e);
                self.leave_in_use();
                return Ok(());
            }
        };
        fill(&mut map, bit..bit + 1, false);
        self.store_inode_bitmap(handle, &desc, &map, 1, is_dir, desc.itable_unused)
    }

    /// Stores a bitmap, its checksum and the counts; `freed` more inodes are free than before.
    pub(super) fn store_inode_bitmap(
        &self,
        handle: &mut Handle<'_>,
        desc: &GroupDesc,
        map: &[u8],
        freed: i32,
        is_dir: bool,
        unused: u32,
    ) -> Result<()> {
        self.hold_desc(handle, desc.group)?;
        handle.replace(desc.inode_bitmap, map)?;
        let csum = self.bitmap_csum(&map[..self.sb.inodes_per_group as usize / 8]);
        let dirs = if is_dir { -freed } else { 0 };
        let was_uninit = desc.flags.contains(GroupFlags::INODE_UNINIT);
        // The table of an uninitialised group was never counted: all of it is unused except for the inode
        // that is taken now.
        let unused = if was_uninit && freed < 0 { unused.min(self.sb.inodes_per_group - 1) } else { unused };
        self.change_desc(handle, desc.group, |d| {
            d.clear(GroupFlags::INODE_UNINIT);
            d.set_free_inodes(desc.free_inodes.saturating_add_signed(freed));
            d.set_used_dirs(desc.used_dirs.saturating_add_signed(dirs));
            if self.sb.has_group_csum() {
                d.set_itable_unused(unused);
            }
            if self.sb.has_csum() {
                d.set_inode_bitmap_csum(csum);
            }
        })?;
        self.flex_groups()?.change(desc.group, freed.into(), dirs.into());
        self.space()?.change(|f| {
            f.inodes = f.inodes.saturating_add_signed(freed.into());
            f.directories = f.directories.saturating_add_signed(dirs.into());
        });
        Ok(())
    }
}
