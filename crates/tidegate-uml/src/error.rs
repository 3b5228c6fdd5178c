//! Errors of a guest.

use std::path::Path;

/// Errors of a guest.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A program or a kernel module is not installed.
    #[error("{name} is not installed (on Debian: apt-get install {package})")]
    Missing {
        /// Its name.
        name: String,
        /// The Debian package that contains it.
        package: &'static str,
    },
    /// An operation of the host failed.
    #[error("{what}: {source}")]
    Io {
        /// The step or file.
        what: String,
        /// The host's error.
        source: std::io::Error,
    },
    /// The guest did not do its job, or the job cannot be passed to it.
    #[error("{0}")]
    Guest(String),
}

/// A result with [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn io<E: Into<std::io::Error>>(what: impl Into<String>) -> impl FnOnce(E) -> Error {
        let what = what.into();
        |e| Error::Io { what, source: e.into() }
    }

    pub(crate) fn file<E: Into<std::io::Error>>(path: &Path) -> impl FnOnce(E) -> Error {
        Error::io(path.display().to_string())
    }
}
