//! Features: those that can be read, those that keep a volume from being changed, and their names.

use crate::format::raw::{Compat, Incompat, RoCompat};
use tidegate_vfs::{Error, ErrorKind, Result};

/// Incompatible features that Tidegate reads, those of [`READ_ONLY`] included.
pub const SUPPORTED_INCOMPAT: Incompat = Incompat::FILETYPE
    .union(Incompat::RECOVER)
    .union(Incompat::META_BG)
    .union(Incompat::EXTENTS)
    .union(Incompat::BIT64)
    .union(Incompat::FLEX_BG)
    .union(Incompat::CSUM_SEED)
    .union(Incompat::LARGEDIR)
    .union(READ_ONLY.0);

/// Features whose volumes can be read but not changed. A file that cannot be read is refused by itself.
pub const READ_ONLY: (Incompat, RoCompat) = (
    Incompat::MMP
        .union(Incompat::EA_INODE)
        .union(Incompat::INLINE_DATA)
        .union(Incompat::ENCRYPT)
        .union(Incompat::CASEFOLD),
    RoCompat::QUOTA
        .union(RoCompat::BIGALLOC)
        .union(RoCompat::PROJECT)
        .union(RoCompat::SHARED_BLOCKS)
        .union(RoCompat::VERITY)
        .union(RoCompat::READONLY),
);

/// Features that matter only to a change of a volume, and that Tidegate's changes take into account.
const SUPPORTED_RO_COMPAT: RoCompat = RoCompat::SPARSE_SUPER
    .union(RoCompat::LARGE_FILE)
    .union(RoCompat::HUGE_FILE)
    .union(RoCompat::GDT_CSUM)
    .union(RoCompat::DIR_NLINK)
    .union(RoCompat::EXTRA_ISIZE)
    .union(RoCompat::METADATA_CSUM)
    .union(RoCompat::ORPHAN_PRESENT);

/// The names that mke2fs and dumpe2fs use for features whose constants are named differently.
const NAMES: [(&str, &str); 14] = [
    ("EXTENTS", "extent"),
    ("BIT64", "64bit"),
    ("RECOVER", "needs_recovery"),
    ("CSUM_SEED", "metadata_csum_seed"),
    ("LARGEDIR", "large_dir"),
    ("GDT_CSUM", "uninit_bg"),
    ("READONLY", "read-only"),
    ("HAS_SNAPSHOT", "snapshot"),
    ("JOURNAL_DEV", "journal_dev"),
    ("BTREE_DIR", "btree_dir"),
    ("LAZY_BG", "lazy_bg"),
    ("EXCLUDE_INODE", "exclude_inode"),
    ("EXCLUDE_BITMAP", "exclude_bitmap"),
    ("IMAGIC_INODES", "imagic_inodes"),
];

fn own_name(constant: &str) -> String {
    NAMES.iter().find(|n| n.0 == constant).map_or_else(|| constant.to_lowercase(), |n| n.1.into())
}

/// The names of features with the words that hold them: `"extent" (incompat 0x40)`. Bits without a name
/// appear as numbers.
pub fn name_features(compat: Compat, incompat: Incompat, ro_compat: RoCompat) -> String {
    let mut all = Vec::new();
    let mut word = |what: &str, named: Vec<(&'static str, u32)>, rest: u32| {
        let name = |(n, bit): &(&str, u32)| format!("\"{}\" ({what} {bit:#x})", own_name(n));
        all.extend(named.iter().map(name));
        if rest != 0 {
            all.push(format!("without a name ({what} {rest:#x})"));
        }
    };
    let bits = |names: bitflags::iter::IterNames<Compat>| names.map(|(n, f)| (n, f.bits())).collect();
    word("compat", bits(compat.iter_names()), (compat - Compat::all()).bits());
    let bits = |names: bitflags::iter::IterNames<Incompat>| names.map(|(n, f)| (n, f.bits())).collect();
    word("incompat", bits(incompat.iter_names()), (incompat - Incompat::all()).bits());
    let bits = |names: bitflags::iter::IterNames<RoCompat>| names.map(|(n, f)| (n, f.bits())).collect();
    word("ro_compat", bits(ro_compat.iter_names()), (ro_compat - RoCompat::all()).bits());
    all.join(", ")
}

/// The plain names of features, in the order of dumpe2fs.
pub fn feature_names(compat: Compat, incompat: Incompat, ro_compat: RoCompat) -> Vec<String> {
    let compat = compat.iter_names().map(|f| own_name(f.0));
    compat
        .chain(incompat.iter_names().map(|f| own_name(f.0)))
        .chain(ro_compat.iter_names().map(|f| own_name(f.0)))
        .collect()
}

/// Refuses features without which a volume cannot be understood.
pub(super) fn check_incompat(f: Incompat) -> Result<()> {
    let unsupported = |what: String| Err(Error::new(ErrorKind::Unsupported, what));
    if f.contains(Incompat::JOURNAL_DEV) {
        return unsupported("a journal of an ext4 volume, not a volume".into());
    }
    let unknown = f - SUPPORTED_INCOMPAT;
    if unknown.is_empty() {
        return Ok(());
    }
    unsupported(format!("ext4 feature {}", name_features(Compat::empty(), unknown, RoCompat::empty())))
}

/// The features that keep a volume from being changed, as text; empty where none does.
pub(super) fn read_only_features(incompat: Incompat, ro_compat: RoCompat) -> String {
    let ro = ro_compat - SUPPORTED_RO_COMPAT;
    name_features(Compat::empty(), incompat & READ_ONLY.0, ro)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_are_told_by_name_and_bit() {
        let e = |bits| check_incompat(Incompat::from_bits_retain(bits)).unwrap_err().to_string();
        assert_eq!(
            e(0x8000_1042),
            "ext4 feature \"dirdata\" (incompat 0x1000), without a name (incompat 0x80000000): not supported"
        );
        assert!(e(8).contains("a journal"));
        check_incompat(SUPPORTED_INCOMPAT).unwrap();
        let ro =
            read_only_features(Incompat::EXTENTS | Incompat::CASEFOLD, RoCompat::from_bits_retain(0x8_0203));
        assert_eq!(
            ro,
            "\"casefold\" (incompat 0x20000), \"bigalloc\" (ro_compat 0x200), without a name (ro_compat 0x80000)"
        );
    }
}
