//! Trees made for the places of their blocks.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, Result};

use super::Rng;

const BLOCK: u64 = 4096;

/// Makes data at every depth of a file's index, and files in many fragments.
pub fn sparse(dir: &Path) -> Result<()> {
    let mut rng = Rng::new(4);
    let far = File::create_new(dir.join("far"))?;
    for at in [0, 3 << 20, 6 << 20, 1 << 30, 9 << 30, 3 << 40] {
        far.write_all_at(&rng.bytes(10_000), at).with_context(|| format!("writing at {at}"))?;
    }
    let tail = File::create_new(dir.join("only-far"))?;
    tail.write_all_at(b"far away", (3 << 40) + 123)?;
    let pair = [File::create_new(dir.join("left"))?, File::create_new(dir.join("right"))?];
    for n in 0..300 {
        for file in &pair {
            file.write_all_at(&rng.bytes(BLOCK as usize), n * BLOCK)?;
            file.sync_data()?;
        }
    }
    let backwards = File::create_new(dir.join("backwards"))?;
    for n in (0..100).rev() {
        backwards.write_all_at(&rng.bytes(BLOCK as usize), n * BLOCK)?;
        backwards.sync_data()?;
    }
    let comb = File::create_new(dir.join("comb"))?;
    for n in 0..5_000 {
        comb.write_all_at(&rng.bytes(BLOCK as usize), 2 * n * BLOCK)?;
    }
    Ok(())
}

/// Nearly fills the open segment of each data log.
///
/// A checkpoint keeps the summaries of the three in compact form only while
/// together they number about a thousand blocks.
pub fn logs(dir: &Path) -> Result<()> {
    let mut rng = Rng::new(5);
    for (name, blocks) in [("warm", 450), ("cold.mp4", 450), ("hot.db", 450)] {
        fs::write(dir.join(name), rng.bytes(blocks * BLOCK as usize))?;
    }
    Ok(())
}

/// Makes changes to a varied tree that reach the device but no checkpoint.
pub fn unsynced(dir: &Path) -> Result<()> {
    let mut rng = Rng::new(6);
    let new = dir.join("after");
    fs::create_dir(&new)?;
    for n in 0..200 {
        let file = File::create_new(new.join(format!("new-{n}")))?;
        let len = rng.below(60_000) as usize;
        file.write_all_at(&rng.bytes(len), 0)?;
        write_back(&file)?;
    }
    let old = OpenOptions::new().write(true).open(dir.join("sizes/five-mib"))?;
    for n in 0..200 {
        old.write_all_at(&rng.bytes(BLOCK as usize), n * 5 * BLOCK)?;
    }
    write_back(&old)?;
    fs::remove_dir_all(dir.join("names/many"))?;
    fs::rename(dir.join("links/one"), dir.join("links/renamed"))?;
    let grown = OpenOptions::new().append(true).open(dir.join("sizes/s00001"))?;
    (&grown).write_all(&rng.bytes(30_000))?;
    write_back(&grown)
}

/// Makes changes, some of them fsynced, so that a mount after the power cut has to recover these.
pub fn fsynced(dir: &Path) -> Result<()> {
    let mut rng = Rng::new(7);
    unsynced(dir)?;
    for n in 0..30 {
        let file = File::create_new(dir.join(format!("synced-{n}")))?;
        file.write_all_at(&rng.bytes(n * 777), 0)?;
        file.sync_all()?;
    }
    let old = OpenOptions::new().write(true).open(dir.join("sizes/s19983"))?;
    old.write_all_at(&rng.bytes(5_000), 3_000)?;
    old.set_len(15_000)?;
    old.sync_all()?;
    let lost = File::create_new(dir.join("not-synced"))?;
    lost.write_all_at(&rng.bytes(5_000), 0)?;
    write_back(&lost)
}

/// Starts write-back of a file's pages and waits for it, without a sync of the volume.
fn write_back(file: &File) -> Result<()> {
    tidegate_sys::host::write_back(file).context("writing pages back")
}
