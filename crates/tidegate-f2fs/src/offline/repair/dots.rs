//! The layout of entries in a block or an inode, single entries, and "." and "..".

use crate::format::raw::*;
use crate::offline::areas::Areas;
use zerocopy::{FromBytes, IntoBytes};

/// The offsets of entries and names in a block.
#[derive(Clone, Copy)]
pub(super) struct Layout {
    pub(super) slots: usize,
    bitmap: usize,
    entries: usize,
    names: usize,
}

/// The layout of a dentry block.
pub(super) const BLOCK_LAYOUT: Layout = Layout {
    slots: NR_DENTRY_IN_BLOCK,
    bitmap: 0,
    entries: SIZE_OF_DENTRY_BITMAP + SIZE_OF_RESERVED,
    names: SIZE_OF_DENTRY_BITMAP + SIZE_OF_RESERVED + NR_DENTRY_IN_BLOCK * SIZE_OF_DIR_ENTRY,
};

/// The layout of an inode's inline entries: as many as fit with a bit each; the names end the area.
pub(super) fn inline_layout(a: Areas) -> Layout {
    let (at, len) = (a.inline_at(), a.inline_max());
    let slots = len * 8 / ((SIZE_OF_DIR_ENTRY + F2FS_SLOT_LEN) * 8 + 1);
    let names = at + len - slots * F2FS_SLOT_LEN;
    Layout { slots, bitmap: at, entries: names - slots * SIZE_OF_DIR_ENTRY, names }
}

/// Slots that a name of `len` bytes takes.
pub(super) fn slots_of(len: usize) -> usize {
    len.div_ceil(F2FS_SLOT_LEN).max(1)
}

impl Layout {
    pub(super) fn marked(&self, block: &[u8], slot: usize) -> bool {
        test_bit_le(&block[self.bitmap..], slot)
    }

    pub(super) fn mark(&self, block: &mut [u8], slots: std::ops::Range<usize>, on: bool) {
        slots.filter(|s| *s < self.slots).for_each(|s| set_bit_le(&mut block[self.bitmap..], s, on));
    }

    pub(super) fn entry(&self, block: &[u8], slot: usize) -> RawDirEntry {
        let raw = RawDirEntry::read_from_prefix(&block[self.entries + slot * SIZE_OF_DIR_ENTRY..]);
        raw.map(|r| r.0).unwrap_or_default()
    }

    pub(super) fn put_entry(&self, block: &mut [u8], slot: usize, e: RawDirEntry) {
        let at = self.entries + slot * SIZE_OF_DIR_ENTRY;
        block[at..at + SIZE_OF_DIR_ENTRY].copy_from_slice(e.as_bytes());
    }

    pub(super) fn name<'b>(&self, block: &'b [u8], slot: usize, len: usize) -> &'b [u8] {
        let at = self.names + slot * F2FS_SLOT_LEN;
        &block[at..at + len]
    }

    /// Adds an entry at `slot`, whose slots are free.
    pub(super) fn add(&self, block: &mut [u8], slot: usize, name: &[u8], ino: u32, file_type: u8) {
        let n = slots_of(name.len());
        self.mark(block, slot..slot + n, true);
        let hash_code = dentry_hash(name).into();
        let name_len = (name.len() as u16).into();
        self.put_entry(block, slot, RawDirEntry { hash_code, ino: ino.into(), name_len, file_type });
        (slot + 1..slot + n).for_each(|s| self.put_entry(block, s, RawDirEntry::default()));
        let at = self.names + slot * F2FS_SLOT_LEN;
        block[at..at + n * F2FS_SLOT_LEN].fill(0);
        block[at..at + name.len()].copy_from_slice(name);
    }

    /// The first of `n` free slots in a row.
    pub(super) fn room(&self, block: &[u8], n: usize) -> Option<usize> {
        let mut run = 0;
        for slot in 0..self.slots {
            run = if self.marked(block, slot) { 0 } else { run + 1 };
            if run == n {
                return Some(slot + 1 - n);
            }
        }
        None
    }

    /// The slot of the entry called `name`.
    pub(super) fn find(&self, block: &[u8], name: &[u8]) -> Option<usize> {
        let mut slot = 0;
        while slot < self.slots {
            let len = self.entry(block, slot).name_len.get() as usize;
            if !self.marked(block, slot) || slot + slots_of(len) > self.slots {
                slot += 1;
                continue;
            }
            if self.name(block, slot, len) == name {
                return Some(slot);
            }
            slot += slots_of(len);
        }
        None
    }
}

/// Whether inline entries with the layout of `a` begin with the "." of inode `ino`.
pub(super) fn begins_with_dot(block: &[u8], a: Areas, ino: u32) -> bool {
    let l = inline_layout(a);
    let e = l.entry(block, 0);
    l.marked(block, 0) && e.name_len == 1 && e.ino == ino && l.name(block, 0, 1) == b"."
}
