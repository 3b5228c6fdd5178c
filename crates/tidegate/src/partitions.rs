//! Partition tables: the partitions of a disk's image that has no volume at its front.

use crate::found::{EXT4, Found, tell};
use tidegate_block::le::{le32, le64};
use tidegate_block::{BioFlags, PAGE_SIZE, RequestQueue, Sector};

/// Bytes of a sector, in which tables count.
const SECTOR: u64 = 512;
/// The number of pages of a partition that are read.
const LOOKED_AT: usize = 17;
/// The most entries of a GPT that are read.
const MAX_ENTRIES: usize = 128;

/// A part of a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Its number in the table, from 1.
    pub number: usize,
    /// Where it begins, in bytes.
    pub offset: u64,
    /// Its content.
    pub holds: &'static str,
    /// Whether its content is a volume that can be opened.
    pub opens: bool,
}

/// The partitions of the disk behind `queue`. Empty where there is no table. A part that cannot be read is
/// left out.
pub fn list(queue: &RequestQueue) -> Vec<Partition> {
    let Some(front) = read(queue, 0, 1) else { return Vec::new() };
    let starts = if front[512..].starts_with(b"EFI PART") { gpt(queue, &front) } else { mbr(&front) };
    let partition = |(number, start): (usize, u64)| {
        let offset = start.checked_mul(SECTOR)?;
        let found = tell(&read(queue, start, LOOKED_AT).or_else(|| read(queue, start, 1))?);
        let holds = match found {
            Found::F2fs => "an f2fs volume",
            Found::Nothing => "nothing",
            Found::Other(what) => what,
        };
        Some(Partition { number, offset, holds, opens: matches!(found, Found::F2fs | Found::Other(EXT4)) })
    };
    starts.into_iter().filter_map(partition).collect()
}

fn read(queue: &RequestQueue, sector: u64, pages: usize) -> Option<Vec<u8>> {
    let end = sector.checked_mul(SECTOR)?.checked_add((pages * PAGE_SIZE) as u64)?;
    let inside = end <= queue.device().size();
    inside.then(|| queue.read_wait(Sector(sector), pages, BioFlags::empty()).ok())?.map(|b| b.to_vec())
}

/// Numbers and first sectors of the four entries of a DOS table. Logical partitions are not looked up.
fn mbr(front: &[u8]) -> Vec<(usize, u64)> {
    if front[510..512] != [0x55, 0xaa] {
        return Vec::new();
    }
    let entry = |n: usize| {
        let at = 446 + 16 * n;
        let (kind, start, count) = (front[at + 4], le32(front, at + 8).into(), le32(front, at + 12));
        (kind != 0 && start > 0 && count > 0).then_some((n + 1, start))
    };
    (0..4).filter_map(entry).collect()
}

/// Numbers and first sectors of a GPT with sectors of 512 bytes.
fn gpt(queue: &RequestQueue, front: &[u8]) -> Vec<(usize, u64)> {
    let header = &front[512..];
    let (at, count, size) = (le64(header, 72), le32(header, 80) as usize, le32(header, 84) as usize);
    if !(128..=1024).contains(&size) {
        return Vec::new();
    }
    let count = count.min(MAX_ENTRIES);
    let Some(table) = read(queue, at, (count * size).div_ceil(PAGE_SIZE).max(1)) else { return Vec::new() };
    let entry = |(n, e): (usize, &[u8])| {
        let used = e[..16].iter().any(|b| *b != 0);
        (used && le64(e, 32) > 0).then(|| (n + 1, le64(e, 32)))
    };
    table.chunks_exact(size).take(count).enumerate().filter_map(entry).collect()
}
