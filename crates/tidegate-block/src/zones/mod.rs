//! Zones: parts of a device that are written in order from their start on, and are reset as a whole.
//!
//! Terms and rules are those of the zoned block device model (ZBC, ZAC, NVMe ZNS; zonedstorage.io): a write
//! begins at the write pointer of its zone, a reset moves the write pointer back to the start of the zone, a
//! finish makes a zone full. A zone that is neither empty nor full is active, and a device bounds the number
//! of active zones.
//!
//! Locks owned: `queue->zone_wplugs` 975, `zoned->zones` 981.
//!
//! | module | holds |
//! |---|---|
//! | this | the zones of a device and their state ([`Zones`]) |
//! | [`device`] | [`ZonedDevice`]: zones over a device without zones |
//! | `host` | zones of the host's block devices |
//! | `plug` | writes to a zone, put in order on the way to the device |

pub mod device;
pub(crate) mod host;
pub(crate) mod plug;

pub use device::ZonedDevice;

use crate::bio::Op;
use crate::{Errno, Request};

/// The layout of a zoned device, and how many zones may be partly written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneSpec {
    /// From the start of a zone to that of the next, in bytes.
    pub size: u64,
    /// Bytes of a zone that can be written.
    pub capacity: u64,
    /// The number of zones at the start that can be written anywhere.
    pub conventional: usize,
    /// The most zones that may be open, that is, written to. The zone that was written to longest ago is closed to open
    /// another.
    pub max_open: usize,
    /// The most zones that may be active: open or closed, that is, neither empty nor full.
    pub max_active: usize,
}

/// The geometry of a device's zones: the properties that all zones share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zoning {
    /// The first byte of the zones that are written in order. From there on, a zone begins every `size` bytes.
    pub first: u64,
    /// From the start of a zone to that of the next, in bytes.
    pub size: u64,
    /// The most zones that may be open at once; `usize::MAX`: all.
    pub max_open: usize,
    /// The most zones that may be active, that is, neither empty nor full; `usize::MAX`: all.
    pub max_active: usize,
}

impl Zoning {
    /// The start of the zone that a byte is in. `None` in front of the zones that are written in order.
    pub fn zone_of(&self, pos: u64) -> Option<u64> {
        let n = pos.checked_sub(self.first)? / self.size;
        Some(self.first + n * self.size)
    }
}

/// The state of a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneState {
    /// It can be written anywhere.
    Conventional,
    /// Nothing is written.
    Empty,
    /// Part of it is written, and more can be.
    Open,
    /// Part of it is written; the device opens it for the next write.
    Closed,
    /// It takes no more.
    Full,
    /// It takes no writes and is never reset, but can be read. Its write pointer is not known.
    ReadOnly,
    /// It takes no writes and is never reset, and has lost its content.
    Offline,
}

impl ZoneState {
    /// Whether the zone is active: the device bounds the number of active zones.
    pub fn is_active(self) -> bool {
        matches!(self, ZoneState::Open | ZoneState::Closed)
    }

    /// Whether the device has given the zone up: it takes no writes, now or later.
    pub fn is_dead(self) -> bool {
        matches!(self, ZoneState::ReadOnly | ZoneState::Offline)
    }
}

/// A zone, as a report shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zone {
    /// Its first byte.
    pub start: u64,
    /// Bytes to the next zone.
    pub len: u64,
    /// Bytes of it that can be written.
    pub capacity: u64,
    /// Where the next write must begin. The end of the writable part when the zone takes no more writes.
    pub pointer: u64,
    /// Its state.
    pub state: ZoneState,
}

impl Zone {
    /// A zone of `len` bytes that is written anywhere.
    pub fn conventional(start: u64, len: u64) -> Zone {
        Zone { start, len, capacity: len, pointer: start, state: ZoneState::Conventional }
    }

    /// Whether the zone is to be written in order.
    pub fn is_sequential(&self) -> bool {
        self.state != ZoneState::Conventional
    }
}

/// All zones of a device, and the writes that it refuses.
pub struct Zones {
    spec: ZoneSpec,
    zones: Vec<Zone>,
    /// The open zones, by number. The zone that was written to most recently is the last.
    open: Vec<usize>,
    active: usize,
}

impl Zones {
    /// As many empty zones as fit into `size` bytes.
    pub fn new(spec: ZoneSpec, size: u64) -> Self {
        let zone = |i: u64| {
            let start = i * spec.size;
            match i < spec.conventional as u64 {
                true => Zone::conventional(start, spec.size),
                false => Zone {
                    start,
                    len: spec.size,
                    capacity: spec.capacity,
                    pointer: start,
                    state: ZoneState::Empty,
                },
            }
        };
        Zones { spec, zones: (0..size / spec.size).map(zone).collect(), open: Vec::new(), active: 0 }
    }

    /// The geometry of the zones.
    pub fn zoning(&self) -> Zoning {
        let s = &self.spec;
        Zoning {
            first: s.conventional as u64 * s.size,
            size: s.size,
            max_open: s.max_open,
            max_active: s.max_active,
        }
    }

    /// All zones.
    pub fn report(&self) -> Vec<Zone> {
        self.zones.clone()
    }

    /// The zone that byte `pos` is in.
    pub fn at(&self, pos: u64) -> Option<Zone> {
        self.zones.get((pos / self.spec.size) as usize).copied()
    }

    /// Sets the write pointer of a zone to byte `pointer`, as after a power cut. More zones than `max_active`
    /// can become active by it.
    pub fn set_pointer(&mut self, n: usize, pointer: u64) {
        self.leave(n);
        let z = &mut self.zones[n];
        let end = z.start + z.capacity;
        z.pointer = pointer.min(end);
        z.state = match z.pointer {
            p if p == z.start => ZoneState::Empty,
            p if p == end => ZoneState::Full,
            _ => ZoneState::Closed,
        };
        self.active += usize::from(z.state.is_active());
    }

    /// Has the device give up a zone, so that it is in `state`.
    pub fn give_up(&mut self, n: usize, state: ZoneState) {
        self.leave(n);
        let z = &mut self.zones[n];
        (z.state, z.pointer) = (state, z.start + z.capacity);
    }

    /// Takes a request or refuses it, as the device would. A write that does not begin at the write pointer of its zone
    /// or leaves the zone is an I/O error, and so is an operation that the state of the zone does not permit. A write
    /// that would make one zone too many active is EOVERFLOW.
    ///
    /// # Errors
    /// EIO and EOVERFLOW as above, and EINVAL where a range to be reset or finished holds no such zone.
    pub fn take(&mut self, rq: &Request) -> Result<(), Errno> {
        let pos = rq.sector.bytes();
        match rq.op {
            Op::Write | Op::WriteZeroes if rq.bytes > 0 => self.write(pos, rq.bytes),
            Op::Read if self.is_lost(pos, rq.bytes) => Err(Errno::IO),
            Op::ZoneReset => self.each(pos, rq.bytes, Self::reset),
            Op::ZoneFinish => self.each(pos, rq.bytes, Self::finish),
            _ => Ok(()),
        }
    }

    /// Whether a discard of these bytes may clear them: in a zone that is written in order only a reset does.
    pub fn clears(&self, pos: u64, len: u64) -> bool {
        pos + len <= self.spec.conventional as u64 * self.spec.size
    }

    /// Makes a zone full.
    ///
    /// # Errors
    /// EINVAL: there is no such zone that is written in order. EOVERFLOW: the zone is empty and would have to be opened
    /// first, and too many are active.
    pub fn finish(&mut self, n: usize) -> Result<(), Errno> {
        self.sequential(n)?;
        if self.zones[n].state == ZoneState::Empty && self.active >= self.spec.max_active {
            return Err(Errno::OVERFLOW);
        }
        self.leave(n);
        let z = &mut self.zones[n];
        (z.state, z.pointer) = (ZoneState::Full, z.start + z.capacity);
        Ok(())
    }

    fn reset(&mut self, n: usize) -> Result<(), Errno> {
        self.sequential(n)?;
        self.leave(n);
        let z = &mut self.zones[n];
        (z.state, z.pointer) = (ZoneState::Empty, z.start);
        Ok(())
    }

    /// Whether some of these bytes are in a zone that has lost them.
    fn is_lost(&self, pos: u64, len: u64) -> bool {
        let zones = pos / self.spec.size..(pos + len).div_ceil(self.spec.size);
        let mut states = zones.filter_map(|n| self.zones.get(n as usize)).map(|z| z.state);
        states.any(|s| s == ZoneState::Offline)
    }

    fn sequential(&self, n: usize) -> Result<(), Errno> {
        match self.zones.get(n).filter(|z| z.is_sequential()).map(|z| z.state.is_dead()) {
            Some(false) => Ok(()),
            Some(true) => Err(Errno::IO),
            None => Err(Errno::INVAL),
        }
    }

    /// Applies an operation to all zones of a range.
    fn each(
        &mut self,
        pos: u64,
        len: u64,
        mut f: impl FnMut(&mut Self, usize) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let size = self.spec.size;
        if len == 0 || !pos.is_multiple_of(size) || !len.is_multiple_of(size) {
            return Err(Errno::INVAL);
        }
        (pos / size..(pos + len) / size).try_for_each(|n| f(self, n as usize))
    }

    /// Notes that a zone is no longer open or closed.
    fn leave(&mut self, n: usize) {
        self.active -= usize::from(self.zones[n].state.is_active());
        self.open.retain(|o| *o != n);
    }

    fn write(&mut self, pos: u64, len: u64) -> Result<(), Errno> {
        let n = (pos / self.spec.size) as usize;
        let z = *self.zones.get(n).ok_or(Errno::IO)?;
        if z.state == ZoneState::Conventional {
            return if self.clears(pos, len) { Ok(()) } else { Err(Errno::IO) };
        }
        let takes = matches!(z.state, ZoneState::Empty | ZoneState::Open | ZoneState::Closed);
        if !takes || pos != z.pointer || pos + len > z.start + z.capacity {
            return Err(Errno::IO);
        }
        if z.state == ZoneState::Empty {
            if self.active >= self.spec.max_active {
                return Err(Errno::OVERFLOW);
            }
            self.active += 1;
        }
        self.open(n);
        self.zones[n].pointer += len;
        if self.zones[n].pointer == z.start + z.capacity {
            self.leave(n);
            self.zones[n].state = ZoneState::Full;
        }
        Ok(())
    }

    /// Opens an active zone for a write, and closes another for it if need be.
    fn open(&mut self, n: usize) {
        self.open.retain(|o| *o != n);
        if self.open.len() >= self.spec.max_open.max(1) {
            let oldest = self.open.remove(0);
            self.zones[oldest].state = ZoneState::Closed;
        }
        self.open.push(n);
        self.zones[n].state = ZoneState::Open;
    }
}
