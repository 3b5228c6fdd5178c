//! Real power cuts: a writer with files in many states of change is killed, and every fsync that had returned
//! must hold. We recover the kernel's volumes; the kernel and we recover ours.
//!
//! `TIDEGATE_KILLS` sets the number of kills (3 by default), and `TIDEGATE_SEED` the operations.
//! `TIDEGATE_KEEP` names a directory that gets the image of a failure, `TIDEGATE_REPLAY` a directory whose
//! image is to be judged again. A seed gives the same operations, but the moment of the kill is also a matter
//! of chance.

mod engine;
mod kernel_killed;
mod writer_killed;
mod zoned;

use crate::common::tree;
use std::path::{Path, PathBuf};
use tidegate_f2fs::F2fsOptions;
use tidegate_testing::fill::Rng;
use tidegate_testing::golden::{fsck_f2fs, sparse_copy};
use tidegate_testing::oracle;
use tidegate_testing::power::Promises;

/// Every feature that Tidegate writes, in the words of mkfs.f2fs.
const FEATURES: &str = "extra_attr,inode_checksum,flexible_inline_xattr,inode_crtime,sb_checksum,lost_found";

fn lacking() -> bool {
    ["linux.uml", "f2fs.ko", "mkfs.f2fs", "fsck.f2fs"].iter().any(|o| oracle::skip_or_fail(o))
}

/// The number of kills, and a generator for them.
fn kills(what: &str) -> (u32, Rng) {
    let number = |name| std::env::var(name).ok().and_then(|v| v.parse::<u64>().ok());
    let seed = number("TIDEGATE_SEED").unwrap_or_else(tidegate_rt::clock::entropy);
    println!("{what}: TIDEGATE_SEED={seed}");
    (number("TIDEGATE_KILLS").unwrap_or(3) as u32, Rng::new(seed))
}

/// A fresh volume.
fn make_image(dir: &Path, mib: u64, features: &str) -> PathBuf {
    let image = dir.join("a.img");
    std::fs::File::create(&image).unwrap().set_len(mib << 20).unwrap();
    let mut c = std::process::Command::new(oracle::require("mkfs.f2fs").unwrap());
    c.arg("-q");
    if !features.is_empty() {
        c.args(["-O", features]);
    }
    assert!(c.arg(&image).output().unwrap().status.success());
    image
}

/// Recovers a copy of `image` with our engine, for a reader and for a writer. Returns the broken promises.
fn recovered_by_us(image: &Path, promises: &Promises) -> Vec<String> {
    let before = std::fs::read(image).unwrap();
    let copy = image.with_extension("ours");
    sparse_copy(image, &copy).unwrap();
    let mut out = Vec::new();
    for read_only in [true, false] {
        let how = if read_only { "recovered by us in memory" } else { "recovered by us" };
        let found = engine::verify(&copy, read_only, promises);
        out.extend(found.unwrap_or_else(|e| vec![format!("{e:#}")]).iter().map(|b| format!("{how}: {b}")));
        if read_only && std::fs::read(&copy).unwrap() != before {
            out.push("reading changed the image".into());
        }
    }
    out.extend(fsck_f2fs(&copy).err().map(|e| format!("recovered by us: {e:#}")));
    let report = tidegate_f2fs::check::check(&tree::queue(&copy, true), Default::default()).unwrap();
    out.extend(report.problems.iter().take(10).map(|p| format!("our check: {p:?}")));
    // A second opening must find the content that the first recovery left.
    let again = engine::verify(&copy, false, promises);
    out.extend(again.unwrap_or_else(|e| vec![format!("{e:#}")]).iter().map(|b| format!("opened again: {b}")));
    out
}

/// Fails, and keeps the image, when a promise is broken.
fn assert_kept(what: &str, image: &Path, promises: &Promises, broken: &[String]) {
    if broken.is_empty() {
        return;
    }
    if let Some(keep) = std::env::var_os("TIDEGATE_KEEP").map(PathBuf::from) {
        std::fs::create_dir_all(&keep).unwrap();
        sparse_copy(image, &keep.join("broken.img")).unwrap();
        std::fs::write(keep.join("promises"), promises.to_text()).unwrap();
    }
    let some = broken.iter().take(30).cloned().collect::<Vec<_>>().join("\n");
    panic!("{what}: {} of {} promises broken:\n{some}", broken.len(), promises.len());
}

/// Judges an image that was kept.
#[test]
fn replay() {
    let Some(kept) = std::env::var_os("TIDEGATE_REPLAY").map(PathBuf::from) else { return };
    let promises = Promises::parse(&std::fs::read_to_string(kept.join("promises")).unwrap()).unwrap();
    let dir = tidegate_testing::temp::TempDir::new("power").unwrap();
    let image = dir.path().join("a.img");
    sparse_copy(&kept.join("broken.img"), &image).unwrap();
    let ours = recovered_by_us(&image, &promises);
    let theirs = kernel_killed::recovered_by_the_kernel(&image, &promises);
    println!("recovered by the kernel: {theirs:#?}");
    assert!(ours.is_empty(), "{ours:#?}");
}

fn options(list: &str) -> F2fsOptions {
    let mut o = F2fsOptions::default();
    o.parse(list).unwrap();
    o
}
