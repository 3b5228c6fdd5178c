//! The caller's options, and the check that they are possible.

use super::{Features, MkfsError};
use crate::format::raw::INODE_BASE;
use tidegate_rt::{Timespec, clock};

/// Bytes of the label.
const MAX_LABEL: usize = 16;
/// Fewest and most bytes for each inode.
const INODE_RATIO: std::ops::RangeInclusive<u64> = 1024..=64 << 20;

/// The length of the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JournalSize {
    /// The default for the volume's size; none on a volume of less than 2048 blocks.
    Fit,
    /// A number of bytes.
    Bytes(u64),
}

/// The options of a new volume. Equal options with a `uuid` make equal bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct MkfsOptions {
    /// Name of the volume, at most 16 bytes.
    pub label: String,
    /// Identity of the volume; random when `None`.
    pub uuid: Option<[u8; 16]>,
    /// The seed of the hashes of names; derived from the UUID when `None`.
    pub hash_seed: Option<[u8; 16]>,
    /// Bytes of a block: 1024, 2048 or 4096. `None` takes 1024 below 512 MiB, 4096 above.
    pub block_size: Option<u32>,
    /// Bytes of an inode.
    pub inode_size: u32,
    /// Bytes of the volume for each inode; `None` takes the default for the size.
    pub inode_ratio: Option<u64>,
    /// Inodes, rounded up to whole tables; `None` takes the ratio.
    pub inodes: Option<u64>,
    /// Share of the blocks that only the superuser may take, in percent.
    pub reserved_percent: f64,
    /// Features.
    pub features: Features,
    /// The length of the journal, if there is one.
    pub journal: JournalSize,
    /// All times of the volume, in whole seconds.
    pub time: Timespec,
    /// Owner of the root directory.
    pub root_uid: u32,
    /// Group of the root directory.
    pub root_gid: u32,
    /// Discard the whole device first.
    pub discard: bool,
    /// Leave unused inode tables unwritten, for Linux to zero after it has mounted the volume. Without
    /// checksums of descriptors the format cannot express that, and the tables are zeroed.
    pub lazy_itable_init: bool,
}

impl Default for MkfsOptions {
    /// As `mke2fs -t ext4`: a random UUID, discard, the time now.
    fn default() -> Self {
        MkfsOptions {
            label: String::new(),
            uuid: None,
            hash_seed: None,
            block_size: None,
            inode_size: 256,
            inode_ratio: None,
            inodes: None,
            reserved_percent: 5.0,
            features: Features::default(),
            journal: JournalSize::Fit,
            time: clock::realtime(),
            root_uid: 0,
            root_gid: 0,
            discard: true,
            lazy_itable_init: false,
        }
    }
}

impl MkfsOptions {
    /// Refuses what the format cannot hold.
    pub(super) fn check(&self) -> Result<(), MkfsError> {
        self.features.check()?;
        if let Some(n) = self.block_size
            && ![1024, 2048, 4096].contains(&n)
        {
            return Err(MkfsError::BadBlockSize(n));
        }
        let most = self.block_size.unwrap_or(4096);
        if !self.inode_size.is_power_of_two() || !(INODE_BASE as u32..=most).contains(&self.inode_size) {
            return Err(MkfsError::BadInodeSize(self.inode_size));
        }
        if let Some(n) = self.inode_ratio
            && !INODE_RATIO.contains(&n)
        {
            return Err(MkfsError::BadInodeRatio(n));
        }
        if let Some(n) = self.inodes
            && u32::try_from(n).map_or(true, |n| n == 0)
        {
            return Err(MkfsError::BadInodes(n));
        }
        if !(0.0..=50.0).contains(&self.reserved_percent) {
            return Err(MkfsError::BadReserved(self.reserved_percent));
        }
        if self.label.len() > MAX_LABEL || self.label.contains('\0') {
            return Err(MkfsError::LabelTooLong(self.label.len()));
        }
        Ok(())
    }
}
