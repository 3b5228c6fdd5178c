//! Facts about a volume, for `tidegate info`.

use crate::format::gate::name_features;
use crate::format::raw::*;
use crate::format::units::SegNo;
use crate::segment::log::Log;
use crate::volume::sbi::F2fs;
use tidegate_vfs::Result;

/// A volume's superblock, checkpoint and segments in plain values.
#[derive(Clone, Debug, Default)]
pub struct VolumeInfo {
    /// UUID as it is stored.
    pub uuid: [u8; 16],
    /// Name.
    pub label: String,
    /// Format version.
    pub version: (u16, u16),
    /// Features, with their bits.
    pub features: String,
    /// Blocks of the volume, 4096 bytes each.
    pub block_count: u64,
    /// First blocks of the areas: checkpoint, SIT, NAT, SSA, main.
    pub areas: [(&'static str, u32); 5],
    /// Segments in the main area, 2 MiB each.
    pub main_segments: u32,
    /// Segments in a section.
    pub segs_per_sec: u32,
    /// The system that made it, in its own words.
    pub made_by: String,
    /// Version of the current checkpoint.
    pub checkpoint_version: u64,
    /// The pack that holds the checkpoint.
    pub checkpoint_pack: u32,
    /// The checkpoint's flags, by name.
    pub checkpoint_flags: Vec<String>,
    /// Blocks for files and directories.
    pub user_blocks: u64,
    /// Blocks in use.
    pub valid_blocks: u64,
    /// Nodes in use.
    pub valid_nodes: u32,
    /// Inodes in use.
    pub valid_inodes: u32,
    /// Segments kept for cleaning.
    pub overprovision_segments: u32,
    /// Segments reserved.
    pub reserved_segments: u32,
    /// Wholly free segments.
    pub free_segments: u32,
    /// Segments that the next checkpoint frees.
    pub prefree_segments: u32,
    /// Segments with some valid blocks, and some not.
    pub dirty_segments: u32,
    /// Segments with nothing but valid blocks.
    pub full_segments: u32,
    /// Segments in use by the log that wrote them: name, segments, valid blocks.
    pub by_log: [(&'static str, u32, u64); NR_CURSEG_TYPE],
    /// The place of each log: segment, next block in it, whether it fills holes.
    pub logs: [(&'static str, u32, u32, bool); NR_CURSEG_TYPE],
    /// The place of each open extra stream: its number within its kind, segment, next block in it.
    pub streams: Vec<(&'static str, u8, u32, u32)>,
    /// Extra streams that could be opened with the present free segments.
    pub streams_to_spare: u32,
    /// The devices of a volume on several, as its superblock lists them: the path and the bytes of each.
    pub devices: Vec<(String, u64)>,
    /// The sections of a volume on zones.
    pub zones: Option<ZonesInfo>,
    /// Unlinked inodes that still exist.
    pub orphans: u32,
    /// NAT entries in the journal.
    pub nat_journal: u32,
    /// SIT entries in the journal.
    pub sit_journal: u32,
}

/// The sections of a volume on zones.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ZonesInfo {
    /// Sections of the main area.
    pub sections: u32,
    /// Sections that the device has written in order.
    pub sequential: u32,
    /// Writable blocks of such a section.
    pub capacity: u32,
    /// Sections that a log can go to: wholly free, with a zone that was reset.
    pub ready: u32,
    /// Sections whose zones are dead.
    pub dead: usize,
    /// Most zones that may be active at once, if the device reports a limit.
    pub max_active: Option<usize>,
}

const LOG_NAMES: [&str; NR_CURSEG_TYPE] =
    ["hot data", "warm data", "cold data", "hot node", "warm node", "cold node"];

fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

impl F2fs {
    /// Superblock, checkpoint and segments. Reads the whole SIT.
    ///
    /// # Errors
    /// Those of reading the SIT.
    pub fn info(&self) -> Result<VolumeInfo> {
        let r = &self.sb.raw;
        let cp = self.ckpt.lock().cp.clone();
        let counts = *self.counts.lock();
        let orphans = self.orphans.lock().len() as u32;
        let nat_journal = self.nat.with(|n| n.journal.len() as u32);
        let sit_journal = self.sit.with(|s| s.journal.len() as u32);
        let mut v = VolumeInfo {
            uuid: r.uuid,
            label: self.sb.label(),
            version: (r.major_ver.get(), r.minor_ver.get()),
            features: name_features(self.sb.features),
            block_count: self.sb.block_count,
            areas: [
                ("checkpoint", self.sb.cp_blkaddr),
                ("sit", self.sb.sit_blkaddr),
                ("nat", self.sb.nat_blkaddr),
                ("ssa", self.sb.ssa_blkaddr),
                ("main", self.sb.main_blkaddr),
            ],
            main_segments: self.sb.main_segments,
            segs_per_sec: self.sb.segs_per_sec,
            made_by: text(&r.init_version),
            devices: self.sb.devices(),
            checkpoint_version: cp.version(),
            checkpoint_pack: cp.pack,
            checkpoint_flags: cp.flags.iter_names().map(|f| f.0.to_lowercase()).collect(),
            user_blocks: counts.user_blocks,
            valid_blocks: counts.valid_blocks,
            valid_nodes: counts.valid_nodes,
            valid_inodes: counts.valid_inodes,
            overprovision_segments: cp.raw.overprov_segment_count.get(),
            reserved_segments: cp.raw.rsvd_segment_count.get(),
            orphans,
            nat_journal,
            sit_journal,
            ..Default::default()
        };
        (v.free_segments, v.prefree_segments) = self.sit.with(|s| (s.free().free, s.free().prefree));
        for (i, log) in Log::ALL.into_iter().enumerate() {
            let c = self.cursegs.lock(log);
            v.logs[i] = (LOG_NAMES[i], c.segno.0, c.next_blkoff as u32, c.ssr);
            v.by_log[i].0 = LOG_NAMES[i];
        }
        for log in self.cursegs.open_streams() {
            let c = self.cursegs.lock(log);
            v.streams.push((LOG_NAMES[log.kind as usize], log.stream, c.segno.0, c.next_blkoff as u32));
        }
        v.streams_to_spare = self.streams_to_spare()?;
        v.zones = self.sit.zones.as_ref().map(|z| ZonesInfo {
            sections: z.sections(),
            sequential: z.sequential(),
            capacity: z.capacity(),
            ready: self.sit.free_segments().free / z.segments_in(z.sections()).max(1),
            dead: z.dead(),
            max_active: Some(z.max_active).filter(|n| *n < usize::MAX),
        });
        for n in 0..self.sb.main_segments {
            let e = self.sit.get(SegNo(n))?;
            match e.valid as u32 {
                0 => continue,
                BLOCKS_PER_SEG => v.full_segments += 1,
                _ => v.dirty_segments += 1,
            }
            let by = &mut v.by_log[e.log as usize];
            by.1 += 1;
            by.2 += e.valid as u64;
        }
        Ok(v)
    }
}
