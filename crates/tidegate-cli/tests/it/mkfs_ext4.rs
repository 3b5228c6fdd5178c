//! `mkfs --format ext4`: volumes that e2fsck calls clean and Linux reads as their source, small, the same
//! twice, and none where making one was cut short.

use super::tar_names::archive;
use crate::common::{Bench, assert_same, is_root};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};
use tidegate_testing::manifest::Options;
use tidegate_testing::oracle::{require, skip_or_fail};

const UUID: &str = "00112233-4455-6677-8899-aabbccddeeff";

/// A bench with a tree at `src`, which has something of each kind.
fn bench() -> Option<Bench> {
    if ["mke2fs", "e2fsck"].into_iter().any(skip_or_fail) {
        return None;
    }
    let b = Bench::new();
    let src = b.path("src");
    fs::create_dir_all(src.join("dir/sub")).unwrap();
    fs::create_dir_all(src.join("many")).unwrap();
    for n in 0..3000 {
        fs::write(src.join(format!("many/file-{n}")), vec![n as u8; n % 7000]).unwrap();
    }
    fs::write(src.join("dir/hello"), "hello\n").unwrap();
    fs::write(src.join("dir/sub/large"), vec![7; 3_000_000]).unwrap();
    let holes = fs::File::create(src.join("holes")).unwrap();
    for n in 0..40 {
        std::os::unix::fs::FileExt::write_all_at(&holes, &[n as u8 + 1; 5000], n * 100_000).unwrap();
    }
    std::os::unix::fs::symlink("hello", src.join("dir/link")).unwrap();
    std::os::unix::fs::symlink("l".repeat(200), src.join("dir/long")).unwrap();
    fs::hard_link(src.join("dir/hello"), src.join("again")).unwrap();
    let set = rustix::fs::XattrFlags::empty();
    for n in 0..9 {
        // Where the host has no attributes, there are none to keep.
        let _ = rustix::fs::setxattr(src.join("again"), format!("user.a{n}"), &[n; 50], set);
    }
    Some(b)
}

fn e2fsck(b: &Bench, image: &str) {
    let mut c = Command::new(require("e2fsck").unwrap());
    let out = c.arg("-fn").arg(b.path(image)).stdin(Stdio::null()).output().unwrap();
    assert!(out.status.success(), "{image}: {}", String::from_utf8_lossy(&out.stdout));
    assert!(b.ok(&["check", image]).contains("clean"));
}

/// Removed at the end.
struct Mounted(std::path::PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn linux_reads_what_went_in() {
    let Some(b) = bench() else { return };
    let cases: [&[&str]; 6] = [
        &[],
        &["--block-size", "4096"],
        &["--size", "700M", "--label", "rootfs", "--reserved", "1"],
        &["--journal", "none", "--inode-size", "128", "--block-size", "2048"],
        &["-O", "metadata_csum_seed,orphan_file,^64bit", "--size", "64M"],
        &["-O", "^metadata_csum,^flex_bg", "--inode-ratio", "2048", "--journal", "4M"],
    ];
    for (n, options) in cases.into_iter().enumerate() {
        let image = format!("{n}.img");
        b.ok(&[&["mkfs", "--format", "ext4", "--from", "src"], options, &[&image]].concat());
        e2fsck(&b, &image);
        let mut but = Options { ignore_lost_found: true, ignore_owner: !is_root(), ..Options::default() };
        // Inodes of 128 bytes have no nanoseconds.
        but.ignore_nanoseconds = options.contains(&"128");
        b.ok(&["cp", &format!("{image}:/"), &format!("out-{n}")]);
        assert_same(&b.path("src"), &b.path(&format!("out-{n}")), &but);
        let at = b.path(&format!("mnt-{n}"));
        fs::create_dir(&at).unwrap();
        let mut mount = Command::new("mount");
        let mounted = mount.args(["-o", "loop,ro"]).arg(b.path(&image)).arg(&at).output().unwrap();
        if !mounted.status.success() {
            assert!(!is_root(), "{options:?}: {}", String::from_utf8_lossy(&mounted.stderr));
            eprintln!("skipped: mounting needs the superuser");
            continue;
        }
        let mounted = Mounted(at);
        assert_same(&b.path("src"), &mounted.0, &but);
    }
}

#[test]
fn the_same_input_makes_the_same_bytes() {
    let Some(b) = bench() else { return };
    let tar =
        Command::new("tar").args(["-cf", "src.tar", "-C", "src", "."]).current_dir(b.dir.path()).status();
    assert!(tar.unwrap().success());
    for (n, from) in ["src", "src", "src.tar", "src.tar"].into_iter().enumerate() {
        let image = format!("{n}.img");
        let mut c = b.command(&["mkfs", "--format", "ext4", "--uuid", UUID, "--from", from, &image]);
        let out = c.env("SOURCE_DATE_EPOCH", "1700000000").output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    }
    e2fsck(&b, "0.img");
    e2fsck(&b, "2.img");
    let bytes = |n: usize| fs::read(b.path(&format!("{n}.img"))).unwrap();
    assert!(bytes(0) == bytes(1) && bytes(2) == bytes(3));
}

/// The journal keeps the time of each transaction, too.
#[test]
fn the_same_changes_make_the_same_bytes() {
    let Some(b) = bench() else { return };
    let run = |args: &[&str]| {
        let out = b.command(args).env("SOURCE_DATE_EPOCH", "1700000000").output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    };
    run(&["mkfs", "--format", "ext4", "--uuid", UUID, "--size", "64M", "a.img"]);
    for copy in ["first.img", "b.img"] {
        fs::copy(b.path("a.img"), b.path(copy)).unwrap();
    }
    // The first reading changes the access times of the source, which are imported, too.
    for image in ["first.img", "a.img", "b.img"] {
        run(&["cp", "src", &format!("{image}:/")]);
        run(&["mkdir", &format!("{image}:/new")]);
        run(&["rm", "-r", &format!("{image}:/src")]);
        tidegate_rt::thread::sleep(std::time::Duration::from_millis(1100));
    }
    let bytes = |image: &str| fs::read(b.path(image)).unwrap();
    assert!(bytes("a.img") == bytes("b.img"), "two runs differ");
    e2fsck(&b, "a.img");
}

/// A volume that fits is no larger than the smallest that mke2fs fills with the same.
#[test]
fn small_volumes_are_small() {
    let Some(b) = bench() else { return };
    fs::create_dir(b.path("one")).unwrap();
    fs::write(b.path("one/f"), vec![3; 1 << 20]).unwrap();
    for from in ["one", "src"] {
        b.ok(&["mkfs", "--format", "ext4", "--from", from, "a.img", "--force"]);
        e2fsck(&b, "a.img");
        let ours = fs::metadata(b.path("a.img")).unwrap().len();
        let fits = |bytes: u64| {
            let _ = fs::remove_file(b.path("b.img"));
            let mut c = Command::new(require("mke2fs").unwrap());
            c.args(["-q", "-F", "-t", "ext4", "-d"]).arg(b.path(from)).arg(b.path("b.img"));
            c.arg(format!("{}k", bytes / 1024)).stdin(Stdio::null()).stderr(Stdio::null());
            c.status().unwrap().success()
        };
        // A directory's blocks are counted as if they were split.
        assert!(
            !fits(ours - if from == "one" { 64 << 10 } else { 192 << 10 }),
            "{from}: {ours} bytes, and mke2fs needs less"
        );
    }
    // The requested free space is there.
    b.ok(&["mkfs", "--format", "ext4", "--from", "one", "--free", "50M", "c.img"]);
    let df: serde_json::Value = serde_json::from_str(&b.ok(&["--json", "df", "c.img"])).unwrap();
    let available = df[0]["available"].as_u64().unwrap();
    assert!((50 << 20..60 << 20).contains(&available), "{df}");
    // Many empty files: as many inodes as they need.
    fs::create_dir(b.path("empty")).unwrap();
    (0..5000).for_each(|n| fs::write(b.path(&format!("empty/{n}")), "").unwrap());
    b.ok(&["mkfs", "--format", "ext4", "--from", "empty", "d.img"]);
    e2fsck(&b, "d.img");
    assert!(fs::metadata(b.path("d.img")).unwrap().len() < 4 << 20);
}

/// A volume that is made to fit is filled once: the last directories find room as well.
#[test]
fn a_volume_that_fits_is_made_at_once() {
    let Some(b) = bench() else { return };
    for n in 0..200 {
        let dir = b.path(&format!("dirs/{n}"));
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("file"), vec![n as u8; 100_000]).unwrap();
    }
    for block in ["1K", "4K"] {
        let out =
            b.ok(&["mkfs", "--format", "ext4", "--block-size", block, "--from", "dirs", "a.img", "--force"]);
        // For a volume that was made again, only the last attempt is reported.
        assert!(out.contains("measure "), "{block}: {out}");
        e2fsck(&b, "a.img");
    }
}

#[test]
fn what_is_there_is_kept_and_what_is_cut_short_is_none() {
    let Some(b) = bench() else { return };
    b.ok(&["mkfs", "-t", "ext4", "--size", "32M", "a.img"]);
    let line = b.fails(&["mkfs", "-t", "ext4", "--size", "32M", "a.img"], 1);
    assert!(line.contains("an ext2, ext3 or ext4 file system") && line.contains("--force"), "{line}");
    // A volume that is made in place and is too small: no volume is left, and nothing that could be missed.
    fs::hard_link(b.path("a.img"), b.path("b.img")).unwrap();
    fs::write(b.path("src/more"), vec![1; 40 << 20]).unwrap();
    for format in ["ext4", "f2fs"] {
        let size = if format == "ext4" { "32M" } else { "48M" };
        b.ok(&["mkfs", "-f", "-t", format, "--size", size, "a.img"]);
        let line = b.fails(&["mkfs", "-f", "-t", "ext4", "--size", "32M", "--from", "src", "a.img"], 1);
        assert!(line.ends_with("what was there before is gone"), "{line}");
        assert!(b.fails(&["ls", "a.img"], 1).contains("not an f2fs or ext4 volume"));
        b.ok(&["mkfs", "-t", "ext4", "--size", "32M", "a.img"]);
        e2fsck(&b, "b.img");
    }
    // The program is killed at any point.
    let ino = fs::metadata(b.path("b.img")).unwrap().ino();
    for millis in (0..200).step_by(20) {
        let mut c = b.command(&["mkfs", "-f", "-t", "ext4", "--size", "100M", "--from", "src", "a.img"]);
        let mut child = c.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(millis));
        child.kill().unwrap();
        child.wait().unwrap();
        let out = b.command(&["ls", "a.img"]).output().unwrap();
        if out.status.success() {
            e2fsck(&b, "a.img");
        } else {
            b.ok(&["mkfs", "-t", "ext4", "--size", "32M", "a.img"]);
        }
        assert_eq!(fs::metadata(b.path("a.img")).unwrap().ino(), ino);
    }
}

/// A volume that has room for the bytes but not for the files reports what would suffice, and that suffices.
#[test]
fn too_few_inodes_are_told() {
    let Some(b) = bench() else { return };
    let mkfs = ["mkfs", "--format", "ext4", "--size", "64M", "--from", "src"];
    let line = b.fails(&[&mkfs[..], &["--inode-ratio", "65536", "few.img"]].concat(), 1);
    assert!(line.contains("inodes are in use") && line.contains("the source takes"), "{line}");
    let wanted = line.split("--inodes ").nth(1).and_then(|l| l.split(' ').next());
    let wanted = wanted.unwrap_or_else(|| panic!("{line}"));
    b.ok(&[&mkfs[..], &["--inodes", wanted, "few.img"]].concat());
    e2fsck(&b, "few.img");
}

/// A volume that is made to fit does not grow for inodes that a larger volume would not have, either.
#[test]
fn too_few_inodes_are_told_of_a_volume_that_fits() {
    let Some(b) = bench() else { return };
    let mkfs = ["mkfs", "--format", "ext4", "--from", "src"];
    let line = b.fails(&[&mkfs[..], &["--inodes", "100", "few.img"]].concat(), 1);
    assert!(line.contains("the source takes") && line.ends_with("would do"), "{line}");
    assert!(!b.path("few.img").exists());
    let wanted = line.split("--inodes ").nth(1).and_then(|l| l.split(' ').next());
    let wanted = wanted.unwrap_or_else(|| panic!("{line}"));
    b.ok(&[&mkfs[..], &["--inodes", wanted, "few.img"]].concat());
    e2fsck(&b, "few.img");
    assert!(fs::metadata(b.path("few.img")).unwrap().len() < 64 << 20);
}

/// A limit of the volume's shape is reported at once, and as such: no larger volume would do.
#[test]
fn a_limit_that_space_does_not_lift_is_told_with_the_way_out() {
    let Some(b) = bench() else { return };
    let mkfs = ["mkfs", "--quiet", "--format", "ext4", "--from"];
    fs::create_dir(b.path("large")).unwrap();
    for n in 0..30_000 {
        fs::write(b.path("large").join(format!("{n:0255}")), b"").unwrap();
    }
    let line = b.fails(&[&mkfs[..], &["large", "a.img"]].concat(), 1);
    let way =
        "no room for more names in the directory; --block-size 4096 or -O large_dir makes room for more";
    assert!(line.contains("its hash tree is full") && line.contains(way), "{line}");
    for (option, value) in [("--block-size", "4096"), ("-O", "large_dir")] {
        b.ok(&[&mkfs[..], &["large", option, value, "b.img", "--force"]].concat());
        e2fsck(&b, "b.img");
    }
    archive(&b, "add('f', pax_headers={'SCHILY.xattr.user.big': 'x' * 3000})");
    let line = b.fails(&[&mkfs[..], &["x.tar", "a.img"]].concat(), 1);
    let why = "attribute user.big: attributes that do not fit in the inode and a block of 1024 bytes";
    assert!(line.contains("a.img:/f: ") && line.contains(why), "{line}");
    assert!(line.ends_with("too large for the format; --block-size 4096 makes room for more"), "{line}");
    b.ok(&[&mkfs[..], &["x.tar", "--block-size", "4096", "c.img"]].concat());
    e2fsck(&b, "c.img");
}

#[test]
fn wrong_options_are_told() {
    let Some(b) = bench() else { return };
    for (options, why) in [
        (&["-O", "bigalloc"][..], "bigalloc: not a feature"),
        (&["-O", "^extent"], "use mke2fs"),
        (&["-O", "meta_bg"], "add ^resize_inode"),
        (&["--block-size", "8192"], "choose 1024, 2048 or 4096"),
        (&["--inode-size", "300"], "a power of two"),
        (&["--reserved", "70"], "choose 0 to 50"),
        (&["--journal", "100K"], "choose 1024 to"),
        (&["--label", "seventeen bytes.."], "too long: at most 16"),
        (&["--inodes", "99999999"], "99999999 inodes do not fit"),
        (&["--journal", "none", "-O", "has_journal"], "leave one out"),
        (&["--journal", "none", "-O", "orphan_file"], "needs a journal"),
        (&["--journal", "4M", "-O", "^has_journal"], "leave one out"),
    ] {
        let line = b.fails(&[&["mkfs", "-t", "ext4", "--size", "64M", "a.img"], options].concat(), 1);
        assert!(line.starts_with("a.img: ") && line.contains(why), "{options:?}: {line}");
        assert!(!b.path("a.img").exists(), "{options:?}");
    }
    let line = b.fails(&["mkfs", "--size", "64M", "--journal", "none", "a.img"], 1);
    assert!(line.contains("journal is for ext4: choose format ext4"), "{line}");
    let line = b.fails(&["mkfs", "--size", "64M", "-O", "64bit", "a.img"], 1);
    assert!(line.contains("64bit: not a feature that can be made; there are extra_attr"), "{line}");
}
