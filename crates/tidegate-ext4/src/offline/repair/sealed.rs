//! Nodes of extent trees whose checksum tells their inode, as it covers the inode's number.

use super::Repair;
use crate::format::crc::crc32c;
use crate::format::raw::*;
use crate::format::units::BlockAddr;
use crate::offline::bits::Bits;
use crate::offline::node::{Node, header};
use tidegate_vfs::Result;
use zerocopy::FromBytes;

/// Whether the checksum of a node is right for the inode with the checksum seed `seed`.
pub(super) fn is_sealed(seed: u32, node: &[u8]) -> bool {
    RawExtentTail::of(node).is_some_and(|(bytes, sum)| sum == crc32c(seed, bytes))
}

impl Repair<'_, '_> {
    /// Whether a node with a wrong checksum for its present inode belongs to another inode, by its checksum.
    /// Searches all inodes the first time.
    ///
    /// # Errors
    /// Those of the device.
    pub(super) fn is_anothers_node(&mut self, block: u64) -> Result<bool> {
        if self.sealed_nodes.is_none() {
            let mut found = Bits::new(self.sb.blocks);
            for g in 0..self.sb.groups {
                let per = self.sb.inodes_per_group;
                for slot in 0..per - self.descs[g as usize].unused(per) {
                    let n = self.node(g * per + slot + 1)?;
                    if n.raw.i_links_count.get() > 0 && n.has(InodeFlags::EXTENTS) && n.is_mapped() {
                        self.find_sealed(&n, &n.raw.i_block, &mut found)?;
                    }
                }
            }
            self.sealed_nodes = Some(found);
        }
        Ok(self.sealed_nodes.as_ref().is_some_and(|found| found.get(block)))
    }

    /// Finds the nodes below one that have the checksum of its inode. None is entered twice.
    fn find_sealed(&mut self, n: &Node, bytes: &[u8], found: &mut Bits) -> Result<()> {
        let Some(h) = header(bytes) else { return Ok(()) };
        if h.eh_magic.get() != EXTENT_MAGIC || !(1..=MAX_DEPTH).contains(&h.eh_depth.get()) {
            return Ok(());
        }
        let entries = bytes[EXTENT_ENTRY..].chunks_exact(EXTENT_ENTRY).take(h.eh_entries.get().into());
        for e in entries.filter_map(|e| RawExtentIndex::read_from_bytes(e).ok()) {
            if !self.sb.holds(BlockAddr(e.leaf()), 1) || self.meta.get(e.leaf()) {
                continue;
            }
            let child = self.disk.block(e.leaf())?;
            // The depth must fall from node to node, which ends a chain that was made to be deep.
            let below = header(&child)
                .is_some_and(|c| c.eh_magic.get() == EXTENT_MAGIC && c.eh_depth.get() < h.eh_depth.get());
            if below && is_sealed(n.seed, &child) && found.set(e.leaf()) {
                self.find_sealed(n, &child, found)?;
            }
        }
        Ok(())
    }
}
