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
pub(crate) use tidegate_block::le::{le16, le32};
pub use xattr::*;
