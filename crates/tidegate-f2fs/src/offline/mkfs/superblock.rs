//! The superblock.

use super::tree::{META_INO, NODE_INO, ROOT_INO};
use super::{DevicePart, Layout, MkfsOptions};
use crate::format::raw::{
    BLOCK_SIZE, BLOCKS_PER_SEG, F2FS_MAGIC, Features, LOG_BLOCKS_PER_SEG, RawSuperblock, SB_CRC_OFFSET,
    SUPER_OFFSET, f2fs_crc32,
};
use std::mem::offset_of;
use tidegate_block::PageBuf;
use zerocopy::{FromZeros, IntoBytes};

/// Version of the format.
const VERSION: (u16, u16) = (1, 15);
const LOG_SECTOR: u32 = 9;
const LOG_BLOCK: u32 = BLOCK_SIZE.trailing_zeros();
/// Where the UUID lies in blocks 0 and 1.
const UUID_OFFSET: usize = SUPER_OFFSET + offset_of!(RawSuperblock, uuid);

/// The block that holds the superblock.
pub(super) fn superblock(l: &Layout, options: &MkfsOptions, uuid: &[u8; 16]) -> PageBuf {
    let mut sb = geometry(l, options);
    sb.uuid = *uuid;
    sb.feature = options.features.bits().into();
    for (to, unit) in sb.volume_name.iter_mut().zip(options.label.encode_utf16()) {
        *to = unit.into();
    }
    put_extensions(&mut sb, options);
    put_devices(&mut sb, l, options);
    sb.version[..options.version.len()].copy_from_slice(options.version.as_bytes());
    sb.init_version = sb.version;
    if options.has(Features::SB_CHKSUM) {
        sb.checksum_offset = (SB_CRC_OFFSET as u32).into();
        sb.crc = f2fs_crc32(&sb.as_bytes()[..SB_CRC_OFFSET]).into();
    }
    let mut block = PageBuf::zeroed(1);
    block[SUPER_OFFSET..].copy_from_slice(sb.as_bytes());
    block
}

fn geometry(l: &Layout, options: &MkfsOptions) -> RawSuperblock {
    let mut sb = RawSuperblock::new_zeroed();
    sb.magic = F2FS_MAGIC.into();
    (sb.major_ver, sb.minor_ver) = (VERSION.0.into(), VERSION.1.into());
    sb.log_sectorsize = LOG_SECTOR.into();
    sb.log_sectors_per_block = (LOG_BLOCK - LOG_SECTOR).into();
    sb.log_blocksize = LOG_BLOCK.into();
    sb.log_blocks_per_seg = LOG_BLOCKS_PER_SEG.into();
    sb.segs_per_sec = options.segs_per_sec.into();
    sb.secs_per_zone = options.secs_per_zone.into();
    sb.block_count = l.block_count.into();
    sb.section_count = l.section_count.into();
    sb.segment_count = l.segment_count.into();
    sb.segment_count_ckpt = l.segment_count_ckpt.into();
    sb.segment_count_sit = l.segment_count_sit.into();
    sb.segment_count_nat = l.segment_count_nat.into();
    sb.segment_count_ssa = l.segment_count_ssa.into();
    sb.segment_count_main = l.segment_count_main.into();
    (sb.segment0_blkaddr, sb.cp_blkaddr) = (l.segment0.0.into(), l.segment0.0.into());
    sb.sit_blkaddr = l.sit.0.into();
    sb.nat_blkaddr = l.nat.0.into();
    sb.ssa_blkaddr = l.ssa.0.into();
    sb.main_blkaddr = l.main.0.into();
    (sb.root_ino, sb.node_ino, sb.meta_ino) = (ROOT_INO.0.into(), NODE_INO.0.into(), META_INO.0.into());
    sb.cp_payload = l.cp_payload.into();
    sb
}

/// Enters the devices and their segments, if there are several devices.
fn put_devices(sb: &mut RawSuperblock, l: &Layout, options: &MkfsOptions) {
    let parts = options.devices.iter().zip(segments_of_devices(l, options));
    for (slot, (device, segments)) in sb.devs.iter_mut().zip(parts) {
        slot.path[..device.path.len()].copy_from_slice(device.path.as_bytes());
        slot.total_segments = segments.into();
    }
}

/// The segments on each device. The areas in front of the first segment are on the first device, and the
/// space behind the last whole zone is unused.
pub(super) fn segments_of_devices(l: &Layout, options: &MkfsOptions) -> Vec<u32> {
    let segment = u64::from(BLOCKS_PER_SEG) * BLOCK_SIZE as u64;
    let mut before = u64::from(l.segment0.0) * BLOCK_SIZE as u64;
    let mut left = l.segment_count;
    let take = |device: &DevicePart| {
        let segments = device.bytes.saturating_sub(std::mem::take(&mut before)) / segment;
        let segments = left.min(u32::try_from(segments).unwrap_or(u32::MAX));
        left -= segments;
        segments
    };
    options.devices.iter().map(take).collect()
}

/// Enters the cold extensions first, the hot ones behind them.
fn put_extensions(sb: &mut RawSuperblock, options: &MkfsOptions) {
    let all = options.cold_extensions.iter().chain(&options.hot_extensions);
    for (slot, extension) in sb.extension_list.iter_mut().zip(all) {
        slot[..extension.len()].copy_from_slice(extension.as_bytes());
    }
    sb.extension_count = (options.cold_extensions.len() as u32).into();
    sb.hot_ext_count = options.hot_extensions.len() as u8;
}

/// The stand-in for a superblock while mkfs is at work. It cannot be mounted, but has the UUID of the new
/// volume, so that a second attempt recognises the first.
pub(super) fn placeholder(uuid: &[u8; 16]) -> PageBuf {
    let mut block = PageBuf::zeroed(1);
    block[UUID_OFFSET..UUID_OFFSET + 16].copy_from_slice(uuid);
    block
}

/// Whether a block was a superblock, or a placeholder, of the volume `uuid`.
pub(super) fn has_uuid(block: &[u8], uuid: &[u8; 16]) -> bool {
    block[UUID_OFFSET..UUID_OFFSET + 16] == uuid[..]
}
