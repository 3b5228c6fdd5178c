//! The one crate with unsafe code: services of the kernel and the allocator, behind interfaces that are safe.
//!
//! It does: own memory that the kernel reads and writes, and make the system calls for which no safe wrapper
//! exists elsewhere. It does not: take locks, start threads, wait on its own account, or know what the bytes
//! mean. Calls that may not happen at the same time take `&mut self`; a caller with several threads puts a
//! lock around it.
//!
//! | module | holds |
//! |---|---|
//! | [`slab`] | [`Slab`](slab::Slab) and [`Pages`](slab::Pages): aligned memory in large pages |
//! | [`uring`] | reads and writes of files by io_uring |
//! | [`fuse_ring`] | requests of the kernel's FUSE client by io_uring |
//! | [`host`] | single calls: an ioctl, priorities, write-back of a file |
//! | [`coroutine`] | computations with stacks of their own |
//! | [`zoned`] | zones of the host's block devices |
//! | [`child`] | the end of a child process with what it used |

pub mod child;
pub mod coroutine;
pub mod fuse_ring;
pub mod host;
pub mod slab;
pub mod uring;
pub mod zoned;

pub use rustix::io::Errno;

/// Bytes in a page, the alignment of all memory that is handed out.
pub const PAGE_SIZE: usize = 4096;

/// The errno of libc's last call, or `other` when that is none.
fn last_errno(other: Errno) -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(other)
}
