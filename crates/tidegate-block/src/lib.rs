//! Block I/O: the requests of file systems, their queue, and the devices below.
//!
//! It does: carry [`Bio`]s with many segments through a [`RequestQueue`] (plug, merge, a bounded number
//! in flight) to a [`Device`]; open image files with an exclusive lock. It does not: cache, or know
//! what a block holds.
//!
//! | module | holds |
//! |---|---|
//! | [`ctx`] | [`IoContext`]: I/O group and priority, current for a thread |
//! | [`buf`] | [`PageBuf`], page-aligned memory, recycled |
//! | [`reserve`] | memory that is taken from the system before it is needed |
//! | [`bio`] | [`Bio`], its flags, segments and completion |
//! | `completion` | whether a thread is in a bio's completion |
//! | [`request`] | [`Request`]: adjacent bios merged, one device command |
//! | [`queue`] | [`RequestQueue`], congestion, counters |
//! | [`plug`] | [`Plug`]: bios of one thread that go out as fewer requests |
//! | [`shared_plug`] | [`SharedPlug`]: bios of many passes, until a thread waits |
//! | `inflight` | requests that were submitted and have not ended, and the room for more |
//! | [`wbt`] | write-back throttling: little write-back is in flight while a thread waits |
//! | `busy` | how long submitters wait, and how many bytes are in flight |
//! | [`elevator`] | [`Elevator`]: what decides the order of requests, with its options and statistics |
//! | `wfq` | the weighted fair queueing elevator: `sched` says which request is next, the rest sends it |
//! | [`device`] | the [`Device`] trait |
//! | [`claim`] | the kernel's claim on a block device, apart from the file that I/O goes through |
//! | [`file`](mod@file) | opening an image: lock, backend choice, synchronous I/O |
//! | `durable` | flushing a file: after a failure, all later flushes fail |
//! | [`held`] | a device that keeps writes to its first blocks back |
//! | [`slice`](mod@slice) | the end of a device as a device: a partition |
//! | `loops` | loop devices: the files behind them, and the files mounted through them |
//! | [`uring`] | the io_uring backend |
//! | [`threads`] | the pread/pwrite backend, for where io_uring is refused |
//! | [`memory`] | a sparse device in memory |
//! | `bytes` | what devices in memory share |
//! | [`le`] | little-endian numbers anywhere in a block |
//! | [`overlay`] | a copy-on-write device in memory: many variants of one content |
//! | [`model`] | devices in memory that take the time that real ones would: disks, flash, zones |
//! | [`zones`] | zones that are written in order, and the ordering of writes to them |
//! | [`linear`] | several devices, one behind the other, as one |
//! | `traced` | requests as trace events |
//! | [`record`] | a wrapper that keeps every request it passes on |
//! | [`faulty`] | a wrapper whose requests fail, end short or end late, by rule |
//!
//! Locks: `wfq->lock` is taken with no lock of a device held, and is not held when a device or a completion
//! is called. `io_uring->sq`, `io_workers` and the lock of the buffer pool are leaves.

#![forbid(unsafe_code)]

pub mod bio;
pub mod buf;
mod busy;
mod bytes;
pub mod claim;
mod completion;
pub mod ctx;
pub mod device;
mod durable;
pub mod elevator;
pub mod faulty;
pub mod file;
pub mod held;
mod inflight;
pub mod le;
pub mod linear;
mod loops;
pub mod memory;
pub mod model;
pub mod overlay;
pub mod plug;
pub mod queue;
pub mod record;
pub mod request;
pub mod reserve;
pub mod shared_plug;
pub mod slice;
pub mod threads;
mod traced;
pub mod uring;
pub mod wbt;
mod wfq;
pub mod zones;

pub use bio::{Bio, BioData, BioFlags, Op, Sector, Segment};
pub use buf::{PageBuf, keep_for_reuse};
pub use ctx::{IoContext, IoContextGuard};
pub use device::{Device, DeviceInfo};
pub use elevator::{Elevator, ElevatorStats, Queues, WfqOptions};
pub use faulty::{Fault, Faulty, Rule};
pub use file::{Backend, Busy, NoImage, NotOpened, OpenError, OpenOptions};
pub use linear::Linear;
pub use memory::MemoryDevice;
pub use model::{Model, Preset};
pub use overlay::{Blocks, Overlay};
pub use plug::Plug;
pub use queue::{QueueLimits, QueueStats, RequestQueue, SizeClass, ZoneWriter};
pub use record::{Record, Recorder};
pub use request::Request;
pub use reserve::Reserve;
pub use shared_plug::SharedPlug;
pub use tidegate_sys::{Errno, PAGE_SIZE};
pub use wbt::Wbt;
pub use zones::{Zone, ZoneSpec, ZoneState, ZonedDevice, Zoning};

/// Bytes in a sector, the unit of [`Sector`].
pub const SECTOR_SIZE: u64 = 512;
