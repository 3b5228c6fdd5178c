//! Flash: many dies that work at once behind one link each way.
//!
//! A read keeps one channel busy for each unit that it touches, and passes the link; it is done when both are
//! done. A write takes programming time: that of its bytes at the sequential rate, and when it continues none
//! of the latest writes, at least the cost of a random write in the steady state, garbage collection
//! included. It is acknowledged after the device's write latency, or when earlier writes have left room in
//! the buffer, whichever is later. Where zones have a rate of their own, a write also takes the programming
//! time of its zone, and the later of the two ends counts; each zone has a buffer. Reads and writes do not
//! slow each other down, and resets and finishes of zones do not slow down either.

use super::timing::{Command, Kind, later, transfer};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use tidegate_rt::Nanos;

/// The bounds of writes to each zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneRate {
    /// From the start of a zone to that of the next, in bytes.
    pub size: u64,
    /// Its sequential write rate.
    pub write_rate: u64,
    /// How long a reset takes: pairs of bytes written to the zone, in ascending order, and nanoseconds.
    pub resets: [(u64, u64); 5],
    /// How long it takes to finish a zone that is nearly full, in nanoseconds.
    pub finish_ns: u64,
    /// The rate at which a zone's rest is filled when it is finished.
    pub finish_rate: u64,
}

impl ZoneRate {
    /// The bounds of a zone that is `by` times shorter. Resets and finishes take so much less time, so that a volume on
    /// many short zones spends the share of its time on them that it would spend on as many long zones.
    pub fn shorter(self, by: u64) -> Self {
        let resets = self.resets.map(|(bytes, ns)| (bytes / by, ns / by));
        ZoneRate { size: self.size / by, resets, finish_ns: self.finish_ns / by, ..self }
    }

    /// How long it takes to finish a zone that has room for so many bytes.
    fn finish_ns(&self, bytes: u64) -> u64 {
        self.finish_ns + transfer(bytes, self.finish_rate)
    }

    /// How long the reset of a zone with so many bytes takes. Between the measured points the line is
    /// straight.
    fn reset_ns(&self, bytes: u64) -> u64 {
        let line = |((b0, n0), (b1, n1)): ((u64, u64), (u64, u64))| {
            n0 + (u128::from(n1 - n0) * u128::from(bytes - b0) / u128::from((b1 - b0).max(1))) as u64
        };
        let behind = self.resets.iter().position(|(b, _)| *b > bytes);
        match behind {
            Some(0) => self.resets[0].1,
            Some(i) => line((self.resets[i - 1], self.resets[i])),
            None => self.resets[self.resets.len() - 1].1,
        }
    }
}

/// The figures of a flash device. Rates are bytes a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlashSpec {
    /// Units that can be read at once; 0 when only the rate counts.
    pub channels: usize,
    /// The time that the read of one unit takes on its channel.
    pub read_ns: u64,
    /// Sequential read rate.
    pub read_rate: u64,
    /// Time from a write to its acknowledgement in an idle device.
    pub write_ns: u64,
    /// Sequential write rate.
    pub write_rate: u64,
    /// Random 4 KiB writes a second in the steady state; 0 when they cost no more than sequential writes.
    pub random_writes: u64,
    /// The bounds of each zone beside those of the device, if there are any.
    pub zone: Option<ZoneRate>,
    /// Bytes that may be acknowledged and not yet programmed. Where zones have a rate, so many in each zone.
    pub buffer: u64,
    /// Acknowledged writes are lost with the power, unless a flush came after them.
    pub volatile: bool,
    /// The cost of a flush beyond programming the buffer.
    pub flush_ns: u64,
}

impl FlashSpec {
    /// Bytes that one channel reads at once: the smallest power of two, from 4 KiB on, with which all
    /// channels together reach the sequential rate.
    pub fn unit(&self) -> u64 {
        let mut unit = 4096;
        while self.channels > 0
            && unit * (self.channels as u64) < self.read_rate / 1000 * self.read_ns / 1_000_000
        {
            unit *= 2;
        }
        unit
    }
}

/// Dies that work at once, behind one link each way.
pub(super) struct Flash {
    spec: FlashSpec,
    unit: u64,
    /// The times from which each channel is free.
    channels: BinaryHeap<Reverse<Nanos>>,
    read_link: Nanos,
    /// The time at which all writes so far are programmed.
    programmed: Nanos,
    /// The time at which all writes so far to each zone are programmed.
    zones: BTreeMap<u64, Nanos>,
    /// The ends of the latest writes.
    ends: VecDeque<u64>,
    streams: usize,
}

impl Flash {
    /// An idle device that tells as many streams of writes apart as it holds commands.
    pub(super) fn new(spec: FlashSpec, depth: usize) -> Self {
        Flash {
            spec,
            unit: spec.unit(),
            channels: (0..spec.channels).map(|_| Reverse(Nanos(0))).collect(),
            read_link: Nanos(0),
            programmed: Nanos(0),
            zones: BTreeMap::new(),
            ends: VecDeque::new(),
            streams: depth.min(1024),
        }
    }

    /// When a command that the device takes at `at` is done.
    pub(super) fn serve(&mut self, at: Nanos, c: Command) -> Nanos {
        match c.kind {
            Kind::Read => self.read(at, c),
            Kind::Write => self.write(at, c),
            Kind::Flush => self.flush(at),
            Kind::Discard => later(at, self.spec.write_ns),
            Kind::Reset => later(at, self.spec.zone.map_or(self.spec.write_ns, |z| z.reset_ns(c.len))),
            Kind::Finish => later(at, self.spec.zone.map_or(self.spec.write_ns, |z| z.finish_ns(c.len))),
        }
    }

    fn read(&mut self, at: Nanos, c: Command) -> Nanos {
        self.read_link = later(self.read_link.max(at), transfer(c.len, self.spec.read_rate));
        let mut end = self.read_link;
        if c.len > 0 && self.spec.channels > 0 {
            for _ in c.pos / self.unit..=(c.pos + c.len - 1) / self.unit {
                let free = self.channels.pop().map_or(at, |Reverse(t)| t).max(at);
                let read = later(free, self.spec.read_ns);
                self.channels.push(Reverse(read));
                end = end.max(read);
            }
        }
        end
    }

    fn write(&mut self, at: Nanos, c: Command) -> Nanos {
        let s = self.spec;
        let mut cost = transfer(c.len, s.write_rate);
        if !self.continues(c) && s.random_writes > 0 {
            cost = cost.max(1_000_000_000 / s.random_writes);
        }
        self.programmed = later(self.programmed.max(at), cost);
        if c.fua && s.volatile {
            return self.flush(at);
        }
        let room = self.programmed.0.saturating_sub(transfer(s.buffer, s.write_rate));
        later(at, s.write_ns).max(Nanos(room)).max(self.write_zone(at, c))
    }

    /// When a write has room in its zone's buffer.
    fn write_zone(&mut self, at: Nanos, c: Command) -> Nanos {
        let Some(z) = self.spec.zone else { return at };
        let programmed = self.zones.entry(c.pos / z.size).or_insert(at);
        *programmed = later(at.max(*programmed), transfer(c.len, z.write_rate));
        Nanos(programmed.0.saturating_sub(transfer(self.spec.buffer, z.write_rate)))
    }

    fn flush(&mut self, at: Nanos) -> Nanos {
        if !self.spec.volatile {
            return later(at, self.spec.write_ns);
        }
        // A flush makes no zone faster: a write that comes before the flush ends is queued behind the writes that the
        // flush waits for.
        let zones = self.zones.values().copied().max().unwrap_or(at);
        self.programmed = later(self.programmed.max(zones).max(at), self.spec.flush_ns);
        self.programmed
    }

    /// Whether a write begins at the end of one of the latest writes. It becomes the latest then.
    fn continues(&mut self, c: Command) -> bool {
        let known = self.ends.iter().position(|e| *e == c.pos);
        if let Some(i) = known {
            self.ends.remove(i);
        } else if self.ends.len() >= self.streams {
            self.ends.pop_front();
        }
        self.ends.push_back(c.pos + c.len);
        known.is_some()
    }
}
