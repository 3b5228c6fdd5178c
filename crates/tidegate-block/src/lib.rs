//! Block I/O: what file systems submit, how it queues, and what it lands on.
//!
//! It does: carry [`Bio`]s with many segments through a [`RequestQueue`] (plug, merge, a bounded number
//! in flight) to a [`Device`]; open image files with an exclusive lock. It does not: cache, or know
//! what a block holds.
//!
//! | module | holds |
//! |---|---|
//! | [`buf`] | [`PageBuf`], page-aligned memory, recycled |
//! | [`bio`] | [`Bio`], its flags, segments and completion |
//! | [`request`] | [`Request`]: adjacent bios merged, one device command |
//! | [`queue`] | [`RequestQueue`], [`Plug`], congestion, counters |
//! | [`device`] | the [`Device`] trait |
//! | [`file`] | opening an image: lock, backend choice, synchronous I/O |
//! | [`uring`] | the io_uring backend |
//! | [`threads`] | the pread/pwrite backend, for where io_uring is refused |
//! | [`memory`] | a sparse device in memory |
//! | [`overlay`] | a copy-on-write device in memory: many variants of one content |
//! | [`record`] | a wrapper that keeps every request it passes on |
//!
//! Locks: `request_queue` and `io_uring->sq` and the buffer pool are leaves; nothing is taken under them.

pub mod bio;
pub mod buf;
pub mod device;
pub mod file;
pub mod memory;
pub mod overlay;
pub mod queue;
pub mod record;
pub mod request;
pub mod threads;
pub mod uring;

pub use bio::{Bio, BioData, BioFlags, IoContext, Op, Sector, Segment};
pub use buf::PageBuf;
pub use device::Device;
pub use file::{Backend, OpenError, OpenOptions};
pub use memory::MemoryDevice;
pub use overlay::{Blocks, Overlay};
pub use queue::{Plug, QueueLimits, QueueStats, RequestQueue};
pub use record::{Record, Recorder};
pub use request::Request;
pub use rustix::io::Errno;

/// Bytes in a page, and the unit in which buffers are made.
pub const PAGE_SIZE: usize = 4096;
/// Bytes in a sector, the unit of [`Sector`].
pub const SECTOR_SIZE: u64 = 512;
