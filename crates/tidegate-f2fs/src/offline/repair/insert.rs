//! New entries: in the block that their hash says, or in lost_found.

use super::Repair;
use super::alloc::HOT_DATA;
use super::claim::Owner;
use super::disk::{Block, Changed};
use super::dots::{BLOCK_LAYOUT, Layout, inline_layout, slots_of};
use super::inode::Inode;
use super::map::Place;
use crate::format::raw::*;
use crate::format::units::BlockAddr;
use crate::offline::areas::Areas;
use tidegate_vfs::Result;

/// A block of a directory: the node and slot that hold its address, and the address.
pub(super) struct Slot {
    nid: u32,
    slot: usize,
    addr: u32,
}

impl Repair<'_, '_> {
    /// The block and slot of the entry called `name` in directory `dir`.
    pub(super) fn find_in(&mut self, dir: u32, name: &[u8]) -> Result<Option<(u32, Place, Layout, usize)>> {
        let i = self.again(dir)?;
        if i.has(inline::DENTRY) {
            let l = inline_layout(i.areas);
            return Ok(l.find(&i.block[..], name).map(|s| (i.addr, Place::Node(dir), l, s)));
        }
        let (hash, dir_level) = (dentry_hash(name), i.raw().i_dir_level as u32);
        for level in 0..MAX_DIR_HASH_DEPTH {
            let first = dir_block_index(level, dir_level, hash % dir_buckets(level, dir_level));
            for index in first..first + bucket_blocks(level) as u64 {
                let Some(s) = self.slot_of(&i, index)? else { return Ok(None) };
                if !self.sb.in_main(BlockAddr(s.addr)) {
                    continue;
                }
                let block = self.disk.block(s.addr)?;
                if let Some(slot) = BLOCK_LAYOUT.find(&block[..], name) {
                    let place = Place::Entries { nid: s.nid, slot: s.slot as u16 };
                    return Ok(Some((s.addr, place, BLOCK_LAYOUT, slot)));
                }
            }
        }
        Ok(None)
    }

    /// Adds an entry; false when there is no room for it. `count`: the directory's link count does not
    /// include it yet.
    pub(super) fn insert(
        &mut self,
        dir: u32,
        name: &[u8],
        ino: u32,
        file_type: u8,
        count: bool,
    ) -> Result<bool> {
        let mut i = self.again(dir)?;
        if count && file_type == file_type::DIR {
            i.change(|r| r.i_links = (r.i_links.get() + 1).into());
        }
        if i.has(inline::DENTRY) {
            let l = inline_layout(i.areas);
            if let Some(slot) = l.room(&i.block[..], slots_of(name.len())) {
                l.add(&mut i.block[..], slot, name, ino, file_type);
                i.dirty = true;
                self.keep(i);
                return Ok(true);
            }
            self.move_to_blocks(&mut i)?;
        }
        let done = self.insert_in_blocks(&mut i, name, ino, file_type)?;
        if done {
            self.keep(i);
        }
        Ok(done)
    }

    fn insert_in_blocks(&mut self, i: &mut Inode, name: &[u8], ino: u32, file_type: u8) -> Result<bool> {
        let (hash, dir_level) = (dentry_hash(name), i.raw().i_dir_level as u32);
        for level in 0..MAX_DIR_HASH_DEPTH {
            let first = dir_block_index(level, dir_level, hash % dir_buckets(level, dir_level));
            for index in first..first + bucket_blocks(level) as u64 {
                let Some(s) = self.slot_of(i, index)? else { return Ok(false) };
                if self.sb.in_main(BlockAddr(s.addr)) {
                    let mut block = self.disk.block(s.addr)?;
                    let Some(slot) = BLOCK_LAYOUT.room(&block[..], slots_of(name.len())) else { continue };
                    BLOCK_LAYOUT.add(&mut block[..], slot, name, ino, file_type);
                    self.disk.put(s.addr, Place::Entries { nid: s.nid, slot: s.slot as u16 }, block);
                } else {
                    let mut block: Block = Box::new([0; BLOCK_SIZE]);
                    BLOCK_LAYOUT.add(&mut block[..], 0, name, ino, file_type);
                    self.new_block(i, &s, index, block)?;
                }
                i.change(|r| r.i_current_depth = (r.i_current_depth.get().max(level + 1)).into());
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The node that holds the address of block `index`, if there is one; no new node is made.
    pub(super) fn slot_of(&mut self, i: &Inode, index: u64) -> Result<Option<Slot>> {
        let addrs = i.areas.addrs() as u64;
        if index < addrs {
            let slot = index as usize;
            return Ok(Some(Slot { nid: i.ino, slot, addr: i.u32(i.areas.base() + 4 * slot) }));
        }
        let (n, slot) =
            ((index - addrs) / ADDRS_PER_BLOCK as u64, (index - addrs) as usize % ADDRS_PER_BLOCK);
        let nid = if n < 2 { i.nids()[n as usize].get() } else { 0 };
        if nid == 0 {
            return Ok(None);
        }
        let node = self.disk.block(self.nat.addr(nid))?;
        Ok(Some(Slot { nid, slot, addr: le32(&node[..], 4 * slot) }))
    }

    /// Gives the directory `i` a block `index`, whose address goes into `s`.
    pub(super) fn new_block(&mut self, i: &mut Inode, s: &Slot, index: u64, block: Block) -> Result<()> {
        let addr = self.alloc(HOT_DATA, Owner { nid: s.nid, slot: Some(s.slot as u16) })?;
        let place = Place::Entries { nid: s.nid, slot: s.slot as u16 };
        self.disk.changed.insert(addr, Changed { block, place, fresh: true });
        if s.nid == i.ino {
            i.set32(i.areas.base() + 4 * s.slot, addr);
        } else {
            let at = self.nat.addr(s.nid);
            let mut node = self.disk.block(at)?;
            put32(&mut node[..], 4 * s.slot, addr);
            self.disk.put(at, Place::Node(s.nid), node);
        }
        if BlockAddr(s.addr) == BlockAddr::NEW {
            self.usage.reserved -= 1; // counted already
        } else {
            i.change(|r| r.i_blocks = (r.i_blocks.get() + 1).into());
        }
        i.change(|r| r.i_size = (r.i_size.get().max((index + 1) * BLOCK_SIZE as u64)).into());
        Ok(())
    }

    /// Moves a directory's entries out of its inode.
    fn move_to_blocks(&mut self, i: &mut Inode) -> Result<()> {
        let l = inline_layout(i.areas);
        let (mut entries, mut slot, mut parent) = (Vec::new(), 0, i.raw().i_pino.get());
        while slot < l.slots {
            let e = l.entry(&i.block[..], slot);
            let len = e.name_len.get() as usize;
            if !l.marked(&i.block[..], slot) || slot + slots_of(len) > l.slots {
                slot += 1;
                continue;
            }
            match l.name(&i.block[..], slot, len) {
                b"." => {}
                b".." => parent = e.ino.get(),
                name => entries.push((name.to_vec(), e.ino.get(), e.file_type)),
            }
            slot += slots_of(len);
        }
        self.inode_change(i.ino, "entries", "inline".into(), "in blocks".into());
        let area = i.areas.base()..i.areas.base() + 4 * i.areas.addrs();
        i.block[area].fill(0);
        i.raw_mut().i_inline &= !(inline::DENTRY | inline::DOTS);
        i.areas = Areas::of(&self.sb, &i.block).unwrap_or(self.usual);
        i.change(|r| r.i_size = 0.into());
        if let Some(slot) = self.slot_of(i, 0)? {
            self.new_block(i, &slot, 0, dots_block(i.ino, parent))?;
        }
        for (name, ino, file_type) in entries {
            self.insert_in_blocks(i, &name, ino, file_type)?;
        }
        Ok(())
    }
}

/// The first block of a directory.
pub(super) fn dots_block(ino: u32, parent: u32) -> Block {
    let mut block: Block = Box::new([0; BLOCK_SIZE]);
    BLOCK_LAYOUT.add(&mut block[..], 0, b".", ino, file_type::DIR);
    BLOCK_LAYOUT.add(&mut block[..], 1, b"..", parent, file_type::DIR);
    block
}
