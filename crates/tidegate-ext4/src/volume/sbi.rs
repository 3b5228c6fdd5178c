//! The volume in memory.

use crate::alloc::Counts;
use crate::format::gate::Superblock;
use crate::volume::blocks::Blocks;
use std::sync::OnceLock;

/// An ext2, ext3 or ext4 volume. Shared by threads: nothing in it changes but caches.
pub struct Ext4 {
    pub(crate) sb: Superblock,
    pub(crate) blocks: Blocks,
    pub(crate) read_only: String,
    /// What all groups count together, once somebody has asked.
    pub(crate) counts: OnceLock<Counts>,
}
