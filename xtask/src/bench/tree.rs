//! The source tree of the benchmark, which is the same on every run.

use std::f64::consts::TAU;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result};

use tidegate_testing::fill::Rng;

const MEAN: f64 = 7_500.0;
const SIGMA: f64 = 1.2;
const FILES_PER_DIR: u64 = 20;
const LARGEST: f64 = 1_000_000.0;

/// Makes `files` files, twenty per directory, and returns their total size in bytes.
///
/// Sizes follow a log-normal law, as those of real source trees do.
pub fn source_tree(dir: &Path, files: u64) -> Result<u64> {
    let mut rng = Rng::new(0x7469_6465);
    let mut total = 0;
    let mut sub = dir.to_path_buf();
    for n in 0..files {
        if n % FILES_PER_DIR == 0 {
            let d = n / FILES_PER_DIR;
            sub = dir.join(format!("group-{:02}/part-{:02}", d / 50, d % 50));
            fs::create_dir_all(&sub).with_context(|| sub.display().to_string())?;
        }
        let size = size(&mut rng);
        total += size as u64;
        let path = sub.join(format!("file-{n:06}.dat"));
        fs::write(&path, rng.bytes(size)).with_context(|| path.display().to_string())?;
    }
    Ok(total)
}

fn size(rng: &mut Rng) -> usize {
    let normal = (-2.0 * (1.0 - rng.unit()).ln()).sqrt() * (TAU * rng.unit()).cos();
    let size = (MEAN.ln() - SIGMA * SIGMA / 2.0 + SIGMA * normal).exp();
    size.min(LARGEST) as usize
}

/// Makes one file of that many incompressible bytes.
pub fn large_file(path: &Path, bytes: u64) -> Result<()> {
    const CHUNK: usize = 1 << 20;
    let mut rng = Rng::new(0x6761_7465);
    let mut out = BufWriter::with_capacity(CHUNK, File::create(path)?);
    let mut left = bytes;
    while left > 0 {
        let part = left.min(CHUNK as u64) as usize;
        out.write_all(&rng.bytes(part))?;
        left -= part as u64;
    }
    out.flush().with_context(|| path.display().to_string())
}
