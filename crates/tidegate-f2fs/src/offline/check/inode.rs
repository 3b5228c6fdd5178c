//! An inode by itself: its layout, checksum, flags and size.

use super::device::Block;
use super::{Checker, rules};
use crate::format::raw::*;
use crate::format::units::BlockAddr;
use crate::offline::areas::Areas;
use tidegate_vfs::Result;
use zerocopy::FromBytes;

/// The kind of file that an inode is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Regular,
    Directory,
    Symlink,
    /// Device, FIFO, socket: `i_addr` holds no addresses.
    Special,
}

/// `i_flags` of compressed files.
const COMPR_FL: u32 = 0x4;
/// `i_flags` of case-insensitive directories.
const CASEFOLD_FL: u32 = 0x4000_0000;
/// An inode, taken apart.
pub(super) struct Inode {
    pub(super) ino: u32,
    pub(super) block: Block,
    pub(super) raw: RawInode,
    pub(super) kind: Kind,
    /// Bytes of extra attributes.
    pub(super) extra: usize,
    /// Bytes of inline xattrs at the end of `i_addr`; 0 when the inode has none.
    pub(super) inline_xattr: usize,
    /// Where inline data begins in the block.
    pub(super) inline_at: usize,
    /// Bytes of inline data that fit.
    pub(super) inline_max: usize,
    /// Block addresses in the inode.
    pub(super) addrs: usize,
    /// Block addresses in a direct node.
    pub(super) addrs_per_node: usize,
    /// i_blocks and i_ext follow other rules: the file is compressed.
    pub(super) compressed: bool,
}

impl Inode {
    pub(super) fn has(&self, flag: u8) -> bool {
        self.raw.i_inline & flag != 0
    }

    /// Whether content is in the inode.
    pub(super) fn is_inline(&self) -> bool {
        self.has(inline::DATA | inline::DENTRY)
    }

    /// Names are ciphertext.
    pub(super) fn encrypted(&self) -> bool {
        self.raw.i_advise & advise::ENCRYPT != 0
    }

    /// Names are hashed by their folded form.
    pub(super) fn casefolded(&self) -> bool {
        self.raw.i_flags.get() & CASEFOLD_FL != 0
    }

    /// The dentry type that goes with the mode.
    pub(super) fn file_type(&self) -> u8 {
        match self.raw.i_mode.get() & 0xf000 {
            0x8000 => file_type::REG_FILE,
            0x4000 => file_type::DIR,
            0x2000 => file_type::CHRDEV,
            0x6000 => file_type::BLKDEV,
            0x1000 => file_type::FIFO,
            0xc000 => file_type::SOCK,
            0xa000 => file_type::SYMLINK,
            _ => file_type::UNKNOWN,
        }
    }
}

impl Checker<'_> {
    /// Takes the inode in `block` apart; none when its layout is impossible.
    pub(super) fn inode(&mut self, ino: u32, block: Block) -> Result<Option<Inode>> {
        let Ok((raw, _)) = RawInode::read_from_prefix(&block[..]) else { return Ok(None) };
        let mode = raw.i_mode.get();
        let kind = match mode & 0xf000 {
            0x8000 => Kind::Regular,
            0x4000 => Kind::Directory,
            0xa000 => Kind::Symlink,
            0x1000 | 0x2000 | 0x6000 | 0xc000 => Kind::Special,
            _ => {
                self.at(rules::INODE_MODE, ino, || format!("mode {mode:#o}"))?;
                return Ok(None);
            }
        };
        let areas = match Areas::of(&self.sb, &block) {
            Ok(areas) => areas,
            Err(what) => {
                self.at(rules::INODE_EXTRA, ino, || what)?;
                return Ok(None);
            }
        };
        let extra = areas.extra;
        let compressed = kind == Kind::Regular
            && raw.i_flags.get() & COMPR_FL != 0
            && self.sb.features.contains(Features::COMPRESSION);
        // A compressed file's clusters do not cross nodes.
        let cluster = if compressed && extra >= 34 {
            RawInodeBlock::of(&block).extra().i_log_cluster_size & 31
        } else {
            0
        };
        let align = |n: usize| n >> cluster << cluster;
        Ok(Some(Inode {
            ino,
            kind,
            extra,
            inline_xattr: if raw.i_inline & inline::XATTR != 0 { areas.words * 4 } else { 0 },
            inline_at: areas.inline_at(),
            inline_max: areas.inline_max(),
            addrs: align(areas.addrs()),
            addrs_per_node: align(ADDRS_PER_BLOCK),
            compressed,
            block,
            raw,
        }))
    }

    /// Checks the rules that need only the inode. `orphan`: Linux has begun to take it down.
    pub(super) fn check_inode(&mut self, i: &Inode, orphan: bool) -> Result<()> {
        self.check_inode_checksum(i)?;
        let namelen = i.raw.i_namelen.get();
        if namelen as usize > F2FS_NAME_LEN {
            self.at(rules::INODE_NAMELEN, i.ino, || format!("i_namelen is {namelen}"))?;
        }
        self.check_inline_flags(i)?;
        self.check_layout_words(i)?;
        if !orphan {
            self.check_size(i)?;
            self.check_target(i)?;
        }
        Ok(())
    }

    fn check_inode_checksum(&mut self, i: &Inode) -> Result<()> {
        let end = I_CHKSUM_OFFSET + 4 - I_ADDR_OFFSET;
        if !self.sb.features.contains(Features::INODE_CHKSUM) || i.extra < end {
            return Ok(());
        }
        let b = &i.block[..];
        let seed = f2fs_chksum(u32::MAX, &self.sb.raw.uuid);
        let seed = f2fs_chksum(seed, &i.ino.to_le_bytes());
        let seed = f2fs_chksum(seed, &i.raw.i_generation.get().to_le_bytes());
        let sum = f2fs_chksum(seed, &b[..I_CHKSUM_OFFSET]);
        let sum = f2fs_chksum(sum, &[0; 4]);
        let sum = f2fs_chksum(sum, &b[I_CHKSUM_OFFSET + 4..]);
        let stored = le32(b, I_CHKSUM_OFFSET);
        if sum != stored {
            self.at(rules::INODE_CHECKSUM, i.ino, || format!("the inode says {stored:#x}, it is {sum:#x}"))?;
        }
        Ok(())
    }

    fn check_inline_flags(&mut self, i: &Inode) -> Result<()> {
        let fits = match i.kind {
            Kind::Directory => !i.has(inline::DATA),
            Kind::Regular | Kind::Symlink => !i.has(inline::DENTRY),
            Kind::Special => !i.is_inline(),
        };
        if !fits {
            let flags = i.raw.i_inline;
            self.at(rules::INODE_INLINE, i.ino, || {
                format!("i_inline {flags:#x} does not fit the file type")
            })?;
        }
        let inline_data = &i.block[i.inline_at..i.inline_at + i.inline_max];
        if i.has(inline::DATA) && !i.has(inline::DATA_EXIST) && inline_data.iter().any(|b| *b != 0) {
            self.at(rules::INODE_INLINE, i.ino, || {
                "inline data, but i_inline says that there is none".into()
            })?;
        }
        if i.is_inline() && i.raw_nids().any(|nid| nid != 0) {
            self.at(rules::INODE_INLINE, i.ino, || {
                "inline content, but also direct or indirect nodes".into()
            })?;
        }
        Ok(())
    }

    /// Checks that a symbolic link's target has as many bytes as the size says, none of them zero.
    fn check_target(&mut self, i: &Inode) -> Result<()> {
        let size = i.raw.i_size.get();
        if i.kind != Kind::Symlink || i.encrypted() || size > BLOCK_SIZE as u64 {
            return Ok(());
        }
        let addr = BlockAddr(le32(i.raw_addrs(), 0));
        let content = if i.is_inline() {
            i.block[i.inline_at..i.inline_at + i.inline_max].to_vec()
        } else if self.sb.in_main(addr) {
            self.dev.block(addr.0)?.to_vec()
        } else {
            return self.at(rules::LINK_TARGET, i.ino, || format!("its target has the block {addr}"));
        };
        let has = content.iter().position(|b| *b == 0).unwrap_or(content.len());
        if (has as u64) < size {
            self.at(rules::LINK_TARGET, i.ino, || format!("i_size is {size}, its target has {has} bytes"))?;
        }
        Ok(())
    }

    /// Checks the words and flags that say how the rest of the inode is to be read.
    fn check_layout_words(&mut self, i: &Inode) -> Result<()> {
        let reserved = le32(&i.block[..], I_ADDR_OFFSET + i.extra);
        if i.is_inline() && reserved != 0 {
            self.at(rules::INODE_RESERVED, i.ino, || {
                format!("the word before its inline content is {reserved:#x}")
            })?;
        }
        if i.has(inline::XATTR) && i.inline_xattr == 0 {
            self.at(rules::INODE_XATTR_SIZE, i.ino, || {
                "i_inline_xattr_size is 0, but it has inline xattrs".into()
            })?;
        }
        let compressed = i.raw.i_flags.get() & COMPR_FL != 0;
        if compressed && !self.sb.features.contains(Features::COMPRESSION) {
            self.at(rules::INODE_COMPRESSED, i.ino, || "has the flag of compression".into())?;
        }
        let may_fold = i.kind == Kind::Directory && self.sb.features.contains(Features::CASEFOLD);
        if i.casefolded() && !may_fold {
            self.at(rules::INODE_CASEFOLD, i.ino, || "has the casefold flag".into())?;
        }
        Ok(())
    }

    fn check_size(&mut self, i: &Inode) -> Result<()> {
        let size = i.raw.i_size.get();
        let most_blocks = i.addrs as u64
            + i.addrs_per_node as u64 * (2 + 2 * NIDS_PER_BLOCK as u64 + (NIDS_PER_BLOCK as u64).pow(2));
        let limit = i.inline_max as u64;
        let what = match i.kind {
            _ if i.is_inline() && size > limit => Some(format!("inline content holds at most {limit} bytes")),
            Kind::Directory if !i.is_inline() && !size.is_multiple_of(BLOCK_SIZE as u64) => {
                Some("not a multiple of 4096".into())
            }
            Kind::Symlink if size == 0 || size > BLOCK_SIZE as u64 => Some("a symlink has 1 to 4096".into()),
            _ if size > most_blocks * BLOCK_SIZE as u64 => Some("more than a file can have".into()),
            _ => None,
        };
        match what {
            Some(what) => self.at(rules::INODE_SIZE, i.ino, || format!("i_size is {size}: {what}")),
            None => Ok(()),
        }
    }
}

impl Inode {
    /// `i_nid`: two direct nodes, two indirect ones, a double-indirect one.
    pub(super) fn raw_nids(&self) -> impl Iterator<Item = u32> + '_ {
        RawInodeBlock::of(&self.block).i_nid.iter().map(|nid| nid.get())
    }

    /// The block addresses in the inode.
    pub(super) fn raw_addrs(&self) -> &[u8] {
        let at = I_ADDR_OFFSET + self.extra;
        &self.block[at..at + 4 * self.addrs]
    }
}
