//! Cases of damage: each is a sample with some bytes changed.

use crate::fuzz_body::{Left, Patch, Sample, UNSUMMED};
use std::sync::OnceLock;
use tidegate_f2fs::raw::{BLOCK_SIZE, Features};

/// One damaged volume.
pub struct Case {
    pub name: String,
    pub sample: &'static Sample,
    pub patches: Vec<Patch>,
    /// Checksums are corrected after the damage.
    pub fix: bool,
}

/// The volume with orphans and no unmount.
pub fn orphaned() -> &'static Sample {
    static MADE: OnceLock<Sample> = OnceLock::new();
    MADE.get_or_init(|| Sample::build(UNSUMMED, Left::WithOrphans))
}

/// A volume whose inodes carry checksums, which most damage makes wrong.
pub fn summed() -> &'static Sample {
    static MADE: OnceLock<Sample> = OnceLock::new();
    MADE.get_or_init(|| Sample::build(UNSUMMED | Features::INODE_CHKSUM, Left::Clean))
}

/// A generator of random bytes from a seed (splitmix64).
pub struct Random(pub u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
}

/// A field of a block: name, offset, width.
pub type Field = (&'static str, usize, usize);

macro_rules! fields {
    ($raw:ty, $base:expr; $($name:ident $width:literal),* $(,)?) => {
        [$((stringify!($name), $base + offset_of!($raw, $name), $width)),*]
    };
}
pub(crate) use fields;

/// Values for a field: bounds, neighbours of its value, random values, and numbers that may point to itself.
fn values(old: u64, own: &[u32], seed: u64) -> Vec<u64> {
    let mut all = vec![0, 1, u64::MAX, i32::MAX as u64, old.wrapping_add(1), old.wrapping_sub(1)];
    all.push(Random(seed).next());
    all.extend(own.iter().map(|&v| v as u64));
    all.sort_unstable();
    all.dedup();
    all.retain(|v| *v != old);
    all
}

/// A case for each value of each field, set alike in all of `blocks`.
pub fn field_cases(
    what: &str,
    sample: &'static Sample,
    blocks: &[u32],
    fields: &[Field],
    own: &[u32],
    fix: bool,
) -> Vec<Case> {
    let mut cases = Vec::new();
    for &(field, at, width) in fields {
        let mut bytes = [0; 8];
        bytes[..width].copy_from_slice(&sample.block(blocks[0])[at..at + width]);
        for v in values(u64::from_le_bytes(bytes), own, at as u64) {
            let put =
                |b: &u32| (*b as u64 * BLOCK_SIZE as u64 + at as u64, v.to_le_bytes()[..width].to_vec());
            let name = format!("{what}.{field}={v:#x}{}", if fix { "" } else { " unfixed" });
            cases.push(Case { name, sample, patches: blocks.iter().map(put).collect(), fix });
        }
    }
    cases
}

/// Cases that overwrite a range of a block in four ways.
pub fn block_cases(what: &str, sample: &'static Sample, at: u32, range: std::ops::Range<usize>) -> Vec<Case> {
    let place = at as u64 * BLOCK_SIZE as u64 + range.start as u64;
    let old = sample.block(at)[range.clone()].to_vec();
    let mut few = old.clone();
    let mut random = Random(at as u64);
    for _ in 0..16 {
        few[random.below(old.len())] = random.next() as u8;
    }
    let ways = [
        ("zeros", vec![0; old.len()]),
        ("ones", vec![0xff; old.len()]),
        ("random", random.bytes(old.len())),
        ("16 bytes", few),
    ];
    let case = |(way, bytes): (&str, Vec<u8>)| {
        let name = format!("{what} block {at} {range:?} {way}");
        Case { name, sample, patches: vec![(place, bytes)], fix: true }
    };
    ways.map(case).into()
}

pub fn whole_blocks(what: &str, sample: &'static Sample, blocks: &[u32]) -> Vec<Case> {
    blocks.iter().flat_map(|b| block_cases(what, sample, *b, 0..BLOCK_SIZE)).collect()
}
