//! Errors of mkfs.

use crate::format::units::BlockAddr;
use tidegate_block::Errno;

/// The reason why mkfs made no volume. Nothing was written unless it is [`MkfsError::Io`].
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
    /// The volume needs block numbers of more than 32 bits, but has no feature for them.
    #[error(
        "volume of {blocks} blocks is too large: without the feature 64bit at most 2^32 blocks; choose larger blocks"
    )]
    TooLarge {
        /// Blocks that the device has.
        blocks: u64,
    },
    /// The block size is not 1024, 2048 or 4096 bytes.
    #[error("blocks of {0} bytes are not made: choose 1024, 2048 or 4096")]
    BadBlockSize(u32),
    /// The format has no such inode size.
    #[error("inodes of {0} bytes are not made: choose a power of two from 128 to the size of a block")]
    BadInodeSize(u32),
    /// The number of bytes for each inode makes no sense.
    #[error("an inode for each {0} bytes makes no sense: choose 1024 to 67108864")]
    BadInodeRatio(u64),
    /// There are more inodes than the volume has room for, or none.
    #[error("{0} inodes do not fit the volume: choose fewer, or leave the number out")]
    BadInodes(u64),
    /// The share kept for the superuser is impossible.
    #[error("{0} % of the volume cannot be reserved: choose 0 to 50")]
    BadReserved(f64),
    /// The label does not fit.
    #[error("label of {0} bytes is too long: at most 16")]
    LabelTooLong(usize),
    /// The journal is shorter than Linux takes, or longer than half of what is free.
    #[error("a journal of {blocks} blocks does not fit: choose {least} to {most} blocks")]
    BadJournal {
        /// Blocks asked for.
        blocks: u64,
        /// Fewest blocks of a journal.
        least: u64,
        /// Most blocks of a journal on this volume.
        most: u64,
    },
    /// mkfs does not make this feature.
    #[error("{0}: not a feature that ext4 volumes can be made with")]
    UnknownFeature(String),
    /// Features exclude or need each other.
    #[error("{0}")]
    Features(String),
    /// The device was opened for reading only.
    #[error("{0} is open for reading only: open it for writing")]
    ReadOnly(String),
    /// The new volume does not pass the gate that every volume must pass when it is opened.
    #[error("no volume can be made with these options: {0}")]
    Refused(tidegate_vfs::Error),
    /// The device failed, and holds no valid volume now.
    #[error("{what} at block {block} failed")]
    Io {
        /// The step that was under way.
        what: &'static str,
        /// The block that failed.
        block: BlockAddr,
        /// The device's errno.
        source: Errno,
    },
}
