//! Cuts files from their end, some nodes at a time.
//!
//! A node whose pages all go is freed as it is and never becomes dirty, so a cut needs no room. A large file
//! is cut in steps, and each step is a change of its own: a power cut between two steps leaves a file that
//! ends between its old end and its new one, with nothing behind its end.

use crate::durable::since_cp::Since;
use crate::format::raw::*;
use crate::format::units::{BlockAddr, Nid};
use crate::inode::{NodeId, fi};
use crate::node::Freed;
use crate::node::dnode::{Dnode, Found};
use crate::volume::sbi::F2fs;
use tidegate_rt::Timespec;
use tidegate_vfs::{ErrorKind, Inode, Result};

/// Nodes that one step frees while checkpoints wait.
const NODES_AT_ONCE: u32 = 512;

const N: u64 = NIDS_PER_BLOCK as u64;
const A: u64 = ADDRS_PER_BLOCK as u64;
/// Pages behind each of an inode's node ids, and the levels of nodes between the id and the direct nodes.
const TREES: [(u64, u32); 5] = [(A, 0), (A, 0), (A * N, 1), (A * N, 1), (A * N * N, 2)];

/// The progress of a cut.
struct Cut {
    /// First page to cut off.
    from: u64,
    /// Pages from here on are gone.
    to: u64,
    /// Nodes that may still be freed.
    left: u32,
    /// Blocks freed, nodes included.
    blocks: u64,
    /// The next node to free, if it is on its way to the device: the step ends before it.
    busy: Option<Nid>,
}

impl Cut {
    fn new(from: u64, left: u32) -> Self {
        Cut { from, to: u64::MAX, left, blocks: 0, busy: None }
    }

    /// Whether the step is over.
    fn ends(&self) -> bool {
        self.left == 0 || self.busy.is_some()
    }
}

/// The result of a step.
#[must_use]
pub(crate) enum CutStep {
    /// The cut is complete.
    Last,
    /// The file's end is nearer to its new end.
    Nearer,
    /// The file's end is nearer to its new end. The step stopped at this node, which is on its way to the
    /// device: the caller waits for the node without `cp_rwsem`.
    Busy(Nid),
}

/// The fate of a node.
#[derive(PartialEq, Eq)]
enum Fate {
    /// The node is free.
    Gone,
    /// The node stays: it has pages before the cut, or the step ended before it.
    Kept,
}

impl F2fs {
    /// Sets the size of a file. The caller holds no lock but the inode's. Takes `cp_rwsem` shared for one
    /// step at a time, and waits for nodes on their way with `cp_rwsem` released.
    pub(crate) fn truncate_file(&self, inode: &Inode, size: u64, now: Timespec) -> Result<()> {
        // Even a file that has its new size already may have an empty node behind its end, which an earlier
        // step found on its way.
        let mut begun = false;
        loop {
            match self.truncate_step(inode, size, now, begun)? {
                CutStep::Last => return Ok(()),
                CutStep::Nearer => {}
                CutStep::Busy(nid) => self.wait_on_node(nid),
            }
            begun = true;
        }
    }

    /// Sets the size, or takes a step towards it; `begun` after the first step.
    fn truncate_step(&self, inode: &Inode, size: u64, now: Timespec, begun: bool) -> Result<CutStep> {
        let _op = self.cp_rwsem.read();
        let f = fi(inode);
        let old = inode.size();
        if f.has_inline(inline::DATA) {
            if size > f.inline_area().len() as u64 {
                self.convert_inline(inode)?;
            } else {
                // Bytes past the end of the file may be anything.
                self.truncate_inline(inode, size.min(old))?;
            }
        } else if size < old
            || begun
            || size == old && self.has_blocks_from(inode, size.div_ceil(BLOCK_SIZE as u64))?
        {
            let step = self.cut_step(inode, size.div_ceil(BLOCK_SIZE as u64))?;
            if !matches!(step, CutStep::Last) {
                return Ok(step);
            }
        }
        {
            let mut a = inode.attr();
            a.size = size;
            a.mtime = now;
            a.ctime = now;
        }
        self.store_inode(inode)?;
        Ok(CutStep::Last)
    }

    /// Frees everything from page `from` on, nodes too, in one change. For recovery, which has the volume to
    /// itself, and for a file without nodes of its own; the caller for the latter holds `cp_rwsem`.
    pub(crate) fn truncate_pages(&self, inode: &Inode, from: u64) -> Result<()> {
        loop {
            match self.cut_step(inode, from)? {
                CutStep::Last => return Ok(()),
                CutStep::Nearer => {}
                CutStep::Busy(nid) => self.wait_on_node(nid),
            }
        }
    }

    /// Frees pages and nodes from the file's end towards page `from`. If the step does not reach `from`, the
    /// file ends where the step stopped. The caller holds `cp_rwsem`, and may release it before the next
    /// step. Takes `i_dnode`.
    pub(crate) fn cut_step(&self, inode: &Inode, from: u64) -> Result<CutStep> {
        let mut map = fi(inode).map.lock();
        if inode.nlink() > 0 && self.has_dnodes(inode)? {
            self.since_cp.note(inode.nid().0, Since::CUT);
        }
        map.invalidate(from, u64::MAX - from);
        let mut cut = Cut::new(from, NODES_AT_ONCE);
        let done = self.cut_file(inode, &mut cut);
        let gone = if let Ok(true) = done { from } else { cut.to };
        self.write_io.failed_pages.settle(inode.ino.0, gone..u64::MAX);
        let attr = {
            let mut a = inode.attr();
            a.blocks = a.blocks.saturating_sub(cut.blocks * 8);
            if let Ok(false) = done {
                a.size = a.size.min(cut.to.saturating_mul(BLOCK_SIZE as u64));
            }
            a.clone()
        };
        // The inode is stored also after an error: a part that is gone is gone.
        let stored = self.store_inode_with(inode, &attr, map.largest);
        let done = done.and_then(|done| stored.map(|()| done))?;
        Ok(match cut.busy {
            Some(nid) => CutStep::Busy(nid),
            None if done => CutStep::Last,
            None => CutStep::Nearer,
        })
    }

    fn cut_file(&self, inode: &Inode, cut: &mut Cut) -> Result<bool> {
        let in_inode = fi(inode).addrs_per_inode() as u64;
        let mut start = in_inode + TREES.iter().map(|t| t.0).sum::<u64>();
        for (k, (pages, _)) in TREES.iter().enumerate().rev() {
            start -= pages;
            if cut.from < start + pages {
                self.cut_tree(inode, k, start, cut)?;
            }
            if cut.ends() {
                return Ok(false);
            }
        }
        if cut.from < in_inode
            && let Found::At(d) = self.find_dnode(inode, cut.from)?
        {
            cut.blocks += self.free_addresses(inode, &d, d.room)?;
        }
        Ok(true)
    }

    /// Cuts the tree of nodes behind id `k` of an inode; the tree's pages begin at `start`.
    fn cut_tree(&self, inode: &Inode, k: usize, start: u64, cut: &mut Cut) -> Result<()> {
        let ino = inode.nid();
        let nid = Nid(RawInodeBlock::nids(self.node_of(ino, inode.ino.0)?.bytes())[k].get());
        if nid.0 != 0 && self.cut_node(inode, nid, TREES[k].1, start, cut)? == Fate::Gone {
            // If the inode cannot be told that its node is gone, the volume must not go on.
            let cleared = self.modify_node(ino, |b| {
                if let Some(nids) = RawInodeBlock::nids_mut(b) {
                    nids[k] = 0.into();
                }
            });
            self.guard(cleared)?;
        }
        Ok(())
    }

    /// Cuts the tree below node `nid`, whose pages begin at `start`, `levels` levels of nodes further down.
    fn cut_node(&self, inode: &Inode, nid: Nid, levels: u32, start: u64, cut: &mut Cut) -> Result<Fate> {
        self.check_nid(nid, inode.ino.0)?;
        if levels == 0 {
            return self.cut_dnode(inode, nid, start, cut);
        }
        // The check proves that the node is this inode's, too.
        let page = self.node_of(nid, inode.ino.0)?;
        let each = A * N.pow(levels - 1);
        let first = (cut.from.saturating_sub(start) / each) as usize;
        let mut cleared = N as usize;
        let mut r = Ok(Fate::Gone);
        for i in (first..N as usize).rev() {
            let child = Nid(word(page.bytes(), i));
            if child.0 == 0 {
                continue;
            }
            if cut.ends() {
                r = Ok(Fate::Kept);
                break;
            }
            r = self.cut_node(inode, child, levels - 1, start + i as u64 * each, cut);
            if !matches!(r, Ok(Fate::Gone)) {
                break;
            }
            cleared = i;
        }
        let empty = matches!(r, Ok(Fate::Gone)) && cut.from <= start;
        let off = if empty { self.cut_off(nid, cut) } else { Ok(false) };
        if let Ok(true) = off {
            cut.blocks += 1;
            cut.left = cut.left.saturating_sub(1);
            return Ok(Fate::Gone);
        }
        // The node is updated also after an error: it must not name nodes that are free.
        if cleared < N as usize {
            let clear = |b: &mut [u8]| (cleared..N as usize).for_each(|i| set_word(b, i, 0));
            self.guard(self.modify_node(nid, clear))?;
        }
        r.and(off).map(|_| Fate::Kept)
    }

    fn cut_dnode(&self, inode: &Inode, nid: Nid, start: u64, cut: &mut Cut) -> Result<Fate> {
        cut.left -= 1;
        let d = Dnode::whole(nid);
        if start < cut.from {
            let d = d.from((cut.from - start) as usize);
            cut.blocks += self.free_addresses(inode, &d, d.room)?;
            cut.to = cut.from;
            return Ok(Fate::Kept);
        }
        let used = self.used_addresses(inode, &d, d.room)?;
        if !self.cut_off(nid, cut)? {
            return Ok(Fate::Kept);
        }
        cut.to = start;
        self.free_used(&used)?;
        cut.blocks += used.len() as u64 + 1;
        Ok(Fate::Gone)
    }

    /// Frees a node; false when the node is on its way to the device, which ends the step.
    fn cut_off(&self, nid: Nid, cut: &mut Cut) -> Result<bool> {
        if let Freed::Busy(nid) = self.free_node(nid, false)? {
            cut.busy = Some(nid);
        }
        Ok(cut.busy.is_none())
    }

    /// Frees the tree of nodes behind id `k` (0 to 4) of an inode, and the pages in it. The caller stores
    /// the inode. For recovery, which has the volume to itself.
    pub(crate) fn drop_subtree(&self, inode: &Inode, k: usize) -> Result<()> {
        let mut map = fi(inode).map.lock();
        let start = fi(inode).addrs_per_inode() as u64 + TREES[..k].iter().map(|t| t.0).sum::<u64>();
        map.invalidate(start, TREES[k].0);
        let mut cut = Cut::new(start, u32::MAX);
        let mut dropped = self.cut_tree(inode, k, start, &mut cut);
        while let (Ok(()), Some(nid)) = (&dropped, cut.busy.take()) {
            self.wait_on_node(nid);
            dropped = self.cut_tree(inode, k, start, &mut cut);
        }
        let mut a = inode.attr();
        a.blocks = a.blocks.saturating_sub(cut.blocks * 8);
        dropped
    }

    /// Frees the blocks of pages `start..end`. Their nodes stay, and each of these becomes dirty. The caller
    /// holds `cp_rwsem`; takes `i_dnode`.
    pub(crate) fn free_pages(&self, inode: &Inode, start: u64, end: u64) -> Result<()> {
        let mut map = fi(inode).map.lock();
        map.invalidate(start, end.saturating_sub(start));
        let (mut at, mut blocks) = (start, 0);
        let freed = self.free_range(inode, &mut at, end, &mut blocks);
        // A failed page that keeps its place is still to be written, or a reader gets the place's old content.
        self.write_io.failed_pages.settle(inode.ino.0, start..at.min(end));
        let attr = {
            let mut a = inode.attr();
            a.blocks = a.blocks.saturating_sub(blocks * 8);
            a.clone()
        };
        let stored = self.store_inode_with(inode, &attr, map.largest);
        freed.and(stored)
    }

    /// Frees the blocks of pages `at..end`; `at` and `blocks` say how far it came, also after an error.
    fn free_range(&self, inode: &Inode, at: &mut u64, end: u64, blocks: &mut u64) -> Result<()> {
        while *at < end {
            match self.find_dnode(inode, *at) {
                Err(e) if e.kind() == ErrorKind::FileTooBig => *at = end,
                Err(e) => return Err(e),
                Ok(Found::Hole(n)) => *at = at.saturating_add(n),
                Ok(Found::At(d)) => {
                    let n = d.room.min((end - *at).min(usize::MAX as u64) as usize);
                    *blocks += self.free_addresses(inode, &d, n)?;
                    *at += n as u64;
                }
            }
        }
        Ok(())
    }

    /// Whether a file has blocks from page `at` on, such as those that were preallocated behind its end.
    fn has_blocks_from(&self, inode: &Inode, mut at: u64) -> Result<bool> {
        let _map = fi(inode).map.lock();
        loop {
            match self.find_dnode(inode, at) {
                Err(e) if e.kind() == ErrorKind::FileTooBig => return Ok(false),
                Err(e) => return Err(e),
                Ok(Found::Hole(n)) => at = at.saturating_add(n),
                Ok(Found::At(d)) if self.used_addresses(inode, &d, d.room)?.is_empty() => at += d.room as u64,
                Ok(Found::At(_)) => return Ok(true),
            }
        }
    }

    /// Makes holes of `n` pages, beginning with the page of `d`; returns how many were not holes before.
    fn free_addresses(&self, inode: &Inode, d: &Dnode, n: usize) -> Result<u64> {
        let used = self.used_addresses(inode, d, n)?;
        if !used.is_empty() {
            self.update_addresses(inode, d, n, |_, _| BlockAddr::NULL)?;
            self.free_used(&used)?;
        }
        Ok(used.len() as u64)
    }

    /// The addresses of `n` pages, beginning with the page of `d`, without the holes.
    fn used_addresses(&self, inode: &Inode, d: &Dnode, n: usize) -> Result<Vec<BlockAddr>> {
        let mut all = self.addresses(inode, d, n)?;
        all.retain(|a| *a != BlockAddr::NULL);
        all.iter().try_for_each(|a| self.check_data_addr(*a, inode.ino.0))?;
        Ok(all)
    }

    /// Frees blocks that no page points to any more, and the reservations among them.
    fn free_used(&self, used: &[BlockAddr]) -> Result<()> {
        let placed: Vec<BlockAddr> = used.iter().copied().filter(|a| a.is_data()).collect();
        self.guard(self.sit.invalidate(&placed))?;
        self.unbook(used.len() as u64, 0, 0);
        Ok(())
    }
}
