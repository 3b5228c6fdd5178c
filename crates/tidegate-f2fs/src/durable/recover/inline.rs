//! Recovering data that is kept in an inode.

use super::RollForward;
use crate::format::raw::*;
use crate::inode::{NodeId, fi};
use std::sync::Arc;
use tidegate_vfs::{Inode, Result};

impl RollForward<'_> {
    /// Takes over data kept in the inode, or with `None` moves such data out to make room for addresses.
    pub(super) fn recover_inline_data(
        &self,
        inode: &Arc<Inode>,
        page: &[u8],
        raw: Option<&RawInode>,
    ) -> Result<()> {
        let (fs, f) = (self.fs, fi(inode));
        let (nid, area) = (inode.nid(), f.inline_area());
        match (raw, f.has_inline(inline::DATA)) {
            (Some(raw), was) => {
                if !was {
                    fs.truncate_pages(inode, 0)?;
                }
                f.set_inline(inline::DATA, true);
                f.set_inline(inline::DATA_EXIST, raw.i_inline & inline::DATA_EXIST != 0);
                fs.modify_node(nid, |p| p[area.clone()].copy_from_slice(&page[area.clone()]))
            }
            (None, true) => {
                f.set_inline(inline::DATA | inline::DATA_EXIST, false);
                fs.modify_node(nid, |p| p[area.clone()].fill(0))
            }
            (None, false) => Ok(()),
        }
    }
}
