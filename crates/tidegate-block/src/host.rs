//! What is asked of the host's kernel by a bare number.

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
