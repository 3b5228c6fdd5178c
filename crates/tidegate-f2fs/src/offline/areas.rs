//! The layout of an inode block: extra attributes, addresses or inline content, inline xattrs.

use crate::format::gate::Superblock;
use crate::format::raw::*;

/// Bytes of extra attributes up to and including the inline xattr size.
const MIN_EXTRA: usize = 4;
/// Fewest bytes of an inline area that holds entries.
const MIN_INLINE_DENTRY: usize = 40;
/// 4-byte words of `i_addr`, `i_nid` excluded.
const WORDS: usize = DEF_ADDRS_PER_INODE;

/// The places of the parts of an inode block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Areas {
    /// Bytes of extra attributes.
    pub(super) extra: usize,
    /// 4-byte words of the inline xattr area.
    pub(super) words: usize,
}

impl Areas {
    /// The areas that an inode block describes.
    ///
    /// # Errors
    /// A sentence, where they do not fit.
    pub(super) fn of(sb: &Superblock, block: &[u8; BLOCK_SIZE]) -> Result<Areas, String> {
        let raw = RawInodeBlock::of(block);
        let flags = raw.inode.i_inline;
        let (mut extra, mut flexible) = (0, None);
        if flags & inline::EXTRA_ATTR != 0 {
            if !sb.features.contains(Features::EXTRA_ATTR) {
                return Err("extra attributes on a volume without that feature".into());
            }
            extra = usize::from(raw.extra().i_extra_isize.get());
            if !(MIN_EXTRA..=EXTRA_ISIZE).contains(&extra) || !extra.is_multiple_of(4) {
                return Err(format!("i_extra_isize is {extra}"));
            }
            flexible = Some(usize::from(raw.extra().i_inline_xattr_size.get()));
        }
        let words = match flexible {
            Some(words) if sb.features.contains(Features::FLEXIBLE_INLINE_XATTR) => words,
            _ if flags & (inline::XATTR | inline::DENTRY) != 0 => DEFAULT_INLINE_XATTR_ADDRS,
            _ => 0,
        };
        // fsck.f2fs counts the largest extra attributes, whatever the inode has.
        let most = WORDS - EXTRA_ISIZE / 4 - DEF_INLINE_RESERVED_SIZE - MIN_INLINE_DENTRY / 4;
        if words > most {
            return Err(format!("i_inline_xattr_size is {words}, at most {most} fit"));
        }
        Ok(Areas { extra, words })
    }

    /// Block addresses in the inode.
    pub(super) fn addrs(self) -> usize {
        WORDS - self.extra / 4 - self.words
    }

    /// The word where the block addresses begin.
    pub(super) fn base(self) -> usize {
        I_ADDR_OFFSET + self.extra
    }

    /// Where inline data begins.
    pub(super) fn inline_at(self) -> usize {
        self.base() + 4 * DEF_INLINE_RESERVED_SIZE
    }

    /// Bytes of inline data that fit.
    pub(super) fn inline_max(self) -> usize {
        4 * (self.addrs() - DEF_INLINE_RESERVED_SIZE)
    }
}
