//! Checkpoints: the volume as it is at one moment, made durable.
//!
//! Order: directories and nodes go out while operations are frozen (`cp_rwsem` exclusive); everything in
//! flight is waited for; NAT and SIT go to their other copies; then the pack's head, payload, orphans and
//! summaries; and when all of these are on the device and flushed, the tail block that makes the pack count.

use crate::durable::ckpt_stat::Step;
use crate::file::write::Ops;
use crate::file::write_io::{Grown, Sender};
use crate::format::gate::Checkpoint;
use crate::format::raw::*;
use crate::segment::curseg::Curseg;
use crate::segment::log::Log;
use crate::tables::summary;
use crate::volume::options::CheckpointData;
use crate::volume::sbi::F2fs;
use std::sync::atomic::Ordering::SeqCst;
use tidegate_block::{Bio, BioFlags, PageBuf, Segment};
use tidegate_rt::{clock, device_wait};
use tidegate_vfs::planted::PlantedBug;
use tidegate_vfs::{At, Error, ErrorKind, Inode, Result, WritebackControl};
use zerocopy::IntoBytes;

/// Why a checkpoint is written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum CpReason {
    /// A thread wants what was done so far to be durable.
    Sync,
    /// A thread wants a checkpoint in any case.
    Force,
    /// The volume is unmounted and left clean.
    Umount,
}

impl CpReason {
    /// The reason of a checkpoint that a thread asked for.
    pub(crate) fn asked(force: bool) -> Self {
        if force { CpReason::Force } else { CpReason::Sync }
    }
}

impl F2fs {
    /// Writes a checkpoint in the calling thread if anything changed since the last one, or if `umount` is
    /// wanted and the last checkpoint was none of an unmount. Takes `cp_global_sem`, then `cp_rwsem`
    /// exclusive; the caller holds no lock of the volume. Most callers want [`F2fs::issue_checkpoint`].
    ///
    /// # Errors
    /// The first failure; the volume takes no more changes then.
    pub(crate) fn checkpoint(&self, umount: bool) -> Result<()> {
        self.checkpoint_for(if umount { CpReason::Umount } else { CpReason::Sync }).map(drop)
    }

    /// Writes a checkpoint as [`F2fs::checkpoint`] does; true if one was written.
    pub(crate) fn checkpoint_for(&self, reason: CpReason) -> Result<bool> {
        let stat = &self.ckpt_stat;
        let one = stat.time(Step::GlobalSem, || self.cp_mutex.lock());
        // The check comes after the wait: the checkpoint that this thread waited for may have failed.
        self.check_writable()?;
        if !self.wants_checkpoint(reason) {
            // Data may have been written in place since the last checkpoint.
            let durable = self.flushes.is_durable(self.flushes.completed());
            return if durable { Ok(false) } else { self.flush_device().map(|()| false) };
        }
        let start = clock::now();
        let r = stat.time_whole(reason, || self.write_checkpoint_locked(reason == CpReason::Umount));
        self.stats.checkpoint(start);
        drop(one);
        self.discard_freed();
        r.map(|()| true)
    }

    fn wants_checkpoint(&self, reason: CpReason) -> bool {
        self.is_dirty()
            || match reason {
                CpReason::Sync => false,
                CpReason::Force => true,
                CpReason::Umount => !self.ckpt.lock().cp.flags.contains(CpFlags::UMOUNT),
            }
    }

    fn write_checkpoint_locked(&self, umount: bool) -> Result<()> {
        let stat = &self.ckpt_stat;
        // Most of the work comes before the freeze, so that the freeze is short. A failure here shows again
        // below.
        let _ = stat.time(Step::PreDirs, || self.write_dirty_dirs());
        let _ = stat.time(Step::PreInodes, || self.store_inode_meta());
        let _ = stat.time(Step::PreNodes, || {
            let r = self.write_nodes(&mut WritebackControl::ahead_of_sync());
            self.write_io.submit(Grown::All(Sender::Queue));
            self.nat.read_ahead(&self.meta);
            r
        });
        if self.switches.checkpoint_data() == CheckpointData::Wait {
            stat.time(Step::PreDrain, || self.write_io.wait_begun());
        }
        if self.checkpoint_has_no_room() {
            // Some free sections may be waiting for a reset.
            self.reset_zones();
            if self.checkpoint_has_no_room() {
                // Found in the middle of it, it would be the end of all changes.
                return Err(Error::new(
                    ErrorKind::NoSpace,
                    "a checkpoint finds no free section for its logs",
                ));
            }
        }
        let frozen = stat.time(Step::LockAll, || self.cp_rwsem.write());
        let _leave =
            device_wait::permit("what the volume is at this moment is written while it stands still");
        stat.time(Step::Frozen, || {
            // An operation may have stopped half done before it released `cp_rwsem`.
            let stopped = || self.check_writable().map_err(|e| e.as_kind(ErrorKind::Io));
            let r =
                self.lost_metadata().map_or_else(stopped, Err).and_then(|()| self.checkpoint_frozen(umount));
            // The volume stops before any other thread goes on with what the checkpoint left half done.
            if let Err(e) = &r {
                self.stop(e);
            }
            drop(frozen);
            r
        })
    }

    /// Whether anything has changed since the last checkpoint.
    pub(crate) fn is_dirty(&self) -> bool {
        self.node_inode.mapping.nr_dirty() > 0
            || self.nat.is_dirty()
            || self.sit.is_dirty()
            || self.orphans_changed.load(SeqCst)
            || !self.dirty_dirs.lock().is_empty()
            || self.dirty_inodes.len() > 0
    }

    fn checkpoint_frozen(&self, umount: bool) -> Result<()> {
        let stat = &self.ckpt_stat;
        stat.time(Step::Dirs, || self.sync_dirs())?;
        stat.time(Step::Inodes, || self.sync_inode_meta())?;
        stat.time(Step::Nodes, || self.sync_nodes())?;
        stat.time(Step::Drain, || self.drain_writes().and_then(|()| self.rewrite_failed_pages()))?;
        self.settle_logs(umount)?;
        let nat_bits = umount && self.nat.with(|n| n.bits.is_some());
        stat.time(Step::Nat, || self.nat.flush(&self.meta, nat_bits))?;
        stat.time(Step::Sit, || self.sit.flush(&self.meta))?;
        stat.time(Step::Meta, || self.meta.sync())?;
        let pack = stat.time(Step::Build, || self.build_pack(umount, nat_bits))?;
        let completed = self.flushes.completed();
        self.write_pack(&pack)?;
        self.flushes.flushed(completed);
        stat.time(Step::After, || self.checkpointed(pack.cp))
    }

    /// Updates memory after the pack is on the device.
    fn checkpointed(&self, cp: Checkpoint) -> Result<()> {
        self.cursegs.checkpointed();
        self.affinity.checkpointed();
        self.since_cp.clear();
        self.counts.lock().checkpointed();
        self.nat.checkpointed();
        self.gc.freed(self.sit.checkpointed()?);
        self.orphans_changed.store(false, SeqCst);
        let mut state = self.ckpt.lock();
        state.node_version = cp.node_version();
        state.cp = cp;
        Ok(())
    }

    /// Writes directories with dirty pages; does not wait. Takes `cp_rwsem` shared.
    fn write_dirty_dirs(&self) -> Result<()> {
        let dirs: Vec<_> = self.dirty_dirs.lock().values().cloned().collect();
        for d in dirs {
            let stream = self.stream_of_pass(&d);
            self.write_data_pass(&d, &mut WritebackControl::ahead_of_sync(), Ops::Beside, stream)?;
        }
        Ok(())
    }

    /// Writes every dirty page of every directory and waits.
    fn sync_dirs(&self) -> Result<()> {
        let mut dirs: Vec<_> = self.dirty_dirs.lock().drain().map(|d| d.1).collect();
        dirs.sort_by_key(|d| d.ino);
        let failed = |d: &Inode| {
            let unknown = || d.mapping.last_error("").of_at("writing", At::Dir(d.ino));
            self.lost_metadata().unwrap_or_else(unknown)
        };
        for d in &dirs {
            let before = d.mapping.errseq();
            d.mapping.tag_towrite(0, u64::MAX);
            let stream = self.stream_of_pass(d);
            self.write_data_pass(d, &mut WritebackControl::sync(), Ops::Frozen, stream)?;
            if d.mapping.errseq() != before {
                return Err(failed(d));
            }
        }
        for d in &dirs {
            d.mapping.wait_writeback(0, u64::MAX);
            if d.mapping.nr_dirty() > 0 {
                return Err(failed(d));
            }
        }
        Ok(())
    }

    /// Builds the next pack: every block of it, and its addresses.
    fn build_pack(&self, umount: bool, nat_bits: bool) -> Result<Pack> {
        let logs = Log::ALL.map(|l| self.cursegs.lock(l).snapshot());
        let [hot, warm, cold, ..] = &logs;
        let data = [hot, warm, cold];
        let (nat_journal, nat_bitmap) = self.nat.with(|n| (n.journal_bytes(), n.bitmap.clone()));
        let (sit_journal, sit_bitmap, free) =
            self.sit.with(|s| (s.journal_bytes(), s.bitmap.clone(), s.free().free + s.free().prefree));
        let compact = summary::compact_blocks(&data) < NR_CURSEG_DATA_TYPE;
        let mut sums = if compact {
            summary::pack_compact(&data, &nat_journal, &sit_journal)
        } else {
            let journals: [&[u8]; 3] = [&nat_journal, &[0; SUM_JOURNAL_SIZE], &sit_journal];
            data.iter().zip(journals).map(|(c, j)| summary::pack_normal(c, j)).collect()
        };
        if umount {
            sums.extend(
                logs[NR_CURSEG_DATA_TYPE..].iter().map(|c| summary::pack_normal(c, &[0; SUM_JOURNAL_SIZE])),
            );
        }
        let orphans = self.pack_orphans();
        let payload = self.sb.cp_payload as usize;
        let total = 1 + payload + orphans.len() + sums.len() + 1;
        let room = (BLOCKS_PER_SEG as usize).checked_sub(total).ok_or_else(|| {
            Error::new(
                ErrorKind::NoSpace,
                format!("a checkpoint pack of {total} blocks is more than a segment"),
            )
        })?;
        let nat_bits = nat_bits && self.nat.with(|n| n.bits.as_ref().is_some_and(|b| b.blocks() <= room));

        let old = self.ckpt.lock().cp.clone();
        let mut flags = old.flags
            & (CpFlags::ERROR | CpFlags::FSCK | CpFlags::LARGE_NAT_BITMAP | CpFlags::QUOTA_NEED_FSCK);
        flags |= CpFlags::CRC_RECOVERY;
        flags.set(CpFlags::UMOUNT, umount);
        flags.set(CpFlags::COMPACT_SUM, compact);
        flags.set(CpFlags::ORPHAN_PRESENT, !orphans.is_empty());
        flags.set(CpFlags::NAT_BITS, nat_bits);
        let mut cp = old.clone();
        cp.pack = 1 - old.pack;
        cp.start = self.sb.cp_blkaddr + cp.pack * BLOCKS_PER_SEG;
        cp.flags = flags;
        (cp.sit_bitmap, cp.nat_bitmap) = (sit_bitmap, nat_bitmap);
        let counts = *self.counts.lock();
        let r = &mut *cp.raw;
        r.checkpoint_ver = old.version().wrapping_add(1).into();
        r.valid_block_count = counts.valid_blocks.into();
        r.valid_node_count = counts.valid_nodes.into();
        r.valid_inode_count = counts.valid_inodes.into();
        r.free_segment_count = free.into();
        r.ckpt_flags = flags.bits().into();
        r.cp_pack_total_block_count = (total as u32).into();
        r.cp_pack_start_sum = ((1 + payload + orphans.len()) as u32).into();
        r.next_free_nid = self.nat.next_free_nid().into();
        r.elapsed_time = self.sit.elapsed().into();
        for (i, c) in logs.iter().enumerate() {
            set_log(r, i, c)?;
        }
        let (head, payload_blocks) = self.build_head(&mut cp)?;
        let bits = if nat_bits { self.pack_nat_bits(&cp) } else { Vec::new() };
        let mut blocks = vec![head.clone()];
        blocks.extend(payload_blocks);
        blocks.extend(orphans);
        blocks.extend(sums);
        Ok(Pack { cp, blocks, tail: head, nat_bits: bits })
    }

    /// The head block with its bitmaps and checksum, and the payload blocks.
    fn build_head(&self, cp: &mut Checkpoint) -> Result<(PageBuf, Vec<PageBuf>)> {
        let mut head = PageBuf::zeroed(1);
        head[..CP_BITMAP_OFFSET].copy_from_slice(cp.raw.as_bytes());
        let mut payload = Vec::new();
        let base = CP_BITMAP_OFFSET;
        let (sit, nat) = (&cp.sit_bitmap, &cp.nat_bitmap);
        let mut put = |at: usize, bytes: &[u8]| head[at..at + bytes.len()].copy_from_slice(bytes);
        if cp.flags.contains(CpFlags::LARGE_NAT_BITMAP) {
            put(base + 4, nat);
            put(base + 4 + nat.len(), sit);
        } else if self.sb.cp_payload == 0 {
            put(base, sit);
            put(base + sit.len(), nat);
        } else {
            put(base, nat);
            for n in 0..self.sb.cp_payload as usize {
                let from = (n * BLOCK_SIZE).min(sit.len());
                payload.push(PageBuf::from_slice(&sit[from..sit.len().min(from + BLOCK_SIZE)]));
            }
        }
        let offset = cp.raw.checksum_offset.get() as usize;
        cp.crc = checkpoint_crc(&head, offset);
        put32(&mut head, offset, cp.crc);
        Ok((head, payload))
    }

    /// The nat_bits blocks: a key made from the checkpoint's CRC and version, then the two bitmaps.
    fn pack_nat_bits(&self, cp: &Checkpoint) -> Vec<PageBuf> {
        let mut bytes = nat_bits_key(cp).to_le_bytes().to_vec();
        self.nat.with(|n| {
            if let Some(b) = &n.bits {
                bytes.extend(&b.full);
                bytes.extend(&b.empty);
            }
        });
        bytes.chunks(BLOCK_SIZE).map(PageBuf::from_slice).collect()
    }

    /// Writes the pack. The tail goes last, when everything else is on the device.
    fn write_pack(&self, p: &Pack) -> Result<()> {
        let at = |n: usize| crate::format::units::BlockAddr(p.cp.start + n as u32).sector();
        let fail = |e| Error::device_at(e, "writing", At::Part("checkpoint pack", p.cp.pack.into()));
        let bits_at = BLOCKS_PER_SEG as usize - p.nat_bits.len();
        let write = |first: usize, blocks: &[PageBuf], flags: BioFlags| {
            self.stats.meta_bio(p.cp.start + first as u32, blocks.len() as u64);
            let segs = blocks.iter().map(|b| Segment::pages(std::sync::Arc::new(b.clone()), 0, 1)).collect();
            self.queue
                .submit_wait(Bio::write(at(first), segs, flags | BioFlags::SYNC | BioFlags::META))
                .map(drop)
                .map_err(fail)
        };
        self.ckpt_stat.time(Step::Pack, || {
            if !p.nat_bits.is_empty() {
                write(bits_at, &p.nat_bits, BioFlags::empty())?;
            }
            write(0, &p.blocks, BioFlags::empty())
        })?;
        let tail = std::slice::from_ref(&p.tail);
        let written = self.ckpt_stat.time(Step::Tail, || write(p.blocks.len(), tail, self.tail_flags()));
        // Blocks that the tail's flush was to make durable may be lost, also blocks that other threads wait
        // for.
        written.inspect_err(|e| self.flushes.fail(e))?;
        // The cache may hold the old content of these blocks.
        self.meta.inode.mapping.remove(p.cp.start as u64, (p.cp.start + BLOCKS_PER_SEG) as u64);
        Ok(())
    }
}

impl F2fs {
    /// The flags of the tail: it is durable when it is written, and everything it vouches for is durable
    /// before it.
    fn tail_flags(&self) -> BioFlags {
        if self.planted.is(PlantedBug::MissingFlush) {
            return BioFlags::FUA;
        }
        BioFlags::PREFLUSH | BioFlags::FUA
    }
}

/// The blocks of a checkpoint on their way to the device.
struct Pack {
    cp: Checkpoint,
    /// Head, payload, orphans, summaries.
    blocks: Vec<PageBuf>,
    tail: PageBuf,
    /// Blocks for the end of the pack's segment.
    nat_bits: Vec<PageBuf>,
}

/// The key that nat_bits begin with when they belong to checkpoint `cp`.
pub(crate) fn nat_bits_key(cp: &Checkpoint) -> u64 {
    cp.version() | (cp.crc as u64) << 32
}

fn set_log(r: &mut RawCheckpoint, i: usize, c: &Curseg) -> Result<()> {
    if c.next_blkoff >= BLOCKS_PER_SEG as usize {
        return Err(Error::new(ErrorKind::NoSpace, "no segment is left for the next log block"));
    }
    let off = c.next_blkoff as u16;
    if i < NR_CURSEG_DATA_TYPE {
        (r.cur_data_segno[i], r.cur_data_blkoff[i]) = (c.segno.0.into(), off.into());
    } else {
        (r.cur_node_segno[i - 3], r.cur_node_blkoff[i - 3]) = (c.segno.0.into(), off.into());
    }
    r.alloc_type[i] = c.ssr as u8;
    Ok(())
}
