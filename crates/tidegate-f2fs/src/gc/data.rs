//! Moves data: pages are read into the cache and written out to the cold log.
//!
//! The inode's `i_rwsem` is held shared until a page has its new place. No page of the inode can be dirtied
//! or cut off meanwhile. So a page that is neither dirty nor under write-back has its content on the volume,
//! and its block stays where the node says. Readers look at [`super::state::Gc::moves`] instead.

use crate::file::write::{DataPass, Placement};
use crate::file::write_io::Sender;
use crate::format::raw::*;
use crate::format::units::{BlockAddr, Nid, SegNo};
use crate::inode::fi;
use crate::node::dnode::Found;
use crate::node::{ino_of, is_dnode, ofs_of};
use crate::volume::sbi::F2fs;
use std::collections::BTreeMap;
use std::sync::Arc;
use tidegate_block::{BioFlags, PageBuf};
use tidegate_vfs::mapping::chunk::CHUNK_PAGES;
use tidegate_vfs::{Error, ErrorKind, Ino, Inode, PageRun, Result};

/// Pages of one inode to be moved, with their addresses.
type Owned = Vec<(u64, BlockAddr)>;

impl F2fs {
    /// Moves the data blocks `valid` of a segment, inode by inode.
    ///
    /// # Errors
    /// `NoSpace` when a checkpoint must come first; `Corrupt`, those of the device.
    pub(super) fn move_data(&self, seg: SegNo, sum: &RawSummaryBlock, valid: &[usize]) -> Result<()> {
        let start = self.sit.segment_start(seg);
        let mut by_node: BTreeMap<u32, Vec<(usize, BlockAddr)>> = BTreeMap::new();
        for i in valid {
            let s = &sum.entries[*i];
            let slot = s.ofs_in_node.get() as usize;
            by_node.entry(s.nid.get()).or_default().push((slot, start.plus(*i as u32)));
        }
        let mut by_inode: BTreeMap<Ino, (Arc<Inode>, Owned)> = BTreeMap::new();
        for (nid, blocks) in by_node {
            if let Some((inode, mut owned)) = self.owner(Nid(nid), &blocks)? {
                by_inode.entry(inode.ino).or_insert_with(|| (inode, Owned::new())).1.append(&mut owned);
            }
        }
        for (inode, mut owned) in by_inode.into_values() {
            owned.sort_unstable();
            self.move_pages(&inode, &owned)?;
        }
        Ok(())
    }

    /// The inode that node `nid` belongs to, and those of `blocks` (index in the node, address) that the node
    /// really points to; `None` when the node is gone.
    fn owner(&self, nid: Nid, blocks: &[(usize, BlockAddr)]) -> Result<Option<(Arc<Inode>, Owned)>> {
        let Some(inodes) = self.gc.inodes.get() else { return Ok(None) };
        self.check_nid(nid, 0)?;
        let gone = |e: &Error| e.kind() == ErrorKind::Stale;
        let node = match self.node(nid) {
            Err(e) if gone(&e) => return Ok(None),
            r => r?,
        };
        let page = node.bytes();
        let inode = match inodes.get(self, Ino(ino_of(page) as u64)) {
            Err(e) if gone(&e) => return Ok(None),
            r => r?,
        };
        let f = fi(&inode);
        let in_inode = f.addrs_per_inode();
        let Some(first) = first_page(ofs_of(page), in_inode as u64) else { return Ok(None) };
        let (base, end) = if ofs_of(page) == 0 { (f.addr_base(), in_inode) } else { (0, ADDRS_PER_BLOCK) };
        let owned = blocks
            .iter()
            .filter(|(slot, addr)| *slot < end && word(page, base + slot) == addr.0)
            .map(|(slot, addr)| (first + *slot as u64, *addr))
            .collect();
        Ok(Some((inode, owned)))
    }

    /// Moves pages of an inode, in ascending order. Takes its `i_rwsem` shared.
    fn move_pages(&self, inode: &Arc<Inode>, owned: &[(u64, BlockAddr)]) -> Result<()> {
        let f = fi(inode);
        if f.compressed || f.has_advise(advise::ENCRYPT) {
            return Ok(()); // the page cache does not have its pages
        }
        if f.has_inline(inline::PIN_FILE) {
            return Ok(()); // a user relies on its place
        }
        let mut rest = owned;
        while let Some((index, _)) = rest.first() {
            let room = (CHUNK_PAGES - index % CHUNK_PAGES) as usize;
            let n = (1..rest.len().min(room)).take_while(|i| rest[*i].0 == index + *i as u64).count() + 1;
            let _stable = inode.rwsem.read();
            if inode.is_freed() || f.has_inline(inline::DATA | inline::DENTRY) {
                return Ok(());
            }
            self.move_run(inode, &rest[..n])?;
            rest = &rest[n..];
        }
        self.bdi.shrink();
        Ok(())
    }

    /// Moves neighbouring pages of one chunk.
    fn move_run(&self, inode: &Arc<Inode>, run: &[(u64, BlockAddr)]) -> Result<()> {
        let m = &inode.mapping;
        let mut at = 0;
        let mut tries = 2 * run.len();
        while at < run.len() {
            let (index, end) = (run[at].0, run[run.len() - 1].0 + 1);
            m.wait_writeback(index, end);
            let there = self.load_missing(inode, &run[at..])?;
            if there == 0 {
                at += 1; // moved already
                continue;
            }
            // The lock is taken before pages are taken: a checkpoint waits for pages under write-back.
            let op = self.cp_rwsem.read();
            // Reclaim or the flusher may have been quicker.
            let Some(taken) = m.take_cached(index, there) else {
                tries -= 1;
                if tries == 0 {
                    return Err(Error::new(ErrorKind::Busy, "a page that does not stay in memory"));
                }
                continue;
            };
            at += taken.pages;
            let mut pass = DataPass::new(Placement::Move, BioFlags::BACKGROUND);
            let r = self.place_and_send(inode, taken, Some(op), &mut pass);
            self.end_pass(&mut pass, Sender::Queue);
            if r.is_err() && inode.mapping.nr_dirty() > 0 {
                self.bdi.mark_dirty(inode);
                if inode.is_dir() {
                    self.dirty_dirs.lock().insert(inode.ino.0, inode.clone());
                }
            }
            r?;
        }
        Ok(())
    }

    /// Reads the pages of `run` that are not cached, up to the first page that has moved. Returns the number
    /// of first pages that are cached then.
    fn load_missing(&self, inode: &Arc<Inode>, run: &[(u64, BlockAddr)]) -> Result<usize> {
        let m = &inode.mapping;
        let mut at = 0;
        while at < run.len() {
            let (index, addr) = run[at];
            let (cached, n) = m.residency(index, (run.len() - at) as u64);
            let n = n as usize;
            if cached {
                at += n;
                continue;
            }
            // The addresses are checked only now: a page that is not cached is not dirty either, so it stays
            // where it is.
            let n = self.still_there(inode, &run[at..at + n])?;
            if n == 0 {
                break;
            }
            let n = (1..n).take_while(|i| run[at + i].1.0 == addr.0 + *i as u32).count() + 1;
            let buf = self
                .queue
                .read_wait(addr.sector(), n, BioFlags::BACKGROUND)
                .map_err(|e| Error::device_at(e, "cleaning", addr.place()).in_inode(inode.ino))?;
            let pages = PageRun { buf: Arc::new(zero_past(buf, index, inode.size())), first: 0, pages: n };
            m.insert_clean(index, &pages);
            self.bdi.cached(inode);
            at += n;
        }
        Ok(at)
    }

    /// The number of first pages of `run` that are still at their addresses.
    fn still_there(&self, inode: &Inode, run: &[(u64, BlockAddr)]) -> Result<usize> {
        let mut at = 0;
        while at < run.len() {
            let Found::At(d) = self.find_dnode(inode, run[at].0)? else { break };
            let now = self.addresses(inode, &d, run.len() - at)?;
            let same = now.iter().zip(&run[at..]).take_while(|(a, b)| **a == b.1).count();
            at += same;
            if same < now.len() {
                break;
            }
        }
        Ok(at)
    }
}

/// Zeroes the buffer past the end of the file, where other writers may have left anything.
fn zero_past(mut buf: PageBuf, index: u64, size: u64) -> PageBuf {
    let valid = size.saturating_sub(index * BLOCK_SIZE as u64).min(buf.len() as u64) as usize;
    buf[valid..].fill(0);
    buf
}

/// The first page of the file whose address is in the node at offset `ofs`, with `in_inode` addresses in the
/// inode; `None` for nodes without addresses. The inverse of the walk down the tree.
fn first_page(ofs: u32, in_inode: u64) -> Option<u64> {
    let (a, n) = (ADDRS_PER_BLOCK as u64, NIDS_PER_BLOCK as u64);
    if ofs == XATTR_NODE_OFFSET || !is_dnode(ofs) {
        return None;
    }
    let ofs = ofs as u64;
    let double = 5 + 2 * n;
    Some(match ofs {
        0 => 0,
        1 | 2 => in_inode + (ofs - 1) * a,
        _ if ofs < 4 + n => in_inode + (2 + ofs - 4) * a,
        _ if ofs < double => in_inode + (2 + ofs - 5) * a,
        _ => {
            let at = ofs - double - 1;
            let (outer, inner) = (at / (n + 1), at % (n + 1) - 1);
            in_inode + (2 + 2 * n + outer * n + inner) * a
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_know_where_their_pages_begin() {
        let (a, n) = (ADDRS_PER_BLOCK as u64, NIDS_PER_BLOCK as u64);
        let first = |ofs: u64| first_page(ofs as u32, 873);
        assert_eq!(first(0), Some(0));
        assert_eq!((first(1), first(2)), (Some(873), Some(873 + a)));
        assert_eq!((first(3), first(4 + n), first(5 + 2 * n)), (None, None, None));
        assert_eq!((first(4), first(3 + n)), (Some(873 + 2 * a), Some(873 + (n + 1) * a)));
        assert_eq!((first(5 + n), first(4 + 2 * n)), (Some(873 + (n + 2) * a), Some(873 + (2 * n + 1) * a)));
        let double = 873 + (2 * n + 2) * a;
        assert_eq!((first(6 + 2 * n), first(7 + 2 * n)), (None, Some(double)));
        assert_eq!(first(8 + 3 * n), Some(double + n * a));
        assert_eq!(first_page(XATTR_NODE_OFFSET, 873), None);
    }
}
