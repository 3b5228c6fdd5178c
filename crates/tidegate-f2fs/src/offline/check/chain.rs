//! The chain of fsynced nodes behind the checkpoint: it must end, and its node and inode numbers must be
//! possible.

use super::{Checker, rules};
use crate::format::raw::*;
use crate::format::units::BlockAddr;
use tidegate_rt::hash::HashSet;
use tidegate_vfs::Result;

impl Checker<'_> {
    /// Follows the chain from where the warm node log goes on.
    pub(super) fn check_chain(&mut self) -> Result<()> {
        let (mut at, stamp) = (self.cp.chain_start(&self.sb), self.cp.node_stamp());
        let mut met = HashSet::default();
        while self.sb.in_main(at) && !self.is_lost(at) {
            let block = self.dev.block(at.0)?;
            let footer = RawNodeFooter::of(&block[..]);
            if !stamp.is_on(footer.cp_ver.get()) {
                return Ok(());
            }
            if !met.insert(at) {
                self.found
                    .add(rules::CHAIN, || format!("the chain of fsynced nodes comes back to block {at}"));
                return Ok(());
            }
            for (what, id) in [("node", footer.nid.get()), ("inode", footer.ino.get())] {
                // A filler stands for a freed node and has neither number.
                if id != 0 && !self.known_nid(id) {
                    let what = || format!("the chain of fsynced nodes (block {at}): there is no {what} {id}");
                    self.found.add(rules::CHAIN, what);
                }
            }
            at = BlockAddr(footer.next_blkaddr.get());
        }
        Ok(())
    }

    /// Whether a block of the main area is in a zone that has lost its content.
    fn is_lost(&self, at: BlockAddr) -> bool {
        let segno = (at.0 - self.sb.main_blkaddr) / BLOCKS_PER_SEG;
        self.zones.as_ref().is_some_and(|z| z.is_lost(segno))
    }
}
