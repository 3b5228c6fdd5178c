//! Errors of making a volume.

use crate::format::units::BlockAddr;
use tidegate_block::Errno;

/// Why no volume was made. Nothing was written unless it is [`MkfsError::Io`].
#[derive(Debug, thiserror::Error)]
pub enum MkfsError {
    /// The device has no room for the tables of one group, the first directories and the journal.
    #[error(
        "volume of {bytes} bytes is too small for ext4 with these options: choose a larger one, or fewer inodes"
    )]
    TooSmall {
        /// Size of the device in bytes.
        bytes: u64,
    },
    /// Block numbers of more than 32 bits, and no feature for them.
    #[error(
        "volume of {blocks} blocks is too large: without the feature 64bit at most 2^32 blocks; choose larger blocks"
    )]
    TooLarge {
        /// Blocks that the device has.
        blocks: u64,
    },
    /// Blocks of another size than 1024, 2048 or 4096 bytes.
    #[error("blocks of {0} bytes are not made: choose 1024, 2048 or 4096")]
    BadBlockSize(u32),
    /// Inodes of another size than the format has.
    #[error("inodes of {0} bytes are not made: choose a power of two from 128 to the size of a block")]
    BadInodeSize(u32),
    /// Bytes for each inode that make no sense.
    #[error("an inode for each {0} bytes makes no sense: choose 1024 to 67108864")]
    BadInodeRatio(u64),
    /// More inodes than the volume has room for, or none.
    #[error("{0} inodes do not fit the volume: choose fewer, or leave the number out")]
    BadInodes(u64),
    /// The share kept for the superuser is not one.
    #[error("{0} % of the volume cannot be reserved: choose 0 to 50")]
    BadReserved(f64),
    /// The label does not fit.
    #[error("label of {0} bytes is too long: at most 16")]
    LabelTooLong(usize),
    /// The journal is shorter than Linux takes, or longer than half of what is free.
    #[error("a journal of {blocks} blocks does not fit: choose {least} to {most} blocks")]
    BadJournal {
        /// Blocks that were asked for.
        blocks: u64,
        /// Blocks that it has at least.
        least: u64,
        /// Blocks that it has at most on this volume.
        most: u64,
    },
    /// A feature that mkfs does not make.
    #[error("{0}: not a feature that ext4 volumes can be made with")]
    UnknownFeature(String),
    /// Features that exclude or need each other.
    #[error("{0}")]
    Features(String),
    /// The device was opened for reading only.
    #[error("{0} is open for reading only: open it for writing")]
    ReadOnly(String),
    /// The new volume does not pass the gate that each volume passes when it is opened.
    #[error("no volume can be made with these options: {0}")]
    Refused(tidegate_vfs::Error),
    /// The device failed. It holds no valid volume now.
    #[error("{what} at block {block} failed")]
    Io {
        /// The step that was under way.
        what: &'static str,
        /// Where, in blocks.
        block: BlockAddr,
        /// The device's errno.
        source: Errno,
    },
}
