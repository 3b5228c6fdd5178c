//! A small volume with some of everything, damaged by patches, then opened, walked, read and changed. The
//! tests and the fuzz target share this part.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use tidegate_block::{Device, MemoryDevice, QueueLimits, RequestQueue};
use tidegate_f2fs::check::{CheckOptions, check};
use tidegate_f2fs::gate::{Checkpoint, Superblock};
use tidegate_f2fs::mkfs::{MkfsOptions, mkfs};
use tidegate_f2fs::raw::*;
use tidegate_f2fs::{F2fs, F2fsOptions};
use tidegate_rt::Timespec;
use tidegate_testing::exercise::{Seen, fill_attrs, fill_files, write_new};
use tidegate_vfs::*;
use zerocopy::FromBytes;

const ROOT: &Cred = &Cred::ROOT;
const RW: OpenFlags = OpenFlags::READ.union(OpenFlags::WRITE);
const SIZE: u64 = 64 << 20;
const PIECE: usize = BLOCK_SIZE;

/// Bytes to write at a byte offset of the volume.
pub type Patch = (u64, Vec<u8>);

/// A filled volume and the places of its parts.
pub struct Sample {
    /// The blocks that are not zero.
    blocks: BTreeMap<u64, Vec<u8>>,
    pub sb: Superblock,
    pub cp: Checkpoint,
    /// Inode numbers by name.
    pub inos: BTreeMap<&'static str, u32>,
    /// The block of each node in use.
    pub nodes: BTreeMap<u32, u32>,
}

/// The state in which the volume was left.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// Unmounted.
    Clean,
    /// Synced, with an open file that has no name any more.
    WithOrphans,
}

fn queue(device: Arc<dyn Device>) -> Arc<RequestQueue> {
    Arc::new(RequestQueue::new(device, QueueLimits::default()))
}

/// Opens and mounts a volume; nothing depends on the clock, so that a case runs alike each time.
pub fn mount(device: Arc<dyn Device>) -> Result<Arc<Vfs>> {
    let bdi = Bdi::new(MemoryLimits::default());
    let options = F2fsOptions { deterministic: true, ..Default::default() };
    let fs = F2fs::open(queue(device), bdi.clone(), options)?;
    let time = Some(Timespec { secs: 1_700_000_000, nanos: 7 });
    Vfs::mount(fs, bdi, MountOptions { fixed_time: time, no_periodic_writeback: true, ..Default::default() })
}

impl Sample {
    /// Makes and fills a volume.
    pub fn build(features: Features, left: Left) -> Sample {
        let device = Arc::new(MemoryDevice::new(SIZE));
        let options = MkfsOptions {
            uuid: Some([7; 16]),
            features,
            time: Timespec { secs: 1_600_000_000, nanos: 1 },
            ..Default::default()
        };
        mkfs(&queue(device.clone()), &options).unwrap();
        let v = mount(device.clone()).unwrap();
        let top = v.root().unwrap();
        fill_files(&v, &top);
        v.sync().unwrap();
        fill_attrs(&v, &top);
        let inos = Self::names(&v);
        if left == Left::Clean {
            drop(top);
            v.unmount().unwrap();
            return Self::of(&device, inos);
        }
        let gone = write_new(&v, &top, "gone", &[(0, 50_000)]);
        let open = v.open(ROOT, &gone, RW).unwrap();
        v.unlink(ROOT, &top, b"gone").unwrap();
        v.sync().unwrap();
        let sample = Self::of(&device, inos);
        drop(open);
        sample
    }

    fn names(v: &Arc<Vfs>) -> BTreeMap<&'static str, u32> {
        let names = [
            "inline",
            "blocks-0",
            "holes",
            "linked",
            "short-link",
            "long-link",
            "inline-dir",
            "block-dir",
            "attrs",
        ];
        let ino = |n: &str| v.resolve(ROOT, format!("/{n}").as_bytes(), false).unwrap().ino.0 as u32;
        names.iter().map(|n| (*n, ino(n))).chain([("root", 3)]).collect()
    }

    fn of(device: &MemoryDevice, inos: BTreeMap<&'static str, u32>) -> Sample {
        let mut blocks = BTreeMap::new();
        for at in (0..SIZE).step_by(PIECE) {
            let block = read(device, at, PIECE);
            if block.iter().any(|&b| b != 0) {
                blocks.insert(at, block);
            }
        }
        let sb = Superblock::parse(&read(device, 0, BLOCK_SIZE), SIZE / BLOCK_SIZE as u64).unwrap();
        let cp = Checkpoint::load(&sb, |a| Ok(block(device, a))).unwrap();
        let nodes = nodes(device, &sb, &cp);
        Sample { blocks, sb, cp, inos, nodes }
    }

    /// A separate device with the volume on it.
    pub fn device(&self) -> Arc<MemoryDevice> {
        let device = MemoryDevice::new(SIZE);
        for (at, block) in &self.blocks {
            device.write_at(*at, block);
        }
        Arc::new(device)
    }

    /// The volume with patches; with `fix`, checksums are corrected afterwards.
    pub fn damaged(&self, patches: &[Patch], fix: bool) -> Arc<MemoryDevice> {
        let device = self.device();
        for (at, bytes) in patches.iter().filter(|(at, b)| at + b.len() as u64 <= SIZE) {
            device.write_at(*at, bytes);
        }
        if fix {
            fix_superblocks(&device);
            fix_checkpoints(&device, &self.sb);
        }
        device
    }

    /// A block without damage.
    pub fn block(&self, at: u32) -> Vec<u8> {
        self.blocks.get(&(at as u64 * BLOCK_SIZE as u64)).cloned().unwrap_or(vec![0; BLOCK_SIZE])
    }

    /// Blocks in use in a range.
    pub fn used(&self, range: std::ops::Range<u32>) -> Vec<u32> {
        let bytes = range.start as u64 * BLOCK_SIZE as u64..range.end as u64 * BLOCK_SIZE as u64;
        self.blocks.range(bytes).map(|(at, _)| (at / BLOCK_SIZE as u64) as u32).collect()
    }

    /// A word of a block.
    pub fn word(&self, block: u32, at: usize) -> u32 {
        word(&self.block(block), at)
    }
}

fn read(device: &MemoryDevice, at: u64, len: usize) -> Vec<u8> {
    let mut b = vec![0; len];
    device.read_at(at, &mut b);
    b
}

fn block(device: &MemoryDevice, at: u32) -> Vec<u8> {
    read(device, at as u64 * BLOCK_SIZE as u64, BLOCK_SIZE)
}

fn word(b: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(*b[at..].first_chunk().unwrap())
}

/// The node table: the current blocks, then the journal over them.
fn nodes(device: &MemoryDevice, sb: &Superblock, cp: &Checkpoint) -> BTreeMap<u32, u32> {
    let mut found = BTreeMap::new();
    for n in 0..sb.nat_blocks {
        let pair = sb.nat_blkaddr + n / BLOCKS_PER_SEG * 2 * BLOCKS_PER_SEG + n % BLOCKS_PER_SEG;
        let second = test_bit_msb(&cp.nat_bitmap, n as usize);
        let b = block(device, pair + if second { BLOCKS_PER_SEG } else { 0 });
        for i in 0..NAT_ENTRY_PER_BLOCK {
            found.insert(n * NAT_ENTRY_PER_BLOCK as u32 + i as u32, word(&b, i * 9 + 5));
        }
    }
    let sum = block(device, cp.start + cp.raw.cp_pack_start_sum.get());
    let at = if cp.flags.contains(CpFlags::COMPACT_SUM) { 0 } else { ENTRIES_IN_SUM * SUMMARY_SIZE };
    for i in 0..u16::from_le_bytes([sum[at], sum[at + 1]]) as usize {
        found.insert(word(&sum, at + 2 + i * 13), word(&sum, at + 2 + i * 13 + 9));
    }
    found.retain(|nid, addr| *nid > 2 && *addr >= sb.main_blkaddr && *addr < u32::MAX - 2);
    found
}

fn fix_superblocks(device: &MemoryDevice) {
    for n in 0..2 {
        let at = n * BLOCK_SIZE as u64 + SUPER_OFFSET as u64;
        let crc = f2fs_crc32(&read(device, at, SB_CRC_OFFSET));
        device.write_at(at + SB_CRC_OFFSET as u64, &crc.to_le_bytes());
    }
}

/// Corrects head, tail and nat_bits of both packs, as far as their fields say where these are.
fn fix_checkpoints(device: &MemoryDevice, sb: &Superblock) {
    for start in [sb.cp_blkaddr, sb.cp_blkaddr + BLOCKS_PER_SEG] {
        let head = block(device, start);
        let raw = RawCheckpoint::read_from_prefix(&head).unwrap().0;
        let total = raw.cp_pack_total_block_count.get();
        let Some(crc) = fix_head(device, start) else { continue };
        if (2..=BLOCKS_PER_SEG).contains(&total) {
            fix_head(device, start + total - 1);
        }
        let bits = (8 + sb.nat_blocks as usize / 4).div_ceil(BLOCK_SIZE) as u32;
        let flags = CpFlags::from_bits_retain(raw.ckpt_flags.get());
        if flags.contains(CpFlags::NAT_BITS) && total < BLOCKS_PER_SEG - bits {
            let key = raw.checkpoint_ver.get() | (crc as u64) << 32;
            device.write_at((start + BLOCKS_PER_SEG - bits) as u64 * BLOCK_SIZE as u64, &key.to_le_bytes());
        }
    }
}

fn fix_head(device: &MemoryDevice, at: u32) -> Option<u32> {
    let b = block(device, at);
    let offset = RawCheckpoint::read_from_prefix(&b).ok()?.0.checksum_offset.get() as usize;
    if !(CP_MIN_CHKSUM_OFFSET..=CP_CHKSUM_OFFSET).contains(&offset) {
        return None;
    }
    let crc = checkpoint_crc(&b, offset);
    device.write_at(at as u64 * BLOCK_SIZE as u64 + offset as u64, &crc.to_le_bytes());
    Some(crc)
}

/// All features that do not protect damaged bytes with a checksum.
pub const UNSUMMED: Features = Features::EXTRA_ATTR
    .union(Features::FLEXIBLE_INLINE_XATTR)
    .union(Features::INODE_CRTIME)
    .union(Features::SB_CHKSUM)
    .union(Features::LOST_FOUND);

/// The unmounted volume.
pub fn clean() -> &'static Sample {
    static MADE: OnceLock<Sample> = OnceLock::new();
    MADE.get_or_init(|| Sample::build(UNSUMMED, Left::Clean))
}

/// Reads patches out of `input`: four bytes of offset, one of length, the bytes. Offsets count only blocks in
/// use, so that hardly a patch goes into free space.
pub fn patches(sample: &Sample, mut input: &[u8]) -> Vec<Patch> {
    let blocks = sample.used(0..(SIZE / BLOCK_SIZE as u64) as u32);
    let mut found = Vec::new();
    while let Some((head, rest)) = input.split_first_chunk::<5>() {
        let place = word(head, 0) as usize;
        let block = blocks[(place >> 12) % blocks.len()] as u64 * BLOCK_SIZE as u64;
        let len = (head[4] as usize).min(rest.len()).min(BLOCK_SIZE - place % BLOCK_SIZE);
        found.push((block + (place % BLOCK_SIZE) as u64, rest[..len].to_vec()));
        input = &rest[len..];
    }
    found
}

/// Checks a volume, then mounts it, reads all of it, and changes it.
pub fn exercise(device: Arc<dyn Device>) -> Seen {
    let mut seen = Seen::default();
    seen.keep(check(&queue(device.clone()), CheckOptions::default()));
    seen.go_through(mount(device));
    seen
}

/// Applies the patches that `input` encodes, corrects checksums, and runs [`exercise`] on the volume.
pub fn run(input: &[u8]) {
    let sample = clean();
    exercise(sample.damaged(&patches(sample, input), true));
}
