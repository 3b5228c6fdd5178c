//! Directories: entry blocks, inline entries, and faults that only show over the whole directory.

use super::device::Block;
use super::inode::Inode;
use super::tree::FileState;
use super::walk::Pending;
use super::{Checker, rules};
use crate::format::raw::*;
use tidegate_vfs::Result;
use zerocopy::FromBytes;

/// The offsets of entries and names in a block.
#[derive(Clone, Copy)]
struct Layout {
    slots: usize,
    bitmap: usize,
    entries: usize,
    names: usize,
}

const BLOCK_LAYOUT: Layout = Layout {
    slots: NR_DENTRY_IN_BLOCK,
    bitmap: 0,
    entries: SIZE_OF_DENTRY_BITMAP + SIZE_OF_RESERVED,
    names: SIZE_OF_DENTRY_BITMAP + SIZE_OF_RESERVED + NR_DENTRY_IN_BLOCK * SIZE_OF_DIR_ENTRY,
};

/// The layout of the `len` bytes from `at` of an inode: as many entries as fit with a bit each; the names end
/// the area.
fn inline_layout(at: usize, len: usize) -> Layout {
    let slots = len * 8 / ((SIZE_OF_DIR_ENTRY + F2FS_SLOT_LEN) * 8 + 1);
    let names = at + len - slots * F2FS_SLOT_LEN;
    Layout { slots, bitmap: at, entries: names - slots * SIZE_OF_DIR_ENTRY, names }
}

/// An entry's place, for the search for duplicates.
struct Place {
    hash: u32,
    addr: u32,
    slot: u16,
    len: u8,
}

/// Findings in a directory so far.
pub(super) struct DirState {
    ino: u32,
    /// The parent directory; none for orphans.
    parent: Option<u32>,
    layout: Layout,
    level: u32,
    depth: u32,
    casefolded: bool,
    encrypted: bool,
    pub(super) subdirs: u32,
    dots: [bool; 2],
    too_deep: bool,
    places: Vec<Place>,
}

impl DirState {
    pub(super) fn new(i: &Inode, parent: Option<u32>) -> Self {
        let inline = i.has(inline::DENTRY);
        DirState {
            ino: i.ino,
            parent,
            layout: if inline { inline_layout(i.inline_at, i.inline_max) } else { BLOCK_LAYOUT },
            level: i.raw.i_dir_level as u32,
            depth: i.raw.i_current_depth.get(),
            casefolded: i.casefolded(),
            encrypted: i.encrypted(),
            subdirs: 0,
            dots: [false; 2],
            too_deep: false,
            places: Vec::new(),
        }
    }
}

/// The position of an entry.
#[derive(Clone, Copy)]
struct Spot {
    /// Block of the directory file; none for inline entries.
    index: Option<u64>,
    addr: u32,
    slot: usize,
}

impl std::fmt::Display for Spot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.index {
            Some(index) => write!(f, "entry {} of block {index} (at {})", self.slot, self.addr),
            None => write!(f, "inline entry {}", self.slot),
        }
    }
}

impl Checker<'_> {
    /// Block `index` of the directory, read from `addr`.
    pub(super) fn dentry_block(
        &mut self,
        f: &mut FileState,
        index: u64,
        addr: u32,
        block: &Block,
    ) -> Result<()> {
        let Some(d) = &mut f.dir else { return Ok(()) };
        self.entries(d, Some(index), addr, block)
    }

    /// The entries in the inode itself.
    pub(super) fn inline_dentries(&mut self, i: &Inode, f: &mut FileState) -> Result<()> {
        let Some(d) = &mut f.dir else { return Ok(()) };
        let addr = self.nat.entry(i.ino).block_addr.get();
        self.entries(d, None, addr, &i.block)
    }

    fn entries(&mut self, d: &mut DirState, index: Option<u64>, addr: u32, block: &Block) -> Result<()> {
        let l = d.layout;
        let bitmap = &block[l.bitmap..l.entries];
        let mut slot = 0;
        while slot < l.slots {
            if !test_bit_le(bitmap, slot) {
                slot += 1;
                continue;
            }
            let spot = Spot { index, addr, slot };
            let raw = &block[l.entries + slot * SIZE_OF_DIR_ENTRY..];
            let Ok((e, _)) = RawDirEntry::read_from_prefix(raw) else { break };
            let len = e.name_len.get() as usize;
            if len == 0 || len > F2FS_NAME_LEN {
                self.at(rules::DENTRY_NAME, d.ino, || format!("{spot}: name of {len} bytes"))?;
                slot += 1;
                continue;
            }
            let end = slot + len.div_ceil(F2FS_SLOT_LEN);
            if end > l.slots || !(slot..end).all(|n| test_bit_le(bitmap, n)) {
                self.at(rules::DENTRY_BITMAP, d.ino, || {
                    format!("{spot}: the name of {len} bytes has slots that are free or behind the end")
                })?;
            }
            if end <= l.slots {
                let from = l.names + slot * F2FS_SLOT_LEN;
                self.entry(d, spot, &e, &block[from..from + len])?;
            }
            slot = end;
        }
        Ok(())
    }

    fn entry(&mut self, d: &mut DirState, spot: Spot, e: &RawDirEntry, name: &[u8]) -> Result<()> {
        let shown = || String::from_utf8_lossy(name).escape_debug().to_string();
        if spot.slot < 2 && spot.index.unwrap_or(0) == 0 && (name == b"." || name == b"..") {
            return self.dot_entry(d, e, name.len() - 1);
        }
        if !d.encrypted && (name.contains(&0) || name.contains(&b'/') || name == b"." || name == b"..") {
            self.at(rules::DENTRY_NAME, d.ino, || format!("{spot}: \"{}\" is no name", shown()))?;
        }
        let hash = dentry_hash(name);
        if hash != e.hash_code.get() && !d.encrypted && !d.casefolded {
            let has = e.hash_code.get();
            self.at(rules::DENTRY_HASH, d.ino, || {
                format!("{spot} \"{}\": the hash is {has:#x}, the name's is {hash:#x}", shown())
            })?;
        }
        self.check_bucket(d, spot, e.hash_code.get(), &shown)?;
        d.places.push(Place { hash, addr: spot.addr, slot: spot.slot as u16, len: name.len() as u8 });
        let ino = e.ino.get();
        if !self.known_nid(ino) {
            return self.at(rules::DENTRY_INO, d.ino, || format!("{spot} \"{}\": no inode {ino}", shown()));
        }
        d.subdirs += u32::from(e.file_type == file_type::DIR);
        self.pending.push(Pending { ino, parent: d.ino, file_type: e.file_type });
        Ok(())
    }

    /// "." (`which` 0) and "..".
    fn dot_entry(&mut self, d: &mut DirState, e: &RawDirEntry, which: usize) -> Result<()> {
        let want = if which == 0 { Some(d.ino) } else { d.parent };
        let twice = std::mem::replace(&mut d.dots[which], true);
        let has = e.ino.get();
        if twice || e.file_type != file_type::DIR || want.is_some_and(|w| w != has) {
            let name = [".", ".."][which];
            self.at(rules::DIR_DOTS, d.ino, || match want {
                Some(want) => format!("\"{name}\" is inode {has} of type {}, not {want}", e.file_type),
                None => format!("\"{name}\" is inode {has} of type {}", e.file_type),
            })?;
        }
        if e.hash_code.get() != 0 {
            let hash = e.hash_code.get();
            self.at(rules::DENTRY_HASH, d.ino, || format!("\".\" or \"..\" has the hash {hash:#x}, not 0"))?;
        }
        Ok(())
    }

    fn check_bucket(
        &mut self,
        d: &mut DirState,
        spot: Spot,
        hash: u32,
        shown: &dyn Fn() -> String,
    ) -> Result<()> {
        let Some(index) = spot.index else { return Ok(()) };
        let Some((level, bucket)) = dir_bucket_of(index, d.level) else {
            return self.at(rules::DENTRY_BUCKET, d.ino, || format!("{spot}: behind the last bucket"));
        };
        if level >= d.depth && !std::mem::replace(&mut d.too_deep, true) {
            let depth = d.depth;
            self.at(rules::DIR_DEPTH, d.ino, || {
                format!("i_current_depth is {depth}, {spot} is on level {level}")
            })?;
        }
        let want = hash % dir_buckets(level, d.level);
        if want != bucket {
            self.at(rules::DENTRY_BUCKET, d.ino, || {
                format!("{spot} \"{}\": in bucket {bucket} of level {level}, belongs in {want}", shown())
            })?;
        }
        Ok(())
    }

    /// Checks that need all entries of a directory.
    pub(super) fn check_directory(&mut self, i: &Inode, f: &mut FileState) -> Result<()> {
        let Some(mut d) = f.dir.take() else { return Ok(()) };
        let whole = d.dots == [true; 2] || i.has(inline::DOTS);
        if !whole && !f.broken {
            self.at(rules::DIR_DOTS, d.ino, || "\".\" or \"..\" is missing".into())?;
        }
        if d.level > MAX_DIR_HASH_DEPTH || d.depth > MAX_DIR_HASH_DEPTH + 1 {
            self.at(rules::DIR_DEPTH, d.ino, || {
                format!("i_dir_level is {}, i_current_depth is {}", d.level, d.depth)
            })?;
        }
        let (links, want) = (i.raw.i_links.get(), 2u32.saturating_add(d.subdirs));
        if d.parent.is_some() && links != want && !f.broken {
            self.at(rules::LINK_COUNT, d.ino, || format!("i_links is {links}, it should be {want}"))?;
        }
        self.check_duplicates(&mut d)
    }

    /// Sorts entries by hash and compares the names of those that share one.
    fn check_duplicates(&mut self, d: &mut DirState) -> Result<()> {
        let mut places = std::mem::take(&mut d.places);
        places.sort_unstable_by_key(|p| (p.hash, p.len));
        for group in places.chunk_by(|a, b| (a.hash, a.len) == (b.hash, b.len)).filter(|g| g.len() > 1) {
            let mut names = Vec::with_capacity(group.len());
            for p in group {
                let at = d.layout.names + p.slot as usize * F2FS_SLOT_LEN;
                names.push(self.dev.block(p.addr)?[at..at + p.len as usize].to_vec());
            }
            names.sort_unstable();
            for pair in names.windows(2).filter(|w| w[0] == w[1]) {
                self.at(rules::DENTRY_DUPLICATE, d.ino, || {
                    format!("\"{}\" is in it twice", String::from_utf8_lossy(&pair[0]).escape_debug())
                })?;
            }
        }
        Ok(())
    }
}
