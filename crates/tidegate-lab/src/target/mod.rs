//! The target of a workload: files by path, their durability, and the counters there.

mod directory;
mod rig;
mod volume;

pub use directory::Directory;
pub use rig::Rig;
pub use volume::VolumeTarget;

use crate::error::Result;
use crate::result::LockStat;
use std::collections::BTreeMap;
use tidegate_vfs::{CommitRun, CommitStats};

/// Counters by name, which only grow.
pub type Counts = BTreeMap<String, u64>;

/// The way a file is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenHow {
    /// Make it if it is missing.
    pub create: bool,
    /// Truncate it to nothing.
    pub truncate: bool,
    /// Bypass the page cache if possible.
    pub direct: bool,
}

impl OpenHow {
    /// A file that may exist and is empty afterwards.
    pub const NEW: OpenHow = OpenHow { create: true, truncate: true, direct: false };
}

/// A file system with files to work on, shared by threads. Paths begin with a slash, at the target's root.
pub trait Target: Send + Sync {
    /// Its description, for reports.
    fn describe(&self) -> String;

    /// Makes a directory, which may exist.
    ///
    /// # Errors
    /// Those of the file system, as in all methods below.
    fn mkdir(&self, path: &str) -> Result<()>;

    /// Opens a file for reading and writing.
    fn open(&self, path: &str, how: OpenHow) -> Result<Box<dyn TargetFile>>;

    /// Whether [`OpenHow::direct`] bypasses its page cache.
    fn can_go_direct(&self) -> bool {
        false
    }

    /// Opens a directory, to fsync it.
    fn open_dir(&self, path: &str) -> Result<Box<dyn TargetFile>>;

    /// As touch(1): makes an empty file, or sets the times of an existing one to now.
    fn touch(&self, path: &str) -> Result<()>;

    /// Removes a name.
    fn unlink(&self, path: &str) -> Result<()>;

    /// Whether a name exists.
    fn exists(&self, path: &str) -> Result<bool>;

    /// Removes a directory with everything in it.
    fn remove_tree(&self, path: &str) -> Result<()>;

    /// sync(2), of this file system.
    fn sync(&self) -> Result<()>;

    /// Everything that can be counted.
    fn counts(&self) -> Counts {
        Counts::new()
    }

    /// Statistics of commits, if they are counted.
    fn commits(&self) -> Option<CommitStats> {
        None
    }

    /// The last commits one by one, if they are remembered.
    fn recent_commits(&self) -> Vec<CommitRun> {
        Vec::new()
    }

    /// Drops the clean pages of a file from memory; false if that is not possible.
    fn drop_pages(&self, path: &str) -> Result<bool> {
        let _ = path;
        Ok(false)
    }

    /// Statistics of locks, if they are collected.
    fn locks(&self) -> Vec<LockStat> {
        Vec::new()
    }

    /// Sets an I/O group's share, 1 to 1000; false if that is not possible here. On a volume it matters only
    /// with an elevator.
    fn set_group_weight(&self, group: u32, weight: u32) -> bool {
        let _ = (group, weight);
        false
    }

    /// Makes the calling thread's I/O count for an I/O group, if the thread's context does not say so
    /// already.
    fn enter_group(&self, group: u32) {
        let _ = group;
    }

    /// The number of pieces that a file's data lies in, if that is known.
    fn fragments(&self, path: &str) -> Result<Option<u64>> {
        let _ = path;
        Ok(None)
    }
}

/// An open file.
pub trait TargetFile: Send {
    /// Its size in bytes.
    fn size(&self) -> Result<u64>;
    /// Writes all of `data` at `pos`.
    fn write_at(&self, pos: u64, data: &[u8]) -> Result<()>;
    /// Reads at `pos`; returns the number of bytes, which is smaller at the end of the file.
    fn read_at(&self, pos: u64, to: &mut [u8]) -> Result<usize>;
    /// Makes it durable; with `datasync`, only as far as a read of its content needs.
    fn fsync(&self, datasync: bool) -> Result<()>;
    /// Sets its size.
    fn truncate(&self, size: u64) -> Result<()>;
}
