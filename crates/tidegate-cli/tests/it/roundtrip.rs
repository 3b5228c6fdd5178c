//! Trees and tars into a volume and back.

use crate::common::{Bench, assert_same, has, is_root};
use std::fs;
use std::process::{Command, Stdio};
use tidegate_testing::manifest::Options;

fn tarless() -> Options {
    Options { ignore_sockets: true, ..Default::default() }
}

#[test]
fn a_tree_comes_back_with_every_attribute() {
    if !is_root() {
        eprintln!("skipped: owners and devices need root");
        return;
    }
    let b = Bench::new();
    let src = b.varied();
    for (n, features) in ["", "extra_attr,inode_checksum,inode_crtime,sb_checksum,flexible_inline_xattr"]
        .into_iter()
        .enumerate()
    {
        let image = format!("{n}.img");
        let mut args = vec!["mkfs", "--from", "src"];
        if !features.is_empty() {
            args.extend(["--features", features]);
        }
        args.push(&image);
        b.ok(&args);
        b.fsck(&image);
        let out = format!("out{n}");
        b.ok(&["cp", &format!("{image}:/"), &out]);
        assert_same(&src, &b.path(&out), &Options::default());
    }
}

#[test]
fn both_backends_give_the_same() {
    let b = Bench::new();
    fs::create_dir_all(b.path("src/d")).unwrap();
    fs::write(b.path("src/d/f"), vec![7; 3_000_000]).unwrap();
    b.ok(&["mkfs", "--io", "threads", "--from", "src", "a.img"]);
    b.fsck("a.img");
    b.ok(&["cp", "--io", "threads", "--cache", "8M", "a.img:/", "out"]);
    assert_same(&b.path("src"), &b.path("out"), &Options::default());
}

#[test]
fn cp_adds_to_a_volume() {
    let b = Bench::new();
    fs::create_dir_all(b.path("src/sub")).unwrap();
    fs::write(b.path("src/sub/new"), "new").unwrap();
    fs::write(b.path("one"), "1").unwrap();
    b.ok(&["mkfs", "--size", "64M", "a.img"]);
    b.ok(&["mkdir", "-p", "a.img:/x/y"]);
    b.ok(&["cp", "-r", "src", "one", "a.img:/x"]);
    b.ok(&["cp", "src", "a.img:/x/renamed"]);
    b.ok(&["cp", "src/.", "a.img:/x/y"]);
    fs::write(b.path("one"), "changed").unwrap();
    b.ok(&["cp", "one", "a.img:/x"]);
    b.fsck("a.img");
    assert_eq!(b.ok(&["ls", "a.img:/x"]), "one\nrenamed\nsrc\ny\n");
    assert_eq!(b.ok(&["cat", "a.img:/x/one", "a.img:/x/y/sub/new"]), "changednew");
    b.ok(&["cp", "a.img:/x/src", "out"]);
    b.ok(&["cp", "a.img:/x/renamed/.", "out2"]);
    for out in ["out", "out2"] {
        assert_same(&b.path("src"), &b.path(out), &Options::default());
    }
    b.ok(&["cp", "a.img:/x/one", "here"]);
    assert_eq!(fs::read(b.path("here")).unwrap(), b"changed");
}

#[test]
fn our_tar_is_what_tar_and_we_read() {
    if !is_root() || !has("tar") {
        eprintln!("skipped: needs root and tar");
        return;
    }
    let b = Bench::new();
    let src = b.varied();
    b.ok(&["mkfs", "--from", "src", "a.img"]);
    let tar = fs::File::create(b.path("a.tar")).unwrap();
    assert!(b.command(&["tar", "a.img:/"]).stdout(tar).stderr(Stdio::null()).status().unwrap().success());
    fs::create_dir(b.path("gnu")).unwrap();
    let mut gnu = Command::new("tar");
    gnu.args(["--xattrs", "--xattrs-include=*", "--numeric-owner", "-xpf", "a.tar", "-C", "gnu"]);
    assert!(gnu.current_dir(b.dir.path()).stderr(Stdio::null()).status().unwrap().success());
    assert_same(&src, &b.path("gnu"), &tarless());
    b.ok(&["mkfs", "--from", "a.tar", "b.img"]);
    b.fsck("b.img");
    b.ok(&["cp", "b.img:/", "out"]);
    assert_same(&src, &b.path("out"), &tarless());
}

/// The stock tar's archives: plain, compressed, and on standard input.
#[test]
fn tars_of_all_kinds_are_read() {
    if !is_root() || !has("tar") {
        eprintln!("skipped: needs root and tar");
        return;
    }
    let b = Bench::new();
    let src = b.varied();
    let pack = |args: &[&str], name: &str| {
        let mut c = Command::new("tar");
        c.args(["--xattrs", "--xattrs-include=*", "--sparse"])
            .args(args)
            .args(["-cf", name, "-C", "src", "."]);
        c.current_dir(b.dir.path()).stderr(Stdio::null()).status().unwrap().success()
    };
    let whole = [
        (&["--format=pax"][..], "pax.tar"),
        (&["--format=pax", "-z"], "pax.tar.gz"),
        (&["--format=pax", "--zstd"], "x.zst"),
    ];
    for (args, name) in whole {
        if !pack(args, name) {
            eprintln!("skipped: tar {args:?}");
            continue;
        }
        let _ = fs::remove_dir_all(b.path("out"));
        let stdin = fs::File::open(b.path(name)).unwrap();
        let out = b
            .command(&["mkfs", "--force", "--size", "auto", "--from", "-", "a.img"])
            .stdin(stdin)
            .output()
            .unwrap();
        assert!(out.status.success(), "{name}: {}", String::from_utf8_lossy(&out.stderr));
        b.fsck("a.img");
        b.ok(&["cp", "a.img:/", "out"]);
        assert_same(&src, &b.path("out"), &tarless());
    }
    for format in ["--format=gnu", "--format=oldgnu"] {
        let mut c = Command::new("tar");
        c.args([format, "--sparse", "-cf", "gnu.tar", "-C", "src", "."]).current_dir(b.dir.path());
        assert!(c.stderr(Stdio::null()).status().unwrap().success());
        let _ = fs::remove_dir_all(b.path("out"));
        b.ok(&["mkfs", "--force", "--from", "gnu.tar", "a.img", "--size", "auto"]);
        b.fsck("a.img");
        b.ok(&["cp", "a.img:/", "out"]);
        // These formats hold neither attributes nor fractions of a second.
        let options = Options { ignore_nanoseconds: true, ignore_xattrs: true, ..tarless() };
        assert_same(&src, &b.path("out"), &options);
    }
}

#[test]
fn equal_input_makes_equal_bytes() {
    let b = Bench::new();
    fs::create_dir(b.path("src")).unwrap();
    for i in 0..300 {
        fs::create_dir_all(b.path(&format!("src/d{}", i % 7))).unwrap();
        fs::write(b.path(&format!("src/d{}/f{i}", i % 7)), vec![i as u8; i * i]).unwrap();
    }
    fs::write(b.path("src/large"), vec![1; 40 << 20]).unwrap();
    let make = |image: &str| {
        let uuid = "01234567-89ab-cdef-0123-456789abcdef";
        let mut c = b.command(&["mkfs", "--from", "src", "--uuid", uuid, "--label", "same", image]);
        assert!(c.env("SOURCE_DATE_EPOCH", "1700000000").output().unwrap().status.success());
        fs::read(b.path(image)).unwrap()
    };
    let first = make("a.img");
    tidegate_rt::thread::sleep(std::time::Duration::from_millis(1100));
    assert!(first == make("b.img"), "two runs differ");
    b.fsck("a.img");
    assert!(b.ok(&["ls", "-l", "a.img:/large"]).contains("2023-11-14 22:13"));
}

#[test]
fn auto_fits_and_leaves_little() {
    let b = Bench::new();
    fs::create_dir(b.path("src")).unwrap();
    for (kind, files, size) in [("small", 5000, 100), ("large", 3, 30 << 20), ("none", 0, 0)] {
        let dir = b.path("src").join(kind);
        fs::create_dir(&dir).unwrap();
        for i in 0..files {
            fs::write(dir.join(format!("a-rather-long-name-of-a-file-{i}")), vec![1; size]).unwrap();
        }
    }
    b.ok(&["mkfs", "--from", "src", "a.img"]);
    b.fsck("a.img");
    let df: serde_json::Value = serde_json::from_str(&b.ok(&["--json", "df", "a.img"])).unwrap();
    let get = |k: &str| df[0][k].as_u64().unwrap() as f64;
    assert!(get("available") / (get("used") + get("available")) < 0.06, "{df}");
}
