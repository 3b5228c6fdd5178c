//! The superblock, and its copies in other groups.

use super::agree::{agree, is_alike};
use super::disk::{Disk, Stage};
use super::{Repair, groups};
use crate::format::crc::{START, crc32c};
use crate::format::gate::Superblock;
use crate::format::raw::*;
use crate::format::units::GroupNo;
use crate::offline::check::{self, CheckOptions, Checked, superblock_names_nothing};
use std::collections::BTreeSet;
use std::sync::Arc;
use tidegate_block::{BioFlags, RequestQueue, Sector};
use tidegate_vfs::{Error, ErrorKind, Result};
use zerocopy::{FromBytes, IntoBytes};

/// Compatible features that exist; other numbers were assigned and never used.
pub(super) const KNOWN: Compat = Compat::all()
    .difference(Compat::LAZY_BG)
    .difference(Compat::EXCLUDE_INODE)
    .difference(Compat::EXCLUDE_BITMAP);

/// `s_encoding` of the only encoding.
const UTF_8: u16 = 1;

/// Sets the checksum, if there is one.
pub(super) fn seal(s: &mut RawSuperblock) {
    if s.s_rev_level.get() > 0 && s.s_feature_ro_compat.get() & RoCompat::METADATA_CSUM.bits() != 0 {
        s.s_checksum = crc32c(START, &s.as_bytes()[..SB_CSUM_OFFSET]).into();
    }
}

/// The superblock, and the way it was found.
pub(super) struct Found {
    pub(super) sb: Superblock,
    /// The first superblock's fault, and the place that this one is from.
    pub(super) mended: Option<(String, String)>,
}

/// Whether a volume without a superblock has a copy of it, or has lost only its magic number.
pub fn has_copy(queue: &Arc<RequestQueue>) -> bool {
    let unmarked = || read(queue, SUPER_OFFSET as u64).is_ok_and(|bytes| with_magic(queue, &bytes).is_some());
    best(copies(queue, &[])).is_some() || unmarked()
}

/// A superblock that lacks only its magic number, with the number added: its checksum is right then, or the
/// descriptors and inodes that it leads to are.
fn with_magic(queue: &Arc<RequestQueue>, bytes: &[u8]) -> Option<(Superblock, Vec<u8>)> {
    let mut raw = RawSuperblock::read_from_bytes(bytes).ok()?;
    if raw.s_magic.get() == EXT4_MAGIC {
        return None;
    }
    raw.s_magic = EXT4_MAGIC.into();
    let sb = Superblock::parse(raw.as_bytes(), queue.device().size()).ok()?;
    let known = sb.has_csum() || groups::load(&mut Disk::new(queue, sb.block_size), &sb).is_ok();
    known.then(|| (sb, raw.as_bytes().to_vec()))
}

/// Whether the first superblock is usable, but only its copies tell whether a bit of it is wrong.
pub(super) fn depends_on_copies(queue: &RequestQueue) -> bool {
    let first = read(queue, SUPER_OFFSET as u64).and_then(|b| Superblock::parse(&b, queue.device().size()));
    first.is_ok_and(|sb| !sb.has_csum())
}

/// Finds the superblock on the volume, or a copy that can replace it. `sound` says that the volume is sound
/// by the first superblock, or that its copies were consulted before: then they are not consulted again, as
/// they may be older.
///
/// # Errors
/// The first superblock's fault if none can be used; `Unsupported` if it has unknown features; `Corrupt` if
/// its copies disagree with it; those of the device where the volume has to decide.
pub(super) fn find(queue: &Arc<RequestQueue>, sound: bool) -> Result<Found> {
    let size = queue.device().size();
    // A superblock that cannot be read counts as lost.
    let (bytes, unread) = match read(queue, SUPER_OFFSET as u64) {
        Ok(bytes) => (bytes, None),
        Err(e) => (vec![0; SUPER_SIZE], Some(e)),
    };
    if let Some((sb, bytes)) = with_magic(queue, &bytes) {
        let mended = ("it lacks its magic".to_owned(), "has it".to_owned());
        // As for a superblock with its magic number: copies of a sound volume are not consulted, as they may
        // be older.
        return match sb.has_csum() || problems(queue, sb.clone())? == Some(0) {
            true => Ok(Found { sb, mended: Some(mended) }),
            false => Ok(Found { mended: Some(mended), ..agreed(queue, sb, &bytes, None)? }),
        };
    }
    if !sound && let Some(found) = of_revision(queue, &bytes)? {
        return Ok(found);
    }
    let e = match Superblock::parse(&bytes, size) {
        Ok(sb) if sound || sb.has_csum() => return Ok(Found { sb, mended: None }),
        Ok(sb) => return agreed(queue, sb, &bytes, None),
        Err(e) => unread.unwrap_or(e),
    };
    // A superblock with a right checksum is trusted as it is.
    let sealed = le32(&bytes, SB_CSUM_OFFSET) == crc32c(START, &bytes[..SB_CSUM_OFFSET]);
    if sealed && e.kind() == ErrorKind::Unsupported {
        return Err(e);
    }
    if let Some(sb) = by_itself(queue, &bytes) {
        return agreed(queue, sb, &bytes, Some(e));
    }
    let Some(Copy { group, mut sb, .. }) = best(copies(queue, &bytes)) else { return Err(e) };
    sb.raw.s_block_group_nr = 0.into();
    seal(&mut sb.raw);
    Ok(Found { sb, mended: Some((e.to_string(), format!("as in group {group}"))) })
}

/// The number of problems that a check finds if it reads the volume by `sb`; `None` where it cannot.
///
/// # Errors
/// Those of the device: a block that could not be read says nothing of the superblock.
fn problems(queue: &Arc<RequestQueue>, sb: Superblock) -> Result<Option<u64>> {
    match check::by(queue, sb, CheckOptions::default()) {
        Ok(Checked { unread: Some(e), .. }) => Err(e),
        Ok(checked) => Ok(Some(checked.report.total_problems)),
        Err(e) if e.errno().is_some() => Err(e),
        Err(_) => Ok(None),
    }
}

/// Handles a superblock of revision 0 that claims features: it is taken without them, or as revision 1 if a
/// check finds fewer problems that way. A reading that no check can follow says nothing about the other
/// reading: then a reading without any problem wins, or else the copies are consulted.
///
/// # Errors
/// Those of the device.
fn of_revision(queue: &Arc<RequestQueue>, bytes: &[u8]) -> Result<Option<Found>> {
    let Ok(raw) = RawSuperblock::read_from_bytes(bytes) else { return Ok(None) };
    if raw.s_magic.get() != EXT4_MAGIC || raw.s_rev_level.get() != 0 || superblock_names_nothing(&raw) {
        return Ok(None);
    }
    let (mut none, mut newer) = (raw.clone(), raw);
    (none.s_feature_compat, none.s_feature_incompat, none.s_feature_ro_compat) = Default::default();
    newer.s_rev_level = 1.into();
    // Revision 0 leaves the fields of revision 1 empty and implies these values. A volume that was of
    // revision 1 may have lost other values: its copies know.
    let empty = newer.s_first_ino.get() == 0 || newer.s_inode_size.get() == 0;
    if newer.s_first_ino.get() == 0 {
        newer.s_first_ino = GOOD_OLD_FIRST_INO.into();
    }
    if newer.s_inode_size.get() == 0 {
        newer.s_inode_size = GOOD_OLD_INODE_SIZE.into();
    }
    let mut readings = Vec::new();
    for (raw, to) in [(none, "none"), (newer, "revision 1")] {
        let Ok(sb) = Superblock::parse(raw.as_bytes(), queue.device().size()) else { continue };
        let Some(found) = problems(queue, sb.clone())? else { continue };
        readings.push((found, sb, to));
    }
    if readings.len() < 2 {
        readings.retain(|(found, ..)| *found == 0);
    }
    let best = readings.into_iter().min_by_key(|r| r.0);
    let of_newer = || copies(queue, bytes).iter().any(|c| c.sb.raw.s_rev_level.get() > 0);
    let best = best.filter(|(found, ..)| *found == 0 || !empty || !of_newer());
    Ok(best.map(|(_, sb, to)| Found {
        sb,
        mended: Some(("features of a volume of revision 0".into(), to.into())),
    }))
}

/// The superblock with the values that its copies have in the fields that matter; `e` is the superblock's
/// fault.
fn agreed(queue: &Arc<RequestQueue>, sb: Superblock, bytes: &[u8], e: Option<Error>) -> Result<Found> {
    let mut copies = copies(queue, bytes);
    copies.retain(|c| c.unlike == 0 || e.is_some());
    let mut problems = |sb: Superblock| problems(queue, sb);
    let (sb, told) = agree(sb, &copies, e.is_none(), queue.device().size(), &mut problems)?;
    let mended = match (e, told.is_empty()) {
        (None, true) => None,
        (None, false) => Some(("its copies say otherwise".into(), told.join(", "))),
        (Some(e), true) => Some((e.to_string(), "checksum made anew".into())),
        (Some(e), false) => Some((e.to_string(), told.join(", "))),
    };
    Ok(Found { sb, mended })
}

fn read(queue: &RequestQueue, at: u64) -> Result<Vec<u8>> {
    let bytes = queue.read_wait(Sector::from_bytes(at / 4096 * 4096), 1, BioFlags::META);
    let bytes = bytes.map_err(|e| Error::device(e, "reading a superblock"))?;
    Ok(bytes[(at % 4096) as usize..][..SUPER_SIZE].to_vec())
}

/// A copy of the superblock.
pub(super) struct Copy {
    pub(super) group: u64,
    pub(super) sb: Superblock,
    /// The number of identifying fields in which it differs from the first superblock.
    unlike: usize,
}

/// Good copies, in groups that have one on every volume: 1, and powers of 3, 5 and 7; and in the last group,
/// where `sparse_super2` has its second. If `first`, the bytes of the first superblock, still is a
/// superblock, only copies of that volume count.
fn copies(queue: &RequestQueue, first: &[u8]) -> Vec<Copy> {
    let size = queue.device().size();
    let first = RawSuperblock::read_from_prefix(first).ok().map(|f| f.0);
    let first = first.filter(|f| f.s_magic.get() == EXT4_MAGIC);
    let mut found = Vec::new();
    let own = first.as_ref().map(|f| u64::from(f.s_blocks_per_group.get()));
    for block_size in [4096, 1024, 2048] {
        let usual = block_size * 8;
        let own = own.filter(|own| (1..usual).contains(own));
        let lead = u64::from(block_size == 1024);
        let mut places = BTreeSet::new();
        for per in [Some(usual), own].into_iter().flatten() {
            let last = (size / block_size).saturating_sub(lead + 1) / per;
            places.extend([1, 3, 5, 7, 9, 25, 27, 49, last].map(|group| (group, per)));
        }
        for (group, per) in places.into_iter().filter(|p| p.0 > 0) {
            let at = (lead + group * per) * block_size;
            if at + 4096 > size {
                continue;
            }
            let Ok(bytes) = read(queue, at) else { continue };
            let Ok(sb) = Superblock::parse(&bytes, size) else { continue };
            let unlike = first.as_ref().map_or(0, |f| unlike(f, &sb.raw));
            let number = GroupNo(group as u32);
            let right = u64::from(sb.block_size) == block_size
                && sb.group_start(number).0 * block_size == at
                && u64::from(sb.raw.s_block_group_nr.get()) == group
                && sb.has_super(number);
            // One identifying field may be the fault of the first superblock.
            if right && unlike <= 1 {
                found.push(Copy { group, sb, unlike });
            }
        }
    }
    found
}

/// The number of identifying fields in which two superblocks differ.
fn unlike(a: &RawSuperblock, b: &RawSuperblock) -> usize {
    let size = |s: &RawSuperblock| (s.s_blocks_count_lo.get(), s.s_blocks_count_hi.get());
    let seed = |s: &RawSuperblock| s.s_hash_seed.map(|w| w.get());
    let other = [
        a.s_uuid != b.s_uuid,
        a.s_mkfs_time.get() != b.s_mkfs_time.get(),
        seed(a) != seed(b),
        a.s_log_block_size.get() != b.s_log_block_size.get(),
        size(a) != size(b),
    ];
    other.into_iter().filter(|o| *o).count()
}

/// The copy that is most like the first superblock, and among those the one that most others agree with.
fn best(copies: Vec<Copy>) -> Option<Copy> {
    let alike = |c: &Copy| copies.iter().filter(|o| unlike(&o.sb.raw, &c.sb.raw) == 0).count();
    let order: Vec<_> = copies.iter().map(|c| (c.unlike, usize::MAX - alike(c))).collect();
    let first = (0..copies.len()).min_by_key(|n| order[*n])?;
    copies.into_iter().nth(first)
}

/// Whether a copy is useless. A copy that differs only in a feature or the like may be older, as kernels do
/// not write copies.
pub(super) fn has_bad_copy(disk: &mut Disk<'_>, sb: &Superblock) -> bool {
    let places = (1..sb.groups).map(GroupNo).filter(|g| sb.has_super(*g));
    places.into_iter().any(|g| {
        // A copy that cannot be read is rewritten.
        let block = disk.block(sb.group_start(g).0).unwrap_or_else(|_| vec![0; sb.block_size as usize]);
        copy_of(sb, &block).is_none()
    })
}

/// The superblock at the start of a block, if it is one of this volume.
fn copy_of(sb: &Superblock, block: &[u8]) -> Option<Superblock> {
    let copy = Superblock::parse(&block[..SUPER_SIZE], sb.blocks * u64::from(sb.block_size)).ok()?;
    (copy.blocks == sb.blocks && copy.raw.s_uuid == sb.raw.s_uuid).then_some(copy)
}

impl Repair<'_, '_> {
    /// Replaces useless copies of the superblock by `raw`.
    pub(super) fn mend_copies(&mut self, raw: &RawSuperblock) -> Result<()> {
        for g in 1..self.sb.groups {
            if !self.sb.has_super(GroupNo(g)) {
                continue;
            }
            let at = self.sb.group_start(GroupNo(g)).0;
            // A copy that cannot be read is rewritten.
            let mut block = self.disk.block(at).unwrap_or_else(|_| vec![0; self.sb.block_size as usize]);
            if copy_of(&self.sb, &block).is_some_and(|c| is_alike(raw, &c.raw)) {
                continue;
            }
            self.tell("superblock", format!("copy in group {g}"), "of no use", "as the first");
            let mut copy = raw.clone();
            copy.s_block_group_nr = (g as u16).into();
            seal(&mut copy);
            block[..SUPER_SIZE].copy_from_slice(copy.as_bytes());
            self.disk.put(at, Stage::Copies, block)?;
        }
        Ok(())
    }
}

/// The first superblock, if only its checksum is wrong: the first descriptor confirms it.
fn by_itself(queue: &RequestQueue, bytes: &[u8]) -> Option<Superblock> {
    let mut raw = RawSuperblock::read_from_bytes(bytes).ok()?;
    // Unknown features in a superblock with a wrong checksum are damage.
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
