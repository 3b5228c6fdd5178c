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
