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

/// Counters by name; they only grow.
pub type Counts = BTreeMap<String, u64>;

/// How a file is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenHow {
    /// Make it if it is missing.
    pub create: bool,
    /// Cut it to nothing.
    pub truncate: bool,
    /// Go around the page cache where that is possible.
    pub direct: bool,
}

impl OpenHow {
    /// A file that may be there and is empty afterwards.
    pub const NEW: OpenHow = OpenHow { create: true, truncate: true, direct: false };
}

/// A file system with files to work on, shared by threads. Paths begin with a slash, at the target's root.
pub trait Target: Send + Sync {
    /// Its description, for reports.
    fn describe(&self) -> String;

    /// Makes a directory; it may be there.
    ///
    /// # Errors
    /// Those of the file system; so for all below.
    fn mkdir(&self, path: &str) -> Result<()>;

    /// Opens a file for reading and writing.
    fn open(&self, path: &str, how: OpenHow) -> Result<Box<dyn TargetFile>>;

    /// Whether [`OpenHow::direct`] goes around its page cache.
    fn can_go_direct(&self) -> bool {
        false
    }

    /// Opens a directory, to fsync it.
    fn open_dir(&self, path: &str) -> Result<Box<dyn TargetFile>>;

    /// As touch(1): makes an empty file, or sets the times of the one that is there to now.
    fn touch(&self, path: &str) -> Result<()>;

    /// Takes a name away.
    fn unlink(&self, path: &str) -> Result<()>;

    /// Whether there is something of that name.
    fn exists(&self, path: &str) -> Result<bool>;

    /// Takes a directory away with all that is in it.
    fn remove_tree(&self, path: &str) -> Result<()>;

    /// sync(2), of this file system.
    fn sync(&self) -> Result<()>;

    /// Everything that can be counted.
    fn counts(&self) -> Counts {
        Counts::new()
    }

    /// How commits went, where they are counted.
    fn commits(&self) -> Option<CommitStats> {
        None
    }

    /// The last commits one by one, where they are remembered.
    fn recent_commits(&self) -> Vec<CommitRun> {
        Vec::new()
    }

    /// Drops the clean pages of a file from memory; false where that cannot be done.
    fn drop_pages(&self, path: &str) -> Result<bool> {
        let _ = path;
        Ok(false)
    }

    /// Statistics of locks, when they are being collected.
    fn locks(&self) -> Vec<LockStat> {
        Vec::new()
    }

    /// Sets an I/O group's share, 1 to 1000; false where that is never possible from here. A volume needs
    /// an elevator for it to matter.
    fn set_group_weight(&self, group: u32, weight: u32) -> bool {
        let _ = (group, weight);
        false
    }

    /// Has what the calling thread does count for an I/O group, where the thread's context does not say so already.
    fn enter_group(&self, group: u32) {
        let _ = group;
    }

    /// Pieces that a file's data lies in, where that can be told.
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
    /// Reads at `pos`; how many bytes, fewer at the end of the file.
    fn read_at(&self, pos: u64, to: &mut [u8]) -> Result<usize>;
    /// Makes it durable; with `datasync`, only what is needed to read its content.
    fn fsync(&self, datasync: bool) -> Result<()>;
    /// Sets its size.
    fn truncate(&self, size: u64) -> Result<()>;
}
