//! The error that every layer above the block layer returns.

use crate::read_only::ReadOnly;
use crate::types::Ino;
use std::borrow::Cow;
use std::fmt;
use tidegate_block::Errno;

/// The kind of an error, in the terms of POSIX.
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
    /// A directory takes no more names, though the volume has space (`ENOSPC`).
    DirectoryFull,
    /// The device failed.
    Io,
    /// The device's content breaks a rule of its format.
    Corrupt,
}

/// The place or thing that an error is about.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum At {
    /// An inode.
    Inode(Ino),
    /// A directory, by its inode.
    Dir(Ino),
    /// A block of the volume.
    Block(u64),
    /// A structure of the format, and its number: `segment 5`.
    Part(&'static str, u64),
    /// A structure of which the volume has only one: `superblock`.
    The(&'static str),
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            At::Inode(ino) => write!(f, "inode {ino}"),
            At::Dir(ino) => write!(f, "directory {ino}"),
            At::Block(addr) => write!(f, "block {addr}"),
            At::Part(name, number) => write!(f, "{name} {number}"),
            At::The(name) => f.write_str(name),
        }
    }
}

/// A part of an error's context.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    At(At),
    /// The step that failed, or the rule that is broken.
    What(Cow<'static, str>),
    /// The step that failed, and its place: `reading block 5`.
    Step(&'static str, At),
}

/// An error: its kind, the rule or operation, the places, and the error of the device that caused it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    /// From the inside out.
    context: Vec<Part>,
    source: Option<Errno>,
    stopped_by: Option<Errno>,
}

/// A result with [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error of `kind`. `what` is the step that failed, or the rule that is broken.
    pub fn new(kind: ErrorKind, what: impl Into<Cow<'static, str>>) -> Self {
        Error { kind, context: Vec::new(), source: None, stopped_by: None }.of(what)
    }

    /// A broken rule of the format; [`Error::at`] says where.
    pub fn corrupt(rule: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::Corrupt, rule)
    }

    /// An error of the device in the step `what`. It never says that the volume is full: when the device is
    /// full, making room on the volume does not help.
    pub fn device(errno: Errno, what: impl Into<Cow<'static, str>>) -> Self {
        let kind = if errno == Errno::ROFS { ErrorKind::ReadOnly } else { ErrorKind::Io };
        Self::new(kind, what).because(errno)
    }

    /// The error of an operation on a volume that was unmounted.
    pub(crate) fn unmounted() -> Self {
        Error::new(ErrorKind::Stale, "the volume is unmounted")
    }

    /// The error of a change on a volume that takes no changes.
    pub fn read_only(why: &ReadOnly) -> Self {
        Error { stopped_by: why.errno(), ..Self::new(ErrorKind::ReadOnly, why.to_string()) }
    }

    /// An error of the device in `step` at a place: `reading`, and a block.
    pub fn device_at(errno: Errno, step: &'static str, at: At) -> Self {
        Self::device(errno, "").of_at(step, at)
    }

    /// Notes the error of the device that caused this one.
    pub fn because(mut self, errno: Errno) -> Self {
        self.source = Some(errno);
        self
    }

    /// The error of the device that caused this one, if there was one.
    pub fn errno(&self) -> Option<Errno> {
        self.source
    }

    /// The error of the device since which the volume takes no changes, if that is the reason.
    pub fn stopped_by(&self) -> Option<Errno> {
        self.stopped_by
    }

    /// The kind.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The places of the error, from the outside in: the inode before its block.
    pub fn places(&self) -> impl Iterator<Item = &At> {
        self.context.iter().rev().filter_map(|p| match p {
            Part::At(at) | Part::Step(_, at) => Some(at),
            Part::What(_) => None,
        })
    }

    /// The rule that is broken, or the step that failed. Empty where the kind says all.
    pub fn what(&self) -> &str {
        let mut texts = self.context.iter().filter_map(|p| match p {
            Part::What(text) => Some(&**text),
            Part::Step(step, _) => Some(*step),
            Part::At(_) => None,
        });
        texts.next().unwrap_or_default()
    }

    /// Changes the kind of the error.
    pub fn as_kind(self, kind: ErrorKind) -> Self {
        Error { kind, ..self }
    }

    /// Adds the place `at`. A place that the error already has is not added again.
    pub fn at(mut self, at: At) -> Self {
        if !self.places().any(|known| *known == at) {
            self.context.push(Part::At(at));
        }
        self
    }

    /// Adds a step and its place: `reading`, and a block.
    pub fn of_at(mut self, step: &'static str, at: At) -> Self {
        self.context.push(Part::Step(step, at));
        self
    }

    /// Adds an inode as a place.
    pub fn in_inode(self, ino: impl Into<Ino>) -> Self {
        self.at(At::Inode(ino.into()))
    }

    /// Adds a directory as a place.
    pub fn in_dir(self, ino: impl Into<Ino>) -> Self {
        self.at(At::Dir(ino.into()))
    }

    /// Adds a block as a place.
    pub fn at_block(self, addr: impl Into<u64>) -> Self {
        self.at(At::Block(addr.into()))
    }

    /// Adds the step `what`.
    pub fn of(mut self, what: impl Into<Cow<'static, str>>) -> Self {
        let what = what.into();
        if !what.is_empty() {
            self.context.push(Part::What(what));
        }
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
            DirectoryFull => "no room for more names in the directory",
            Io => "input/output error",
            Corrupt => "the volume is damaged",
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in self.context.iter().rev() {
            match part {
                Part::At(at) => write!(f, "{at}: ")?,
                Part::What(what) => write!(f, "{what}: ")?,
                Part::Step(step, at) => write!(f, "{step} {at}: ")?,
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_told_once() {
        let e = Error::corrupt("a rule").in_inode(5_u64).in_inode(5_u64).at(At::The("table"));
        assert_eq!(e.to_string(), "table: inode 5: a rule: the volume is damaged");
        let e = Error::device_at(Errno::IO, "reading", At::Block(7)).at_block(7_u64).in_inode(5_u64);
        assert!(e.to_string().starts_with("inode 5: reading block 7: input/output error"), "{e}");
        assert!(e.places().eq([&At::Inode(Ino(5)), &At::Block(7)]), "{e}");
        assert_eq!(e.what(), "reading");
    }
}
