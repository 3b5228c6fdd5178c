//! fsx (that of the crate): changes one file in every way that it knows, mapped and not, and compares each read with a
//! copy in memory.

use crate::rig::{Rig, cannot_mount, number, seed};
use std::process::Command;

/// Weights of its operations. Syncs and truncations cost as much as many others. (An allocation of no bytes, which it
/// would try, is an error everywhere: hence the least size.)
const WEIGHTS: &str = "
[weights]
close_open = 0.3
invalidate = 0.3
mapread = 10.0
mapwrite = 10.0
read = 10.0
write = 10.0
truncate = 1.0
fsync = 0.1
fdatasync = 0.1
posix_fallocate = 0.5
punch_hole = 1.0
sendfile = 1.0
posix_fadvise = 0.3
copy_file_range = 0.5
";

/// Operations of one run. It is bounded because fsx keeps its mappings, and operations take longer the more
/// there are.
const RUN: usize = 20_000;

fn fsx(words: &str, flen: u64, msync: bool, ops: u64) {
    if cannot_mount() || tidegate_testing::oracle::skip_or_fail("fsx") {
        return;
    }
    let seed = seed() >> 32;
    let rig = Rig::new(256, words);
    let config = rig.scratch.path().join("fsx.toml");
    let text =
        format!("flen = {flen}\nnomsyncafterwrite = {}\n[opsize]\nmin = 1\nmax = 65536\n{WEIGHTS}", !msync);
    std::fs::write(&config, text).unwrap();
    for (run, first) in (0..ops).step_by(RUN).enumerate() {
        let (seed, ops) = ((seed + run as u64).to_string(), (ops - first).min(RUN as u64).to_string());
        println!("fsx -S {seed} -N {ops} ({words}, {flen} bytes, msync {msync})");
        let out = Command::new(tidegate_testing::oracle::require("fsx").unwrap())
            .args(["-S", &seed, "-N", &ops, "-f"])
            .arg(&config)
            .arg("-P")
            .arg(rig.scratch.path())
            .arg(rig.dir.join("f"))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "seed {seed}: {}\n{said}", String::from_utf8_lossy(&out.stdout));
    }
    rig.finish();
}

#[test]
fn fsx_finds_nothing() {
    fsx("cache=16M", 1 << 20, false, number("TIDEGATE_FSX_OPS", 200_000));
}

/// Every change of a mapping is synced, and there is less memory than the file has bytes.
#[test]
fn fsx_finds_nothing_with_msync() {
    fsx("cache=8M", 16 << 20, true, number("TIDEGATE_FSX_OPS", 200_000) / 100);
}

#[test]
fn fsx_finds_nothing_through_dev() {
    fsx("cache=16M,transport=dev", 256 << 10, false, number("TIDEGATE_FSX_OPS", 200_000) / 20);
}
