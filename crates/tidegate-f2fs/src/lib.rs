//! F2FS: the on-disk format as mkfs.f2fs and the kernel write it, read and written in user space.
//!
//! This crate reads and writes everything that an F2FS volume with the features in [`gate::SUPPORTED`] holds,
//! through [`tidegate_vfs::FileSystem`], with the durability that fsync promises. It makes volumes
//! ([`mkfs`]), checks ([`check`]) and repairs ([`repair`]) them. It does not decode compressed or encrypted
//! files (their volumes open read-only). It does not open the devices of a volume on several: it takes them
//! as one ([`tidegate_block::Linear`]).
//!
//! | module | holds |
//! |---|---|
//! | [`format`](mod@format) | the bytes, their units, and the one place that validates them |
//! | [`volume`] | the volume in memory, opening it, its switches, its reports |
//! | `tables` | metadata area, node table, segment table, owners of blocks, promised blocks |
//! | `segment` | the logs and their streams, and discards |
//! | `node` | node blocks, writing them out, the tree of addresses |
//! | `inode` | inodes in memory and in their nodes, extended attributes, orphans |
//! | `file` | file data: its map, passes over dirty pages, growing bios |
//! | `dir` | directories and changes of names |
//! | `durable` | checkpoints, fsync, flushes, recovery |
//! | `gc` | cleaning: room for the logs |
//! | `offline` | [`mkfs`], [`check`], [`repair`]: volumes as a whole, without the engine |
//! | `vfs_impl` | [`tidegate_vfs::FileSystem`] for the volume |
//!
//! A folder calls the folders below it. The test `folders_of_f2fs_call_downwards` lists the calls that go up,
//! such as node blocks joining the growing bios of `file`. `volume` is the object that all folders work on.
//!
//! ```text
//!                 vfs_impl                 the VFS's view
//!         ┌──────────┼───────────┐
//!        gc         dir       durable      cleaning · names · checkpoint, fsync, recovery        offline
//!         └──────────┼───────────┘                                                               mkfs
//!                  file                    map of pages, passes, growing bios                    check
//!            ┌───────┴───────┐                                                                   repair
//!          inode            node           inodes, attributes · node blocks                        │
//!            └───────┬───────┘                                                                     │
//!                 segment                  the logs and their streams                              │
//!                 tables                   NAT, SIT, summaries, counts                             │
//!                 format ──────────────────────────────────────────────────────────────────────────┘
//!                                          bytes, units, the gate
//! ```
//!
//! The order of locks is in `docs/locks.md`.
#![forbid(unsafe_code)]

mod dir;
mod durable;
mod file;
pub mod format;
mod gc;
mod inode;
mod node;
mod offline;
mod segment;
mod tables;
#[cfg(test)]
mod testing;
mod vfs_impl;
pub mod volume;

pub use format::{gate, raw, units};
pub use offline::{check, mkfs, repair};
pub use volume::info::{self, VolumeInfo};
pub use volume::open::{self, devices, is_f2fs};
pub use volume::options::{self, F2fsOptions};
pub use volume::sbi::{self, F2fs};
