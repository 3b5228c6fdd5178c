//! Out of a volume: into a directory of the host, or a tar.
//!
//! The calling thread walks the volume and reads contents, as runs of pages, without a copy where the pages
//! are not cached. A second thread writes the items. It gets them in batches over a channel that is bounded
//! by bytes.
//!
//! | module | holds |
//! |---|---|
//! | `walk` | walking the volume: [`Item`]s in order |
//! | `content` | a file's data and holes |
//! | `dir`, `attrs` | making a tree on the host; its attributes |
//! | `sink`, `replace` | one file of the tree; taking over a name that exists |
//! | `archive` | making a tar |

pub(crate) mod archive;
pub(crate) mod attrs;
pub(crate) mod content;
pub(crate) mod dir;
pub(crate) mod replace;
pub(crate) mod sink;
pub(crate) mod walk;

use crate::error::{Error, Failed, Result};
use crate::node::Meta;
use crate::progress::Progress;
use crate::volume::Volume;
pub use attrs::umask;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use tidegate_rt::channel::bounded;
use tidegate_vfs::{Inode, PageRun};

/// The most bytes in the channel before the reader waits.
const BOUND: usize = 24 << 20;

/// An export's notes.
#[derive(Clone, Debug, Default)]
pub struct Exported {
    /// Attributes that could not be kept, one line each.
    pub notes: Vec<String>,
}

/// The destination of an export on the host.
#[derive(Clone, Debug)]
pub struct To {
    /// The path of the destination. An existing directory is filled. An existing file of any kind takes the
    /// content of an item that is no directory, and otherwise stays as it is; a link to it is followed.
    pub path: PathBuf,
    /// The path's last name is the item's, and not one that the caller named: a link there is no directory to fill.
    pub inside: bool,
    /// An existing file or directory also gets the other attributes.
    pub attributes: bool,
    /// All files keep their owner and group. Otherwise they belong to the caller, and lose set-id bits and
    /// capabilities, which were given to another owner.
    pub owners: bool,
    /// All files keep their permissions. Otherwise they lose the bits of the umask, set-id and sticky bits, and ACLs.
    pub permissions: bool,
    /// The image that is read, by the numbers of its device and inode: no file replaces it.
    pub image: Option<(u64, u64)>,
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
    /// A directory begins. The steps up to its `Leave` are in it.
    Dir {
        /// Its name.
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
        /// The ranges of its data, if it has holes: offset and length.
        ranges: Option<Vec<(u64, u64)>>,
        /// Its content, or the first part of it.
        pieces: Vec<Piece>,
        /// `Data` and an `End` follow.
        more: bool,
        /// Its number, if other names of it may follow.
        link: Option<u64>,
    },
    /// More of the file begun last.
    Data(Piece),
    /// The file begun last is complete.
    End,
    /// The rest of the file begun last cannot be read.
    Abandon,
    /// Something without content.
    Special {
        /// Its name.
        name: Vec<u8>,
        /// Its attributes.
        meta: Meta,
        /// Target of a symbolic link.
        target: Vec<u8>,
        /// Its number, if other names of it may follow.
        link: Option<u64>,
    },
    /// Another name of the file that had this number.
    Link {
        /// The name.
        name: Vec<u8>,
        /// The number.
        to: u64,
        /// Attributes of the file.
        meta: Meta,
    },
}

/// The part of a volume that is read.
pub struct From {
    /// The inode.
    pub inode: Arc<Inode>,
    /// Its path, for errors.
    pub path: Vec<u8>,
}

/// Writes the file or tree `from` to the host: as `to`, or into `to` when both are directories. `failed` gets
/// the parts that cannot be read, with their paths in the volume, and the files that cannot be made, with
/// their paths on the host.
///
/// # Errors
/// Errors of the host after which no more can be written, such as no space.
pub fn to_host(
    volume: &Volume,
    from: &From,
    to: To,
    progress: &Arc<Progress>,
    failed: &Failed,
) -> Result<Exported> {
    let (tx, rx) = bounded(BOUND);
    let to_failed = failed.clone();
    let writer = tidegate_rt::thread::spawn("tg-writer", move || dir::write(&to, rx, to_failed))
        .map_err(|e| Error::Os("writer thread".into(), e))?;
    walk::walk(volume, from, walk::Order::Inode, progress, tx, failed);
    writer.join()
}

/// Writes the file or tree `from` as a pax tar, in order of name. The top is called `name`, or `.`; errors of
/// writing call the tar `stream`. `failed` gets the parts that cannot be read. The rest of a file that breaks
/// off is zeros.
///
/// # Errors
/// Those of writing.
pub fn to_tar(
    volume: &Volume,
    from: &From,
    to: Box<dyn Write + Send>,
    stream: &str,
    name: Option<Vec<u8>>,
    progress: &Arc<Progress>,
    failed: &Failed,
) -> Result<Exported> {
    let (tx, rx) = bounded(BOUND);
    let stream = stream.to_string();
    let name = name.unwrap_or_else(|| b".".to_vec());
    let writer = tidegate_rt::thread::spawn("tg-writer", move || archive::write(to, &stream, name, rx))
        .map_err(|e| Error::Os("writer thread".into(), e))?;
    walk::walk(volume, from, walk::Order::Name, progress, tx, failed);
    writer.join()
}
