//! What is asked of the host's kernel without a safe wrapper elsewhere.

use rustix::io::Errno;
use rustix::ioctl::{NoArg, Opcode, ioctl};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

/// Does the ioctl `OPCODE`, one that takes no argument, on an open file.
///
/// # Errors
/// The kernel's: `ENOTTY` where the file's system does not know it.
#[allow(unsafe_code)]
pub fn ioctl_without_argument<const OPCODE: Opcode>(file: impl AsFd) -> Result<(), Errno> {
    // SAFETY: no memory of ours is handed over: where a pointer is expected, the kernel finds none.
    unsafe { ioctl(file, NoArg::<OPCODE>::new()) }
}

/// Has the calling thread run only where a CPU has nothing else to do (`SCHED_IDLE`).
///
/// # Errors
/// `EPERM` where a sandbox forbids it.
#[allow(unsafe_code)]
pub fn run_when_idle() -> Result<(), Errno> {
    // SAFETY: plain data of which all zeros are a value.
    let none: libc::sched_param = unsafe { std::mem::zeroed() };
    // SAFETY: the parameter outlives the call; thread 0 is the caller.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const none) } {
        0 => Ok(()),
        _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::PERM)),
    }
}

/// Opens an inode of the FUSE file system that `mount` is in, for writing, by its number and generation, as a file
/// handle names it. The kernel must know the inode.
///
/// # Errors
/// `EPERM` without the superuser's rights, `ESTALE` for what the kernel does not know.
#[allow(unsafe_code)]
pub fn open_fuse_node(mount: impl AsFd, node: u64, generation: u32) -> Result<OwnedFd, Errno> {
    /// `struct file_handle` with FUSE's contents.
    #[repr(C)]
    struct Handle {
        bytes: u32,
        kind: i32,
        words: [u32; 3],
    }
    const NODE_AND_GENERATION: i32 = 0x81;
    let words = [(node >> 32) as u32, node as u32, generation];
    let mut handle = Handle { bytes: 12, kind: NODE_AND_GENERATION, words };
    let flags = libc::O_WRONLY | libc::O_CLOEXEC;
    let mount = mount.as_fd().as_raw_fd();
    // SAFETY: the handle is laid out as the kernel has it, says how long it is, and outlives the call.
    match unsafe { libc::open_by_handle_at(mount, (&raw mut handle).cast(), flags) } {
        -1 => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::PERM)),
        // SAFETY: it was opened just now, and nobody else has it.
        fd => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
    }
}
