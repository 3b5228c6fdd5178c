//! Reads a file or tree of a volume, which may be the target volume itself: turns the steps of an export into those of
//! an import.

use super::batch::{BatchSender, Gone};
use super::{DirId, ImportOptions, Item, LinkTo, Piece, Place, Target};
use crate::error::{Error, Failed, Refusal, Result};
use crate::export::{self, walk};
use crate::volume::Volume;
use std::collections::HashSet;
use std::sync::Arc;
use tidegate_block::{PAGE_SIZE, PageBuf};
use tidegate_rt::channel::{Receiver, bounded};
use tidegate_rt::{LockClass, Mutex};
use tidegate_vfs::{FileType, Inode};

/// The most bytes in the channel before the walk waits.
const BOUND: usize = 8 << 20;

static FAILED: LockClass = LockClass::new("import->failed", 994);

/// Reads `from` and sends its items. A part that cannot be read is reported, or ends the reading if there is no
/// function for failures.
pub fn read(volume: Arc<Volume>, from: export::From, options: &ImportOptions, to: BatchSender) -> Result<()> {
    let (tx, rx) = bounded(BOUND);
    let first = Arc::new(Mutex::new(&FAILED, None));
    let failed: Failed = options.failed.clone().unwrap_or_else(|| {
        let first = first.clone();
        Arc::new(move |e| {
            first.lock().get_or_insert(e);
        })
    });
    let uncounted = Default::default();
    let walker = tidegate_rt::thread::spawn("tg-walker", move || {
        walk::walk(&volume, &from, walk::Order::Name, &uncounted, tx, &failed);
    });
    let walker = walker.map_err(|e| Error::Os("walking thread".into(), e))?;
    let mut sender = Translator { options, to, dirs: Vec::new(), next: 0 };
    // An error of the walk, or a gone receiver, ends the walk: its next step finds no receiver.
    let ended = || first.lock().is_some();
    let _ = sender.run(rx, ended);
    walker.join();
    let first = first.lock().take();
    first.map_or(Ok(()), Err)
}

struct Translator<'a> {
    options: &'a ImportOptions,
    to: BatchSender,
    /// The directories on the way down.
    dirs: Vec<DirId>,
    next: DirId,
}

impl Translator<'_> {
    fn run(
        &mut self,
        from: Receiver<Vec<export::Item>>,
        ended: impl Fn() -> bool,
    ) -> std::result::Result<(), Gone> {
        while let Some(batch) = from.recv() {
            if ended() {
                break;
            }
            batch.into_iter().try_for_each(|item| self.send(item))?;
        }
        self.to.send()
    }

    fn send(&mut self, item: export::Item) -> std::result::Result<(), Gone> {
        match item {
            export::Item::Dir { name, mut meta } => {
                self.options.adjust(&mut meta);
                let (place, id) = (self.place(name), self.next);
                self.next += 1;
                self.dirs.push(id);
                self.to.push(Item::Dir { place, id, meta })
            }
            export::Item::Leave => self.dirs.pop().map_or(Ok(()), |id| self.to.push(Item::Leave(id))),
            export::Item::File { name, mut meta, size, ranges: _, mut pieces, more, link } => {
                self.options.adjust(&mut meta);
                let place = self.place(name);
                if !more && pieces.len() < 2 {
                    let piece = pieces.pop().map(piece);
                    return self.to.push(Item::File { place, meta, size, piece, more, link });
                }
                self.to.push(Item::File { place, meta, size, piece: None, more: true, link })?;
                pieces.into_iter().try_for_each(|p| self.to.push(Item::Data(piece(p))))?;
                if more { Ok(()) } else { self.to.push(Item::End(None)) }
            }
            export::Item::Data(p) => self.to.push(Item::Data(piece(p))),
            export::Item::End => self.to.push(Item::End(None)),
            export::Item::Abandon => self.to.push(Item::Broken),
            export::Item::Special { name, mut meta, target, link } => {
                self.options.adjust(&mut meta);
                let place = self.place(name);
                self.to.push(Item::Special { place, meta, target, link })
            }
            export::Item::Link { name, to, meta: _ } => {
                let place = self.place(name);
                self.to.push(Item::Link { place, to: LinkTo::Seen(to) })
            }
        }
    }

    fn place(&self, name: Vec<u8>) -> Place {
        self.dirs.last().map_or(Place::Root, |&dir| Place::In(dir, name))
    }
}

/// The bytes in a buffer that a mapping can keep. The buffers of an export may belong to another mapping.
fn piece(from: export::Piece) -> Piece {
    let mut buf = PageBuf::stale(from.len.div_ceil(PAGE_SIZE).max(1));
    buf[..from.len].copy_from_slice(&from.run.bytes()[..from.len]);
    Piece { pos: from.pos, buf, len: from.len }
}

/// Refuses to copy a directory of `volume` into itself, which would not end, and a file over itself, which would be empty.
///
/// # Errors
/// The refusal; those of reading the directories.
pub fn refuse_itself(volume: &Volume, from: &export::From, target: &Target) -> Result<()> {
    let refused = |what| Err(volume.complain(Refusal::Argument, &from.path, what));
    if target.over.as_ref().is_some_and(|over| over.inode.ino == from.inode.ino) {
        return refused("source and destination are the same file");
    }
    if let Some(there) = target.name.as_deref().and_then(|name| volume.vfs().lookup(&target.dir, name).ok()) {
        let leads =
            |to: &Inode| volume.find(&from.path, true).is_ok_and(|i| i.is_some_and(|i| i.ino == to.ino));
        let is_link = from.inode.file_type == FileType::Symlink;
        if there.ino == from.inode.ino || is_link && leads(&there) {
            return refused("source and destination are the same file");
        }
    }
    if !from.inode.is_dir() {
        return Ok(());
    }
    let (mut at, mut passed) = (target.dir.clone(), HashSet::new());
    // Parents that do not lead to the root are damage, which the check reports.
    while at.ino != from.inode.ino {
        if at.ino == volume.vfs().fs().root() || !passed.insert(at.ino) {
            return Ok(());
        }
        at = volume.vfs().lookup(&at, b"..").map_err(|e| volume.error_at(&target.path, e))?;
    }
    refused("a directory cannot be copied into itself")
}
