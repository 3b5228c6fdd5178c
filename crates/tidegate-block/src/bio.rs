//! One I/O as a file system submits it.

use crate::buf::PageBuf;
use crate::{Errno, IoContext, PAGE_SIZE, SECTOR_SIZE, completion};
use std::sync::Arc;

/// A device address in 512-byte sectors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sector(pub u64);

impl Sector {
    /// The sector at byte `b`, which must be a multiple of 512.
    pub fn from_bytes(b: u64) -> Self {
        debug_assert!(b.is_multiple_of(SECTOR_SIZE));
        Sector(b / SECTOR_SIZE)
    }

    /// The address in bytes.
    pub fn bytes(self) -> u64 {
        self.0 * SECTOR_SIZE
    }
}

/// The operation of a bio.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Device to memory.
    Read,
    /// Memory to device.
    Write,
    /// Make every completed write durable.
    Flush,
    /// Tell the device that the range is unused; its bytes are undefined afterwards.
    Discard,
    /// Make the range read as zeros.
    WriteZeroes,
    /// Reset the zones of the range: they are empty afterwards.
    ZoneReset,
    /// Finish the zones of the range: they are full afterwards.
    ZoneFinish,
}

bitflags::bitflags! {
    /// How a bio is to be treated. The names are those of the kernel's `REQ_*`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct BioFlags: u16 {
        /// A thread waits for the bio.
        const SYNC = 1 << 0;
        /// The bio carries metadata.
        const META = 1 << 1;
        /// The bio goes before others.
        const PRIO = 1 << 2;
        /// The device's cache is flushed before the bio.
        const PREFLUSH = 1 << 3;
        /// The bio is durable when it completes.
        const FUA = 1 << 4;
        /// The bio is read-ahead.
        const RAHEAD = 1 << 5;
        /// The bio is background write-back.
        const BACKGROUND = 1 << 6;
    }
}

/// A part of a shared buffer, to be written.
#[derive(Clone, Debug)]
pub struct Segment {
    /// The buffer. It is not changed while this reference lives.
    pub buf: Arc<PageBuf>,
    /// First byte in the buffer.
    pub offset: u32,
    /// Length in bytes.
    pub len: u32,
}

impl Segment {
    /// `pages` pages of `buf` from page `first`.
    pub fn pages(buf: Arc<PageBuf>, first: usize, pages: usize) -> Self {
        debug_assert!(first + pages <= buf.pages());
        Segment { buf, offset: (first * PAGE_SIZE) as u32, len: (pages * PAGE_SIZE) as u32 }
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.buf[self.offset as usize..(self.offset + self.len) as usize]
    }
}

/// The memory of a bio.
#[derive(Debug)]
pub enum BioData {
    /// For flush, discard and write-zeroes: a length in bytes, without memory.
    Range(u64),
    /// Buffers to read into, filled in order.
    Read(Vec<PageBuf>),
    /// Parts of buffers to write, in order.
    Write(Vec<Segment>),
}

impl BioData {
    /// Length in bytes.
    pub fn len(&self) -> u64 {
        match self {
            BioData::Range(n) => *n,
            BioData::Read(v) => v.iter().map(|b| b.len() as u64).sum(),
            BioData::Write(v) => v.iter().map(|s| s.len as u64).sum(),
        }
    }

    /// Whether the length is 0.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of memory segments.
    pub fn segments(&self) -> usize {
        match self {
            BioData::Range(_) => 0,
            BioData::Read(v) => v.len(),
            BioData::Write(v) => v.len(),
        }
    }
}

/// The function that is called once when a bio is done, in the completing thread. It gets the memory back,
/// and must not block on I/O.
pub type EndIo = Box<dyn FnOnce(Result<(), Errno>, BioData) + Send>;

/// One I/O: an operation on a contiguous range of the device.
pub struct Bio {
    /// The operation.
    pub op: Op,
    /// The flags.
    pub flags: BioFlags,
    /// Where the range begins.
    pub sector: Sector,
    /// Memory and length.
    pub data: BioData,
    /// The owner: the context of the thread that made the bio, unless [`Bio::with_ctx`] set another.
    pub ctx: IoContext,
    /// The function to call when the bio is done.
    pub end_io: Option<EndIo>,
}

impl Bio {
    /// A write of `segments`.
    pub fn write(sector: Sector, segments: Vec<Segment>, flags: BioFlags) -> Self {
        Self::new(Op::Write, sector, BioData::Write(segments), flags)
    }

    /// A read into `bufs`.
    pub fn read(sector: Sector, bufs: Vec<PageBuf>, flags: BioFlags) -> Self {
        Self::new(Op::Read, sector, BioData::Read(bufs), flags)
    }

    /// A discard of `bytes` bytes.
    pub fn discard(sector: Sector, bytes: u64) -> Self {
        Self::new(Op::Discard, sector, BioData::Range(bytes), BioFlags::empty())
    }

    /// Zeros over `bytes` bytes.
    pub fn write_zeroes(sector: Sector, bytes: u64) -> Self {
        Self::new(Op::WriteZeroes, sector, BioData::Range(bytes), BioFlags::empty())
    }

    /// A flush of the device's cache.
    pub fn flush() -> Self {
        Self::new(Op::Flush, Sector(0), BioData::Range(0), BioFlags::SYNC)
    }

    /// An operation on a range, without memory: a discard, or one on zones.
    pub fn range(op: Op, sector: Sector, bytes: u64, flags: BioFlags) -> Self {
        debug_assert!(!matches!(op, Op::Read | Op::Write));
        Self::new(op, sector, BioData::Range(bytes), flags)
    }

    fn new(op: Op, sector: Sector, data: BioData, flags: BioFlags) -> Self {
        Bio { op, flags, sector, data, ctx: IoContext::current(), end_io: None }
    }

    /// Sets the owner of the bio to `ctx`, as when one thread writes what others made dirty.
    pub fn with_ctx(mut self, ctx: IoContext) -> Self {
        self.ctx = ctx;
        self
    }

    /// Sets the completion of the bio.
    pub fn on_end(mut self, f: impl FnOnce(Result<(), Errno>, BioData) + Send + 'static) -> Self {
        self.end_io = Some(Box::new(f));
        self
    }

    /// First sector past the range.
    pub fn end(&self) -> Sector {
        Sector(self.sector.0 + self.data.len() / SECTOR_SIZE)
    }

    /// Ends the bio: calls its completion.
    pub fn complete(self, result: Result<(), Errno>) {
        if let Some(f) = self.end_io {
            completion::run(|| f(result, self.data));
        }
    }
}
