//! Into a volume: directories and tars of the host.
//!
//! A reading thread turns the source into [`Item`]s, contents already in page buffers, and sends them in
//! batches over a channel bounded by bytes. The calling thread applies them: one `make`, the buffers
//! handed over without a copy, one change of attributes. So reading and writing overlap, memory is
//! bounded, and the volume sees one order of changes, that of the source.
//!
//! | module | holds |
//! |---|---|
//! | `walk`, `read_file` | reading a directory tree; one file's data in page buffers |
//! | `archive` | reading a tar |
//! | `from_volume` | reading a volume |
//! | `batch` | the channel between the two threads |
//! | `apply`, `place` | making things in the volume; finding where they go |
//! | `left_out` | parts of a tree that do not go in |
//!
//! Lock: `import->failed` 994, around the first error of reading a volume; taken alone.

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
    /// A file or a directory tree of a volume, also of the one that it goes into.
    Volume(Arc<Volume>, crate::export::From),
}

/// Where it goes.
pub struct Target {
    /// A directory of the volume.
    pub dir: Arc<Inode>,
    /// Its path.
    pub path: Vec<u8>,
    /// The name it gets there; `None` when a directory's or a tar's content goes into `dir` itself.
    pub name: Option<Vec<u8>>,
    /// The file that a single file is written into, wherever it is; without one it gets the name anew.
    pub over: Option<Over>,
}

/// A file that gets the content of another one. It keeps its names.
pub struct Over {
    /// The file.
    pub inode: Arc<Inode>,
    /// It gets the attributes, too.
    pub attributes: bool,
}

/// How to read and write.
#[derive(Clone, Default)]
pub struct ImportOptions {
    /// No time is later than this, so that equal content makes equal bytes.
    pub clamp: Option<Timespec>,
    /// User and group that everything is given, instead of its owner at the source.
    pub owner: Option<(u32, u32)>,
    /// Sync each time so many bytes went in, for a write-out order that does not depend on timing.
    pub sync_every: Option<u64>,
    /// Device and inode numbers of files that are left out: the image itself.
    pub skip: Vec<(u64, u64)>,
    /// Is told of each thing in a tree that cannot be read, or whose place something of another kind has in
    /// the volume; the others go in. With nobody to tell, the first ends the import.
    pub failed: Option<Failed>,
    /// Counters to move on.
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

/// Where an item goes.
#[derive(Debug)]
pub enum Place {
    /// Below a directory announced before.
    In(DirId, Vec<u8>),
    /// At a path below the target.
    Path(Vec<u8>),
    /// The target itself.
    Root,
}

/// A directory of the source.
pub type DirId = u32;

/// Where a hard link leads.
#[derive(Debug)]
pub enum LinkTo {
    /// To the file announced with this number.
    Seen(u64),
    /// To a path below the target.
    Path(Vec<u8>),
}

/// A piece of a file's content.
#[derive(Debug)]
pub struct Piece {
    /// Where it begins.
    pub pos: u64,
    /// The bytes.
    pub buf: PageBuf,
    /// How many count.
    pub len: usize,
}

/// One step of an import. Steps of one file follow each other.
#[derive(Debug)]
pub enum Item {
    /// A directory, to be made or to be filled.
    Dir {
        /// Where.
        place: Place,
        /// The number that later places have for it.
        id: DirId,
        /// Its attributes; set once everything is in it.
        meta: Meta,
    },
    /// Nothing more goes into this directory.
    Leave(DirId),
    /// A regular file, with its first piece; complete unless `more`.
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
    /// The file begun last is complete; its size if that turned out different.
    End(Option<u64>),
    /// The rest of the file begun last cannot be read: it is taken away.
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
        /// Of what.
        to: LinkTo,
    },
    /// Something that was left out, and why.
    Note(String),
}

/// Reads `source` into `volume` at `target`.
///
/// # Errors
/// A part of a volume goes into or over itself; the part that cannot be read, by the source's path; the part that cannot be written, by the volume's.
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
    // The receiver is gone by now: the reader ends at its next step.
    let read = reader.join();
    let notes = applied?;
    read?;
    Ok(Imported { notes })
}
