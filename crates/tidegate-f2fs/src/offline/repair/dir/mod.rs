//! Directories: readable entries stay, and lead to their inodes.

mod edit;
mod fields;

use super::Repair;
use super::dots::{BLOCK_LAYOUT, Layout, inline_layout, slots_of};
use super::map::Place;
use super::tree::DirBlock;
use crate::format::raw::*;
use tidegate_vfs::Result;

/// Where an entry is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Where {
    Slot {
        block: usize,
        slot: usize,
    },
    /// The entry was taken out of its place; this is the index of its name in the directory's `moved`.
    Moved(usize),
    Gone,
}

struct Entry {
    ino: u32,
    file_type: u8,
    hash: u32,
    len: u8,
    at: Where,
}

/// A directory under repair.
struct Dir {
    ino: u32,
    /// The parent directory; 0 while it is not known.
    parent: u32,
    layout: Layout,
    level: u32,
    inline: bool,
    strange: bool,
    no_dots: bool,
    blocks: Vec<DirBlock>,
    entries: Vec<Entry>,
    moved: Vec<Vec<u8>>,
    dots: [bool; 2],
    /// Levels that hold entries.
    levels: u32,
    subdirs: u32,
}

/// An entry that is added once the free blocks are known.
pub(super) struct Insert {
    /// The directory; 0 for lost_found.
    pub(super) dir: u32,
    pub(super) name: Vec<u8>,
    pub(super) ino: u32,
    pub(super) file_type: u8,
}

fn shown(name: &[u8]) -> String {
    format!("\"{}\"", String::from_utf8_lossy(name).escape_debug())
}

impl Repair<'_, '_> {
    /// Mends the directories on the stack and all below them.
    pub(super) fn mend_dirs(&mut self) -> Result<()> {
        while let Some((ino, parent)) = self.stack.pop() {
            self.mend_dir(ino, parent)?;
        }
        Ok(())
    }

    /// Repairs the directory `ino` and takes the inodes that it names; subdirectories wait on the stack.
    pub(super) fn mend_dir(&mut self, ino: u32, parent: u32) -> Result<()> {
        let mut i = self.again(ino)?;
        let w = self.walk_tree(&mut i)?;
        let inline = i.has(inline::DENTRY);
        let own = DirBlock { index: 0, addr: i.addr, place: Place::Node(ino) };
        let mut d = Dir {
            ino,
            parent,
            layout: if inline { inline_layout(i.areas) } else { BLOCK_LAYOUT },
            level: i.raw().i_dir_level as u32,
            inline,
            strange: i.strange_names(),
            no_dots: i.has(inline::DOTS),
            blocks: if inline { vec![own] } else { w.entries },
            entries: Vec::new(),
            moved: Vec::new(),
            dots: [false; 2],
            levels: 0,
            subdirs: 0,
        };
        self.keep(i);
        self.mend_level(&mut d)?;
        for n in 0..d.blocks.len() {
            self.read_entries(&mut d, n)?;
        }
        self.drop_duplicates(&mut d)?;
        self.link_entries(&mut d)?;
        self.mend_dots(&mut d)?;
        self.mend_dir_fields(&d)?;
        for e in &d.entries {
            if let Where::Moved(n) = e.at {
                let name = std::mem::take(&mut d.moved[n]);
                self.inserts.push(Insert { dir: ino, name, ino: e.ino, file_type: e.file_type });
            }
        }
        Ok(())
    }

    /// Keeps a level other than 0 only if it explains the entries better than level 0.
    fn mend_level(&mut self, d: &mut Dir) -> Result<()> {
        if d.level == 0 || d.inline && d.level <= MAX_DIR_HASH_DEPTH {
            return Ok(());
        }
        let (mut wrong, mut wrong_at_0) = (0, 0);
        for b in &d.blocks {
            let block = self.disk.block(b.addr)?;
            for slot in (0..d.layout.slots).filter(|s| d.layout.marked(&block[..], *s)) {
                let hash = d.layout.entry(&block[..], slot).hash_code.get();
                wrong += u32::from(!in_bucket(b.index, d.level, hash));
                wrong_at_0 += u32::from(!in_bucket(b.index, 0, hash));
            }
        }
        if d.level > MAX_DIR_HASH_DEPTH || wrong_at_0 < wrong {
            self.inode_change(d.ino, "i_dir_level", d.level.to_string(), "0".into());
            d.level = 0;
            let mut i = self.again(d.ino)?;
            i.raw_mut().i_dir_level = 0;
            i.dirty = true;
            self.keep(i);
        }
        Ok(())
    }

    fn read_entries(&mut self, d: &mut Dir, n: usize) -> Result<()> {
        let (l, place) = (d.layout, d.blocks[n]);
        let mut block = self.disk.block(place.addr)?;
        let before = block.clone();
        let mut slot = 0;
        while slot < l.slots {
            if !l.marked(&block[..], slot) {
                slot += 1;
                continue;
            }
            let e = l.entry(&block[..], slot);
            let len = e.name_len.get() as usize;
            let end = slot + slots_of(len);
            let fits = len > 0 && len <= F2FS_NAME_LEN && end <= l.slots;
            let whole = fits && (slot..end).all(|s| l.marked(&block[..], s));
            let name = if fits { l.name(&block[..], slot, len).to_vec() } else { Vec::new() };
            if !whole && (!fits || dentry_hash(&name) != e.hash_code.get()) {
                let what = format!("slot {slot} of block {}: a name of {len} bytes", place.addr);
                self.entry_change(d, &name, what, "removed");
                l.mark(&mut block[..], slot..slot + 1, false);
                slot += 1;
                continue;
            }
            if !whole {
                self.entry_change(d, &name, "not all of its slots marked".into(), "marked");
                l.mark(&mut block[..], slot..end, true);
            }
            self.judge(d, n, slot, &name, &mut block[..]);
            slot = end;
        }
        if block != before {
            self.disk.put(place.addr, place.place, block);
        }
        Ok(())
    }

    /// Judges one entry: it stays, is corrected, is removed, or is removed to be added elsewhere.
    fn judge(&mut self, d: &mut Dir, n: usize, slot: usize, name: &[u8], block: &mut [u8]) {
        let (l, index) = (d.layout, d.blocks[n].index);
        let mut e = l.entry(block, slot);
        let is_dots = name == b"." || name == b"..";
        if is_dots && slot < 2 && index == 0 && !d.dots[name.len() - 1] {
            return self.judge_dots(d, slot, name.len() - 1, block);
        }
        let bad = is_dots || !d.strange && (name.contains(&0) || name.contains(&b'/'));
        let (ino, file_type) = (e.ino.get(), e.file_type);
        if bad || !self.known_nid(ino) {
            let why =
                if bad { "removed: no name".into() } else { format!("removed: there is no inode {ino}") };
            self.entry_change(d, name, format!("inode {ino}"), &why);
            return l.mark(block, slot..slot + slots_of(name.len()), false);
        }
        let hash = if d.strange { e.hash_code.get() } else { dentry_hash(name) };
        let mut at = Where::Slot { block: n, slot };
        if !d.inline && !in_bucket(index, d.level, hash) {
            self.entry_change(d, name, format!("block {index}"), "where its hash says");
            l.mark(block, slot..slot + slots_of(name.len()), false);
            at = Where::Moved(d.moved.len());
            d.moved.push(name.to_vec());
        } else {
            let level = dir_bucket_of(index, d.level).map_or(0, |(level, _)| level + 1);
            d.levels = d.levels.max(level);
            if e.hash_code.get() != hash {
                self.entry_change(d, name, format!("hash {:#x}", e.hash_code), &format!("hash {hash:#x}"));
                e.hash_code = hash.into();
                l.put_entry(block, slot, e);
            }
        }
        d.entries.push(Entry { ino, file_type, hash, len: name.len() as u8, at });
    }

    fn judge_dots(&mut self, d: &mut Dir, slot: usize, which: usize, block: &mut [u8]) {
        let l = d.layout;
        let e = l.entry(block, slot);
        let want = match [d.ino, d.parent][which] {
            0 => e.ino.get(),
            want => want,
        };
        d.dots[which] = true;
        if (e.ino.get(), e.file_type, e.hash_code.get()) != (want, file_type::DIR, 0) {
            let was = format!("inode {} type {} hash {:#x}", e.ino, e.file_type, e.hash_code);
            let now = format!("inode {want} type {} hash 0x0", file_type::DIR);
            self.entry_change(d, [&b"."[..], b".."][which], was, &now);
            let right = RawDirEntry { hash_code: 0.into(), ino: want.into(), file_type: file_type::DIR, ..e };
            l.put_entry(block, slot, right);
        }
    }

    fn name_of(&mut self, d: &Dir, e: &Entry) -> Result<Vec<u8>> {
        Ok(match e.at {
            Where::Slot { block, slot } => {
                let b = self.disk.block(d.blocks[block].addr)?;
                d.layout.name(&b[..], slot, e.len as usize).to_vec()
            }
            Where::Moved(n) => d.moved[n].clone(),
            Where::Gone => Vec::new(),
        })
    }

    /// Takes an entry out of the directory.
    fn remove(&mut self, d: &mut Dir, n: usize, why: &str) -> Result<()> {
        let name = self.name_of(d, &d.entries[n])?;
        let e = &mut d.entries[n];
        let (was, ino) = (std::mem::replace(&mut e.at, Where::Gone), e.ino);
        if let Where::Slot { block, slot } = was {
            self.edit(d, block, |l, b| l.mark(b, slot..slot + slots_of(name.len()), false))?;
        }
        self.entry_change(d, &name, format!("inode {ino}"), why);
        Ok(())
    }

    /// Of entries with one name, the first stays.
    fn drop_duplicates(&mut self, d: &mut Dir) -> Result<()> {
        let mut order: Vec<usize> = (0..d.entries.len()).collect();
        order.sort_unstable_by_key(|n| (d.entries[*n].hash, d.entries[*n].len, *n));
        let key = |d: &Dir, n: usize| (d.entries[n].hash, d.entries[n].len);
        let groups: Vec<Vec<usize>> = order
            .chunk_by(|a, b| key(d, *a) == key(d, *b))
            .filter(|g| g.len() > 1)
            .map(<[usize]>::to_vec)
            .collect();
        for group in groups {
            let mut names: Vec<Vec<u8>> = Vec::new();
            for n in group {
                let name = self.name_of(d, &d.entries[n])?;
                if names.contains(&name) {
                    self.remove(d, n, "removed: the name is in it twice")?;
                } else {
                    names.push(name);
                }
            }
        }
        Ok(())
    }

    /// Takes the inodes that the entries name, in the entries' order.
    fn link_entries(&mut self, d: &mut Dir) -> Result<()> {
        let mut order: Vec<usize> =
            (0..d.entries.len()).filter(|n| d.entries[*n].at != Where::Gone).collect();
        order.sort_by_key(|n| self.nat.addr(d.entries[*n].ino));
        for n in order {
            let (ino, says) = (d.entries[n].ino, d.entries[n].file_type);
            match self.link(ino, d.ino, says)? {
                Err(why) => self.remove(d, n, &format!("removed: {why}"))?,
                Ok(is) => {
                    d.subdirs += u32::from(is == file_type::DIR);
                    if is != says {
                        self.set_type(d, n, is)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn set_type(&mut self, d: &mut Dir, n: usize, is: u8) -> Result<()> {
        let name = self.name_of(d, &d.entries[n])?;
        let was = std::mem::replace(&mut d.entries[n].file_type, is);
        self.entry_change(d, &name, format!("file type {was}"), &format!("file type {is}"));
        if let Where::Slot { block, slot } = d.entries[n].at {
            self.edit(d, block, |l, b| {
                let e = RawDirEntry { file_type: is, ..l.entry(b, slot) };
                l.put_entry(b, slot, e);
            })?;
        }
        Ok(())
    }

    /// Takes inode `ino` for a name in directory `parent`. Returns the file type, or the reason why the inode
    /// cannot be taken.
    pub(super) fn link(
        &mut self,
        ino: u32,
        parent: u32,
        says: u8,
    ) -> Result<std::result::Result<u8, String>> {
        if self.reached.get(ino) {
            if !self.is_inode.get(ino) {
                return Ok(Err(format!("node {ino} is not an inode")));
            }
            if self.is_dir.get(ino) {
                return Ok(Err(format!("directory {ino} has another name")));
            }
            self.links.entry(ino).or_insert((1, 1)).1 += 1;
            return Ok(Ok(super::inode::file_type_of(&*self.disk.block(self.nat.addr(ino))?)));
        }
        let Some(mut i) = self.take_inode(ino, says)? else {
            return Ok(Err(format!("there is no inode {ino}")));
        };
        if self.orphans.remove(&ino) {
            let place = format!("orphan {ino}");
            self.change("checkpoint", place, "to be removed".into(), "left out: it has a name".into());
        }
        let is = i.file_type();
        if is == file_type::DIR {
            self.stack.push((ino, parent));
        } else {
            self.walk_tree(&mut i)?;
            let links = i.raw().i_links.get();
            if links != 1 {
                self.links.insert(ino, (links, 1));
            }
        }
        self.keep(i);
        Ok(Ok(is))
    }
}

/// Whether block `index` of a directory is in a bucket of `hash`.
fn in_bucket(index: u64, dir_level: u32, hash: u32) -> bool {
    dir_bucket_of(index, dir_level).is_some_and(|(level, n)| hash % dir_buckets(level, dir_level) == n)
}
