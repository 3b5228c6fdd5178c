//! Reads of a file's pages. A page is one block or several; separate pieces of a page are put together.

use super::{Mapped, Place};
use crate::format::gate::rule;
use crate::format::raw::{Incompat, InodeFlags};
use crate::format::units::{BlockAddr, FileBlock};
use crate::inode::{Ext4Inode, ei};
use crate::volume::sbi::Ext4;
use std::sync::Arc;
use tidegate_block::{Bio, BioData, BioFlags, PAGE_SIZE, PageBuf};
use tidegate_vfs::{Error, ErrorKind, FileType, Inode, PageRun, ReadDone, Result};

impl Ext4 {
    /// Reads pages of a file, with one device read for each piece; holes and unwritten blocks are zeros.
    ///
    /// # Errors
    /// `Unsupported` for encrypted data; `Corrupt`; those of the device.
    pub(crate) fn read_data(&self, inode: &Inode, index: u64, pages: usize) -> Result<Vec<PageRun>> {
        refuse_encoded(inode)?;
        if ei(inode).is(InodeFlags::INLINE_DATA) {
            return self.read_inline(inode, index, pages);
        }
        let (mut at, end, mut out) = (index, index + pages as u64, Vec::new());
        while at < end {
            let want = (end - at).min(PageBuf::MAX_PAGES as u64);
            let (buf, n) = self.read_piece(inode, at, want).map_err(|e| e.in_inode(inode.ino))?;
            out.push(PageRun { buf: Arc::new(buf), first: 0, pages: n });
            at += n as u64;
        }
        Ok(out)
    }

    /// Reads page `index` and those of the next `want` pages that continue in one piece.
    fn read_piece(&self, inode: &Inode, index: u64, want: u64) -> Result<(PageBuf, usize)> {
        let per_page = self.blocks.per_page();
        let first = FileBlock(index * per_page);
        let m = self.map_shared(inode, first, want * per_page)?;
        let whole = (m.blocks / per_page) as usize;
        match m.place {
            _ if whole == 0 => Ok((self.assemble(inode, first, m)?, 1)),
            Place::Data(addr) => Ok((self.read_run(inode, addr, whole)?, whole)),
            Place::Hole | Place::Unwritten(_) => Ok((PageBuf::zeroed(whole), whole)),
        }
    }

    /// Reads whole pages from block `addr` on.
    fn read_run(&self, inode: &Inode, addr: BlockAddr, pages: usize) -> Result<PageBuf> {
        let at = self.blocks.sector(addr).bytes();
        let logged = self.logged(inode, addr, pages as u64 * self.blocks.per_page());
        let read = self.blocks.read_bytes(at, pages, BioFlags::SYNC);
        let mut bytes = read.map_err(|e| e.of_at("reading", addr.place()))?;
        for (n, block) in logged {
            bytes[n * block.len()..][..block.len()].copy_from_slice(&block);
        }
        Ok(bytes)
    }

    /// Puts a page together from separate pieces; `m` is its first piece.
    fn assemble(&self, inode: &Inode, first: FileBlock, m: Mapped) -> Result<PageBuf> {
        let bs = PAGE_SIZE / self.blocks.per_page() as usize;
        let per_page = self.blocks.per_page();
        let (mut page, mut m, mut done) = (PageBuf::zeroed(1), m, 0);
        loop {
            let n = m.blocks.min(per_page - done);
            if let Place::Data(addr) = m.place {
                let at = self.blocks.sector(addr).bytes();
                let logged = self.logged(inode, addr, n);
                let read = self.blocks.read_bytes(at, 1, BioFlags::SYNC);
                let read = read.map_err(|e| e.of_at("reading", addr.place()))?;
                let (to, len) = (done as usize * bs, n as usize * bs);
                page[to..to + len].copy_from_slice(&read[..len]);
                for (i, block) in logged {
                    page[to + i * bs..][..bs].copy_from_slice(&block);
                }
            }
            done += n;
            if done >= per_page {
                return Ok(page);
            }
            m = self.map_shared(inode, first.plus(done), per_page - done)?;
        }
    }

    /// Starts to read pages up to the first that does not follow its predecessor on the volume; `done` gets
    /// them in the thread that ends the bio. Pages that need no device, or several reads, are left to their
    /// reader.
    pub(crate) fn start_read(&self, inode: &Inode, index: u64, pages: usize, done: ReadDone) {
        let (addr, pages) = match self.place_to_read(inode, index, pages) {
            Ok(Some(place)) => place,
            Ok(None) => return done(Ok(Vec::new())),
            Err(e) => return done(Err(e)),
        };
        let bufs = vec![PageBuf::stale(pages)];
        let bio = Bio::read(self.blocks.sector(addr), bufs, BioFlags::RAHEAD).on_end(move |r, data| {
            done(match (r, data) {
                (Ok(()), BioData::Read(mut v)) if v.len() == 1 => {
                    let buf = v.remove(0);
                    Ok(vec![PageRun { pages: buf.pages(), buf: Arc::new(buf), first: 0 }])
                }
                _ => Err(ErrorKind::Io.into()),
            });
        });
        self.blocks.queue.submit(bio);
    }

    fn place_to_read(&self, inode: &Inode, index: u64, pages: usize) -> Result<Option<(BlockAddr, usize)>> {
        if ei(inode).flags.intersects(InodeFlags::INLINE_DATA | InodeFlags::ENCRYPT) {
            return Ok(None);
        }
        let per_page = self.blocks.per_page();
        let want = pages.min(PageBuf::MAX_PAGES) as u64;
        let m = self.map_shared(inode, FileBlock(index * per_page), want * per_page)?;
        let whole = (m.blocks / per_page) as usize;
        Ok(match m.place {
            Place::Data(addr)
                if whole > 0
                    && self.blocks.are_in_place(addr, m.blocks)
                    && self.logged(inode, addr, m.blocks).is_empty() =>
            {
                Some((addr, whole))
            }
            _ => None,
        })
    }

    fn read_inline(&self, inode: &Inode, index: u64, pages: usize) -> Result<Vec<PageRun>> {
        let content = self.inline_content(&ei(inode), inode.size())?;
        let from = (index as usize).saturating_mul(PAGE_SIZE).min(content.len());
        let mut buf = PageBuf::zeroed(pages.clamp(1, PageBuf::MAX_PAGES));
        let n = (content.len() - from).min(buf.len());
        buf[..n].copy_from_slice(&content[from..from + n]);
        let pages = buf.pages();
        Ok(vec![PageRun { buf: Arc::new(buf), first: 0, pages }])
    }

    /// The target of a symbolic link: in the inode if it is short, otherwise in blocks.
    ///
    /// # Errors
    /// `Corrupt` for a target that is too long; those of reading.
    pub(crate) fn link_target(&self, inode: &Inode) -> Result<Vec<u8>> {
        let (own, size) = (&*ei(inode), inode.size());
        if size == 0 || size >= PAGE_SIZE as u64 {
            return Err(Error::corrupt(format!("a symbolic link of {size} bytes")).in_inode(own.ino));
        }
        // Where values of attributes may lie in inodes of their own, the space taken does not tell where the
        // target is.
        let in_inode =
            self.sb.incompat.contains(Incompat::EA_INODE) || inode.attr().blocks == self.acl_sectors(own);
        let target = if own.is(InodeFlags::INLINE_DATA) {
            let content = self.inline_content(own, size)?;
            rule(content.len() as u64 == size, "its target is cut short").map_err(|e| e.in_inode(own.ino))?;
            content
        } else if in_inode && size < own.block.len() as u64 {
            own.block[..size as usize].to_vec()
        } else {
            self.target_in_block(inode, size)?
        };
        if own.is(InodeFlags::ENCRYPT) {
            // The content is a length and then the encrypted target.
            return Ok(crate::dir::nokey::encode(target.get(2..).unwrap_or_default()));
        }
        // The kernel ends the target at the first zero byte.
        Ok(target.into_iter().take_while(|b| *b != 0).collect())
    }

    /// A target that is too long for the inode: in one block, which is written as metadata.
    fn target_in_block(&self, inode: &Inode, size: u64) -> Result<Vec<u8>> {
        match self.map_shared(inode, FileBlock(0), 1)?.place {
            Place::Data(addr) if size <= u64::from(self.sb.block_size) => {
                Ok(self.blocks.read(addr)?[..size as usize].to_vec())
            }
            _ => Err(Error::corrupt("its target is missing").in_inode(inode.ino)),
        }
    }

    /// The share of a block of attributes in an inode's space, in sectors.
    fn acl_sectors(&self, own: &Ext4Inode) -> u64 {
        let cluster = u64::from(self.sb.block_size) * u64::from(self.sb.cluster_blocks) / 512;
        if own.file_acl.is_some() { cluster } else { 0 }
    }
}

/// Refuses data that is on the volume in a form Tidegate cannot decode.
fn refuse_encoded(inode: &Inode) -> Result<()> {
    if ei(inode).is(InodeFlags::ENCRYPT) && inode.file_type == FileType::Regular {
        let what = "its data is encrypted";
        return Err(Error::new(ErrorKind::Unsupported, what).in_inode(inode.ino));
    }
    Ok(())
}
