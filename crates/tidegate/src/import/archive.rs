//! Reads a tar.

use super::batch::{BatchSender, Gone};
use super::{ImportOptions, Item, LinkTo, Piece, Place};
use crate::error::{Error, Result, show};
use crate::tar::compress;
use crate::tar::reader::{Entry, Input, Reader};
use std::io::{self, Read};
use tidegate_block::{PAGE_SIZE, PageBuf};
use tidegate_vfs::FileType;

const PIECE: u64 = (PageBuf::MAX_PAGES * PAGE_SIZE) as u64;

/// Ends the reading.
enum End {
    Io(io::Error),
    Gone,
}

impl From<io::Error> for End {
    fn from(e: io::Error) -> Self {
        End::Io(e)
    }
}

impl From<Gone> for End {
    fn from(_: Gone) -> Self {
        End::Gone
    }
}

/// Reads the tar called `name` and sends its items.
pub fn read(from: Box<dyn Read + Send>, name: &str, options: &ImportOptions, to: BatchSender) -> Result<()> {
    let mut to = to;
    let mut at = Vec::new();
    let run = || -> std::result::Result<(), End> {
        let mut reader = Reader::new(compress::open(from)?);
        while let Some(entry) = reader.next_entry()? {
            at.clone_from(&entry.path);
            send(&mut reader, entry, options, &mut to)?;
        }
        reader.drain()?;
        Ok(to.send()?)
    };
    match run() {
        Ok(()) | Err(End::Gone) => Ok(()),
        Err(End::Io(e)) if at.is_empty() => Err(Error::Os(name.into(), e)),
        Err(End::Io(e)) => Err(Error::Os(format!("{name}: at {}", show(&at)).into(), e)),
    }
}

/// A path below the root: without leading slashes, dots and doubled slashes. `None` when it leads up.
pub fn clean(path: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(path.len());
    for part in path.split(|&b| b == b'/') {
        match part {
            b"" | b"." => {}
            b".." => return None,
            _ => {
                if !out.is_empty() {
                    out.push(b'/');
                }
                out.extend_from_slice(part);
            }
        }
    }
    Some(out)
}

fn send<R: Input>(
    reader: &mut Reader<R>,
    mut e: Entry,
    options: &ImportOptions,
    to: &mut BatchSender,
) -> std::result::Result<(), End> {
    let up = || io::Error::new(io::ErrorKind::InvalidData, "a path that leads up (\"..\")");
    let path = clean(&e.path).ok_or_else(up)?;
    for note in &e.notes {
        to.push(Item::Note(format!("{}: {note}", show(&e.path))))?;
    }
    options.adjust(&mut e.meta);
    let meta = e.meta;
    if path.is_empty() && meta.kind != FileType::Directory {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "an entry without a name").into());
    }
    let place = if path.is_empty() { Place::Root } else { Place::Path(path) };
    if e.hard_link {
        let target = clean(&e.link).ok_or_else(up)?;
        return Ok(to.push(Item::Link { place, to: LinkTo::Path(target) })?);
    }
    match meta.kind {
        FileType::Directory => Ok(to.push(Item::Dir { place, id: u32::MAX, meta })?),
        FileType::Regular => {
            let ranges = e.ranges.unwrap_or_else(|| if e.size > 0 { vec![(0, e.size)] } else { Vec::new() });
            if let ([] | [(0, _)], true) = (&ranges[..], e.size <= PIECE) {
                let piece = match ranges.first() {
                    Some(&(pos, len)) => Some(piece(reader, pos, len as usize)?),
                    None => None,
                };
                return Ok(to.push(Item::File {
                    place,
                    meta,
                    size: e.size,
                    piece,
                    more: false,
                    link: None,
                })?);
            }
            to.push(Item::File { place, meta, size: e.size, piece: None, more: true, link: None })?;
            for (start, len) in ranges {
                let mut at = start;
                while at < start + len {
                    // After an unaligned first piece, pieces begin at whole pages.
                    let room = PIECE - at % PAGE_SIZE as u64;
                    let n = (start + len - at).min(room) as usize;
                    to.push(Item::Data(piece(reader, at, n)?))?;
                    at += n as u64;
                }
            }
            Ok(to.push(Item::End(None))?)
        }
        _ => Ok(to.push(Item::Special { place, meta, target: e.link, link: None })?),
    }
}

fn piece<R: Input>(reader: &mut Reader<R>, pos: u64, len: usize) -> io::Result<Piece> {
    let mut buf = PageBuf::stale(len.div_ceil(PAGE_SIZE).max(1));
    let n = reader.read(&mut buf[..len])?;
    if n < len {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "less data than the size says"));
    }
    Ok(Piece { pos, buf, len })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_below_the_root() {
        assert_eq!(clean(b"./a//b/./c/").unwrap(), b"a/b/c");
        assert_eq!(clean(b"/etc/passwd").unwrap(), b"etc/passwd");
        assert_eq!(clean(b"./").unwrap(), b"");
        assert_eq!(clean(b"a/../../b"), None);
        assert_eq!(clean(b"..a/b..").unwrap(), b"..a/b..");
    }
}
