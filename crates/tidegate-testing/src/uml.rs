//! The real kernel file system in a guest whose process 1 is this program.

use crate::workspace;
use std::path::{Path, PathBuf};

pub use tidegate_uml::{GuestOutput, Running, Uml, init, poweroff, sh};

/// A guest whose `/dev/ubda` is `image` and whose `$HELPER` is `xtask`.
pub fn guest(image: impl AsRef<Path>) -> Uml {
    Uml::new(image).helper(helper)
}

fn helper() -> std::io::Result<PathBuf> {
    workspace::helper_binary().map_err(std::io::Error::other)
}
