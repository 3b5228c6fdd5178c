//! `tidegate trim`: the image shrinks, and no block in use is discarded.

use crate::common;
use crate::common::{Bench, has, is_root};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Command;

/// The bytes that the image takes on the host.
fn allocated(b: &Bench, image: &str) -> u64 {
    fs::metadata(b.path(image)).unwrap().blocks() * 512
}

/// A volume with 20 MiB that are in use and 20 MiB that were, without a discard.
fn used_and_stale(b: &Bench, image: &str) {
    fs::write(b.path("data"), (0..20 << 20).map(|i: u32| ((i / 7) ^ (i >> 9)) as u8).collect::<Vec<_>>())
        .unwrap();
    b.ok(&["mkfs", "--size", "128M", image]);
    for name in ["kept", "gone"] {
        b.ok(&["cp", "-o", "nodiscard", "data", &format!("{image}:/{name}")]);
    }
    b.ok(&["rm", "-o", "nodiscard", &format!("{image}:/gone")]);
}

#[test]
fn an_image_shrinks() {
    let b = Bench::new();
    used_and_stale(&b, "a.img");
    let before = allocated(&b, "a.img");
    assert!(before > 40 << 20, "{before}: rm discarded");
    // Only a part, and only large pieces: there is none above 1 GiB.
    let told = |args: &[&str]| -> u64 {
        let args: Vec<&str> = ["trim", "--json"].iter().chain(args).copied().collect();
        let v: serde_json::Value = serde_json::from_str(&b.ok(&args)).unwrap();
        assert_eq!(v["image"], "a.img");
        v["discarded_bytes"].as_u64().unwrap()
    };
    assert_eq!(told(&["--minimum", "1G", "a.img"]), 0);
    assert_eq!(told(&["--length", "1M", "a.img"]), 0); // metadata is there
    assert_eq!(allocated(&b, "a.img") >> 20, before >> 20);
    let tail = told(&["--offset", "100M", "a.img"]);
    assert!(0 < tail && tail <= 28 << 20, "{tail}");
    let all = told(&["a.img"]);
    assert!(all > 60 << 20 && all < 100 << 20, "{all}");
    let after = allocated(&b, "a.img");
    assert!(after < before - (18 << 20) && after > 20 << 20, "{before} -> {after}");
    b.fsck("a.img");
    b.ok(&["cp", "a.img:/kept", "back"]);
    assert!(fs::read(b.path("back")).unwrap() == fs::read(b.path("data")).unwrap());
    assert_eq!(b.ok(&["ls", "a.img"]), "kept\n");
    let text = b.ok(&["trim", "-m", "4K", "a.img"]);
    assert!(text.starts_with("a.img: ") && text.ends_with(" bytes) discarded\n"), "{text}");
}

#[test]
fn what_is_in_the_way_is_said() {
    let b = Bench::new();
    assert!(b.fails(&["trim", "missing.img"], 1).starts_with("missing.img: no such file"));
    b.ok(&["mkfs", "--size", "64M", "a.img"]);
    let line = b.fails(&["trim", "-o", "ro", "a.img"], 1);
    assert_eq!(line, "a.img: the volume is read-only: opened read-only");
    if !has("mkfs.f2fs") {
        return println!("SKIPPED: mkfs.f2fs is not installed");
    }
    fs::File::create(b.path("c.img")).unwrap().set_len(64 << 20).unwrap();
    let options = "extra_attr,compression";
    let made = Command::new("mkfs.f2fs").args(["-q", "-O", options]).arg(b.path("c.img")).status();
    assert!(made.unwrap().success());
    let line = b.fails(&["trim", "c.img"], 1);
    assert!(line.starts_with("c.img: the volume is read-only: f2fs feature \"compression\""), "{line}");
}

/// ramfs has no holes to punch.
#[test]
fn a_device_without_discards_is_named() {
    let b = Bench::new();
    fs::create_dir(b.path("ram")).unwrap();
    let mount = || Command::new("mount").args(["-t", "ramfs", "none"]).arg(b.path("ram")).status();
    if !is_root() || !mount().is_ok_and(|s| s.success()) {
        return println!("SKIPPED: cannot mount a ramfs");
    }
    let made = b.command(&["mkfs", "--size", "64M", "ram/a.img"]).output().unwrap();
    let out = b.command(&["trim", "ram/a.img"]).output().unwrap();
    let unmounted = Command::new("umount").arg(b.path("ram")).status().unwrap();
    assert!(unmounted.success() && made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let line = common::failed(&out, 1);
    assert!(line.starts_with("ram/a.img: cannot trim: ") && line.contains("punch holes"), "{line}");
}
