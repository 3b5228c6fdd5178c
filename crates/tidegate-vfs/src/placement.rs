//! Advice of programs on the placement of a file: the lifetime of its data, and the streams for the data.

use crate::error::{Error, ErrorKind, Result};
use crate::file::File;
use crate::inode::Inode;
use crate::perm::{self, MAY_WRITE};
use crate::types::*;
use crate::vfs::Vfs;

impl Vfs {
    /// Chooses the streams for the data of a file, a bit for each stream that data of its kind has, until the inode
    /// leaves memory. 0 undoes the choice. An open file stays in memory. F2FS uses the choice with
    /// `stream_policy=amfs`. Takes no lock.
    ///
    /// # Errors
    /// `PermissionDenied` without write permission; `InvalidArgument` for a file that is not regular, and for
    /// a stream that does not exist; `Unsupported` where the format has no streams.
    pub fn choose_streams(&self, cred: &Cred, inode: &Inode, streams: u32) -> Result<()> {
        perm::check(&*self.fs, cred, inode, MAY_WRITE)?;
        if inode.file_type != FileType::Regular {
            return Err(Error::new(ErrorKind::InvalidArgument, "no regular file").in_inode(inode.ino));
        }
        self.fs.choose_streams(inode, streams)
    }
}

impl File {
    /// As [`Vfs::choose_streams`], for this open file.
    ///
    /// # Errors
    /// `BadFile` when the file is not open for writing; `IsADirectory`, `InvalidArgument`, `Unsupported`.
    pub fn choose_streams(&self, streams: u32) -> Result<()> {
        self.allow(OpenFlags::WRITE)?;
        self.vfs.fs.choose_streams(&self.inode, streams)
    }

    /// The streams that were chosen for the file, a bit each; 0 when none were.
    ///
    /// # Errors
    /// `Unsupported` where the format has no streams.
    pub fn chosen_streams(&self) -> Result<u32> {
        self.vfs.fs.chosen_streams(&self.inode)
    }

    /// Sets the lifetime of the data that is written to the file from now on (`F_SET_RW_HINT`), until the inode leaves
    /// memory. F2FS puts short-lived data in its hot logs, and extremely long-lived data in its cold logs. Takes no
    /// lock.
    ///
    /// # Errors
    /// `BadFile` when the file is not open for writing; `IsADirectory`, `InvalidArgument`.
    pub fn set_write_hint(&self, hint: WriteHint) -> Result<()> {
        self.allow(OpenFlags::WRITE)?;
        self.inode.set_write_hint(hint);
        Ok(())
    }
}
