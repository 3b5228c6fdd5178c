//! Trees with very many names.

use std::fs;
use std::path::Path;

use anyhow::Result;

use super::Rng;

/// The names made in the big directory, and how many of them are deleted again.
const MADE: u64 = 105_000;
const DELETED: u64 = 5_000;
/// Inodes of the big directory; the other names are further links to them.
const INODES: u64 = 4_000;

/// Makes one directory that keeps 100,000 names.
pub fn big_directory(dir: &Path) -> Result<()> {
    let big = dir.join("big");
    fs::create_dir(&big)?;
    let name = |n: u64| {
        big.join(format!(
            "name-{n:06}-{}",
            "abcdefghijklmnopqrstuvwxyz".repeat(2).split_at((n % 48) as usize).0
        ))
    };
    for n in 0..MADE {
        if n < INODES {
            fs::write(name(n), n.to_string())?;
        } else {
            fs::hard_link(name(n % INODES), name(n))?;
        }
    }
    for n in (0..MADE).step_by((MADE / DELETED) as usize) {
        fs::remove_file(name(n))?;
    }
    Ok(())
}

/// Makes 50,000 files of 0 to 6,000 bytes, 100 per directory.
pub fn small_files(dir: &Path) -> Result<()> {
    let mut rng = Rng::new(3);
    for d in 0..500 {
        let sub = dir.join(format!("dir-{d:03}"));
        fs::create_dir(&sub)?;
        for f in 0..100 {
            let len = rng.below(6_001) * rng.below(6_001) / 6_000;
            fs::write(sub.join(format!("file-{f:02}")), rng.bytes(len as usize))?;
        }
    }
    Ok(())
}
