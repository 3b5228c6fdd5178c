//! Small volumes with some of everything, damaged by patches, then checked, opened, walked, read and changed.
//! The tests and the fuzz target share this part. The volumes have no checksums, which would hide most
//! damage.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use tidegate_block::{Device, MemoryDevice, QueueLimits, RequestQueue};
use tidegate_ext4::check::{CheckOptions, check};
use tidegate_ext4::mkfs::{Features, MkfsOptions, mkfs};
use tidegate_ext4::raw::{Incompat, RawSuperblock, SUPER_OFFSET};
use tidegate_ext4::{Ext4, Ext4Options};
use tidegate_rt::Timespec;
use tidegate_testing::exercise::{Seen, fill_attrs, fill_files};
use tidegate_vfs::{Bdi, MemoryLimits, MountOptions, Result, Vfs};
use zerocopy::FromBytes;

const SIZE: u64 = 32 << 20;
/// Bytes of a block: the unit that a sample keeps and that patches select.
const PIECE: usize = 4096;
const TIME: Timespec = Timespec { secs: 1_700_000_000, nanos: 7 };

/// The pieces of a filled volume that are not zero, by byte offset.
pub struct Sample(BTreeMap<u64, Vec<u8>>);

fn queue(device: Arc<dyn Device>) -> Arc<RequestQueue> {
    Arc::new(RequestQueue::new(device, QueueLimits::default()))
}

fn mount(device: Arc<dyn Device>) -> Result<Arc<Vfs>> {
    let bdi = Bdi::new(MemoryLimits::default());
    let options = Ext4Options { fixed_time: Some(TIME), ..Ext4Options::default() };
    let fs = Ext4::open(queue(device), bdi.clone(), options)?;
    let options =
        MountOptions { fixed_time: Some(TIME), no_periodic_writeback: true, ..MountOptions::default() };
    Vfs::mount(fs, bdi, options)
}

impl Sample {
    /// Fills a volume; with `in_use` it is left as after a sync, with a log to be replayed, otherwise
    /// unmounted.
    fn build(in_use: bool) -> Sample {
        let device = Arc::new(MemoryDevice::new(SIZE));
        let mut features = Features::default();
        features.change("^metadata_csum").unwrap();
        let options = MkfsOptions {
            uuid: Some([7; 16]),
            block_size: Some(PIECE as u32),
            features,
            time: TIME,
            ..MkfsOptions::default()
        };
        mkfs(&queue(device.clone()), &options).unwrap();
        let v = mount(device.clone()).unwrap();
        let top = v.root().unwrap();
        fill_files(&v, &top);
        fill_attrs(&v, &top);
        v.sync().unwrap();
        drop(top);
        let left = Sample::of(&device);
        v.unmount().unwrap();
        if in_use { left } else { Sample::of(&device) }
    }

    fn of(device: &MemoryDevice) -> Sample {
        let piece = |at| {
            let mut bytes = vec![0; PIECE];
            device.read_at(at, &mut bytes);
            bytes
        };
        let pieces = (0..SIZE).step_by(PIECE).map(|at| (at, piece(at)));
        Sample(pieces.filter(|(_, bytes)| bytes.iter().any(|b| *b != 0)).collect())
    }

    /// A separate device with the volume on it, and `patches` applied.
    pub fn device(&self, patches: &[(u64, Vec<u8>)]) -> Arc<MemoryDevice> {
        let device = MemoryDevice::new(SIZE);
        self.0.iter().for_each(|(at, bytes)| device.write_at(*at, bytes));
        patches.iter().for_each(|(at, bytes)| device.write_at(*at, bytes));
        Arc::new(device)
    }

    /// Whether the volume's log must be replayed.
    pub fn needs_recovery(&self) -> bool {
        let (raw, _) = RawSuperblock::read_from_prefix(&self.0[&0][SUPER_OFFSET..]).unwrap();
        raw.s_feature_incompat.get() & Incompat::RECOVER.bits() != 0
    }

    /// Reads patches out of `input`: four bytes of offset, one of length, the bytes. Offsets count only
    /// pieces in use, so that hardly a patch goes into free space.
    pub fn patches(&self, mut input: &[u8]) -> Vec<(u64, Vec<u8>)> {
        let pieces: Vec<u64> = self.0.keys().copied().collect();
        let mut found = Vec::new();
        while let Some((head, rest)) = input.split_first_chunk::<5>() {
            let [a, b, c, d, len] = *head;
            let place = u32::from_le_bytes([a, b, c, d]) as usize;
            let (piece, at) = (pieces[place / PIECE % pieces.len()], place % PIECE);
            let len = usize::from(len).min(rest.len()).min(PIECE - at);
            found.push((piece + at as u64, rest[..len].to_vec()));
            input = &rest[len..];
        }
        found
    }
}

/// The volume that was unmounted, and the one whose log must be replayed.
pub fn samples() -> &'static [Sample; 2] {
    static MADE: OnceLock<[Sample; 2]> = OnceLock::new();
    MADE.get_or_init(|| [Sample::build(false), Sample::build(true)])
}

/// Checks a volume, then mounts it, reads all of it, and changes it.
pub fn exercise(device: Arc<dyn Device>) -> Seen {
    let mut seen = Seen::default();
    seen.keep(check(&queue(device.clone()), CheckOptions::default()));
    seen.go_through(mount(device));
    seen
}

/// The first byte selects a volume, the rest are the patches; runs [`exercise`] on the volume.
pub fn run(input: &[u8]) -> Seen {
    let (which, patches) = input.split_first().map_or((0, input), |(first, rest)| (first & 1, rest));
    let sample = &samples()[usize::from(which)];
    exercise(sample.device(&sample.patches(patches)))
}
