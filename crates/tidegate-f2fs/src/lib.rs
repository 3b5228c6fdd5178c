//! F2FS: the on-disk format as mkfs.f2fs and the kernel write it, read and written in user space.
//!
//! It does: everything an F2FS volume with the features in [`gate::SUPPORTED`] holds, through
//! [`tidegate_vfs::FileSystem`], with the durability that fsync promises; make volumes ([`mkfs`]); check
//! ([`check`]) and repair ([`repair`]) them. It does not: decode compressed or encrypted files (their
//! volumes open read-only), or span devices.
//!
//! | module | holds |
//! |---|---|
//! | [`raw`], [`units`], [`gate`] | the bytes, their units, and the one place that validates them |
//! | [`sbi`], [`open`](mod@open), [`options`] | the volume in memory, how it gets there, and its switches |
//! | `meta`, `nat`, `sit`, `summary` | metadata area, node table, segment table, who owns which block |
//! | `counts` | promising blocks and node ids, also those that roll-forward would take |
//! | `curseg` | the six logs: allocation of runs of blocks |
//! | `node`, `node_write`, `dnode` | node blocks, writing them out, the tree of addresses |
//! | `data`, `data_write`, `place`, `read_ahead`, `truncate`, `inline`, `extent` | file data |
//! | `write_io`, `in_flight` | bios that grow while pages are placed one behind the other; those that have not ended |
//! | `failed_pages` | pages that could not be written to their new place, which nothing may vouch for |
//! | `inode`, `dentry`, `dir`, `namei`, `rename`, `xattr` | inodes, directories, names, attributes |
//! | `imeta` | inodes whose times or size are newer than their node |
//! | `checkpoint`, `orphan` | making it all durable, and what is open without a name |
//! | `fsync`, `since_cp`, `flush`, `recover` | making one file durable: its nodes, what they cannot tell, the flush; rolling them forward |
//! | `gc`, `discard` | cleaning: room for logs, and telling the device what is free |
//! | `ckpt_thread`, [`ckpt_stat`] | one thread that writes checkpoints for all who wait; what they cost |
//! | [`mkfs`], [`check`], [`repair`] | volumes as a whole, without the engine |
//! | `fs_impl`, [`info`], [`stats`] | the VFS's view, and what the volume tells of itself |
//!
//! Lock order (ranks): `gc_lock` 18 → `cprc->issue_list` 85 → `cp_global_sem` 90 → `writepages` 95 →
//! `cp_rwsem` 100 → `node_write` 110 → `i_dnode` 200 → `nat_tree_lock` 400 →
//! `ino_lock` 430, 435, `inode_lock[DIR_INODE]` 440, `inode_lock[DIRTY_META]` 445 → `curseg_mutex` 500 → `sentry_lock` 510 →
//! `stat_lock` 520 → `ckpt` 560 → `io_rwsem` 570 → `fsync_node_lock` 575 →
//! `failed_pages` 577.
#![forbid(unsafe_code)]

pub mod check;
mod checkpoint;
pub mod ckpt_stat;
mod ckpt_thread;
mod counts;
mod curseg;
mod data;
mod data_write;
mod dentry;
mod dir;
mod discard;
mod dnode;
mod extent;
mod failed_pages;
mod flush;
mod fs_impl;
mod fsync;
pub mod gate;
mod gc;
mod imeta;
mod in_flight;
pub mod info;
mod inline;
mod inode;
mod meta;
pub mod mkfs;
mod namei;
mod nat;
mod node;
mod node_write;
pub mod open;
pub mod options;
mod orphan;
mod place;
pub mod raw;
mod read_ahead;
mod recover;
mod rename;
pub mod repair;
pub mod sbi;
mod since_cp;
mod sit;
pub mod stats;
mod summary;
#[cfg(test)]
mod testing;
mod truncate;
pub mod units;
mod write_io;
mod xattr;

pub use ckpt_stat::{CkptStats, StepStats};
pub use info::VolumeInfo;
pub use open::is_f2fs;
pub use options::F2fsOptions;
pub use sbi::F2fs;
pub use stats::FsStats;
