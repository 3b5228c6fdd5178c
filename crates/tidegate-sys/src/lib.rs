//! The only crate with unsafe code: services of the kernel and the allocator, behind safe interfaces.
//!
//! It does: own memory that the kernel reads and writes, and make system calls without a safe wrapper
//! elsewhere. It does not: take locks, start threads, wait on its own account, or know the meaning of the
//! bytes. Calls that must not happen at the same time take `&mut self`; a caller with several threads puts a
//! lock around the object.
//!
//! | module | holds |
//! |---|---|
//! | [`slab`] | [`Slab`](slab::Slab) and [`Pages`](slab::Pages): aligned memory in huge pages |
//! | [`uring`] | reads and writes of files by io_uring |
//! | [`fuse_ring`] | requests of the kernel's FUSE client by io_uring |
//! | [`host`] | single calls: an ioctl, priorities, write-back of a file |
//! | [`coroutine`] | computations with stacks of their own |
//! | [`zoned`] | zones of the host's block devices |
//! | [`child`] | the end of a child process and its resource usage |

pub mod child;
pub mod coroutine;
pub mod fuse_ring;
pub mod host;
pub mod slab;
pub mod uring;
pub mod zoned;

pub use rustix::io::Errno;

/// Bytes in a page, the alignment of all memory from this crate.
pub const PAGE_SIZE: usize = 4096;

/// The errno of libc's last call, or `other` when there is none.
fn last_errno(other: Errno) -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(other)
}
