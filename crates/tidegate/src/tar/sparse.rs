//! Maps of sparse files: where the archived bytes belong.

use super::{BLOCK, invalid, number, pax};
use std::io::{self, Read};

/// A range of data: offset and length.
pub type Range = (u64, u64);

/// The most ranges that a file may have, to bound the memory that a bad archive takes.
const MAX_RANGES: usize = 1 << 20;

/// Entries in an old GNU header, and in a block that continues it.
const OLD_AT: usize = 386;
const OLD_ENTRIES: usize = 4;
const OLD_MORE: usize = 482;
const OLD_REAL_SIZE: usize = 483;
const EXT_ENTRIES: usize = 21;
const EXT_MORE: usize = 504;

/// Reads an old GNU map: from the header, and from the blocks that follow it. Returns size and ranges.
///
/// # Errors
/// Bad numbers, or the archive's end.
pub fn old_gnu(header: &[u8; BLOCK], from: &mut dyn Read) -> io::Result<(u64, Vec<Range>)> {
    let size = field(&header[OLD_REAL_SIZE..OLD_REAL_SIZE + 12])?;
    let mut ranges = Vec::new();
    take(&header[OLD_AT..], OLD_ENTRIES, &mut ranges)?;
    let mut more = header[OLD_MORE] != 0;
    while more {
        let mut block = [0; BLOCK];
        from.read_exact(&mut block)?;
        take(&block, EXT_ENTRIES, &mut ranges)?;
        more = block[EXT_MORE] != 0;
    }
    check(size, ranges)
}

fn field(bytes: &[u8]) -> io::Result<u64> {
    number::parse(bytes).and_then(|n| u64::try_from(n).ok()).ok_or_else(|| invalid("a bad sparse map"))
}

fn take(bytes: &[u8], entries: usize, ranges: &mut Vec<Range>) -> io::Result<()> {
    for e in bytes.chunks(24).take(entries) {
        if e[12] != 0 {
            ranges.push((field(&e[..12])?, field(&e[12..24])?));
        }
    }
    if ranges.len() > MAX_RANGES { Err(invalid("a sparse file of too many pieces")) } else { Ok(()) }
}

/// Reads the map before the data (pax sparse 1.0), and returns how many bytes it took.
///
/// # Errors
/// Bad numbers, or the archive's end.
pub fn in_data(size: u64, from: &mut dyn Read) -> io::Result<(u64, Vec<Range>, u64)> {
    let mut used = 0;
    let mut block = [0; BLOCK];
    let mut at = BLOCK;
    let mut next = || -> io::Result<u64> {
        let mut n = 0u64;
        loop {
            if at == BLOCK {
                from.read_exact(&mut block)?;
                used += BLOCK as u64;
                at = 0;
            }
            let b = block[at];
            at += 1;
            n = match b {
                b'0'..=b'9' => n
                    .checked_mul(10)
                    .and_then(|n| n.checked_add((b - b'0') as u64))
                    .ok_or_else(|| invalid("a bad sparse map"))?,
                b'\n' => return Ok(n),
                _ => return Err(invalid("a bad sparse map")),
            };
        }
    };
    let count = next()?;
    if count > MAX_RANGES as u64 {
        return Err(invalid("a sparse file of too many pieces"));
    }
    let mut ranges = Vec::new();
    for _ in 0..count {
        ranges.push((next()?, next()?));
    }
    let (size, ranges) = check(size, ranges)?;
    Ok((size, ranges, used))
}

/// The map in a `GNU.sparse.map` record.
///
/// # Errors
/// Bad numbers.
pub fn in_record(size: u64, value: &[u8]) -> io::Result<Vec<Range>> {
    let numbers: Option<Vec<u64>> = value.split(|&b| b == b',').map(pax::number).collect();
    let numbers = numbers.filter(|n| n.len() % 2 == 0).ok_or_else(|| invalid("a bad sparse map"))?;
    Ok(check(size, numbers.chunks(2).map(|c| (c[0], c[1])).collect())?.1)
}

/// Refuses ranges that overlap, go backwards or leave the file.
///
/// # Errors
/// The map has such ranges.
pub fn check(size: u64, mut ranges: Vec<Range>) -> io::Result<(u64, Vec<Range>)> {
    let mut end = 0;
    for &(at, len) in &ranges {
        end = at
            .checked_add(len)
            .filter(|e| at >= end && *e <= size)
            .ok_or_else(|| invalid("a sparse map that does not fit its file"))?;
    }
    ranges.retain(|r| r.1 > 0);
    Ok((size, ranges))
}

/// Bytes in all ranges.
pub fn bytes(ranges: &[Range]) -> u64 {
    ranges.iter().map(|r| r.1).sum()
}

/// The text of a map for [`in_data`], filled up to whole blocks. Readers take a file's size from its last
/// range, so a hole at the end is followed by an empty range.
pub fn to_text(size: u64, ranges: &[Range]) -> Vec<u8> {
    let ends_in_hole = ranges.last().is_none_or(|(at, len)| at + len < size);
    let end = ends_in_hole.then_some((size, 0));
    let mut out = format!("{}\n", ranges.len() + end.iter().len());
    for (at, len) in ranges.iter().chain(&end) {
        out += &format!("{at}\n{len}\n");
    }
    let mut out = out.into_bytes();
    out.resize(out.len().next_multiple_of(BLOCK), 0);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_maps_are_read_back() {
        let ranges: Vec<Range> = (0..200).map(|i| (i * 1_000_000, 4096)).collect();
        let text = to_text(1 << 40, &ranges);
        let (size, back, used) = in_data(1 << 40, &mut &text[..]).unwrap();
        assert_eq!((size, back, used), (1 << 40, ranges, text.len() as u64));
        assert!(in_data(10, &mut &text[..]).is_err());
        assert!(in_data(10, &mut &b"12"[..]).is_err());
    }

    #[test]
    fn bad_maps_are_refused() {
        assert!(check(100, vec![(50, 10), (40, 5)]).is_err());
        assert!(check(100, vec![(u64::MAX, 10)]).is_err());
        assert_eq!(check(100, vec![(0, 10), (100, 0)]).unwrap().1, [(0, 10)]);
        assert_eq!(in_record(100, b"0,5,50,50").unwrap(), [(0, 5), (50, 50)]);
        assert!(in_record(100, b"0,5,50").is_err());
    }
}
