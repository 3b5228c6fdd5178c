//! A writer of logs that shares no code with the crate: an independent implementation of the format.

use std::collections::BTreeMap;

pub const MAGIC: u32 = 0xc03b_3998;

/// The checksums of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sums {
    None,
    V1,
    V2,
    V3,
}

/// The shape of a log.
#[derive(Clone, Debug)]
pub struct Shape {
    pub block_size: usize,
    /// Number of blocks, the superblock included.
    pub len: u32,
    pub wide: bool,
    pub sums: Sums,
    /// The start of the first transaction.
    pub start: u32,
    pub tid: u32,
    /// Write a UUID behind each tag.
    pub uuids: bool,
}

/// One transaction.
#[derive(Clone, Debug, Default)]
pub struct Transaction {
    pub blocks: Vec<(u64, Vec<u8>)>,
    pub revokes: Vec<u64>,
}

/// Writes of log blocks, in order, and their meaning.
pub struct Writer {
    pub shape: Shape,
    /// Log blocks in the order of writing.
    pub writes: Vec<(u32, Vec<u8>)>,
    /// The number of writes after which each transaction is whole, and the volume's blocks then.
    pub states: Vec<(usize, BTreeMap<u64, Vec<u8>>)>,
    head: u32,
    used: u32,
    tid: u32,
    pub time: u64,
    /// The copies of each block and their transactions.
    copies: BTreeMap<u64, Vec<(u64, Vec<u8>)>>,
    revoked: BTreeMap<u64, u64>,
    count: u64,
}

pub const UUID: [u8; 16] = *b"a journal's uuid";

impl Writer {
    pub fn new(shape: Shape) -> Writer {
        let (head, tid) = (shape.start, shape.tid);
        Writer {
            shape,
            writes: Vec::new(),
            states: vec![(0, BTreeMap::new())],
            head,
            used: 0,
            tid,
            time: 1_700_000_000,
            copies: BTreeMap::new(),
            revoked: BTreeMap::new(),
            count: 0,
        }
    }

    /// Number of tags that fit a descriptor.
    fn tags_per_block(&self) -> usize {
        let room = self.shape.block_size - 12 - if self.crc32c() { 4 } else { 0 };
        if self.shape.uuids { room / (self.tag_size() + 16) } else { (room - 16) / self.tag_size() }
    }

    fn tag_size(&self) -> usize {
        match (self.shape.sums, self.shape.wide) {
            (Sums::V3, _) => 16,
            (Sums::V2, true) => 14,
            (Sums::V2, false) => 10,
            (_, true) => 12,
            (_, false) => 8,
        }
    }

    fn crc32c(&self) -> bool {
        matches!(self.shape.sums, Sums::V2 | Sums::V3)
    }

    fn revokes_per_block(&self) -> usize {
        (self.shape.block_size - 20) / if self.shape.wide { 8 } else { 4 }
    }

    /// Log blocks that a transaction takes.
    pub fn cost(&self, t: &Transaction) -> u32 {
        let blocks = t.blocks.len() + t.blocks.len().div_ceil(self.tags_per_block());
        (blocks + t.revokes.len().div_ceil(self.revokes_per_block()) + 1) as u32
    }

    /// Blocks of the ring that are free.
    pub fn room(&self) -> u32 {
        self.shape.len - 1 - self.used
    }

    fn put(&mut self, block: Vec<u8>) {
        assert_eq!(block.len(), self.shape.block_size);
        assert!(self.room() > 0);
        self.writes.push((self.head, block));
        self.used += 1;
        self.head = if self.head + 1 == self.shape.len { 1 } else { self.head + 1 };
    }

    fn block(&self, kind: u32) -> Vec<u8> {
        let mut b = [MAGIC, kind, self.tid].iter().flat_map(|n| n.to_be_bytes()).collect::<Vec<_>>();
        b.reserve(self.shape.block_size);
        b
    }

    /// Pads a block and sets the checksum at its end.
    fn close(&self, mut b: Vec<u8>) -> Vec<u8> {
        b.resize(self.shape.block_size, 0);
        if self.crc32c() {
            let sum = crc32c(crc32c(!0, &UUID), &b);
            let at = b.len() - 4;
            b[at..].copy_from_slice(&sum.to_be_bytes());
        }
        b
    }

    /// Writes a transaction: revokes, descriptors with their blocks, record.
    pub fn transaction(&mut self, t: &Transaction) {
        self.body(t);
        self.record();
        self.note(t);
    }

    pub fn body(&mut self, t: &Transaction) {
        for some in t.revokes.chunks(self.revokes_per_block()) {
            let mut b = self.block(5);
            let each = if self.shape.wide { 8 } else { 4 };
            b.extend(((16 + some.len() * each) as u32).to_be_bytes());
            for n in some {
                b.extend(&n.to_be_bytes()[8 - each..]);
            }
            let b = self.close(b);
            self.put(b);
        }
        for some in t.blocks.chunks(self.tags_per_block()) {
            self.descriptor(some);
        }
    }

    fn descriptor(&mut self, blocks: &[(u64, Vec<u8>)]) {
        let mut b = self.block(1);
        let mut logged = Vec::new();
        for (n, (at, bytes)) in blocks.iter().enumerate() {
            let mut bytes = bytes.clone();
            let mut flags = 0u16;
            if bytes[..4] == MAGIC.to_be_bytes() {
                bytes[..4].fill(0);
                flags |= 1;
            }
            if n > 0 && !self.shape.uuids {
                flags |= 2;
            }
            if n + 1 == blocks.len() {
                flags |= 8;
            }
            let seed = crc32c(!0, &UUID);
            let sum = crc32c(crc32c(seed, &self.tid.to_be_bytes()), &bytes);
            let (low, high) = (*at as u32, (*at >> 32) as u32);
            b.extend(low.to_be_bytes());
            match self.shape.sums {
                Sums::V3 => {
                    b.extend(u32::from(flags).to_be_bytes());
                    b.extend(high.to_be_bytes());
                    b.extend(sum.to_be_bytes());
                }
                sums => {
                    b.extend((if sums == Sums::V2 { sum as u16 } else { 0 }).to_be_bytes());
                    b.extend(flags.to_be_bytes());
                    if self.shape.wide {
                        b.extend(high.to_be_bytes());
                    }
                    if sums == Sums::V2 {
                        b.extend([0; 2]);
                    }
                }
            }
            if flags & 2 == 0 {
                b.extend(UUID);
            }
            logged.push(bytes);
        }
        let b = self.close(b);
        self.put(b);
        logged.into_iter().for_each(|l| self.put(l));
    }

    pub fn record(&mut self) {
        let mut b = self.block(2);
        // The checksum covers only this transaction: the blocks since the last record.
        let (kind, size, sum) = match self.shape.sums {
            Sums::V1 => (1, 4, self.crc_of_transaction()),
            _ => (0, 0, 0),
        };
        b.extend([kind, size, 0, 0]);
        b.extend(sum.to_be_bytes());
        b.extend([0; 28]);
        b.extend(self.time.to_be_bytes());
        b.extend(5u32.to_be_bytes());
        b.resize(self.shape.block_size, 0);
        if self.crc32c() {
            let sum = crc32c(crc32c(!0, &UUID), &b);
            b[16..20].copy_from_slice(&sum.to_be_bytes());
        }
        self.put(b);
    }

    fn crc_of_transaction(&self) -> u32 {
        let from = self.states.last().unwrap().0;
        let mut crc = !0u32;
        for (_, b) in &self.writes[from..] {
            // The checksum does not cover revoke blocks.
            if b[..8] == [MAGIC.to_be_bytes(), 5u32.to_be_bytes()].concat()[..] {
                continue;
            }
            for byte in b {
                crc ^= u32::from(*byte) << 24;
                for _ in 0..8 {
                    crc = if crc >> 31 == 1 { (crc << 1) ^ 0x04C1_1DB7 } else { crc << 1 };
                }
            }
        }
        crc
    }

    /// Notes that the transaction is whole.
    fn note(&mut self, t: &Transaction) {
        self.count += 1;
        for (at, bytes) in &t.blocks {
            self.copies.entry(*at).or_default().push((self.count, bytes.clone()));
        }
        for at in &t.revokes {
            self.revoked.insert(*at, self.count);
        }
        let newest = |(at, copies): (&u64, &Vec<(u64, Vec<u8>)>)| {
            let revoked = self.revoked.get(at).copied().unwrap_or(0);
            let last = copies.iter().rfind(|(n, _)| *n > revoked)?;
            Some((*at, last.1.clone()))
        };
        let state = self.copies.iter().filter_map(newest).collect();
        self.states.push((self.writes.len(), state));
        self.tid = self.tid.wrapping_add(1);
        self.time += 1;
    }

    /// The superblock of a log that begins with the first transaction.
    pub fn superblock(&self) -> Vec<u8> {
        let s = &self.shape;
        let mut b = vec![0; 1024];
        let mut put = |at: usize, n: u32| b[at..at + 4].copy_from_slice(&n.to_be_bytes());
        put(0, MAGIC);
        put(4, 4);
        put(0x0c, s.block_size as u32);
        put(0x10, s.len);
        put(0x14, 1);
        put(0x18, s.tid);
        put(0x1c, s.start);
        put(0x24, u32::from(s.sums == Sums::V1));
        let sums = match s.sums {
            Sums::V2 => 8,
            Sums::V3 => 16,
            _ => 0,
        };
        put(0x28, 1 | if s.wide { 2 } else { 0 } | sums);
        put(0x40, 1);
        b[0x30..0x40].copy_from_slice(&UUID);
        if self.crc32c() {
            b[0x50] = 4;
            let sum = crc32c(!0, &b);
            b[0xfc..0x100].copy_from_slice(&sum.to_be_bytes());
        }
        b.resize(s.block_size, 0);
        b
    }

    /// A log with the first `writes` writes done over the bytes of `old`.
    pub fn log(&self, old: &[u8], writes: usize) -> Vec<u8> {
        let size = self.shape.block_size;
        let mut log = old.to_vec();
        log.resize(self.shape.len as usize * size, 0);
        log[..size].copy_from_slice(&self.superblock());
        for (at, b) in &self.writes[..writes] {
            log[*at as usize * size..][..size].copy_from_slice(b);
        }
        log
    }
}

/// crc32c byte by byte, not inverted at its ends.
pub fn crc32c(seed: u32, bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = table();
    bytes.iter().fold(seed, |crc, b| (crc >> 8) ^ TABLE[usize::from(crc as u8 ^ b)])
}

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut n = 0;
    while n < 256 * 8 {
        let c: u32 = if n % 8 == 0 { n as u32 / 8 } else { table[n / 8] };
        table[n / 8] = if c & 1 == 1 { (c >> 1) ^ 0x82F6_3B78 } else { c >> 1 };
        n += 1;
    }
    table
}
