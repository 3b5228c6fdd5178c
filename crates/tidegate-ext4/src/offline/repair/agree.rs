//! Compares the fields of the superblock that everything else depends on with its copies: one wrong bit in
//! them would make a repair rewrite every file or name.

use super::Repair;
use super::superblock::{Copy, seal};
use crate::format::gate::{Superblock, name_features};
use crate::format::raw::*;
use crate::format::units::BlockAddr;
use crate::offline::node::Kind;
use tidegate_vfs::{Error, Result};
use zerocopy::IntoBytes;

/// A field that is compared.
struct Field {
    name: &'static str,
    get: fn(&RawSuperblock) -> u32,
    set: fn(&mut RawSuperblock, u32),
    /// Bits that are compared.
    both: u32,
    /// Bits that the first superblock may have set without the copies, but must not have lost.
    lost: u32,
    /// The features that give the field a meaning.
    only: Compat,
}

macro_rules! field {
    ($field:ident) => {
        field!($field, u32::MAX, 0)
    };
    ($field:ident, $both:expr, $lost:expr) => {
        field!($field, $both, $lost, Compat::empty())
    };
    ($field:ident, $both:expr, $lost:expr, $only:expr) => {
        Field {
            name: stringify!($field),
            get: |raw| raw.$field.get().into(),
            // The value came from a field of equal width.
            set: |raw, n| {
                let to = raw.$field.as_mut_bytes();
                to.copy_from_slice(&n.to_le_bytes()[..to.len()]);
            },
            both: $both,
            lost: $lost,
            only: $only,
        }
    };
}

const COMPAT: Compat = Compat::HAS_JOURNAL
    .union(Compat::RESIZE_INODE)
    .union(Compat::DIR_INDEX)
    .union(Compat::SPARSE_SUPER2)
    .union(Compat::ORPHAN_FILE);
const RO_COMPAT: RoCompat = RoCompat::SPARSE_SUPER
    .union(RoCompat::METADATA_CSUM)
    .union(RoCompat::GDT_CSUM)
    .union(RoCompat::HUGE_FILE)
    .union(RoCompat::BIGALLOC)
    .union(RoCompat::QUOTA)
    .union(RoCompat::VERITY);
const INCOMPAT: Incompat =
    Incompat::FILETYPE.union(Incompat::BIT64).union(Incompat::META_BG).union(Incompat::FLEX_BG);
/// Features that kernels set without a change of the copies.
const INCOMPAT_LOST: Incompat =
    Incompat::EXTENTS.union(Incompat::ENCRYPT).union(Incompat::CASEFOLD).union(Incompat::LARGEDIR);

/// Fields that e2fsprogs change in all copies at once. Other programs and kernels change only the first
/// superblock, so copies are consulted only for a volume that is not sound by the first.
const FIELDS: &[Field] = &[
    field!(s_feature_compat, COMPAT.bits(), 0),
    field!(s_feature_incompat, INCOMPAT.bits(), INCOMPAT_LOST.bits()),
    field!(s_feature_ro_compat, RO_COMPAT.bits(), 0),
    field!(s_rev_level),
    field!(s_first_ino),
    field!(s_inode_size),
    field!(s_desc_size),
    // Stock e2fsck leaves the field in the copies when it removes the feature.
    field!(s_reserved_gdt_blocks, u32::MAX, 0, Compat::RESIZE_INODE),
    field!(s_first_meta_bg),
];

/// Fields that are also taken from copies with right checksums, if the first superblock's checksum is wrong.
const UNSEALED: &[Field] = &[
    field!(s_blocks_count_lo),
    field!(s_blocks_count_hi),
    field!(s_inodes_count),
    field!(s_blocks_per_group),
    field!(s_inodes_per_group),
    field!(s_log_block_size),
    field!(s_journal_inum),
    field!(s_checksum_seed),
];

impl Field {
    /// The bits in which a copy has another value.
    fn other(&self, own: &RawSuperblock, copy: &RawSuperblock) -> u32 {
        let features = own.s_feature_compat.get() & copy.s_feature_compat.get();
        if features & self.only.bits() != self.only.bits() {
            return 0;
        }
        let (own, copy) = ((self.get)(own), (self.get)(copy));
        (own ^ copy) & self.both | copy & !own & self.lost
    }
}

/// Whether the superblocks agree in everything that matters.
pub(super) fn is_alike(own: &RawSuperblock, copy: &RawSuperblock) -> bool {
    FIELDS.iter().all(|f| f.other(own, copy) == 0)
}

/// The superblock with the values that most copies have, and the fields that were changed for that. `sealed`
/// says whether the superblock's own checksum was right, if it has one. The volume decides ties: `problems`
/// counts the problems that a check finds with one reading, `None` if it cannot read the volume so. In all
/// tied fields the first superblock is believed unless its copies lead to fewer problems, as in e2fsck: so
/// two checks are enough for all ties.
///
/// # Errors
/// `Corrupt` where copies disagree with it, and the volume cannot be read either way; those of `problems`.
pub(super) fn agree(
    sb: Superblock,
    copies: &[Copy],
    sealed: bool,
    size: u64,
    problems: &mut dyn FnMut(Superblock) -> Result<Option<u64>>,
) -> Result<(Superblock, Vec<String>)> {
    // A kernel that needs a feature raises only the first superblock's revision; a copy of the older revision
    // knows of no features.
    let of_older = |c: &&Copy| c.sb.raw.s_rev_level.get() < sb.raw.s_rev_level.get();
    let copies: Vec<&Copy> = copies.iter().filter(|c| !of_older(c)).collect();
    let (first, other) = (vote(&sb.raw, &copies, sealed, false), vote(&sb.raw, &copies, sealed, true));
    let (raw, told) = if first.1 == other.1 {
        first
    } else {
        let mut by = |raw: &RawSuperblock| match Superblock::parse(raw.as_bytes(), size) {
            Ok(sb) => problems(sb),
            Err(_) => Ok(None),
        };
        let found = by(&first.0)?;
        // No reading can have fewer problems than none.
        let found_by_copies = if found == Some(0) { None } else { by(&other.0)? };
        match (found, found_by_copies) {
            (None, None) => {
                let tied: Vec<_> = other.1.iter().filter(|t| !first.1.contains(t)).map(|t| t.name).collect();
                let what = format!(
                    "its copies are at odds with {} of the first: nothing was changed",
                    tied.join(", ")
                );
                return Err(Error::corrupt(what));
            }
            (own, copies) if own.unwrap_or(u64::MAX) <= copies.unwrap_or(u64::MAX) => first,
            _ => other,
        }
    };
    if told.is_empty() {
        return Ok((sb, Vec::new()));
    }
    Ok((Superblock::parse(raw.as_bytes(), size)?, told.iter().map(ToString::to_string).collect()))
}

/// A field that was changed, for the report.
#[derive(PartialEq)]
struct Told {
    name: &'static str,
    from: u32,
    to: u32,
}

impl std::fmt::Display for Told {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {:#x} as {:#x}", self.name, self.from, self.to)
    }
}

/// The superblock with the values that most of it and its copies have, sealed, and the fields that this
/// changes. With `ties`, tied fields get the copies' values.
fn vote(own: &RawSuperblock, copies: &[&Copy], sealed: bool, ties: bool) -> (Box<RawSuperblock>, Vec<Told>) {
    let (mut raw, mut told) = (Box::new(own.clone()), Vec::new());
    let more = if sealed { &[][..] } else { UNSEALED };
    for f in FIELDS.iter().chain(more) {
        let others: Vec<u32> = copies.iter().map(|c| f.other(&raw, &c.sb.raw)).collect();
        let votes = |bits: u32| others.iter().filter(|o| **o == bits).count();
        let first = votes(0) + usize::from(sealed);
        let Some(bits) = others.iter().copied().filter(|o| *o != 0).max_by_key(|o| votes(*o)) else {
            continue;
        };
        if votes(bits) > first || ties && votes(bits) == first {
            let (from, to) = ((f.get)(&raw), (f.get)(&raw) ^ bits);
            (f.set)(&mut raw, to);
            told.push(Told { name: f.name, from, to });
        }
    }
    if !told.is_empty() {
        seal(&mut raw);
    }
    (raw, told)
}

impl Repair<'_, '_> {
    /// Sets features that the root directory shows to be in use, whatever the superblock says.
    ///
    /// # Errors
    /// Those of the device.
    pub(super) fn mend_features(&mut self) -> Result<()> {
        self.mend_layout_features()?;
        let n = self.node(ROOT_INO)?;
        let dir = n.kind() == Some(Kind::Dir) && self.sb.raw.s_rev_level.get() > 0;
        let flagged = n.has(InodeFlags::EXTENTS);
        let mut shown = Incompat::empty();
        shown.set(Incompat::EXTENTS, dir && flagged && self.looks_like_extents(&n));
        // The first entry is ".", and without types its name length has 8 more bits.
        let first: u64 = if flagged { n.word(5) } else { n.word(0) }.into();
        if dir && self.sb.holds(BlockAddr(first), 1) {
            let bytes = self.disk.block(first)?;
            let dot = RawDirEntry {
                inode: ROOT_INO.into(),
                rec_len: (DOT_LEN as u16).into(),
                name_len: 1,
                file_type: Kind::Dir as u8,
            };
            let typed = bytes.starts_with(dot.as_bytes()) && bytes[DIRENT_HEAD..].starts_with(b".\0");
            shown.set(Incompat::FILETYPE, typed);
        }
        let missing = shown - self.sb.incompat;
        if missing.is_empty() {
            return Ok(());
        }
        let names = name_features(Compat::empty(), missing, RoCompat::empty());
        self.tell("superblock", names, "the root directory has it", "the feature is on");
        self.sb.incompat |= missing;
        let stored = Incompat::from_bits_retain(self.sb.raw.s_feature_incompat.get()) | missing;
        self.sb.raw.s_feature_incompat = stored.bits().into();
        Ok(())
    }
}
