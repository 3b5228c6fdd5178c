//! Extended attributes.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `h_magic`, in front of the attributes in an inode and in a block.
pub const XATTR_MAGIC: u32 = 0xEA02_0000;
/// Entries and values begin at multiples of this.
pub const XATTR_ROUND: usize = 4;
/// The largest value, in an inode of its own, in bytes.
pub const XATTR_SIZE_MAX: u32 = 1 << 16;
/// Most references to one block of attributes.
pub const XATTR_REFCOUNT_MAX: u32 = 1024;

/// `struct ext4_xattr_header` of a block.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // the format defines the names
pub struct RawXattrHeader {
    pub h_magic: U32,
    pub h_refcount: U32,
    pub h_blocks: U32,
    pub h_hash: U32,
    pub h_checksum: U32,
    pub h_reserved: [U32; 3],
}
const _: () = assert!(size_of::<RawXattrHeader>() == 32);
/// Offset of `h_checksum`.
pub const XATTR_CSUM_OFFSET: usize = 16;

/// `struct ext4_xattr_entry` without its name.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // the format defines the names
pub struct RawXattrEntry {
    pub e_name_len: u8,
    pub e_name_index: u8,
    pub e_value_offs: U16,
    pub e_value_inum: U32,
    pub e_value_size: U32,
    pub e_hash: U32,
}
/// Bytes of an entry before its name.
pub const XATTR_ENTRY: usize = 16;
const _: () = assert!(size_of::<RawXattrEntry>() == XATTR_ENTRY);

/// The prefix of a name by its `e_name_index`.
pub const NAME_PREFIXES: [(u8, &[u8]); 3] = [(1, b"user."), (4, b"trusted."), (6, b"security.")];
/// `e_name_index` of access ACLs.
pub const INDEX_ACL_ACCESS: u8 = 2;
/// `e_name_index` of default ACLs.
pub const INDEX_ACL_DEFAULT: u8 = 3;
/// `e_name_index` of the inline data's second part, with the name "data".
pub const INDEX_SYSTEM: u8 = 7;

/// `e_name_index` of the encryption context of an inode, with the name "c".
pub const INDEX_ENCRYPTION: u8 = 9;
