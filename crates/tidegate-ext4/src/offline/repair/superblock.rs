//! The superblock, and its copies in other groups.

use super::Repair;
use super::disk::Stage;
use crate::format::crc::{START, crc32c};
use crate::format::gate::Superblock;
use crate::format::raw::*;
use crate::format::units::GroupNo;
use std::sync::Arc;
use tidegate_block::{BioFlags, RequestQueue, Sector};
use tidegate_vfs::{Error, ErrorKind, Result};
use zerocopy::{FromBytes, IntoBytes};

/// Compatible features that there are; others were given a number and never used.
pub(super) const KNOWN: Compat = Compat::all()
    .difference(Compat::LAZY_BG)
    .difference(Compat::EXCLUDE_INODE)
    .difference(Compat::EXCLUDE_BITMAP);

/// `s_encoding` of the one encoding that there is.
const UTF_8: u16 = 1;

/// Sets the checksum, if there is one.
pub(super) fn seal(s: &mut RawSuperblock) {
    if s.s_rev_level.get() > 0 && s.s_feature_ro_compat.get() & RoCompat::METADATA_CSUM.bits() != 0 {
        s.s_checksum = crc32c(START, &s.as_bytes()[..SB_CSUM_OFFSET]).into();
    }
}

/// The superblock, and what was done to have it.
pub(super) struct Found {
    pub(super) sb: Superblock,
    /// What is wrong with the first, and where this one is from.
    pub(super) mended: Option<(String, String)>,
}

/// Whether a volume whose superblock is gone has a copy of it.
pub fn has_copy(queue: &RequestQueue) -> bool {
    copy(queue).is_some_and(|c| c.1.raw.s_block_group_nr.get() == c.0 as u16)
}

/// Finds the superblock, or a copy that can stand in for it.
///
/// # Errors
/// What is wrong with the first where none can; `Unsupported` where it has unknown features.
pub(super) fn find(queue: &Arc<RequestQueue>) -> Result<Found> {
    let bytes = read(queue, SUPER_OFFSET as u64)?;
    let size = queue.device().size();
    let e = match Superblock::parse(&bytes, size) {
        Ok(sb) => return Ok(Found { sb, mended: None }),
        Err(e) => e,
    };
    // What is sealed with a good checksum is meant as it is.
    let sealed = le32(&bytes, SB_CSUM_OFFSET) == crc32c(START, &bytes[..SB_CSUM_OFFSET]);
    if sealed && e.kind() == ErrorKind::Unsupported {
        return Err(e);
    }
    if let Some((group, mut sb)) = copy(queue) {
        sb.raw.s_block_group_nr = 0.into();
        seal(&mut sb.raw);
        return Ok(Found { sb, mended: Some((e.to_string(), format!("as in group {group}"))) });
    }
    match by_itself(queue, &bytes) {
        Some(sb) => Ok(Found { sb, mended: Some((e.to_string(), "checksum made anew".into())) }),
        None => Err(e),
    }
}

fn read(queue: &RequestQueue, at: u64) -> Result<Vec<u8>> {
    let bytes = queue.read_wait(Sector::from_bytes(at / 4096 * 4096), 1, BioFlags::META);
    let bytes = bytes.map_err(|e| Error::device(e, "reading a superblock"))?;
    Ok(bytes[(at % 4096) as usize..][..SUPER_SIZE].to_vec())
}

/// The first good copy in a group that has one in any case: 1, and powers of 3, 5 and 7.
fn copy(queue: &RequestQueue) -> Option<(u64, Superblock)> {
    let size = queue.device().size();
    for block_size in [4096, 1024, 2048] {
        for group in [1, 3, 5, 7, 9, 25, 27, 49] {
            let first = u64::from(block_size == 1024);
            let at = (first + group * block_size * 8) * block_size;
            if at + 4096 > size {
                break;
            }
            let Ok(bytes) = read(queue, at) else { continue };
            let right = |sb: &Superblock| {
                u64::from(sb.block_size) == block_size && sb.has_super(GroupNo(group as u32))
            };
            if let Some(sb) = Superblock::parse(&bytes, size).ok().filter(right) {
                return Some((group, sb));
            }
        }
    }
    None
}

impl Repair<'_, '_> {
    /// Copies of the superblock that are of no use become copies of `raw`.
    pub(super) fn mend_copies(&mut self, raw: &RawSuperblock) -> Result<()> {
        for g in 1..self.sb.groups {
            if !self.sb.has_super(GroupNo(g)) {
                continue;
            }
            let at = self.sb.group_start(GroupNo(g)).0;
            let mut block = self.disk.block(at)?;
            let size = self.sb.blocks * u64::from(self.sb.block_size);
            let same = |c: Superblock| c.blocks == self.sb.blocks && c.raw.s_uuid == self.sb.raw.s_uuid;
            if Superblock::parse(&block[..SUPER_SIZE], size).is_ok_and(same) {
                continue;
            }
            self.tell("superblock", format!("copy in group {g}"), "of no use", "as the first");
            let mut copy = raw.clone();
            copy.s_block_group_nr = (g as u16).into();
            seal(&mut copy);
            block[..SUPER_SIZE].copy_from_slice(copy.as_bytes());
            self.disk.put(at, Stage::Tables, block)?;
        }
        Ok(())
    }
}

/// The first superblock, where nothing but its checksum is wrong: the first descriptor knows of it.
fn by_itself(queue: &RequestQueue, bytes: &[u8]) -> Option<Superblock> {
    let mut raw = RawSuperblock::read_from_bytes(bytes).ok()?;
    // Features that nobody knows, in a superblock whose checksum is wrong, are damage.
    let compat = Compat::from_bits_retain(raw.s_feature_compat.get()) & KNOWN;
    raw.s_feature_compat = compat.bits().into();
    let ro = RoCompat::from_bits_retain(raw.s_feature_ro_compat.get()) & RoCompat::all();
    raw.s_feature_ro_compat = ro.bits().into();
    if !ro.contains(RoCompat::QUOTA) {
        (raw.s_usr_quota_inum, raw.s_grp_quota_inum, raw.s_prj_quota_inum) = Default::default();
    }
    if raw.s_feature_incompat.get() & Incompat::CASEFOLD.bits() != 0 {
        raw.s_encoding = UTF_8.into();
    }
    seal(&mut raw);
    let sb = Superblock::parse(raw.as_bytes(), queue.device().size()).ok()?;
    let bs = u64::from(sb.block_size);
    let at = sb.desc_block(0).0 * bs;
    let block = queue.read_wait(Sector::from_bytes(at / 4096 * 4096), 1, BioFlags::META).ok()?;
    let desc = block.get((at % 4096) as usize..)?.get(..sb.desc_size as usize)?;
    let known = crate::format::gate::GroupDesc::parse(&sb, GroupNo(0), desc).is_ok();
    (sb.has_group_csum() && known).then_some(sb)
}
