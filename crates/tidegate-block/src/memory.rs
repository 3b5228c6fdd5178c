//! A sparse block device in memory.

use crate::bio::Op;
use crate::{Device, Errno, Request};
use std::collections::HashMap;
use tidegate_rt::{LockClass, RwLock};

static CLASS: LockClass = LockClass::new("memory_device", 990);
const CHUNK: u64 = 64 << 10;

/// Keeps what was written, in 64 KiB chunks; the rest reads as zeros.
pub struct MemoryDevice {
    size: u64,
    chunks: RwLock<HashMap<u64, Box<[u8]>>>,
}

impl MemoryDevice {
    /// A device of `size` bytes, all zeros.
    pub fn new(size: u64) -> Self {
        MemoryDevice { size, chunks: RwLock::new(&CLASS, HashMap::new()) }
    }

    /// A device with the given content.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let d = Self::new(bytes.len() as u64);
        d.write_at(0, bytes);
        d
    }

    /// A device of its own that holds what this one holds at this moment.
    pub fn copy(&self) -> MemoryDevice {
        let chunks = self.chunks.read().clone();
        MemoryDevice { size: self.size, chunks: RwLock::new(&CLASS, chunks) }
    }

    /// Copies `to.len()` bytes at `pos` out. The range must lie on the device.
    pub fn read_at(&self, pos: u64, to: &mut [u8]) {
        let chunks = self.chunks.read();
        for (at, part) in pieces(pos, to.len()) {
            let to = &mut to[part];
            match chunks.get(&(at / CHUNK)) {
                Some(c) => to.copy_from_slice(&c[(at % CHUNK) as usize..][..to.len()]),
                None => to.fill(0),
            }
        }
    }

    /// Copies `from` in at `pos`. The range must lie on the device.
    pub fn write_at(&self, pos: u64, from: &[u8]) {
        let mut chunks = self.chunks.write();
        for (at, part) in pieces(pos, from.len()) {
            let from = &from[part];
            let c = chunks.entry(at / CHUNK).or_insert_with(|| vec![0; CHUNK as usize].into());
            c[(at % CHUNK) as usize..][..from.len()].copy_from_slice(from);
        }
    }

    fn zero(&self, pos: u64, len: u64) {
        let mut chunks = self.chunks.write();
        let mut at = pos;
        while at < pos + len {
            let n = (CHUNK - at % CHUNK).min(pos + len - at);
            if n == CHUNK {
                chunks.remove(&(at / CHUNK));
            } else if let Some(c) = chunks.get_mut(&(at / CHUNK)) {
                c[(at % CHUNK) as usize..][..n as usize].fill(0);
            }
            at += n;
        }
    }
}

/// Splits `len` bytes at `pos` at chunk boundaries: device position and range in the caller's memory.
fn pieces(pos: u64, len: usize) -> impl Iterator<Item = (u64, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = pos + done as u64;
        let n = ((CHUNK - at % CHUNK) as usize).min(len - done);
        (n > 0).then(|| {
            done += n;
            (at, done - n..done)
        })
    })
}

impl Device for MemoryDevice {
    fn name(&self) -> &str {
        "memory"
    }
    fn size(&self) -> u64 {
        self.size
    }
    fn read_only(&self) -> bool {
        false
    }
    fn backend(&self) -> &'static str {
        "memory"
    }
    fn execute(&self, rq: &mut Request) -> Result<(), Errno> {
        let mut at = rq.sector.bytes();
        if at.checked_add(rq.bytes).is_none_or(|end| end > self.size) {
            return Err(Errno::IO);
        }
        match rq.op {
            Op::Read => rq.for_each_target(|t| {
                self.read_at(at, t);
                at += t.len() as u64;
            }),
            Op::Write => rq.for_each_source(|s| {
                self.write_at(at, s);
                at += s.len() as u64;
            }),
            Op::Discard | Op::WriteZeroes => self.zero(at, rq.bytes),
            Op::Flush => {}
        }
        Ok(())
    }
}
