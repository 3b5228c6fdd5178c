//! The content of a file or device that a volume is to be made on.

use crate::error::{About, Result, path_bytes};
use rustix::fs::SeekFrom;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;
use tidegate_block::Errno;

/// The content that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// Nothing that could be missed.
    Nothing,
    /// An F2FS volume.
    F2fs,
    /// Something else.
    Other(&'static str),
}

/// The number of bytes that are looked at. The last known mark lies behind the first 64 KiB.
const FIRST: usize = 68 << 10;
const BLOCK: usize = 4096;
/// The name of an ext4 volume in messages.
pub(crate) const EXT4: &str = "an ext2, ext3 or ext4 file system";
/// The offset of a superblock of F2FS in each of the first two blocks, its mark, and its UUID in it.
const SUPER: usize = 1024;
const F2FS: [u8; 4] = [0x10, 0x20, 0xf5, 0xf2];
const UUID: std::ops::Range<usize> = SUPER + 108..SUPER + 124;
/// The offset of the mark in a superblock of ext4, and the mark.
const EXT4_MAGIC: (usize, [u8; 2]) = (0x38, [0x53, 0xef]);

/// Marks: the offset, the bytes, and the name of the content.
const MARKS: [(usize, &[u8], &str); 31] = [
    (0x10040, b"_BHRfS_M", "a btrfs file system"),
    (32769, b"CD001", "an ISO 9660 file system"),
    (0, b"XFSB", "an xfs file system"),
    (0, b"hsqs", "a squashfs file system"),
    (1024, b"\xe2\xe1\xf5\xe0", "an erofs file system"),
    (3, b"NTFS    ", "an NTFS file system"),
    (3, b"EXFAT   ", "an exFAT file system"),
    (82, b"FAT32   ", "a FAT file system"),
    (54, b"FAT1", "a FAT file system"),
    (0, b"LUKS\xba\xbe", "a LUKS container"),
    (512, b"LABELONE", "an LVM volume"),
    (4086, b"SWAPSPACE2", "swap space"),
    (SUPER + EXT4_MAGIC.0, &EXT4_MAGIC.1, EXT4),
    (512, b"EFI PART", "a GPT partition table"),
    (0, b"QFI\xfb", "a qcow2 image"),
    (0, b"\x3a\xff\x26\xed", "an Android sparse image"),
    (0, b"KDMV", "a VMDK image"),
    (64, b"\x7f\x10\xda\xbe", "a VDI image"),
    (0, b"vhdxfile", "a VHDX image"),
    (0, b"%PDF-", "a PDF document"),
    (0, b"PK\x03\x04", "a zip archive"),
    (0, b"\x1f\x8b", "gzip data"),
    (0, b"\x28\xb5\x2f\xfd", "zstd data"),
    (0, b"\xfd7zXZ\0", "xz data"),
    (0, b"BZh", "bzip2 data"),
    (0, b"\x04\x22\x4d\x18", "lz4 data"),
    (0, b"\x7fELF", "a program"),
    (0, b"\x89PNG\r\n", "a PNG image"),
    (0, b"SQLite format 3\0", "an SQLite database"),
    (257, b"ustar", "a tar archive"),
    (510, b"\x55\xaa", "a partition table or boot sector"),
];

/// The name of content without a known mark.
pub(crate) const NO_VOLUME: &str = "data that is no volume";

/// Looks at the file or device at `path`: at the first bytes for marks, and at all of a file that begins with zeros.
///
/// # Errors
/// It cannot be opened or read.
pub fn found(path: &Path) -> Result<Found> {
    let mut first = Vec::with_capacity(FIRST);
    let mut file = File::open(path).about(path_bytes(path))?;
    (&mut file).take(FIRST as u64).read_to_end(&mut first).about(path_bytes(path))?;
    let found = tell(&first);
    // The remains of a volume whose making was cut short may lie anywhere, and are not missed.
    if found == Found::Nothing
        && first.iter().all(|b| *b == 0)
        && file.metadata().about(path_bytes(path))?.is_file()
        && !is_zeros(&file, first.len() as u64).about(path_bytes(path))?
    {
        return Ok(Found::Other(NO_VOLUME));
    }
    Ok(found)
}

/// Bytes that are read at once.
const PIECE: usize = 1 << 20;

/// Whether a file has nothing but zeros and holes from `at` on.
fn is_zeros(file: &File, mut at: u64) -> io::Result<bool> {
    let mut buf = vec![0; PIECE];
    loop {
        match rustix::fs::seek(file, SeekFrom::Data(at)) {
            Ok(n) => at = n,
            Err(Errno::NXIO) => return Ok(true),
            // The host's file system does not support SEEK_DATA.
            Err(Errno::INVAL) => {}
            Err(e) => return Err(e.into()),
        }
        let hole = rustix::fs::seek(file, SeekFrom::Hole(at)).unwrap_or(u64::MAX);
        while at < hole {
            let want = (hole - at).min(PIECE as u64) as usize;
            let n = file.read_at(&mut buf[..want], at)?;
            if n == 0 {
                return Ok(true);
            }
            if buf[..n].iter().any(|b| *b != 0) {
                return Ok(false);
            }
            at += n as u64;
        }
    }
}

/// Looks at the first bytes of something.
pub(crate) fn tell(first: &[u8]) -> Found {
    let has = |at: usize, mark: &[u8]| first.get(at..).is_some_and(|b| b.starts_with(mark));
    if has(SUPER, &F2FS) || has(BLOCK + SUPER, &F2FS) {
        return Found::F2fs;
    }
    if is_blank(first) || has(0, tidegate_ext4::mkfs::UNFINISHED) {
        return Found::Nothing;
    }
    let mark = MARKS.iter().find(|(at, mark, _)| has(*at, mark));
    Found::Other(mark.map_or(NO_VOLUME, |m| m.2))
}

/// Whether a block is a superblock: the first block of a volume, or with F2FS also the second.
pub(crate) fn is_superblock(block: &[u8; BLOCK]) -> bool {
    let has = |at: usize, mark: &[u8]| block[at..].starts_with(mark);
    has(SUPER, &F2FS) || has(SUPER + EXT4_MAGIC.0, &EXT4_MAGIC.1)
}

/// Whether there are only zeros, and possibly the remains of an F2FS volume whose making was cut short: the
/// UUID that it was to have.
fn is_blank(first: &[u8]) -> bool {
    let uuid = |i: usize| i < 2 * BLOCK && UUID.contains(&(i % BLOCK));
    let same = first.len() >= 2 * BLOCK && first[UUID] == first[BLOCK + UUID.start..BLOCK + UUID.end];
    first.iter().enumerate().all(|(i, b)| *b == 0 || same && uuid(i))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_byte_anywhere_in_a_file_is_something() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for size in [0, 1, FIRST as u64, 3 * PIECE as u64 + 7, 1 << 40] {
            file.as_file().set_len(0).unwrap();
            file.as_file().set_len(size).unwrap();
            assert_eq!(found(file.path()).unwrap(), Found::Nothing, "{size}");
            // Zeros that are allocated also count as zeros.
            let zeros = vec![0; size.min(2 * PIECE as u64) as usize];
            file.as_file().write_all_at(&zeros, size - zeros.len() as u64).unwrap();
            assert_eq!(found(file.path()).unwrap(), Found::Nothing, "{size}");
            for at in [FIRST as u64, size / 2, size.saturating_sub(1)] {
                if at < size {
                    file.as_file().write_all_at(b"x", at).unwrap();
                    assert_eq!(found(file.path()).unwrap(), Found::Other(NO_VOLUME), "{at} of {size}");
                    file.as_file().write_all_at(b"\0", at).unwrap();
                }
            }
        }
    }

    #[test]
    fn marks_are_known_and_zeros_are_nothing() {
        assert_eq!(tell(b""), Found::Nothing);
        assert_eq!(tell(&[0; FIRST]), Found::Nothing);
        let mut b = vec![0; FIRST];
        b[UUID].fill(7);
        assert_eq!(tell(&b), Found::Other("data that is no volume"));
        b[BLOCK + UUID.start..BLOCK + UUID.end].fill(7);
        assert_eq!(tell(&b), Found::Nothing);
        b[FIRST - 1] = 1;
        assert_eq!(tell(&b), Found::Other("data that is no volume"));
        b[..tidegate_ext4::mkfs::UNFINISHED.len()].copy_from_slice(tidegate_ext4::mkfs::UNFINISHED);
        assert_eq!(tell(&b), Found::Nothing);
        for (at, mark, what) in MARKS {
            let mut b = vec![0; FIRST];
            b[at..at + mark.len()].copy_from_slice(mark);
            assert_eq!(tell(&b), Found::Other(what));
            b[BLOCK + SUPER..BLOCK + SUPER + 4].copy_from_slice(&F2FS);
            assert_eq!(tell(&b), Found::F2fs);
        }
    }
}
