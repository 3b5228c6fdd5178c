//! The end of a device as a device: a partition of a disk's image.

use crate::{Device, DeviceInfo, Errno, Request, SECTOR_SIZE, Zone, Zoning};
use std::sync::Arc;

/// A device that begins at an offset of another and reaches to its end.
pub struct Slice {
    below: Arc<dyn Device>,
    /// Where it begins, in sectors.
    start: u64,
}

impl Slice {
    /// The part of `below` from byte `offset` to the end. `None` when `offset` is not a multiple of 512, or
    /// past the end.
    pub fn new(below: Arc<dyn Device>, offset: u64) -> Option<Slice> {
        let fits = offset.is_multiple_of(SECTOR_SIZE) && offset < below.size();
        fits.then(|| Slice { below, start: offset / SECTOR_SIZE })
    }

    fn start(&self) -> u64 {
        self.start * SECTOR_SIZE
    }

    /// The part of a zone that lies in the slice.
    fn cut(&self, mut z: Zone) -> Zone {
        let cut = self.start().saturating_sub(z.start);
        (z.start, z.len, z.capacity) = (z.start + cut - self.start(), z.len - cut, z.capacity - cut);
        z.pointer = z.pointer.saturating_sub(self.start()).max(z.start);
        z
    }

    fn shift(&self, rq: &mut Request) {
        rq.sector.0 += self.start;
        rq.bios.iter_mut().for_each(|b| b.sector.0 += self.start);
    }
}

impl Device for Slice {
    fn info(&self) -> DeviceInfo<'_> {
        let below = self.below.info();
        // A zone that lies in the slice only in part could not be told from a whole one.
        let zones = below.zones.filter(|z| z.first >= self.start());
        let zones = zones.map(|z| Zoning { first: z.first - self.start(), ..z });
        DeviceInfo { size: below.size - self.start(), zones, ..below }
    }

    fn report_zones(&self) -> Result<Vec<Zone>, Errno> {
        if self.info().zones.is_none() {
            return Ok(Vec::new());
        }
        let all = self.below.report_zones()?.into_iter();
        Ok(all.filter(|z| z.start + z.len > self.start()).map(|z| self.cut(z)).collect())
    }

    fn report_zone(&self, pos: u64) -> Result<Option<Zone>, Errno> {
        if self.info().zones.is_none() {
            return Ok(None);
        }
        Ok(self.below.report_zone(self.start() + pos)?.map(|z| self.cut(z)))
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
