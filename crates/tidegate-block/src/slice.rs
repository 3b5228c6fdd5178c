//! The end of a device as a device: a partition of a disk's image.

use crate::{Device, DeviceInfo, Errno, Request, SECTOR_SIZE};
use std::sync::Arc;

/// A device from an offset of another to that one's end.
pub struct Slice {
    below: Arc<dyn Device>,
    /// Where it begins, in sectors.
    start: u64,
}

impl Slice {
    /// The part of `below` from byte `offset` to its end; `None` when `offset` is not a multiple of 512, or behind the
    /// end.
    pub fn new(below: Arc<dyn Device>, offset: u64) -> Option<Slice> {
        let fits = offset.is_multiple_of(SECTOR_SIZE) && offset < below.size();
        fits.then(|| Slice { below, start: offset / SECTOR_SIZE })
    }

    fn shift(&self, rq: &mut Request) {
        rq.sector.0 += self.start;
        rq.bios.iter_mut().for_each(|b| b.sector.0 += self.start);
    }
}

impl Device for Slice {
    fn info(&self) -> DeviceInfo<'_> {
        DeviceInfo { size: self.below.size() - self.start * SECTOR_SIZE, ..self.below.info() }
    }

    fn is_quick(&self, rq: &Request) -> bool {
        self.below.is_quick(rq)
    }
    fn execute(&self, rq: &mut Request) -> Result<(), Errno> {
        self.shift(rq);
        self.below.execute(rq)
    }
    fn submit(&self, mut rq: Request) {
        self.shift(&mut rq);
        self.below.submit(rq);
    }
    fn submit_all(&self, mut requests: Vec<Request>) {
        requests.iter_mut().for_each(|rq| self.shift(rq));
        self.below.submit_all(requests);
    }
}
