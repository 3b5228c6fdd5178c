//! The gate from raw bytes to validated values: superblock and checkpoint. What passes here is not
//! checked again, so every bound that later code relies on is established here.

use crate::format::raw::*;
use crate::format::units::BlockAddr;
use tidegate_vfs::{Error, ErrorKind, Result};
use zerocopy::FromBytes;

/// Features that Tidegate reads and writes in full.
pub const SUPPORTED: Features = Features::EXTRA_ATTR
    .union(Features::INODE_CHKSUM)
    .union(Features::FLEXIBLE_INLINE_XATTR)
    .union(Features::INODE_CRTIME)
    .union(Features::SB_CHKSUM)
    .union(Features::LOST_FOUND);

/// Features whose volumes can be read faithfully (what cannot be read is refused file by file), but not
/// changed.
pub const READABLE: Features = Features::ENCRYPT
    .union(Features::ATOMIC_WRITE)
    .union(Features::PRJQUOTA)
    .union(Features::QUOTA_INO)
    .union(Features::VERITY)
    .union(Features::COMPRESSION)
    .union(Features::CASEFOLD)
    .union(Features::RO);

/// Segments that the smallest volume has (`F2FS_MIN_SEGMENTS`).
const MIN_SEGMENTS: u32 = 9;

/// A superblock whose geometry holds together.
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
            .map_err(|_| Error::corrupt("superblock: too short"))?
            .0;
        if raw.magic.get() != F2FS_MAGIC {
            return Err(Error::new(ErrorKind::InvalidArgument, "no f2fs superblock"));
        }
        let features = Features::from_bits_retain(raw.feature.get());
        if features.contains(Features::SB_CHKSUM) {
            let ok = raw.checksum_offset.get() as usize == SB_CRC_OFFSET
                && f2fs_crc32(&block[SUPER_OFFSET..SUPER_OFFSET + SB_CRC_OFFSET]) == raw.crc.get();
            rule(ok, "superblock: the checksum does not match")?;
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
        if raw.devs[1].path[0] != 0 {
            return Err(Error::new(ErrorKind::Unsupported, "a volume over several devices"));
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
        let seg = |n: u32| n as u64 * BLOCKS_PER_SEG as u64;
        let nat = self.nat_blocks as u64 * NAT_ENTRY_PER_BLOCK as u64;
        rule(nat > 4 && nat < u32::MAX as u64, "superblock: segment_count_nat")?;
        self.max_nid = nat as u32;
        self.check_units()?;
        rule(r.segment_count_ckpt.get() == 2, "superblock: segment_count_ckpt is not 2")?;
        rule(self.main_segments > 6, "superblock: segment_count_main")?;
        let areas = [
            (r.segment0_blkaddr.get(), 0, self.cp_blkaddr, "cp_blkaddr"),
            (self.cp_blkaddr, r.segment_count_ckpt.get(), self.sit_blkaddr, "sit_blkaddr"),
            (self.sit_blkaddr, r.segment_count_sit.get(), self.nat_blkaddr, "nat_blkaddr"),
            (self.nat_blkaddr, r.segment_count_nat.get(), self.ssa_blkaddr, "ssa_blkaddr"),
            (self.ssa_blkaddr, r.segment_count_ssa.get(), self.main_blkaddr, "main_blkaddr"),
        ];
        for (start, segments, next, name) in areas {
            rule(
                start as u64 + seg(segments) == next as u64,
                &format!("superblock: {name} is not behind the area before it"),
            )?;
        }
        let end = self.main_blkaddr as u64 + seg(self.main_segments);
        let all = r.segment0_blkaddr.get() as u64 + seg(r.segment_count.get());
        rule(end <= all, "superblock: segment_count ends before the main area")?;
        rule(end <= self.block_count, "superblock: block_count ends before the main area")?;
        rule(end < BlockAddr::COMPRESS.0 as u64, "superblock: more blocks than addresses")?;
        let sits = self.sit_blocks as u64 * SIT_ENTRY_PER_BLOCK as u64;
        rule(sits >= self.main_segments as u64, "superblock: the SIT is too small for the main area")?;
        // A volume packed to be read only keeps no record of who owns its blocks.
        let packed = self.features.contains(Features::RO);
        rule(
            packed || seg(r.segment_count_ssa.get()) >= self.main_segments as u64,
            "superblock: the SSA is too small",
        )?;
        rule(self.cp_payload < BLOCKS_PER_SEG - 10, "superblock: cp_payload")?;
        let inos = [self.root_ino, self.node_ino, self.meta_ino];
        rule(inos == [3, 1, 2], "superblock: root_ino, node_ino, meta_ino are not 3, 1, 2")?;
        rule(
            r.extension_count.get() as usize + r.hot_ext_count as usize <= r.extension_list.len(),
            "superblock: extension_count",
        )?;
        if end > device_blocks {
            let what = format!(
                "the image is cut short: the volume needs {} bytes, the image has {}",
                end * BLOCK_SIZE as u64,
                device_blocks * BLOCK_SIZE as u64
            );
            return Err(Error::new(ErrorKind::Corrupt, what));
        }
        Ok(self)
    }

    /// Sectors, sections and zones, the devices and quota files, as Linux and fsck.f2fs ask for them
    /// (`sanity_check_raw_super`).
    fn check_units(&self) -> Result<()> {
        let r = &self.raw;
        let (sector, per_block) = (r.log_sectorsize.get(), r.log_sectors_per_block.get());
        rule((9..=12).contains(&sector), "superblock: log_sectorsize")?;
        rule(
            per_block == 12 - sector,
            "superblock: log_sectorsize and log_sectors_per_block do not make up a block",
        )?;
        let (segments, sections, zones) =
            (r.segment_count.get(), r.section_count.get(), r.secs_per_zone.get());
        rule(segments >= MIN_SEGMENTS, "superblock: segment_count")?;
        rule(
            segments as u64 <= self.block_count / BLOCKS_PER_SEG as u64,
            "superblock: block_count ends before segment_count segments",
        )?;
        rule(
            sections as u64 * self.segs_per_sec as u64 == self.main_segments as u64 && sections > 0,
            "superblock: section_count and segs_per_sec do not make up segment_count_main",
        )?;
        rule((1..=sections).contains(&zones), "superblock: secs_per_zone")?;
        let first = &r.devs[0];
        rule(
            first.path[0] == 0 || first.total_segments.get() == segments,
            "superblock: devs: the first device has not all segments",
        )?;
        let quota = self.features.contains(Features::QUOTA_INO);
        let is_file = |ino: u32| ino == 0 || quota && ino > self.root_ino && ino < self.max_nid;
        rule(r.qf_ino.iter().all(|i| is_file(i.get())), "superblock: qf_ino")
    }

    /// Whether `addr` is a block of the main area.
    pub fn in_main(&self, addr: BlockAddr) -> bool {
        addr.0 >= self.main_blkaddr && addr.0 - self.main_blkaddr < self.main_segments * BLOCKS_PER_SEG
    }

    /// The volume's name.
    pub fn label(&self) -> String {
        let units: Vec<u16> = self.raw.volume_name.iter().map(|c| c.get()).take_while(|c| *c != 0).collect();
        String::from_utf16_lossy(&units)
    }
}

fn rule(holds: bool, what: &str) -> Result<()> {
    if holds { Ok(()) } else { Err(Error::corrupt(what)) }
}

/// The mkfs names of features, with their bits.
pub fn name_features(f: Features) -> String {
    let names: Vec<String> =
        f.iter_names().map(|(n, v)| format!("\"{}\" ({:#x})", feature_name(n), v.bits())).collect();
    names.join(", ")
}

/// The name that mkfs gives a feature constant.
pub fn feature_name(constant: &str) -> String {
    match constant {
        "PRJQUOTA" => "project_quota".into(),
        "INODE_CHKSUM" => "inode_checksum".into(),
        "SB_CHKSUM" => "sb_checksum".into(),
        "QUOTA_INO" => "quota".into(),
        n => n.to_lowercase(),
    }
}

fn check_features(f: Features) -> Result<()> {
    let unknown = f - SUPPORTED - READABLE;
    if unknown.is_empty() {
        return Ok(());
    }
    let known = unknown & Features::all();
    let rest = unknown - Features::all();
    let mut names = name_features(known);
    if !rest.is_empty() {
        names += &format!("{}{:#x}", if names.is_empty() { "" } else { ", " }, rest.bits());
    }
    Err(Error::new(ErrorKind::Unsupported, format!("f2fs feature {names}")))
}

/// A checkpoint whose pack is whole.
#[derive(Clone)]
pub struct Checkpoint {
    /// The head's fixed part.
    pub raw: Box<RawCheckpoint>,
    /// Flags.
    pub flags: CpFlags,
    /// Which pack it came from: 0 or 1.
    pub pack: u32,
    /// First block of the pack.
    pub start: u32,
    /// The head's checksum.
    pub crc: u32,
    /// Version bitmap of the SIT.
    pub sit_bitmap: Vec<u8>,
    /// Version bitmap of the NAT.
    pub nat_bitmap: Vec<u8>,
    /// Version of the newest pack that was written to its end: the next has a later one.
    pub newest_version: u64,
    /// What is wrong with the other pack, where that is newer and was written to its end: the volume is damaged.
    pub passed_over: Option<String>,
}

/// What footers of nodes carry that were written after a checkpoint, and which bits of it count.
#[derive(Clone, Copy, Debug)]
pub struct NodeStamp {
    version: u64,
    mask: u64,
}

impl NodeStamp {
    /// Whether a footer with this `cp_ver` was written after the checkpoint.
    pub fn is_on(self, cp_ver: u64) -> bool {
        (cp_ver ^ self.version) & self.mask == 0
    }
}

/// A pack that cannot be used.
#[derive(Debug)]
pub struct BadPack {
    /// Why.
    pub error: Error,
    /// Its version, where it was written to its end: it did count.
    pub version: Option<u64>,
}

impl From<Error> for BadPack {
    fn from(error: Error) -> Self {
        BadPack { error, version: None }
    }
}

impl Checkpoint {
    /// The version in the footers of nodes that are written after this checkpoint.
    pub(crate) fn node_version(&self) -> u64 {
        let v = self.version();
        if self.flags.contains(CpFlags::CRC_RECOVERY) { v | (self.crc as u64) << 32 } else { v }
    }

    /// Reads and validates both packs through `read` (a block by its address) and takes the newer. A pack that was
    /// not written to its end is what a power cut leaves. One that was, and says what cannot be, is damage: then
    /// the other is taken, with [`Checkpoint::passed_over`] set.
    ///
    /// # Errors
    /// `Corrupt` when neither can be used.
    pub fn load(sb: &Superblock, mut read: impl FnMut(u32) -> Result<Vec<u8>>) -> Result<Checkpoint> {
        let [a, b] = [0, 1].map(|n| Self::load_pack(sb, n, &mut read));
        // Versions wrap: the newer is the one that is ahead.
        let newer = |of: u64, than: u64| (of.wrapping_sub(than) as i64) > 0;
        match (a, b) {
            (Ok(a), Ok(b)) => Ok(if newer(b.version(), a.version()) { b } else { a }),
            (Ok(mut cp), Err(bad)) | (Err(bad), Ok(mut cp)) => {
                // Of two with one version the first counts; sload.f2fs leaves such packs.
                let counts = |v| newer(v, cp.version()) || cp.pack == 1 && v == cp.version();
                if let Some(version) = bad.version.filter(|v| counts(*v)) {
                    cp.passed_over = Some(bad.error.to_string());
                    cp.newest_version = version;
                }
                Ok(cp)
            }
            (Err(a), Err(b)) => {
                let b_is_newest = match (a.version, b.version) {
                    (Some(x), Some(y)) => newer(y, x),
                    (None, Some(_)) => true,
                    _ => false,
                };
                Err(if b_is_newest { b.error } else { a.error })
            }
        }
    }

    /// Reads and validates one pack.
    ///
    /// # Errors
    /// What is wrong with it, and the version of a pack that was written to its end.
    pub fn load_pack(
        sb: &Superblock,
        pack: u32,
        read: &mut impl FnMut(u32) -> Result<Vec<u8>>,
    ) -> std::result::Result<Checkpoint, BadPack> {
        let (raw, crc, head) = Self::load_head(sb, pack, read)?;
        let version = Some(raw.checkpoint_ver.get());
        Self::validated(sb, pack, (raw, crc, head), read).map_err(|error| BadPack { error, version })
    }

    /// Reads a pack's head, and its tail, which must be of one version.
    fn load_head(
        sb: &Superblock,
        pack: u32,
        read: &mut impl FnMut(u32) -> Result<Vec<u8>>,
    ) -> Result<(RawCheckpoint, u32, Vec<u8>)> {
        let start = sb.cp_blkaddr + pack * BLOCKS_PER_SEG;
        let bad = |what: &str| Error::corrupt(format!("checkpoint pack {pack} (block {start}): {what}"));
        let head = read(start)?;
        let (raw, crc) = parse_head(&head).ok_or_else(|| bad("the head's checksum does not match"))?;
        let total = raw.cp_pack_total_block_count.get();
        if total < 2 + sb.cp_payload || total > BLOCKS_PER_SEG {
            return Err(bad("cp_pack_total_block_count"));
        }
        let tail = read(start + total - 1)?;
        let tail_version = parse_head(&tail).map(|(t, _)| t.checkpoint_ver);
        if tail_version != Some(raw.checkpoint_ver) {
            return Err(bad("head and tail do not agree: it was not written to its end"));
        }
        Ok((raw, crc, head))
    }

    fn validated(
        sb: &Superblock,
        pack: u32,
        (raw, crc, head): (RawCheckpoint, u32, Vec<u8>),
        read: &mut impl FnMut(u32) -> Result<Vec<u8>>,
    ) -> Result<Checkpoint> {
        let start = sb.cp_blkaddr + pack * BLOCKS_PER_SEG;
        let bad = |what: &str| Error::corrupt(format!("checkpoint pack {pack} (block {start}): {what}"));
        let flags = CpFlags::from_bits_retain(raw.ckpt_flags.get());
        let (sit, nat) = bitmaps(sb, &raw, flags, &head, |n| read(start + 1 + n))?
            .ok_or_else(|| bad("the version bitmaps do not fit"))?;
        let raw = Box::new(raw);
        let cp = Checkpoint {
            newest_version: raw.checkpoint_ver.get(),
            raw,
            flags,
            pack,
            start,
            crc,
            sit_bitmap: sit,
            nat_bitmap: nat,
            passed_over: None,
        };
        cp.validate(sb).map_err(|what| bad(&what))?;
        Ok(cp)
    }

    fn validate(&self, sb: &Superblock) -> std::result::Result<(), String> {
        let r = &self.raw;
        let fail = |what: &str| Err(what.to_string());
        if self.sit_bitmap.len() * 8 != sb.sit_blocks as usize
            || self.nat_bitmap.len() * 8 != sb.nat_blocks as usize
        {
            return fail("the version bitmaps are not of the size of SIT and NAT");
        }
        for i in 0..NR_CURSEG_DATA_TYPE {
            let logs =
                [(r.cur_node_segno[i], r.cur_node_blkoff[i]), (r.cur_data_segno[i], r.cur_data_blkoff[i])];
            if logs.iter().any(|(s, o)| s.get() >= sb.main_segments || o.get() as u32 >= BLOCKS_PER_SEG) {
                return fail("a current segment lies outside the main area");
            }
        }
        let mut segs: Vec<u32> =
            (0..3).flat_map(|i| [r.cur_node_segno[i].get(), r.cur_data_segno[i].get()]).collect();
        segs.sort_unstable();
        if segs.windows(2).any(|w| w[0] == w[1]) && !sb.features.contains(Features::RO) {
            return fail("two logs share a segment");
        }
        let blocks = sb.main_segments as u64 * BLOCKS_PER_SEG as u64;
        let user = r.user_block_count.get();
        if user == 0 || user > blocks || r.valid_block_count.get() > user {
            return fail("user_block_count or valid_block_count");
        }
        let (reserved, overprovision) = (r.rsvd_segment_count.get(), r.overprov_segment_count.get());
        let none = reserved == 0 || overprovision == 0;
        if reserved > sb.main_segments || none && !sb.features.contains(Features::RO) {
            return fail("rsvd_segment_count or overprov_segment_count");
        }
        if r.valid_node_count.get() as u64 > r.valid_block_count.get()
            || r.valid_inode_count.get() > r.valid_node_count.get()
        {
            return fail("valid_node_count or valid_inode_count");
        }
        if r.free_segment_count.get() > sb.main_segments || overprovision > sb.main_segments {
            return fail("free_segment_count or overprov_segment_count");
        }
        if r.next_free_nid.get() >= sb.max_nid {
            return fail("next_free_nid");
        }
        let (start, total) = (r.cp_pack_start_sum.get(), r.cp_pack_total_block_count.get());
        if start < 1 + sb.cp_payload || start >= total {
            return fail("cp_pack_start_sum");
        }
        let data_sums = if self.flags.contains(CpFlags::COMPACT_SUM) { 1 } else { 3 };
        let node_sums = if self.has_node_summaries() { 3 } else { 0 };
        if start + data_sums + node_sums + 1 > total {
            return fail("the pack is too small for its summaries");
        }
        Ok(())
    }

    /// Whether the pack holds node summaries.
    pub fn has_node_summaries(&self) -> bool {
        self.flags.intersects(CpFlags::UMOUNT | CpFlags::FASTBOOT)
    }

    /// Where the chain of fsynced nodes begins, if there is one: where the warm node log goes on.
    pub fn chain_start(&self, sb: &Superblock) -> BlockAddr {
        let (segno, off) = (self.raw.cur_node_segno[1].get(), self.raw.cur_node_blkoff[1].get() as u32);
        BlockAddr(sb.main_blkaddr + segno * BLOCKS_PER_SEG + off)
    }

    /// What nodes carry that were written after this checkpoint.
    pub fn node_stamp(&self) -> NodeStamp {
        // fsck.f2fs leaves a checkpoint whose CRC no node knows of.
        let any_crc = self.flags.contains(CpFlags::NOCRC_RECOVERY);
        let mask = if any_crc { u64::from(u32::MAX) } else { u64::MAX };
        NodeStamp { version: self.node_version(), mask }
    }

    /// Version.
    pub fn version(&self) -> u64 {
        self.raw.checkpoint_ver.get()
    }
}

fn parse_head(block: &[u8]) -> Option<(RawCheckpoint, u32)> {
    let raw = RawCheckpoint::read_from_prefix(block).ok()?.0;
    let offset = raw.checksum_offset.get() as usize;
    if !(CP_MIN_CHKSUM_OFFSET..=CP_CHKSUM_OFFSET).contains(&offset) {
        return None;
    }
    let stored = le32(block, offset);
    (stored == checkpoint_crc(block, offset)).then_some((raw, stored))
}

type Bitmaps = Option<(Vec<u8>, Vec<u8>)>;

/// The SIT's and the NAT's version bitmaps, wherever this head keeps them.
fn bitmaps(
    sb: &Superblock,
    raw: &RawCheckpoint,
    flags: CpFlags,
    head: &[u8],
    mut payload: impl FnMut(u32) -> Result<Vec<u8>>,
) -> Result<Bitmaps> {
    let (sit_len, nat_len) =
        (raw.sit_ver_bitmap_bytesize.get() as usize, raw.nat_ver_bitmap_bytesize.get() as usize);
    let cut = |from: usize, len: usize| head.get(from..from.checked_add(len)?).map(<[u8]>::to_vec);
    let base = CP_BITMAP_OFFSET;
    if flags.contains(CpFlags::LARGE_NAT_BITMAP) {
        return Ok(cut(base + 4, nat_len).and_then(|nat| Some((cut(base + 4 + nat_len, sit_len)?, nat))));
    }
    if sb.cp_payload == 0 {
        return Ok(cut(base, sit_len).and_then(|sit| Some((sit, cut(base + sit_len, nat_len)?))));
    }
    if sit_len > sb.cp_payload as usize * BLOCK_SIZE {
        return Ok(None);
    }
    let mut sit = Vec::with_capacity(sit_len);
    for n in 0..sit_len.div_ceil(BLOCK_SIZE) as u32 {
        sit.extend(payload(n)?);
    }
    sit.truncate(sit_len);
    Ok(cut(base, nat_len).map(|nat| (sit, nat)))
}
