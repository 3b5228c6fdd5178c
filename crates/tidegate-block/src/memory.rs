//! A sparse block device in memory.

use crate::bytes::{self, Bytes, pieces};
use crate::{Device, DeviceInfo, Errno, Request};
use tidegate_rt::hash::HashMap;
use tidegate_rt::{LockClass, RwLock};

static CLASS: LockClass = LockClass::new("memory_device", 990);
const CHUNK: usize = 64 << 10;

/// Keeps what was written, in 64 KiB chunks; the rest reads as zeros.
pub struct MemoryDevice {
    size: u64,
    chunks: RwLock<HashMap<u64, Box<[u8]>>>,
}

impl MemoryDevice {
    /// A device of `size` bytes, all zeros.
    pub fn new(size: u64) -> Self {
        MemoryDevice { size, chunks: RwLock::new(&CLASS, HashMap::default()) }
    }

    /// A device with the given content.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let d = Self::new(bytes.len() as u64);
        d.write_at(0, bytes);
        d
    }

    /// A separate device with the present content of this one.
    pub fn copy(&self) -> MemoryDevice {
        let chunks = self.chunks.read().clone();
        MemoryDevice { size: self.size, chunks: RwLock::new(&CLASS, chunks) }
    }

    /// Copies `to.len()` bytes at `pos` out. The range must lie on the device.
    pub fn read_at(&self, pos: u64, to: &mut [u8]) {
        let chunks = self.chunks.read();
        for (chunk, at, part) in pieces(pos, to.len() as u64, CHUNK) {
            let to = &mut to[part];
            match chunks.get(&chunk) {
                Some(c) => to.copy_from_slice(&c[at..][..to.len()]),
                None => to.fill(0),
            }
        }
    }

    /// Copies `from` in at `pos`. The range must lie on the device.
    pub fn write_at(&self, pos: u64, from: &[u8]) {
        let mut chunks = self.chunks.write();
        for (chunk, at, part) in pieces(pos, from.len() as u64, CHUNK) {
            let from = &from[part];
            let c = chunks.entry(chunk).or_insert_with(|| vec![0; CHUNK].into());
            c[at..][..from.len()].copy_from_slice(from);
        }
    }
}

impl Bytes for MemoryDevice {
    fn size(&self) -> u64 {
        self.size
    }
    fn read_at(&self, pos: u64, to: &mut [u8]) {
        self.read_at(pos, to);
    }
    fn write_at(&self, pos: u64, from: &[u8]) {
        self.write_at(pos, from);
    }
    fn zero(&self, pos: u64, len: u64) {
        let mut chunks = self.chunks.write();
        for (chunk, at, part) in pieces(pos, len, CHUNK) {
            if part.len() == CHUNK {
                chunks.remove(&chunk);
            } else if let Some(c) = chunks.get_mut(&chunk) {
                c[at..][..part.len()].fill(0);
            }
        }
    }
}

impl Device for MemoryDevice {
    fn info(&self) -> DeviceInfo<'_> {
        DeviceInfo { name: "memory", size: self.size, read_only: false, backend: "memory", zones: None }
    }

    fn is_quick(&self, _: &Request) -> bool {
        true
    }
    fn execute(&self, rq: &mut Request) -> Result<(), Errno> {
        bytes::execute(self, rq)
    }
}
