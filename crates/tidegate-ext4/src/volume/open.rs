//! Opening a volume: the superblock, and the reasons why the volume is not changed.

use crate::alloc::Space;
use crate::fast_commit;
use crate::format::gate::{Journal, Superblock, rule};
use crate::format::raw::*;
use crate::volume::blocks::Blocks;
use crate::volume::conversion::Conversions;
use crate::volume::options::{DataMode, Ext4Options};
use crate::volume::overlay::Overlay;
use crate::volume::sbi::Ext4;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use tidegate_block::{BioFlags, PAGE_SIZE, RequestQueue, Sector};
use tidegate_jbd2::{JournalOptions, recover};
use tidegate_rt::clock;
use tidegate_vfs::{At, Bdi, Error, ErrorKind, FileType, Ino, ReadOnly, Result};

/// Most bytes of clean metadata in memory, if the limits allow that.
const METADATA: usize = 64 << 20;
/// Byte offset of the magic number on the volume.
const MAGIC_AT: usize = SUPER_OFFSET + 0x38;

/// Whether the device holds an ext2, ext3 or ext4 superblock.
pub fn is_ext4(queue: &RequestQueue) -> bool {
    let first = queue.read_wait(Sector(0), 1, BioFlags::META);
    first.is_ok_and(|b| le16(&b, MAGIC_AT) == EXT4_MAGIC)
}

/// Reads the superblock.
///
/// # Errors
/// `Corrupt` with the fault, `Unsupported` with the feature, those of the device.
pub fn load_superblock(queue: &RequestQueue) -> Result<Superblock> {
    let size = queue.device().size();
    if size < PAGE_SIZE as u64 {
        return Err(Error::new(ErrorKind::InvalidArgument, format!("only {size} bytes long")));
    }
    let first = queue
        .read_wait(Sector(0), 1, BioFlags::META)
        .map_err(|e| Error::device(e, "reading the superblock"))?;
    Superblock::parse(&first[SUPER_OFFSET..SUPER_OFFSET + SUPER_SIZE], size)
}

impl Ext4 {
    /// Opens the volume behind `queue`, its pages accounted to `bdi`. Nothing on it is changed.
    ///
    /// # Errors
    /// `Corrupt` with the fault, `Unsupported` with the feature, those of the device.
    pub fn open(queue: Arc<RequestQueue>, bdi: Arc<Bdi>, options: Ext4Options) -> Result<Arc<Ext4>> {
        let sb = load_superblock(&queue)?;
        let options = options.with_defaults(&sb);
        let wants_recovery = sb.incompat.contains(Incompat::RECOVER) && !options.norecovery;
        if wants_recovery && sb.journal == Journal::Device {
            return Err(not_recovered());
        }
        let mut fs = Ext4::bare(&queue, &bdi, sb, &options);
        let first = fs.fixed_time.map_or_else(clock::entropy, |_| le32(&fs.sb.raw.s_uuid, 0).into());
        fs.next_generation = AtomicU32::new(first as u32);
        if wants_recovery && let Some(overlay) = fs.recover_in_memory()? {
            // The journal may have a newer superblock, too; blocks that were read so far are not kept.
            if let Some(bytes) = overlay.superblock(&fs.sb)? {
                let logged = Superblock::parse(&bytes, queue.device().size());
                fs.sb = logged.and_then(|sb| goes_on(&fs.sb, sb)).map_err(|e| e.of("in the journal"))?;
            }
            fs.blocks = Blocks::new(queue.clone(), bdi.clone(), fs.sb.block_size);
            fs.blocks.overlay = Some(overlay);
        }
        // The blocks must be known before any file is read.
        fs.journal_blocks = fs.find_journal_blocks();
        fs.read_only = fs.why_read_only(&queue, &options);
        fs.check_root()?;
        if fs.read_only.is_none() {
            fs.begin_changes(&queue, &bdi, &options)?;
        }
        // Cached inodes keep `bdi` after an unmount; they must not keep the device.
        let plug = Arc::downgrade(&fs.plug);
        bdi.set_submit_pending(move |of, here| match (plug.upgrade(), of) {
            (Some(plug), Some(mapping)) => plug.send_with(mapping.gathered().load(SeqCst)),
            (Some(plug), None) if here => plug.send_awaited(),
            (Some(plug), None) => plug.send(),
            (None, _) => {}
        });
        let fs = Arc::new(fs);
        if let Some(conversions) = &fs.conversions {
            conversions.start(&fs)?;
        }
        Ok(fs)
    }

    /// Recovers the volume in memory: returns the content of its journal, if that is not empty.
    ///
    /// # Errors
    /// `Corrupt` for a corrupt journal; those of the device.
    pub(crate) fn recover_in_memory(&self) -> Result<Option<Overlay>> {
        let Journal::Inode(ino) = self.sb.journal else { return Ok(None) };
        let log = self.journal_log(ino).map_err(|e| e.of("the journal"))?;
        let replay = recover(Arc::new(log), self.sb.blocks)?;
        if replay.is_clean() {
            return Ok(None);
        }
        fast_commit::lay_over(&self.blocks.queue, &self.sb, replay).map(Some)
    }

    /// Recovers the volume on the device, and takes it into use.
    fn begin_changes(
        &mut self,
        queue: &Arc<RequestQueue>,
        bdi: &Arc<Bdi>,
        options: &Ext4Options,
    ) -> Result<()> {
        let mut journal = None;
        if options.data == DataMode::Journal && self.sb.journal == Journal::None {
            let what = "option \"data=journal\": the volume has no journal";
            return Err(Error::new(ErrorKind::InvalidArgument, what));
        }
        if let Journal::Inode(ino) = self.sb.journal
            && !self.filling
        {
            let log = Arc::new(self.journal_log(ino).map_err(|e| e.of("the journal"))?);
            let flagged = self.sb.incompat.contains(Incompat::RECOVER);
            if !flagged && tidegate_jbd2::Superblock::read(&log)?.start.is_some() {
                // The volume may have changed since the log was given up; only the user can know.
                let what = "its journal holds changes, and its superblock says that it holds none";
                self.read_only = Some(ReadOnly::Unrepaired { what, tool: "e2fsck" });
                return Ok(());
            }
            match self.blocks.overlay.as_ref().map(|o| o.settle(queue)) {
                Some(Err(e)) if e.kind() == ErrorKind::NoSpace => {
                    let what = "its journal has no room for what its fast commits change";
                    self.read_only = Some(ReadOnly::Unrepaired { what, tool: "e2fsck" });
                    return Ok(());
                }
                settled => settled.transpose()?,
            };
            let options = JournalOptions {
                mode: options.journal,
                interval: options.interval(),
                hooks: self.ordered.clone(),
                csum_v3: self.sb.has_csum(),
                bit64: self.sb.incompat.contains(Incompat::BIT64),
                cache_bytes: METADATA.min(bdi.limits().cache as usize),
                fixed_time: self.fixed_time,
                planted: self.planted,
                ..JournalOptions::default()
            };
            let opened = tidegate_jbd2::Journal::open(log, queue.clone(), self.sb.blocks, options)?;
            if opened.errno() != 0 {
                self.read_only = Some(unrepaired());
                return opened.close();
            }
            journal = Some(opened);
            // The superblock and the journal as recovery left them.
            self.sb = goes_on(&self.sb, load_superblock(queue)?)?;
            self.blocks = Blocks::new(queue.clone(), bdi.clone(), self.sb.block_size);
            (self.counts, self.tables) = (OnceLock::new(), OnceLock::new());
        }
        let free = self.free()?;
        if self.tables().shared().is_some() {
            let what = "tables of its groups lie in each other";
            self.read_only = Some(ReadOnly::Unrepaired { what, tool: "e2fsck" });
            return journal.map_or(Ok(()), |j| j.close());
        }
        self.space = Some(Space::new(free));
        self.blocks.allow_changes(journal);
        self.enter_use()?;
        self.conversions = (!self.filling).then(Conversions::new);
        match self.clear_orphans(bdi) {
            Err(e) if e.kind() == ErrorKind::Corrupt => {
                let what = "an inode without a name cannot be freed";
                self.read_only = Some(ReadOnly::Unrepaired { what, tool: "e2fsck" });
                Ok(())
            }
            cleared => cleared,
        }
    }

    /// Refuses a volume whose root is not a directory: nothing in it has a name.
    fn check_root(&self) -> Result<()> {
        let root = self.load_inode(Ino(ROOT_INO.into())).map_err(|e| match e.kind() {
            ErrorKind::Stale => Error::corrupt("the root directory is missing"),
            _ => e.of("the root directory"),
        })?;
        match root.attr.file_type {
            FileType::Directory => Ok(()),
            _ => Err(Error::corrupt("the root is no directory").in_inode(ROOT_INO)),
        }
    }
}

/// The superblock that recovery found, if it fits the old one: the journal's content counts in the volume's
/// blocks.
fn goes_on(before: &Superblock, found: Superblock) -> Result<Superblock> {
    let (is, was) = (found.block_size, before.block_size);
    rule(is == was, format_args!("blocks of {is} bytes, and of {was}"))
        .map_err(|e| e.at(At::The("superblock")))?;
    Ok(found)
}

/// The volume or its journal records an error.
fn unrepaired() -> ReadOnly {
    ReadOnly::Unrepaired { what: "an earlier error is recorded in it", tool: "e2fsck" }
}

/// The error for a volume whose journal is elsewhere and holds changes that the volume does not have.
fn not_recovered() -> Error {
    let why = "its journal, on a device of its own, holds changes that the volume does not";
    let cure = "norecovery opens it as it is, which may be half changed";
    Error::new(ErrorKind::Unsupported, format!("{why} ({cure})"))
}

impl Ext4 {
    /// The reason why the volume is not changed, and the part of it that is not visible.
    fn why_read_only(&self, queue: &RequestQueue, options: &Ext4Options) -> Option<ReadOnly> {
        let why = self.what_forbids_writing(queue, options)?;
        Some(match self.blocks.overlay.as_ref().and_then(Overlay::left_out) {
            Some(unseen) => why.without(unseen),
            None => why,
        })
    }

    fn what_forbids_writing(&self, queue: &RequestQueue, options: &Ext4Options) -> Option<ReadOnly> {
        let sb = &self.sb;
        if options.read_only || queue.device().read_only() {
            return Some(ReadOnly::Asked);
        }
        if !sb.read_only_features.is_empty() {
            return Some(ReadOnly::Features { format: "ext4", features: sb.read_only_features.clone() });
        }
        if options.norecovery && sb.incompat.contains(Incompat::RECOVER) {
            return Some(ReadOnly::State("what its journal holds is not looked at (norecovery)"));
        }
        if sb.journal == Journal::Device {
            return Some(ReadOnly::State("its journal is on a device of its own"));
        }
        let told = self.blocks.overlay.as_ref().is_some_and(|o| o.errno() != 0);
        if told || State::from_bits_retain(sb.raw.s_state.get()).contains(State::ERROR) {
            return Some(unrepaired());
        }
        let raw = &sb.raw;
        let named = [&raw.s_feature_compat, &raw.s_feature_incompat, &raw.s_feature_ro_compat];
        if raw.s_rev_level.get() == 0 && named.iter().any(|word| word.get() != 0) {
            // Linux respects the features all the same, and e2fsck removes them.
            return Some(ReadOnly::State("a volume of revision 0 names features, which that has none of"));
        }
        if sb.compat.contains(Compat::ORPHAN_FILE) && !sb.names_orphan_file() {
            let what = "it has the feature orphan_file, and names no inode for it";
            return Some(ReadOnly::Unrepaired { what, tool: "e2fsck" });
        }
        if self.blocks.overlay.as_ref().and_then(Overlay::left_out).is_some() {
            return Some(ReadOnly::Unrepaired {
                what: "its journal holds what cannot be replayed",
                tool: "e2fsck",
            });
        }
        None
    }
}
