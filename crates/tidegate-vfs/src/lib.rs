//! The common part of file systems: inodes, names, the page cache and write-back.
//!
//! It does: POSIX operations by handle and by path on top of a [`FileSystem`]; cache pages, inodes and names
//! within limits; write dirty pages back by a flusher thread, throttle the threads that dirty them, fsync and
//! sync. It does not: know a disk format, or a device.
//!
//! | module | holds |
//! |---|---|
//! | [`fs`] | the [`FileSystem`] trait |
//! | [`volume_ops`], [`offline`] | operations on a volume as a whole, in use and offline |
//! | [`types`], [`error`], [`read_only`] | values and errors that cross the interface; why a volume takes no changes |
//! | [`inode`], [`icache`], `dcache` | inodes in memory and the names that lead to them |
//! | [`mapping`] | the page cache of one inode |
//! | [`bdi`], `flusher` | dirty inodes, thresholds, throttling; the thread that writes |
//! | [`vfs`] | a mounted file system: mount, unmount |
//! | `sync` | sync(2): which thread waits, and for which pages |
//! | [`switch`] | options that can be changed while a volume is in use |
//! | [`word`] | options that are read once, when a volume is opened |
//! | [`namei`] | path walk |
//! | `dir_ops`, `rename`, `tmpfile` | operations on names; files without one |
//! | [`attr_ops`] | operations on attributes |
//! | [`file`](mod@file), `file_write` | open files: reading, writing, allocation |
//! | `written` | the end of write-back, as formats tell it |
//! | `readahead` | reading pages in, before they are needed |
//! | `reclaim` | which clean pages are dropped when memory is short |
//! | [`observe`] | the view of a mounted file system while it works |
//! | [`planted`] | bugs on purpose, for the crash explorer |
//! | [`perm`], [`acl`], `capability` | permissions of users; capabilities of programs |
//!
//! The order of locks is in `docs/locks.md`: `i_rwsem` and `invalidate_lock` come before the format's own
//! locks, and the locks of the page cache and of the lists of inodes come after them.
#![forbid(unsafe_code)]

pub mod acl;
pub mod attr_ops;
pub mod bdi;
mod capability;
mod dcache;
mod dir_ops;
pub mod error;
pub mod file;
mod file_write;
mod flusher;
pub mod fs;
pub mod icache;
pub mod inode;
pub mod mapping;
#[cfg(test)]
mod memfs;
#[cfg(test)]
mod memfs_tests;
pub mod namei;
pub mod observe;
pub mod offline;
pub mod perm;
mod placement;
pub mod planted;
pub mod read_only;
mod readahead;
mod reclaim;
mod rename;
#[cfg(test)]
mod slow_fs;
pub mod switch;
mod sync;
mod tmpfile;
pub mod types;
pub mod vfs;
pub mod volume_ops;
pub mod word;
mod written;

pub use bdi::{Bdi, MemoryLimits};
pub use error::{At, Error, ErrorKind, Result};
pub use file::File;
pub use fs::{FileSystem, InodeParts, ReadDone, WritebackControl};
pub use inode::Inode;
pub use mapping::AddressSpace;
pub use mapping::chunk::PageRun;
pub use observe::{FlusherState, Pass, WrittenFile};
pub use read_only::{ReadOnly, Unseen};
pub use switch::{Switch, SwitchInfo};
pub use sync::SyncWait;
pub use types::*;
pub use vfs::{MountOptions, Vfs};
pub use volume_ops::{CommitRun, CommitStats, StepStats, VolumeOps, VolumeStats, Written};
