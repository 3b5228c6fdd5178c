//! Makes the kernel offer FUSE over io_uring during the measurement.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};

/// The module parameter; `N` by default.
pub const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";

/// Waits for the end of its input, which comes when this process has ended, and restores the parameter.
const SET_BACK: &str = "trap '' INT TERM HUP; read -r line; printf %s \"$1\" > \"$0\"";

/// Makes the kernel offer io_uring, or not, until this value is dropped or the process ends in any way. Then
/// the old state is restored.
pub struct Offered {
    keeper: Child,
}

impl Offered {
    /// Sets the parameter.
    ///
    /// # Errors
    /// The kernel does not have the parameter, or the caller is not root.
    pub fn set(parameter: &Path, offered: bool) -> Result<Offered> {
        let named = || parameter.display().to_string();
        let before = fs::read_to_string(parameter).with_context(named)?;
        // The keeper has a process group of its own, so that a signal from the terminal ends the measurement
        // but not the keeper.
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
        // A killed process drops nothing, but its end of the pipe is closed all the same.
        let mut offered = std::mem::ManuallyDrop::new(Offered::set(&parameter, true).unwrap());
        assert_eq!(fs::read_to_string(&parameter).unwrap(), "Y");
        drop(offered.keeper.stdin.take());
        assert!(offered.keeper.wait().unwrap().success());
        assert_eq!(fs::read_to_string(&parameter).unwrap(), "N");
    }
}
