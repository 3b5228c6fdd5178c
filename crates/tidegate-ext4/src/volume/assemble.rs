//! A volume's parts before anything but the superblock was read.

use crate::alloc::{
    DATA_PER_MAP, DATA_PER_MAP_NEW, Damaged, Free, Freed, GroupLocks, LongestFree, Preallocations, Space,
};
use crate::format::gate::{Superblock, rule};
use crate::inode::orphan::Orphans;
use crate::map::Behind;
use crate::volume::blocks::Blocks;
use crate::volume::options::{Ext4Options, Switches};
use crate::volume::ordered::Ordered;
use crate::volume::overlay::Overlay;
use crate::volume::sbi::Ext4;
use crate::xattr;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, OnceLock};
use tidegate_block::{RequestQueue, SharedPlug};
use tidegate_rt::{Mutex, thread};
use tidegate_vfs::{Bdi, Result};

impl Ext4 {
    /// The volume in memory, before anything but the superblock was read.
    pub(super) fn bare(
        queue: &Arc<RequestQueue>,
        bdi: &Arc<Bdi>,
        sb: Superblock,
        options: &Ext4Options,
    ) -> Ext4 {
        let blocks = Blocks::new(queue.clone(), bdi.clone(), sb.block_size);
        let plug = Arc::new(SharedPlug::new(queue.clone()));
        let longest_free = LongestFree::new(sb.groups);
        Ext4 {
            sb,
            blocks,
            read_only: None,
            counts: OnceLock::new(),
            tables: OnceLock::new(),
            journal_blocks: Vec::new(),
            space: None,
            freed: Freed::default(),
            preallocations: Preallocations::default(),
            longest_free,
            ordered: Ordered::new(plug.clone()),
            plug,
            conversions: None,
            behind: Behind::new(),
            damaged: Damaged::new(),
            orphans: Orphans::new(),
            shared_xattrs: Mutex::new(&xattr::SHARED, ()),
            // A volume that is being filled has the same bytes whatever machine fills it.
            groups_for_directories: if options.filling { 1 } else { thread::parallelism() },
            group_locks: GroupLocks::default(),
            announced: Default::default(),
            next_generation: AtomicU32::new(0),
            filling: options.filling,
            planted: options.planted,
            fixed_time: options.fixed_time,
            failure: OnceLock::new(),
            stats: Default::default(),
            switches: Switches::new(options),
        }
    }

    /// The volume with `overlay` applied, for changes that stay in memory: no other program sees it, and
    /// nothing is written.
    ///
    /// # Errors
    /// `Corrupt` where its tables overlap; those of reading it.
    pub(crate) fn in_memory(
        queue: Arc<RequestQueue>,
        bdi: Arc<Bdi>,
        sb: Superblock,
        overlay: Overlay,
    ) -> Result<Ext4> {
        // No blocks are kept back.
        let options = Ext4Options { filling: true, ..Ext4Options::default() };
        let mut fs = Ext4::bare(&queue, &bdi, sb, &options);
        fs.blocks.overlay = Some(overlay);
        fs.journal_blocks = fs.find_journal_blocks();
        rule(fs.tables().shared().is_none(), "tables of its groups lie in each other")?;
        fs.space = Some(Space::new(fs.free()?));
        fs.blocks.allow_changes(None);
        Ok(fs)
    }

    /// Counts of free blocks and inodes.
    pub(super) fn free(&self) -> Result<Free> {
        let c = self.counts()?;
        let data_per_map = if self.filling { DATA_PER_MAP_NEW } else { DATA_PER_MAP };
        let (blocks, inodes, directories) = (c.free_blocks, c.free_inodes, c.directories);
        Ok(Free { blocks, inodes, directories, data_per_map, ..Free::default() })
    }
}
