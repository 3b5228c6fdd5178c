//! Node blocks in memory: reading, making, changing, freeing them.
//!
//! Nodes are pages of the node inode's mapping, by node id. A change of one node is atomic (under its
//! `i_pages` shard). The inode's `i_dnode` lock serialises changes over several nodes of the inode, and
//! `cp_rwsem` keeps checkpoints from splitting them. This folder owns no lock; the callers (inodes, files,
//! directories, cleaning) hold both.
//!
//! | module | holds |
//! |---|---|
//! | `around` | how many nodes are read for one |
//! | `dnode` | the tree of addresses: the direct node of a page |
//! | `write` | writing nodes out, for a checkpoint or an fsync, under the volume's `node_write` 110 |

pub(crate) mod around;
pub(crate) mod dnode;
#[cfg(test)]
mod tests;
pub(crate) mod write;

use crate::format::raw::*;
use crate::format::units::{BlockAddr, Nid};
use crate::volume::sbi::F2fs;
use std::sync::Arc;
use tidegate_block::{BioFlags, Errno, PageBuf};
use tidegate_rt::device_wait;
use tidegate_vfs::{At, Error, ErrorKind, PageRun, Result};

/// Blocks in a piece of a segment, the unit of reads around a node.
const PIECE: usize = 16;

/// Block `i` of a buffer of blocks.
fn block(blocks: &[u8], i: usize) -> &[u8] {
    &blocks[i * BLOCK_SIZE..(i + 1) * BLOCK_SIZE]
}

fn unreadable(e: Errno, nid: Nid, addr: BlockAddr) -> Error {
    Error::device_at(e, "reading", addr.place()).at(nid.place())
}

/// A node block's own id.
pub(crate) fn nid_of(block: &[u8]) -> Nid {
    Nid(RawNodeFooter::of(block).nid.get())
}

/// The inode a node block belongs to.
pub(crate) fn ino_of(block: &[u8]) -> u32 {
    RawNodeFooter::of(block).ino.get()
}

/// A node block's footer flag.
pub(crate) fn flag_of(block: &[u8]) -> u32 {
    RawNodeFooter::of(block).flag.get()
}

/// A node block's offset in its file.
pub(crate) fn ofs_of(block: &[u8]) -> u32 {
    RawNodeFooter::of(block).ofs()
}

/// Whether the node at offset `ofs` holds addresses or xattrs rather than node ids.
pub(crate) fn is_dnode(ofs: u32) -> bool {
    let n = NIDS_PER_BLOCK as u32;
    if ofs == XATTR_NODE_OFFSET {
        return true;
    }
    if ofs == 3 || ofs == 4 + n || ofs == 5 + 2 * n {
        return false;
    }
    ofs < 6 + 2 * n || !(ofs - 6 - 2 * n).is_multiple_of(n + 1)
}

/// The outcome of freeing nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Freed {
    /// They are free.
    Gone,
    /// This node is on its way to the device. The caller releases `cp_rwsem`, waits for the node
    /// ([`F2fs::wait_on_node`]) and begins again.
    Busy(Nid),
}

impl F2fs {
    /// The node `nid`, from memory or the volume. Its footer is checked.
    ///
    /// # Errors
    /// `Stale` when the id is free, `Corrupt` when the block is not this node, those of the device.
    pub(crate) fn node(&self, nid: Nid) -> Result<PageRun> {
        if let Some(run) = self.node_inode.mapping.get(nid.0 as u64, 1) {
            self.around.found(nid);
            return Ok(run);
        }
        let run = self.load_node(nid)?;
        self.bdi.shrink();
        Ok(run)
    }

    /// Reads the node `nid` into memory unless it is there.
    fn load_node(&self, nid: Nid) -> Result<PageRun> {
        let mapping = &self.node_inode.mapping;
        loop {
            if let Some(run) = mapping.get(nid.0 as u64, 1) {
                return Ok(run);
            }
            let entry = self.nat.lookup(&self.meta, nid)?;
            if entry.addr == BlockAddr::NULL {
                return Err(Error::new(ErrorKind::Stale, "is free").at(nid.place()));
            }
            if entry.addr == BlockAddr::NEW {
                continue; // another thread is making the node; its page follows
            }
            if !self.sb.in_main(entry.addr) {
                let what = "is outside the main area";
                return Err(Error::corrupt(what).at_block(entry.addr).at(nid.place()).at(At::The("NAT")));
            }
            // Another thread may have read the node in meanwhile, and changed it. A node that is not in
            // memory is not on its way either: it is on the device at the place that the NAT named before.
            if mapping.get(nid.0 as u64, 1).is_some() {
                continue;
            }
            let moves = self.nat.moves();
            let settled = mapping.nr_writeback() == 0;
            let (blocks, at) = match self.read_node_blocks(nid, entry.addr) {
                // The node moved meanwhile, and its old block may have another owner by now.
                Err(_) if self.nat.lookup(&self.meta, nid)?.addr != entry.addr => continue,
                r => r?,
            };
            self.keep_nodes(blocks, (at, entry.addr), settled.then_some(moves))?;
            self.bdi.cached(&self.node_inode);
        }
    }

    /// Reads the node `nid`, and the blocks around it where they are likely to be of use. Returns the blocks
    /// and the node's index among them.
    fn read_node_blocks(&self, nid: Nid, addr: BlockAddr) -> Result<(PageBuf, usize)> {
        let at = self.sit.place(addr).1 % PIECE;
        let first = addr.0 - at as u32;
        let read = |first: u32, n| self.queue.read_wait(BlockAddr(first).sector(), n, BioFlags::META);
        let whole = self.around.whole(first / PIECE as u32).then(|| read(first, PIECE));
        let (buf, at) = match whole {
            Some(Ok(buf)) => (buf, at),
            // The unreadable block may be another one.
            Some(Err(_)) | None => (read(addr.0, 1).map_err(|e| unreadable(e, nid, addr))?, 0),
        };
        let page = block(&buf, at);
        if nid_of(page) != nid {
            let what = format!("should be node {nid} but says it is {}", nid_of(page));
            return Err(Error::corrupt(what).at_block(addr));
        }
        if ofs_of(page) == 0 && !crate::inode::checksum::checksum_holds(&self.sb, page) {
            return Err(Error::corrupt("the checksum does not match").in_inode(nid));
        }
        Ok((buf, at))
    }

    /// Caches block `at` of the blocks read, which is at `addr`. Caches the other blocks that are current
    /// nodes, too, if no node has moved since the count was `moves`, and none was being written then: a block
    /// that was read before its node was written may pass for current.
    fn keep_nodes(&self, blocks: PageBuf, (at, addr): (usize, BlockAddr), moves: Option<u64>) -> Result<()> {
        let mapping = &self.node_inode.mapping;
        let place = |i: usize| BlockAddr(addr.0 - at as u32).plus(i as u32);
        let mut nodes = Vec::with_capacity(PIECE);
        for i in 0..blocks.pages() {
            let page = block(&blocks, i);
            let nid = nid_of(page);
            let known = moves.is_some()
                && (4..self.sb.max_nid).contains(&nid.0)
                && !mapping.has(nid.0 as u64)
                && self.nat.lookup(&self.meta, nid).is_ok_and(|e| e.addr == place(i));
            if i == at
                || known && (ofs_of(page) != 0 || crate::inode::checksum::checksum_holds(&self.sb, page))
            {
                nodes.push((nid, i));
            }
        }
        // A few nodes must not hold the memory of all blocks.
        let sparse = 2 * nodes.len() < blocks.pages();
        let blocks = Arc::new(blocks);
        for (nid, i) in nodes {
            let node = match sparse {
                true => PageRun { buf: Arc::new(PageBuf::from_slice(block(&blocks, i))), first: 0, pages: 1 },
                false => PageRun { buf: blocks.clone(), first: i, pages: 1 },
            };
            // A node is cached only if it is still there: another thread may have read, changed and written
            // it.
            let keep = || mapping.insert_clean(nid.0 as u64, &node);
            let kept = self.nat.if_at(&self.meta, (nid, place(i)), moves.filter(|_| i != at), keep);
            // An error about a neighbour does not concern this node.
            if i == at {
                kept?;
            } else {
                self.around.brought(nid);
            }
        }
        Ok(())
    }

    /// The node `nid`, which must belong to inode `ino`.
    pub(crate) fn node_of(&self, nid: Nid, ino: u64) -> Result<PageRun> {
        self.check_nid(nid, ino)?;
        let run = self.node(nid)?;
        if ino_of(run.bytes()) as u64 != ino {
            let what = format!("belongs to inode {}, not {ino}", ino_of(run.bytes()));
            return Err(Error::corrupt(what).at(nid.place()));
        }
        Ok(run)
    }

    /// Changes the node `nid` and marks it dirty.
    pub(crate) fn modify_node<R>(&self, nid: Nid, mut f: impl FnMut(&mut [u8]) -> R) -> Result<R> {
        loop {
            if let Some(r) = self.node_inode.mapping.modify(nid.0 as u64, &mut f) {
                self.bdi.mark_dirty(&self.node_inode);
                return Ok(r);
            }
            self.load_node(nid)?;
        }
    }

    /// Makes a node for offset `ofs` of inode `ino` (`None`: an inode node, whose id is the inode's). `cold`:
    /// the inode is no directory. The block is booked.
    ///
    /// # Errors
    /// `NoSpace`.
    pub(crate) fn new_node(
        &self,
        ino: Option<u32>,
        ofs: u32,
        cold: bool,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<Nid> {
        self.book(1, 1, ino.is_none() as u32)?;
        let nid = match self.nat.alloc(&self.meta, ino) {
            Ok(n) => n,
            Err(e) => {
                self.unbook(1, 1, ino.is_none() as u32);
                return Err(e);
            }
        };
        let mut page = PageBuf::zeroed(1);
        fill(&mut page);
        if let Some(footer) = RawNodeFooter::of_mut(&mut page) {
            footer.nid = nid.0.into();
            footer.ino = ino.unwrap_or(nid.0).into();
            footer.flag = (ofs << OFFSET_BIT_SHIFT | if cold { COLD_BIT_MASK } else { 0 }).into();
        }
        self.insert_node(nid, page);
        Ok(nid)
    }

    /// Puts a node into memory and marks it dirty.
    pub(crate) fn insert_node(&self, nid: Nid, page: PageBuf) {
        let run = PageRun { buf: Arc::new(page), first: 0, pages: 1 };
        self.node_inode.mapping.insert_dirty(nid.0 as u64, &run);
        self.bdi.mark_dirty(&self.node_inode);
    }

    /// Frees a node: its page, its block, and, after the next checkpoint, its id. A node that is on its way
    /// stays: the next content of its block must not reach the device before it.
    pub(crate) fn free_node(&self, nid: Nid, is_inode: bool) -> Result<Freed> {
        // Check and removal are one step: between two steps another thread could take the page for writing or
        // read it in again.
        let remove = || self.node_inode.mapping.remove_idle(nid.0.into());
        let Some(old) = self.nat.free_if(&self.meta, nid, remove)? else { return Ok(Freed::Busy(nid)) };
        if old.is_data() {
            self.guard(self.sit.invalidate(&[old]))?;
        }
        self.unbook(1, 1, is_inode as u32);
        Ok(Freed::Gone)
    }

    /// Frees a node that the operation itself has made and takes back.
    pub(crate) fn unmake_node(&self, nid: Nid, is_inode: bool) -> Result<()> {
        while let Freed::Busy(nid) = self.free_node(nid, is_inode)? {
            let _leave = device_wait::permit("an operation that fails has begun, and must leave nothing");
            self.wait_on_node(nid);
        }
        Ok(())
    }

    /// Waits for a node that is on its way. For callers that hold no lock which other threads want.
    pub(crate) fn wait_on_node(&self, nid: Nid) {
        self.node_inode.mapping.wait_writeback(nid.0.into(), u64::from(nid.0) + 1);
    }
}
