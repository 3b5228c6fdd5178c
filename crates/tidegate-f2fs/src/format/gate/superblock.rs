//! The superblock, validated.

use super::features::{READABLE, check_features, name_features};
use super::{size, wide};
use crate::format::raw::*;
use crate::format::units::BlockAddr;
use std::borrow::Cow;
use tidegate_vfs::{At, Error, ErrorKind, Result};
use zerocopy::FromBytes;

/// The place that the errors of this module name.
const SUPERBLOCK: At = At::The("superblock");

fn rule(holds: bool, what: impl Into<Cow<'static, str>>) -> Result<()> {
    super::rule(holds, what).map_err(|e| e.at(SUPERBLOCK))
}

/// Fewest segments of a volume (`F2FS_MIN_SEGMENTS`).
const MIN_SEGMENTS: u32 = 9;

/// A superblock whose geometry is consistent.
#[derive(Clone)]
pub struct Superblock {
    /// The bytes it came from.
    pub raw: Box<RawSuperblock>,
    /// Features.
    pub features: Features,
    /// Features that only allow reading, as text; empty when the volume may be changed.
    pub read_only_features: String,
    /// Blocks of the volume.
    pub block_count: u64,
    /// First block of the checkpoint area.
    pub cp_blkaddr: u32,
    /// First block of the SIT.
    pub sit_blkaddr: u32,
    /// First block of the NAT.
    pub nat_blkaddr: u32,
    /// First block of the SSA.
    pub ssa_blkaddr: u32,
    /// First block of the main area.
    pub main_blkaddr: u32,
    /// Segments in the main area.
    pub main_segments: u32,
    /// Segments in a section.
    pub segs_per_sec: u32,
    /// Blocks of one of the two SIT copies.
    pub sit_blocks: u32,
    /// Blocks of one of the two NAT copies.
    pub nat_blocks: u32,
    /// Node ids: `0..max_nid`.
    pub max_nid: u32,
    /// Blocks of SIT bitmap behind the checkpoint's head.
    pub cp_payload: u32,
    /// Root directory.
    pub root_ino: u32,
    /// The inode whose mapping is the nodes.
    pub node_ino: u32,
    /// The inode whose mapping is the metadata area.
    pub meta_ino: u32,
}

impl Superblock {
    /// Validates the superblock copy in `block` (the volume's block 0 or 1) against a device of
    /// `device_blocks` blocks.
    ///
    /// # Errors
    /// `Corrupt` for broken rules, `Unsupported` for what Tidegate does not know.
    pub fn parse(block: &[u8], device_blocks: u64) -> Result<Superblock> {
        let raw = RawSuperblock::read_from_prefix(&block[SUPER_OFFSET..])
            .map_err(|_| Error::corrupt("too short").at(SUPERBLOCK))?
            .0;
        if raw.magic.get() != F2FS_MAGIC {
            return Err(Error::new(ErrorKind::InvalidArgument, "no f2fs superblock"));
        }
        let features = Features::from_bits_retain(raw.feature.get());
        if features.contains(Features::SB_CHKSUM) {
            let ok = size(raw.checksum_offset.get()) == SB_CRC_OFFSET
                && f2fs_crc32(&block[SUPER_OFFSET..SUPER_OFFSET + SB_CRC_OFFSET]) == raw.crc.get();
            rule(ok, "the checksum does not match")?;
        }
        check_features(features)?;
        if raw.log_blocksize.get() != 12 || raw.log_blocks_per_seg.get() != LOG_BLOCKS_PER_SEG {
            let what = format!(
                "blocks of 2^{} bytes, segments of 2^{} blocks (only 4096-byte blocks in 2 MiB segments are)",
                raw.log_blocksize.get(),
                raw.log_blocks_per_seg.get()
            );
            return Err(Error::new(ErrorKind::Unsupported, what));
        }
        let read_only = features & READABLE;
        let sb = Superblock {
            features,
            read_only_features: name_features(read_only),
            block_count: raw.block_count.get(),
            cp_blkaddr: raw.cp_blkaddr.get(),
            sit_blkaddr: raw.sit_blkaddr.get(),
            nat_blkaddr: raw.nat_blkaddr.get(),
            ssa_blkaddr: raw.ssa_blkaddr.get(),
            main_blkaddr: raw.main_blkaddr.get(),
            main_segments: raw.segment_count_main.get(),
            segs_per_sec: raw.segs_per_sec.get(),
            sit_blocks: raw.segment_count_sit.get().min(1 << 22) / 2 * BLOCKS_PER_SEG,
            nat_blocks: raw.segment_count_nat.get().min(1 << 22) / 2 * BLOCKS_PER_SEG,
            max_nid: 0,
            cp_payload: raw.cp_payload.get(),
            root_ino: raw.root_ino.get(),
            node_ino: raw.node_ino.get(),
            meta_ino: raw.meta_ino.get(),
            raw: Box::new(raw),
        };
        sb.validate(device_blocks)
    }

    fn validate(mut self, device_blocks: u64) -> Result<Superblock> {
        let r = &self.raw;
        let seg = |n: u32| u64::from(n) * u64::from(BLOCKS_PER_SEG);
        let nat = u64::from(self.nat_blocks) * wide(NAT_ENTRY_PER_BLOCK);
        rule(nat > 4 && nat < u64::from(u32::MAX), "segment_count_nat")?;
        self.max_nid = u32::try_from(nat).map_err(|_| Error::corrupt("segment_count_nat").at(SUPERBLOCK))?;
        self.check_units()?;
        rule(r.segment_count_ckpt.get() == 2, "segment_count_ckpt is not 2")?;
        rule(self.main_segments > 6, "segment_count_main")?;
        let areas = [
            (r.segment0_blkaddr.get(), 0, self.cp_blkaddr, "cp_blkaddr"),
            (self.cp_blkaddr, r.segment_count_ckpt.get(), self.sit_blkaddr, "sit_blkaddr"),
            (self.sit_blkaddr, r.segment_count_sit.get(), self.nat_blkaddr, "nat_blkaddr"),
            (self.nat_blkaddr, r.segment_count_nat.get(), self.ssa_blkaddr, "ssa_blkaddr"),
            (self.ssa_blkaddr, r.segment_count_ssa.get(), self.main_blkaddr, "main_blkaddr"),
        ];
        for (start, segments, next, name) in areas {
            rule(
                u64::from(start) + seg(segments) == u64::from(next),
                format!("{name} is not behind the area before it"),
            )?;
        }
        let end = u64::from(self.main_blkaddr) + seg(self.main_segments);
        let all = u64::from(r.segment0_blkaddr.get()) + seg(r.segment_count.get());
        rule(end <= all, "segment_count ends before the main area")?;
        rule(end <= self.block_count, "block_count ends before the main area")?;
        rule(end < u64::from(BlockAddr::COMPRESS.0), "more blocks than addresses")?;
        let sits = u64::from(self.sit_blocks) * wide(SIT_ENTRY_PER_BLOCK);
        rule(sits >= u64::from(self.main_segments), "the SIT is too small for the main area")?;
        // A volume that mkfs packed read-only keeps no record of the owners of its blocks.
        let packed = self.features.contains(Features::RO);
        rule(
            packed || seg(r.segment_count_ssa.get()) >= u64::from(self.main_segments),
            "the SSA is too small",
        )?;
        rule(self.cp_payload < BLOCKS_PER_SEG - 10, "cp_payload")?;
        let inos = [self.root_ino, self.node_ino, self.meta_ino];
        rule(inos == [3, 1, 2], "root_ino, node_ino, meta_ino are not 3, 1, 2")?;
        rule(
            size(r.extension_count.get()) + usize::from(r.hot_ext_count) <= r.extension_list.len(),
            "extension_count",
        )?;
        let devices = r.devs.iter().take_while(|d| d.path[0] != 0).count();
        if end > device_blocks && devices > 1 {
            let what = format!("a volume over {devices} devices, opened without all of them");
            return Err(Error::new(ErrorKind::Unsupported, what));
        }
        if end > device_blocks {
            let what = format!(
                "the image is cut short: the volume needs {} bytes, the image has {}",
                end * wide(BLOCK_SIZE),
                device_blocks * wide(BLOCK_SIZE)
            );
            return Err(Error::new(ErrorKind::Corrupt, what));
        }
        Ok(self)
    }

    /// Checks sectors, sections and zones, the devices and quota files, as Linux and fsck.f2fs do
    /// (`sanity_check_raw_super`).
    fn check_units(&self) -> Result<()> {
        let r = &self.raw;
        let (sector, per_block) = (r.log_sectorsize.get(), r.log_sectors_per_block.get());
        rule((9..=12).contains(&sector), "log_sectorsize")?;
        rule(per_block == 12 - sector, "log_sectorsize and log_sectors_per_block do not make up a block")?;
        let (segments, sections, zones) =
            (r.segment_count.get(), r.section_count.get(), r.secs_per_zone.get());
        rule(segments >= MIN_SEGMENTS, "segment_count")?;
        rule(
            u64::from(segments) <= self.block_count / u64::from(BLOCKS_PER_SEG),
            "block_count ends before segment_count segments",
        )?;
        rule(
            u64::from(sections) * u64::from(self.segs_per_sec) == u64::from(self.main_segments)
                && sections > 0,
            "section_count and segs_per_sec do not make up segment_count_main",
        )?;
        rule((1..=sections).contains(&zones), "secs_per_zone")?;
        let used = r.devs.iter().take_while(|d| d.path[0] != 0);
        let on_devices: u64 = used.map(|d| u64::from(d.total_segments.get())).sum();
        let all = on_devices == u64::from(segments);
        rule(r.devs[0].path[0] == 0 || all, "devs: the devices have not all segments")?;
        let quota = self.features.contains(Features::QUOTA_INO);
        let is_file = |ino: u32| ino == 0 || quota && ino > self.root_ino && ino < self.max_nid;
        rule(r.qf_ino.iter().all(|i| is_file(i.get())), "qf_ino")
    }

    /// Whether `addr` is a block of the main area.
    pub fn in_main(&self, addr: BlockAddr) -> bool {
        addr.0 >= self.main_blkaddr && addr.0 - self.main_blkaddr < self.main_segments * BLOCKS_PER_SEG
    }

    /// The devices of a volume on several, in order: the path of each device and the bytes of it that the
    /// volume takes.
    pub fn devices(&self) -> Vec<(String, u64)> {
        let r = &self.raw;
        let mut before = u64::from(r.segment0_blkaddr.get()) * wide(BLOCK_SIZE);
        let mut all = Vec::new();
        for d in r.devs.iter().take_while(|d| d.path[0] != 0) {
            let end = d.path.iter().position(|b| *b == 0).unwrap_or(d.path.len());
            let blocks = u64::from(d.total_segments.get()) * u64::from(BLOCKS_PER_SEG);
            // The areas in front of the first segment are on the first device.
            let bytes = std::mem::take(&mut before) + blocks * wide(BLOCK_SIZE);
            all.push((String::from_utf8_lossy(&d.path[..end]).into_owned(), bytes));
        }
        if all.len() > 1 { all } else { Vec::new() }
    }

    /// The volume's name.
    pub fn label(&self) -> String {
        let units: Vec<u16> = self.raw.volume_name.iter().map(|c| c.get()).take_while(|c| *c != 0).collect();
        String::from_utf16_lossy(&units)
    }
}
