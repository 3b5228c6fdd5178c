//! The error every layer above the block layer returns.

use std::fmt;
use tidegate_block::Errno;

/// What went wrong, in the terms of POSIX.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[allow(missing_docs)] // each names its errno
pub enum ErrorKind {
    NotFound,
    Exists,
    NotADirectory,
    IsADirectory,
    NotEmpty,
    PermissionDenied,
    NotPermitted,
    InvalidArgument,
    NameTooLong,
    TooManyLinks,
    TooManySymlinks,
    NoSpace,
    FileTooBig,
    ReadOnly,
    NoData,
    Range,
    TooBig,
    CrossDevice,
    Busy,
    BadFile,
    Stale,
    Unsupported,
    OutOfMemory,
    NoDeviceOrAddress,
    /// The device failed.
    Io,
    /// What is on the device breaks a rule of its format.
    Corrupt,
}

/// A kind, what was being done, and what below caused it.
#[derive(Clone, Debug)]
pub struct Error {
    kind: ErrorKind,
    context: Box<str>,
    source: Option<Errno>,
    stopped_by: Option<Errno>,
}

/// A result with [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error of `kind` with a context such as `inode 5: ...`.
    pub fn new(kind: ErrorKind, context: impl Into<String>) -> Self {
        Error { kind, context: context.into().into_boxed_str(), source: None, stopped_by: None }
    }

    /// A broken rule of the format; says where.
    pub fn corrupt(what: impl Into<String>) -> Self {
        Self::new(ErrorKind::Corrupt, what)
    }

    /// A device's error while doing `what`. A device that is full is no volume that is full: nothing that
    /// makes room on the volume helps.
    pub fn device(errno: Errno, what: impl Into<String>) -> Self {
        let kind = if errno == Errno::ROFS { ErrorKind::ReadOnly } else { ErrorKind::Io };
        Self::new(kind, what).because(errno)
    }

    /// The same error, caused by a device's.
    pub fn because(mut self, errno: Errno) -> Self {
        self.source = Some(errno);
        self
    }

    /// The device's error that caused it, if one did.
    pub fn errno(&self) -> Option<Errno> {
        self.source
    }

    /// The same error of a volume that takes no changes since a device failed so.
    pub fn since(mut self, stopped_by: Option<Errno>) -> Self {
        self.stopped_by = stopped_by;
        self
    }

    /// The device's error since which the volume takes no changes, if that is why.
    pub fn stopped_by(&self) -> Option<Errno> {
        self.stopped_by
    }

    /// The kind.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The same error said of `what`.
    pub fn of(mut self, what: impl fmt::Display) -> Self {
        self.context = if self.context.is_empty() {
            what.to_string().into()
        } else {
            format!("{what}: {}", self.context).into()
        };
        self
    }
}

impl From<ErrorKind> for Error {
    fn from(kind: ErrorKind) -> Self {
        Self::new(kind, "")
    }
}

impl ErrorKind {
    /// The words for it.
    pub fn message(self) -> &'static str {
        use ErrorKind::*;
        match self {
            NotFound => "no such file or directory",
            Exists => "file exists",
            NotADirectory => "not a directory",
            IsADirectory => "is a directory",
            NotEmpty => "directory not empty",
            PermissionDenied => "permission denied",
            NotPermitted => "operation not permitted",
            InvalidArgument => "invalid argument",
            NameTooLong => "name too long",
            TooManyLinks => "too many links",
            TooManySymlinks => "too many levels of symbolic links",
            NoSpace => "no space left on the volume",
            FileTooBig => "file too large for the format",
            ReadOnly => "the volume is read-only",
            NoData => "no such attribute",
            Range => "result too large for the buffer",
            TooBig => "attributes too large for the format",
            CrossDevice => "not on one volume",
            Busy => "busy",
            BadFile => "file not open for that",
            Stale => "the file is gone",
            Unsupported => "not supported",
            OutOfMemory => "out of memory",
            NoDeviceOrAddress => "no data there",
            Io => "input/output error",
            Corrupt => "the volume is damaged",
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.context.is_empty() {
            write!(f, "{}: ", self.context)?;
        }
        if self.source == Some(Errno::NOSPC) {
            return f.write_str("no space left where the image is kept; make room there first");
        }
        f.write_str(self.kind.message())?;
        match self.source {
            Some(e) => write!(f, " ({})", std::io::Error::from(e)),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {}

/// Adds what was being done to an error.
pub trait Context<T> {
    /// Puts `what` in front of the error's context.
    fn context<D: fmt::Display>(self, what: impl FnOnce() -> D) -> Result<T>;
}

impl<T> Context<T> for Result<T> {
    fn context<D: fmt::Display>(self, what: impl FnOnce() -> D) -> Result<T> {
        self.map_err(|e| e.of(what()))
    }
}
