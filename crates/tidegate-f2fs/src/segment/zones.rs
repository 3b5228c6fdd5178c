//! Sections that are zones of a device (`blkzoned`).
//!
//! Such a volume only ever appends: a log has whole sections to itself, and writes each from its start on
//! without a gap. A log takes a section again only when all of it is free in a durable checkpoint and its
//! zone was reset. Facts: the kernel's documentation of F2FS, mkfs.f2fs's manual, zonedstorage.io.

use crate::format::gate::Superblock;
use crate::format::raw::*;
use crate::format::units::{BlockAddr, SegNo};
use crate::segment::log::{LOG_SLOTS, Log, LogId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use tidegate_block::{Device, RequestQueue, SECTOR_SIZE, Zone, ZoneState};
use tidegate_vfs::{At, Error, ErrorKind, Result};

/// Fewest active zones that a device must allow: one for each log, and one that a log has left.
pub(crate) const MIN_ACTIVE: usize = Log::ALL.len() + 1;

/// The device's zones as sections of a volume, in the state when the volume was opened. The tables of
/// segments and of sections share it.
pub(crate) struct ZoneMap {
    /// Segments in a section.
    per: u32,
    /// Writable blocks of a section that must be written in order.
    capacity: u32,
    /// The first section that must be written in order; earlier sections can be written anywhere.
    first: u32,
    /// Blocks written from each section's start on, a partly written block included; 0 for conventional
    /// zones.
    pub written: Vec<u32>,
    /// Sections whose last written block is only partly written. A power cut leaves them on a device with
    /// smaller blocks.
    torn: BTreeSet<u32>,
    /// Sections whose zones are active, as the device counts them.
    pub active: Vec<u32>,
    /// Most zones that may be active.
    pub max_active: usize,
    /// Sections whose zones are dead.
    dead: Dead,
}

/// Dead zones: the device reports them as read-only or offline. They count as full: no log goes there, and
/// none is reset or finished.
#[derive(Default)]
struct Dead {
    /// The sections of dead zones, and whether they can be read.
    sections: BTreeMap<u32, bool>,
    /// The first byte and the state of the first dead zone.
    first: Option<(u64, ZoneState)>,
}

/// The zones that are active when a volume is opened.
#[derive(Clone, Copy)]
pub(crate) struct ActiveAtOpen<'a> {
    /// Their sections.
    pub sections: &'a [u32],
    /// Most zones that may be active.
    pub most: usize,
}

/// Blocks that are left in each log's section.
pub(crate) struct LeftInSections([AtomicU32; LOG_SLOTS]);

impl Default for LeftInSections {
    fn default() -> Self {
        LeftInSections(std::array::from_fn(|_| AtomicU32::new(0)))
    }
}

impl LeftInSections {
    pub(crate) fn of(&self, log: impl Into<LogId>) -> u32 {
        self.0[log.into().slot()].load(Relaxed)
    }

    pub(crate) fn note(&self, log: LogId, blocks: u32) {
        self.0[log.slot()].store(blocks, Relaxed);
    }
}

impl ZoneMap {
    /// The zones of the device behind `queue`; `None` for a volume without zones. A zoned volume in an image
    /// without zones can be written anywhere, but is written in order all the same.
    ///
    /// # Errors
    /// `Unsupported` where volume and device do not fit together; those of the device.
    pub(crate) fn load(queue: &RequestQueue, sb: &Superblock) -> Result<Option<ZoneMap>> {
        let device = queue.device();
        let zoning = device.info().zones;
        let main = BlockAddr(sb.main_blkaddr).sector().bytes();
        let main_end = main + u64::from(sb.main_segments) * SEGMENT_BYTES;
        if !sb.features.contains(Features::BLKZONED) {
            return match zoning {
                Some(z) if z.first < main_end => {
                    Err(misfit("a volume without blkzoned on zones that are written in order"))
                }
                _ => Ok(None),
            };
        }
        let sections = sb.main_segments / sb.segs_per_sec;
        let mut map = ZoneMap {
            per: sb.segs_per_sec,
            capacity: sb.segs_per_sec * BLOCKS_PER_SEG,
            first: sections,
            written: vec![0; sections as usize],
            torn: BTreeSet::new(),
            active: Vec::new(),
            max_active: usize::MAX,
            dead: Dead::default(),
        };
        let Some(z) = zoning.filter(|z| z.first < main_end) else { return Ok(Some(map)) };
        let section = u64::from(sb.segs_per_sec) * SEGMENT_BYTES;
        if z.size != section || sb.raw.secs_per_zone.get() != 1 {
            return Err(misfit(format!("sections of {section} bytes on zones of {}", z.size)));
        }
        if z.first < main {
            return Err(misfit("metadata in zones that are written in order"));
        }
        if !(z.first - main).is_multiple_of(section) {
            return Err(misfit("sections that do not begin where zones do"));
        }
        map.max_active = z.max_active;
        map.first = ((z.first - main) / section) as u32;
        map.read(&**device, main)?;
        Ok(Some(map))
    }

    /// Refuses a device on which the logs have no room beside each other. The volume can still be read.
    ///
    /// # Errors
    /// `Unsupported`.
    pub(crate) fn check_writable(&self) -> Result<()> {
        let n = self.max_active;
        if n >= MIN_ACTIVE {
            return Ok(());
        }
        Err(misfit(format!("{n} can be partly written at a time, a volume takes {MIN_ACTIVE}")))
    }

    fn read(&mut self, device: &dyn Device, main: u64) -> Result<()> {
        let zones = device.report_zones().map_err(|e| Error::device(e, "reading the device's zones"))?;
        let section = u64::from(self.per) * SEGMENT_BYTES;
        let (mut capacity, mut of_dead) = (None, None);
        for n in self.first..self.written.len() as u32 {
            let start = main + u64::from(n) * section;
            let at = zones.binary_search_by_key(&start, |z| z.start);
            let z: &Zone = &zones[at.map_err(|_| misfit(format!("section {n} on no zone")))?];
            if !z.is_sequential() {
                return Err(misfit(format!(
                    "zone {n} of the main area can be written anywhere, as none before"
                )));
            }
            if z.state.is_dead() {
                of_dead = of_dead.or(Some(z.capacity).filter(|c| *c > 0));
                self.dead.first.get_or_insert((z.start, z.state));
                self.dead.sections.insert(n, z.state == ZoneState::ReadOnly);
                continue;
            }
            // As in Linux, one capacity must hold for all sections.
            if *capacity.get_or_insert(z.capacity) != z.capacity {
                return Err(misfit("zones of several capacities"));
            }
            let written = z.pointer.saturating_sub(start).min(z.capacity);
            self.written[n as usize] = written.div_ceil(BLOCK_SIZE as u64) as u32;
            if !written.is_multiple_of(BLOCK_SIZE as u64) {
                self.torn.insert(n);
            }
            if z.state.is_active() {
                self.active.push(n);
            }
        }
        self.capacity = capacity.or(of_dead).map_or(self.capacity, blocks);
        for n in self.dead.sections.keys() {
            self.written[*n as usize] = self.capacity;
        }
        Ok(())
    }

    /// Whether a section's zone is dead.
    pub(crate) fn is_dead(&self, section: u32) -> bool {
        self.dead.sections.contains_key(&section)
    }

    /// Whether a segment is in a zone that has lost its content.
    pub(crate) fn is_lost(&self, segno: u32) -> bool {
        self.dead.sections.get(&self.section_of(segno)) == Some(&false)
    }

    /// Number of dead zones.
    pub(crate) fn dead(&self) -> usize {
        self.dead.sections.len()
    }

    /// The sentence that names the dead zones, if there are any; with the sector by which the device's tools
    /// name a zone.
    pub(crate) fn why_dead(&self, sb: &Superblock) -> Option<String> {
        let (mut start, state) = self.dead.first?;
        let mut device = String::new();
        for (path, bytes) in sb.devices() {
            if start < bytes {
                device = format!(" of {path}");
                break;
            }
            start -= bytes;
        }
        let state = if state == ZoneState::ReadOnly { "read-only" } else { "offline" };
        let more = match self.dead.sections.len() - 1 {
            0 => String::new(),
            n => format!(", one of {} that take no more writes", n + 1),
        };
        Some(format!("the zone at sector {:#x}{device} is {state}{more}", start / SECTOR_SIZE))
    }

    /// The zones that are active.
    pub(crate) fn active_at_open(&self) -> ActiveAtOpen<'_> {
        ActiveAtOpen { sections: &self.active, most: self.max_active }
    }

    /// The section that a segment is in.
    pub(crate) fn section_of(&self, segno: u32) -> u32 {
        segno / self.per
    }

    /// Whether the device has the section written in order.
    pub(crate) fn is_sequential(&self, section: u32) -> bool {
        section >= self.first
    }

    /// Writable blocks of a section.
    pub(crate) fn usable_in_section(&self, section: u32) -> u32 {
        if self.is_sequential(section) { self.capacity } else { self.per * BLOCKS_PER_SEG }
    }

    /// Writable blocks of a segment: fewer, or none, behind the end of a zone's capacity.
    pub(crate) fn usable(&self, segno: u32) -> u32 {
        let before = segno % self.per * BLOCKS_PER_SEG;
        self.usable_in_section(self.section_of(segno)).saturating_sub(before).min(BLOCKS_PER_SEG)
    }

    /// Fully written blocks of a segment whose zone is written in order.
    pub(crate) fn written_in(&self, segno: u32) -> Option<u32> {
        let section = self.section_of(segno);
        let before = segno % self.per * BLOCKS_PER_SEG;
        let whole = || self.written[section as usize].saturating_sub(u32::from(self.is_torn(section)));
        self.is_sequential(section).then(|| whole().saturating_sub(before).min(BLOCKS_PER_SEG))
    }

    /// Whether a zone's write pointer is within a block: no block can be written to the zone before a reset.
    pub(crate) fn is_torn(&self, section: u32) -> bool {
        self.torn.contains(&section)
    }

    /// Segments of a section that have writable blocks.
    pub(crate) fn segments_in(&self, section: u32) -> u32 {
        self.usable_in_section(section).div_ceil(BLOCKS_PER_SEG)
    }

    /// The offset of a block in its section.
    pub(crate) fn offset(&self, segno: SegNo, off: usize) -> u32 {
        segno.0 % self.per * BLOCKS_PER_SEG + off as u32
    }

    /// Blocks that are left in a log's section.
    pub(crate) fn left(&self, segno: SegNo, off: usize) -> u32 {
        if segno == SegNo::NONE {
            return 0;
        }
        self.usable_in_section(self.section_of(segno.0)).saturating_sub(self.offset(segno, off))
    }

    /// Whether any section is on a zone that the device has written in order.
    pub(crate) fn is_on_device(&self) -> bool {
        self.first < self.sections()
    }

    /// Number of sections.
    pub(crate) fn sections(&self) -> u32 {
        self.written.len() as u32
    }

    /// Number of sections that are written in order.
    pub(crate) fn sequential(&self) -> u32 {
        self.sections() - self.first.min(self.sections())
    }

    /// Writable blocks of all sections.
    pub(crate) fn all_usable(&self) -> u64 {
        let [anywhere, in_order] = [self.sections() - self.sequential(), self.sequential()].map(u64::from);
        anywhere * u64::from(self.per * BLOCKS_PER_SEG) + in_order * u64::from(self.capacity)
    }

    /// The first section that is written in order.
    pub(crate) fn first(&self) -> u32 {
        self.first
    }

    /// Segments of a section.
    pub(crate) fn per(&self) -> u32 {
        self.per
    }

    /// Writable blocks of a section that is written in order.
    pub(crate) fn capacity(&self) -> u32 {
        self.capacity
    }
}

const SEGMENT_BYTES: u64 = BLOCKS_PER_SEG as u64 * BLOCK_SIZE as u64;

fn blocks(bytes: u64) -> u32 {
    (bytes / BLOCK_SIZE as u64) as u32
}

fn misfit(what: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::Unsupported, what).at(At::The("zones of the device"))
}
