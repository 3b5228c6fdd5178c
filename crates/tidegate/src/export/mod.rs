//! Out of a volume: into a directory of the host, or a tar.
//!
//! The calling thread walks the volume and reads contents, as runs of pages without a copy where they are
//! not cached; a second thread writes what it is sent, in batches over a channel bounded by bytes.
//!
//! | module | holds |
//! |---|---|
//! | [`walk`] | walking the volume: [`Item`]s in order |
//! | [`content`] | a file's data and holes |
//! | [`dir`], [`attrs`] | making a tree on the host; its attributes |
//! | [`archive`] | making a tar |

pub mod archive;
pub mod attrs;
pub mod content;
pub mod dir;
pub mod walk;

use crate::error::Result;
use crate::node::Meta;
use crate::progress::Progress;
use crate::volume::Volume;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use tidegate_rt::channel::bounded;
use tidegate_vfs::{Inode, PageRun};

/// Bytes on the way before the reader waits.
const BOUND: usize = 24 << 20;

/// What an export leaves to say.
#[derive(Clone, Debug, Default)]
pub struct Exported {
    /// What could not be kept, one line each.
    pub notes: Vec<String>,
}

/// A piece of a file's content.
pub struct Piece {
    /// Where it begins.
    pub pos: u64,
    /// The pages.
    pub run: PageRun,
    /// How many bytes count.
    pub len: usize,
}

/// One step of an export. Steps of one file follow each other.
pub enum Item {
    /// A directory begins; the steps up to its `Leave` are in it.
    Dir {
        /// Its name; the path from the top for a tar.
        name: Vec<u8>,
        /// Its attributes.
        meta: Meta,
    },
    /// The directory begun last is complete.
    Leave,
    /// A regular file.
    File {
        /// Its name.
        name: Vec<u8>,
        /// Its attributes.
        meta: Meta,
        /// Its size.
        size: u64,
        /// Where its data lies, if it has holes: offset and length.
        ranges: Option<Vec<(u64, u64)>>,
        /// Its content, or the first of it.
        pieces: Vec<Piece>,
        /// `Data` and an `End` follow.
        more: bool,
        /// Other names of it may follow: its number.
        link: Option<u64>,
    },
    /// More of the file begun last.
    Data(Piece),
    /// The file begun last is complete.
    End,
    /// Something without content.
    Special {
        /// Its name.
        name: Vec<u8>,
        /// Its attributes.
        meta: Meta,
        /// Target of a symbolic link.
        target: Vec<u8>,
        /// Other names of it may follow: its number.
        link: Option<u64>,
    },
    /// Another name of what had this number.
    Link {
        /// The name.
        name: Vec<u8>,
        /// The number.
        to: u64,
        /// Attributes of what it names.
        meta: Meta,
    },
}

/// What of a volume is read.
pub struct From {
    /// The inode.
    pub inode: Arc<Inode>,
    /// Its path, for errors.
    pub path: Vec<u8>,
}

/// Writes what `from` is to the host: as `to`, or, when `to` is a directory and so is `from`, into it.
///
/// # Errors
/// What cannot be read, by the volume's path; what cannot be written, by the host's.
pub fn to_host(volume: &Volume, from: &From, to: PathBuf, progress: &Arc<Progress>) -> Result<Exported> {
    let (tx, rx) = bounded(BOUND);
    let writer = tidegate_rt::thread::spawn("tg-writer", move || dir::write(&to, rx))
        .map_err(|e| crate::Error::Os("writer thread".into(), e))?;
    let walked = walk::walk(volume, from, walk::Order::Inode, progress, tx);
    // The writer's error is the cause when both have one.
    let exported = writer.join()?;
    walked?;
    Ok(exported)
}

/// Writes what `from` is as a pax tar, in order of name. Its top is called `name`, or `.`; errors of
/// writing call the tar `stream`.
///
/// # Errors
/// As [`to_host`].
pub fn to_tar(
    volume: &Volume,
    from: &From,
    to: Box<dyn Write + Send>,
    stream: &str,
    name: Option<Vec<u8>>,
    progress: &Arc<Progress>,
) -> Result<Exported> {
    let (tx, rx) = bounded(BOUND);
    let stream = stream.to_string();
    let name = name.unwrap_or_else(|| b".".to_vec());
    let writer = tidegate_rt::thread::spawn("tg-writer", move || archive::write(to, &stream, name, rx))
        .map_err(|e| crate::Error::Os("writer thread".into(), e))?;
    let walked = walk::walk(volume, from, walk::Order::Name, progress, tx);
    let exported = writer.join()?;
    walked?;
    Ok(exported)
}
