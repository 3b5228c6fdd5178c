//! System calls without a safe wrapper elsewhere.

use crate::{Errno, last_errno};
use rustix::ioctl::{NoArg, Opcode, ioctl};
use std::os::fd::{AsFd, AsRawFd};

/// Calls the ioctl `OPCODE`, which takes no argument, on an open file.
///
/// # Errors
/// The kernel's: `ENOTTY` where the file system does not know it.
pub fn ioctl_without_argument<const OPCODE: Opcode>(file: impl AsFd) -> Result<(), Errno> {
    // SAFETY: no memory is passed: where the kernel expects a pointer, there is none.
    unsafe { ioctl(file, NoArg::<OPCODE>::new()) }
}

/// Lets the calling thread run only where a CPU has nothing else to do (`SCHED_IDLE`).
///
/// # Errors
/// `EPERM` where a sandbox forbids it.
pub fn run_when_idle() -> Result<(), Errno> {
    // SAFETY: plain data of which all zeros are a value.
    let none: libc::sched_param = unsafe { std::mem::zeroed() };
    // SAFETY: the parameter outlives the call; thread 0 is the caller.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const none) } {
        0 => Ok(()),
        _ => Err(last_errno(Errno::PERM)),
    }
}

/// The number of best-effort I/O priorities. 0 is the highest, and 4 the default of a thread.
pub const IO_LEVELS: u8 = 8;

/// Sets the best-effort I/O priority of the calling thread's I/O on the host's file systems to `level`. Elevators may
/// use it: `bfq` makes a weight of it, 10 times the number of levels from the end.
///
/// # Errors
/// `EINVAL` for an invalid level, `EPERM` where a sandbox forbids it.
pub fn set_io_priority(level: u8) -> Result<(), Errno> {
    const WHO_PROCESS: libc::c_int = 1;
    const CLASS_BEST_EFFORT: libc::c_int = 2 << 13;
    if level >= IO_LEVELS {
        return Err(Errno::INVAL);
    }
    // SAFETY: three numbers; process 0 is the calling thread.
    match unsafe {
        libc::syscall(libc::SYS_ioprio_set, WHO_PROCESS, 0, CLASS_BEST_EFFORT | libc::c_int::from(level))
    } {
        0 => Ok(()),
        _ => Err(last_errno(Errno::PERM)),
    }
}

/// Writes a file's dirty pages and waits for them, without a sync of its metadata or of the device.
///
/// # Errors
/// The kernel's: `EIO`, `ENOSPC`, `ESPIPE` for a descriptor that is no file.
pub fn write_back(file: impl AsFd) -> Result<(), Errno> {
    let flags =
        libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    // SAFETY: the descriptor is open for the length of the call; no memory is passed.
    match unsafe { libc::sync_file_range(file.as_fd().as_raw_fd(), 0, 0, flags) } {
        0 => Ok(()),
        _ => Err(last_errno(Errno::IO)),
    }
}
