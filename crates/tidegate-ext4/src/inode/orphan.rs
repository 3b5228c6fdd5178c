//! Inodes without a name that are still in use, as a list on the volume. The superblock names the last inode
//! of the list, and each inode names the one before it, in the field that otherwise has the time of deletion.
//! The next mount frees the inodes on the list.

use super::Own;
use super::orphan_file::Noted;
use crate::format::gate::rule;
use crate::format::raw::*;
use crate::format::units::BlockAddr;
use crate::volume::handle::{Handle, HandleType};
use crate::volume::sbi::Ext4;
use std::collections::HashSet;
use std::mem::offset_of;
use tidegate_rt::{LockClass, Mutex};
use tidegate_vfs::{FileType, Ino, Inode, InodeParts, Result};

static ORPHANS: LockClass = LockClass::new("ext4->s_orphan_lock", 403);

/// An inode on the list, and its place in the table: a change of the list next to it need not look for the
/// place.
#[derive(Clone, Copy)]
struct Listed {
    ino: u32,
    at: (BlockAddr, usize),
}

#[derive(Default)]
struct Lists {
    /// The list; the inode that was added first comes first.
    listed: Vec<Listed>,
    /// The inodes that the orphan file held when the volume was opened.
    noted: Vec<(u32, Noted)>,
}

/// Inodes without a name.
pub(crate) struct Orphans(Mutex<Lists>);

impl Orphans {
    pub(crate) fn new() -> Self {
        Orphans(Mutex::new(&ORPHANS, Lists::default()))
    }
}

impl Ext4 {
    /// Whether orphans are listed on the volume: on a volume without a journal, e2fsck searches for them.
    fn lists_orphans(&self) -> bool {
        self.blocks.journal().is_some()
    }

    /// Whether there are inodes without a name that only e2fsck would find.
    pub(crate) fn has_unlisted_orphans(&self) -> bool {
        !self.lists_orphans() && !self.orphans.0.lock().listed.is_empty()
    }

    /// Puts an inode on the list. Its bytes in the table are stored.
    pub(crate) fn add_orphan(&self, handle: &mut Handle<'_>, ino: u32) -> Result<()> {
        let list = &mut self.orphans.0.lock().listed;
        if list.iter().any(|l| l.ino == ino) {
            return Ok(());
        }
        let new = Listed { ino, at: self.stored_at(handle, ino)? };
        if self.lists_orphans() {
            self.set_next_orphan(handle, new, list.last().map_or(0, |l| l.ino))?;
            self.set_last_orphan(handle, ino)?;
        }
        list.push(new);
        Ok(())
    }

    /// Takes the superblock, which names the last inode of the list, into a transaction before anything is
    /// changed; does nothing if there is no list.
    ///
    /// # Errors
    /// Those of reading it.
    pub(crate) fn hold_list(&self, handle: &mut Handle<'_>) -> Result<()> {
        if self.lists_orphans() { self.hold_super(handle) } else { Ok(()) }
    }

    /// Takes all blocks into a transaction, before anything is changed, that will change when the inode is
    /// put on the list or taken off it. If another inode comes to follow it on the list meanwhile, the block
    /// of that inode has changed in this transaction, and stays in memory.
    ///
    /// # Errors
    /// Those of reading it.
    pub(crate) fn hold_orphan(&self, handle: &mut Handle<'_>, ino: u32) -> Result<()> {
        let (noted, after) = {
            let lists = self.orphans.0.lock();
            let noted = lists.noted.iter().rfind(|(n, _)| *n == ino).map(|(_, noted)| noted.block());
            let at = lists.listed.iter().rposition(|l| l.ino == ino);
            (noted, at.and_then(|at| lists.listed.get(at + 1)).map(|after| after.at.0))
        };
        noted.map_or(Ok(()), |block| handle.hold(block))?;
        if !self.lists_orphans() {
            return Ok(());
        }
        self.hold_list(handle)?;
        self.hold_inode(handle, ino)?;
        after.map_or(Ok(()), |block| handle.hold(block))
    }

    /// Takes an inode off the list, or out of the orphan file.
    pub(crate) fn remove_orphan(&self, handle: &mut Handle<'_>, ino: u32) -> Result<()> {
        let mut lists = self.orphans.0.lock();
        if let Some(at) = lists.noted.iter().rposition(|(n, _)| *n == ino) {
            self.remove_noted(handle, lists.noted[at].1)?;
            lists.noted.remove(at);
        }
        let list = &mut lists.listed;
        let Some(at) = list.iter().rposition(|l| l.ino == ino) else { return Ok(()) };
        let before = at.checked_sub(1).map_or(0, |n| list[n].ino);
        if self.lists_orphans() {
            match list.get(at + 1) {
                Some(after) => self.set_next_orphan(handle, *after, before)?,
                None => self.set_last_orphan(handle, before)?,
            }
            self.set_next_orphan(handle, list[at], 0)?;
        }
        list.remove(at);
        Ok(())
    }

    fn set_last_orphan(&self, handle: &mut Handle<'_>, ino: u32) -> Result<()> {
        self.change_super_in(handle, |raw| raw.s_last_orphan.set(ino))
    }

    fn set_next_orphan(&self, handle: &mut Handle<'_>, of: Listed, next: u32) -> Result<()> {
        let (addr, at) = of.at;
        let (len, dtime) = (self.sb.inode_size as usize, offset_of!(RawInode, i_dtime));
        handle.write(addr, |block| {
            let bytes = &mut block[at..at + len];
            bytes[dtime..dtime + 4].copy_from_slice(&next.to_le_bytes());
            self.seal_inode(of.ino, bytes);
        })
    }

    /// The list on the volume; the inode that was added first comes first.
    ///
    /// # Errors
    /// `Corrupt` for an impossible list; those of the device.
    fn listed_orphans(&self) -> Result<Vec<Listed>> {
        let (mut list, mut seen) = (Vec::new(), HashSet::new());
        let mut ino = self.sb.raw.s_last_orphan.get();
        while ino != 0 {
            let can_be = ino >= self.sb.first_ino && ino <= self.sb.raw.s_inodes_count.get();
            rule(can_be && seen.insert(ino), "the list of orphans has it twice, or cannot have it")
                .map_err(|e| e.in_inode(ino))?;
            list.push(Listed { ino, at: self.inode_address(ino)? });
            let (block, at) = self.inode_place(ino)?;
            ino = le32(&block, at + offset_of!(RawInode, i_dtime));
        }
        list.reverse();
        Ok(list)
    }

    /// The numbers of the inodes on the volume's list and in its orphan file.
    ///
    /// # Errors
    /// As [`Ext4::clear_orphans`].
    pub(crate) fn orphan_numbers(&self) -> Result<HashSet<u32>> {
        let listed: Vec<u32> = self.listed_orphans()?.iter().map(|l| l.ino).collect();
        let noted = self.noted_orphans(&listed)?;
        Ok(noted.iter().map(|n| n.0).chain(listed).collect())
    }

    /// Frees the inodes without a name on the volume's list and in its orphan file. Cuts off the blocks
    /// behind the end of those with a name.
    ///
    /// # Errors
    /// Those of freeing; `Corrupt`.
    pub(crate) fn clear_orphans(&self, bdi: &std::sync::Arc<tidegate_vfs::Bdi>) -> Result<()> {
        let listed = self.listed_orphans()?;
        let numbers: Vec<u32> = listed.iter().map(|l| l.ino).collect();
        let noted = self.noted_orphans(&numbers)?;
        let list: Vec<u32> = noted.iter().map(|n| n.0).chain(numbers).collect();
        *self.orphans.0.lock() = Lists { listed, noted };
        for ino in list.into_iter().rev() {
            let (attr, own) = self.load_any(ino).map_err(|e| e.of("freeing an orphan"))?;
            let parts = InodeParts { ino: Ino(ino.into()), attr, private: Own::new(&self.sb, own, None) };
            let inode = std::sync::Arc::new(Inode::new(parts, bdi.clone(), 1));
            if inode.nlink() == 0 {
                self.evict(&inode)?;
            } else {
                if inode.file_type == FileType::Regular {
                    let (size, time) = (inode.size(), inode.attr().mtime);
                    self.set_size(&inode, size, time)?;
                }
                self.op(HandleType::Truncate, |handle| self.remove_orphan(handle, ino))?;
            }
        }
        self.forget_noted()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volume::options::Ext4Options;
    use std::sync::Arc;
    use tidegate_block::{Errno, Fault, Faulty, MemoryDevice, Op, QueueLimits, RequestQueue, Rule};
    use tidegate_testing::ext4::{made, scratch};
    use tidegate_testing::oracle::skip_or_fail;
    use tidegate_vfs::{Bdi, MemoryLimits};

    /// Another inode comes to follow a held one on the list, its descriptor leaves memory, and nothing can be
    /// read.
    #[test]
    fn an_inode_leaves_the_list_whoever_has_come_to_follow_it() {
        if skip_or_fail("mke2fs") {
            return;
        }
        let args = ["-t", "ext4", "-b", "1024", "-g", "256"];
        let bytes = made(&scratch("orphans").unwrap(), 16 << 20, &args).unwrap();
        let faulty = Faulty::new(Arc::new(MemoryDevice::from_bytes(&bytes)), []);
        let queue = Arc::new(RequestQueue::new(faulty.clone(), QueueLimits::default()));
        let bdi = Bdi::new(MemoryLimits { cache: 1 << 20, ..MemoryLimits::default() });
        let fs = Ext4::open(queue, bdi, Ext4Options::default()).unwrap();
        // The descriptors of the two inodes lie in different blocks.
        let (held, other) = (12, 40 * fs.sb.inodes_per_group + 1);
        fs.op(HandleType::Misc, |handle| fs.add_orphan(handle, held)).unwrap();
        fs.op(HandleType::Misc, |handle| {
            fs.hold_orphan(handle, held)?;
            fs.op(HandleType::Misc, |handle| {
                fs.hold_orphan(handle, other)?;
                fs.add_orphan(handle, other)
            })?;
            for block in 8000..12_000 {
                fs.blocks.read(BlockAddr(block))?;
            }
            faulty.set([Rule::new(Fault::Fail(Errno::IO)).op(Op::Read)]);
            assert!(fs.group(fs.inode_group(other).0).is_err(), "its descriptor is in memory");
            fs.remove_orphan(handle, held)
        })
        .unwrap();
        let left: Vec<u32> = fs.orphans.0.lock().listed.iter().map(|l| l.ino).collect();
        assert_eq!(left, [other]);
    }
}
