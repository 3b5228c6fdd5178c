//! The first block of a file or directory whose data leaves the inode, or never was in it.

use crate::format::raw::*;
use crate::format::units::{BlockAddr, Nid};
use crate::segment::log::Log;
use crate::volume::sbi::F2fs;
use std::sync::Arc;
use tidegate_block::{Bio, BioFlags, PageBuf, Segment};
use tidegate_rt::device_wait;
use tidegate_vfs::{Error, Result};

impl F2fs {
    /// Writes `bytes` to a block of its own, the first block of node `nid`'s file, and waits for the write.
    pub(crate) fn place_first_block(&self, nid: Nid, bytes: &[u8]) -> Result<BlockAddr> {
        self.book(1, 0, 0)?;
        self.write_first_block(nid, bytes).inspect_err(|_| self.unbook(1, 0, 0))
    }

    fn write_first_block(&self, nid: Nid, bytes: &[u8]) -> Result<BlockAddr> {
        let version = self.nat.versions(&self.meta, &[nid])?[0];
        let log = Log::WarmData;
        let a =
            self.allocate(log, 1, |_| RawSummary { nid: nid.0.into(), version, ofs_in_node: 0.into() })?;
        self.stats.bio(log.kind(), 1);
        let seg = Segment::pages(Arc::new(PageBuf::from_slice(bytes)), 0, 1);
        let _leave =
            device_wait::permit("the inode is to say where its data is when it is there: so does Linux");
        let written = match self.is_zoned() {
            true => self.write_io.write_and_wait(log.into(), a.start, seg),
            false => {
                self.queue.submit_wait(Bio::write(a.start.sector(), vec![seg], BioFlags::SYNC)).map(drop)
            }
        };
        if let Err(e) = written {
            self.sit.invalidate(&[a.start])?;
            return Err(Error::device(e, "writing its first block").at(nid.place()));
        }
        Ok(a.start)
    }
}
