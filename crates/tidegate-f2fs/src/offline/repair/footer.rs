//! Footers of nodes, and the offset of the addresses in node blocks.

use super::Repair;
use crate::format::raw::*;
use crate::offline::areas::Areas;

/// A node's footer.
#[derive(Clone, Copy)]
pub(super) struct Footer {
    pub(super) nid: u32,
    pub(super) ino: u32,
    pub(super) ofs: u32,
}

impl Footer {
    pub(super) fn of(block: &[u8; BLOCK_SIZE]) -> Footer {
        let raw = RawNodeFooter::of(block);
        Footer { nid: raw.nid.get(), ino: raw.ino.get(), ofs: raw.ofs() }
    }

    pub(super) fn put(self, block: &mut [u8; BLOCK_SIZE]) {
        if let Some(raw) = RawNodeFooter::of_mut(block) {
            let flags = raw.flag.get() & ((1 << OFFSET_BIT_SHIFT) - 1);
            raw.nid = self.nid.into();
            raw.ino = self.ino.into();
            raw.flag = (flags | self.ofs << OFFSET_BIT_SHIFT).into();
        }
    }
}

impl Repair<'_, '_> {
    /// Whether `nid` is a possible number of a file's node.
    pub(super) fn known_nid(&self, nid: u32) -> bool {
        nid != 0 && nid < self.sb.max_nid && nid != self.sb.node_ino && nid != self.sb.meta_ino
    }

    /// The word where addresses begin in an inode block.
    pub(super) fn addr_base(&self, block: &[u8; BLOCK_SIZE]) -> usize {
        Areas::of(&self.sb, block).unwrap_or(self.usual).base()
    }
}
