//! The structures as they lie on the volume, little-endian, with the names of the kernel's `ext4.h`.
//!
//! Plain bytes with names: nothing here is checked. [`crate::format::gate`] and the readers of each structure turn
//! them into validated values.

pub mod dir;
pub mod extent;
pub mod group;
pub mod inode;
pub mod orphan;
pub mod superblock;
pub mod xattr;

pub use dir::*;
pub use extent::*;
pub use group::*;
pub use inode::*;
pub use orphan::*;
pub use superblock::*;
pub use xattr::*;

/// The u16 at byte `at`; bytes behind the end read as 0.
pub(crate) fn le16(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u16::from_le_bytes(*b))
}

/// The u32 at byte `at`; bytes behind the end read as 0.
pub(crate) fn le32(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u32::from_le_bytes(*b))
}
