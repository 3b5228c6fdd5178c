//! The stock tools as judges of mkfs's volumes.

use super::{MkfsOptions, mkfs};
use crate::format::raw::Features;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;
use tidegate_block::{OpenOptions, RequestQueue, file};
use tidegate_rt::Timespec;

pub const MIB: u64 = 1 << 20;
pub const UUID: [u8; 16] = *b"\x00\x11\x22\x33\x44\x55\x66\x77\x88\x99\xaa\xbb\xcc\xdd\xee\xff";
const UUID_TEXT: &str = "00112233-4455-6677-8899-aabbccddeeff";
const TIME: Timespec = Timespec { secs: 1_700_000_000, nanos: 0 };

/// A tool of f2fs-tools, or `None` with a message to the reader.
///
/// # Panics
/// When the tool is missing and `CI=true`.
pub fn tool(name: &str) -> Option<PathBuf> {
    let found = ["/usr/sbin", "/sbin"].map(|d| Path::new(d).join(name)).into_iter().find(|p| p.exists());
    if found.is_none() {
        skip(&format!("oracle {name} missing"));
    }
    found
}

/// Prints that a test does not run.
///
/// # Panics
/// When `CI=true`.
pub fn skip(why: &str) {
    assert!(std::env::var("CI").as_deref() != Ok("true"), "{why}");
    println!("SKIPPED: {why}");
}

/// A directory on a file system that allows files as large as the largest volume, which ext4 does not.
pub fn directory() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// An empty image, or `None` where a file cannot be so large.
pub fn image(dir: &TempDir, name: &str, bytes: u64) -> Option<PathBuf> {
    let path = dir.path().join(name);
    let made = File::create(&path).and_then(|f| f.set_len(bytes));
    if made.is_err() {
        skip(&format!("no file of {} MiB can be made here", bytes / MIB));
    }
    made.ok().map(|()| path)
}

/// Options with a reproducible outcome.
pub fn options(features: Features) -> MkfsOptions {
    MkfsOptions {
        label: "Tide ½ gate".into(),
        uuid: Some(UUID),
        features,
        time: TIME,
        root_uid: 1000,
        root_gid: 1001,
        discard: false,
        ..Default::default()
    }
}

/// Makes a volume on the image.
pub fn make(path: &Path, options: &MkfsOptions) {
    let device = file::open(path, OpenOptions::default()).unwrap();
    mkfs(&RequestQueue::new(device, Default::default()), options).unwrap();
}

/// Lets mkfs.f2fs make a volume with equal options; false, with its message, when it refuses.
pub fn make_stock(tool: &Path, path: &Path, options: &MkfsOptions) -> bool {
    let mut command = Command::new(tool);
    command.args(["-f", "-r", "-U", UUID_TEXT, "-l", &options.label]);
    command.args(["-T", &options.time.secs.to_string(), "-t", if options.discard { "1" } else { "0" }]);
    command.args(["-R", &format!("{}:{}", options.root_uid, options.root_gid)]);
    command.args(["-s", &options.segs_per_sec.to_string(), "-z", &options.secs_per_zone.to_string()]);
    if let Some(percent) = options.overprovision_percent {
        command.args(["-o", &percent.to_string()]);
    }
    if !options.features.is_empty() {
        command.args(["-O", &feature_names(options.features)]);
    }
    let out = command.arg(path).output().unwrap();
    if !out.status.success() {
        println!("{}", String::from_utf8_lossy(&out.stdout));
    }
    out.status.success()
}

fn feature_names(features: Features) -> String {
    let names = features.iter_names().map(|(name, _)| match name {
        "INODE_CHKSUM" => "inode_checksum".into(),
        "SB_CHKSUM" => "sb_checksum".into(),
        other => other.to_lowercase(),
    });
    names.collect::<Vec<_>>().join(",")
}

/// Asserts that fsck.f2fs finds nothing to do and dump.f2fs reads the volume.
pub fn assert_clean(path: &Path) {
    let Some(fsck) = tool("fsck.f2fs") else { return };
    let out = Command::new(fsck).args(["--dry-run", "-f"]).arg(path).output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success(), "{text}");
    // The line on SIT types is printed for every volume and has no verdict.
    assert_eq!(text.matches("[Ok..]").count(), 10, "{text}");
    for bad in ["[Fail]", "[ASSERT]", "[FIX]", "Corrupted", "Invalid", "Wrong"] {
        assert!(!text.contains(bad), "{bad}: {text}");
    }
    let Some(dump) = tool("dump.f2fs") else { return };
    let out = Command::new(dump).args(["-i", "3"]).arg(path).output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success() && text.contains("Done"), "{text}");
}
