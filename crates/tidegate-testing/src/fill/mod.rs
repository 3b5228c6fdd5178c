//! Makes trees with every corner case that an implementation must handle.
//!
//! The trees are made by a compiled program that is called once per volume: a shell loop in a guest takes
//! minutes for work of seconds.

mod attrs;
mod bulk;
mod layout;
mod simple;
mod varied;

use std::path::Path;

use anyhow::Result;
use clap::ValueEnum;

pub use tidegate_rt::rng::Rng;

/// A tree that [`fill`] can make.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// One of everything: types, sizes, names, times, attributes.
    Varied,
    /// A few hundred files, directories and links, for makers that support no more.
    Simple,
    /// One directory of 100,000 names.
    Bigdir,
    /// Files with far-apart data and with many fragments.
    Sparse,
    /// 50,000 small files in 500 directories.
    Smallfiles,
    /// Data in all three data logs.
    Logs,
    /// Changes to a varied tree, none of them synced.
    Unsynced,
    /// Changes to a varied tree, some of them fsynced.
    Fsynced,
}

/// Makes the tree in an existing directory.
pub fn fill(kind: Kind, dir: &Path) -> Result<()> {
    match kind {
        Kind::Varied => varied::varied(dir),
        Kind::Simple => simple::simple(dir),
        Kind::Bigdir => bulk::big_directory(dir),
        Kind::Smallfiles => bulk::small_files(dir),
        Kind::Sparse => layout::sparse(dir),
        Kind::Logs => layout::logs(dir),
        Kind::Unsynced => layout::unsynced(dir),
        Kind::Fsynced => layout::fsynced(dir),
    }
}
