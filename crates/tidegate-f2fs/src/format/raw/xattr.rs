//! Extended attributes.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Magic of an xattr area.
pub const F2FS_XATTR_MAGIC: u32 = 0xF2F5_2011;
/// Bytes of the area's header.
pub const XATTR_HEADER_SIZE: usize = 24;
/// Usable bytes of an xattr node: the block less its footer.
pub const VALID_XATTR_BLOCK_SIZE: usize = 4072;

/// `struct f2fs_xattr_header`.
#[derive(Clone, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)]
pub struct RawXattrHeader {
    pub h_magic: U32,
    pub h_refcount: U32,
    pub h_reserved: [U32; 4],
}
const _: () = assert!(size_of::<RawXattrHeader>() == XATTR_HEADER_SIZE);

impl RawXattrHeader {
    /// The header of an area; zeros where the area is too short for one.
    pub fn of(area: &[u8]) -> RawXattrHeader {
        RawXattrHeader::read_from_prefix(area).map_or_else(|_| FromZeros::new_zeroed(), |(header, _)| header)
    }

    /// The header of an area, to be changed; none where the area is too short.
    pub fn of_mut(area: &mut [u8]) -> Option<&mut RawXattrHeader> {
        RawXattrHeader::mut_from_prefix(area).ok().map(|(header, _)| header)
    }
}

/// `struct f2fs_xattr_entry`: name and value follow, the whole is padded to 4 bytes.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)]
pub struct RawXattrEntry {
    pub e_name_index: u8,
    pub e_name_len: u8,
    pub e_value_size: U16,
}

/// `e_name_index` values.
pub mod index {
    /// `user.`
    pub const USER: u8 = 1;
    /// `system.posix_acl_access`
    pub const POSIX_ACL_ACCESS: u8 = 2;
    /// `system.posix_acl_default`
    pub const POSIX_ACL_DEFAULT: u8 = 3;
    /// `trusted.`
    pub const TRUSTED: u8 = 4;
    /// `security.`
    pub const SECURITY: u8 = 6;
    /// `system.advise`, kept in the inode
    pub const ADVISE: u8 = 7;
    /// Encryption context
    pub const ENCRYPTION: u8 = 9;
    /// fs-verity descriptor
    pub const VERITY: u8 = 11;
}
