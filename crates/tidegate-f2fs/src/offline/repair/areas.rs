//! Mending the layout of an inode block.

use super::Repair;
use super::disk::Block;
use super::inode::at;
use crate::format::gate::Superblock;
use crate::format::raw::*;
use crate::offline::areas::Areas;

impl Repair<'_, '_> {
    /// Makes extra attributes and inline xattrs fit: what does not is set as the root has it.
    pub(super) fn mend_areas(&mut self, ino: u32, block: &mut Block) -> (Areas, bool) {
        if let Some(a) = areas(&self.sb, block) {
            let missing = a.words == 0 && block[at::INLINE] & inline::XATTR != 0;
            return if missing { self.mend_xattr_size(ino, block) } else { (a, false) };
        }
        let sizes = |b: &Block| le32(&b[..], I_ADDR_OFFSET);
        let (flags, was) = (block[at::INLINE], sizes(block));
        if self.sb.features.contains(Features::EXTRA_ATTR) {
            // What fits stays.
            let words =
                if flags & inline::XATTR != 0 { DEFAULT_INLINE_XATTR_ADDRS } else { self.usual.words };
            let guesses = [
                (self.usual.extra as u32, was >> 16),
                (was & 0xffff, words as u32),
                (self.usual.extra as u32, words as u32),
            ];
            for (extra, words) in guesses {
                put32(&mut block[..], I_ADDR_OFFSET, extra | words << 16);
                if areas(&self.sb, block).is_some() {
                    break;
                }
            }
        } else {
            block[at::INLINE] &= !inline::EXTRA_ATTR;
        }
        let (now, shown) = (sizes(block), |flags: u8, v: u32| {
            format!("flags {flags:#x}, sizes {} and {}", v & 0xffff, v >> 16)
        });
        self.inode_change(ino, "extra attributes", shown(flags, was), shown(block[at::INLINE], now));
        (areas(&self.sb, block).unwrap_or(self.usual), true)
    }

    /// Inline xattrs whose area has no size: the usual one, unless what lies there is something else.
    fn mend_xattr_size(&mut self, ino: u32, block: &mut Block) -> (Areas, bool) {
        let area = I_NID_OFFSET - 4 * DEFAULT_INLINE_XATTR_ADDRS..I_NID_OFFSET;
        let unused = block[area.clone()].iter().all(|b| *b == 0);
        let size = le32(&block[..], I_ADDR_OFFSET) & 0xffff;
        if unused || le32(&block[..], area.start) == F2FS_XATTR_MAGIC {
            put32(&mut block[..], I_ADDR_OFFSET, size | (DEFAULT_INLINE_XATTR_ADDRS as u32) << 16);
        }
        let a = areas(&self.sb, block).filter(|a| a.words != 0);
        let to = match a {
            Some(a) => a.words.to_string(),
            None => {
                put32(&mut block[..], I_ADDR_OFFSET, size);
                block[at::INLINE] &= !inline::XATTR;
                "none: no inline xattrs".into()
            }
        };
        self.inode_change(ino, "i_inline_xattr_size", "0".into(), to);
        (areas(&self.sb, block).unwrap_or(self.usual), true)
    }
}

/// Where things lie in an inode block; none when they do not fit.
pub(super) fn areas(sb: &Superblock, block: &[u8; BLOCK_SIZE]) -> Option<Areas> {
    Areas::of(sb, block).ok()
}
