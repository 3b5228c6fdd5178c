//! Moves nodes: they are marked dirty unchanged, and written elsewhere like any other dirty node.

use crate::format::raw::*;
use crate::format::units::{Nid, SegNo};
use crate::volume::sbi::F2fs;
use std::sync::atomic::Ordering::Relaxed;
use tidegate_vfs::{ErrorKind, Result};

impl F2fs {
    /// Marks the nodes at blocks `valid` of a segment dirty. A node that was moved or freed meanwhile is left
    /// alone.
    ///
    /// # Errors
    /// `Corrupt`, those of the device.
    pub(super) fn move_nodes(&self, seg: SegNo, sum: &RawSummaryBlock, valid: &[usize]) -> Result<()> {
        let start = self.sit.segment_start(seg);
        let _op = self.cp_rwsem.read();
        for i in valid {
            let nid = Nid(sum.entries[*i].nid.get());
            self.check_nid(nid, 0)?;
            if self.nat.lookup(&self.meta, nid)?.addr != start.plus(*i as u32) {
                continue;
            }
            match self.modify_node(nid, |_| ()) {
                Err(e) if e.kind() == ErrorKind::Stale => {}
                r => {
                    r?;
                    self.stats.gc_nodes.fetch_add(1, Relaxed);
                }
            }
        }
        Ok(())
    }
}
