//! Adjacent bios as one device command.

use crate::bio::{Bio, BioData, BioFlags, Op, Sector};
use crate::{Errno, SECTOR_SIZE};

/// One or more bios of the same kind that lie one behind the other on the device.
pub struct Request {
    /// What to do.
    pub op: Op,
    /// The flags all bios share.
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

    /// Takes `bio` in at the back if it continues the range and is of the same kind; else gives it back.
    pub fn merge_back(&mut self, bio: Bio, max_bytes: u64, max_segments: usize) -> Result<(), Bio> {
        let ordered = BioFlags::PREFLUSH | BioFlags::FUA;
        let fits = matches!(self.op, Op::Read | Op::Write)
            && bio.op == self.op
            && bio.flags == self.flags
            && !self.flags.intersects(ordered)
            && bio.ctx == self.bios[0].ctx
            && bio.sector == self.end()
            && self.bytes + bio.data.len() <= max_bytes
            && self.segments() + bio.data.segments() <= max_segments;
        if !fits {
            return Err(bio);
        }
        self.bytes += bio.data.len();
        self.bios.push(bio);
        Ok(())
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
