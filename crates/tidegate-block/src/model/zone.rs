//! Zones of a device that must be written in order.

use super::timing::{Command, Kind};
use crate::Errno;

/// How a zoned device is laid out, and how many zones may be partly written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneSpec {
    /// From the start of a zone to that of the next, in bytes.
    pub size: u64,
    /// Bytes of a zone that can be written.
    pub capacity: u64,
    /// Zones at the start that can be written anywhere.
    pub conventional: usize,
    /// Zones that may be open or closed, that is, neither empty nor full.
    pub max_active: usize,
}

/// What state a zone is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneState {
    /// It can be written anywhere.
    Conventional,
    /// Nothing is written.
    Empty,
    /// Part of it is written.
    Open,
    /// It takes no more.
    Full,
}

/// A zone, as a report shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zone {
    /// Its first byte.
    pub start: u64,
    /// Bytes of it that can be written.
    pub capacity: u64,
    /// Where the next write must begin; the end of what can be written when it is full.
    pub pointer: u64,
    /// Its state.
    pub state: ZoneState,
}

/// All zones of a device.
pub(super) struct Zones {
    spec: ZoneSpec,
    zones: Vec<Zone>,
    active: usize,
}

impl Zones {
    /// As many empty zones as fit into `size` bytes.
    pub(super) fn new(spec: ZoneSpec, size: u64) -> Self {
        let zone = |i: u64| {
            let start = i * spec.size;
            let conventional = i < spec.conventional as u64;
            let (capacity, state) = match conventional {
                true => (spec.size, ZoneState::Conventional),
                false => (spec.capacity, ZoneState::Empty),
            };
            Zone { start, capacity, pointer: start, state }
        };
        Zones { spec, zones: (0..size / spec.size).map(zone).collect(), active: 0 }
    }

    /// All zones.
    pub(super) fn report(&self) -> Vec<Zone> {
        self.zones.clone()
    }

    /// Takes a command or refuses it, as the device would: a write that does not begin at its zone's
    /// write pointer or leaves the zone is an I/O error; one more zone than may be active is EOVERFLOW.
    /// A discard resets the zones that it covers.
    pub(super) fn take(&mut self, c: Command) -> Result<(), Errno> {
        match c.kind {
            Kind::Write if c.len > 0 => self.write(c.pos, c.len),
            Kind::Discard => {
                self.discard(c.pos, c.len);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Whether a discard of these bytes may clear them: all of them are in conventional zones or in
    /// zones that it resets.
    pub(super) fn clears(&self, pos: u64, len: u64) -> bool {
        let end = pos + len;
        (pos / self.spec.size..end.div_ceil(self.spec.size)).all(|i| {
            let start = i * self.spec.size;
            i < self.spec.conventional as u64 || (pos <= start && start + self.spec.size <= end)
        })
    }

    /// Makes a zone full.
    pub(super) fn finish(&mut self, n: usize) -> Result<(), Errno> {
        let z = self.zones.get_mut(n).filter(|z| z.state != ZoneState::Conventional).ok_or(Errno::INVAL)?;
        self.active -= (z.state == ZoneState::Open) as usize;
        (z.state, z.pointer) = (ZoneState::Full, z.start + z.capacity);
        Ok(())
    }

    fn write(&mut self, pos: u64, len: u64) -> Result<(), Errno> {
        let n = (pos / self.spec.size) as usize;
        let max = self.spec.max_active;
        let z = self.zones.get_mut(n).ok_or(Errno::IO)?;
        if z.state == ZoneState::Conventional {
            let end = self.spec.conventional as u64 * self.spec.size;
            return if pos + len <= end { Ok(()) } else { Err(Errno::IO) };
        }
        if z.state == ZoneState::Full || pos != z.pointer || pos + len > z.start + z.capacity {
            return Err(Errno::IO);
        }
        if z.state == ZoneState::Empty {
            if self.active >= max {
                return Err(Errno::OVERFLOW);
            }
            self.active += 1;
            z.state = ZoneState::Open;
        }
        z.pointer += len;
        if z.pointer == z.start + z.capacity {
            self.active -= 1;
            z.state = ZoneState::Full;
        }
        Ok(())
    }

    fn discard(&mut self, pos: u64, len: u64) {
        let first = pos.div_ceil(self.spec.size) as usize;
        let last = ((pos + len) / self.spec.size) as usize;
        for z in self.zones.iter_mut().take(last).skip(first) {
            if z.state != ZoneState::Conventional {
                self.active -= (z.state == ZoneState::Open) as usize;
                (z.state, z.pointer) = (ZoneState::Empty, z.start);
            }
        }
    }
}
