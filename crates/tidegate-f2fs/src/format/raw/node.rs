//! Nodes: inodes, direct and indirect nodes, and the NAT that says where they are.

use super::BLOCK_SIZE;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Block addresses in an inode, before extra attributes and inline xattrs take some.
pub const DEF_ADDRS_PER_INODE: usize = 923;
/// Block addresses in a direct node.
pub const ADDRS_PER_BLOCK: usize = 1018;
/// Node ids in an indirect node.
pub const NIDS_PER_BLOCK: usize = 1018;
/// 4-byte words the inline xattr area takes unless the inode says otherwise.
pub const DEFAULT_INLINE_XATTR_ADDRS: usize = 50;
/// 4-byte words of the data area left unused before inline data and dentries.
pub const DEF_INLINE_RESERVED_SIZE: usize = 1;
/// Offset of `i_addr` in the inode block.
pub const I_ADDR_OFFSET: usize = 360;
/// Offset of `i_nid` in the inode block.
pub const I_NID_OFFSET: usize = 4052;
/// Offset of the footer in a node block.
pub const FOOTER_OFFSET: usize = 4072;
/// Size of the extra attributes that Tidegate writes, up to and including the compression fields.
pub const EXTRA_ISIZE: usize = 36;
/// Offset of `i_inode_checksum` in the inode block.
pub const I_CHKSUM_OFFSET: usize = 360 + 8;

/// `struct f2fs_extent`: the largest extent that the inode knows.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)]
pub struct RawExtent {
    pub fofs: U32,
    pub blk: U32,
    pub len: U32,
}

/// `struct f2fs_inode` up to `i_addr`.
#[derive(Clone, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)]
pub struct RawInode {
    pub i_mode: zerocopy::little_endian::U16,
    pub i_advise: u8,
    pub i_inline: u8,
    pub i_uid: U32,
    pub i_gid: U32,
    pub i_links: U32,
    pub i_size: U64,
    pub i_blocks: U64,
    pub i_atime: U64,
    pub i_ctime: U64,
    pub i_mtime: U64,
    pub i_atime_nsec: U32,
    pub i_ctime_nsec: U32,
    pub i_mtime_nsec: U32,
    pub i_generation: U32,
    /// Directories: levels in use. Files: the low half is `i_gc_failures`.
    pub i_current_depth: U32,
    pub i_xattr_nid: U32,
    pub i_flags: U32,
    pub i_pino: U32,
    pub i_namelen: U32,
    pub i_name: [u8; 255],
    pub i_dir_level: u8,
    pub i_ext: RawExtent,
}
const _: () = assert!(size_of::<RawInode>() == I_ADDR_OFFSET);

/// `struct f2fs_node` of an inode, which is a whole block.
#[derive(Clone, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)]
pub struct RawInodeBlock {
    pub inode: RawInode,
    pub i_addr: [U32; DEF_ADDRS_PER_INODE],
    pub i_nid: [U32; 5],
    pub footer: RawNodeFooter,
}

const _: () = assert!(std::mem::offset_of!(RawInodeBlock, i_nid) == I_NID_OFFSET);

impl RawInodeBlock {
    /// A block as an inode block.
    pub fn of(block: &[u8; BLOCK_SIZE]) -> &Self {
        zerocopy::transmute_ref!(block)
    }

    /// A block as an inode block, to be changed.
    pub fn of_mut(block: &mut [u8; BLOCK_SIZE]) -> &mut Self {
        zerocopy::transmute_mut!(block)
    }

    /// `i_nid` of inode block `block`; zeros where the bytes are too few for one.
    pub fn nids(block: &[u8]) -> &[U32; 5] {
        static NONE: [U32; 5] = [U32::ZERO; 5];
        RawInodeBlock::ref_from_bytes(block).map_or(&NONE, |inode| &inode.i_nid)
    }

    /// `i_nid` of inode block `block`, to be changed.
    pub fn nids_mut(block: &mut [u8]) -> Option<&mut [U32; 5]> {
        RawInodeBlock::mut_from_bytes(block).ok().map(|inode| &mut inode.i_nid)
    }

    /// The inode's extra attributes, whether it has any or not.
    pub fn extra(&self) -> &RawExtraAttr {
        RawExtraAttr::of(self.as_bytes())
    }
}

impl RawInode {
    /// The inode of node block `block`; zeros where the bytes are too few for one.
    pub fn of(block: &[u8]) -> &RawInode {
        static NONE: RawInode = zerocopy::transmute!([0_u8; I_ADDR_OFFSET]);
        RawInode::ref_from_prefix(block).map_or(&NONE, |(inode, _)| inode)
    }

    /// The inode of node block `block`, to be changed.
    pub fn of_mut(block: &mut [u8]) -> Option<&mut RawInode> {
        RawInode::mut_from_prefix(block).ok().map(|(inode, _)| inode)
    }

    /// The name that the inode remembers; `None` if its length is impossible.
    pub fn name(&self) -> Option<&[u8]> {
        self.i_name.get(..usize::try_from(self.i_namelen.get()).ok()?)
    }

    /// Sets the name that the inode remembers, of at most 255 bytes.
    pub fn set_name(&mut self, name: &[u8]) {
        self.i_namelen = u32::try_from(name.len()).unwrap_or(u32::MAX).into();
        self.i_name.fill(0);
        self.i_name[..name.len()].copy_from_slice(name);
    }
}

/// The extra attributes at the start of `i_addr`, present up to `i_extra_isize` bytes.
#[derive(Clone, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)]
pub struct RawExtraAttr {
    pub i_extra_isize: zerocopy::little_endian::U16,
    pub i_inline_xattr_size: zerocopy::little_endian::U16,
    pub i_projid: U32,
    pub i_inode_checksum: U32,
    pub i_crtime: U64,
    pub i_crtime_nsec: U32,
    pub i_compr_blocks: U64,
    pub i_compress_algorithm: u8,
    pub i_log_cluster_size: u8,
    pub i_compress_flag: zerocopy::little_endian::U16,
}
const _: () = assert!(size_of::<RawExtraAttr>() == EXTRA_ISIZE);
const _: () =
    assert!(I_ADDR_OFFSET + std::mem::offset_of!(RawExtraAttr, i_inode_checksum) == I_CHKSUM_OFFSET);

impl RawExtraAttr {
    /// Where the extra attributes of inode block `block` would be; zeros where the bytes are too few for them.
    pub fn of(block: &[u8]) -> &RawExtraAttr {
        static NONE: RawExtraAttr = zerocopy::transmute!([0_u8; EXTRA_ISIZE]);
        let bytes = block.get(I_ADDR_OFFSET..).and_then(|b| RawExtraAttr::ref_from_prefix(b).ok());
        bytes.map_or(&NONE, |(extra, _)| extra)
    }

    /// The extra attributes of inode block `block`, to be changed.
    pub fn of_mut(block: &mut [u8]) -> Option<&mut RawExtraAttr> {
        let bytes = block.get_mut(I_ADDR_OFFSET..).and_then(|b| RawExtraAttr::mut_from_prefix(b).ok());
        bytes.map(|(extra, _)| extra)
    }
}

/// `struct node_footer`.
#[derive(Clone, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)]
pub struct RawNodeFooter {
    pub nid: U32,
    pub ino: U32,
    /// Bit 0 cold, bit 1 fsync, bit 2 dentry; the node's offset in its file from bit 3.
    pub flag: U32,
    pub cp_ver: U64,
    pub next_blkaddr: U32,
}
const _: () = assert!(size_of::<RawNodeFooter>() == BLOCK_SIZE - FOOTER_OFFSET);

impl RawNodeFooter {
    /// The footer of node block `block`; zeros where the bytes are too few for one.
    pub fn of(block: &[u8]) -> &RawNodeFooter {
        const NONE: &RawNodeFooter = &RawNodeFooter {
            nid: U32::ZERO,
            ino: U32::ZERO,
            flag: U32::ZERO,
            cp_ver: U64::ZERO,
            next_blkaddr: U32::ZERO,
        };
        let bytes = block.get(FOOTER_OFFSET..BLOCK_SIZE);
        bytes.and_then(|b| RawNodeFooter::ref_from_bytes(b).ok()).unwrap_or(NONE)
    }

    /// The footer of node block `block`, to be changed.
    pub fn of_mut(block: &mut [u8]) -> Option<&mut RawNodeFooter> {
        block.get_mut(FOOTER_OFFSET..BLOCK_SIZE).and_then(|b| RawNodeFooter::mut_from_bytes(b).ok())
    }

    /// The node's offset in its file.
    pub fn ofs(&self) -> u32 {
        self.flag.get() >> OFFSET_BIT_SHIFT
    }
}

/// Footer flag: node of something other than a directory.
pub const COLD_BIT_MASK: u32 = 1;
/// Footer flag: written by fsync.
pub const FSYNC_BIT_MASK: u32 = 2;
/// Footer flag: its dentry is to be recovered too.
pub const DENT_BIT_MASK: u32 = 4;
/// Position of the node's offset in the footer flag.
pub const OFFSET_BIT_SHIFT: u32 = 3;
/// The node offset that marks an xattr node.
pub const XATTR_NODE_OFFSET: u32 = u32::MAX >> OFFSET_BIT_SHIFT;

/// `i_inline` bits.
pub mod inline {
    /// The inode has an inline xattr area.
    pub const XATTR: u8 = 0x01;
    /// The file's data is in the inode.
    pub const DATA: u8 = 0x02;
    /// The directory's entries are in the inode.
    pub const DENTRY: u8 = 0x04;
    /// The inline data area holds something.
    pub const DATA_EXIST: u8 = 0x08;
    /// "." and ".." are missing from an inline directory.
    pub const DOTS: u8 = 0x10;
    /// The inode has extra attributes.
    pub const EXTRA_ATTR: u8 = 0x20;
    /// The file's blocks must not move.
    pub const PIN_FILE: u8 = 0x40;
    /// Blocks saved by compression were given back.
    pub const COMPRESS_RELEASED: u8 = 0x80;
}

/// `i_advise` bits.
pub mod advise {
    /// The file's data is cold.
    pub const COLD: u8 = 0x01;
    /// The file's parent is not `i_pino`; fsync needs a checkpoint.
    pub const LOST_PINO: u8 = 0x02;
    /// Contents are encrypted.
    pub const ENCRYPT: u8 = 0x04;
    /// The name is encrypted.
    pub const ENC_NAME: u8 = 0x08;
    /// The size must not change on recovery.
    pub const KEEP_SIZE: u8 = 0x10;
    /// The file's data is hot.
    pub const HOT: u8 = 0x20;
    /// fs-verity is on.
    pub const VERITY: u8 = 0x40;
}

/// `struct f2fs_nat_entry`.
#[derive(
    Clone, Copy, Default, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
#[allow(missing_docs)]
pub struct RawNatEntry {
    pub version: u8,
    pub ino: U32,
    pub block_addr: U32,
}

/// Entries in a NAT block.
pub const NAT_ENTRY_PER_BLOCK: usize = 455;
const _: () = assert!(size_of::<RawNatEntry>() * NAT_ENTRY_PER_BLOCK <= BLOCK_SIZE);
