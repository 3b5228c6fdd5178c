//! Zones of the device: new blocks lie at a zone's write pointer, and are written there without a gap.
//!
//! A repair moves every block of the main area that it changes, so it writes no zone in place. Where no empty
//! zone is left, it resets a zone that holds nothing in the old and the new checkpoint. All of this is
//! decided before the first write.

use super::Repair;
use super::disk::Changed;
use super::pack::Log;
use crate::format::raw::*;
use crate::format::units::SegNo;
use crate::segment::zones::ZoneMap;
use std::collections::{BTreeMap, BTreeSet};
use tidegate_block::{Bio, BioFlags, Op, RequestQueue, Sector};
use tidegate_vfs::{Error, ErrorKind, Result};

/// The zones as they will be after the repair's writes.
pub(super) struct Zones {
    /// The zones; `written` includes the blocks that the repair has taken.
    map: ZoneMap,
    /// The device's write pointers, in blocks of each section.
    before: Vec<u32>,
    /// Sections that are reset before they are written.
    resets: BTreeSet<u32>,
}

impl Zones {
    /// The zones of the volume's device, if it has any.
    ///
    /// # Errors
    /// `Unsupported` where the zones do not fit the volume, or are too few; those of the device.
    pub(super) fn load(queue: &RequestQueue, sb: &crate::format::gate::Superblock) -> Result<Option<Zones>> {
        let Some(map) = ZoneMap::load(queue, sb)?.filter(ZoneMap::is_on_device) else { return Ok(None) };
        map.check_writable()?;
        Ok(Some(Zones { before: map.written.clone(), map, resets: BTreeSet::new() }))
    }

    /// The block of a section where the repair's writes begin.
    fn begins(&self, section: u32) -> u32 {
        if self.resets.contains(&section) { 0 } else { self.before[section as usize] }
    }

    /// Whether block `n` of a segment is the next that its zone takes.
    fn is_next(&self, segno: u32, n: u32) -> bool {
        let section = self.map.section_of(segno);
        let at = self.map.offset(SegNo(segno), n as usize);
        let is_whole = || !self.map.is_torn(section) || self.resets.contains(&section);
        n < self.map.usable(segno)
            && (!self.map.is_sequential(section) || self.map.written[section as usize] == at && is_whole())
    }
}

impl Repair<'_, '_> {
    /// Blocks of a segment that can be written.
    pub(super) fn usable(&self, segno: u32) -> u32 {
        self.zones.as_ref().map_or(BLOCKS_PER_SEG, |z| z.map.usable(segno))
    }

    /// Whether a segment that can be written holds nothing, and no log is in it.
    pub(super) fn is_empty(&self, segno: u32) -> bool {
        self.usable(segno) > 0
            && self.usage.used.count(segno) == 0
            && self.logs.iter().all(|l| l.segno != segno)
    }

    /// Whether a block of the main area is in a zone that has lost its content.
    pub(super) fn is_lost(&self, addr: u32) -> bool {
        let segno = (addr - self.sb.main_blkaddr) / BLOCKS_PER_SEG;
        self.zones.as_ref().is_some_and(|z| z.map.is_lost(segno))
    }

    /// Whether the device takes block `n` of a segment as its zone's next.
    pub(super) fn takes(&self, segno: u32, n: u32) -> bool {
        self.zones.as_ref().is_none_or(|z| z.is_next(segno, n))
    }

    /// Notes that block `n` of a segment is taken.
    pub(super) fn took(&mut self, segno: u32, n: u32) {
        let Some(z) = &mut self.zones else { return };
        let section = z.map.section_of(segno);
        if z.map.is_sequential(section) {
            z.map.written[section as usize] = z.map.offset(SegNo(segno), n as usize) + 1;
        }
    }

    /// Whether a log can stay where it is: its zone takes the log's next block, and no used block lies
    /// behind.
    pub(super) fn fits_zone(&self, log: Log) -> bool {
        let Some(z) = &self.zones else { return true };
        log.appends
            && self.takes(log.segno, log.next)
            && self.is_unused(log.segno, log.next, z.map.section_of(log.segno))
    }

    /// Whether no block of a section is in use from block `n` of `segno` on.
    fn is_unused(&self, segno: u32, n: u32, section: u32) -> bool {
        let end = (section + 1) * self.sb.segs_per_sec * BLOCKS_PER_SEG;
        (segno * BLOCKS_PER_SEG + n..end).all(|at| !self.usage.used.get(at))
    }

    /// The place where a log goes on: behind the segment that it is in, or in a section that holds nothing.
    pub(super) fn next_in_zones(&mut self, log: Log) -> Option<Log> {
        let per = self.sb.segs_per_sec;
        let next = log.segno + 1;
        let within = !next.is_multiple_of(per)
            && log.next >= self.usable(log.segno)
            && self.takes(next, 0)
            && self.is_unused(next, 0, next / per);
        if within {
            return Some(Log { segno: next, next: 0, appends: true });
        }
        let sections = self.sb.main_segments / per;
        let around = |n: u32| (log.segno / per + n) % sections;
        let free = |s: &u32| self.is_free_section(*s);
        let (mut empty, mut any) =
            ((1..=sections).map(around).filter(free), (1..=sections).map(around).filter(free));
        let is_empty = |s: &u32| self.takes(s * per, 0);
        let section = empty.find(is_empty).or_else(|| any.next())?;
        if !self.takes(section * per, 0)
            && let Some(z) = &mut self.zones
        {
            z.resets.insert(section);
            z.map.written[section as usize] = 0;
        }
        Some(Log { segno: section * per, next: 0, appends: true })
    }

    /// Whether a section is free: neither the last checkpoint nor the walk has a block in it, no log is in
    /// it, and its zone takes writes or can be reset.
    fn is_free_section(&self, section: u32) -> bool {
        let per = self.sb.segs_per_sec;
        self.zones.as_ref().is_none_or(|z| !z.map.is_dead(section))
            && (section * per..(section + 1) * per).all(|s| self.is_free_segment(s))
    }

    /// Writes the changed blocks of the main area.
    ///
    /// # Errors
    /// `NoSpace` before anything is written; those of the device.
    pub(super) fn write_zones(&mut self, mut changed: BTreeMap<u32, Changed>) -> Result<()> {
        let Some(z) = self.zones.take() else { return Ok(()) };
        let (size, main) = (self.sb.segs_per_sec * BLOCKS_PER_SEG, self.sb.main_blkaddr);
        for section in &z.resets {
            let mut blocks = section * size..(section + 1) * size;
            if blocks.any(|n| self.usage.used.get(n) && !changed.contains_key(&(main + n))) {
                return Err(Error::new(ErrorKind::NoSpace, "no zone without content for the repair"));
            }
        }
        let finished = self.to_finish(&z)?;
        let finished = finished.iter().map(|s| (*s, Op::ZoneFinish));
        for (section, op) in finished.chain(z.resets.iter().map(|s| (*s, Op::ZoneReset))) {
            self.disk.manage_zone(op, main + section * size, size)?;
        }
        for section in 0..z.map.sections() {
            let start = main + section * size;
            let behind = changed.split_off(&(start + size));
            let blocks = std::mem::replace(&mut changed, behind);
            match z.map.is_sequential(section) {
                true => self.write_zone(
                    start + z.begins(section),
                    start + z.map.written[section as usize],
                    blocks,
                )?,
                false => {
                    blocks
                        .iter()
                        .try_for_each(|(at, c)| self.disk.write(*at, &c.block[..], BioFlags::empty()))?;
                }
            }
        }
        self.zones = Some(z);
        Ok(())
    }

    /// Writes a zone from its write pointer to `end`; zeros where a block was taken and then not needed.
    fn write_zone(&mut self, pointer: u32, end: u32, blocks: BTreeMap<u32, Changed>) -> Result<()> {
        let mut next = pointer;
        for (addr, c) in blocks {
            self.write_zeros(next, addr)?;
            self.disk.write(addr, &c.block[..], BioFlags::empty())?;
            next = addr + 1;
        }
        self.write_zeros(next, end)
    }

    fn write_zeros(&mut self, from: u32, to: u32) -> Result<()> {
        (from..to).try_for_each(|addr| self.disk.write(addr, &[0; BLOCK_SIZE], BioFlags::empty()))
    }

    /// Zones to finish, so that no more zones are active than the device allows: zones that no log is in any
    /// more.
    fn to_finish(&self, z: &Zones) -> Result<Vec<u32>> {
        let begun = |s: &u32| z.map.is_sequential(*s) && z.begins(*s) == 0 && z.map.written[*s as usize] > 0;
        let opened = (0..z.map.sections()).filter(begun).count();
        let over = (z.map.active.len() + opened).saturating_sub(z.map.max_active);
        // A zone that the repair is still to write must not be finished before.
        let left = |s: &&u32| {
            !self.logs.iter().any(|l| z.map.section_of(l.segno) == **s)
                && !z.resets.contains(*s)
                && z.map.written[**s as usize] == z.begins(**s)
        };
        let finished: Vec<u32> = z.map.active.iter().filter(left).take(over).copied().collect();
        if finished.len() < over {
            let what = "more zones would be partly written than the device takes";
            return Err(Error::new(ErrorKind::NoSpace, what));
        }
        Ok(finished)
    }
}

impl super::disk::Disk<'_> {
    /// Resets or finishes the zone of `blocks` blocks from `first` on.
    ///
    /// # Errors
    /// Those of the device.
    fn manage_zone(&mut self, op: Op, first: u32, blocks: u32) -> Result<()> {
        self.forget();
        let bio = Bio::range(
            op,
            Sector(u64::from(first) * 8),
            u64::from(blocks) * BLOCK_SIZE as u64,
            BioFlags::SYNC,
        );
        let done = self.queue().submit_wait(bio);
        done.map(drop).map_err(|e| Error::device(e, format!("{op:?} at block {first}")))
    }
}
