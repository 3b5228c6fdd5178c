//! Where the areas of a volume lie, from its size alone.

use super::overprovision::{self, Overprovision};
use super::superblock::segments_of_devices;
use super::{MkfsError, MkfsOptions};
use crate::format::raw::{
    BLOCK_SIZE, BLOCKS_PER_SEG, CP_BITMAP_OFFSET, CP_CHKSUM_OFFSET, ENTRIES_IN_SUM, Features,
    NAT_ENTRY_PER_BLOCK, NR_CURSEG_TYPE, SIT_ENTRY_PER_BLOCK,
};
use crate::format::units::{BlockAddr, SegNo};

const SEG: u64 = BLOCKS_PER_SEG as u64;
/// Largest volume in bytes: 2^32 blocks.
const MAX_BYTES: u64 = 16 << 40;
/// Segments that have addresses. The last of the 2^23 segments stays unused: Linux mounts no volume whose end
/// has no 32-bit address, and the highest addresses mean "new" and "compressed".
const MAX_SEGMENTS: u64 = MAX_BYTES / (SEG * BLOCK_SIZE as u64) - 1;
/// Segments of the checkpoint area: one for each pack.
const CKPT_SEGMENTS: u64 = 2;
/// Bytes of a version bitmap for each segment of one table copy; the bitmap has a bit for each block.
const BITMAP_PER_SEGMENT: u64 = SEG / 8;
/// Room for the version bitmaps in the checkpoint block, in bytes.
const BITMAP_ROOM: u64 = (CP_CHKSUM_OFFSET - CP_BITMAP_OFFSET) as u64;
/// Fewest sections of a main area: six for the logs and as many to clean into.
const MIN_SECTIONS: u64 = 12;

/// The geometry of a volume.
#[derive(Clone, Debug, PartialEq)]
pub struct Layout {
    /// Blocks (4 KiB) of the device.
    pub block_count: u64,
    /// Segments (2 MiB) from `segment0` on.
    pub segment_count: u32,
    /// Segments of the checkpoint area.
    pub segment_count_ckpt: u32,
    /// Segments of both SIT copies.
    pub segment_count_sit: u32,
    /// Segments of both NAT copies.
    pub segment_count_nat: u32,
    /// Segments of the summary area.
    pub segment_count_ssa: u32,
    /// Segments of the main area.
    pub segment_count_main: u32,
    /// Sections of the main area.
    pub section_count: u32,
    /// First block of the first segment, and of the checkpoint area.
    pub segment0: BlockAddr,
    /// First block of the SIT.
    pub sit: BlockAddr,
    /// First block of the NAT.
    pub nat: BlockAddr,
    /// First block of the summary area.
    pub ssa: BlockAddr,
    /// First block of the main area.
    pub main: BlockAddr,
    /// Blocks behind the checkpoint's head that hold the SIT version bitmap; 0 when it fits the head.
    pub cp_payload: u32,
    /// Bytes of the SIT version bitmap.
    pub sit_bitmap_bytes: u32,
    /// Bytes of the NAT version bitmap.
    pub nat_bitmap_bytes: u32,
    /// Share of the main area that is kept from users, in percent.
    pub overprovision_percent: f64,
    /// Segments that are kept from users, the reserve included.
    pub overprovision_segments: u32,
    /// Segments kept for cleaning.
    pub reserved_segments: u32,
    /// Segments that no log has taken.
    pub free_segments: u32,
    /// Blocks that users may fill, with data and nodes.
    pub user_block_count: u64,
    /// Segments the logs begin in: hot, warm, cold data, then hot, warm, cold nodes.
    pub logs: [SegNo; NR_CURSEG_TYPE],
}

/// Segments of each area, and the numbers that follow from them.
struct Areas {
    total: u64,
    sit: u64,
    nat: u64,
    ssa: u64,
    main: u64,
    cp_payload: u64,
}

/// The geometry of a volume of `bytes` bytes. Reads and writes nothing.
///
/// # Errors
/// A size or option that makes no volume.
pub fn layout(bytes: u64, options: &MkfsOptions) -> Result<Layout, MkfsError> {
    layout_on(bytes, options, None)
}

/// The geometry of a volume on a device with zones. Sections are zones and lie on the device's zones.
/// Everything in front of the main area lies in conventional zones.
pub(super) fn layout_on(
    bytes: u64,
    options: &MkfsOptions,
    zones: Option<&DeviceZones>,
) -> Result<Layout, MkfsError> {
    options.check()?;
    if bytes > MAX_BYTES {
        return Err(MkfsError::TooLarge { bytes });
    }
    // The superblocks take the first zone, so that the zones of the main area are the device's zones.
    let zone = options.zone_segments() * SEG;
    let start = zone + zones.map_or(0, |z| z.first % zone);
    let Some(areas) = areas(bytes, options, start) else {
        return Err(too_small(bytes, options, start));
    };
    let main = start + (areas.total - areas.main) * SEG;
    if let Some(z) = zones.filter(|z| z.first < main) {
        return Err(MkfsError::FewConventional { have: z.first, need: main });
    }
    let per = options.segs_per_sec as u64;
    let sections = areas.main / per;
    // Sections in conventional zones have all their segments.
    let conventional = zones.map_or(sections, |z| ((z.first - main) / zone).min(sections));
    let capacity = zones.map_or(zone, |z| z.capacity);
    let usable = conventional * per + (sections - conventional) * (capacity / SEG);
    let partly = conventional * per + (sections - conventional) * capacity.div_ceil(SEG);
    let unit = if zones.is_some() { capacity / SEG } else { per };
    let over = overprovision::choose(usable, unit, options.overprovision_percent)?;
    let mut l = place(bytes, options, &areas, over, start);
    l.free_segments = (partly - NR_CURSEG_TYPE as u64) as u32;
    l.user_block_count = (usable - over.total) * SEG;
    if options.has(Features::BLKZONED) {
        // The logs begin in sections that follow one another.
        l.logs = [3, 5, 4, 0, 1, 2].map(|z| SegNo(z * options.segs_per_sec));
    }
    match segments_of_devices(&l, options).iter().position(|n| *n == 0) {
        Some(n) => Err(MkfsError::ShortDevice(n + 1)),
        None => Ok(l),
    }
}

/// The facts about a device's zones that the layout needs, in blocks.
pub(super) struct DeviceZones {
    /// The first block that must be written in order.
    pub first: u64,
    /// The writable blocks of a zone.
    pub capacity: u64,
}

/// Divides the segments; `None` when they are too few.
fn areas(bytes: u64, options: &MkfsOptions, start: u64) -> Option<Areas> {
    let zone = options.zone_segments();
    let blocks = (bytes / BLOCK_SIZE as u64).min(MAX_SEGMENTS * SEG);
    let total = blocks.checked_sub(start)? / SEG / zone * zone;
    let sit_copy = total.div_ceil(SIT_ENTRY_PER_BLOCK as u64).div_ceil(SEG);
    let sit = 2 * sit_copy;
    let blocks = total.checked_sub(CKPT_SEGMENTS + sit)? * SEG;
    let (nat_limit, cp_payload) = bitmap_room(sit_copy * BITMAP_PER_SEGMENT);
    let nat = 2 * blocks.div_ceil(NAT_ENTRY_PER_BLOCK as u64).div_ceil(SEG).min(nat_limit);
    let summaries = total.checked_sub(CKPT_SEGMENTS + sit + nat)?.div_ceil(ENTRIES_IN_SUM as u64);
    let meta = (CKPT_SEGMENTS + sit + nat + summaries).next_multiple_of(zone);
    let ssa = meta - CKPT_SEGMENTS - sit - nat;
    let main = total.checked_sub(meta)?;
    let enough = main / options.segs_per_sec as u64 >= MIN_SECTIONS && main / zone >= NR_CURSEG_TYPE as u64;
    enough.then_some(Areas { total, sit, nat, ssa, main, cp_payload })
}

/// The segments that one NAT copy may have, and the payload blocks, beside a SIT bitmap of `sit` bytes. A SIT
/// bitmap that leaves no room for the NAT's moves out of the checkpoint's head.
fn bitmap_room(sit: u64) -> (u64, u64) {
    if sit + BITMAP_PER_SEGMENT > BITMAP_ROOM {
        (BITMAP_ROOM / BITMAP_PER_SEGMENT, sit.div_ceil(BLOCK_SIZE as u64))
    } else {
        ((BITMAP_ROOM - sit) / BITMAP_PER_SEGMENT, 0)
    }
}

/// The layout of these areas. Every count fits its type: a volume has fewer than 2^23 segments.
fn place(bytes: u64, options: &MkfsOptions, a: &Areas, over: Overprovision, start: u64) -> Layout {
    let zone = options.zone_segments();
    let at = |segments: u64| BlockAddr((start + segments * SEG) as u32);
    let nat = CKPT_SEGMENTS + a.sit;
    Layout {
        block_count: bytes / BLOCK_SIZE as u64,
        segment_count: a.total as u32,
        segment_count_ckpt: CKPT_SEGMENTS as u32,
        segment_count_sit: a.sit as u32,
        segment_count_nat: a.nat as u32,
        segment_count_ssa: a.ssa as u32,
        segment_count_main: a.main as u32,
        section_count: (a.main / options.segs_per_sec as u64) as u32,
        segment0: at(0),
        sit: at(CKPT_SEGMENTS),
        nat: at(nat),
        ssa: at(nat + a.nat),
        main: at(nat + a.nat + a.ssa),
        cp_payload: a.cp_payload as u32,
        sit_bitmap_bytes: (a.sit / 2 * BITMAP_PER_SEGMENT) as u32,
        nat_bitmap_bytes: (a.nat / 2 * BITMAP_PER_SEGMENT) as u32,
        overprovision_percent: over.percent,
        overprovision_segments: over.total as u32,
        reserved_segments: over.reserved as u32,
        free_segments: (a.main - NR_CURSEG_TYPE as u64) as u32,
        user_block_count: (a.main - over.total) * SEG,
        logs: logs(a.main / zone, zone),
    }
}

/// Chooses a zone for each log: hot data and the nodes in front, warm and cold data with room to grow.
fn logs(zones: u64, zone: u64) -> [SegNo; NR_CURSEG_TYPE] {
    let cold = (zones / 4).saturating_sub(1).max(4);
    let warm = (zones / 2).saturating_sub(1).max(5);
    [3, warm, cold, 0, 1, 2].map(|z| SegNo((z * zone) as u32))
}

/// The error that names the smallest size that works.
fn too_small(bytes: u64, options: &MkfsOptions, start: u64) -> MkfsError {
    let zone_bytes = options.zone_segments() * SEG * BLOCK_SIZE as u64;
    let need = (1..=MAX_BYTES / zone_bytes)
        .map(|zones| zones * zone_bytes)
        .find(|&b| areas(b, options, start).is_some());
    // Where not even the largest volume has enough zones, the zone size is wrong.
    need.map_or(
        MkfsError::BadZone { segs_per_sec: options.segs_per_sec, secs_per_zone: options.secs_per_zone },
        |need| MkfsError::TooSmall { bytes, need },
    )
}

impl Layout {
    /// First block of a segment of the main area.
    pub(super) fn segment_start(&self, segment: SegNo) -> BlockAddr {
        self.main.plus(segment.0 * BLOCKS_PER_SEG)
    }
}
