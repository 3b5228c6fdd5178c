//! ext2, ext3 and ext4: the on-disk format as mke2fs and Linux write it, read and written in user space.
//!
//! It does: make volumes, change those whose features allow it, and read everything that a volume with the
//! features in [`gate::SUPPORTED_INCOMPAT`] holds, through [`tidegate_vfs::FileSystem`], at any depth of
//! extents or indirect blocks, with hashed directories, attributes, ACLs and inline data, and check every
//! checksum on the way; check and repair volumes that nobody uses. It does not: decode encrypted files, or
//! look at names without regard to case. `docs/ext4.md` has the list.
//!
//! | module | holds |
//! |---|---|
//! | [`format`](mod@format) | the bytes, their units, and the one place that validates them |
//! | [`volume`] | the volume in memory, how it gets there, what it tells of itself |
//! | `alloc` | groups, and what is free |
//! | `fast_commit` | changes that follow the last commit of the journal |
//! | `inode` | inodes in memory |
//! | `map` | where a file's blocks are, and reading them |
//! | `dir` | directories |
//! | `xattr` | extended attributes and ACLs |
//! | [`offline`] | making a volume, checking and repairing one that nobody uses |
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
