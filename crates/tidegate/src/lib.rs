//! Tidegate: volumes of Linux file systems in user space.
//!
//! It does: open an image and describe it ([`Volume`]), make one ([`mkfs()`]), fill it from a directory or a
//! tar ([`import`]), and read it out into either ([`export`]), keeping owners, modes, times, extended
//! attributes, hard links, devices and holes. It does not: know a disk format, or talk to a user.
//!
//! | module | holds |
//! |---|---|
//! | [`volume`], [`options`], [`detect`] | [`Volume`]: open, sync, unmount; its options; the format of an image |
//! | [`info`] | a volume's own structures |
//! | [`offline`], [`new_volume`] | check and repair; an empty volume |
//! | `partitions`, [`within`](mod@within) | the partitions of a disk; `disk.img@1M` |
//! | [`paths`], `each` | operations by path, as the superuser; those on all files of a tree |
//! | [`mkfs`](mod@mkfs), [`image`], `spool` | making a volume; its file; a source that is read once |
//! | [`found`], [`unfinished`] | content that a new volume would overwrite; remains of an unfinished volume |
//! | [`devices`] | volumes on several devices |
//! | `estimate`, `fit` | how many blocks a tree takes; how large a volume it needs |
//! | [`import`] | a directory or a tar into a volume |
//! | [`export`] | a volume into a directory or a tar |
//! | `tar` | the tar format: headers, pax records, sparse maps, compression |
//! | `node`, `host` | for import and export: the attributes of one inode; the host's files |
//! | [`trail`], `descent` | walks down a volume, and down a tree of the host |
//! | [`progress`], [`summary`] | how far an operation is; its cost |
//! | [`observe`] | lock statistics, traces, profiles, and their forms |
//! | [`sample`] | the activity of a volume at one moment: for `top` and Prometheus |
//! | [`error`], [`units`] | errors that name the image or the path; sizes in words |
//! | [`holder`] | the process that has an image open; the types of mounts |
//! | [`cgroup`] | how much memory this process may take |
//!
//! ```no_run
//! use tidegate::{OpenOptions, Volume};
//! let volume = Volume::open("root.img".as_ref(), &OpenOptions { read_only: true, ..Default::default() })?;
//! for entry in volume.list(b"/etc")? {
//!     println!("{}", String::from_utf8_lossy(&entry.name));
//! }
//! volume.unmount()?;
//! # Ok::<(), tidegate::Error>(())
//! ```
#![forbid(unsafe_code)]

pub mod cgroup;
mod descent;
pub mod detect;
pub mod devices;
mod each;
pub mod error;
mod estimate;
pub mod export;
mod fit;
pub mod found;
pub mod holder;
mod host;
pub mod image;
pub mod import;
pub mod info;
pub mod mkfs;
pub mod new_volume;
mod node;
pub mod observe;
pub mod offline;
pub mod options;
mod partitions;
pub mod paths;
pub mod progress;
pub mod sample;
mod spool;
pub mod summary;
mod tar;
pub mod trail;
pub mod unfinished;
pub mod units;
pub mod volume;
pub mod within;

pub use error::{Error, Result};
pub use info::Info;
pub use mkfs::mkfs;
pub use new_volume::NewVolume;
pub use offline::{check, repair};
pub use options::{OpenOptions, VolumeSwitches};
pub use progress::Progress;
pub use sample::Sample;
pub use summary::Summary;
pub use tidegate_block::{Backend, Elevator, IoContext, Queues, WfqOptions, keep_for_reuse};
pub use tidegate_rt::Timespec;
/// Bugs on purpose, for the crash explorer. They are not part of the promised interface.
#[doc(hidden)]
pub use tidegate_vfs::planted;
pub use unfinished::Unfinished;
pub use volume::Volume;

/// The types of a volume's operations: files, inodes, attributes, errors.
pub mod vfs {
    pub use tidegate_vfs::attr_ops::{APPEND_ONLY, IMMUTABLE, JOURNAL_DATA};
    pub use tidegate_vfs::positions;
    pub use tidegate_vfs::switch::SwitchValue;
    pub use tidegate_vfs::{
        At, Attr, CommitRun, CommitStats, Cred, DeviceNumber, DirEntry, Error, ErrorKind, FallocateFlags,
        File, FileType, Ino, Inode, MemoryLimits, NewInode, OpenFlags, ReadOnly, RenameFlags, Result,
        SeekTarget, SetAttr, StatFs, StepStats, SwitchInfo, SyncWait, Unseen, Vfs, VolumeOps, VolumeStats,
        Written, XattrFlags,
    };
}

/// The program in `docs/library.md` compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/library.md")]
struct InDocuments;
