//! The maps of files: extents, and blocks of numbers.

use super::{Checker, rules};
use crate::format::crc::crc32c;
use crate::format::raw::*;
use crate::offline::bits::Bits;
use crate::offline::node::{MAX_FILE_BLOCKS, Node, header};
use tidegate_vfs::Result;
use zerocopy::FromBytes;

/// The blocks that a map leads to.
pub(super) struct Mapped {
    /// Blocks of data and of the map itself.
    pub(super) blocks: u64,
    /// The file block behind the last.
    pub(super) end: u64,
    /// The file block behind the last one that was written.
    pub(super) written_end: u64,
    /// The volume's block that is the file's block 0.
    pub(super) first: Option<u64>,
    /// The walk found no problem: a second walk is bounded by the volume.
    pub(super) sound: bool,
}

impl Default for Mapped {
    fn default() -> Self {
        Mapped { blocks: 0, end: 0, written_end: 0, first: None, sound: true }
    }
}

/// A walk under way: the blocks that it may claim, and its findings.
struct Walk<'a> {
    node: &'a Node,
    out: Mapped,
    /// Claims blocks and reports problems; otherwise only gathers blocks.
    claim: bool,
    list: Vec<(u64, u64)>,
}

impl Checker<'_> {
    /// Walks the map of an inode for the first time: each block is claimed.
    pub(super) fn map(&mut self, node: &Node) -> Result<Mapped> {
        if node.ino == 7 && self.sb.compat.contains(Compat::RESIZE_INODE) {
            return Ok(Mapped::default());
        }
        Ok(self.walk_map(node, true)?.out)
    }

    /// The blocks of an inode whose map was found sound: file block and the volume's.
    pub(super) fn blocks_of(&mut self, node: &Node) -> Result<Vec<(u64, u64)>> {
        Ok(self.walk_map(node, false)?.list)
    }

    /// The blocks of an inode whose map was not checked yet: blocks that the map names a second time are left
    /// out.
    pub(super) fn bounded_blocks(&mut self, node: &Node) -> Result<Vec<(u64, u64)>> {
        let (used, blocks) = (std::mem::replace(&mut self.used, Bits::new(self.sb.blocks)), self.blocks);
        let (total, kept) = (self.found.total, self.found.problems.len());
        let walked = self.walk_map(node, true);
        // Faults are reported later, when the inode itself is checked.
        self.found.total = total;
        self.found.problems.truncate(kept);
        (self.used, self.blocks) = (used, blocks);
        if walked?.out.sound { self.blocks_of(node) } else { Ok(Vec::new()) }
    }

    fn walk_map<'a>(&mut self, node: &'a Node, claim: bool) -> Result<Walk<'a>> {
        let mut w = Walk { node, out: Mapped::default(), claim, list: Vec::new() };
        if node.has(InodeFlags::EXTENTS) {
            let mut next = 0;
            self.extents(&mut w, &node.raw.i_block, None, &mut next, None)?;
        } else {
            self.numbers(&mut w)?;
        }
        Ok(w)
    }

    fn bad(&mut self, w: &mut Walk<'_>, rule: &'static str, what: String) {
        w.out.sound = false;
        if w.claim {
            self.found.add(rule, || format!("inode {}: {what}", w.node.ino));
        }
    }

    /// Enters a block of the map; true if the walk may go on below it.
    fn enter(&mut self, w: &mut Walk<'_>, block: u64) -> bool {
        w.out.blocks += 1;
        if !self.on_volume(block, 1) {
            self.bad(w, rules::BLOCK_RANGE, format!("a block of its map is {block}"));
            return false;
        }
        if w.claim && !self.claim(block) {
            self.bad(w, rules::BLOCK_SHARED, format!("block {block} of its map has another owner"));
            return false;
        }
        true
    }

    fn run(&mut self, w: &mut Walk<'_>, at: u64, start: u64, len: u64, written: bool) {
        w.out.blocks += len;
        w.out.end = w.out.end.max(at + len);
        if written {
            w.out.written_end = w.out.written_end.max(at + len);
        }
        if at == 0 {
            w.out.first = Some(start);
        }
        if !self.on_volume(start, len) {
            self.bad(w, rules::BLOCK_RANGE, format!("block {at} of it is {start}, {len} long"));
            return;
        }
        for n in 0..len {
            if w.claim && !self.claim(start + n) {
                self.bad(w, rules::BLOCK_SHARED, format!("block {} has another owner", start + n));
            }
            if !w.claim {
                w.list.push((at + n, start + n));
            }
        }
    }

    /// Walks one node of an extent tree; `next` is the first file block that the next entry may begin with.
    fn extents(
        &mut self,
        w: &mut Walk<'_>,
        bytes: &[u8],
        depth: Option<u16>,
        next: &mut u64,
        limit: Option<u64>,
    ) -> Result<()> {
        let Some(h) = header(bytes) else { return Ok(()) };
        let (count, max, level) = (h.eh_entries.get(), h.eh_max.get(), h.eh_depth.get());
        let room = (bytes.len() - EXTENT_ENTRY) / EXTENT_ENTRY;
        let sane = h.eh_magic.get() == EXTENT_MAGIC
            && count <= max
            && usize::from(max) <= room
            && usize::from(max) + 2 >= room
            && depth.map_or(level <= MAX_DEPTH, |d| level == d)
            && (count > 0 || (depth.is_none() && level == 0));
        if !sane {
            let what = format!("a node of its extents has {count} entries of {max} at level {level}");
            self.bad(w, rules::EXTENT_HEADER, what);
            return Ok(());
        }
        for n in 0..usize::from(count) {
            let entry = &bytes[EXTENT_ENTRY * (n + 1)..][..EXTENT_ENTRY];
            if level == 0 {
                self.leaf(w, entry, next, limit);
            } else {
                let following = (n + 1 < usize::from(count)).then(|| entry_block(bytes, n + 1)).flatten();
                self.index(w, entry, level, next, following.or(limit))?;
            }
        }
        Ok(())
    }

    fn leaf(&mut self, w: &mut Walk<'_>, entry: &[u8], next: &mut u64, limit: Option<u64>) {
        let Ok(e) = RawExtent::read_from_bytes(entry) else { return };
        let (at, (len, unwritten)) = (u64::from(e.ee_block.get()), e.len());
        let end = at + u64::from(len);
        if len == 0 || at < *next || end > limit.unwrap_or(MAX_FILE_BLOCKS) {
            self.bad(w, rules::EXTENT_ORDER, format!("an extent of {len} blocks at block {at}"));
            return;
        }
        *next = end;
        self.run(w, at, e.start(), len.into(), !unwritten);
    }

    fn index(
        &mut self,
        w: &mut Walk<'_>,
        entry: &[u8],
        level: u16,
        next: &mut u64,
        limit: Option<u64>,
    ) -> Result<()> {
        let Ok(e) = RawExtentIndex::read_from_bytes(entry) else { return Ok(()) };
        let at = u64::from(e.ei_block.get());
        if at < *next {
            self.bad(w, rules::EXTENT_ORDER, format!("an index entry at block {at}"));
            return Ok(());
        }
        if !self.enter(w, e.leaf()) {
            return Ok(());
        }
        let child = self.block(e.leaf())?;
        if entry_block(&child, 0) != Some(at) {
            self.bad(w, rules::EXTENT_ORDER, format!("the node for block {at} begins with another"));
        }
        if self.sb.has_csum()
            && let Some((sealed, sum)) = RawExtentTail::of(&child)
            && crc32c(w.node.seed, sealed) != sum
        {
            self.bad(w, rules::EXTENT_CHECKSUM, format!("block {} of its extents", e.leaf()));
        }
        self.extents(w, &child, Some(level - 1), next, limit)
    }

    fn numbers(&mut self, w: &mut Walk<'_>) -> Result<()> {
        for n in 0..12 {
            let block = w.node.word(n);
            if block != 0 {
                self.run(w, n as u64, block.into(), 1, true);
            }
        }
        let per = u64::from(self.sb.block_size / 4);
        let (mut at, mut span) = (12, per);
        for level in 1..=3u32 {
            let block = w.node.word(11 + level as usize);
            if block != 0 {
                self.table(w, block.into(), level, at, span / per)?;
            }
            at += span;
            span *= per;
        }
        Ok(())
    }

    /// Walks a block of numbers, each of which covers `span` blocks of the file.
    fn table(&mut self, w: &mut Walk<'_>, block: u64, level: u32, first: u64, span: u64) -> Result<()> {
        if !self.enter(w, block) {
            return Ok(());
        }
        let words = self.block(block)?;
        for n in 0..words.len() / 4 {
            let (to, at) = (u64::from(le32(&words, n * 4)), first + n as u64 * span);
            match (to, level) {
                (0, _) => {}
                (_, 1) => self.run(w, at, to, 1, true),
                _ => self.table(w, to, level - 1, at, span / u64::from(self.sb.block_size / 4))?,
            }
        }
        Ok(())
    }
}
