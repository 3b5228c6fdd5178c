//! Advice of programs about a file's place: the lifetime of its data, and the streams for it.

use crate::error::{Error, ErrorKind, Result};
use crate::file::File;
use crate::inode::Inode;
use crate::perm::{self, MAY_WRITE};
use crate::types::*;
use crate::vfs::Vfs;

impl Vfs {
    /// Has a file's data go to these streams of those that data of its kind has, a bit each, until it goes from
    /// memory; 0 takes that back. A file that is open stays in memory. F2FS goes by it with
    /// `stream_policy=amfs`. Takes no lock.
    ///
    /// # Errors
    /// `PermissionDenied` without write permission; `InvalidArgument` for another kind of file than a regular
    /// one, and for a stream that there is not; `Unsupported` by a format that has no streams.
    pub fn choose_streams(&self, cred: &Cred, inode: &Inode, streams: u32) -> Result<()> {
        perm::check(&*self.fs, cred, inode, MAY_WRITE)?;
        if inode.file_type != FileType::Regular {
            return Err(Error::new(ErrorKind::InvalidArgument, "no regular file").in_inode(inode.ino));
        }
        self.fs.choose_streams(inode, streams)
    }
}

impl File {
    /// As [`Vfs::choose_streams`], of a file that is open.
    ///
    /// # Errors
    /// `BadFile` when it is not open for writing; `IsADirectory`, `InvalidArgument`, `Unsupported`.
    pub fn choose_streams(&self, streams: u32) -> Result<()> {
        self.allow(OpenFlags::WRITE)?;
        self.vfs.fs.choose_streams(&self.inode, streams)
    }

    /// The streams that were chosen for it, a bit each; 0 when none were.
    ///
    /// # Errors
    /// `Unsupported` by a format that has no streams.
    pub fn chosen_streams(&self) -> Result<u32> {
        self.vfs.fs.chosen_streams(&self.inode)
    }

    /// Says how long the data lives that is written to the file from now on (`F_SET_RW_HINT`), until it goes from
    /// memory. F2FS has data that lives shortly in its hot logs, and data that lives for ever in its cold ones.
    /// Takes no lock.
    ///
    /// # Errors
    /// `BadFile` when it is not open for writing; `IsADirectory`, `InvalidArgument`.
    pub fn set_write_hint(&self, hint: WriteHint) -> Result<()> {
        self.allow(OpenFlags::WRITE)?;
        self.inode.set_write_hint(hint);
        Ok(())
    }
}
