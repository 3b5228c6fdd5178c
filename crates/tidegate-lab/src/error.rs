//! Errors of the lab.

use std::path::{Path, PathBuf};

/// An error of a workload or of its target.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A specification that cannot be run.
    #[error("{0}")]
    Spec(String),
    /// A job file that cannot be read.
    #[error(transparent)]
    JobFile(#[from] crate::fio::ParseError),
    /// An operation on a path in the target failed.
    #[error("{path}: {source}")]
    Vfs {
        /// The path.
        path: String,
        /// The file system's error.
        source: tidegate_vfs::Error,
    },
    /// A volume failed as a whole.
    #[error(transparent)]
    Volume(#[from] tidegate::Error),
    /// A guest with a kernel of its own failed.
    #[error(transparent)]
    Guest(#[from] tidegate_uml::Error),
    /// The host's file system failed.
    #[error("{path}: {source}")]
    Host {
        /// The path.
        path: PathBuf,
        /// The host's error.
        source: std::io::Error,
    },
    /// A file that the lab would make exists already.
    #[error("{path}: is there already; the lab makes this file for each run and removes it again")]
    Exists {
        /// The path.
        path: PathBuf,
    },
    /// No thread could be started.
    #[error(
        "a thread of the workload could not be started: {0}; give it fewer threads, or raise the limits on them"
    )]
    Thread(std::io::Error),
    /// No run has a figure that is to be compared.
    #[error("no run has a {metric}")]
    NoValue {
        /// The figure.
        metric: String,
    },
    /// A fault of the simulated world: the recording is of another run than the shown one.
    #[error("{position}: one seed gave two runs, of {once} and {again} ns: please report this")]
    Differs {
        /// The position.
        position: String,
        /// Nanoseconds of the shown run.
        once: u64,
        /// Nanoseconds of the recorded run.
        again: u64,
    },
}

/// A result with [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn spec(what: impl Into<String>) -> Self {
        Error::Spec(what.into())
    }

    pub(crate) fn host(path: &Path, source: impl Into<std::io::Error>) -> Self {
        Error::Host { path: path.to_path_buf(), source: source.into() }
    }
}
