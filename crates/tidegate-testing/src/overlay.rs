//! Images of the content of an overlay, for judges that read files.

use crate::temp::TempDir;
use anyhow::Result;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use tidegate_block::{Device, Overlay};

/// Writes a device's content to a sparse file.
///
/// # Errors
/// Those of the file and of the device.
pub fn save(path: &Path, device: &Overlay) -> Result<()> {
    let file = File::create(path)?;
    file.set_len(device.size())?;
    for n in 0..device.len() {
        device.with_block(n, |b| match b.iter().all(|&b| b == 0) {
            true => Ok(()),
            false => file.write_all_at(b, u64::from(n) * b.len() as u64),
        })?;
    }
    Ok(())
}

/// Gives `f` an image with a device's content, which is in `dir` meanwhile; returns its result.
///
/// # Errors
/// Those of [`save`] and of `f`.
pub fn with_image<R>(dir: &TempDir, device: &Overlay, f: impl FnOnce(&Path) -> Result<R>) -> Result<R> {
    let copy = TempDir::new_in(dir.path(), "state")?;
    let path = copy.path().join("state.img");
    save(&path, device)?;
    f(&path)
}
