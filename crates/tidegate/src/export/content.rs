//! A file's data and holes.

use super::Piece;
use crate::volume::Volume;
use std::sync::Arc;
use tidegate_block::{PAGE_SIZE, PageBuf};
use tidegate_vfs::{Cred, ErrorKind, File, Inode, OpenFlags, PageRun, Result, SeekTarget};

const PAGE: u64 = PAGE_SIZE as u64;
/// Bytes read at once.
const PIECE: u64 = PageBuf::MAX_PAGES as u64 * PAGE;

/// A regular file, open for reading from front to back.
pub struct Content<'a> {
    volume: &'a Volume,
    inode: &'a Arc<Inode>,
    size: u64,
    /// The open file. It is opened only when needed.
    file: Option<File>,
}

impl<'a> Content<'a> {
    /// Opens the content of `inode`.
    ///
    /// # Errors
    /// Those of opening.
    pub fn open(volume: &'a Volume, inode: &'a Arc<Inode>, size: u64) -> Result<Content<'a>> {
        // Cached pages may be newer than the volume. A file without cached pages can be read around the
        // cache.
        let cached = inode.mapping.nr_pages() > 0 || volume.vfs().fs().read_only().is_none();
        let may_have_holes = size > PAGE;
        let file = if cached || may_have_holes {
            Some(volume.vfs().open(&Cred::ROOT, inode, OpenFlags::READ | OpenFlags::NOATIME)?)
        } else {
            None
        };
        Ok(Content { volume, inode, size, file })
    }

    /// The ranges of data (offset and length), if there are holes. They are whole pages: where a page has several blocks, it
    /// is data if one of them is.
    ///
    /// # Errors
    /// Those of the search for data and holes.
    pub fn ranges(&self) -> Result<Option<Vec<(u64, u64)>>> {
        let Some(file) = &self.file else { return Ok((self.size == 0).then(Vec::new)) };
        if self.size == 0 || file.seek(0, SeekTarget::Hole)? >= self.size {
            return Ok((self.size == 0).then(Vec::new));
        }
        let mut ranges = Vec::new();
        let mut at = 0;
        while at < self.size {
            let start = match file.seek(at, SeekTarget::Data) {
                Ok(start) => start,
                Err(e) if e.kind() == ErrorKind::NoDeviceOrAddress => break,
                Err(e) => return Err(e),
            };
            let end = file.seek(start, SeekTarget::Hole)?;
            if end <= start {
                break;
            }
            let (start, end) = (start / PAGE * PAGE, end.next_multiple_of(PAGE).min(self.size));
            match ranges.last_mut() {
                Some((last, len)) if *last + *len == start => *len += end - start,
                _ => ranges.push((start, end - start)),
            }
            at = end;
        }
        Ok(Some(ranges))
    }

    /// Reads a range, at most [`PIECE`] bytes and beginning at a page.
    ///
    /// # Errors
    /// Those of reading.
    pub fn read(&self, (pos, len): (u64, u64), to: &mut Vec<Piece>) -> Result<()> {
        let read_only = self.volume.vfs().fs().read_only().is_some();
        if read_only && self.inode.mapping.nr_pages() == 0 {
            return self.read_past_cache(pos, len, to);
        }
        let Some(file) = &self.file else { return Err(ErrorKind::BadFile.into()) };
        let mut buf = PageBuf::stale(len.div_ceil(PAGE) as usize);
        let n = file.read_at(pos, &mut buf[..len as usize])?;
        buf[n..].fill(0);
        let pages = buf.pages();
        to.push(Piece { pos, run: PageRun { buf: Arc::new(buf), first: 0, pages }, len: len as usize });
        Ok(())
    }

    fn read_past_cache(&self, pos: u64, len: u64, to: &mut Vec<Piece>) -> Result<()> {
        let fs = self.volume.vfs().fs();
        let _lock = self.inode.rwsem.read();
        let (mut at, end) = (pos, pos + len);
        while at < end {
            let runs = fs.read_pages(self.inode, at / PAGE, (end - at).div_ceil(PAGE) as usize)?;
            if runs.is_empty() {
                return Err(ErrorKind::Io.into());
            }
            for run in runs {
                let len = (run.pages as u64 * PAGE).min(end.saturating_sub(at));
                if len > 0 {
                    to.push(Piece { pos: at, run, len: len as usize });
                }
                at += len;
            }
        }
        Ok(())
    }
}

/// Splits a range into pieces that are read at once.
pub fn split((start, len): (u64, u64)) -> impl Iterator<Item = (u64, u64)> {
    let end = start + len;
    let mut at = start;
    std::iter::from_fn(move || {
        // Ranges begin at whole pages, and so do the pieces.
        let n = (PIECE - at % PAGE).min(end - at);
        (n > 0).then(|| {
            at += n;
            (at - n, n)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_a_range() {
        let v: Vec<_> = split((4096, 3 * PIECE + 5)).collect();
        assert_eq!(v.len(), 4);
        assert_eq!(v[0], (4096, PIECE));
        assert_eq!(v.iter().map(|p| p.1).sum::<u64>(), 3 * PIECE + 5);
        assert_eq!(split((7, 0)).count(), 0);
    }
}
