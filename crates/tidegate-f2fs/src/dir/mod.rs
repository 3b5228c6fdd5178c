//! Directories: names in multi-level hash buckets, or inside the inode while they are few.
//!
//! Lock owned: `fi->names` 448, short. Caller: the VFS's glue, which holds the directory's `i_rwsem`, exclusive for
//! changes, and `cp_rwsem` shared for changes.
//!
//! | module | holds |
//! |---|---|
//! | `names` | what memory knows of a large directory's names |
//! | `namei` | making inodes, giving and taking names |
//! | `rename` | moving a name, or exchanging two |

pub(crate) mod namei;
pub(crate) mod names;
pub(crate) mod rename;

use crate::format::dentry::{self, Layout};
use crate::format::raw::*;
use crate::format::units::BlockAddr;
use crate::inode::{F2fsInode, NodeId, fi};
use crate::node::dnode::Found;
use crate::volume::sbi::F2fs;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use tidegate_block::PageBuf;
use tidegate_vfs::{At, DirEntry, Error, ErrorKind, Ino, Inode, PageRun, Result};

/// Directory blocks read at once when listing.
const READ_AHEAD: u64 = 32;

/// Where an entry is.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    /// Block of the directory and the level of this block; `None` for the inline area.
    block: Option<(u64, u32)>,
    slot: usize,
    pub ino: u32,
}

fn inline_layout(f: &F2fsInode) -> Layout {
    Layout::inline(f.inline_area().len())
}

/// The blocks that a name with `hash` may be in at `level`.
fn bucket(f: &F2fsInode, level: u32, hash: u32) -> std::ops::Range<u64> {
    let dir_level = f.dir_level as u32;
    let first = dir_block_index(level, dir_level, hash % dir_buckets(level, dir_level));
    first..first + bucket_blocks(level) as u64
}

/// The levels below `end` that are set in `levels`, a bitmap with one bit for each level.
fn levels(levels: u64, end: u32) -> impl Iterator<Item = u32> {
    (0..end).filter(move |l| levels >> l & 1 == 1)
}

impl F2fs {
    /// A block of a directory; `None` for a hole.
    fn dir_block(&self, dir: &Inode, block: u64) -> Result<Option<PageRun>> {
        if let Some(run) = dir.mapping.get(block, 1) {
            return Ok(Some(run));
        }
        if let Some(run) = self.overlay.get().and_then(|o| o.get(&(dir.ino.0, block))) {
            return Ok(Some(run.clone()));
        }
        if block * BLOCK_SIZE as u64 >= dir.size() {
            return Ok(None);
        }
        // A page that is cached is not read: the volume's content may be older than a dirty page, and must
        // not come into the cache when the page is written and dropped meanwhile.
        let missing = loop {
            match dir.mapping.residency(block, READ_AHEAD) {
                (false, n) => break n,
                (true, _) => match dir.mapping.get(block, 1) {
                    Some(run) => return Ok(Some(run)),
                    None => continue,
                },
            }
        };
        let m = self.map_pages(dir, block, missing)?;
        if !m.blk.is_data() {
            return Ok(None);
        }
        let (mut first, mut at) = (None, block);
        for run in self.read_data(dir, block, m.pages as usize)? {
            dir.mapping.insert_clean(at, &run);
            at += run.pages as u64;
            first = first.or(Some(PageRun { pages: 1, ..run }));
        }
        // A block that was cached meanwhile is newer than the one that was read.
        Ok(dir.mapping.get(block, 1).or(first))
    }

    /// Finds `name`.
    ///
    /// # Errors
    /// `Corrupt`, those of the device.
    pub(crate) fn find_entry(&self, dir: &Inode, name: &[u8]) -> Result<Option<Place>> {
        let (f, hash) = (fi(dir), dentry_hash(name));
        let at = |e: Error| e.in_dir(dir.ino);
        if f.has_inline(inline::DENTRY) {
            let node = self.node_of(dir.nid(), dir.ino.0)?;
            let hit =
                dentry::find(&node.bytes()[f.inline_area()], &inline_layout(f), hash, name).map_err(at)?;
            return Ok(hit.map(|(slot, ino)| Place { block: None, slot, ino }));
        }
        let (mut looked, mut found) = (0, None);
        'levels: for level in levels(f.names.levels(hash), f.depth.load(Relaxed)) {
            for block in bucket(f, level, hash) {
                let Some(page) = self.dir_block(dir, block)? else { continue };
                looked += 1;
                if let Some((slot, ino)) =
                    dentry::find(page.bytes(), &dentry::BLOCK, hash, name).map_err(at)?
                {
                    found = Some(Place { block: Some((block, level)), slot, ino });
                    break 'levels;
                }
            }
        }
        self.know_names(dir, looked);
        Ok(found)
    }

    /// Notes that a lookup read `looked` blocks; once that pays, reads the directory to know where its names are.
    fn know_names(&self, dir: &Inode, looked: u64) {
        let f = fi(dir);
        let blocks = dir.attr().blocks / (BLOCK_SIZE as u64 / 512);
        let limit = usize::try_from(self.bdi.limits().cache / 16).unwrap_or(usize::MAX);
        let Some(mut builder) = f.names.looked(looked, blocks, &self.names, limit) else { return };
        // An error here is ignored: the lookup that needs the block reports it.
        let whole = self.read_names(dir, &mut builder).unwrap_or(false);
        f.names.built(builder, whole);
        self.bdi.shrink();
    }

    /// Adds every name of the directory to the builder; false if it could not add all of them.
    fn read_names(&self, dir: &Inode, builder: &mut names::Builder) -> Result<bool> {
        let dir_level = fi(dir).dir_level as u32;
        let blocks = dir.size().div_ceil(BLOCK_SIZE as u64);
        let (mut block, mut level) = (0, 0);
        while block < blocks {
            while block >= dir_block_index(level + 1, dir_level, 0) {
                level += 1;
            }
            if level >= MAX_DIR_HASH_DEPTH || !builder.goes_on() {
                return Ok(false);
            }
            let Some(page) = self.dir_block(dir, block)? else {
                block += self.hole_len(dir, block, blocks)?;
                continue;
            };
            let mut slot = 0;
            while let Some(e) = dentry::next_entry(page.bytes(), &dentry::BLOCK, slot)? {
                builder.add(e.hash, level, e.next - e.slot);
                slot = e.next;
            }
            block += 1;
        }
        Ok(true)
    }

    /// Adds `name`, which is not in the directory yet. The caller stores the inode.
    ///
    /// # Errors
    /// `NoSpace`, `Corrupt`, those of the device; the directory has the names it had.
    pub(crate) fn add_entry(&self, dir: &Arc<Inode>, name: &[u8], ino: u32, file_type: u8) -> Result<()> {
        let (f, hash, n) = (fi(dir), dentry_hash(name), dentry::slots(name));
        if f.has_inline(inline::DENTRY) {
            let l = inline_layout(f);
            let put = self.modify_node(dir.nid(), |page| {
                let t = &mut page[f.inline_area()];
                let slot = dentry::room(t, &l, n)?;
                dentry::put(t, &l, slot, hash, name, ino, file_type);
                Some(())
            })?;
            if put.is_some() {
                return Ok(());
            }
            self.convert_inline_dir(dir)?;
        }
        let roomy = f.names.roomy(f.dir_level as u32, MAX_DIR_HASH_DEPTH);
        for level in levels(roomy, MAX_DIR_HASH_DEPTH) {
            for block in bucket(f, level, hash) {
                let page = self.dir_block(dir, block)?;
                let room = page.as_ref().map_or(Some(0), |p| dentry::room(p.bytes(), &dentry::BLOCK, n));
                let Some(slot) = room else { continue };
                if page.is_none() {
                    self.new_dir_block(dir, block)?;
                }
                let put = self.modify_dir_block(dir, block, |t| {
                    dentry::put(t, &dentry::BLOCK, slot, hash, name, ino, file_type);
                });
                f.depth.fetch_max(level + 1, Relaxed);
                match put {
                    Ok(()) => f.names.added(hash, level, n),
                    Err(_) => f.names.forget(),
                }
                // The caller stores the inode with its new block, but not after an error.
                return if page.is_none() { self.finish(|| put) } else { put };
            }
        }
        Err(Error::new(ErrorKind::NoSpace, "is full").in_dir(dir.ino))
    }

    /// Gives a directory a block of zeros where it has a hole.
    fn new_dir_block(&self, dir: &Arc<Inode>, block: u64) -> Result<()> {
        self.reserve_dir_block(dir, block)?;
        let run = PageRun { buf: Arc::new(PageBuf::zeroed(1)), first: 0, pages: 1 };
        dir.mapping.insert_dirty(block, &run);
        let mut a = dir.attr();
        a.size = a.size.max((block + 1) * BLOCK_SIZE as u64);
        Ok(())
    }

    fn reserve_dir_block(&self, dir: &Inode, block: u64) -> Result<()> {
        let map = fi(dir).map.lock();
        match self.reserve_holes(dir, &map, block, block + 1) {
            Ok(sectors) => {
                dir.attr().blocks += sectors;
                Ok(())
            }
            Err(e) => {
                // Nodes that `make_dnode` made stay in the file, so the inode is stored with them.
                let attr = dir.attr().clone();
                self.finish(|| self.store_inode_with(dir, &attr, map.largest))?;
                Err(e)
            }
        }
    }

    /// Changes a block of a directory and marks it dirty.
    fn modify_dir_block(&self, dir: &Arc<Inode>, block: u64, mut f: impl FnMut(&mut [u8])) -> Result<()> {
        while dir.mapping.modify(block, &mut f).is_none() {
            let page = self
                .dir_block(dir, block)?
                .ok_or_else(|| Error::corrupt("a hole").at(At::Part("block", block)).in_dir(dir.ino))?;
            dir.mapping.insert_clean(block, &page);
        }
        self.bdi.mark_dirty(dir);
        self.dirty_dirs.lock().insert(dir.ino.0, dir.clone());
        Ok(())
    }

    /// Moves an inline directory's entries to blocks.
    fn convert_inline_dir(&self, dir: &Arc<Inode>) -> Result<()> {
        let f = fi(dir);
        let (area, l) = (f.inline_area(), inline_layout(f));
        let table = self.node_of(dir.nid(), dir.ino.0)?.bytes()[area.clone()].to_vec();
        // All entries are read before anything changes: a damaged table is left as it is.
        let (mut entries, mut slot) = (Vec::new(), 0);
        while let Some(e) = dentry::next_entry(&table, &l, slot)? {
            slot = e.next;
            entries.push(e);
        }
        // The reserved word before the area is address 0 from now on; it is zero already. Inline entries may
        // have beside them room for attributes that holds none. Where the inode does not say how much room
        // that is, the room becomes addresses, too.
        let before = f.inline_xattr_words();
        let given_up = !f.has_inline(inline::XATTR) && !self.tells_inline_xattr_size(f);
        let end = if given_up { I_NID_OFFSET } else { area.end };
        self.modify_node(dir.nid(), |page| page[area.start..end].fill(0))?;
        f.set_inline(inline::DENTRY, false);
        if given_up {
            f.xattr_words.store(0, Relaxed);
        }
        f.depth.store(1, Relaxed);
        dir.attr().size = 0;
        let moved = entries.iter().try_for_each(|e| self.add_entry(dir, e.name, e.ino, e.file_type));
        self.finish(|| {
            if moved.is_err() {
                // There is no block for the entries: they go back where they were.
                f.names.forget();
                self.truncate_pages(dir, 0)?;
                dir.mapping.remove(0, u64::MAX);
                f.set_inline(inline::DENTRY, true);
                f.xattr_words.store(before as u32, Relaxed);
                dir.attr().size = area.len() as u64;
                self.modify_node(dir.nid(), |page| page[area.clone()].copy_from_slice(&table))?;
            }
            self.store_inode(dir)
        })?;
        moved
    }

    /// Reads what [`F2fs::remove_entry`] may need.
    pub(crate) fn read_to_remove(&self, dir: &Inode, at: Place) -> Result<()> {
        if let Some((block, _)) = at.block
            && let Found::At(d) = self.find_dnode(dir, block)?
        {
            self.node_of(d.nid, dir.ino.0)?;
        }
        Ok(())
    }

    /// Takes an entry out. A block that becomes empty is freed unless it is on its way to the device. An
    /// error may leave half of it done.
    pub(crate) fn remove_entry(&self, dir: &Arc<Inode>, at: Place, name: &[u8]) -> Result<()> {
        let (f, n) = (fi(dir), dentry::slots(name));
        let Some((block, level)) = at.block else {
            let area = f.inline_area();
            return self.modify_node(dir.nid(), |p| dentry::clear(&mut p[area.clone()], at.slot, n));
        };
        let mut empty = false;
        let cleared = self.modify_dir_block(dir, block, |t| {
            dentry::clear(t, at.slot, n);
            empty = dentry::is_empty(t, &dentry::BLOCK);
        });
        match cleared {
            Ok(()) => f.names.removed(dentry_hash(name), level, n),
            Err(_) => f.names.forget(),
        }
        cleared?;
        // A block that is on its way stays: no thread that holds `cp_rwsem` waits for a device.
        if empty && dir.mapping.remove_idle(block) {
            self.free_pages(dir, block, block + 1)?;
        }
        Ok(())
    }

    /// Points an entry to another inode.
    pub(crate) fn set_entry(&self, dir: &Arc<Inode>, at: Place, ino: u32, file_type: u8) -> Result<()> {
        match at.block {
            Some((block, _)) => self
                .modify_dir_block(dir, block, |t| dentry::point(t, &dentry::BLOCK, at.slot, ino, file_type)),
            None => {
                let (area, l) = (fi(dir).inline_area(), inline_layout(fi(dir)));
                self.modify_node(dir.nid(), |p| {
                    dentry::point(&mut p[area.clone()], &l, at.slot, ino, file_type)
                })
            }
        }
    }

    /// Whether a directory has no entry but "." and "..".
    pub(crate) fn dir_is_empty(&self, dir: &Inode) -> Result<bool> {
        let mut empty = true;
        self.list_entries(dir, 0, &mut |e| {
            empty = e.name == b"." || e.name == b"..";
            empty
        })?;
        Ok(empty)
    }

    /// Lists entries from position `pos` on. A position counts slots, block by block.
    pub(crate) fn list_entries(
        &self,
        dir: &Inode,
        pos: u64,
        emit: &mut dyn FnMut(DirEntry) -> bool,
    ) -> Result<()> {
        let f = fi(dir);
        if f.has_inline(inline::DENTRY) {
            let node = self.node_of(dir.nid(), dir.ino.0)?;
            let l = inline_layout(f);
            return self.list_table(dir, &node.bytes()[f.inline_area()], &l, 0, pos as usize, emit).map(drop);
        }
        let per_block = NR_DENTRY_IN_BLOCK as u64;
        let blocks = dir.size().div_ceil(BLOCK_SIZE as u64);
        let mut block = pos / per_block;
        let mut slot = (pos % per_block) as usize;
        while block < blocks {
            if let Some(page) = self.dir_block(dir, block)? {
                if !self.list_table(dir, page.bytes(), &dentry::BLOCK, block * per_block, slot, emit)? {
                    return Ok(());
                }
                block += 1;
            } else {
                block += self.hole_len(dir, block, blocks)?;
            }
            slot = 0;
        }
        self.bdi.shrink();
        Ok(())
    }

    /// Blocks of the hole that begins at `block`, at least 1.
    fn hole_len(&self, dir: &Inode, block: u64, blocks: u64) -> Result<u64> {
        let m = self.map_pages(dir, block, blocks - block)?;
        Ok(if m.blk == BlockAddr::NULL { m.pages.max(1) } else { 1 })
    }

    /// Lists a table's entries; false when the caller has enough.
    fn list_table(
        &self,
        dir: &Inode,
        t: &[u8],
        l: &Layout,
        base: u64,
        slot: usize,
        emit: &mut dyn FnMut(DirEntry) -> bool,
    ) -> Result<bool> {
        let mut slot = slot;
        while let Some(e) = dentry::next_entry(t, l, slot).map_err(|e| e.in_dir(dir.ino))? {
            slot = e.next;
            let entry = DirEntry {
                ino: Ino(e.ino as u64),
                file_type: dentry::type_from_raw(e.file_type),
                name: e.name.to_vec(),
                next: base + e.next as u64,
            };
            if !emit(entry) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use crate::format::raw::{RawInode, inline};
    use crate::inode::{NodeId, fi};
    use crate::testing::new_volume;
    use tidegate_vfs::Cred;
    use zerocopy::FromBytes;

    /// A directory that Linux makes with `noinline_xattr` has no inline attributes. Once its entries leave
    /// the inode, the inode holds more addresses, both in memory and when it is read again.
    #[test]
    fn a_directory_that_leaves_its_inode_has_the_layout_that_is_read() {
        let v = new_volume();
        let dir = v.vfs.mkdir(&Cred::ROOT, &v.vfs.root().unwrap(), b"d", 0o755).unwrap();
        let f = fi(&dir);
        f.set_inline(inline::XATTR, false);
        let at = std::mem::offset_of!(RawInode, i_inline);
        v.fs.modify_node(dir.nid(), |page| page[at] &= !inline::XATTR).unwrap();
        let layout = || {
            let run = v.fs.node(dir.nid()).unwrap();
            let raw = RawInode::ref_from_prefix(run.bytes()).unwrap().0;
            v.fs.layout_of(run.bytes(), raw).unwrap()
        };
        let inside = (f.extra_words, f.inline_xattr_words());
        assert_eq!(layout(), inside);
        for n in 0.. {
            if !f.has_inline(inline::DENTRY) {
                break;
            }
            assert_eq!(layout(), inside);
            v.vfs.create(&Cred::ROOT, &dir, format!("name {n}").as_bytes(), 0o644).unwrap();
        }
        assert_eq!(layout(), (f.extra_words, f.inline_xattr_words()));
        assert_ne!(layout(), inside);
    }
}
