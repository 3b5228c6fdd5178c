//! Zones of the device: new blocks lie where a zone's next write does, and are written there without a gap.
//!
//! All that a repair changes in the main area moves, so that it needs no zone to be written in place. A zone that
//! holds nothing, before and after, is reset where no empty one is left. All that is decided before the first write.

use super::Repair;
use super::disk::Changed;
use super::pack::Log;
use crate::format::raw::*;
use crate::format::units::SegNo;
use crate::segment::zones::ZoneMap;
use std::collections::{BTreeMap, BTreeSet};
use tidegate_block::{Bio, BioFlags, Op, RequestQueue, Sector};
use tidegate_vfs::{Error, ErrorKind, Result};

/// Zones as they will be behind the repair's writes.
pub(super) struct Zones {
    /// `written` has the blocks that were taken, too.
    map: ZoneMap,
    /// Where the device's write pointers are, in blocks of each section.
    before: Vec<u32>,
    /// Sections that are reset before they are written.
    resets: BTreeSet<u32>,
}

impl Zones {
    /// Those of the volume's device, if it has any.
    ///
    /// # Errors
    /// `Unsupported` where they do not fit the volume, or are too few; those of the device.
    pub(super) fn load(queue: &RequestQueue, sb: &crate::format::gate::Superblock) -> Result<Option<Zones>> {
        let Some(map) = ZoneMap::load(queue, sb)?.filter(ZoneMap::is_on_device) else { return Ok(None) };
        map.check_writable()?;
        Ok(Some(Zones { before: map.written.clone(), map, resets: BTreeSet::new() }))
    }

    /// Where the repair's writes to a section begin, in blocks.
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

    /// Whether a segment that can be written has nothing in it, and no log.
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

    /// Whether the device takes block `n` of a segment next.
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

    /// Whether a log may stand as it does: its zone takes the next block, and nothing lies behind that.
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

    /// The place where a log goes on: behind the segment that it is in, or in a section that nothing is in.
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

    /// Whether nothing is in a section: not in the last checkpoint, nor in what was found, nor a log; and its zone
    /// takes writes or can be reset.
    fn is_free_section(&self, section: u32) -> bool {
        let per = self.sb.segs_per_sec;
        self.zones.as_ref().is_none_or(|z| !z.map.is_dead(section))
            && (section * per..(section + 1) * per).all(|s| self.is_free_segment(s))
    }

    /// Writes what was changed in the main area.
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

    /// Writes all of a zone from its write pointer to `end`; zeros where a block was taken and then of no use.
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

    /// Zones to finish, so that those which are begun are not more than the device lets be partly written: such as no
    /// log is in any more.
    fn to_finish(&self, z: &Zones) -> Result<Vec<u32>> {
        let begun = |s: &u32| z.map.is_sequential(*s) && z.begins(*s) == 0 && z.map.written[*s as usize] > 0;
        let opened = (0..z.map.sections()).filter(begun).count();
        let over = (z.map.active.len() + opened).saturating_sub(z.map.max_active);
        // A zone that is still to be written must not be full by then.
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
    /// Resets or finishes the zone that `blocks` blocks from `first` on are.
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
