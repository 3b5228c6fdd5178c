//! Errors that begin with the image or the path that they are about, on one line.

mod subject;

pub use subject::Subject;

use crate::detect::Format;
use std::fmt::Display;
use std::io;
use std::path::Path;
use tidegate_block::{Errno, NotOpened, OpenError};
use tidegate_vfs::ErrorKind;

/// An error, and the thing that it is about.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An operation on a volume failed.
    #[error("{about}: {source}")]
    Volume {
        /// The image, or a path in it.
        about: Subject,
        /// Its format.
        format: Format,
        /// The error below.
        source: tidegate_vfs::Error,
    },
    /// The operating system refused something.
    #[error("{0}: {text}", text = plain(.1))]
    Os(Subject, #[source] io::Error),
    /// There is another obstacle, before or outside of a volume.
    #[error("{about}: {why}")]
    Refused {
        /// An argument, an image or a path.
        about: Subject,
        /// Its kind.
        kind: Refusal,
        /// The error below.
        why: Box<dyn std::error::Error + Send + Sync>,
    },
    /// An error with an addition.
    #[error("{0}; {1}")]
    And(#[source] Box<Error>, String),
}

/// The reason for a refusal that comes neither from a volume nor from the operating system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// The request is impossible, or its parts do not go together.
    Argument,
    /// Another program has the image open or mounted.
    InUse,
    /// There is no image, or no volume of a known format in it.
    NoVolume,
    /// Content that exists there would be lost.
    Occupied,
    /// A directory is needed, and it is none.
    NotADirectory,
    /// Nothing is mounted there.
    NotMounted,
    /// The volume is open for reading only.
    ReadOnly,
    /// There is no room for the content, or for the volume.
    NoRoom,
    /// The device, the host or the format cannot do that.
    Unsupported,
    /// The thing to be shown does not exist.
    Missing,
    /// A part of the work failed.
    Failed,
}

/// The function that gets each failure where the work goes on with the rest.
pub type Failed = std::sync::Arc<dyn Fn(Error) + Send + Sync>;

/// A result with [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// The operating system's error about `path`.
    pub fn os(path: &[u8], e: impl Into<io::Error>) -> Self {
        Error::Os(Subject::host(path), e.into())
    }

    /// An obstacle to the work on `about`.
    pub fn refused(
        kind: Refusal,
        about: impl Into<Subject>,
        why: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Error::Refused { about: about.into(), kind, why: why.into() }
    }

    /// An error of a request that is impossible in any case.
    pub fn argument(
        about: impl Into<Subject>,
        why: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Error::refused(Refusal::Argument, about, why)
    }

    /// The thing that it is about.
    pub fn about(&self) -> &Subject {
        match self {
            Error::Volume { about, .. } | Error::Os(about, _) | Error::Refused { about, .. } => about,
            Error::And(e, _) => e.about(),
        }
    }

    /// The kind of a refusal. `None` for an error of a volume or of the operating system.
    pub fn refusal(&self) -> Option<Refusal> {
        match self.without_more() {
            Error::Refused { kind, .. } => Some(*kind),
            _ => None,
        }
    }

    /// An error of opening `image`.
    pub(crate) fn open(image: &Subject, e: OpenError) -> Self {
        match e.why {
            NotOpened::Os(e) => Error::Os(image.clone(), e),
            NotOpened::Uring(e) => Error::Os(format!("{image}: io_uring").into(), e),
            // The image may have been opened by another name.
            NotOpened::Busy(how) => {
                let who = crate::holder::of(&e.path);
                let who = who.unwrap_or_else(|| format!("another program has this image open{how}"));
                Error::refused(Refusal::InUse, image, format!("in use: {who}"))
            }
            why @ NotOpened::NotAnImage(_) => Error::refused(Refusal::NoVolume, image, why),
        }
    }

    /// Adds text at the end of the error.
    #[must_use]
    pub fn and(self, more: impl Display) -> Self {
        Error::And(Box::new(self), more.to_string())
    }

    fn without_more(&self) -> &Error {
        match self {
            Error::And(e, _) => e.without_more(),
            e => e,
        }
    }

    /// The error in a volume, if it is one.
    fn of_volume(&self) -> Option<&tidegate_vfs::Error> {
        match self.without_more() {
            Error::Volume { source, .. } => Some(source),
            _ => None,
        }
    }

    /// The format of a volume that breaks a rule of its format, if that is the error: a repair may help.
    pub fn damaged(&self) -> Option<Format> {
        match self.without_more() {
            Error::Volume { format, source, .. } if source.kind() == ErrorKind::Corrupt => Some(*format),
            _ => None,
        }
    }

    /// Whether the error is that of a volume that takes no more changes: full, failing, or read-only since it
    /// failed.
    pub fn ends_changes(&self) -> bool {
        use ErrorKind::{Io, NoSpace, ReadOnly};
        self.of_volume().is_some_and(|e| matches!(e.kind(), NoSpace | Io | ReadOnly))
    }

    /// The kind of an error in a volume, if it is one.
    pub(crate) fn kind(&self) -> Option<ErrorKind> {
        self.of_volume().map(tidegate_vfs::Error::kind)
    }

    /// Whether the error says that the volume is full. Not so when the host's file system is full.
    pub fn is_no_space(&self) -> bool {
        self.kind() == Some(ErrorKind::NoSpace) && !self.is_host_full()
    }

    /// Whether the host has no space left.
    pub fn is_host_full(&self) -> bool {
        match self.without_more() {
            Error::Volume { source: e, .. } => [e.errno(), e.stopped_by()].contains(&Some(Errno::NOSPC)),
            Error::Os(_, e) => e.raw_os_error() == Some(Errno::NOSPC.raw_os_error()),
            _ => false,
        }
    }

    /// Whether the reader of our output has gone.
    pub fn is_broken_pipe(&self) -> bool {
        matches!(self.without_more(), Error::Os(_, e) if e.kind() == io::ErrorKind::BrokenPipe)
    }

    /// Whether a directory stands in the place of something else, or the other way round.
    pub(crate) fn is_in_the_way(&self) -> bool {
        self.kind() == Some(ErrorKind::IsADirectory) || self.refusal() == Some(Refusal::NotADirectory)
    }

    /// Whether a path leads through something that is no directory.
    pub fn is_not_a_directory(&self) -> bool {
        self.kind() == Some(ErrorKind::NotADirectory)
    }

    /// Whether a name is missing in a volume.
    pub fn is_not_found(&self) -> bool {
        self.kind() == Some(ErrorKind::NotFound)
    }
}

/// The operating system's message, without the number that is added to it.
fn plain(e: &io::Error) -> String {
    let text = e.to_string();
    let words = text.split(" (os error").next().unwrap_or(&text);
    let mut c = words.chars();
    match (e.raw_os_error(), c.next()) {
        (Some(_), Some(first)) => first.to_lowercase().chain(c).collect(),
        _ => words.to_string(),
    }
}

/// A path or name in a form for messages and terminals: one line, in which different bytes look different.
/// Control characters, characters that change the direction of text, backslashes and bytes that are no UTF-8
/// are escaped.
pub fn show(path: &[u8]) -> String {
    let mut out = String::with_capacity(path.len());
    for part in path.utf8_chunks() {
        for c in part.valid().chars() {
            match c {
                '\\' => out.push_str("\\\\"),
                c if misleads(c) => out.extend(c.escape_default()),
                c => out.push(c),
            }
        }
        for b in part.invalid() {
            out.push_str(&format!("\\x{b:02x}"));
        }
    }
    out
}

/// A message in a form for terminals, whatever its content: one line. Unlike [`show`], it is for text that is
/// escaped already.
pub fn printable(message: &str) -> String {
    let mut out = String::with_capacity(message.len());
    for c in message.chars() {
        if misleads(c) { out.extend(c.escape_default()) } else { out.push(c) }
    }
    out
}

/// Whether a character affects a terminal, or the text around it, instead of being visible.
fn misleads(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

/// A host path as bytes.
pub fn path_bytes(path: &Path) -> &[u8] {
    use std::os::unix::ffi::OsStrExt;
    path.as_os_str().as_bytes()
}

/// Adds to an error the path that an operating-system call was about.
pub(crate) trait About<T> {
    /// Puts `path` in front of the error.
    fn about(self, path: &[u8]) -> Result<T>;
}

impl<T> About<T> for std::result::Result<T, Errno> {
    fn about(self, path: &[u8]) -> Result<T> {
        self.map_err(|e| Error::os(path, e))
    }
}

impl<T> About<T> for io::Result<T> {
    fn about(self, path: &[u8]) -> Result<T> {
        self.map_err(|e| Error::os(path, e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_vfs::ReadOnly;

    #[test]
    fn messages_are_one_plain_line() {
        let e = Error::os(b"/a\nb", Errno::NOENT);
        assert_eq!(e.to_string(), "/a\\nb: no such file or directory");
        assert_eq!(show("grün".as_bytes()), "grün");
    }

    #[test]
    fn a_full_host_is_no_full_volume() {
        let full = tidegate_vfs::Error::from(ErrorKind::NoSpace);
        let host = full.clone().because(Errno::NOSPC);
        let of = |source| Error::Volume { about: "a".into(), format: Format::F2fs, source };
        assert!(of(full.clone()).is_no_space() && !of(full).is_host_full());
        assert!(!of(host.clone()).is_no_space() && of(host).is_host_full());
        let stopped = |errno| {
            let why = ReadOnly::Stopped(tidegate_vfs::Error::device(errno, "writing"));
            of(tidegate_vfs::Error::read_only(&why)).is_host_full()
        };
        assert!(stopped(Errno::NOSPC) && !stopped(Errno::IO));
        assert!(Error::os(b"a", Errno::NOSPC).is_host_full());
    }

    #[test]
    fn names_that_differ_look_different() {
        let names: [&[u8]; 8] = [
            b"a\xff",
            b"a\xfe",
            b"a\\xff",
            b"a\n",
            b"a\\n",
            b"a\x1b[1m",
            "a\u{202e}b".as_bytes(),
            b"a\xe2\x80",
        ];
        let shown = names.map(show);
        for (i, a) in shown.iter().enumerate() {
            assert!(!a.contains(misleads) && !shown[..i].contains(a), "{a:?}");
        }
        assert_eq!(shown[..3], ["a\\xff", "a\\xfe", "a\\\\xff"]);
        assert_eq!(printable("no\x1b \\xff\nb"), "no\\u{1b} \\xff\\nb");
    }

    #[test]
    fn what_is_said_behind_an_error_hides_nothing_of_it() {
        let full = Error::Volume {
            about: "a.img:/b".into(),
            format: Format::F2fs,
            source: ErrorKind::NoSpace.into(),
        };
        let e = full.and("the copy ends here").and("twice");
        assert!(e.is_no_space() && e.ends_changes() && e.refusal().is_none());
        assert_eq!(e.to_string(), "a.img:/b: no space left on the volume; the copy ends here; twice");
        let e = Error::refused(Refusal::InUse, "a.img", "in use").and("mounted");
        assert_eq!((e.refusal(), e.to_string()), (Some(Refusal::InUse), "a.img: in use; mounted".into()));
    }
}
