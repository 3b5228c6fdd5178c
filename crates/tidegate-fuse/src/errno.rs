//! The conversion of errors to errno. There is no other.

use rustix::io::Errno;
use tidegate::vfs::{Error, ErrorKind};

/// The result of an operation, in the form for the kernel.
pub type Result<T> = std::result::Result<T, Errno>;

/// The errno of an error.
pub fn errno(e: &Error) -> Errno {
    use ErrorKind::*;
    match e.kind() {
        NotFound => Errno::NOENT,
        Exists => Errno::EXIST,
        NotADirectory => Errno::NOTDIR,
        IsADirectory => Errno::ISDIR,
        NotEmpty => Errno::NOTEMPTY,
        PermissionDenied => Errno::ACCESS,
        NotPermitted => Errno::PERM,
        InvalidArgument => Errno::INVAL,
        NameTooLong => Errno::NAMETOOLONG,
        TooManyLinks => Errno::MLINK,
        TooManySymlinks => Errno::LOOP,
        NoSpace | DirectoryFull => Errno::NOSPC,
        FileTooBig => Errno::FBIG,
        ReadOnly => Errno::ROFS,
        NoData => Errno::NODATA,
        Range => Errno::RANGE,
        TooBig => Errno::NOSPC,
        CrossDevice => Errno::XDEV,
        Busy => Errno::BUSY,
        BadFile => Errno::BADF,
        Stale => Errno::STALE,
        Unsupported => Errno::OPNOTSUPP,
        OutOfMemory => Errno::NOMEM,
        NoDeviceOrAddress => Errno::NXIO,
        // The kernel's file systems call a broken structure EUCLEAN.
        Corrupt => Errno::UCLEAN,
        _ => Errno::IO,
    }
}

/// Turns a result of the engine into one for the kernel.
pub(crate) trait ToErrno<T> {
    /// The value, or the errno.
    fn map_errno(self) -> Result<T>;
}

impl<T> ToErrno<T> for tidegate::vfs::Result<T> {
    fn map_errno(self) -> Result<T> {
        self.map_err(|e| errno(&e))
    }
}
