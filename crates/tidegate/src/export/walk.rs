//! Walks a volume: all other files first, then the directories.

use super::{From, Item, content};
use crate::error::{Error, Failed};
use crate::node::Meta;
use crate::progress::Progress;
use crate::trail::{Met, Trail};
use crate::volume::Volume;
use std::collections::HashSet;
use std::sync::Arc;
use tidegate_rt::channel::Sender;
use tidegate_vfs::{DirEntry, FileType, Ino, Inode};

/// A batch is sent when it has this many bytes or items.
const BATCH_BYTES: usize = 512 << 10;
const BATCH_ITEMS: usize = 128;
const ITEM_BYTES: usize = 512;

/// In which order the entries of a directory come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// By name: the order is the same each time.
    Name,
    /// By inode number: near to the order on the volume.
    Inode,
}

/// Ends a walk: an error, or the other thread has one.
enum End {
    Error(Error),
    Gone,
}

impl std::convert::From<Error> for End {
    fn from(e: Error) -> Self {
        End::Error(e)
    }
}

/// The way to the writing thread.
struct Out {
    to: Sender<Vec<Item>>,
    batch: Vec<Item>,
    bytes: usize,
}

impl Out {
    fn push(&mut self, item: Item) -> std::result::Result<(), End> {
        self.bytes += ITEM_BYTES
            + match &item {
                Item::File { pieces, .. } => pieces.iter().map(|p| p.run.bytes().len()).sum(),
                Item::Data(p) => p.run.bytes().len(),
                _ => 0,
            };
        self.batch.push(item);
        if self.bytes >= BATCH_BYTES || self.batch.len() >= BATCH_ITEMS { self.send() } else { Ok(()) }
    }

    fn send(&mut self) -> std::result::Result<(), End> {
        let batch = std::mem::replace(&mut self.batch, Vec::with_capacity(BATCH_ITEMS));
        let bytes = std::mem::take(&mut self.bytes);
        if batch.is_empty() { Ok(()) } else { self.to.send(batch, bytes).map_err(|_| End::Gone) }
    }
}

/// A directory on the way down.
struct Level {
    below: Vec<(Arc<Inode>, Vec<u8>)>,
    at: Trail,
}

struct Walker<'a> {
    volume: &'a Volume,
    order: Order,
    progress: &'a Progress,
    out: Out,
    linked: HashSet<Ino>,
    met: Met,
    /// A file was begun and is not complete yet.
    begun: bool,
    failed: &'a Failed,
}

/// Sends the file or directory `from` and all below it. The top has an empty name. A part that cannot be read
/// is reported to `failed` and left out.
pub fn walk(
    volume: &Volume,
    from: &From,
    order: Order,
    progress: &Progress,
    to: Sender<Vec<Item>>,
    failed: &Failed,
) {
    let out = Out { to, batch: Vec::new(), bytes: 0 };
    let (linked, met) = (HashSet::new(), Met::default());
    let mut w = Walker { volume, order, progress, out, linked, met, begun: false, failed };
    if let Err(End::Error(e)) = w.run(from) {
        failed(e);
    }
}

impl Walker<'_> {
    fn run(&mut self, from: &From) -> std::result::Result<(), End> {
        if !from.inode.is_dir() {
            self.leaf(&from.inode, Vec::new(), &Trail::new(&from.path))?;
            return self.out.send();
        }
        let mut stack = vec![self.enter(&from.inode, Vec::new(), Trail::new(&from.path))?];
        while let Some(level) = stack.last_mut() {
            match level.below.pop() {
                Some((inode, name)) => {
                    let at = level.at.below(&name);
                    match self.enter(&inode, name, at) {
                        Ok(level) => stack.push(level),
                        Err(End::Error(e)) => (self.failed)(e),
                        Err(End::Gone) => return Err(End::Gone),
                    }
                }
                None => {
                    self.out.push(Item::Leave)?;
                    stack.pop();
                }
            }
        }
        self.out.send()
    }

    /// The attributes, without those that cannot be read.
    fn meta(&self, inode: &Inode, at: &Trail) -> Meta {
        let xattrs = self.volume.xattrs(inode).unwrap_or_else(|e| {
            (self.failed)(self.volume.error_at(&at.path(), e));
            Vec::new()
        });
        Meta::of(&inode.attr(), xattrs)
    }

    /// Begins a directory and sends its files, but not its directories. A directory that cannot be read is
    /// sent as empty.
    fn enter(&mut self, dir: &Arc<Inode>, name: Vec<u8>, at: Trail) -> std::result::Result<Level, End> {
        self.met.enter(self.volume, dir, &at)?;
        let meta = self.meta(dir, &at);
        self.out.push(Item::Dir { name, meta })?;
        self.progress.dir();
        let mut entries = self.volume.vfs().entries(dir).unwrap_or_else(|e| {
            (self.failed)(self.volume.error_at(&at.path(), e));
            Vec::new()
        });
        match self.order {
            Order::Name => entries.sort_unstable_by(|a, b| a.name.cmp(&b.name)),
            Order::Inode => entries.sort_unstable_by_key(|e| e.ino),
        }
        let mut below = Vec::new();
        for entry in entries {
            let entry_at = at.below(&entry.name);
            match self.look_at(&entry, &entry_at) {
                Ok(inode) if inode.is_dir() => below.push((inode, entry.name)),
                Ok(inode) => self.leaf(&inode, entry.name, &entry_at)?,
                Err(e) => (self.failed)(e),
            }
        }
        below.reverse();
        Ok(Level { below, at })
    }

    /// The inode of an entry. Names go to the host unchanged, so a name that leads elsewhere is refused.
    fn look_at(&self, e: &DirEntry, at: &Trail) -> crate::Result<Arc<Inode>> {
        let bad = e.name.is_empty()
            || e.name == b"."
            || e.name == b".."
            || e.name.iter().any(|b| b"/\0".contains(b));
        if bad {
            let what = tidegate_vfs::Error::corrupt("not a file name");
            return Err(self.volume.error_at(&at.path(), what));
        }
        // The number is known, so the name need not be looked up.
        self.volume.vfs().iget(e.ino).map_err(|e| self.volume.error_at(&at.path(), e))
    }

    /// Sends a file that is no directory; a part that cannot be read is reported.
    fn leaf(&mut self, inode: &Arc<Inode>, name: Vec<u8>, at: &Trail) -> std::result::Result<(), End> {
        let meta = self.meta(inode, at);
        let (nlink, size) = {
            let a = inode.attr();
            (a.nlink, a.size)
        };
        let link = (nlink > 1).then_some(inode.ino.0);
        let sent = if nlink > 1 && !self.linked.insert(inode.ino) {
            self.out.push(Item::Link { name, to: inode.ino.0, meta })
        } else if inode.file_type == FileType::Regular {
            self.file(inode, name, at, meta, size, link)
        } else {
            self.special(inode, name, at, meta, link)
        };
        match sent {
            Ok(()) => {
                self.progress.file();
                Ok(())
            }
            Err(End::Error(e)) => {
                // The next name of the file is then tried like a first.
                self.linked.remove(&inode.ino);
                (self.failed)(e);
                if std::mem::take(&mut self.begun) { self.out.push(Item::Abandon) } else { Ok(()) }
            }
            Err(End::Gone) => Err(End::Gone),
        }
    }

    fn special(
        &mut self,
        inode: &Arc<Inode>,
        name: Vec<u8>,
        at: &Trail,
        meta: Meta,
        link: Option<u64>,
    ) -> std::result::Result<(), End> {
        let target = match inode.file_type {
            FileType::Symlink => {
                self.volume.vfs().readlink(inode).map_err(|e| self.volume.error_at(&at.path(), e))?
            }
            _ => Vec::new(),
        };
        self.out.push(Item::Special { name, meta, target, link })
    }

    fn file(
        &mut self,
        inode: &Arc<Inode>,
        name: Vec<u8>,
        at: &Trail,
        meta: Meta,
        size: u64,
        link: Option<u64>,
    ) -> std::result::Result<(), End> {
        let volume = self.volume;
        let at_path = |e| volume.error_at(&at.path(), e);
        let file = content::Content::open(volume, inode, size).map_err(at_path)?;
        let ranges = file.ranges().map_err(at_path)?;
        let whole = [(0, size)];
        let mut rest =
            ranges.as_deref().unwrap_or(&whole).iter().copied().flat_map(content::split).peekable();
        let mut pieces = Vec::new();
        if let Some(range) = rest.next() {
            file.read(range, &mut pieces).map_err(at_path)?;
            self.progress.data(range.1);
        }
        let more = rest.peek().is_some();
        let ranges_too = ranges.clone();
        self.out.push(Item::File { name, meta, size, ranges: ranges_too, pieces, more, link })?;
        if !more {
            return Ok(());
        }
        self.begun = true;
        for range in rest {
            let mut pieces = Vec::new();
            file.read(range, &mut pieces).map_err(at_path)?;
            self.progress.data(range.1);
            pieces.into_iter().try_for_each(|p| self.out.push(Item::Data(p)))?;
        }
        self.begun = false;
        self.out.push(Item::End)
    }
}
