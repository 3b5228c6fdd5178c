//! The end of a child process and its resource usage, which the standard library does not report.

use crate::{Errno, last_errno};
use std::mem::MaybeUninit;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

/// The resource usage of a process over its life.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    /// CPU time in user mode and in the kernel together.
    pub cpu: Duration,
    /// The most memory it had resident, in KiB.
    pub max_rss_kib: u64,
}

/// Waits for the child `pid` to end and reaps it. No other code may wait for it.
///
/// # Errors
/// `ECHILD` when `pid` is no child of this process.
pub fn wait(pid: u32) -> Result<(ExitStatus, Usage), Errno> {
    let pid = libc::pid_t::try_from(pid).map_err(|_| Errno::CHILD)?;
    let mut status = 0;
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    loop {
        // SAFETY: both pointers are valid for writes during the call.
        if unsafe { libc::wait4(pid, &raw mut status, 0, usage.as_mut_ptr()) } == pid {
            break;
        }
        match last_errno(Errno::CHILD) {
            Errno::INTR => {}
            e => return Err(e),
        }
    }
    // SAFETY: a zeroed rusage is valid, and the call filled it in.
    let usage = unsafe { usage.assume_init() };
    let time = |t: libc::timeval| {
        Duration::from_secs(t.tv_sec.unsigned_abs()) + Duration::from_micros(t.tv_usec.unsigned_abs())
    };
    let cpu = time(usage.ru_utime) + time(usage.ru_stime);
    Ok((ExitStatus::from_raw(status), Usage { cpu, max_rss_kib: usage.ru_maxrss.unsigned_abs() }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_child_is_reaped_once_with_its_status_and_its_memory() {
        let mut child = Command::new("sh").args(["-c", "exit 7"]).spawn().unwrap();
        let (status, usage) = wait(child.id()).unwrap();
        assert_eq!(status.code(), Some(7));
        assert!(usage.max_rss_kib > 0);
        assert!(child.wait().is_err(), "nothing is left to reap");
    }
}
