//! A device that keeps some writes to its first blocks back until they are released.
//!
//! A device holds a volume for every program as soon as the superblock is written. Where a new volume gets content
//! first, the superblock is kept back here, so a process that is killed meanwhile leaves no volume.

use crate::{
    Bio, BioFlags, Device, DeviceInfo, Errno, Op, PAGE_SIZE, PageBuf, Request, Sector, Segment, Zone,
};
use std::sync::Arc;
use tidegate_rt::{LockClass, Mutex};

/// This lock is held only to copy a block.
static HELD: LockClass = LockClass::new("held", 990);

type Block = [u8; PAGE_SIZE];

/// A device that keeps writes to its first blocks back until they are released.
pub struct Held {
    below: Arc<dyn Device>,
    /// Whether a block is to be kept back.
    keeps: fn(&Block) -> bool,
    /// Those of the first blocks that were kept back.
    blocks: Mutex<Vec<Option<Box<Block>>>>,
}

impl Held {
    /// Keeps back the writes to the first `count` blocks of `below` for which `keeps` returns true.
    pub fn new(below: Arc<dyn Device>, count: usize, keeps: fn(&Block) -> bool) -> Self {
        Held { below, keeps, blocks: Mutex::new(&HELD, vec![None; count]) }
    }

    /// Writes the blocks that were kept back, after all other writes to the device, and makes them durable.
    ///
    /// # Errors
    /// The device's. No other request may be in flight.
    pub fn release(&self) -> Result<(), Errno> {
        let kept = std::mem::take(&mut *self.blocks.lock());
        let mut flags = BioFlags::SYNC | BioFlags::META | BioFlags::PREFLUSH | BioFlags::FUA;
        for (n, block) in kept.into_iter().enumerate() {
            let Some(block) = block else { continue };
            let mut page = PageBuf::zeroed(1);
            page.copy_from_slice(&block[..]);
            let segment = Segment::pages(Arc::new(page), 0, 1);
            let bio = Bio::write(sector(n), vec![segment], flags);
            self.below.execute(&mut Request::new(bio))?;
            flags -= BioFlags::PREFLUSH;
        }
        Ok(())
    }

    /// Executes a request that reaches into the first blocks, if it reads or writes.
    ///
    /// `None` for all other requests: nothing was done.
    fn take(&self, rq: &mut Request) -> Option<Result<(), Errno>> {
        let held = (self.blocks.lock().len() * PAGE_SIZE) as u64;
        if rq.sector.bytes() >= held || rq.bytes == 0 {
            return None;
        }
        match rq.op {
            Op::Read => Some(self.read(rq)),
            Op::Write => Some(self.write(rq)),
            _ => None,
        }
    }

    /// Reads the device, and puts the blocks that are kept back over the result.
    fn read(&self, rq: &mut Request) -> Result<(), Errno> {
        self.below.execute(rq)?;
        let start = rq.sector.bytes() as usize;
        let blocks = self.blocks.lock();
        let mut at = start;
        rq.for_each_target(|target| {
            let end = at + target.len();
            for (n, block) in blocks.iter().enumerate() {
                let (first, last) = ((n * PAGE_SIZE).max(at), ((n + 1) * PAGE_SIZE).min(end));
                if let (Some(block), true) = (block, first < last) {
                    let own = first - n * PAGE_SIZE..last - n * PAGE_SIZE;
                    target[first - at..last - at].copy_from_slice(&block[own]);
                }
            }
            at = end;
        });
        Ok(())
    }

    /// Writes each of the first blocks with its new content, or keeps it back, and writes the blocks behind
    /// them.
    fn write(&self, rq: &Request) -> Result<(), Errno> {
        let mut bytes = Vec::with_capacity(rq.bytes as usize);
        rq.for_each_source(|s| bytes.extend_from_slice(s));
        let (start, mut at) = (rq.sector.bytes() as usize, 0);
        let count = self.blocks.lock().len();
        while at < bytes.len() && (start + at) / PAGE_SIZE < count {
            let (n, own) = ((start + at) / PAGE_SIZE, (start + at) % PAGE_SIZE);
            let len = (PAGE_SIZE - own).min(bytes.len() - at);
            self.write_block(n, own, &bytes[at..at + len], rq.flags)?;
            at += len;
        }
        match at < bytes.len() {
            true => self.put((start + at) as u64, &bytes[at..], rq.flags),
            false => Ok(()),
        }
    }

    fn write_block(&self, n: usize, at: usize, part: &[u8], flags: BioFlags) -> Result<(), Errno> {
        let was = self.blocks.lock()[n].clone();
        let mut block = match was {
            Some(block) => block,
            None if part.len() == PAGE_SIZE => Box::new([0; PAGE_SIZE]),
            None => {
                let page = PageBuf::zeroed(1);
                let mut rq = Request::new(Bio::read(sector(n), vec![page], BioFlags::META));
                self.below.execute(&mut rq)?;
                let mut block = Box::new([0; PAGE_SIZE]);
                rq.for_each_target(|t| block.copy_from_slice(t));
                block
            }
        };
        block[at..at + part.len()].copy_from_slice(part);
        if (self.keeps)(&block) {
            self.blocks.lock()[n] = Some(block);
            return Ok(());
        }
        // The whole block is written: a part that was kept back is not on the device.
        self.blocks.lock()[n] = None;
        self.put(sector(n).bytes(), &block[..], flags)
    }

    fn put(&self, at: u64, bytes: &[u8], flags: BioFlags) -> Result<(), Errno> {
        let most = PageBuf::MAX_PAGES * PAGE_SIZE;
        for (n, piece) in bytes.chunks(most).enumerate() {
            let segment =
                Segment { buf: Arc::new(PageBuf::from_slice(piece)), offset: 0, len: piece.len() as u32 };
            let bio = Bio::write(Sector::from_bytes(at + (n * most) as u64), vec![segment], flags);
            self.below.execute(&mut Request::new(bio))?;
        }
        Ok(())
    }
}

fn sector(block: usize) -> Sector {
    Sector((block * PAGE_SIZE) as u64 / crate::SECTOR_SIZE)
}

impl Device for Held {
    fn info(&self) -> DeviceInfo<'_> {
        self.below.info()
    }

    fn report_zones(&self) -> Result<Vec<Zone>, Errno> {
        self.below.report_zones()
    }

    fn report_zone(&self, pos: u64) -> Result<Option<Zone>, Errno> {
        self.below.report_zone(pos)
    }

    fn is_quick(&self, rq: &Request) -> bool {
        self.below.is_quick(rq)
    }
    fn execute(&self, rq: &mut Request) -> Result<(), Errno> {
        self.take(rq).unwrap_or_else(|| self.below.execute(rq))
    }

    fn submit(&self, mut rq: Request) {
        match self.take(&mut rq) {
            Some(done) => rq.complete(done),
            None => self.below.submit(rq),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MemoryDevice, QueueLimits, RequestQueue};

    #[test]
    fn what_is_kept_back_is_read_and_written_at_last() {
        let below = Arc::new(MemoryDevice::new(16 * PAGE_SIZE as u64));
        let held = Arc::new(Held::new(below.clone(), 2, |b| b[0] == 7));
        let (above, under) = (held.clone() as Arc<dyn Device>, below as Arc<dyn Device>);
        let queue = |d: &Arc<dyn Device>| RequestQueue::new(d.clone(), QueueLimits::default());
        let (above, under) = (queue(&above), queue(&under));
        let put = |n: usize, byte: u8| {
            let mut page = PageBuf::zeroed(1);
            page.fill(byte);
            let segment = Segment::pages(Arc::new(page), 0, 1);
            above.submit_wait(Bio::write(sector(n), vec![segment], BioFlags::SYNC)).unwrap();
        };
        let first = |q: &RequestQueue, n: usize| q.read_wait(sector(n), 1, BioFlags::empty()).unwrap()[0];
        put(0, 3);
        put(0, 7);
        put(2, 7);
        assert_eq!((first(&above, 0), first(&under, 0)), (7, 3));
        assert_eq!((first(&above, 2), first(&under, 2)), (7, 7));
        // A write of a part of the blocks that are kept back, and one that reaches past these blocks.
        let write = |at: u64, bytes: &[u8]| {
            let segment =
                Segment { buf: Arc::new(PageBuf::from_slice(bytes)), offset: 0, len: bytes.len() as u32 };
            above.submit_wait(Bio::write(Sector::from_bytes(at), vec![segment], BioFlags::SYNC)).unwrap();
        };
        write(1024, &[9; 512]);
        write(PAGE_SIZE as u64, &[5; 3 * PAGE_SIZE]);
        let three = above.read_wait(sector(0), 4, BioFlags::empty()).unwrap();
        assert_eq!([three[0], three[1024], three[1535], three[1536]], [7, 9, 9, 7]);
        assert!(three[PAGE_SIZE..].iter().all(|b| *b == 5));
        assert_eq!((first(&under, 0), first(&under, 1), first(&under, 3)), (3, 5, 5));
        held.release().unwrap();
        assert_eq!((first(&above, 0), first(&under, 0)), (7, 7));
    }
}
