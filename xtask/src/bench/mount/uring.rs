//! Having the kernel offer FUSE over io_uring while it is measured.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// `N` by default.
pub const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";

/// The kernel offers io_uring, or does not, until this is dropped: then it is as before, after an error, too.
pub struct Offered {
    parameter: PathBuf,
    before: String,
}

impl Offered {
    /// Sets the parameter.
    ///
    /// # Errors
    /// The kernel does not have it, or this is not the superuser.
    pub fn set(parameter: &Path, offered: bool) -> Result<Offered> {
        let named = || parameter.display().to_string();
        let before = fs::read_to_string(parameter).with_context(named)?;
        let guard = Offered { parameter: parameter.to_path_buf(), before: before.trim().to_string() };
        fs::write(parameter, if offered { "Y" } else { "N" }).with_context(named)?;
        Ok(guard)
    }
}

impl Drop for Offered {
    fn drop(&mut self) {
        if let Err(e) = fs::write(&self.parameter, &self.before) {
            eprintln!("{} was {:?}, and could not be set back: {e}", self.parameter.display(), self.before);
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
    }
}
