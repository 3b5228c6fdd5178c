//! Devices with zones, and their states after a power cut.
//!
//! A zone is written in order, so a write that is lost takes all later ones of its zone with it, and so does
//! a reset. So a power cut leaves a beginning of the writes to a zone, with at least the durable ones; the
//! write pointer is at its end.

use crate::Fault;
use crate::tape::{Tape, Unit};
use std::collections::HashSet;
use std::sync::Arc;
use tidegate_block::zones::Zones;
use tidegate_block::{Device, Op, Overlay, RequestQueue, ZoneSpec, ZonedDevice};

/// The zones of a device, and the write pointer of each in bytes of the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pointers {
    /// How the device is laid out.
    pub spec: ZoneSpec,
    /// The write pointer of each zone.
    pub at: Vec<u64>,
}

/// A device's content, and its zones if it has any.
pub type OnZones = Option<Arc<Pointers>>;

/// An operation on a zone.
struct Event {
    unit: Unit,
    /// The operation is on the whole zone; `None` for a write of a block.
    whole: Option<Op>,
    durable: bool,
}

/// An overlay with the zones of its device.
pub(crate) struct Zoned(Option<Arc<ZonedDevice>>, Arc<Overlay>);

impl Zoned {
    pub(crate) fn new(overlay: Arc<Overlay>, zones: &OnZones) -> Zoned {
        let with = zones.as_ref().map(|p| {
            let mut zones = Zones::new(p.spec, overlay.size());
            let sequential = p.at.iter().enumerate().skip(p.spec.conventional);
            sequential.for_each(|(n, at)| zones.set_pointer(n, *at));
            Arc::new(ZonedDevice::with_zones(overlay.clone(), zones))
        });
        Zoned(with, overlay)
    }

    pub(crate) fn device(&self) -> Arc<dyn Device> {
        match &self.0 {
            Some(zoned) => zoned.clone(),
            None => self.1.clone(),
        }
    }

    /// The current write pointer of each zone.
    pub(crate) fn pointers(&self, spec: Option<ZoneSpec>) -> OnZones {
        let (zoned, spec) = (self.0.as_ref()?, spec?);
        let at = zoned.report_zones().ok()?.iter().map(|z| z.pointer).collect();
        Some(Arc::new(Pointers { spec, at }))
    }

    /// Checks that every write was at a write pointer, and that no more zones were active than allowed. For
    /// this, neither the device nor the queue before it may have refused a write; the queue fails writes that
    /// do not fit their zone's write pointer.
    pub(crate) fn check(&self, queue: &RequestQueue) -> Result<(), Fault> {
        let device = self.0.as_ref().map_or(0, |z| z.refused());
        match (device, queue.stats().zone_refused) {
            (0, 0) => Ok(()),
            (d, q) => {
                let what =
                    format!("{d} requests broke a rule of zones, {q} writes were refused by the queue");
                Err(Fault::new("zones", what))
            }
        }
    }
}

impl Tape {
    /// Puts into a content what a cut leaves of the zones; returns their write pointers.
    pub(crate) fn lay_zones(&self, cut: u64, flushed: u64, present: &[Unit], table: &mut [u32]) -> OnZones {
        let before = self.zones.as_ref()?;
        let size = self.blocks.block_size() as u64;
        let per = (before.spec.size / size) as u32;
        let first = before.spec.conventional as u32 * per;
        let present: HashSet<&Unit> = present.iter().filter(|u| u.block >= first).collect();
        table[first as usize..].copy_from_slice(&self.before[first as usize..]);
        let mut at = before.at.clone();
        for (zone, events) in self.events(cut, flushed, first, per) {
            let (zone, start) = (zone as usize, zone * per);
            let durable = events.iter().rposition(|e| e.durable).map_or(0, |i| i + 1);
            // A finish has no block that could be missing.
            let missing = |e: &Event| match e.whole {
                Some(Op::ZoneFinish) => cut.is_multiple_of(2),
                _ => !present.contains(&e.unit),
            };
            let kept = durable + events[durable..].iter().position(missing).unwrap_or(events.len() - durable);
            for e in &events[..kept] {
                match e.whole {
                    Some(Op::ZoneReset) => {
                        table[start as usize..(start + per) as usize].fill(0);
                        at[zone] = u64::from(start) * size;
                    }
                    Some(_) => at[zone] = u64::from(start) * size + before.spec.capacity,
                    None => {
                        let c = &self.changes[e.unit.change as usize];
                        table[e.unit.block as usize] =
                            c.content.map_or(0, |content| content + e.unit.block - c.block);
                        at[zone] = u64::from(e.unit.block + 1) * size;
                    }
                }
            }
        }
        Some(Arc::new(Pointers { spec: before.spec, at }))
    }

    /// The writes, resets and finishes of each zone before `cut`, in order.
    fn events(&self, cut: u64, flushed: u64, first: u32, per: u32) -> Vec<(u32, Vec<Event>)> {
        let mut zones: std::collections::BTreeMap<u32, Vec<Event>> = Default::default();
        for (change, c) in self.until(cut).filter(|(_, c)| c.block >= first) {
            let durable = Self::is_durable(c, cut, flushed);
            let unit = |block| Unit { change, block };
            let zone = zones.entry(c.block / per).or_default();
            match c.zone {
                Some(op) => zone.push(Event { unit: unit(c.block), whole: Some(op), durable }),
                None => zone.extend((c.block..c.block + c.count).map(|b| Event {
                    unit: unit(b),
                    whole: None,
                    durable,
                })),
            }
        }
        zones.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_block::{Bio, BioFlags, MemoryDevice, PageBuf, QueueLimits, Sector, Segment};

    const MIB: u64 = 1 << 20;
    const SPEC: ZoneSpec = ZoneSpec { size: MIB, capacity: MIB, conventional: 1, max_open: 2, max_active: 2 };

    fn write(queue: &RequestQueue, pos: u64) {
        let page = Segment::pages(Arc::new(PageBuf::zeroed(1)), 0, 1);
        let _ = queue.submit_wait(Bio::write(Sector::from_bytes(pos), vec![page], BioFlags::empty()));
    }

    /// A write behind the write pointer fails in the queue; a write that the device refuses may have bypassed
    /// the queue.
    #[test]
    fn a_write_that_breaks_a_rule_is_a_fault() {
        let zones: OnZones = Some(Arc::new(Pointers { spec: SPEC, at: vec![0, MIB, 2 * MIB, 3 * MIB] }));
        let zoned = || Zoned::new(Arc::new(Overlay::new(Arc::default(), vec![0; 1024])), &zones);
        let queue = |z: &Zoned| RequestQueue::new(z.device(), QueueLimits::default());
        let z = zoned();
        let q = queue(&z);
        write(&q, MIB);
        z.check(&q).unwrap();
        write(&q, MIB);
        assert_eq!(z.0.as_ref().unwrap().refused(), 0);
        assert!(z.check(&q).unwrap_err().text.ends_with("1 writes were refused by the queue"));
        let z = zoned();
        let q = queue(&z);
        [1, 2, 3].iter().for_each(|n| write(&q, n * MIB));
        assert!(z.check(&q).unwrap_err().text.starts_with("1 requests broke a rule"));
        let other = RequestQueue::new(Arc::new(MemoryDevice::new(MIB)), QueueLimits::default());
        assert!(z.check(&other).is_err());
        zoned().check(&other).unwrap();
    }
}
