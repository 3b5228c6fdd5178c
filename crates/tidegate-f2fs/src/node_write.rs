//! Writing nodes out: by log, a run of blocks at a time.

use crate::curseg::Log;
use crate::inode;
use crate::node::{flag_of, is_dnode, nid_of, ofs_of};
use crate::raw::*;
use crate::sbi::F2fs;
use crate::units::{BlockAddr, Nid};
use crate::write_io::Pages;
use tidegate_block::{BioFlags, Segment};
use tidegate_vfs::{Error, ErrorKind, Result, WritebackControl};

/// Nodes looked at in one round; as many as a segment holds.
const BATCH: usize = 512;

impl F2fs {
    /// Writes dirty nodes out; does not wait for them. Takes `cp_rwsem` shared.
    pub(crate) fn write_nodes(&self, wbc: &mut WritebackControl) -> Result<()> {
        let _op = self.cp_rwsem.read();
        self.write_nodes_locked(wbc)
    }

    /// The same for who holds `cp_rwsem`. Takes `node_write`.
    pub(crate) fn write_nodes_locked(&self, wbc: &mut WritebackControl) -> Result<()> {
        let _writer = self.node_write.lock();
        let mapping = &self.node_inode.mapping;
        let mut at = wbc.start;
        while wbc.nr_to_write > 0 {
            let max = BATCH.min(wbc.nr_to_write.min(BATCH as u64) as usize);
            let found = mapping.dirty_indices(at, wbc.end, max);
            let Some(last) = found.last() else { return Ok(()) };
            at = last + 1;
            let mut by_log: [Vec<Nid>; 3] = Default::default();
            for index in found {
                if wbc.sync_all {
                    mapping.wait_writeback(index, index + 1);
                }
                if let Some(run) = mapping.get(index, 1) {
                    by_log[node_log(run.bytes()) as usize - 3].push(Nid(index as u32));
                }
            }
            for (i, nids) in by_log.iter().enumerate() {
                let log = [Log::HotNode, Log::WarmNode, Log::ColdNode][i];
                let mut rest = &nids[..];
                while !rest.is_empty() {
                    let n = self.write_node_run(log, rest, wbc)?;
                    rest = &rest[n..];
                }
            }
        }
        Ok(())
    }

    /// Writes the first nodes of `nids` to one run of blocks; how many.
    fn write_node_run(&self, log: Log, nids: &[Nid], wbc: &mut WritebackControl) -> Result<usize> {
        let versions = self.nat.versions(&self.meta, nids)?;
        let a = self.allocate(log, nids.len() as u32, |i| RawSummary {
            nid: nids[i as usize].0.into(),
            version: versions[i as usize],
            ofs_in_node: 0.into(),
        })?;
        let n = a.blocks as usize;
        let version = self.ckpt.lock().node_version;
        let mut taken: Vec<Option<Segment>> = Vec::with_capacity(n);
        for (i, nid) in nids[..n].iter().enumerate() {
            let next = if i + 1 < n { a.start.plus(i as u32 + 1) } else { a.next };
            let page =
                self.node_inode.mapping.take_page_with(nid.0 as u64, |p| self.sign_node(p, version, next));
            taken.push(page.map(|p| Segment::pages(p.buf, p.first, 1)));
        }
        let moves: Vec<(Nid, BlockAddr)> =
            (0..n).filter(|i| taken[*i].is_some()).map(|i| (nids[i], a.start.plus(i as u32))).collect();
        let olds = self.guard(self.nat.relocate(&self.meta, &moves))?;
        let mut freed: Vec<BlockAddr> = olds.iter().flatten().copied().filter(|b| b.is_data()).collect();
        // Nodes that went away between being found and being taken leave their new block unused.
        freed.extend((0..n).filter(|i| taken[*i].is_none()).map(|i| a.start.plus(i as u32)));
        freed.extend(moves.iter().zip(&olds).filter(|(_, old)| old.is_none()).map(|(m, _)| m.1));
        freed.sort_unstable();
        self.guard(self.sit.invalidate(&freed))?;
        for (i, seg) in taken.into_iter().enumerate() {
            if let Some(seg) = seg {
                let pages = Pages { inode: self.node_inode.clone(), index: nids[i].0 as u64, pages: 1 };
                self.write_io.add(
                    &self.stats,
                    log,
                    a.start.plus(i as u32),
                    vec![seg],
                    pages,
                    BioFlags::empty(),
                );
            }
        }
        wbc.written += n as u64;
        wbc.nr_to_write = wbc.nr_to_write.saturating_sub(n as u64);
        Ok(n)
    }

    /// Sets what a node says of its place in the log, and an inode's checksum over that.
    fn sign_node(&self, page: &mut [u8], version: u64, next: BlockAddr) {
        page[FOOTER_OFFSET + 12..FOOTER_OFFSET + 20].copy_from_slice(&version.to_le_bytes());
        page[FOOTER_OFFSET + 20..FOOTER_OFFSET + 24].copy_from_slice(&next.0.to_le_bytes());
        if ofs_of(page) == 0 {
            inode::set_checksum(&self.sb, page);
        }
    }

    /// Writes every dirty node and waits. For who holds `cp_rwsem` exclusive.
    ///
    /// # Errors
    /// `Io` when one could not be written.
    pub(crate) fn sync_nodes(&self) -> Result<()> {
        let before = self.node_inode.mapping.errseq();
        while self.node_inode.mapping.nr_dirty() > 0 {
            self.write_nodes_locked(&mut WritebackControl::sync())?;
            if self.node_inode.mapping.errseq() != before {
                break;
            }
        }
        self.node_inode.mapping.wait_writeback(0, u64::MAX);
        if self.node_inode.mapping.errseq() != before {
            return Err(Error::new(ErrorKind::Io, "writing nodes"));
        }
        Ok(())
    }
}

/// The log a node goes to: indirect nodes are cold, others warm, those of directories hot.
fn node_log(page: &[u8]) -> Log {
    debug_assert!(nid_of(page).0 != 0);
    if !is_dnode(ofs_of(page)) {
        Log::ColdNode
    } else if flag_of(page) & COLD_BIT_MASK != 0 {
        Log::WarmNode
    } else {
        Log::HotNode
    }
}
