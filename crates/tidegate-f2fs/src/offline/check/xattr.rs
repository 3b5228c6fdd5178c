//! Extended attributes: the area in the inode and the xattr node that continues it.

use super::inode::Inode;
use super::tree::FileState;
use super::{Checker, rules};
use crate::format::raw::*;
use tidegate_rt::hash::HashSet;
use tidegate_vfs::Result;
use zerocopy::FromBytes;

impl Checker<'_> {
    /// Reads both areas as one list, and checks it.
    pub(super) fn check_xattrs(&mut self, i: &Inode, f: &mut FileState) -> Result<()> {
        let nid = i.raw.i_xattr_nid.get();
        let mut area = i.block[I_NID_OFFSET - i.inline_xattr..I_NID_OFFSET].to_vec();
        if nid != 0 {
            let Some(block) = self.child(f, nid, XATTR_NODE_OFFSET)? else { return Ok(()) };
            area.extend_from_slice(&block[..VALID_XATTR_BLOCK_SIZE]);
        }
        // The area was never used: there is no header yet.
        if nid == 0 && RawXattrHeader::of(&area).h_magic == 0 {
            return Ok(());
        }
        match entries(&area) {
            Ok(()) => Ok(()),
            Err(what) => self.at(rules::XATTR, i.ino, || what),
        }
    }
}

/// Walks the entries; a zero word or the end of the area ends the list.
fn entries(area: &[u8]) -> std::result::Result<(), String> {
    let magic = RawXattrHeader::of(area).h_magic.get();
    if area.len() < XATTR_HEADER_SIZE || magic != F2FS_XATTR_MAGIC {
        return Err(format!("xattr area of {} bytes with magic {magic:#x}", area.len()));
    }
    let mut at = XATTR_HEADER_SIZE;
    let mut names = HashSet::default();
    while le32(area, at) != 0 {
        let Ok((e, rest)) = RawXattrEntry::read_from_prefix(&area[at..]) else { break };
        let (name, value) = (e.e_name_len as usize, e.e_value_size.get() as usize);
        let next = at + (size_of::<RawXattrEntry>() + name + value).next_multiple_of(4);
        if next > area.len() {
            return Err(format!("xattr entry at byte {at} ends at {next} of {}", area.len()));
        }
        let (name, value) = (&rest[..name], &rest[name..name + value]);
        let is_acl = matches!(e.e_name_index, index::POSIX_ACL_ACCESS | index::POSIX_ACL_DEFAULT);
        if name.is_empty() != is_acl || name.contains(&0) {
            return Err(format!("xattr entry at byte {at}: a name of {} bytes", name.len()));
        }
        if is_acl && !is_well_formed(value) {
            return Err(format!("xattr entry at byte {at}: a damaged ACL"));
        }
        if !names.insert((e.e_name_index, name)) {
            return Err(format!("xattr entry at byte {at}: a name that was there before"));
        }
        at = next;
    }
    Ok(())
}

/// Whether `value` is a well-formed ACL of version 1: entries of a tag and permissions, with an id for named
/// users and groups.
fn is_well_formed(value: &[u8]) -> bool {
    let Some((&[1, 0, 0, 0], mut rest)) = value.split_first_chunk::<4>() else { return false };
    while let Some((&[tag, 0, 0..=7, 0], after)) = rest.split_first_chunk::<4>() {
        let id = match tag {
            0x01 | 0x04 | 0x10 | 0x20 => 0,
            0x02 | 0x08 => 4,
            _ => return false,
        };
        let Some(after) = after.get(id..) else { return false };
        rest = after;
    }
    rest.is_empty()
}
