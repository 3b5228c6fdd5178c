//! The tools that the exploration of ext4 volumes needs: mke2fs makes them, e2fsck checks and recovers them.

use anyhow::Result;
use std::path::Path;
use std::sync::Arc;
use tidegate_block::Overlay;
use tidegate_crash::base::{Bases, Shape};
use tidegate_crash::{Settings, Stranger};
use tidegate_testing::overlay::with_image;
use tidegate_testing::temp::TempDir;
use tidegate_testing::{ext4, oracle};

/// Settings for ext4 volumes; with `judged`, e2fsck checks some states, and e2fsck and the host's kernel recover them
/// themselves.
///
/// # Errors
/// mke2fs is missing.
pub fn settings(judged: bool) -> Result<Settings> {
    oracle::require("mke2fs")?;
    let dir = Arc::new(ext4::scratch("crash")?);
    let at = dir.clone();
    let made = move |s: Shape, bytes| ext4::made_small(&at, bytes, s.block, s.how);
    let maker = move |s, bytes| made(s, bytes).map_err(|e| format!("{e:#}"));
    let mut settings = Settings { bases: Arc::new(Bases::ext4(Arc::new(maker))), ..Settings::default() };
    if !judged || oracle::skip_or_fail("e2fsck") {
        return Ok(settings);
    }
    let at = dir.clone();
    let judge = move |d: &Overlay| with_image(&at, d, ext4::is_clean);
    settings.reference = Some(Arc::new(move |d| judge(d).map_err(|e| format!("{e:#}"))));
    settings.strangers.push(("e2fsck", stranger(&dir, ext4::recovered)));
    if oracle::skip_or_fail("losetup") || !rustix::process::geteuid().is_root() {
        eprintln!("the host's kernel recovers no state: a loop mount needs root and losetup");
    } else {
        settings.strangers.push(("the host's kernel", stranger(&dir, ext4::recovered_by_kernel)));
    }
    Ok(settings)
}

fn stranger(dir: &Arc<TempDir>, recover: fn(&Path) -> Result<()>) -> Stranger {
    let dir = dir.clone();
    let recovered = move |image: &Path| {
        recover(image)?;
        Ok(std::fs::read(image)?)
    };
    Arc::new(move |device| with_image(&dir, device, recovered).map_err(|e| format!("{e:#}")))
}
