//! Having the kernel offer FUSE over io_uring while it is measured.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};

/// `N` by default.
pub const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";

/// Waits for the end of its input, which comes when this process is gone, and sets the parameter back.
const SET_BACK: &str = "trap '' INT TERM HUP; read -r line; printf %s \"$1\" > \"$0\"";

/// The kernel offers io_uring, or does not, until this is dropped or the process ends, however it does: then it is as
/// before.
pub struct Offered {
    keeper: Child,
}

impl Offered {
    /// Sets the parameter.
    ///
    /// # Errors
    /// The kernel does not have it, or this is not the superuser.
    pub fn set(parameter: &Path, offered: bool) -> Result<Offered> {
        let named = || parameter.display().to_string();
        let before = fs::read_to_string(parameter).with_context(named)?;
        // In a group of its own: a signal from the terminal ends the measurement, not its keeper.
        let mut keeper = Command::new("sh");
        keeper.args(["-c", SET_BACK]).arg(parameter).arg(before.trim());
        let keeper = keeper.stdin(Stdio::piped()).process_group(0).spawn().context("sh")?;
        let guard = Offered { keeper };
        fs::write(parameter, if offered { "Y" } else { "N" }).with_context(named)?;
        Ok(guard)
    }
}

impl Drop for Offered {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        if !self.keeper.wait().is_ok_and(|status| status.success()) {
            eprintln!("{PARAMETER}: it could not be set back; look at it");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parameter_is_set_back_after_a_failure() {
        let dir = tidegate_testing::temp::TempDir::new("uring").unwrap();
        let parameter = dir.path().join("enable_uring");
        fs::write(&parameter, "N\n").unwrap();
        let failing = || -> Result<()> {
            let _offered = Offered::set(&parameter, true)?;
            assert_eq!(fs::read_to_string(&parameter)?, "Y");
            anyhow::bail!("a case fails")
        };
        assert!(failing().is_err());
        assert_eq!(fs::read_to_string(&parameter).unwrap(), "N");
        assert!(Offered::set(&dir.path().join("none"), true).is_err());
        // A process that is killed drops nothing: its end of the pipe is closed all the same.
        let mut offered = std::mem::ManuallyDrop::new(Offered::set(&parameter, true).unwrap());
        assert_eq!(fs::read_to_string(&parameter).unwrap(), "Y");
        drop(offered.keeper.stdin.take());
        assert!(offered.keeper.wait().unwrap().success());
        assert_eq!(fs::read_to_string(&parameter).unwrap(), "N");
    }
}
