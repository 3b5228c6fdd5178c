//! Into a volume: directories and tars of the host.
//!
//! A reading thread turns the source into [`Item`]s, with contents already in page buffers, and sends them in
//! batches over a channel that is bounded by bytes. The calling thread applies them: one `make`, buffers
//! handed over without a copy, one change of attributes. So reading and writing overlap, memory is bounded,
//! and the volume sees one order of changes, that of the source.
//!
//! | module | holds |
//! |---|---|
//! | `walk`, `read_file` | reading a directory tree; one file's data in page buffers |
//! | `archive` | reading a tar |
//! | `from_volume` | reading a volume |
//! | `batch` | the channel between the two threads |
//! | `apply`, `place` | making files in the volume; finding their places |
//! | `left_out` | parts of a tree that are left out |
//!
//! Lock: `import->failed` 994, around the first error of reading a volume. It is taken alone.

pub(crate) mod apply;
pub(crate) mod archive;
pub(crate) mod batch;
pub(crate) mod from_volume;
pub(crate) mod left_out;
pub(crate) mod place;
pub(crate) mod read_file;
pub(crate) mod walk;

use crate::error::{Failed, Result};
use crate::node::Meta;
use crate::progress::Progress;
use crate::volume::Volume;
use std::path::PathBuf;
use std::sync::Arc;
use tidegate_block::PageBuf;
use tidegate_rt::Timespec;
use tidegate_vfs::Inode;

/// The source of an import.
pub enum Source {
    /// A file or a directory tree of the host.
    Tree(PathBuf),
    /// A tar, perhaps compressed, and its name in errors.
    Tar(Box<dyn std::io::Read + Send>, String),
    /// A file or a directory tree of a volume, which may be the target volume.
    Volume(Arc<Volume>, crate::export::From),
}

/// The target of an import.
pub struct Target {
    /// A directory of the volume.
    pub dir: Arc<Inode>,
    /// Its path.
    pub path: Vec<u8>,
    /// The name in it. `None` when the content of a directory or tar goes into `dir` itself.
    pub name: Option<Vec<u8>>,
    /// The file into which a single file is written, wherever it is. `None`: a new file gets the name.
    pub over: Option<Over>,
}

/// A file that gets the content of another one, and keeps its names.
pub struct Over {
    /// The file.
    pub inode: Arc<Inode>,
    /// It also gets the attributes.
    pub attributes: bool,
}

/// How to read and write.
#[derive(Clone, Default)]
pub struct ImportOptions {
    /// Later times become this time, so that equal content makes equal bytes.
    pub clamp: Option<Timespec>,
    /// User and group of all files, instead of the owners at the source.
    pub owner: Option<(u32, u32)>,
    /// Sync after each so many bytes, so that the order of writes does not depend on timing.
    pub sync_every: Option<u64>,
    /// Device and inode numbers of files that are left out: the image itself.
    pub skip: Vec<(u64, u64)>,
    /// The function that gets each part of a tree that cannot be read, or whose place in the volume is taken
    /// by something of another kind. The other parts go in. Without this function, the first failure ends the
    /// import.
    pub failed: Option<Failed>,
    /// Counters to advance.
    pub progress: Arc<Progress>,
}

impl ImportOptions {
    /// The attributes of an inode that are to be kept.
    fn adjust(&self, meta: &mut Meta) {
        meta.clamp(self.clamp);
        if let Some((uid, gid)) = self.owner {
            (meta.uid, meta.gid) = (uid, gid);
        }
    }
}

/// An import's notes.
#[derive(Clone, Debug, Default)]
pub struct Imported {
    /// Attributes that could not be kept, one line each.
    pub notes: Vec<String>,
}

/// The place of an item.
#[derive(Debug)]
pub enum Place {
    /// In a directory that was announced before.
    In(DirId, Vec<u8>),
    /// At a path below the target.
    Path(Vec<u8>),
    /// The target itself.
    Root,
}

/// A directory of the source.
pub type DirId = u32;

/// The target of a hard link.
#[derive(Debug)]
pub enum LinkTo {
    /// The file that was announced with this number.
    Seen(u64),
    /// A path below the target.
    Path(Vec<u8>),
}

/// A piece of a file's content.
#[derive(Debug)]
pub struct Piece {
    /// Where it begins.
    pub pos: u64,
    /// The bytes.
    pub buf: PageBuf,
    /// How many bytes count.
    pub len: usize,
}

/// One step of an import. Steps of one file follow each other.
#[derive(Debug)]
pub enum Item {
    /// A directory, to be made or filled.
    Dir {
        /// Where.
        place: Place,
        /// The number of the directory in later places.
        id: DirId,
        /// Its attributes, which are set after all its files.
        meta: Meta,
    },
    /// The directory is complete.
    Leave(DirId),
    /// A regular file, with its first piece. It is complete unless `more`.
    File {
        /// Where.
        place: Place,
        /// Its attributes.
        meta: Meta,
        /// Its size.
        size: u64,
        /// Content.
        piece: Option<Piece>,
        /// Pieces and an `End` follow.
        more: bool,
        /// A number for links to it that come later.
        link: Option<u64>,
    },
    /// More of the file begun last.
    Data(Piece),
    /// The file begun last is complete. Its size is given if it differs from that announced.
    End(Option<u64>),
    /// The rest of the file begun last cannot be read: the file is removed.
    Broken,
    /// Something without content: a symbolic link with its target, a device, a fifo, a socket.
    Special {
        /// Where.
        place: Place,
        /// Its attributes.
        meta: Meta,
        /// Target of a symbolic link.
        target: Vec<u8>,
        /// A number for links to it that come later.
        link: Option<u64>,
    },
    /// Another name.
    Link {
        /// Where.
        place: Place,
        /// The file.
        to: LinkTo,
    },
    /// A note on something that was left out, and why.
    Note(String),
}

/// Reads `source` into `volume` at `target`.
///
/// # Errors
/// A part of a volume goes into or over itself; a part cannot be read, with the path at the source; a part cannot be
/// written, with the path in the volume.
pub fn import(volume: &Volume, source: Source, target: Target, options: &ImportOptions) -> Result<Imported> {
    volume.check_writable()?;
    if let Source::Volume(other, from) = &source
        && std::ptr::eq(&**other, volume)
    {
        from_volume::refuse_itself(volume, from, &target)?;
    }
    let (tx, rx) = batch::channel();
    let o = options.clone();
    let named = target.name.is_some();
    let reader = tidegate_rt::thread::spawn("tg-reader", move || match source {
        Source::Tree(path) => walk::walk(&path, named, &o, tx),
        Source::Tar(read, name) => archive::read(read, &name, &o, tx),
        Source::Volume(volume, from) => from_volume::read(volume, from, &o, tx),
    })
    .map_err(|e| crate::Error::Os("reader thread".into(), e))?;
    let mut apply = apply::Applier::new(volume, target, options);
    let applied = apply.run(rx);
    // The receiver is dropped by now, so the reader ends at its next step.
    let read = reader.join();
    let notes = applied?;
    read?;
    Ok(Imported { notes })
}
