//! Reading file data before it is wanted.

use crate::format::raw::{advise, inline};
use crate::inode::fi;
use crate::volume::sbi::F2fs;
use std::sync::Arc;
use tidegate_block::{Bio, BioData, BioFlags, PageBuf, Sector};
use tidegate_vfs::{ErrorKind, Inode, PageRun, ReadDone, Result};

impl F2fs {
    /// Starts to read pages, up to the first page that does not follow its predecessor on the volume. `done`
    /// gets them in the thread that ends the bio. Pages that need no device are left to their reader.
    pub(crate) fn start_read(&self, inode: &Arc<Inode>, index: u64, pages: usize, done: ReadDone) {
        // The watch begins before the lookup of the addresses: a thread that moves pages counts the move
        // first.
        let stayed = self.gc.watch_moves(inode.ino);
        let (sector, pages) = match self.place_to_read(inode, index, pages) {
            Ok(Some(place)) => place,
            Ok(None) => return done(Ok(Vec::new())),
            Err(e) => return done(Err(e)),
        };
        let bio = Bio::read(sector, vec![PageBuf::stale(pages)], BioFlags::RAHEAD).on_end(move |r, data| {
            let read: Result<Vec<PageRun>> = match (r, data) {
                (Ok(()), BioData::Read(mut v)) if v.len() == 1 => {
                    let buf = v.remove(0);
                    Ok(vec![PageRun { pages: buf.pages(), buf: Arc::new(buf), first: 0 }])
                }
                _ => Err(ErrorKind::Io.into()),
            };
            // Cleaning moved the pages meanwhile: another file's bytes may be there now.
            done(if stayed() { read } else { Ok(Vec::new()) });
        });
        self.queue.submit(bio);
    }

    fn place_to_read(&self, inode: &Inode, index: u64, pages: usize) -> Result<Option<(Sector, usize)>> {
        let f = fi(inode);
        if f.has_inline(inline::DATA) || f.compressed || f.has_advise(advise::ENCRYPT) {
            return Ok(None);
        }
        let m = self.map_pages(inode, index, pages.min(PageBuf::MAX_PAGES) as u64)?;
        // The cache is looked at again: a block that cleaning moves meanwhile is cached until its new place
        // is written.
        let (cached, missing) = inode.mapping.residency(index, m.pages);
        Ok((m.blk.is_data() && !cached).then(|| (m.blk.sector(), missing as usize)))
    }
}
