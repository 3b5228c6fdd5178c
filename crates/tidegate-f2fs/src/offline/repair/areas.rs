//! Repair of the layout of an inode block.

use super::Repair;
use super::disk::Block;
use crate::format::raw::*;
use crate::offline::areas::Areas;

impl Repair<'_, '_> {
    /// Makes extra attributes and inline xattrs fit: a field that does not fit gets the root inode's value.
    pub(super) fn mend_areas(&mut self, ino: u32, block: &mut Block) -> (Areas, bool) {
        if let Ok(a) = Areas::of(&self.sb, block) {
            let missing = a.words == 0 && RawInodeBlock::of(block).inode.i_inline & inline::XATTR != 0;
            return if missing { self.mend_xattr_size(ino, block) } else { (a, false) };
        }
        let (flags, was) = (RawInodeBlock::of(block).inode.i_inline, sizes(block));
        if self.sb.features.contains(Features::EXTRA_ATTR) {
            // Parts that fit stay.
            let words =
                if flags & inline::XATTR != 0 { DEFAULT_INLINE_XATTR_ADDRS } else { self.usual.words } as u16;
            let extra = self.usual.extra as u16;
            for guess in [(was.0, words), (extra, was.1), (extra, words)] {
                set_sizes(block, guess);
                if Areas::of(&self.sb, block).is_ok() {
                    break;
                }
            }
        } else {
            RawInodeBlock::of_mut(block).inode.i_inline &= !inline::EXTRA_ATTR;
        }
        let shown =
            |flags: u8, (extra, words): (u16, u16)| format!("flags {flags:#x}, sizes {extra} and {words}");
        let (now_flags, now) = (RawInodeBlock::of(block).inode.i_inline, sizes(block));
        self.inode_change(ino, "extra attributes", shown(flags, was), shown(now_flags, now));
        (Areas::of(&self.sb, block).unwrap_or(self.usual), true)
    }

    /// Gives a size to inline xattrs without one: the usual size, unless something else lies there.
    fn mend_xattr_size(&mut self, ino: u32, block: &mut Block) -> (Areas, bool) {
        let area = I_NID_OFFSET - 4 * DEFAULT_INLINE_XATTR_ADDRS..I_NID_OFFSET;
        let unused = block[area.clone()].iter().all(|b| *b == 0);
        let (extra, _) = sizes(block);
        if unused || RawXattrHeader::of(&block[area]).h_magic == F2FS_XATTR_MAGIC {
            set_sizes(block, (extra, DEFAULT_INLINE_XATTR_ADDRS as u16));
        }
        let a = Areas::of(&self.sb, block).ok().filter(|a| a.words != 0);
        let to = match a {
            Some(a) => a.words.to_string(),
            None => {
                set_sizes(block, (extra, 0));
                RawInodeBlock::of_mut(block).inode.i_inline &= !inline::XATTR;
                "none: no inline xattrs".into()
            }
        };
        self.inode_change(ino, "i_inline_xattr_size", "0".into(), to);
        (Areas::of(&self.sb, block).unwrap_or(self.usual), true)
    }
}

/// `i_extra_isize` and `i_inline_xattr_size`, whether the inode has them or not.
fn sizes(block: &Block) -> (u16, u16) {
    let extra = RawInodeBlock::of(block).extra();
    (extra.i_extra_isize.get(), extra.i_inline_xattr_size.get())
}

fn set_sizes(block: &mut Block, (extra, words): (u16, u16)) {
    if let Some(raw) = RawExtraAttr::of_mut(&mut block[..]) {
        (raw.i_extra_isize, raw.i_inline_xattr_size) = (extra.into(), words.into());
    }
}
