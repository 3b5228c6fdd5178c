//! What is asked of the host's kernel without a safe wrapper elsewhere.

use rustix::io::Errno;
use rustix::ioctl::{NoArg, Opcode, ioctl};
use std::os::fd::AsFd;

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

/// Best-effort I/O priorities, 0 the highest; 4 is what a thread has that asked for none.
pub const IO_LEVELS: u8 = 8;

/// Gives what the calling thread reads and writes on the host's file systems the best-effort I/O priority of `level`.
/// Elevators may look at it; `bfq` makes a weight of it, 10 times how many levels it is from the end.
///
/// # Errors
/// `EINVAL` for a level that is none, `EPERM` where a sandbox forbids it.
#[allow(unsafe_code)]
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
        _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::PERM)),
    }
}
