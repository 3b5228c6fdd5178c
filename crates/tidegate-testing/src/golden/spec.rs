//! The golden volumes.

use anyhow::{Result, bail};

use crate::fill::Kind;

/// How a volume is filled after it is formatted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Recipe {
    /// Filled by the kernel, then unmounted.
    Kernel { kind: Kind, mount: &'static str },
    /// Filled by the kernel, synced, changed further, then a power cut.
    Cut { kind: Kind },
    /// Filled by `sload.f2fs` with these options.
    Sload { options: &'static [&'static str] },
    /// Filled by the kernel if it can mount the volume, else by `sload.f2fs`, else left empty.
    Foreign,
    /// An ext4 volume, filled by its own maker.
    Ext4,
}

/// A golden volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spec {
    /// The name of the volume and of its files.
    pub name: &'static str,
    /// Its purpose.
    pub about: &'static str,
    /// Size in MiB.
    pub mib: u64,
    pub(super) mkfs: &'static [&'static str],
    pub(super) recipe: Recipe,
}

impl Spec {
    /// Whether the checker must find no fault.
    pub fn is_clean(&self) -> bool {
        !matches!(self.recipe, Recipe::Cut { .. } | Recipe::Ext4)
    }

    /// Whether it is an F2FS volume.
    pub fn is_f2fs(&self) -> bool {
        self.recipe != Recipe::Ext4
    }
}

const FEATURES: &str = "extra_attr,inode_checksum,flexible_inline_xattr,inode_crtime,sb_checksum,lost_found";

const fn kernel(name: &'static str, about: &'static str, mib: u64, kind: Kind) -> Spec {
    Spec { name, about, mib, mkfs: &[], recipe: Recipe::Kernel { kind, mount: "" } }
}

const fn foreign(name: &'static str, about: &'static str, mkfs: &'static [&'static str]) -> Spec {
    Spec { name, about, mib: 64, mkfs, recipe: Recipe::Foreign }
}

/// Every golden volume. The slowest to make come among the first: if a slow one were begun last, it would be
/// made alone.
pub const SPECS: &[Spec] = &[
    kernel("default", "one of everything, default features", 128, Kind::Varied),
    Spec {
        mkfs: &["-O", FEATURES],
        ..kernel("features", "one of everything, every feature that is written", 128, Kind::Varied)
    },
    kernel("bigdir", "one directory of 100,000 names", 128, Kind::Bigdir),
    kernel("sparse", "data at 0, 1 GiB and 3 TiB; files in many fragments", 128, Kind::Sparse),
    kernel("smallfiles", "50,000 small files in 500 directories", 512, Kind::Smallfiles),
    Spec {
        recipe: Recipe::Kernel { kind: Kind::Logs, mount: "noextent_cache" },
        ..kernel("nocompact", "a checkpoint with summaries in normal form", 64, Kind::Logs)
    },
    Spec {
        recipe: Recipe::Cut { kind: Kind::Unsynced },
        ..kernel("dirty", "cut off while changes were not synced", 512, Kind::Varied)
    },
    Spec {
        recipe: Recipe::Cut { kind: Kind::Fsynced },
        ..kernel("fsynced", "cut off after single files were synced", 512, Kind::Varied)
    },
    Spec {
        recipe: Recipe::Sload { options: &["-P"] },
        ..kernel("sload", "filled by the reference tool from a directory", 128, Kind::Simple)
    },
    foreign("foreign-encrypt", "feature encrypt", &["-O", "encrypt"]),
    foreign("foreign-quota", "feature quota", &["-O", "quota"]),
    foreign(
        "foreign-project-quota",
        "features quota and project_quota",
        &["-O", "extra_attr,quota,project_quota"],
    ),
    foreign("foreign-verity", "feature verity", &["-O", "extra_attr,verity"]),
    Spec {
        mib: 128,
        ..foreign("foreign-casefold", "feature casefold, UTF-8", &["-O", "casefold", "-C", "utf8"])
    },
    foreign(
        "foreign-compression",
        "feature compression, nothing compressed",
        &["-O", "extra_attr,compression"],
    ),
    foreign("foreign-readonly", "feature ro", &["-O", "ro"]),
    Spec { recipe: Recipe::Ext4, ..kernel("foreign-ext4", "an ext4 volume", 64, Kind::Simple) },
];

/// The volume of that name.
pub fn spec(name: &str) -> Result<&'static Spec> {
    match SPECS.iter().find(|s| s.name == name) {
        Some(spec) => Ok(spec),
        None => bail!("no golden volume is called {name:?}"),
    }
}
