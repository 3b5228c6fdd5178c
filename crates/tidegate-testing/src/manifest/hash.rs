//! A content hash that is equal whether zeros are stored or are a hole.

use std::fs::File;
use std::os::unix::fs::FileExt;

use anyhow::{Context, Result};
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

/// The granule of hashing: all-zero blocks of this size are left out.
pub const BLOCK: usize = 4096;

/// Hash over the non-zero blocks of a file and where they lie.
#[derive(Debug, Clone, Default)]
pub struct ContentHash(crc32fast::Hasher);

impl ContentHash {
    /// A hash of no data.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds bytes that start at a [`BLOCK`]-aligned offset.
    ///
    /// Calls come in ascending order, and only the file's last bytes may fall
    /// short of a whole block.
    pub fn update(&mut self, offset: u64, data: &[u8]) {
        for (at, block) in (offset..).step_by(BLOCK).zip(data.chunks(BLOCK)) {
            if block.iter().any(|&b| b != 0) {
                self.0.update(&at.to_le_bytes());
                self.0.update(&(block.len() as u64).to_le_bytes());
                self.0.update(block);
            }
        }
    }

    /// The hash value.
    pub fn finish(self) -> u32 {
        self.0.finalize()
    }
}

/// Hashes a file of the given size; reads only the ranges that the kernel reports as data.
pub fn hash_file(file: &File, size: u64) -> Result<u32> {
    const CHUNK: usize = 64 * BLOCK;
    let mut hash = ContentHash::new();
    let mut buf = vec![0u8; CHUNK.min(size.next_multiple_of(BLOCK as u64) as usize)];
    if size <= CHUNK as u64 {
        let part = &mut buf[..size as usize];
        file.read_exact_at(part, 0).with_context(|| format!("reading {size} bytes"))?;
        hash.update(0, part);
        return Ok(hash.finish());
    }
    let mut done = 0;
    while done < size {
        let (start, end) = match data_range(file, done, size)? {
            Some(range) => range,
            None => break,
        };
        let mut at = start.max(done);
        while at < end {
            let want = buf.len().min((end - at) as usize);
            let part = &mut buf[..want];
            file.read_exact_at(part, at).with_context(|| format!("reading {want} bytes at {at}"))?;
            hash.update(at, part);
            at += want as u64;
        }
        done = end;
    }
    Ok(hash.finish())
}

/// The next range with data at or after `from`, widened to whole blocks.
fn data_range(file: &File, from: u64, size: u64) -> Result<Option<(u64, u64)>> {
    let start = match seek(file, SeekFrom::Data(from)) {
        Ok(at) => at,
        Err(Errno::NXIO) => return Ok(None),
        Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(Some((from, size))),
        Err(e) => return Err(e).context("seeking data"),
    };
    let end = match seek(file, SeekFrom::Hole(start)) {
        Ok(at) => at,
        Err(Errno::NXIO) => size,
        Err(e) => return Err(e).context("seeking a hole"),
    };
    let block = BLOCK as u64;
    let start = start / block * block;
    Ok(Some((start, end.div_ceil(block).saturating_mul(block).min(size))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::temp::TempDir;

    #[test]
    fn holes_and_zeros_are_alike() {
        let dir = TempDir::new("hash").unwrap();
        let a = File::create_new(dir.path().join("a")).unwrap();
        a.write_all_at(b"head", 0).unwrap();
        a.write_all_at(b"tail", 1 << 30).unwrap();
        let b = File::create_new(dir.path().join("b")).unwrap();
        b.write_all_at(b"head", 0).unwrap();
        b.write_all_at(&[0; 100_000], 50_000).unwrap();
        b.write_all_at(b"tail", 1 << 30).unwrap();
        let open = |n: &str| File::open(dir.path().join(n)).unwrap();
        let size = (1 << 30) + 4;
        let hash = hash_file(&open("a"), size).unwrap();
        assert_eq!(hash, hash_file(&open("b"), size).unwrap());
        b.write_all_at(b"x", 60_000).unwrap();
        assert_ne!(hash, hash_file(&open("b"), size).unwrap());
    }

    #[test]
    fn chunking_does_not_matter() {
        let data: Vec<u8> = (0..10_000u32).map(|i| (i * 7 % 251) as u8).collect();
        let mut whole = ContentHash::new();
        whole.update(0, &data);
        let mut parts = ContentHash::new();
        parts.update(0, &data[..BLOCK]);
        parts.update(BLOCK as u64, &data[BLOCK..]);
        assert_eq!(whole.finish(), parts.finish());
    }
}
