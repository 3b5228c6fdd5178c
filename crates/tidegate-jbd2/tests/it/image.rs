//! A device in memory: a volume with a log behind it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use tidegate_block::{Errno, Fault, Faulty, MemoryDevice, Op, QueueLimits, RequestQueue, Rule};
use tidegate_jbd2::{FsBlock, Log, Replay, Run, recover};
use tidegate_rt::rng::Rng;
use tidegate_vfs::Result;

use crate::writer::{Shape, Sums, Transaction, Writer};

/// Blocks of the volume, without the log.
pub const VOLUME: u64 = 64;

pub struct Bed {
    pub device: Arc<MemoryDevice>,
    pub queue: Arc<RequestQueue>,
    pub log: Arc<Log>,
    pub block_size: usize,
    runs: [Run; 2],
}

impl Bed {
    /// A volume of zeros; the log lies behind it in two pieces, in reverse order.
    pub fn new(log: &[u8], block_size: usize) -> Bed {
        let blocks = (log.len() / block_size) as u32;
        let device = Arc::new(MemoryDevice::new((VOLUME + u64::from(blocks)) * block_size as u64));
        let first = blocks / 3;
        let (a, b) = log.split_at(first as usize * block_size);
        let second = VOLUME + u64::from(blocks - first);
        device.write_at(second * block_size as u64, a);
        device.write_at(VOLUME * block_size as u64, b);
        let runs =
            [Run { first: FsBlock(second), len: first }, Run { first: FsBlock(VOLUME), len: blocks - first }];
        let queue = Arc::new(RequestQueue::new(device.clone(), QueueLimits::default()));
        let log = Arc::new(Log::new(queue.clone(), block_size as u32, runs).unwrap());
        Bed { device, queue, log, block_size, runs }
    }

    /// The log, with these blocks unreadable.
    pub fn unreadable(&self, blocks: &[u32]) -> Arc<Log> {
        let size = self.block_size as u64;
        let fails = |n: &u32| {
            let block = match n.checked_sub(self.runs[0].len) {
                Some(n) => self.runs[1].first.0 + u64::from(n),
                None => self.runs[0].first.0 + u64::from(*n),
            };
            Rule::new(Fault::Fail(Errno::IO)).op(Op::Read).within(block * size..(block + 1) * size)
        };
        let device = Faulty::new(self.device.clone(), blocks.iter().map(fails).collect::<Vec<_>>());
        let queue = Arc::new(RequestQueue::new(device, QueueLimits::default()));
        Arc::new(Log::new(queue, self.block_size as u32, self.runs).unwrap())
    }

    pub fn recover(&self) -> Result<Replay> {
        recover(self.log.clone(), VOLUME)
    }

    /// The blocks of the volume that a replay has.
    pub fn found(&self, replay: &Replay) -> BTreeMap<u64, Vec<u8>> {
        let read = |at: FsBlock| {
            let mut b = vec![0; self.block_size];
            assert!(replay.read(at, &mut b).unwrap());
            (at.0, b)
        };
        replay.blocks().map(read).collect()
    }
}

/// Random shapes, transactions and bytes.
pub struct Chance(pub Rng);

impl Chance {
    pub fn new(seed: u64) -> Chance {
        Chance(Rng::new(seed))
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.0.below(n)
    }

    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    pub fn shape(&mut self) -> Shape {
        let len = 12 + self.below(60) as u32;
        Shape {
            block_size: [1024, 2048, 4096][self.below(3) as usize],
            len,
            wide: self.one_in(2),
            sums: [Sums::None, Sums::V1, Sums::V2, Sums::V3][self.below(4) as usize],
            start: 1 + self.below(u64::from(len - 1)) as u32,
            tid: [1, u32::MAX - 2, i32::MAX as u32 - 1][self.below(3) as usize],
            uuids: self.one_in(4),
        }
    }

    /// Bytes; some blocks look like the journal's own.
    pub fn block(&mut self, size: usize) -> Vec<u8> {
        let mut b = self.0.bytes(size);
        if self.one_in(4) {
            b[..4].copy_from_slice(&crate::writer::MAGIC.to_be_bytes());
        }
        b
    }

    /// A transaction on some of `blocks` of the volume.
    pub fn transaction(&mut self, size: usize, blocks: Range<u64>) -> Transaction {
        let mut at = || blocks.start + self.0.below(blocks.end - blocks.start);
        let places: BTreeSet<u64> = (0..9).map(|_| at()).collect();
        let revokes = (0..6).map(|_| at()).collect::<Vec<_>>();
        let (some, few) = (self.below(9) as usize, self.below(6) as usize);
        let revokes = if self.one_in(3) { revokes[..few].to_vec() } else { Vec::new() };
        let blocks = places.into_iter().take(some).map(|at| (at, self.block(size))).collect();
        Transaction { blocks, revokes }
    }

    /// A log filled with random transactions.
    pub fn log(&mut self, shape: Shape, blocks: Range<u64>) -> Writer {
        let mut w = Writer::new(shape);
        loop {
            let t = self.transaction(w.shape.block_size, blocks.clone());
            if w.cost(&t) > w.room() || self.one_in(12) {
                return w;
            }
            w.transaction(&t);
        }
    }
}

/// `TIDEGATE_SEED`, or all of `seeds`.
pub fn seeds(seeds: Range<u64>) -> Vec<u64> {
    let one = std::env::var("TIDEGATE_SEED").ok().and_then(|s| s.parse().ok());
    one.map_or_else(|| seeds.collect(), |s| vec![s])
}

/// Prints the seed of a test that panics.
pub struct Seed(pub u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("TIDEGATE_SEED={}", self.0);
        }
    }
}
