//! An empty volume on the whole of a device, of any format.

use crate::detect::Format;
use crate::error::Subject;
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
    /// Its UUID; random if none is given.
    pub uuid: Option<[u8; 16]>,
    /// Its features, of [`features`]. For ext4: those beside the default features, and with a `^` in front a
    /// default feature that it is not to have.
    pub features: Vec<String>,
    /// Properties only for ext4.
    pub ext4: Ext4Shape,
    /// F2FS: segments of 2 MiB in a section, which are cleaned together; 1 if none is given.
    pub segments_per_section: Option<u32>,
    /// F2FS: the sections are zones: those of a zoned device, or of `segments_per_section` segments on
    /// another. The volume is written in order, on any device.
    pub zoned: bool,
    /// F2FS: the devices of which the queue's device consists, in order, as the superblock lists them. Empty for one
    /// device.
    pub devices: Vec<DevicePart>,
    /// All times of its first directories; the present time if none is given.
    pub time: Option<Timespec>,
    /// Owner and group of its first directories.
    pub root_owner: (u32, u32),
    /// Leave the content of the device where the volume does not write. Otherwise it is discarded first.
    pub no_discard: bool,
}

pub use tidegate_f2fs::mkfs::DevicePart;

/// The journal of a new ext4 volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewJournal {
    /// There is no journal, and no orphan file, which needs a journal.
    None,
    /// A journal of so many bytes.
    Bytes(u64),
}

/// Properties only for ext4. The defaults are those of `mke2fs -t ext4`.
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
    /// Its journal. If not given, a journal that suits the size of the volume, if the features include one.
    pub journal: Option<NewJournal>,
}

impl Ext4Shape {
    /// The first property that is chosen, by the name of the option of `mkfs`.
    fn chosen(&self) -> Option<&'static str> {
        let Ext4Shape { block_size, inode_size, inode_ratio, inodes, reserved_percent, journal } = self;
        let all = [
            (block_size.is_some(), "block-size"),
            (inode_size.is_some(), "inode-size"),
            (inode_ratio.is_some(), "inode-ratio"),
            (inodes.is_some(), "inodes"),
            (reserved_percent.is_some(), "reserved"),
            (journal.is_some(), "journal"),
        ];
        all.into_iter().find(|p| p.0).map(|p| p.1)
    }

    /// The reason why its journal does not go with `features`, if it does not.
    fn journal_conflict(&self, features: &[String]) -> Option<&'static str> {
        let asks = |name: &str| features.iter().any(|f| f == name);
        match self.journal? {
            NewJournal::None if asks("has_journal") => {
                Some("journal \"none\" and feature \"has_journal\": leave one out")
            }
            NewJournal::None if asks("orphan_file") => {
                Some("feature \"orphan_file\" needs a journal: leave journal \"none\" out")
            }
            NewJournal::Bytes(_) if asks("^has_journal") => {
                Some("a journal's size and feature \"^has_journal\": leave one out")
            }
            _ => None,
        }
    }
}

/// The space of a new volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    /// Bytes of a block.
    pub block_size: u64,
    /// Blocks that files may take.
    pub blocks: u64,
    /// Of them, those that ordinary users may not take later.
    pub kept: u64,
    /// The number of inodes. `None` where inodes take ordinary blocks.
    pub inodes: Option<u64>,
    /// Its index among the block sizes of a [`Geometry`].
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
    /// Refuses properties that the format does not have, that cannot be made, or that do not go together. `devices`
    /// says that the volume is to lie on several devices.
    ///
    /// # Errors
    /// The first such property, by the name of the option of `mkfs`.
    pub(crate) fn check(&self, image: &Subject, devices: bool) -> Result<()> {
        let misplaced = match self.format {
            Format::F2fs => self.ext4.chosen().map(|property| (property, Format::Ext4)),
            Format::Ext4 if self.zoned || self.segments_per_section.is_some() => {
                Some(("zoned", Format::F2fs))
            }
            Format::Ext4 => devices.then_some(("device", Format::F2fs)),
        };
        if let Some((property, format)) = misplaced {
            let what = format!("{property} is for {0}: choose format {0}, or leave it out", format.name());
            return Err(Error::argument(image, what));
        }
        for name in &self.features {
            let plain = match self.format {
                Format::F2fs => name,
                Format::Ext4 => name.trim_start_matches('^'),
            };
            if !features(self.format).any(|known| known == plain) {
                let known: Vec<_> = features(self.format).collect();
                let what = format!("{name}: not a feature that can be made; there are {}", known.join(", "));
                return Err(Error::argument(image, what));
            }
        }
        self.ext4.journal_conflict(&self.features).map_or(Ok(()), |why| Err(Error::argument(image, why)))
    }

    /// Makes the volume on the whole of `queue`'s device, whose content is lost. Returns the UUID. Errors call the
    /// volume `image`.
    ///
    /// # Errors
    /// The fault for which no volume can be made: then nothing was written. Or an error of the device: then
    /// it holds no volume.
    pub fn make(&self, image: impl Into<Subject>, queue: &RequestQueue) -> Result<[u8; 16]> {
        let image = &image.into();
        self.check(image, !self.devices.is_empty())?;
        match self.format {
            Format::F2fs => {
                tidegate_f2fs::mkfs::mkfs(queue, &self.f2fs()).map(|r| r.uuid).map_err(|e| match e {
                    MkfsError::Io { source, .. } => Error::Os(image.clone(), source.into()),
                    e => Error::argument(image, e),
                })
            }
            Format::Ext4 => {
                let made = self.mke2fs(image).map(|o| mke2fs::mkfs(queue, &o))?;
                made.map(|r| r.uuid).map_err(|e| match e {
                    mke2fs::MkfsError::Io { source, .. } => Error::Os(image.clone(), source.into()),
                    e => Error::argument(image, e),
                })
            }
        }
    }

    /// The space of a volume on a device of `bytes` bytes.
    ///
    /// # Errors
    /// The fault for which no volume can be made there.
    pub(crate) fn room(&self, image: &Subject, bytes: u64) -> Result<Room> {
        match self.format {
            Format::F2fs => {
                let room = layout(bytes, &self.f2fs()).map(|l| l.user_block_count);
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

    /// The rules for how many blocks its content takes.
    ///
    /// # Errors
    /// The fault for which no volume of any size can be made.
    pub(crate) fn geometry(&self, image: &Subject) -> Result<Geometry> {
        match self.format {
            Format::F2fs => Ok(Geometry::F2fs(f2fs::Geometry::new(self.f2fs_features()))),
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

    fn mke2fs(&self, image: &Subject) -> Result<mke2fs::MkfsOptions> {
        let (usual, own) = (mke2fs::MkfsOptions::default(), &self.ext4);
        let mut features = usual.features;
        let without: &[&str] = match own.journal {
            Some(NewJournal::None) => &["^has_journal", "^orphan_file"],
            _ => &[],
        };
        for name in without.iter().copied().chain(self.features.iter().map(String::as_str)) {
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
            journal: match own.journal {
                Some(NewJournal::Bytes(n)) => mke2fs::JournalSize::Bytes(n),
                _ => usual.journal,
            },
            time: self.time.unwrap_or(usual.time),
            root_uid: self.root_owner.0,
            root_gid: self.root_owner.1,
            discard: !self.no_discard,
            // A file reads as zeros where nothing was written. On a device, zeroing takes long, and Linux does it
            // later.
            lazy_itable_init: !self.no_discard,
            ..usual
        })
    }

    /// The features of an F2FS volume.
    fn f2fs_features(&self) -> Features {
        let chosen = F2FS_FEATURES.iter().filter(|f| self.features.iter().any(|name| name == f.0));
        chosen.fold(Features::empty(), |all, f| all | f.1)
    }

    fn f2fs(&self) -> MkfsOptions {
        let usual = MkfsOptions::default();
        MkfsOptions {
            label: self.label.clone(),
            uuid: self.uuid,
            features: self.f2fs_features() | if self.zoned { Features::BLKZONED } else { Features::empty() },
            time: self.time.unwrap_or(usual.time),
            root_uid: self.root_owner.0,
            root_gid: self.root_owner.1,
            discard: !self.no_discard,
            devices: self.devices.clone(),
            segs_per_sec: self.segments_per_section.unwrap_or(usual.segs_per_sec),
            ..usual
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_feature_that_can_be_made_has_a_name() {
        let features = F2FS_FEATURES.iter().fold(Features::empty(), |all, f| all | f.1);
        assert_eq!(features, tidegate_f2fs::mkfs::SUPPORTED_FEATURES);
    }

    #[test]
    fn properties_of_another_format_are_refused_and_not_passed_over() {
        let refusal = |volume: &NewVolume, devices| {
            volume.check(&"a.img".into(), devices).map_err(|e| e.to_string()).expect_err("refused")
        };
        let ext4 = |ext4| NewVolume { ext4, ..NewVolume::default() };
        let shape = Ext4Shape::default;
        for (property, shape) in [
            ("block-size", Ext4Shape { block_size: Some(1024), ..shape() }),
            ("inode-size", Ext4Shape { inode_size: Some(256), ..shape() }),
            ("inode-ratio", Ext4Shape { inode_ratio: Some(4096), ..shape() }),
            ("inodes", Ext4Shape { inodes: Some(64), ..shape() }),
            ("reserved", Ext4Shape { reserved_percent: Some(1.0), ..shape() }),
            ("journal", Ext4Shape { journal: Some(NewJournal::None), ..shape() }),
        ] {
            let said = format!("a.img: {property} is for ext4: choose format ext4, or leave it out");
            assert_eq!(refusal(&ext4(shape), false), said);
        }
        let on = |zoned| NewVolume { format: Format::Ext4, zoned, ..NewVolume::default() };
        for (property, volume, devices) in [("zoned", on(true), false), ("device", on(false), true)] {
            let said = format!("a.img: {property} is for f2fs: choose format f2fs, or leave it out");
            assert_eq!(refusal(&volume, devices), said);
        }
        let odd = NewVolume { features: vec!["64bit".into()], ..NewVolume::default() };
        assert!(
            refusal(&odd, false).starts_with("a.img: 64bit: not a feature that can be made; there are extra")
        );
    }
}
