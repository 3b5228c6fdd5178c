//! Opening a volume: superblock, checkpoint, summaries, orphans.

use crate::durable::checkpoint::nat_bits_key;
use crate::file::write_io::{Grown, Sender};
use crate::format::gate::{Checkpoint, Superblock};
use crate::format::raw::*;
use crate::format::units::BlockAddr;
use crate::segment::curseg::{Curseg, Cursegs};
use crate::segment::log::Log;
use crate::segment::zones::ZoneMap;
use crate::tables::meta::Meta;
use crate::tables::nat::{Nat, NatBits};
use crate::tables::sit::Sit;
use crate::tables::summary;
use crate::volume::assemble::Parts;
use crate::volume::devices::{TELLING, check_devices};
use crate::volume::options::{F2fsOptions, Recovery, StreamFlush};
use crate::volume::sbi::F2fs;
use crate::volume::stats::Counters;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use tidegate_block::{BioFlags, RequestQueue};
use tidegate_vfs::{At, Bdi, Error, ErrorKind, FileType, Ino, Inode, ReadOnly, Result};
use zerocopy::FromBytes;

/// Shards of the node mapping: the number of threads that can work on unrelated nodes at once.
const NODE_SHARDS: usize = 16;

/// Whether the device holds an F2FS superblock in either place.
pub fn is_f2fs(queue: &RequestQueue) -> bool {
    (0..2).any(|n| {
        let block = queue.read_wait(BlockAddr(n).sector(), 1, BioFlags::META);
        block.is_ok_and(|b| le32(&b, SUPER_OFFSET) == F2FS_MAGIC)
    })
}

/// The devices of the volume, in order, if its superblock lists several: the path of each and the bytes of it
/// that the volume takes. The queue's device need only be the first of them.
pub fn devices(queue: &RequestQueue) -> Vec<(String, u64)> {
    let copy = |n: u32| {
        let block = queue.read_wait(BlockAddr(n).sector(), 1, BioFlags::META).ok()?;
        Superblock::parse(&block, u64::MAX).ok()
    };
    copy(0).or_else(|| copy(1)).map_or(Vec::new(), |sb| sb.devices())
}

/// Reads the superblock: the first copy, or the second when the first is invalid.
///
/// # Errors
/// The first copy's fault, when both are invalid.
pub fn load_superblock(queue: &RequestQueue) -> Result<Superblock> {
    let blocks = queue.device().size() / BLOCK_SIZE as u64;
    let copy = |n: u32| {
        let b = queue
            .read_wait(BlockAddr(n).sector(), 1, BioFlags::META)
            .map_err(|e| Error::device_at(e, "reading", At::Part("superblock", n.into())))?;
        Superblock::parse(&b, blocks)
    };
    match copy(0) {
        Ok(sb) => Ok(sb),
        Err(first) => match copy(1) {
            Ok(sb) => Ok(sb),
            // Of the two errors, the one that tells more.
            Err(second) if first.kind() == ErrorKind::InvalidArgument => Err(second),
            Err(_) => Err(first),
        },
    }
}

/// Reads the current checkpoint.
///
/// # Errors
/// `Corrupt` when neither pack is whole.
pub fn load_checkpoint(queue: &RequestQueue, sb: &Superblock) -> Result<Checkpoint> {
    Checkpoint::load(sb, |addr| {
        queue
            .read_wait(BlockAddr(addr).sector(), 1, BioFlags::META)
            .map(|b| b.to_vec())
            .map_err(|e| Error::device_at(e, "reading checkpoint", At::Block(addr.into())))
    })
}

impl F2fs {
    /// Sets the volume's switches as in `options`. Options that matter only when the volume is opened are
    /// ignored. Returns when the requests for a checkpoint have been served that no longer have a checkpoint
    /// thread.
    pub fn turn(&self, options: &F2fsOptions) {
        self.switches.turn(options);
        if !options.checkpoint_merge {
            self.ckpt_thread.stop();
        }
    }

    /// Opens the volume behind `queue`, its pages accounted to `bdi`. Blocks of unlinked files are freed
    /// unless the volume is read-only.
    ///
    /// # Errors
    /// `Corrupt` with the fault, `Unsupported` with the feature, those of the device.
    pub fn open(queue: Arc<RequestQueue>, bdi: Arc<Bdi>, options: F2fsOptions) -> Result<Arc<F2fs>> {
        Self::open_as(queue, bdi, options, false)
    }

    /// Opens a volume for writing even if an earlier error is recorded in it. For a repair that has looked at
    /// the volume.
    pub(crate) fn open_hurt(
        queue: Arc<RequestQueue>,
        bdi: Arc<Bdi>,
        options: F2fsOptions,
    ) -> Result<Arc<F2fs>> {
        Self::open_as(queue, bdi, options, true)
    }

    fn open_as(
        queue: Arc<RequestQueue>,
        bdi: Arc<Bdi>,
        options: F2fsOptions,
        even_hurt: bool,
    ) -> Result<Arc<F2fs>> {
        options.check_streams()?;
        let sb = load_superblock(&queue)?;
        let cp = load_checkpoint(&queue, &sb)?;
        let meta_inode = Arc::new(Inode::internal(Ino(sb.meta_ino.into()), bdi.clone(), 1));
        let meta = Meta::new(
            meta_inode,
            queue.clone(),
            bdi.clone(),
            Arc::new(Counters::opened_now([sb.sit_blkaddr, sb.nat_blkaddr, sb.ssa_blkaddr])),
            sb.main_blkaddr,
        );
        let zones = ZoneMap::load(&queue, &sb)?;
        let sums = summary::load(&sb, &cp, &meta, zones.as_ref())?;
        let dead = zones.as_ref().and_then(|z| z.why_dead(&sb)).filter(|_| !even_hurt);
        let read_only = why_read_only(&queue, &sb, &cp, &options, even_hurt).or(dead.map(ReadOnly::Zones));
        if let Some(z) = zones.as_ref().filter(|_| read_only.is_none()) {
            z.check_writable()?;
        }
        let journal = |nid| sums.nat_journal.get(&nid).map(|e| (*e).into());
        let telling = if read_only.is_some() { TELLING } else { 1 };
        check_devices(&queue, &sb, &cp, journal, telling)?;
        let bits = load_nat_bits(&sb, &cp, &meta)?;
        let nat = Nat::new(&sb, &cp, sums.nat_journal, bits);
        let reader = meta.clone();
        let mut sit = Sit::new(
            &sb,
            &cp,
            sums.sit_journal,
            Arc::new(move |a| reader.read(a)),
            options.deterministic,
            zones,
        );
        sit.planted = options.planted;
        let mut left = sums.sums.into_iter();
        let logs = Log::ALL.map(|l| left.next().map(|s| Curseg::from_checkpoint(&cp, l, s)));
        let [Some(a), Some(b), Some(c), Some(d), Some(e), Some(f)] = logs else {
            return Err(Error::corrupt("summaries are missing").at(At::The("checkpoint")));
        };
        let orphans = load_orphans(&sb, &cp, &meta)?;
        let node_inode = Arc::new(Inode::internal(Ino(sb.node_ino.into()), bdi.clone(), NODE_SHARDS));
        let deterministic = options.deterministic;
        let fs = Arc::new(F2fs::assemble(Parts {
            sb,
            queue,
            bdi,
            options,
            read_only,
            meta,
            node_inode,
            nat,
            sit,
            cursegs: Cursegs::new([a, b, c, d, e, f]),
            cp,
            orphans,
        }));
        fs.gc.set_owner(Arc::downgrade(&fs));
        if !deterministic {
            fs.ckpt_thread.bind(Arc::downgrade(&fs));
        }
        let weak = Arc::downgrade(&fs);
        fs.bdi.set_submit_pending(move |of, here| {
            let Some(fs) = weak.upgrade() else { return };
            if fs.is_stopped() {
                fs.write_io.give_up_order();
            }
            let sender = if here { Sender::Caller } else { Sender::Queue };
            match of.filter(|_| fs.switches.stream_flush() == StreamFlush::Inode) {
                Some(mapping) => fs.write_io.submit(Grown::Of(mapping, sender)),
                None => fs.write_io.submit(Grown::All(sender)),
            }
        });
        if let Some(at) = fs.sit.count_sections()? {
            let _ = fs.read_only.set(ReadOnly::Zones(behind_pointer(&fs.sb, at)));
        }
        fs.begin_order();
        // A repair recovers first, and corrects the root afterwards.
        if !even_hurt {
            fs.check_root()?;
        }
        fs.recover(even_hurt)?;
        Ok(fs)
    }

    /// Refuses a volume whose root is not a directory: nothing in it has a name.
    fn check_root(&self) -> Result<()> {
        let root = self.load_inode(Ino(self.sb.root_ino as u64)).map_err(|e| e.of("the root directory"))?;
        match root.attr.file_type {
            FileType::Directory => Ok(()),
            _ => Err(Error::corrupt("the root is no directory").in_inode(root.ino)),
        }
    }

    /// Brings the volume to the state that was promised: orphans are freed, fsynced files are recovered; in
    /// memory only if the volume is opened read-only.
    fn recover(&self, even_hurt: bool) -> Result<()> {
        let hurt = {
            let cp = &self.ckpt.lock().cp;
            let flagged = !even_hurt && cp.flags.intersects(CpFlags::ERROR | CpFlags::FSCK);
            flagged || cp.passed_over.is_some()
        };
        let mut writable = self.why_read_only().is_none();
        if self.recovery == Recovery::None || hurt {
            return Ok(());
        }
        if !self.sb.read_only_features.is_empty() {
            self.unrecovered.store(self.has_fsynced_files().unwrap_or(true), SeqCst);
            return Ok(());
        }
        // A chain that makes no sense still counts as a chain.
        let disabled = self.recovery == Recovery::Disabled;
        let given_up = disabled && writable && self.has_fsynced_files().unwrap_or(true);
        if writable && !self.bring_logs_and_zones_together(!disabled).map_err(of_recovery)? {
            let what = "no section is free for its logs, which cannot go on where a power cut left them";
            let _ = self.read_only.set(ReadOnly::State(what));
            self.unrecovered.store(given_up, SeqCst);
            writable = false;
        }
        if writable {
            self.recover_orphans()?;
        }
        let found = if disabled { given_up } else { self.roll_forward().map_err(of_recovery)? };
        let clean = self.ckpt.lock().cp.flags.contains(CpFlags::UMOUNT);
        if writable && (found || !clean) {
            // This is done even if nothing was recovered: later writes must not lead to nodes that a power
            // cut left behind.
            self.orphans_changed.store(true, SeqCst);
            self.checkpoint(false)?;
        }
        if writable {
            // The durable state leads to nothing in its free sections.
            self.reset_zones();
        }
        Ok(())
    }

    /// Frees the inodes that had lost their last name when the checkpoint was made.
    ///
    /// # Errors
    /// `Corrupt`, also for a number that cannot be an orphan's: nothing vouches for the content of the orphan
    /// blocks.
    fn recover_orphans(&self) -> Result<()> {
        let inos: Vec<u32> = self.orphans.lock().iter().copied().collect();
        if let Some(ino) = inos.iter().find(|i| **i <= self.sb.root_ino || **i >= self.sb.max_nid) {
            return Err(Error::corrupt("can be none").in_inode(*ino).at(At::The("orphan block")));
        }
        for ino in inos {
            let inode = match self.load_inode(Ino(ino as u64)) {
                Ok(p) => Inode::new(p, self.bdi.clone(), 1),
                Err(e) if crate::inode::is_gone(&e) => {
                    self.orphans.lock().remove(&ino);
                    continue;
                }
                Err(e) => return Err(e.of("freeing an orphan")),
            };
            if inode.is_dir() && !self.dir_is_empty(&inode)? {
                return Err(Error::corrupt("is not empty").in_dir(ino).at(At::The("orphan block")));
            }
            inode.attr().nlink = 0;
            self.evict(&inode)?;
        }
        Ok(())
    }
}

/// Adds to an error of roll-forward what the user can do about it.
fn of_recovery(e: Error) -> Error {
    match e.kind() {
        ErrorKind::Corrupt | ErrorKind::Stale | ErrorKind::FileTooBig => e.as_kind(ErrorKind::Corrupt).of(
            "recovering fsynced files (fsck.f2fs may mend them, disable_roll_forward opens the volume without them)",
        ),
        _ => e.of("recovering fsynced files (disable_roll_forward opens the volume without them)"),
    }
}

/// The sentence for a block in use behind its zone's write pointer: its content is lost, or on another
/// device.
fn behind_pointer(sb: &Superblock, at: BlockAddr) -> String {
    let order = match sb.devices().len() {
        0..3 => "",
        _ => " (are the devices named in their order?)",
    };
    format!("block {at} is in use, and lies behind its zone's write pointer{order}: check tells more")
}

/// The reason why this volume may not be changed, if there is one.
fn why_read_only(
    queue: &RequestQueue,
    sb: &Superblock,
    cp: &Checkpoint,
    o: &F2fsOptions,
    even_hurt: bool,
) -> Option<ReadOnly> {
    if o.read_only || queue.device().read_only() {
        return Some(ReadOnly::Asked);
    }
    if !sb.read_only_features.is_empty() {
        return Some(ReadOnly::Features { format: "f2fs", features: sb.read_only_features.clone() });
    }
    if cp.flags.intersects(CpFlags::DISABLED | CpFlags::RESIZEFS) {
        let what = "its checkpoint says that checkpointing is disabled or a resize is under way";
        return Some(ReadOnly::State(what));
    }
    if let Some(bad) = &cp.passed_over {
        return Some(ReadOnly::PassedOver(bad.clone()));
    }
    let hurt = cp.flags.intersects(CpFlags::ERROR | CpFlags::FSCK) && !even_hurt;
    hurt.then_some(ReadOnly::Unrepaired { what: "an earlier error is recorded in it", tool: "fsck.f2fs" })
}

/// Reads the orphans' numbers.
fn load_orphans(sb: &Superblock, cp: &Checkpoint, meta: &Meta) -> Result<BTreeSet<u32>> {
    let mut out = BTreeSet::new();
    if !cp.flags.contains(CpFlags::ORPHAN_PRESENT) {
        return Ok(out);
    }
    for n in 1 + sb.cp_payload..cp.raw.cp_pack_start_sum.get() {
        let page = meta.read(cp.start + n)?;
        let b = RawOrphanBlock::ref_from_prefix(page.bytes()).map_err(|_| Error::corrupt("orphan block"))?.0;
        let count = b.entry_count.get() as usize;
        if count > ORPHANS_PER_BLOCK {
            return Err(Error::corrupt(format!("{count} entries"))
                .at(At::Part("orphan block", u64::from(cp.start + n))));
        }
        out.extend(b.ino[..count].iter().map(|i| i.get()));
    }
    Ok(out)
}

/// Reads nat_bits if the pack has them and their key matches.
fn load_nat_bits(sb: &Superblock, cp: &Checkpoint, meta: &Meta) -> Result<Option<NatBits>> {
    if !cp.flags.contains(CpFlags::NAT_BITS) {
        return Ok(None);
    }
    let len = sb.nat_blocks as usize / 8;
    let blocks = (8 + 2 * len).div_ceil(BLOCK_SIZE) as u32;
    if blocks + cp.raw.cp_pack_total_block_count.get() > BLOCKS_PER_SEG {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    for n in 0..blocks {
        bytes.extend_from_slice(meta.read(cp.start + BLOCKS_PER_SEG - blocks + n)?.bytes());
    }
    if le64(&bytes, 0) != nat_bits_key(cp) {
        return Ok(None); // stale
    }
    Ok(Some(NatBits { full: bytes[8..8 + len].to_vec(), empty: bytes[8 + len..8 + 2 * len].to_vec() }))
}
