//! Adjacent bios as one device command.

use crate::bio::{Bio, BioData, BioFlags, Op, Sector};
use crate::{Errno, IoContext, SECTOR_SIZE};

/// One or more bios of the same kind on adjacent ranges of the device.
pub struct Request {
    /// The operation.
    pub op: Op,
    /// The flags that all bios share.
    pub flags: BioFlags,
    /// Where the range begins.
    pub sector: Sector,
    /// Length in bytes.
    pub bytes: u64,
    /// The bios, in order of address.
    pub bios: Vec<Bio>,
}

impl Request {
    /// A request of one bio.
    pub fn new(bio: Bio) -> Self {
        Request { op: bio.op, flags: bio.flags, sector: bio.sector, bytes: bio.data.len(), bios: vec![bio] }
    }

    /// Memory segments in all bios.
    pub fn segments(&self) -> usize {
        self.bios.iter().map(|b| b.data.segments()).sum()
    }

    /// First sector past the range.
    pub fn end(&self) -> Sector {
        Sector(self.sector.0 + self.bytes / SECTOR_SIZE)
    }

    /// Appends `bio` if it continues the range and is of the same kind; else gives it back.
    pub fn merge_back(&mut self, bio: Bio, max_bytes: u64, max_segments: usize) -> Result<(), Bio> {
        let bytes = bio.data.len();
        if !self.continued_by(&bio)
            || self.bytes + bytes > max_bytes
            || self.segments() + bio.data.segments() > max_segments
        {
            return Err(bio);
        }
        self.bytes += bytes;
        self.bios.push(bio);
        Ok(())
    }

    /// Appends all of `other`, on the terms of [`Request::merge_back`]; else gives it back.
    pub fn append(&mut self, other: Request, max_bytes: u64, max_segments: usize) -> Result<(), Request> {
        if !other.bios.first().is_some_and(|b| self.continued_by(b))
            || self.bytes + other.bytes > max_bytes
            || self.segments() + other.segments() > max_segments
        {
            return Err(other);
        }
        self.bytes += other.bytes;
        self.bios.extend(other.bios);
        Ok(())
    }

    fn continued_by(&self, bio: &Bio) -> bool {
        matches!(self.op, Op::Read | Op::Write)
            && bio.sector == self.end()
            && bio.op == self.op
            && bio.flags == self.flags
            && !self.flags.intersects(BioFlags::PREFLUSH | BioFlags::FUA)
            && bio.ctx == self.ctx()
    }

    /// The owner of the request: the context that all bios share.
    pub fn ctx(&self) -> IoContext {
        self.bios.first().map(|b| b.ctx).unwrap_or_default()
    }

    /// Calls `f` when the last bio has ended.
    pub(crate) fn after_end(&mut self, f: impl FnOnce() + Send + 'static) {
        self.after_end_with(move |_| f());
    }

    /// Calls `f` with the result when the last bio has ended.
    pub(crate) fn after_end_with(&mut self, f: impl FnOnce(Result<(), Errno>) + Send + 'static) {
        // Bios are ended in order, so the last bio ends last.
        if let Some(last) = self.bios.last_mut() {
            let end = last.end_io.take();
            last.end_io = Some(Box::new(move |r, data| {
                if let Some(end) = end {
                    end(r, data);
                }
                f(r);
            }));
        }
    }

    /// Calls `f` with the result before the first bio ends, so that a thread which waits for a bio finds what `f` did.
    pub(crate) fn before_end(&mut self, f: impl FnOnce(Result<(), Errno>) + Send + 'static) {
        if let Some(first) = self.bios.first_mut() {
            let end = first.end_io.take();
            first.end_io = Some(Box::new(move |r, data| {
                f(r);
                if let Some(end) = end {
                    end(r, data);
                }
            }));
        }
    }

    /// Calls `f` with each piece of memory to be written, in order.
    pub fn for_each_source<'a>(&'a self, mut f: impl FnMut(&'a [u8])) {
        for b in &self.bios {
            if let BioData::Write(v) = &b.data {
                v.iter().for_each(|s| f(s.bytes()));
            }
        }
    }

    /// Calls `f` with each piece of memory to be read into, in order.
    pub fn for_each_target<'a>(&'a mut self, mut f: impl FnMut(&'a mut [u8])) {
        for b in &mut self.bios {
            if let BioData::Read(v) = &mut b.data {
                v.iter_mut().for_each(|p| f(p));
            }
        }
    }

    /// Ends every bio with the same result.
    pub fn complete(self, result: Result<(), Errno>) {
        for b in self.bios {
            b.complete(result);
        }
    }
}
