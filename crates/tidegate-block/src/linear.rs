//! Several devices, one behind the other, as one.

use crate::bio::{Bio, BioData, BioFlags, Op, Sector, Segment};
use crate::{Device, DeviceInfo, Errno, PAGE_SIZE, PageBuf, Request, Zone, Zoning};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// One of the devices.
struct Part {
    device: Arc<dyn Device>,
    /// Its first byte in the whole.
    start: u64,
    /// Bytes of it that are used.
    len: u64,
    /// Whether anything was ever written to it.
    written: AtomicBool,
    /// Whether it was flushed: earlier, a process that was killed may have written to it.
    flushed: AtomicBool,
}

impl Part {
    /// A zone of the device as a zone of the whole, if all of it is used.
    fn zone(&self, z: Zone) -> Option<Zone> {
        let (start, pointer) = (z.start + self.start, z.pointer + self.start);
        (z.start + z.len <= self.len).then_some(Zone { start, pointer, ..z })
    }
}

/// Several devices, one behind the other, as one. A flush reaches all devices that were written to, and the first flush
/// each device.
pub struct Linear {
    parts: Vec<Part>,
    size: u64,
    name: String,
    zones: Option<Zoning>,
}

impl Linear {
    /// The given number of first bytes of each device, in this order. `None` when there is no device, when a
    /// length is no whole number of pages or larger than the device, or when zoned devices do not lie behind
    /// all others or differ in the size of their zones.
    pub fn new(devices: Vec<(Arc<dyn Device>, u64)>) -> Option<Linear> {
        let (mut parts, mut start) = (Vec::new(), 0);
        let mut zones: Option<Zoning> = None;
        for (device, len) in devices {
            let fits = len > 0 && len <= device.size() && len.is_multiple_of(PAGE_SIZE as u64);
            fits.then_some(())?;
            let own = device.info().zones.map(|z| Zoning { first: start + z.first, ..z });
            zones = match (zones, own) {
                (None, own) => own,
                (Some(all), Some(own)) if own.size == all.size && own.first == start => Some(Zoning {
                    max_open: all.max_open.min(own.max_open),
                    max_active: all.max_active.min(own.max_active),
                    ..all
                }),
                _ => return None,
            };
            if zones.is_some_and(|z| z.first <= start && !(start - z.first).is_multiple_of(z.size)) {
                return None;
            }
            parts.push(Part {
                device,
                start,
                len,
                written: AtomicBool::new(false),
                flushed: AtomicBool::new(false),
            });
            start += len;
        }
        let name = parts.iter().map(|p| p.device.name()).collect::<Vec<_>>().join("+");
        (!parts.is_empty()).then_some(Linear { parts, size: start, name, zones })
    }

    /// The device that holds the whole range of a request.
    fn part_of(&self, rq: &Request) -> Option<&Part> {
        let (pos, end) = (rq.sector.bytes(), rq.end().bytes());
        self.parts.iter().find(|p| pos >= p.start && end <= p.start + p.len)
    }

    /// Flushes all devices that may have unflushed writes, except `but`, whose request flushes it.
    fn flush_others(&self, but: Option<&Part>) -> Result<(), Errno> {
        for p in &self.parts {
            let is_it = but.is_some_and(|b| std::ptr::eq(b, p));
            if !is_it && (p.written.load(SeqCst) || !p.flushed.load(SeqCst)) {
                p.device.execute(&mut Request::new(Bio::flush()))?;
                p.flushed.store(true, SeqCst);
            }
        }
        Ok(())
    }

    /// Prepares a request for the device that holds its range.
    fn direct(&self, rq: &mut Request, part: &Part) -> Result<(), Errno> {
        if rq.flags.contains(BioFlags::PREFLUSH) {
            self.flush_others(Some(part))?;
        }
        if rq.op != Op::Read {
            part.written.store(true, SeqCst);
        }
        let shift = part.start / crate::SECTOR_SIZE;
        rq.sector.0 -= shift;
        rq.bios.iter_mut().for_each(|b| b.sector.0 -= shift);
        Ok(())
    }

    /// Executes a request on several devices, a page of memory at a time.
    fn across(&self, rq: &mut Request) -> Result<(), Errno> {
        let (mut pos, end) = (rq.sector.bytes(), rq.end().bytes());
        if end > self.size {
            return Err(Errno::IO);
        }
        if rq.flags.contains(BioFlags::PREFLUSH) {
            self.flush_others(None)?;
        }
        let mut bytes = Vec::new();
        rq.for_each_source(|s| bytes.extend_from_slice(s));
        let (whole, mut read) = (pos, Vec::new());
        while pos < end {
            let part = self.parts.iter().find(|p| pos < p.start + p.len).ok_or(Errno::IO)?;
            let most = (PageBuf::MAX_PAGES * PAGE_SIZE) as u64;
            let n = (end - pos).min(part.start + part.len - pos);
            let n = if matches!(rq.op, Op::Read | Op::Write) { n.min(most) } else { n };
            let flags = rq.flags - BioFlags::PREFLUSH;
            let sector = Sector::from_bytes(pos);
            let bio = match rq.op {
                Op::Read => Bio::read(sector, vec![PageBuf::zeroed((n as usize).div_ceil(PAGE_SIZE))], flags),
                Op::Write => {
                    let piece = PageBuf::from_slice(&bytes[(pos - whole) as usize..][..n as usize]);
                    Bio::write(
                        sector,
                        vec![Segment { buf: Arc::new(piece), offset: 0, len: n as u32 }],
                        flags,
                    )
                }
                op => Bio::range(op, sector, n, flags),
            };
            let mut one = Request::new(bio);
            one.bytes = n;
            self.direct(&mut one, part)?;
            part.device.execute(&mut one)?;
            if let BioData::Read(bufs) = &one.bios[0].data {
                read.extend(bufs.iter().flat_map(|b| b.iter().copied()));
            }
            pos += n;
        }
        let mut at = 0;
        rq.for_each_target(|t| {
            t.copy_from_slice(&read[at..at + t.len()]);
            at += t.len();
        });
        Ok(())
    }
}

impl Device for Linear {
    fn info(&self) -> DeviceInfo<'_> {
        let read_only = self.parts.iter().any(|p| p.device.read_only());
        let first = self.parts[0].device.info();
        DeviceInfo { name: &self.name, size: self.size, read_only, zones: self.zones, ..first }
    }

    fn report_zones(&self) -> Result<Vec<Zone>, Errno> {
        let mut all = Vec::new();
        for p in &self.parts {
            let own = p.device.report_zones()?;
            if own.is_empty() {
                all.push(Zone::conventional(p.start, p.len));
            }
            all.extend(own.into_iter().filter_map(|z| p.zone(z)));
        }
        Ok(all)
    }

    fn report_zone(&self, pos: u64) -> Result<Option<Zone>, Errno> {
        let inside = |p: &&Part| (p.start..p.start + p.len).contains(&pos);
        let Some(p) = self.parts.iter().find(inside) else { return Ok(None) };
        if p.device.info().zones.is_none() {
            return Ok(Some(Zone::conventional(p.start, p.len)));
        }
        Ok(p.device.report_zone(pos - p.start)?.and_then(|z| p.zone(z)))
    }

    fn is_quick(&self, rq: &Request) -> bool {
        self.part_of(rq).is_some_and(|p| p.device.is_quick(rq))
    }

    fn execute(&self, rq: &mut Request) -> Result<(), Errno> {
        if rq.op == Op::Flush {
            return self.flush_others(None);
        }
        let Some(part) = self.part_of(rq) else { return self.across(rq) };
        self.direct(rq, part)?;
        part.device.execute(rq)
    }

    fn submit(&self, mut rq: Request) {
        let part = self.part_of(&rq).filter(|_| rq.op != Op::Flush);
        match part.map(|p| (p, self.direct(&mut rq, p))) {
            Some((p, Ok(()))) => p.device.submit(rq),
            Some((_, Err(e))) => rq.complete(Err(e)),
            None => {
                let r = self.execute(&mut rq);
                rq.complete(r);
            }
        }
    }
}
