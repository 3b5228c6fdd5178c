//! Nodes: whether NAT and footer agree with the reference to a node.

use super::device::Block;
use super::usage::Owner;
use super::{Checker, rules};
use crate::format::raw::*;
use tidegate_vfs::Result;

/// Nodes between two calls of the progress function.
const PROGRESS_STEP: u64 = 512;

impl Checker<'_> {
    /// Takes and checks node `nid` of inode `ino` at offset `ofs` of the file's tree; none when it cannot be
    /// trusted.
    pub(super) fn node(&mut self, nid: u32, ino: u32, ofs: u32) -> Result<Option<Block>> {
        let entry = self.nat.entry(nid);
        let addr = entry.block_addr.get();
        if addr == 0 {
            self.at(rules::NAT_MISSING, ino, || format!("node {nid} has no NAT entry"))?;
            return Ok(None);
        }
        if entry.ino.get() != ino {
            let says = entry.ino.get();
            self.at(rules::NAT_INO, ino, || format!("the NAT gives node {nid} to inode {says}"))?;
        }
        let owner = Owner { ino, nid, version: entry.version, slot: None };
        if !self.claim(addr, owner)? {
            return Ok(None);
        }
        self.tell_progress();
        let block = self.dev.block(addr)?;
        let footer = RawNodeFooter::of(&block[..]);
        let (has_nid, has_ino, has_ofs) = (footer.nid.get(), footer.ino.get(), footer.ofs());
        if (has_nid, has_ino) != (nid, ino) {
            self.at(rules::NODE_FOOTER, ino, || {
                format!("node {nid} (block {addr}): the footer says node {has_nid} of inode {has_ino}")
            })?;
            if has_nid != nid && has_ino != ino {
                return Ok(None); // a different node
            }
        }
        if has_ofs != ofs {
            self.at(rules::NODE_OFFSET, ino, || {
                format!("node {nid} (block {addr}): the footer says offset {has_ofs}, it stands at {ofs}")
            })?;
        }
        Ok(Some(block))
    }

    fn tell_progress(&mut self) {
        let done = self.usage.nodes;
        if let Some(f) = self.progress.as_mut().filter(|_| done.is_multiple_of(PROGRESS_STEP)) {
            f(done, self.cp.raw.valid_node_count.get() as u64);
        }
    }
}
