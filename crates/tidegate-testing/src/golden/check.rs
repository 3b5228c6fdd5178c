//! The reference checker's result for a volume, and the state of the volume's checkpoint.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::oracle;

const COMPACT_SUMMARIES: u32 = 0x4;

/// Fails with the checker's output if it finds a fault.
///
/// The image is not changed.
pub fn fsck_f2fs(image: &Path) -> Result<()> {
    let out = Command::new(oracle::require("fsck.f2fs")?)
        .args(["-f", "--dry-run"])
        .arg(image)
        .output()
        .context("running fsck.f2fs")?;
    let text = String::from_utf8_lossy(&out.stdout);
    let bad = |l: &&str| l.contains("[Fail]") || l.contains("ASSERT") || l.contains("[FIX]");
    let found: Vec<String> = text.lines().filter(bad).take(20).map(short).collect();
    if !out.status.success() || !found.is_empty() {
        let (found, last) = (found.join("\n"), tail(&[out.stdout.as_slice(), &out.stderr].concat()));
        bail!("fsck.f2fs {} ({}):\n{found}\n...\n{last}", image.display(), out.status);
    }
    Ok(())
}

/// The last lines of a tool's output, each cut to a readable length.
pub(super) fn tail(output: &[u8]) -> String {
    let text = String::from_utf8_lossy(output);
    let lines: Vec<&str> = text.split(['\n', '\r']).filter(|l| !l.trim().is_empty()).collect();
    let from = lines.len().saturating_sub(15);
    lines.iter().skip(from).map(|l| short(l)).collect::<Vec<_>>().join("\n")
}

fn short(line: &str) -> String {
    line.chars().take(200).collect()
}

/// The flags of the newer of the two checkpoint packs.
pub fn checkpoint_flags(image: &Path) -> Result<u32> {
    const MAGIC: u32 = 0xf2f5_2010;
    const BLOCK: u64 = 4096;
    let file = File::open(image).with_context(|| format!("opening {}", image.display()))?;
    let word = |at: u64| -> Result<u32> {
        let mut buf = [0; 4];
        file.read_exact_at(&mut buf, at).with_context(|| format!("reading at {at}"))?;
        Ok(u32::from_le_bytes(buf))
    };
    ensure!(word(1024)? == MAGIC, "{} is not of F2FS", image.display());
    let segment = 1u64 << word(1024 + 20)?.min(20);
    let first = u64::from(word(1024 + 76 + 4)?) * BLOCK;
    let mut newest = (0, 0);
    for pack in [first, first + segment * BLOCK] {
        let version = u64::from(word(pack)?) | u64::from(word(pack + 4)?) << 32;
        newest = newest.max((version, word(pack + 132)?));
    }
    Ok(newest.1)
}

/// Whether the checkpoint keeps its data summaries in compact form.
pub fn is_compact(image: &Path) -> Result<bool> {
    Ok(checkpoint_flags(image)? & COMPACT_SUMMARIES != 0)
}
