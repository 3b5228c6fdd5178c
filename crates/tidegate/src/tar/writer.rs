//! Writes a pax archive.

use super::header::{self, Header};
use super::{BLOCK, attributes, pax, sparse};
use crate::node::Meta;
use std::io::{self, Write};
use tidegate_vfs::FileType;

/// An entry to be written.
pub struct Entry<'a> {
    /// The name.
    pub path: &'a [u8],
    /// Attributes.
    pub meta: &'a Meta,
    /// The target of a symbolic link. For another name of a file, the first name.
    pub link: &'a [u8],
    /// It is another name of `link`.
    pub hard_link: bool,
    /// Size of a regular file.
    pub size: u64,
    /// The ranges of its data, if it has holes.
    pub ranges: Option<&'a [sparse::Range]>,
}

/// Writes a pax archive.
pub struct Writer<W: Write> {
    to: W,
    /// Bytes that fill up the last block of the current entry.
    padding: usize,
}

const ZEROS: [u8; BLOCK] = [0; BLOCK];
/// The largest number that an octal field of 12 bytes holds.
const MAX_OCTAL_12: u64 = 0o777_7777_7777;
/// The largest number that an octal field of 8 bytes holds.
const MAX_OCTAL_8: u32 = 0o777_7777;
/// Longest name in a plain header.
const NAME: usize = 100;

impl<W: Write> Writer<W> {
    /// Writes to `to`.
    pub fn new(to: W) -> Self {
        Writer { to, padding: 0 }
    }

    /// Begins an entry. The data of a file follows, only that in its ranges.
    ///
    /// # Errors
    /// The stream's.
    pub fn entry(&mut self, e: &Entry<'_>) -> io::Result<()> {
        self.fill()?;
        let regular = e.meta.kind == FileType::Regular && !e.hard_link;
        let map = e.ranges.filter(|_| regular).map(|r| sparse::to_text(e.size, r));
        let mut size = match (e.ranges, regular) {
            (Some(r), true) => sparse::bytes(r),
            (None, true) => e.size,
            _ => 0,
        };
        size += map.as_ref().map_or(0, |m| m.len() as u64);
        let mut path = e.path.to_vec();
        if e.meta.kind == FileType::Directory && !path.ends_with(b"/") {
            path.push(b'/');
        }
        let records = records(e, &path, size, map.is_some());
        if !records.is_empty() {
            let h = Header { kind: b'x', path: b"././@PaxHeader".to_vec(), ..plain(e, records.len() as u64) };
            self.to.write_all(&header::write(&h))?;
            self.to.write_all(&records)?;
            self.pad(records.len())?;
        }
        let kind = match e.meta.kind {
            _ if e.hard_link => b'1',
            FileType::Regular | FileType::Socket => b'0',
            FileType::Symlink => b'2',
            FileType::CharDevice => b'3',
            FileType::BlockDevice => b'4',
            FileType::Directory => b'5',
            FileType::Fifo => b'6',
        };
        // The name in the header is cut. A reader that only looks at the header takes a file whose cut name ends with a
        // slash for a directory.
        if e.meta.kind != FileType::Directory && path.len() > NAME {
            path.truncate(NAME);
            while path.ends_with(b"/") {
                path.pop();
            }
        }
        let h = Header { kind, path, link: e.link.to_vec(), ..plain(e, size) };
        self.to.write_all(&header::write(&h))?;
        if let Some(map) = map {
            self.to.write_all(&map)?;
        }
        self.padding = (size.next_multiple_of(BLOCK as u64) - size) as usize;
        Ok(())
    }

    /// Data of the entry begun last.
    ///
    /// # Errors
    /// The stream's.
    pub fn data(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.to.write_all(bytes)
    }

    /// Ends the archive, filled up to the usual record of 10 KiB.
    ///
    /// # Errors
    /// The stream's.
    pub fn finish(mut self) -> io::Result<W> {
        self.fill()?;
        self.to.write_all(&ZEROS)?;
        self.to.write_all(&ZEROS)?;
        self.to.flush()?;
        Ok(self.to)
    }

    fn fill(&mut self) -> io::Result<()> {
        let n = std::mem::take(&mut self.padding);
        self.to.write_all(&ZEROS[..n])
    }

    fn pad(&mut self, len: usize) -> io::Result<()> {
        self.to.write_all(&ZEROS[..len.next_multiple_of(BLOCK) - len])
    }
}

/// A header of the fields that every reader knows.
fn plain(e: &Entry<'_>, size: u64) -> Header {
    let device = matches!(e.meta.kind, FileType::CharDevice | FileType::BlockDevice) && !e.hard_link;
    let number = |n: u32| if device { n.min(MAX_OCTAL_8) } else { 0 };
    Header {
        kind: 0,
        path: Vec::new(),
        link: Vec::new(),
        mode: e.meta.mode,
        uid: e.meta.uid.min(MAX_OCTAL_8),
        gid: e.meta.gid.min(MAX_OCTAL_8),
        mtime: e.meta.mtime.secs.clamp(0, MAX_OCTAL_12 as i64),
        size: size.min(MAX_OCTAL_12),
        major: number(e.meta.rdev.major),
        minor: number(e.meta.rdev.minor),
    }
}

/// The pax records of an entry.
fn records(e: &Entry<'_>, path: &[u8], size: u64, sparse: bool) -> Vec<u8> {
    let mut out = Vec::new();
    let m = e.meta;
    let mut put = |key: &str, value: &[u8]| pax::put(&mut out, key.as_bytes(), value);
    if path.len() > NAME || !path.is_ascii() {
        put("path", path);
    }
    if e.link.len() > NAME || !e.link.is_ascii() {
        put("linkpath", e.link);
    }
    if size > MAX_OCTAL_12 {
        put("size", size.to_string().as_bytes());
    }
    for (key, id) in [("uid", m.uid), ("gid", m.gid)] {
        if id > MAX_OCTAL_8 {
            put(key, id.to_string().as_bytes());
        }
    }
    if m.mtime.nanos != 0 || !(0..=MAX_OCTAL_12 as i64).contains(&m.mtime.secs) {
        put("mtime", pax::time_text(m.mtime).as_bytes());
    }
    if m.atime != m.mtime {
        put("atime", pax::time_text(m.atime).as_bytes());
    }
    if sparse {
        put("GNU.sparse.major", b"1");
        put("GNU.sparse.minor", b"0");
        put("GNU.sparse.name", path);
        put("GNU.sparse.realsize", e.size.to_string().as_bytes());
    }
    if !e.hard_link {
        for x in &m.xattrs {
            if let Some((key, text)) = attributes::to_text(x) {
                pax::put(&mut out, key, &text);
            }
            pax::put_xattr(&mut out, x);
        }
    }
    out
}
