//! The structures as they lie on the volume, little-endian, with the names of the kernel's `ext4.h`.
//!
//! These structures are plain bytes with names: nothing here is checked. [`crate::format::gate`] and the
//! readers of each structure turn them into validated values.

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
pub(crate) use tidegate_block::le::{le16, le32};

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The structure at byte `at` of a block; `None` where that ends before it.
pub(crate) fn read_at<T: FromBytes>(block: &[u8], at: usize) -> Option<T> {
    T::read_from_prefix(block.get(at..)?).ok().map(|(value, _)| value)
}

/// The structure at byte `at` of a block that has room for it, to be changed.
pub(crate) fn at_mut<T>(block: &mut [u8], at: usize) -> Option<&mut T>
where
    T: FromBytes + IntoBytes + KnownLayout + Immutable + Unaligned,
{
    T::mut_from_prefix(block.get_mut(at..)?).ok().map(|(value, _)| value)
}
pub use xattr::*;
