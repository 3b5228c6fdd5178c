//! Reads an archive entry by entry.

use super::header::{self, Header};
use super::{BLOCK, attributes, invalid, pax, sparse};
use crate::node::{Meta, Xattr};
use std::io::{self, Read};
use tidegate_rt::Timespec;
use tidegate_vfs::{DeviceNumber, FileType};

/// The longest name or pax header that is accepted.
const MAX_EXTRA: u64 = 16 << 20;

/// A stream that can skip bytes.
pub trait Input: Read {
    /// Skips `n` bytes.
    ///
    /// # Errors
    /// The stream's; `UnexpectedEof` when there are fewer.
    fn skip(&mut self, n: u64) -> io::Result<()> {
        let skipped = io::copy(&mut self.take(n), &mut io::sink())?;
        if skipped < n { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
    }
}

impl Input for &[u8] {}
impl<R: Input + ?Sized> Input for Box<R> {
    fn skip(&mut self, n: u64) -> io::Result<()> {
        (**self).skip(n)
    }
}

/// A stream that is only read.
pub struct Plain<R>(pub R);
impl<R: Read> Read for Plain<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        self.0.read(to)
    }
}
impl<R: Read> Input for Plain<R> {}

/// The content of an archive under one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name, as in the archive.
    pub path: Vec<u8>,
    /// Attributes.
    pub meta: Meta,
    /// It is another name of the file `link`.
    pub hard_link: bool,
    /// Target of a link.
    pub link: Vec<u8>,
    /// Size of the file, holes included.
    pub size: u64,
    /// The ranges of the archived bytes, for a sparse file.
    pub ranges: Option<Vec<sparse::Range>>,
    /// The parts that could not be understood.
    pub notes: Vec<String>,
}

/// Reads an archive entry by entry.
pub struct Reader<R> {
    from: R,
    /// The remaining bytes of the current entry, and those that fill up its last block.
    left: u64,
    padding: u64,
    global: Vec<(Vec<u8>, Vec<u8>)>,
    any: bool,
}

/// Records that precede an entry and change it.
#[derive(Default)]
struct Extra {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    records: Vec<(Vec<u8>, Vec<u8>)>,
}

impl<R: Input> Reader<R> {
    /// Reads an archive that is not compressed.
    pub fn new(from: R) -> Self {
        Reader { from, left: 0, padding: 0, global: Vec::new(), any: false }
    }

    /// The next entry; `None` at the end of the archive.
    ///
    /// # Errors
    /// The stream's, and the fault of the archive.
    pub fn next_entry(&mut self) -> io::Result<Option<Entry>> {
        let rest = self.left + self.padding;
        self.from.skip(rest).map_err(ends_early)?;
        (self.left, self.padding) = (0, 0);
        let mut extra = Extra::default();
        loop {
            let Some(block) = self.block()? else {
                return if self.any { Ok(None) } else { Err(invalid("not a tar archive: it is empty")) };
            };
            if header::is_end(&block) {
                self.any = true;
                return Ok(None);
            }
            let h = header::parse(&block)?;
            self.any = true;
            match h.kind {
                b'L' => extra.path = Some(self.name(&h)?),
                b'K' => extra.link = Some(self.name(&h)?),
                b'x' | b'X' => extra.records.append(&mut self.records(&h)?),
                b'g' => {
                    let mut r = self.records(&h)?;
                    self.global.append(&mut r);
                }
                // A volume label is no file.
                b'V' => self.from.skip(padded(h.size)).map_err(ends_early)?,
                b'M' => return Err(invalid("parts of a multi-volume archive are not supported")),
                _ => return self.entry(h, &block, extra).map(Some),
            }
        }
    }

    /// Reads archived bytes of the current entry; 0 at their end.
    ///
    /// # Errors
    /// The stream's; the archive ends too early.
    pub fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let want = (to.len() as u64).min(self.left) as usize;
        self.from.read_exact(&mut to[..want]).map_err(ends_early)?;
        self.left -= want as u64;
        Ok(want)
    }

    /// Reads the bytes behind the archive's end, so that their writer is not interrupted.
    ///
    /// # Errors
    /// The stream's.
    pub fn drain(&mut self) -> io::Result<()> {
        io::copy(&mut self.from, &mut io::sink()).map(drop)
    }

    /// The next block; `None` where the stream ends between blocks.
    fn block(&mut self) -> io::Result<Option<[u8; BLOCK]>> {
        let mut block = [0; BLOCK];
        let mut done = 0;
        while done < BLOCK {
            match self.from.read(&mut block[done..]) {
                Ok(0) if done == 0 => return Ok(None),
                Ok(0) if !self.any => return Err(invalid("not a tar archive: too short")),
                Ok(0) => return Err(ends_early(io::ErrorKind::UnexpectedEof.into())),
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(Some(block))
    }

    fn extra(&mut self, h: &Header) -> io::Result<Vec<u8>> {
        if h.size > MAX_EXTRA {
            return Err(invalid(format!("a header of {} bytes", h.size)));
        }
        let mut v = vec![0; h.size as usize];
        self.from.read_exact(&mut v).map_err(ends_early)?;
        self.from.skip(padded(h.size) - h.size).map_err(ends_early)?;
        Ok(v)
    }

    fn name(&mut self, h: &Header) -> io::Result<Vec<u8>> {
        let mut v = self.extra(h)?;
        v.truncate(v.iter().position(|&b| b == 0).unwrap_or(v.len()));
        Ok(v)
    }

    fn records(&mut self, h: &Header) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let v = self.extra(h)?;
        Ok(pax::records(&v)?.into_iter().map(|(k, v)| (k.to_vec(), v.to_vec())).collect())
    }

    fn entry(&mut self, h: Header, block: &[u8; BLOCK], extra: Extra) -> io::Result<Entry> {
        let kind = match h.kind {
            b'2' => FileType::Symlink,
            b'3' => FileType::CharDevice,
            b'4' => FileType::BlockDevice,
            b'5' | b'D' => FileType::Directory,
            b'6' => FileType::Fifo,
            _ => FileType::Regular,
        };
        let time = Timespec { secs: h.mtime, nanos: 0 };
        let meta = Meta {
            kind,
            mode: h.mode,
            uid: h.uid,
            gid: h.gid,
            atime: time,
            mtime: time,
            rdev: DeviceNumber { major: h.major, minor: h.minor },
            xattrs: Vec::new(),
        };
        let mut entry = Entry {
            path: extra.path.unwrap_or(h.path),
            meta,
            hard_link: h.kind == b'1',
            link: extra.link.unwrap_or(h.link),
            size: h.size,
            ranges: None,
            notes: Vec::new(),
        };
        let mut pax = Pax::default();
        let global = std::mem::take(&mut self.global);
        for (key, value) in global.iter().chain(&extra.records) {
            pax.apply(&mut entry, key, value)?;
        }
        pax.finish(&mut entry);
        self.global = global;
        // Old writers mark a directory only by a final slash. The name in the header is cut at 100 bytes and may end
        // with a slash by chance, so the whole name decides, as in GNU tar.
        if matches!(h.kind, 0 | b'0') && entry.path.ends_with(b"/") {
            entry.meta.kind = FileType::Directory;
        }
        let kind = entry.meta.kind;
        // The bytes that the archive has for the entry: none for links and devices, whatever their size field
        // says. A directory that is marked only by its slash may be followed by data, which is skipped.
        let archived = pax.archived.unwrap_or(h.size);
        let has_data = kind == FileType::Regular && !entry.hard_link || matches!(h.kind, b'D');
        let passed_over = entry.hard_link || matches!(h.kind, 0 | b'0');
        self.left = if has_data || passed_over { archived } else { 0 };
        self.padding = padded(self.left) - self.left;
        entry.size = if has_data { archived } else { 0 };
        if h.kind == b'S' {
            let (size, ranges) = sparse::old_gnu(block, &mut self.from).map_err(ends_early)?;
            (entry.size, entry.ranges) = (size, Some(ranges));
        } else if let Some(size) = pax.real_size.filter(|_| has_data) {
            let ranges = match &pax.map {
                Some(map) => sparse::in_record(size, map)?,
                None if pax.major_one => {
                    let (_, ranges, used) = sparse::in_data(size, &mut self.from).map_err(ends_early)?;
                    self.left = self.left.checked_sub(used).ok_or_else(|| invalid("a bad sparse map"))?;
                    ranges
                }
                None => sparse::check(size, std::mem::take(&mut pax.pairs))?.1,
            };
            (entry.size, entry.ranges) = (size, Some(ranges));
        }
        if entry.ranges.as_ref().is_some_and(|r| sparse::bytes(r) > self.left) {
            return Err(invalid("a sparse file with less data than its map says"));
        }
        Ok(entry)
    }
}

/// The fields of pax records beside an entry's attributes.
#[derive(Default)]
struct Pax {
    archived: Option<u64>,
    real_size: Option<u64>,
    map: Option<Vec<u8>>,
    pairs: Vec<sparse::Range>,
    major_one: bool,
    /// The name of a sparse file. Its `path` is another name, for readers that do not know sparse files.
    sparse_name: Option<Vec<u8>>,
    /// Attributes as text.
    texts: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Pax {
    fn apply(&mut self, e: &mut Entry, key: &[u8], value: &[u8]) -> io::Result<()> {
        let shown = || String::from_utf8_lossy(key).into_owned();
        let number = || pax::number(value).ok_or_else(|| invalid(format!("a bad {} record", shown())));
        let too_large = |n| invalid(format!("a {} record with the number {n}, which is too large", shown()));
        let id = || number().and_then(|n| u32::try_from(n).map_err(|_| too_large(n)));
        let time = || pax::time(value).ok_or_else(|| invalid(format!("a bad {} record", shown())));
        match key {
            b"path" => e.path = value.to_vec(),
            b"linkpath" => e.link = value.to_vec(),
            b"size" => self.archived = Some(number()?),
            b"uid" => e.meta.uid = id()?,
            b"gid" => e.meta.gid = id()?,
            b"mtime" => e.meta.mtime = time()?,
            b"atime" => e.meta.atime = time()?,
            b"SCHILY.devmajor" => e.meta.rdev.major = id()?,
            b"SCHILY.devminor" => e.meta.rdev.minor = id()?,
            b"GNU.sparse.name" => self.sparse_name = Some(value.to_vec()),
            b"GNU.sparse.major" => self.major_one = number()? == 1,
            b"GNU.sparse.realsize" | b"GNU.sparse.size" => self.real_size = Some(number()?),
            b"GNU.sparse.map" => self.map = Some(value.to_vec()),
            b"GNU.sparse.offset" => self.pairs.push((number()?, 0)),
            b"GNU.sparse.numbytes" => {
                let n = number()?;
                self.pairs.last_mut().ok_or_else(|| invalid("a bad sparse map"))?.1 = n;
            }
            _ if attributes::is_text(key) => self.texts.push((key.to_vec(), value.to_vec())),
            _ => {
                if let Some(x) = pax::xattr(key, value) {
                    set(&mut e.meta.xattrs, x);
                }
            }
        }
        Ok(())
    }

    /// Applies the records whose order does not matter.
    fn finish(&mut self, e: &mut Entry) {
        if let Some(name) = self.sparse_name.take() {
            e.path = name;
        }
        let given: Vec<Vec<u8>> = e.meta.xattrs.iter().map(|x| x.0.clone()).collect();
        for (key, text) in &self.texts {
            let Some((name, value)) = attributes::from_text(key, text) else { continue };
            // An attribute as text counts only where the attribute itself is missing, since that has numbers for users.
            if given.iter().any(|n| n == name) {
                continue;
            }
            match value {
                Some(v) => set(&mut e.meta.xattrs, (name.into(), v)),
                None => {
                    let entries = String::from_utf8_lossy(text).trim().replace('\n', ",");
                    e.notes.push(format!("an ACL that names users by name only is not kept: {entries}"));
                }
            }
        }
    }
}

/// Sets an attribute. The last record of an attribute counts.
fn set(xattrs: &mut Vec<Xattr>, x: Xattr) {
    xattrs.retain(|(n, _)| *n != x.0);
    xattrs.push(x);
}

fn padded(n: u64) -> u64 {
    n.saturating_add(BLOCK as u64 - 1) / BLOCK as u64 * BLOCK as u64
}

fn ends_early(e: io::Error) -> io::Error {
    match e.kind() {
        io::ErrorKind::UnexpectedEof => invalid("the archive is cut short"),
        _ => e,
    }
}
