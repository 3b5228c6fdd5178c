//! A device that keeps some writes to its first blocks back until they are released.
//!
//! A volume that is made in place is one for everybody as soon as its superblock is there. Where content goes into
//! it first, the superblock waits here: a kill on the way leaves no volume.

use crate::{Bio, BioFlags, Device, DeviceInfo, Errno, Op, PAGE_SIZE, PageBuf, Request, Sector, Segment};
use std::sync::Arc;
use tidegate_rt::{LockClass, Mutex};

/// Held only to copy a block.
static HELD: LockClass = LockClass::new("held", 990);

type Block = [u8; PAGE_SIZE];

/// A device that keeps writes to its first blocks back until they are released.
pub struct Held {
    below: Arc<dyn Device>,
    /// Whether a block is to be kept back.
    keeps: fn(&Block) -> bool,
    /// The first blocks, where they were kept back.
    blocks: Mutex<Vec<Option<Box<Block>>>>,
}

impl Held {
    /// Keeps those writes to the first `count` blocks of `below` back that `keeps` says yes to.
    pub fn new(below: Arc<dyn Device>, count: usize, keeps: fn(&Block) -> bool) -> Self {
        Held { below, keeps, blocks: Mutex::new(&HELD, vec![None; count]) }
    }

    /// Writes what was kept back, behind all that is on the device, and durably.
    ///
    /// # Errors
    /// The device's. Nothing else may be on its way.
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

    /// Does a request for one of the first blocks, if that is done here.
    fn take(&self, rq: &mut Request) -> bool {
        let n = (rq.sector.bytes() / PAGE_SIZE as u64) as usize;
        if rq.bytes != PAGE_SIZE as u64 || !rq.sector.bytes().is_multiple_of(PAGE_SIZE as u64) {
            return false;
        }
        let mut blocks = self.blocks.lock();
        let Some(slot) = blocks.get_mut(n) else { return false };
        match rq.op {
            Op::Read => {
                let Some(block) = slot else { return false };
                let mut at = 0;
                rq.for_each_target(|t| {
                    t.copy_from_slice(&block[at..at + t.len()]);
                    at += t.len();
                });
                true
            }
            Op::Write => {
                let (mut block, mut at) = (Box::new([0; PAGE_SIZE]), 0);
                rq.for_each_source(|s| {
                    block[at..at + s.len()].copy_from_slice(s);
                    at += s.len();
                });
                let keep = (self.keeps)(&block);
                *slot = keep.then_some(block);
                keep
            }
            _ => false,
        }
    }
}

fn sector(block: usize) -> Sector {
    Sector((block * PAGE_SIZE) as u64 / crate::SECTOR_SIZE)
}

impl Device for Held {
    fn info(&self) -> DeviceInfo<'_> {
        self.below.info()
    }

    fn is_quick(&self, rq: &Request) -> bool {
        self.below.is_quick(rq)
    }
    fn execute(&self, rq: &mut Request) -> Result<(), Errno> {
        if self.take(rq) { Ok(()) } else { self.below.execute(rq) }
    }
    fn submit(&self, mut rq: Request) {
        if self.take(&mut rq) {
            rq.complete(Ok(()));
        } else {
            self.below.submit(rq);
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
        held.release().unwrap();
        assert_eq!((first(&above, 0), first(&under, 0)), (7, 7));
    }
}
