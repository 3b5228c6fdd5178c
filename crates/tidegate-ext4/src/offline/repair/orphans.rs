//! Orphans: files without a name are freed, files that were being truncated are truncated.
//!
//! Times of deletion link the list. They stay unchanged until the list is cleared, so that an interrupted
//! repair finds the list again; the next round sets them.

use super::Repair;
use super::disk::Stage;
use crate::format::crc::crc32c;
use crate::format::raw::*;
use crate::offline::node::Node;
use tidegate_vfs::Result;
use zerocopy::IntoBytes;

impl Repair<'_, '_> {
    /// Follows the list of orphans through the inodes' times of deletion, and reads the orphan file.
    pub(super) fn load_orphans(&mut self) -> Result<()> {
        let mut at = self.sb.raw.s_last_orphan.get();
        while at != 0 {
            if !self.add_orphan(at)? {
                self.tell("orphan", "list", format!("inode {at}"), "ends there");
                return self.load_orphan_file();
            }
            at = self.node(at)?.raw.i_dtime.get();
        }
        self.load_orphan_file()
    }

    /// Adds inode `ino` to the orphans; false if it cannot be one, or was added before.
    fn add_orphan(&mut self, ino: u32) -> Result<bool> {
        let known = (self.sb.first_ino..=self.sb.raw.s_inodes_count.get()).contains(&ino);
        if !known || ino == self.sb.raw.s_orphan_file_inum.get() {
            return Ok(false);
        }
        Ok(self.node(ino)?.raw.i_mode.get() != 0 && self.orphans.insert(ino))
    }

    fn orphan_file(&mut self) -> Result<Option<Node>> {
        let ino = self.sb.raw.s_orphan_file_inum.get();
        let there = self.sb.compat.contains(Compat::ORPHAN_FILE) && self.sb.names_orphan_file();
        if there { self.node(ino).map(Some) } else { Ok(None) }
    }

    /// Removes the feature if the superblock names an impossible inode for the file.
    pub(super) fn mend_orphan_file(&mut self) {
        if self.sb.compat.contains(Compat::ORPHAN_FILE) && !self.sb.names_orphan_file() {
            let ino = self.sb.raw.s_orphan_file_inum.get();
            self.drop_orphan_file(format!("inode {ino} cannot be its inode"));
        }
    }

    /// Removes the feature, and reports the reason.
    pub(super) fn drop_orphan_file(&mut self, why: impl ToString) {
        self.tell("superblock", "orphan_file", why, "the feature is off");
        self.sb.compat -= Compat::ORPHAN_FILE;
        self.sb.raw.s_feature_compat = self.sb.compat.bits().into();
        self.sb.raw.s_orphan_file_inum = 0.into();
    }

    fn load_orphan_file(&mut self) -> Result<()> {
        let Some(node) = self.orphan_file()? else { return Ok(()) };
        if !self.sb.ro_compat.contains(RoCompat::ORPHAN_PRESENT) {
            return Ok(());
        }
        let map = self.map(&node, false)?;
        for run in map.runs {
            for block in run.start..run.start + run.len {
                let bytes = self.disk.block(block)?;
                let Some(tail) = RawOrphanTail::of(&bytes) else { continue };
                let end = RawOrphanTail::offset(&bytes);
                let sum = crc32c(crc32c(node.seed, &block.to_le_bytes()), &bytes[..end]);
                let sealed = !self.sb.has_csum() || sum == tail.ob_checksum.get();
                if tail.ob_magic.get() != ORPHAN_MAGIC || !sealed {
                    continue;
                }
                for (_, ino) in RawOrphanTail::numbers(&bytes) {
                    if !self.add_orphan(ino)? {
                        self.tell("orphan", "file", format!("inode {ino}"), "left out");
                    }
                }
            }
        }
        Ok(())
    }

    /// Clears the list, and empties the orphan file.
    pub(super) fn end_orphans(&mut self) -> Result<()> {
        for ino in self.orphans.clone() {
            let links = self.node(ino)?.raw.i_links_count.get();
            let to = if links == 0 { "freed" } else { "cut to its size" };
            self.tell("orphan", format!("inode {ino}"), "without a name, or being cut", to);
        }
        let Some(node) = self.orphan_file()? else { return Ok(()) };
        let map = self.map(&node, false)?;
        let bs = self.sb.block_size as usize;
        for block in map.runs.iter().flat_map(|r| r.start..r.start + r.len) {
            let mut bytes = vec![0; bs];
            let end = RawOrphanTail::offset(&bytes);
            let sum = crc32c(crc32c(node.seed, &block.to_le_bytes()), &bytes[..end]);
            let sum = if self.sb.has_csum() { sum } else { 0 };
            let tail = RawOrphanTail { ob_magic: ORPHAN_MAGIC.into(), ob_checksum: sum.into() };
            bytes[end..].copy_from_slice(tail.as_bytes());
            let before = self.disk.block(block)?;
            let same = before[..end] == bytes[..end]
                && RawOrphanTail::of(&before).is_some_and(|tail| tail.ob_magic.get() == ORPHAN_MAGIC)
                && (!self.sb.has_csum() || before[end..] == bytes[end..]);
            if !same {
                self.tell(
                    "orphan",
                    format!("block {block} of the orphan file"),
                    "in use or damaged",
                    "empty",
                );
                self.disk.put(block, Stage::Last, bytes)?;
            }
        }
        Ok(())
    }
}
