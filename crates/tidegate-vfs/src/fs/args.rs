//! The types of arguments and results of [`FileSystem`](super::FileSystem)'s methods.

use crate::error::Result;
use crate::inode::Inode;
use crate::mapping::chunk::PageRun;
use crate::types::*;
use std::any::Any;
use std::sync::Arc;
use tidegate_rt::Timespec;

/// The parts of an inode in memory: its attributes and the file system's own part.
pub struct InodeParts {
    /// Number.
    pub ino: Ino,
    /// Attributes.
    pub attr: Attr,
    /// The file system's part, which [`Inode::private`] returns.
    pub private: Box<dyn Any + Send + Sync>,
}

/// The function that gets the pages that were read, from the first on.
pub type ReadDone = Box<dyn FnOnce(Result<Vec<PageRun>>) + Send>;

/// Attributes that a new inode begins with: full name and value, as user space sees them.
pub type NewXattrs = [(&'static [u8], Vec<u8>)];

/// The effect of a write on its file's attributes.
#[derive(Clone, Copy, Debug)]
pub struct WriteEnd {
    /// The first byte after the written data. The file is at least as long afterwards.
    pub end: u64,
    /// `mtime` and `ctime`, if they change.
    pub time: Option<Timespec>,
}

impl WriteEnd {
    /// Changes the size and the times of `a`. Returns whether anything changed. A further write within one
    /// tick of the clock that makes no file longer changes nothing and need not be stored.
    pub fn apply(&self, a: &mut Attr) -> bool {
        let before = (a.size, a.mtime, a.ctime);
        a.size = a.size.max(self.end);
        if let Some(time) = self.time {
            (a.mtime, a.ctime) = (time, time);
        }
        before != (a.size, a.mtime, a.ctime)
    }
}

/// The arguments of [`FileSystem::rename`](super::FileSystem::rename).
pub struct Rename<'a> {
    /// The directory of the name.
    pub old_dir: &'a Arc<Inode>,
    /// The name.
    pub old_name: &'a [u8],
    /// The inode of that name.
    pub inode: &'a Arc<Inode>,
    /// The new directory. May be `old_dir`.
    pub new_dir: &'a Arc<Inode>,
    /// The new name.
    pub new_name: &'a [u8],
    /// The inode that has the new name now.
    pub target: Option<&'a Arc<Inode>>,
    /// `target` gets the old name.
    pub exchange: bool,
    /// A new inode with these attributes gets the old name. Never with `exchange`.
    pub whiteout: Option<&'a NewInode<'a>>,
    /// The time of the change.
    pub now: Timespec,
}
