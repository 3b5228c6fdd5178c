//! Calls of the host's kernel without a safe wrapper elsewhere.

use crate::{Errno, last_errno};
use rustix::ioctl::{NoArg, Opcode, ioctl};
use std::os::fd::{AsFd, AsRawFd};

/// Does the ioctl `OPCODE`, one that takes no argument, on an open file.
///
/// # Errors
/// The kernel's: `ENOTTY` where the file's system does not know it.
pub fn ioctl_without_argument<const OPCODE: Opcode>(file: impl AsFd) -> Result<(), Errno> {
    // SAFETY: no memory of ours is handed over: where a pointer is expected, the kernel finds none.
    unsafe { ioctl(file, NoArg::<OPCODE>::new()) }
}

/// Has the calling thread run only where a CPU has nothing else to do (`SCHED_IDLE`).
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

/// Best-effort I/O priorities, 0 the highest; 4 is what a thread has that asked for none.
pub const IO_LEVELS: u8 = 8;

/// Gives what the calling thread reads and writes on the host's file systems the best-effort I/O priority of `level`.
/// Elevators may look at it; `bfq` makes a weight of it, 10 times how many levels it is from the end.
///
/// # Errors
/// `EINVAL` for a level that is none, `EPERM` where a sandbox forbids it.
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

/// Starts and awaits writing of a file's dirty pages, with no sync of its metadata or of the device.
///
/// # Errors
/// The kernel's: `EIO`, `ENOSPC`, `ESPIPE` for what is no file.
pub fn write_back(file: impl AsFd) -> Result<(), Errno> {
    let flags =
        libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    // SAFETY: the descriptor is open for the length of the call; no memory is passed.
    match unsafe { libc::sync_file_range(file.as_fd().as_raw_fd(), 0, 0, flags) } {
        0 => Ok(()),
        _ => Err(last_errno(Errno::IO)),
    }
}
