//! One header block.

use super::{BLOCK, invalid, number};
use std::io;

/// A header, before long names and pax records override it.
#[derive(Debug, PartialEq, Eq)]
pub struct Header {
    /// Type flag.
    pub kind: u8,
    /// Name, with the prefix in front.
    pub path: Vec<u8>,
    /// Target of a link.
    pub link: Vec<u8>,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Last change, in seconds.
    pub mtime: i64,
    /// Bytes archived.
    pub size: u64,
    /// Major device number.
    pub major: u32,
    /// Minor device number.
    pub minor: u32,
}

/// The place of the checksum.
const CHECKSUM: std::ops::Range<usize> = 148..156;

/// Whether a block is all zeros, as at the end of an archive.
pub fn is_end(block: &[u8; BLOCK]) -> bool {
    block.iter().all(|&b| b == 0)
}

/// Whether a block's checksum is right, by either way of counting.
pub fn is_header(block: &[u8; BLOCK]) -> bool {
    let Some(want) = number::parse(&block[CHECKSUM]) else { return false };
    let (unsigned, signed) = sums(block);
    want == unsigned || want == signed
}

fn sums(block: &[u8; BLOCK]) -> (i64, i64) {
    block.iter().enumerate().fold((0, 0), |(u, s), (i, &b)| {
        let b = if CHECKSUM.contains(&i) { b' ' } else { b };
        (u + b as i64, s + b as i8 as i64)
    })
}

/// Sets the checksum.
pub fn seal(block: &mut [u8; BLOCK]) {
    let sum = sums(block).0;
    block[CHECKSUM].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
}

/// The text up to the first NUL.
fn text(field: &[u8]) -> &[u8] {
    &field[..field.iter().position(|&b| b == 0).unwrap_or(field.len())]
}

/// Reads a header.
///
/// # Errors
/// A wrong checksum, or malformed numbers.
pub fn parse(block: &[u8; BLOCK]) -> io::Result<Header> {
    if !is_header(block) {
        return Err(invalid("not a tar archive, or damaged: a header's checksum is wrong"));
    }
    let kind = block[156];
    let shown = || String::from_utf8_lossy(text(&block[..100])).into_owned();
    let bad = |what: &str| invalid(format!("{}: a header with a bad {what}", shown()));
    let n = |r: std::ops::Range<usize>, what| number::parse(&block[r]).ok_or_else(|| bad(what));
    let id = |r, what| n(r, what).and_then(|n| number::narrow(n).ok_or_else(|| bad(what)));
    let ustar = block[257..263] == *b"ustar\0";
    let gnu = block[257..265] == *b"ustar  \0";
    let mut path = Vec::new();
    // In GNU headers, times and sparse maps are in the place of ustar's prefix.
    if ustar && block[345] != 0 {
        path.extend_from_slice(text(&block[345..500]));
        path.push(b'/');
    }
    path.extend_from_slice(text(&block[..100]));
    let device = matches!(kind, b'3' | b'4') && (ustar || gnu);
    Ok(Header {
        kind,
        path,
        link: text(&block[157..257]).to_vec(),
        mode: n(100..108, "mode")? as u32 & 0o7777,
        uid: id(108..116, "owner")?,
        gid: id(116..124, "group")?,
        size: u64::try_from(n(124..136, "size")?).map_err(|_| bad("size"))?,
        mtime: n(136..148, "time")?,
        major: if device { id(329..337, "device")? } else { 0 },
        minor: if device { id(337..345, "device")? } else { 0 },
    })
}

/// Writes a ustar header. A value that does not fit is cut, as pax records override it.
pub fn write(h: &Header) -> [u8; BLOCK] {
    let mut b = [0; BLOCK];
    let mut put = |at: usize, max: usize, text: &[u8]| {
        let n = text.len().min(max);
        b[at..at + n].copy_from_slice(&text[..n]);
    };
    put(0, 100, &h.path);
    put(157, 100, &h.link);
    put(257, 8, b"ustar\x0000");
    number::write(&mut b[100..108], h.mode as i64);
    number::write(&mut b[108..116], h.uid as i64);
    number::write(&mut b[116..124], h.gid as i64);
    number::write(&mut b[124..136], h.size as i64);
    number::write(&mut b[136..148], h.mtime);
    number::write(&mut b[329..337], h.major as i64);
    number::write(&mut b[337..345], h.minor as i64);
    b[156] = h.kind;
    seal(&mut b);
    b
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_header_is_read() {
        let h = Header {
            kind: b'3',
            path: b"dev/null".to_vec(),
            link: Vec::new(),
            mode: 0o4755,
            uid: 1 << 22,
            gid: 7,
            mtime: -5,
            size: 0,
            major: 1,
            minor: 3,
        };
        let mut b = write(&h);
        assert_eq!(parse(&b).unwrap(), h);
        b[3] ^= 1;
        assert!(parse(&b).is_err());
        b[3] ^= 1;
        number::write(&mut b[108..116], (1 << 32) + 5);
        seal(&mut b);
        assert!(parse(&b).unwrap_err().to_string().contains("a bad owner"));
        assert!(!is_end(&b) && is_end(&[0; BLOCK]) && !is_header(&[0; BLOCK]));
    }
}
