//! Features by name: the features of a volume, and the check that they go together.

use super::MkfsError;
use crate::format::raw::{Compat, Incompat, RoCompat};

/// The features of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// Compatible features: a program may change the volume without knowing them.
    pub compat: Compat,
    /// Incompatible features: every program must know them.
    pub incompat: Incompat,
    /// Features that only a program which changes the volume must know.
    pub ro_compat: RoCompat,
}

#[derive(Clone, Copy)]
enum Feature {
    Compat(Compat),
    Incompat(Incompat),
    RoCompat(RoCompat),
}

/// Features that can be chosen, by mke2fs's names.
const NAMES: [(&str, Feature); 22] = [
    ("has_journal", Feature::Compat(Compat::HAS_JOURNAL)),
    ("ext_attr", Feature::Compat(Compat::EXT_ATTR)),
    ("resize_inode", Feature::Compat(Compat::RESIZE_INODE)),
    ("dir_index", Feature::Compat(Compat::DIR_INDEX)),
    ("stable_inodes", Feature::Compat(Compat::STABLE_INODES)),
    ("orphan_file", Feature::Compat(Compat::ORPHAN_FILE)),
    ("filetype", Feature::Incompat(Incompat::FILETYPE)),
    ("meta_bg", Feature::Incompat(Incompat::META_BG)),
    ("extent", Feature::Incompat(Incompat::EXTENTS)),
    ("extents", Feature::Incompat(Incompat::EXTENTS)),
    ("64bit", Feature::Incompat(Incompat::BIT64)),
    ("flex_bg", Feature::Incompat(Incompat::FLEX_BG)),
    ("metadata_csum_seed", Feature::Incompat(Incompat::CSUM_SEED)),
    ("large_dir", Feature::Incompat(Incompat::LARGEDIR)),
    ("sparse_super", Feature::RoCompat(RoCompat::SPARSE_SUPER)),
    ("large_file", Feature::RoCompat(RoCompat::LARGE_FILE)),
    ("huge_file", Feature::RoCompat(RoCompat::HUGE_FILE)),
    ("uninit_bg", Feature::RoCompat(RoCompat::GDT_CSUM)),
    ("dir_nlink", Feature::RoCompat(RoCompat::DIR_NLINK)),
    ("extra_isize", Feature::RoCompat(RoCompat::EXTRA_ISIZE)),
    ("metadata_csum", Feature::RoCompat(RoCompat::METADATA_CSUM)),
    ("none", Feature::Compat(Compat::empty())),
];

impl Default for Features {
    /// The features of `mke2fs -t ext4` (mke2fs.conf of e2fsprogs 1.47.0).
    fn default() -> Self {
        Features {
            compat: Compat::HAS_JOURNAL | Compat::EXT_ATTR | Compat::RESIZE_INODE | Compat::DIR_INDEX,
            incompat: Incompat::FILETYPE | Incompat::EXTENTS | Incompat::BIT64 | Incompat::FLEX_BG,
            ro_compat: RoCompat::SPARSE_SUPER
                | RoCompat::LARGE_FILE
                | RoCompat::HUGE_FILE
                | RoCompat::DIR_NLINK
                | RoCompat::EXTRA_ISIZE
                | RoCompat::METADATA_CSUM,
        }
    }
}

impl Features {
    /// The names that [`Features::change`] takes; each may have `^` before it.
    pub fn names() -> impl Iterator<Item = &'static str> {
        NAMES.iter().map(|f| f.0)
    }

    /// Adds the feature called `name`, or removes it if `^` comes before it; `none` removes all, as with
    /// mke2fs's option `-O`.
    ///
    /// # Errors
    /// No feature of this name can be chosen.
    pub fn change(&mut self, name: &str) -> Result<(), MkfsError> {
        let (on, plain) = name.strip_prefix('^').map_or((true, name), |n| (false, n));
        if name == "none" {
            *self = Features {
                compat: Compat::empty(),
                incompat: Incompat::empty(),
                ro_compat: RoCompat::empty(),
            };
            return Ok(());
        }
        let known = NAMES.iter().find(|f| f.0 == plain && plain != "none");
        match known.ok_or_else(|| MkfsError::UnknownFeature(plain.into()))?.1 {
            Feature::Compat(f) => self.compat.set(f, on),
            Feature::Incompat(f) => self.incompat.set(f, on),
            Feature::RoCompat(f) => self.ro_compat.set(f, on),
        }
        // There are two ways to have checksums of descriptors: the later word counts.
        match plain {
            "metadata_csum" if on => self.ro_compat.remove(RoCompat::GDT_CSUM),
            "uninit_bg" if on => self.ro_compat.remove(RoCompat::METADATA_CSUM),
            _ => {}
        }
        Ok(())
    }

    pub(super) fn has_csum(&self) -> bool {
        self.ro_compat.contains(RoCompat::METADATA_CSUM)
    }

    /// Refuses features that do not go together.
    pub(super) fn check(&self) -> Result<(), MkfsError> {
        let refused = |what: &str| Err(MkfsError::Features(what.into()));
        if !self.incompat.contains(Incompat::EXTENTS) {
            return refused("volumes without the feature extent are read, and not made: use mke2fs");
        }
        if !self.incompat.contains(Incompat::FILETYPE) {
            return refused("volumes without the feature filetype are read, and not made: use mke2fs");
        }
        if self.compat.contains(Compat::RESIZE_INODE) {
            if self.incompat.contains(Incompat::META_BG) {
                return refused("meta_bg and resize_inode exclude each other: add ^resize_inode");
            }
            if !self.ro_compat.contains(RoCompat::SPARSE_SUPER) {
                return refused("resize_inode needs sparse_super: add it, or ^resize_inode");
            }
        }
        if self.compat.contains(Compat::ORPHAN_FILE) && !self.compat.contains(Compat::HAS_JOURNAL) {
            return refused("orphan_file needs a journal: add has_journal, or leave it out");
        }
        if self.incompat.contains(Incompat::CSUM_SEED) && !self.has_csum() {
            return refused("metadata_csum_seed needs metadata_csum: add it, or ^metadata_csum_seed");
        }
        Ok(())
    }
}
