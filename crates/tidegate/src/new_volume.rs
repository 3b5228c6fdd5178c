//! An empty volume on the whole of a device, of any format.

use crate::detect::Format;
use crate::error::{Error, Result};
use tidegate_block::RequestQueue;
use tidegate_f2fs::mkfs::{MkfsError, MkfsOptions, layout};
use tidegate_f2fs::raw::Features;
use tidegate_rt::Timespec;

/// What a new volume is to be like.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NewVolume {
    /// Its format.
    pub format: Format,
    /// Its name.
    pub label: String,
    /// Its identity; random if none is given.
    pub uuid: Option<[u8; 16]>,
    /// Its features, of [`features`].
    pub features: Vec<String>,
    /// All times of its first directories; now if none is given.
    pub time: Option<Timespec>,
    /// Owner and group of its first directories.
    pub root_owner: (u32, u32),
    /// Leave what is on the device as it is where the volume does not write; else it is discarded first.
    pub no_discard: bool,
}

/// Features that F2FS volumes can be made with, by name.
const F2FS_FEATURES: [(&str, Features); 6] = [
    ("extra_attr", Features::EXTRA_ATTR),
    ("inode_checksum", Features::INODE_CHKSUM),
    ("flexible_inline_xattr", Features::FLEXIBLE_INLINE_XATTR),
    ("inode_crtime", Features::INODE_CRTIME),
    ("sb_checksum", Features::SB_CHKSUM),
    ("lost_found", Features::LOST_FOUND),
];

/// The names of the features that a volume of a format can be made with.
pub fn features(format: Format) -> impl Iterator<Item = &'static str> {
    match format {
        Format::F2fs => F2FS_FEATURES.iter(),
        Format::Ext4 => [].iter(),
    }
    .map(|f| f.0)
}

/// The largest volume of a format, in bytes.
pub fn largest(format: Format) -> u64 {
    match format {
        Format::F2fs | Format::Ext4 => 16 << 40,
    }
}

impl NewVolume {
    /// Makes it on the whole of `queue`'s device, on which everything is lost; its identity. Errors call it `image`.
    ///
    /// # Errors
    /// What makes no volume, and nothing was written; one of the device, and it holds none.
    pub fn make(&self, image: &str, queue: &RequestQueue) -> Result<[u8; 16]> {
        match self.format {
            Format::F2fs => {
                let made = self.f2fs(image).map(|o| tidegate_f2fs::mkfs::mkfs(queue, &o))?;
                made.map(|r| r.uuid).map_err(|e| Error::other(image, e))
            }
            Format::Ext4 => Err(not_yet(image)),
        }
    }

    /// Blocks of 4096 bytes that users may fill on a device of `bytes` bytes.
    ///
    /// # Errors
    /// What makes no volume there.
    pub(crate) fn room(&self, image: &str, bytes: u64) -> Result<u64> {
        match self.format {
            Format::F2fs => {
                let room = self.f2fs(image).map(|o| layout(bytes, &o).map(|l| l.user_block_count))?;
                room.map_err(|e: MkfsError| Error::other(image, e))
            }
            Format::Ext4 => Err(not_yet(image)),
        }
    }

    /// Its features, if it is F2FS.
    pub(crate) fn f2fs_features(&self, image: &str) -> Result<Features> {
        self.features.iter().try_fold(Features::empty(), |all, name| {
            let known = F2FS_FEATURES.iter().find(|f| f.0 == name).map(|f| all | f.1);
            known.ok_or_else(|| Error::other(image, format_args!("{name}: not a feature that can be made")))
        })
    }

    fn f2fs(&self, image: &str) -> Result<MkfsOptions> {
        let usual = MkfsOptions::default();
        Ok(MkfsOptions {
            label: self.label.clone(),
            uuid: self.uuid,
            features: self.f2fs_features(image)?,
            time: self.time.unwrap_or(usual.time),
            root_uid: self.root_owner.0,
            root_gid: self.root_owner.1,
            discard: !self.no_discard,
            ..usual
        })
    }
}

fn not_yet(image: &str) -> Error {
    Error::other(image, "ext4 volumes are not made yet: use mke2fs")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_feature_that_can_be_made_has_a_name() {
        let features = F2FS_FEATURES.iter().fold(Features::empty(), |all, f| all | f.1);
        assert_eq!(features, tidegate_f2fs::mkfs::SUPPORTED_FEATURES);
        let wrong = NewVolume { features: vec!["journal".into()], ..NewVolume::default() };
        let e = wrong.room("a.img", 1 << 30).unwrap_err().to_string();
        assert_eq!(e, "a.img: journal: not a feature that can be made");
    }
}
