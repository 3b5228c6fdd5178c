//! Changes of names: create, link, unlink, and the end of an inode.
//!
//! Each change runs with `cp_rwsem` held shared, so a checkpoint has all of the change or nothing. All reads
//! come before the first change: an error in a read leaves all as it was. A failure after the first change
//! stops the volume.

use crate::dir::names::Names;
use crate::durable::since_cp::Since;
use crate::file::affinity::Writer;
use crate::file::extent::ExtentCache;
use crate::file::stream::ChosenStreams;
use crate::file::truncate::CutStep;
use crate::format::dentry::type_to_raw;
use crate::format::raw::*;
use crate::format::units::Nid;
use crate::inode::dirty;
use crate::inode::fsync_state::FsyncState;
use crate::inode::{F2fsInode, I_DNODE, NodeId, fi, write_extra, write_fields, write_rdev};
use crate::node::Freed;
use crate::volume::sbi::F2fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering::Relaxed, Ordering::SeqCst};
use tidegate_rt::{Mutex, Timespec};
use tidegate_vfs::fs::NewXattrs;
use tidegate_vfs::{Attr, ErrorKind, FileType, Ino, Inode, InodeParts, NewInode, Result};

/// Flags that a file inherits from its directory, as on Linux: `FS_SYNC_FL`, `FS_NODUMP_FL` and `FS_NOATIME_FL`. Volumes with
/// compression, casefolding or project ids, which have more of them, are only read.
const INHERITED: u32 = 0xc8;
/// The flags among them that any kind of file can have.
const FOR_OTHERS: u32 = 0xc0;
/// `FS_DIRSYNC_FL`, only for directories.
const FOR_DIRECTORIES: u32 = 0x1_0000;

/// Most names that an inode can have.
const F2FS_LINK_MAX: u32 = u32::MAX;

impl F2fs {
    /// Makes an inode with its attributes under `name`, which the directory does not have yet.
    pub(crate) fn create_inode(
        &self,
        dir: &Arc<Inode>,
        name: &[u8],
        new: &NewInode<'_>,
        xattrs: &NewXattrs,
    ) -> Result<InodeParts> {
        let xattrs = crate::inode::xattr::first_list(xattrs)?;
        let _op = self.cp_rwsem.read();
        self.read_inodes([&**dir])?;
        let is_dir = new.file_type == FileType::Directory;
        let f = self.new_private(dir, name, new);
        let mut attr = self.new_attr(new, &f);
        let long_target = new.file_type == FileType::Symlink && !f.has_inline(inline::DATA);
        let nid = self.new_node(None, 0, !is_dir, |page| self.fill_inode(page, &attr, &f, name, new))?;
        let mut target_block = None;
        let made = (|| {
            self.give_xattrs(nid, &f, &mut attr, &xattrs)?;
            if is_dir {
                self.fill_inline_dir(nid, &f, dir.ino)?;
            }
            if long_target {
                let blk = self.place_first_block(nid, new.target)?;
                target_block = Some(blk);
                attr.blocks += 8;
                self.modify_node(nid, |page| {
                    set_word(page, f.addr_base(), blk.0);
                    write_fields(page, &attr, &f, Default::default());
                })?;
            }
            self.since_cp.note(nid.0, Since::NEW);
            self.add_entry(dir, name, nid.0, type_to_raw(new.file_type))
        })();
        if let Err(e) = made {
            self.finish(|| {
                if let Some(blk) = target_block {
                    self.sit.invalidate(&[blk])?;
                    self.unbook(1, 0, 0);
                }
                self.unmake(nid, &f)
            })?;
            return Err(e);
        }
        {
            let mut a = dir.attr();
            a.mtime = new.time;
            a.ctime = new.time;
            a.nlink += is_dir as u32;
        }
        self.finish(|| self.store_inode(dir))?;
        Ok(InodeParts { ino: Ino(nid.0 as u64), attr, private: Box::new(f) })
    }

    /// Makes an inode without a name: an orphan from the beginning.
    pub(crate) fn tmpfile_inode(
        &self,
        dir: &Inode,
        new: &NewInode<'_>,
        xattrs: &NewXattrs,
    ) -> Result<InodeParts> {
        let xattrs = crate::inode::xattr::first_list(xattrs)?;
        let _op = self.cp_rwsem.read();
        let _place = self.acquire_orphan_inode()?;
        let f = self.new_private(dir, b"", new);
        let mut attr = Attr { nlink: 0, ..self.new_attr(new, &f) };
        let nid = self.new_node(None, 0, true, |page| self.fill_inode(page, &attr, &f, b"", new))?;
        if let Err(e) = self.give_xattrs(nid, &f, &mut attr, &xattrs) {
            self.finish(|| self.unmake(nid, &f))?;
            return Err(e);
        }
        self.orphans.lock().insert(nid.0);
        self.orphans_changed.store(true, SeqCst);
        Ok(InodeParts { ino: Ino(nid.0 as u64), attr, private: Box::new(f) })
    }

    /// Gives new inode `nid` its list of attributes.
    fn give_xattrs(&self, nid: Nid, f: &F2fsInode, attr: &mut Attr, list: &[u8]) -> Result<()> {
        if list.is_empty() {
            return Ok(());
        }
        let placed = self.place_xattrs(nid, f, attr.file_type == FileType::Directory, list)?;
        debug_assert_eq!(placed, Freed::Gone, "it has no node to be freed");
        attr.blocks += if f.xattr_nid.load(Relaxed) == 0 { 0 } else { 8 };
        self.modify_node(nid, |page| write_fields(page, attr, f, Default::default()))
    }

    /// Frees the nodes of a new inode.
    fn unmake(&self, nid: Nid, f: &F2fsInode) -> Result<()> {
        let xattrs = Nid(f.xattr_nid.load(Relaxed));
        if xattrs.0 != 0 {
            self.unmake_node(xattrs, false)?;
        }
        self.unmake_node(nid, true)
    }

    pub(crate) fn new_private(&self, dir: &Inode, name: &[u8], new: &NewInode<'_>) -> F2fsInode {
        let extra = self.has_extra_attr();
        let mut f = F2fsInode {
            map: Mutex::new(&I_DNODE, ExtentCache::default()),
            inline: AtomicU8::new(inline::XATTR | if extra { inline::EXTRA_ATTR } else { 0 }),
            advise: AtomicU8::new(0),
            depth: AtomicU32::new(0),
            dir_level: 0,
            names: Names::default(),
            xattr_nid: AtomicU32::new(0),
            pino: AtomicU32::new(dir.nid().0),
            extra_words: if extra { EXTRA_ISIZE / 4 } else { 0 },
            xattr_words: AtomicU32::new(DEFAULT_INLINE_XATTR_ADDRS as u32),
            compressed: false,
            fsync: FsyncState::of_made(),
            meta: dirty::State::default(),
            stream: AtomicU8::new(0),
            chosen: ChosenStreams::default(),
            writer: Writer::default(),
        };
        match new.file_type {
            FileType::Directory => {
                f.set_inline(inline::DENTRY, true);
                f.depth = AtomicU32::new(1);
            }
            FileType::Regular => {
                f.set_inline(inline::DATA, true);
                f.advise = AtomicU8::new(self.temperature(name));
            }
            FileType::Symlink if new.target.len() < f.inline_area().len() => {
                f.set_inline(inline::DATA | inline::DATA_EXIST, true);
            }
            _ => {}
        }
        f
    }

    pub(crate) fn new_attr(&self, new: &NewInode<'_>, f: &F2fsInode) -> Attr {
        let is_dir = new.file_type == FileType::Directory;
        let kept = match new.file_type {
            FileType::Directory => INHERITED | FOR_DIRECTORIES,
            FileType::Regular => INHERITED,
            _ => FOR_OTHERS,
        };
        Attr {
            file_type: new.file_type,
            mode: new.mode & 0o7777,
            uid: new.uid,
            gid: new.gid,
            nlink: 1 + is_dir as u32,
            size: if is_dir { f.inline_area().len() as u64 } else { new.target.len() as u64 },
            blocks: 0,
            atime: new.time,
            mtime: new.time,
            ctime: new.time,
            crtime: self.sb.features.contains(Features::INODE_CRTIME).then_some(new.time),
            rdev: new.rdev,
            generation: self.next_generation.fetch_add(1, Relaxed),
            flags: new.dir_flags & kept,
        }
    }

    pub(crate) fn fill_inode(
        &self,
        page: &mut [u8],
        attr: &Attr,
        f: &F2fsInode,
        name: &[u8],
        new: &NewInode<'_>,
    ) {
        if f.extra_words > 0 {
            let words = if self.sb.features.contains(Features::FLEXIBLE_INLINE_XATTR) {
                f.inline_xattr_words()
            } else {
                0
            };
            write_extra(page, words);
        }
        write_fields(page, attr, f, Default::default());
        set_name(page, name);
        if matches!(new.file_type, FileType::CharDevice | FileType::BlockDevice) {
            write_rdev(page, new.rdev, f.extra_words);
        }
        if f.has_inline(inline::DATA) {
            page[f.inline_area()][..new.target.len()].copy_from_slice(new.target);
        }
    }

    fn fill_inline_dir(&self, nid: Nid, f: &F2fsInode, parent: Ino) -> Result<()> {
        let area = f.inline_area();
        let l = crate::format::dentry::Layout::inline(area.len());
        self.modify_node(nid, |page| {
            let t = &mut page[area.clone()];
            crate::format::dentry::put(t, &l, 0, 0, b".", nid.0, file_type::DIR);
            crate::format::dentry::put(t, &l, 1, 0, b"..", parent.0 as u32, file_type::DIR);
        })
    }

    /// Gives `inode` another name.
    pub(crate) fn link_inode(
        &self,
        dir: &Arc<Inode>,
        name: &[u8],
        inode: &Inode,
        now: Timespec,
    ) -> Result<()> {
        let _op = self.cp_rwsem.read();
        if inode.nlink() == F2FS_LINK_MAX {
            return Err(ErrorKind::TooManyLinks.into());
        }
        self.read_inodes([&**dir, inode])?;
        self.add_entry(dir, name, inode.nid().0, type_to_raw(inode.file_type))?;
        let first = {
            let mut a = inode.attr();
            a.nlink += 1;
            a.ctime = now;
            a.nlink == 1
        };
        if first {
            self.orphans.lock().remove(&inode.nid().0);
            self.orphans_changed.store(true, SeqCst);
        }
        // A file with several parents: i_pino names none of them for certain.
        fi(inode).advise.fetch_or(advise::LOST_PINO, Relaxed);
        self.finish(|| {
            self.store_inode(inode)?;
            self.touch(dir, now)
        })
    }

    /// Reads the nodes of `inodes` before a change of them.
    pub(crate) fn read_inodes<'a>(&self, inodes: impl IntoIterator<Item = &'a Inode>) -> Result<()> {
        inodes.into_iter().try_for_each(|i| self.node_of(i.nid(), i.ino.0).map(drop))
    }

    pub(crate) fn touch(&self, dir: &Inode, now: Timespec) -> Result<()> {
        {
            let mut a = dir.attr();
            a.mtime = now;
            a.ctime = now;
        }
        self.store_inode(dir)
    }

    /// Takes a name away.
    pub(crate) fn unlink_inode(
        &self,
        dir: &Arc<Inode>,
        name: &[u8],
        inode: &Inode,
        now: Timespec,
    ) -> Result<()> {
        let _op = self.cp_rwsem.read();
        if inode.is_dir() && !self.dir_is_empty(inode)? {
            return Err(ErrorKind::NotEmpty.into());
        }
        let _place = self.acquire_orphan_inode()?;
        let at = self.find_entry(dir, name)?.ok_or(ErrorKind::NotFound)?;
        self.read_to_remove(dir, at)?;
        self.read_inodes([&**dir, inode])?;
        // The last checkpoint may still have a directory's children, and another name of the file may be new.
        if inode.is_dir() || inode.nlink() > 1 {
            self.since_cp.vacate(dir, name);
        }
        self.finish(|| {
            self.remove_entry(dir, at, name)?;
            self.drop_link(dir, inode, now)?;
            self.touch(dir, now)
        })
    }

    /// Takes from an inode the name that it had in `dir`; an inode without a name left becomes an orphan.
    pub(crate) fn drop_link(&self, dir: &Inode, inode: &Inode, now: Timespec) -> Result<()> {
        let gone = {
            let mut a = inode.attr();
            a.nlink = if inode.is_dir() { 0 } else { a.nlink.saturating_sub(1) };
            a.ctime = now;
            a.nlink == 0
        };
        if inode.is_dir() {
            let mut a = dir.attr();
            a.nlink = a.nlink.saturating_sub(1);
        }
        if gone {
            self.orphans.lock().insert(inode.nid().0);
            self.orphans_changed.store(true, SeqCst);
        }
        self.store_inode(inode)
    }

    /// Frees an inode, its nodes and its blocks. The pages of the inode have left the cache. Takes `cp_rwsem`
    /// shared for one step at a time, and waits for nodes on their way to the device with `cp_rwsem`
    /// released.
    pub(crate) fn evict(&self, inode: &Inode) -> Result<()> {
        // Each step makes the inode's node dirty, so the wait comes before the first step.
        self.wait_on_node(inode.nid());
        let mut empty = false;
        loop {
            match self.evict_step(inode, &mut empty)? {
                CutStep::Last => return Ok(()),
                CutStep::Nearer => {}
                CutStep::Busy(nid) => self.wait_on_node(nid),
            }
        }
    }

    /// Frees some of the inode's nodes. Once the inode's own node is all that is left, this sets `empty`, and
    /// the node does not become dirty again. The inode stays an orphan until all is freed.
    fn evict_step(&self, inode: &Inode, empty: &mut bool) -> Result<CutStep> {
        let _op = self.cp_rwsem.read();
        if !*empty && let Some(step) = self.empty_step(inode)? {
            return Ok(step);
        }
        if let Freed::Busy(nid) = self.finish(|| self.free_node(inode.nid(), true))? {
            if !*empty {
                // A checkpoint may come before the next step, so the inode's node must not name a node that
                // is free.
                self.finish(|| self.store_inode(inode))?;
                *empty = true;
            }
            return Ok(CutStep::Busy(nid));
        }
        self.orphans.lock().remove(&inode.nid().0);
        self.orphans_changed.store(true, SeqCst);
        Ok(CutStep::Last)
    }

    /// Frees some of an inode's nodes and blocks; `None` when it has none.
    fn empty_step(&self, inode: &Inode) -> Result<Option<CutStep>> {
        self.dirty_dirs.lock().remove(&inode.ino.0);
        self.forget_inode_meta(inode);
        let f = fi(inode);
        let has_blocks =
            matches!(inode.file_type, FileType::Regular | FileType::Directory | FileType::Symlink);
        let inline = f.has_inline(inline::DATA | inline::DENTRY);
        if has_blocks && !inline {
            let step = self.cut_step(inode, 0)?;
            if !matches!(step, CutStep::Last) {
                return Ok(Some(step));
            }
        }
        match self.free_xattr_node(inode)? {
            Freed::Busy(nid) => Ok(Some(CutStep::Busy(nid))),
            _ => Ok(None),
        }
    }
}

/// Sets the name that an inode block remembers.
pub(crate) fn set_name(page: &mut [u8], name: &[u8]) {
    if let Some(raw) = RawInode::of_mut(page) {
        raw.set_name(name);
    }
}

#[cfg(test)]
mod tests;
