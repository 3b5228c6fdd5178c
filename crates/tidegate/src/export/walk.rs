//! Walks a volume: what is no directory first, then the directories.

use super::{From, Item, content};
use crate::error::{Error, Result};
use crate::node::Meta;
use crate::paths::join;
use crate::progress::Progress;
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
    /// By name: the same each time.
    Name,
    /// By inode number: near to how they lie on the volume.
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
    path: Vec<u8>,
}

struct Walker<'a> {
    volume: &'a Volume,
    order: Order,
    progress: &'a Progress,
    out: Out,
    linked: HashSet<Ino>,
    /// Directories met: a damaged volume may hold one twice, which would not end.
    dirs: HashSet<Ino>,
}

/// Sends what `from` is and all below it. The top has an empty name.
///
/// # Errors
/// What cannot be read.
pub fn walk(
    volume: &Volume,
    from: &From,
    order: Order,
    progress: &Progress,
    to: Sender<Vec<Item>>,
) -> Result<()> {
    let out = Out { to, batch: Vec::new(), bytes: 0 };
    let mut w = Walker { volume, order, progress, out, linked: HashSet::new(), dirs: HashSet::new() };
    match w.run(from) {
        Ok(()) | Err(End::Gone) => Ok(()),
        Err(End::Error(e)) => Err(e),
    }
}

impl Walker<'_> {
    fn run(&mut self, from: &From) -> std::result::Result<(), End> {
        if !from.inode.is_dir() {
            self.leaf(&from.inode, Vec::new(), &from.path)?;
            return self.out.send();
        }
        let mut stack = vec![self.enter(&from.inode, Vec::new(), from.path.clone())?];
        while let Some(level) = stack.last_mut() {
            match level.below.pop() {
                Some((inode, name)) => {
                    let path = join(&level.path, &name);
                    let level = self.enter(&inode, name, path)?;
                    stack.push(level);
                }
                None => {
                    self.out.push(Item::Leave)?;
                    stack.pop();
                }
            }
        }
        self.out.send()
    }

    fn meta(&self, inode: &Inode, path: &[u8]) -> Result<Meta> {
        let xattrs = self.volume.xattrs(inode, path)?;
        Ok(Meta::of(&inode.attr(), xattrs))
    }

    fn enter(&mut self, dir: &Arc<Inode>, name: Vec<u8>, path: Vec<u8>) -> std::result::Result<Level, End> {
        if !self.dirs.insert(dir.ino) {
            return Err(self
                .volume
                .complain(&path, "the volume is damaged: a directory with two parents")
                .into());
        }
        let meta = self.meta(dir, &path)?;
        self.out.push(Item::Dir { name, meta })?;
        self.progress.dir();
        let mut entries = self.volume.vfs().entries(dir).map_err(|e| self.volume.error_at(&path, e))?;
        match self.order {
            Order::Name => entries.sort_unstable_by(|a, b| a.name.cmp(&b.name)),
            Order::Inode => entries.sort_unstable_by_key(|e| e.ino),
        }
        let mut below = Vec::new();
        for entry in entries {
            let at = join(&path, &entry.name);
            self.check_name(&entry, &at)?;
            // The number is known, so the name need not be looked up.
            let inode = self.volume.vfs().iget(entry.ino).map_err(|e| self.volume.error_at(&at, e))?;
            if inode.is_dir() {
                below.push((inode, entry.name));
            } else {
                self.leaf(&inode, entry.name, &at)?;
            }
        }
        below.reverse();
        Ok(Level { below, path })
    }

    /// Names go to the host as they are, so none may lead elsewhere.
    fn check_name(&self, e: &DirEntry, path: &[u8]) -> Result<()> {
        let bad = e.name.is_empty()
            || e.name == b"."
            || e.name == b".."
            || e.name.iter().any(|b| b"/\0".contains(b));
        if bad { Err(self.volume.complain(path, "the volume is damaged: not a file name")) } else { Ok(()) }
    }

    fn leaf(&mut self, inode: &Arc<Inode>, name: Vec<u8>, path: &[u8]) -> std::result::Result<(), End> {
        let meta = self.meta(inode, path)?;
        let (nlink, size) = {
            let a = inode.attr();
            (a.nlink, a.size)
        };
        self.progress.file();
        let link = (nlink > 1).then_some(inode.ino.0);
        if nlink > 1 && !self.linked.insert(inode.ino) {
            return self.out.push(Item::Link { name, to: inode.ino.0, meta });
        }
        if inode.file_type != FileType::Regular {
            let target = match inode.file_type {
                FileType::Symlink => {
                    self.volume.vfs().readlink(inode).map_err(|e| self.volume.error_at(path, e))?
                }
                _ => Vec::new(),
            };
            return self.out.push(Item::Special { name, meta, target, link });
        }
        let file =
            content::Content::open(self.volume, inode, size).map_err(|e| self.volume.error_at(path, e))?;
        let ranges = file.ranges().map_err(|e| self.volume.error_at(path, e))?;
        let whole = [(0, size)];
        let mut at = ranges.as_deref().unwrap_or(&whole).iter().copied().flat_map(content::split).peekable();
        let mut pieces = Vec::new();
        if let Some(range) = at.next() {
            file.read(range, &mut pieces).map_err(|e| self.volume.error_at(path, e))?;
            self.progress.data(range.1);
        }
        let more = at.peek().is_some();
        let ranges_too = ranges.clone();
        self.out.push(Item::File { name, meta, size, ranges: ranges_too, pieces, more, link })?;
        if more {
            for range in at {
                let mut pieces = Vec::new();
                file.read(range, &mut pieces).map_err(|e| self.volume.error_at(path, e))?;
                self.progress.data(range.1);
                pieces.into_iter().try_for_each(|p| self.out.push(Item::Data(p)))?;
            }
            self.out.push(Item::End)?;
        }
        Ok(())
    }
}
