//! ext2, ext3 and ext4: the on-disk format as mke2fs and Linux write it, read and written in user space.
//!
//! This crate makes volumes, and changes volumes whose features allow it. Through
//! [`tidegate_vfs::FileSystem`] it reads everything that a volume with the features in
//! [`gate::SUPPORTED_INCOMPAT`] holds: any depth of extents or indirect blocks, hashed directories,
//! attributes, ACLs and inline data. It checks every checksum on the way. It checks and repairs volumes that
//! are not in use. It does not decode encrypted files, or compare names without regard to case.
//! `docs/ext4.md` has the list.
//!
//! | module | holds |
//! |---|---|
//! | [`format`](mod@format) | the bytes, their units, and the one place that validates them |
//! | [`volume`] | the volume in memory, opening it, its reports |
//! | `alloc` | groups, free blocks and free inodes |
//! | `fast_commit` | changes that follow the last commit of the journal |
//! | `inode` | inodes in memory |
//! | `map` | the places of a file's blocks, and reads of them |
//! | `dir` | directories |
//! | `xattr` | extended attributes and ACLs |
//! | [`offline`] | mkfs, and check and repair of a volume that is not in use |
//! | `vfs_impl` | [`tidegate_vfs::FileSystem`] for the volume |
#![forbid(unsafe_code)]

mod alloc;
mod dir;
mod fast_commit;
pub mod format;
mod inode;
mod map;
pub mod offline;
mod vfs_impl;
pub mod volume;
mod xattr;

pub use format::{gate, raw, units};
pub use offline::{check, mkfs, repair};
pub use volume::info::{self, VolumeInfo};
pub use volume::open::{self, is_ext4};
pub use volume::options::{self, Ext4Options};
pub use volume::sbi::{self, Ext4};
