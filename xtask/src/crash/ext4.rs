//! The tools that the exploration of ext4 volumes needs: mke2fs to make them, e2fsck to judge and to recover.

use super::write_image;
use anyhow::Result;
use std::sync::Arc;
use tidegate_block::Overlay;
use tidegate_crash::Settings;
use tidegate_crash::base::{Bases, Shape};
use tidegate_testing::temp::TempDir;
use tidegate_testing::{ext4, oracle};

/// Settings of ext4 volumes; with `judged`, e2fsck has its say of some states, and recovers them itself.
///
/// # Errors
/// mke2fs is not there.
pub fn settings(judged: bool) -> Result<Settings> {
    oracle::require("mke2fs")?;
    let dir = Arc::new(ext4::scratch("crash")?);
    let at = dir.clone();
    let made = move |s: Shape, bytes| ext4::made_small(&at, bytes, s.block, s.how);
    let maker = move |s, bytes| made(s, bytes).map_err(|e| format!("{e:#}"));
    let mut settings = Settings { bases: Arc::new(Bases::ext4(Arc::new(maker))), ..Settings::default() };
    if judged && !oracle::skip_or_fail("e2fsck") {
        let at = dir.clone();
        let judge = move |d: &Overlay| with_image(&at, d, ext4::is_clean).map_err(|e| format!("{e:#}"));
        settings.reference = Some(Arc::new(move |d| judge(d).map(drop)));
        let recover = move |d: &Overlay| with_image(&dir, d, ext4::recovered);
        settings.stranger = Some(Arc::new(move |d| recover(d).map_err(|e| format!("{e:#}"))));
    }
    Ok(settings)
}

/// The content of an image of a device when `f` is done with it.
fn with_image(
    dir: &TempDir,
    device: &Overlay,
    f: impl FnOnce(&std::path::Path) -> Result<()>,
) -> Result<Vec<u8>> {
    let copy = TempDir::new_in(dir.path(), "state")?;
    let path = copy.path().join("state.img");
    write_image(&path, device)?;
    f(&path)?;
    Ok(std::fs::read(&path)?)
}
