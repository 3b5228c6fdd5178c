//! Zones over a device that has none, as in the zoned models, with any content.

use super::{Zone, ZoneSpec, ZoneState, Zones};
use crate::bio::{BioFlags, Op};
use crate::{Device, DeviceInfo, Errno, Request};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use tidegate_rt::{LockClass, Mutex};

static CLASS: LockClass = LockClass::new("zoned->zones", 981);

/// A device with zones whose bytes another device keeps. The write pointers are only in memory.
pub struct ZonedDevice {
    below: Arc<dyn Device>,
    zones: Mutex<Zones>,
    size: u64,
    refused: AtomicU64,
}

impl ZonedDevice {
    /// Empty zones over `below`, as many as fit.
    pub fn new(below: Arc<dyn Device>, spec: ZoneSpec) -> Self {
        let zones = Zones::new(spec, below.size());
        Self::with_zones(below, zones)
    }

    /// Zones in the state that `zones` is in, over `below`.
    pub fn with_zones(below: Arc<dyn Device>, zones: Zones) -> Self {
        let size = zones.report().last().map_or(0, |z| z.start + z.len);
        ZonedDevice { below, zones: Mutex::new(&CLASS, zones), size, refused: AtomicU64::new(0) }
    }

    /// Has the device give up zone `n`, so that it is in `state`.
    pub fn give_up(&self, n: usize, state: ZoneState) {
        self.zones.lock().give_up(n, state);
    }

    /// Requests that broke a rule of zones.
    pub fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    /// Takes a request or refuses it. Returns whether the device below has anything to do.
    fn take(&self, rq: &Request) -> Result<bool, Errno> {
        let mut zones = self.zones.lock();
        if rq.op != Op::Flush && rq.end().bytes() > self.size {
            return Err(Errno::IO);
        }
        zones.take(rq).inspect_err(|_| {
            self.refused.fetch_add(u64::from(rq.op != Op::Read), Relaxed);
        })?;
        Ok(rq.op != Op::Discard || zones.clears(rq.sector.bytes(), rq.bytes))
    }

    /// Turns a zone operation into one that the device below knows.
    fn translate(rq: &mut Request) -> bool {
        if rq.op == Op::ZoneReset {
            (rq.op, rq.flags) = (Op::Discard, BioFlags::empty());
            rq.bios.iter_mut().for_each(|b| b.op = Op::Discard);
        }
        rq.op != Op::ZoneFinish
    }
}

impl Device for ZonedDevice {
    fn info(&self) -> DeviceInfo<'_> {
        let zones = Some(self.zones.lock().zoning());
        DeviceInfo { zones, size: self.size, ..self.below.info() }
    }

    fn report_zones(&self) -> Result<Vec<Zone>, Errno> {
        Ok(self.zones.lock().report())
    }

    fn report_zone(&self, pos: u64) -> Result<Option<Zone>, Errno> {
        Ok(self.zones.lock().at(pos))
    }

    fn is_quick(&self, rq: &Request) -> bool {
        self.below.is_quick(rq)
    }

    fn execute(&self, rq: &mut Request) -> Result<(), Errno> {
        if self.take(rq)? && Self::translate(rq) { self.below.execute(rq) } else { Ok(()) }
    }

    fn submit(&self, mut rq: Request) {
        match self.take(&rq) {
            Ok(true) if Self::translate(&mut rq) => self.below.submit(rq),
            r => rq.complete(r.map(drop)),
        }
    }
}
