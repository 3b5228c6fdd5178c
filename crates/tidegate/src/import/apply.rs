//! Makes in the volume the items that the reading thread found.

use super::batch::BatchReceiver;
use super::left_out::LeftOut;
use super::place::{self, Dir, Places, Spot};
use super::{ImportOptions, Item, LinkTo, Over, Piece, Place, Target};
use crate::error::{Error as Failure, Refusal, Result, show};
use crate::node::{Meta, Xattr};
use crate::trail::Trail;
use crate::volume::Volume;
use std::collections::HashMap;
use std::sync::Arc;
use tidegate_block::PAGE_SIZE;
use tidegate_vfs::{
    Cred, Error, ErrorKind, File, FileType, Ino, Inode, NewInode, OpenFlags, SetAttr, XattrFlags, acl,
};

/// The most notes that are kept. More are only counted.
const MAX_NOTES: usize = 20;
/// The bytes as which a new inode or name counts between two syncs: its metadata is dirty memory, too.
const METADATA: u64 = PAGE_SIZE as u64;

/// The part of an import that changes the volume.
pub struct Applier<'a> {
    volume: &'a Volume,
    options: &'a ImportOptions,
    /// The file into which a single file is written.
    over: Option<Over>,
    places: Places<'a>,
    /// Inodes with several names, by the reader's number.
    links: HashMap<u64, Ino>,
    /// The file whose pieces are being received.
    current: Option<Current>,
    /// The place of a file that is not complete.
    partial: Option<(Arc<Inode>, Vec<u8>)>,
    /// Directories of a tar, in order of first mention. Their attributes are set after all files.
    later: Vec<(Dir, Meta)>,
    later_at: HashMap<Ino, usize>,
    left_out: LeftOut,
    unsynced: u64,
    notes: Vec<String>,
    more_notes: usize,
}

struct Current {
    inode: Arc<Inode>,
    file: File,
    meta: Meta,
    size: u64,
    at: Trail,
}

impl<'a> Applier<'a> {
    /// An applier that begins at `target`.
    pub fn new(volume: &'a Volume, mut target: Target, options: &'a ImportOptions) -> Self {
        Applier {
            volume,
            options,
            over: target.over.take(),
            places: Places::new(volume, target, options.owner.unwrap_or((0, 0))),
            links: HashMap::new(),
            current: None,
            partial: None,
            later: Vec::new(),
            later_at: HashMap::new(),
            left_out: LeftOut::default(),
            unsynced: 0,
            notes: Vec::new(),
            more_notes: 0,
        }
    }

    /// Applies all received items. Returns notes on attributes that could not be kept. A file that breaks off
    /// is removed.
    ///
    /// # Errors
    /// The first failure.
    pub fn run(&mut self, from: BatchReceiver) -> Result<Vec<String>> {
        let done = self.apply_all(from);
        // If the volume takes no more changes, not even this one, that error is returned.
        let dropped = self.drop_partial();
        done.and_then(|notes| dropped.map(|()| notes))
    }

    fn drop_partial(&mut self) -> Result<()> {
        let at = self.current.take().map_or_else(|| Trail::new(b""), |c| c.at);
        let Some((dir, name)) = self.partial.take() else { return Ok(()) };
        let dropped = self.volume.vfs().unlink(&Cred::ROOT, &dir, &name);
        dropped.map_err(|e| self.volume.error_at(&at.path(), e))
    }

    fn apply_all(&mut self, from: BatchReceiver) -> Result<Vec<String>> {
        while let Some(batch) = from.recv() {
            for item in batch {
                self.apply(item)?;
                self.sync_if_due()?;
            }
        }
        for (dir, meta) in std::mem::take(&mut self.later) {
            self.finish(&dir.inode, &meta, None, &dir.at)?;
        }
        if self.more_notes > 0 {
            self.notes.push(format!("and {} more", self.more_notes));
        }
        Ok(std::mem::take(&mut self.notes))
    }

    /// Syncs after a number of bytes, where the bytes of the volume must depend on the items alone. The end of a batch
    /// would not do: batches also hold notes, which depend on the host.
    fn sync_if_due(&mut self) -> Result<()> {
        if self.options.sync_every.is_none_or(|every| self.unsynced < every) {
            return Ok(());
        }
        self.unsynced = 0;
        self.volume.sync()
    }

    fn apply(&mut self, item: Item) -> Result<()> {
        if self.left_out.takes(&item) {
            return Ok(());
        }
        match item {
            Item::File { place, meta, size, piece, more, link } => {
                self.file(place, meta, size, piece, more, link)
            }
            Item::Data(piece) => {
                let c = self.current.as_ref().expect("a file was begun");
                let r = write(&c.file, piece, self.options, &mut self.unsynced);
                r.map_err(|e| self.volume.error_at(&c.at.path(), e))
            }
            Item::End(size) => {
                let c = self.current.take().expect("a file was begun");
                drop(c.file);
                self.complete(&c.inode, &c.meta, size.unwrap_or(c.size), &c.at)
            }
            Item::Broken => self.drop_partial(),
            Item::Dir { place, id, meta } => self.dir(place, id, meta),
            Item::Leave(id) => match self.places.leave(id) {
                Some((dir, meta)) => self.finish(&dir.inode, &meta, None, &dir.at),
                None => Ok(()),
            },
            Item::Special { place, meta, target, link } => {
                let spot = self.places.find(place)?;
                let inode = match self.make(&spot, &meta, &target) {
                    Ok(inode) => inode,
                    Err(e) => return self.leave_out(e, |left| left.leaf(link, false)),
                };
                self.remember(link, &inode);
                self.options.progress.file();
                self.finish(&inode, &meta, None, &spot.at())
            }
            Item::Link { place, to } => self.link(place, to),
            Item::Note(text) => {
                self.note(text);
                Ok(())
            }
        }
    }

    fn file(
        &mut self,
        place: Place,
        meta: Meta,
        size: u64,
        piece: Option<Piece>,
        more: bool,
        link: Option<u64>,
    ) -> Result<()> {
        let spot = self.places.find(place)?;
        let inode = match self.empty(&spot, &meta) {
            Ok(inode) => inode,
            Err(e) => return self.leave_out(e, |left| left.leaf(link, more)),
        };
        self.remember(link, &inode);
        self.partial = self.over.is_none().then(|| (spot.dir.inode.clone(), spot.name.clone()));
        if piece.is_none() && !more {
            return self.complete(&inode, &meta, size, &spot.at());
        }
        let vfs = self.volume.vfs();
        let opened = vfs.open(&Cred::ROOT, &inode, OpenFlags::WRITE);
        let file = opened.map_err(|e| self.volume.error_at(&spot.at().path(), e))?;
        if let Some(piece) = piece {
            let r = write(&file, piece, self.options, &mut self.unsynced);
            r.map_err(|e| self.volume.error_at(&spot.at().path(), e))?;
        }
        if more {
            self.current = Some(Current { inode, file, meta, size, at: spot.at() });
            return Ok(());
        }
        drop(file);
        self.complete(&inode, &meta, size, &spot.at())
    }

    /// An empty file: a new one, or the one that is overwritten.
    fn empty(&mut self, spot: &Spot, meta: &Meta) -> Result<Arc<Inode>> {
        let Some(over) = &self.over else { return self.make(spot, meta, b"") };
        let cut = SetAttr { size: Some(0), ..SetAttr::default() };
        let cut = self.volume.vfs().setattr(&Cred::ROOT, &over.inode, &cut);
        cut.map(|()| over.inode.clone()).map_err(|e| self.volume.error_at(&spot.at().path(), e))
    }

    /// Completes a file.
    fn complete(&mut self, inode: &Arc<Inode>, meta: &Meta, size: u64, at: &Trail) -> Result<()> {
        match &self.over {
            Some(over) if !over.attributes => {
                let end = SetAttr { size: (inode.size() != size).then_some(size), ..SetAttr::default() };
                let ended = self.volume.vfs().setattr(&Cred::ROOT, inode, &end);
                ended.map_err(|e| self.volume.error_at(&at.path(), e))?;
            }
            _ => self.finish(inode, meta, Some(size), at)?,
        }
        self.partial = None;
        self.options.progress.file();
        Ok(())
    }

    fn dir(&mut self, place: Place, id: u32, meta: Meta) -> Result<()> {
        let by_path = !matches!(place, Place::In(..)) && id == u32::MAX;
        let spot = self.places.find(place)?;
        let at = spot.at();
        let dir = if spot.name.is_empty() {
            spot.dir
        } else {
            let inode = match self.make_dir(&spot, &meta, by_path) {
                Ok(inode) => inode,
                Err(e) => return self.leave_out(e, |left| left.dir(id)),
            };
            // Its default ACL is read from the volume, as an existing directory may have another one than the
            // source.
            let has_default_acl = place::has_default_acl(self.volume, &inode);
            Dir { inode, at, has_default_acl }
        };
        self.options.progress.dir();
        if !by_path {
            self.places.enter(id, dir, meta);
        } else if let Some(&i) = self.later_at.get(&dir.inode.ino) {
            self.later[i].1 = meta;
        } else {
            self.later_at.insert(dir.inode.ino, self.later.len());
            self.later.push((dir, meta));
        }
        Ok(())
    }

    /// Makes a directory, or takes the existing one. A directory of a tar replaces anything else, as with tar(1); a
    /// directory of a tree does not, as with cp(1).
    fn make_dir(&mut self, spot: &Spot, meta: &Meta, replaces: bool) -> Result<Arc<Inode>> {
        match self.volume.vfs().lookup(&spot.dir.inode, &spot.name) {
            Ok(i) if i.is_dir() => Ok(i),
            Ok(_) if !replaces => {
                let why = "not a directory: it stays, and the directory of that name is left out";
                Err(self.volume.complain(Refusal::NotADirectory, &spot.at().path(), why))
            }
            // Set-group-id and default ACLs are set last, so that children do not inherit them.
            _ => self.make(spot, &Meta { mode: meta.mode & 0o777, ..meta.clone() }, b""),
        }
    }

    /// Reports an item that is left out because something of another kind has its place, and calls `note` to remember
    /// it. Other errors end the import, and so does this one if there is no function for failures.
    fn leave_out(&mut self, e: Failure, note: impl FnOnce(&mut LeftOut)) -> Result<()> {
        if !e.is_in_the_way() {
            return Err(e);
        }
        note(&mut self.left_out);
        self.tell(e)
    }

    /// Reports a failure that does not end the import, if there is a function for failures.
    fn tell(&self, e: Failure) -> Result<()> {
        let Some(failed) = &self.options.failed else { return Err(e) };
        failed(e);
        Ok(())
    }

    /// Makes an inode, which replaces the one that has its name.
    fn make(&mut self, spot: &Spot, meta: &Meta, target: &[u8]) -> Result<Arc<Inode>> {
        let vfs = self.volume.vfs();
        let new = NewInode {
            file_type: meta.kind,
            mode: meta.mode,
            dir_flags: 0,
            umask: 0,
            uid: meta.uid,
            gid: meta.gid,
            rdev: meta.rdev,
            target,
            time: vfs.now(),
        };
        let dir = &spot.dir.inode;
        let mut made = vfs.make(&Cred::ROOT, dir, &spot.name, &new);
        if made.as_ref().is_err_and(|e| e.kind() == ErrorKind::Exists) {
            // A directory is not replaced: its content would be lost.
            made = vfs.unlink(&Cred::ROOT, dir, &spot.name).and_then(|()| {
                self.places.forget();
                vfs.make(&Cred::ROOT, dir, &spot.name, &new)
            });
        }
        let inode = made.map_err(|e| self.volume.error_at(&spot.at().path(), e))?;
        self.unsynced += METADATA;
        if spot.dir.has_default_acl {
            for name in [acl::ACCESS, acl::DEFAULT] {
                // Most files have no such attribute.
                let _ = vfs.setxattr(&Cred::ROOT, &inode, name, None, XattrFlags::empty());
            }
        }
        Ok(inode)
    }

    fn link(&mut self, place: Place, to: LinkTo) -> Result<()> {
        let spot = self.places.find(place)?;
        let vfs = self.volume.vfs();
        let at = spot.at();
        if self.left_out.is_target(&to) {
            let why = "a hard link to something that was left out";
            return self.tell(self.volume.complain(Refusal::Missing, &at.path(), why));
        }
        let inode = match to {
            LinkTo::Seen(n) => {
                let ino = *self.links.get(&n).expect("announced before");
                vfs.iget(ino).map_err(|e| self.volume.error_at(&at.path(), e))?
            }
            LinkTo::Path(target) => match self.places.lookup(&target) {
                Ok(i) => i,
                Err(e) if e.is_not_found() => {
                    let why = format!("a hard link to {}, which is missing", show(&target));
                    return Err(self.volume.complain(Refusal::Missing, &at.path(), why));
                }
                Err(e) => return Err(e),
            },
        };
        let dir = &spot.dir.inode;
        let mut r = vfs.link(&Cred::ROOT, &inode, dir, &spot.name);
        if r.as_ref().is_err_and(|e| e.kind() == ErrorKind::Exists) {
            let same = vfs.lookup(dir, &spot.name).is_ok_and(|i| i.ino == inode.ino);
            r = if same {
                Ok(())
            } else {
                vfs.unlink(&Cred::ROOT, dir, &spot.name)
                    .and_then(|()| vfs.link(&Cred::ROOT, &inode, dir, &spot.name))
            };
        }
        match r.map_err(|e| self.volume.error_at(&at.path(), e)) {
            Ok(()) => {
                self.unsynced += METADATA;
                self.options.progress.file();
                Ok(())
            }
            Err(e) => self.leave_out(e, |_| {}),
        }
    }

    fn remember(&mut self, link: Option<u64>, inode: &Inode) {
        if let Some(n) = link {
            self.links.insert(n, inode.ino);
        }
    }

    /// Sets those attributes of an inode that differ after it was made and filled.
    fn finish(&mut self, inode: &Arc<Inode>, meta: &Meta, size: Option<u64>, at: &Trail) -> Result<()> {
        // A later change of owner or size would remove the capability.
        let is_capability = |x: &&Xattr| x.0 == b"security.capability";
        for (name, value) in meta.xattrs.iter().filter(|x| !is_capability(x)) {
            self.xattr(inode, name, value, at)?;
        }
        let set = {
            let a = inode.attr();
            // Modes of links have no meaning, and differ between systems.
            let owner = a.uid != meta.uid || a.gid != meta.gid;
            // A change of owner drops set-id bits unless the mode is set with it.
            let mode = (a.mode != meta.mode || owner) && a.file_type != FileType::Symlink;
            SetAttr {
                mode: mode.then_some(meta.mode),
                uid: (a.uid != meta.uid).then_some(meta.uid),
                gid: (a.gid != meta.gid).then_some(meta.gid),
                size: size.filter(|s| *s != a.size),
                atime: (a.atime != meta.atime).then_some(meta.atime),
                mtime: (a.mtime != meta.mtime || size.is_some_and(|s| s != a.size)).then_some(meta.mtime),
                ..Default::default()
            }
        };
        if set != SetAttr::default() {
            let done = self.volume.vfs().setattr(&Cred::ROOT, inode, &set);
            done.map_err(|e| self.volume.error_at(&at.path(), e))?;
        }
        for (name, value) in meta.xattrs.iter().filter(is_capability) {
            self.xattr(inode, name, value, at)?;
        }
        Ok(())
    }

    fn xattr(&mut self, inode: &Arc<Inode>, name: &[u8], value: &[u8], at: &Trail) -> Result<()> {
        let set =
            |v: &[u8]| self.volume.vfs().setxattr(&Cred::ROOT, inode, name, Some(v), XattrFlags::empty());
        match set(value) {
            Ok(()) => Ok(()),
            Err(e) if matches!(e.kind(), ErrorKind::Unsupported | ErrorKind::NotPermitted) => {
                self.note(format!(
                    "{}: attribute {} is not kept: {}",
                    show(&at.path()),
                    show(name),
                    e.kind().message()
                ));
                Ok(())
            }
            Err(e) => {
                let too_big = e.kind() == ErrorKind::TooBig;
                let e = self.volume.error_at(&at.path(), e.of(format!("attribute {}", show(name))));
                if too_big { self.tell(e) } else { Err(e) }
            }
        }
    }

    fn note(&mut self, text: String) {
        if self.notes.len() < MAX_NOTES {
            self.notes.push(text);
        } else {
            self.more_notes += 1;
        }
    }
}

/// Writes a piece, without a copy where it begins at a page.
fn write(
    file: &File,
    piece: Piece,
    options: &ImportOptions,
    unsynced: &mut u64,
) -> std::result::Result<(), Error> {
    options.progress.data(piece.len as u64);
    *unsynced += piece.len as u64;
    if piece.pos.is_multiple_of(PAGE_SIZE as u64) {
        file.write_buf(piece.pos, piece.buf, piece.len)
    } else {
        file.write_at(piece.pos, &piece.buf[..piece.len]).map(drop)
    }
}
