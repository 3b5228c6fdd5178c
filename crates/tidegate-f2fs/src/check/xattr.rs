//! Extended attributes: the area in the inode and the xattr node that continues it.

use super::device::le32;
use super::inode::Inode;
use super::tree::FileState;
use super::{Checker, rules};
use crate::raw::*;
use tidegate_vfs::Result;
use zerocopy::FromBytes;

impl Checker<'_> {
    /// Reads both areas as the one they make, and checks it.
    pub(super) fn check_xattrs(&mut self, i: &Inode, f: &mut FileState) -> Result<()> {
        let nid = i.raw.i_xattr_nid.get();
        let mut area = i.block[I_NID_OFFSET - i.inline_xattr..I_NID_OFFSET].to_vec();
        if nid != 0 {
            let Some(block) = self.child(f, nid, XATTR_NODE_OFFSET)? else { return Ok(()) };
            area.extend_from_slice(&block[..VALID_XATTR_BLOCK_SIZE]);
        }
        // Never used: no header yet.
        if nid == 0 && le32(&area, 0) == 0 {
            return Ok(());
        }
        match entries(&area) {
            Ok(()) => Ok(()),
            Err(what) => self.at(rules::XATTR, i.ino, || what),
        }
    }
}

/// Walks the entries: a zero word, or the area's end, ends them.
fn entries(area: &[u8]) -> std::result::Result<(), String> {
    let magic = le32(area, 0);
    if area.len() < XATTR_HEADER_SIZE || magic != F2FS_XATTR_MAGIC {
        return Err(format!("xattr area of {} bytes with magic {magic:#x}", area.len()));
    }
    let mut at = XATTR_HEADER_SIZE;
    while le32(area, at) != 0 {
        let Ok((e, _)) = RawXattrEntry::read_from_prefix(&area[at..]) else { break };
        let len = size_of::<RawXattrEntry>() + e.e_name_len as usize + e.e_value_size.get() as usize;
        let next = at + len.next_multiple_of(4);
        if next > area.len() {
            return Err(format!("xattr entry at byte {at} ends at {next} of {}", area.len()));
        }
        at = next;
    }
    Ok(())
}
