//! An empty volume on the whole of a device, of any format.

use crate::detect::Format;
use crate::error::{Error, Result};
use crate::estimate::{self, Geometry, ext4, f2fs};
use tidegate_block::RequestQueue;
use tidegate_ext4::mkfs as mke2fs;
use tidegate_f2fs::mkfs::{MkfsError, MkfsOptions, layout};
use tidegate_f2fs::raw::Features;
use tidegate_rt::Timespec;

/// The properties of a new volume.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NewVolume {
    /// Its format.
    pub format: Format,
    /// Its name.
    pub label: String,
    /// Its identity; random if none is given.
    pub uuid: Option<[u8; 16]>,
    /// Its features, of [`features`]; with ext4 those that it has beside the usual ones, and with `^` before
    /// it one of these that it has not.
    pub features: Vec<String>,
    /// Properties for ext4 alone.
    pub ext4: Ext4Shape,
    /// F2FS: segments of 2 MiB in a section, which are cleaned together; 1 if not given.
    pub segments_per_section: Option<u32>,
    /// F2FS: on zones, which are its sections: those of a zoned device, or of `segments_per_section` on
    /// another. It is written in order, on any device.
    pub zoned: bool,
    /// F2FS: the devices that the queue's is made of, in order, as the superblock lists them; none for one device.
    pub devices: Vec<DevicePart>,
    /// All times of its first directories; now if none is given.
    pub time: Option<Timespec>,
    /// Owner and group of its first directories.
    pub root_owner: (u32, u32),
    /// Leave what is on the device as it is where the volume does not write; else it is discarded first.
    pub no_discard: bool,
}

pub use tidegate_f2fs::mkfs::DevicePart;

/// How long the journal of an ext4 volume is.
pub use tidegate_ext4::mkfs::JournalSize;

/// Properties for ext4 alone; if none is chosen, those of `mke2fs -t ext4`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ext4Shape {
    /// Bytes of a block.
    pub block_size: Option<u32>,
    /// Bytes of an inode.
    pub inode_size: Option<u32>,
    /// Bytes of the volume for each inode.
    pub inode_ratio: Option<u64>,
    /// Inodes, rounded up.
    pub inodes: Option<u64>,
    /// Share of the blocks that only the superuser may take, in percent.
    pub reserved_percent: Option<f64>,
    /// How long the journal is, where the volume has one.
    pub journal: Option<JournalSize>,
}

/// The space of a new volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    /// Bytes of a block.
    pub block_size: u64,
    /// Blocks that files may take.
    pub blocks: u64,
    /// Of them, those that are not for everybody once it is made.
    pub kept: u64,
    /// Inodes; `None` where they are taken from the blocks.
    pub inodes: Option<u64>,
    /// Which of the [`Geometry`]'s kinds it is.
    pub kind: usize,
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
        Format::F2fs => F2FS_FEATURES.map(|f| f.0).to_vec(),
        Format::Ext4 => mke2fs::Features::names().collect(),
    }
    .into_iter()
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
    /// The fault for which no volume can be made, and nothing was written; or an error of the device, and it
    /// holds none.
    pub fn make(&self, image: &str, queue: &RequestQueue) -> Result<[u8; 16]> {
        match self.format {
            Format::F2fs => {
                let made = self.f2fs(image).map(|o| tidegate_f2fs::mkfs::mkfs(queue, &o))?;
                made.map(|r| r.uuid).map_err(|e| match e {
                    MkfsError::Io { source, .. } => Error::Os(image.into(), source.into()),
                    e => Error::argument(image, e),
                })
            }
            Format::Ext4 => {
                let made = self.mke2fs(image).map(|o| mke2fs::mkfs(queue, &o))?;
                made.map(|r| r.uuid).map_err(|e| match e {
                    mke2fs::MkfsError::Io { source, .. } => Error::Os(image.into(), source.into()),
                    e => Error::argument(image, e),
                })
            }
        }
    }

    /// The space of a volume on a device of `bytes` bytes.
    ///
    /// # Errors
    /// The fault for which no volume can be made there.
    pub(crate) fn room(&self, image: &str, bytes: u64) -> Result<Room> {
        match self.format {
            Format::F2fs => {
                let room = self.f2fs(image).map(|o| layout(bytes, &o).map(|l| l.user_block_count))?;
                let blocks = room.map_err(|e: MkfsError| Error::argument(image, e))?;
                Ok(Room { block_size: 4096, blocks, kept: 0, inodes: None, kind: 0 })
            }
            Format::Ext4 => {
                let room = self.mke2fs(image).map(|o| mke2fs::room(bytes, &o))?;
                let room = room.map_err(|e| Error::argument(image, e))?;
                let kind = usize::from(self.ext4.block_size.is_none() && room.block_size == 4096);
                Ok(Room {
                    block_size: room.block_size.into(),
                    blocks: room.free_blocks,
                    kept: room.kept_blocks,
                    inodes: Some(room.free_inodes.into()),
                    kind,
                })
            }
        }
    }

    /// The rules for how much its content takes.
    ///
    /// # Errors
    /// The fault for which no volume of any size can be made.
    pub(crate) fn geometry(&self, image: &str) -> Result<Geometry> {
        match self.format {
            Format::F2fs => self.f2fs_features(image).map(|f| Geometry::F2fs(f2fs::Geometry::new(f))),
            Format::Ext4 => {
                let inode_size = self.mke2fs(image)?.inode_size as usize;
                let sizes: [u32; estimate::KINDS] = match self.ext4.block_size {
                    Some(n) => [n, n],
                    None => [1024, 4096],
                };
                let of = |n: u32| ext4::Geometry { block_size: n.into(), inode_size };
                Ok(Geometry::Ext4(sizes.map(of)))
            }
        }
    }

    fn mke2fs(&self, image: &str) -> Result<mke2fs::MkfsOptions> {
        let (usual, own) = (mke2fs::MkfsOptions::default(), &self.ext4);
        let mut features = usual.features;
        for name in &self.features {
            features.change(name).map_err(|e| Error::argument(image, e))?;
        }
        Ok(mke2fs::MkfsOptions {
            label: self.label.clone(),
            uuid: self.uuid,
            block_size: own.block_size,
            inode_size: own.inode_size.unwrap_or(usual.inode_size),
            inode_ratio: own.inode_ratio,
            inodes: own.inodes,
            reserved_percent: own.reserved_percent.unwrap_or(usual.reserved_percent),
            features,
            journal: own.journal.unwrap_or(usual.journal),
            time: self.time.unwrap_or(usual.time),
            root_uid: self.root_owner.0,
            root_gid: self.root_owner.1,
            discard: !self.no_discard,
            // A file reads as zeros where nothing was written; on a device that takes long, and Linux does it later.
            lazy_itable_init: !self.no_discard,
            ..usual
        })
    }

    /// Its features, if it is F2FS.
    fn f2fs_features(&self, image: &str) -> Result<Features> {
        self.features.iter().try_fold(Features::empty(), |all, name| {
            let known = F2FS_FEATURES.iter().find(|f| f.0 == name).map(|f| all | f.1);
            known.ok_or_else(|| Error::argument(image, format!("{name}: not a feature that can be made")))
        })
    }

    fn f2fs(&self, image: &str) -> Result<MkfsOptions> {
        let usual = MkfsOptions::default();
        Ok(MkfsOptions {
            label: self.label.clone(),
            uuid: self.uuid,
            features: self.f2fs_features(image)?
                | if self.zoned { Features::BLKZONED } else { Features::empty() },
            time: self.time.unwrap_or(usual.time),
            root_uid: self.root_owner.0,
            root_gid: self.root_owner.1,
            discard: !self.no_discard,
            devices: self.devices.clone(),
            segs_per_sec: self.segments_per_section.unwrap_or(usual.segs_per_sec),
            ..usual
        })
    }
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
