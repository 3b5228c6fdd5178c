//! One volume on several devices or files.

use crate::common::{Bench, assert_same, has, is_root};
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use tidegate_testing::manifest::Options;

/// Files of these sizes in MiB.
fn files(b: &Bench, sizes: &[(&str, u64)]) {
    for (name, mib) in sizes {
        File::create(b.path(name)).unwrap().set_len(mib << 20).unwrap();
    }
}

/// fsck.f2fs, which opens the devices that the superblock lists where it runs.
fn fsck(b: &Bench, image: &str, named: &[&str]) {
    assert!(b.ok(&[&["check", image], named].concat()).contains("clean"));
    if !has("fsck.f2fs") && Command::new("fsck.f2fs").arg("-V").output().is_err() {
        eprintln!("skipped: fsck.f2fs is not installed");
        return;
    }
    let out =
        Command::new("fsck.f2fs").arg("--dry-run").arg(image).current_dir(b.dir.path()).output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success() && !text.contains("[Fail]") && !text.contains("ASSERT"), "{text}");
}

/// Files go in and come out again, and lie on each device.
fn fill(b: &Bench, image: &str, named: &[&str], others: &[&str]) {
    let src = b.path("filling");
    fs::create_dir_all(&src).unwrap();
    for n in 0..48u8 {
        let bytes: Vec<u8> = (0..1u32 << 20).map(|i| (i as u8).wrapping_mul(7) ^ n).collect();
        fs::write(src.join(format!("f{n}")), bytes).unwrap();
    }
    b.ok(&[&["cp", "filling", &format!("{image}:/"), "--quiet"], named].concat());
    b.ok(&[&["cp", &format!("{image}:/filling"), "out", "--quiet"], named].concat());
    assert_same(&src, &b.path("out"), &Options::default());
    fs::remove_dir_all(b.path("out")).unwrap();
    for other in others {
        assert!(fs::read(b.path(other)).unwrap().iter().any(|byte| *byte != 0), "{other} is empty");
    }
}

#[test]
fn a_volume_of_ours_on_three_files() {
    for zoned in [None, Some("--zoned=4M")] {
        let b = Bench::new();
        // The last is no whole number of sections.
        files(&b, &[("b.img", 31), ("c.img", 159)]);
        let args = ["mkfs", "-c", "b.img", "-c", "c.img", "--size", "30M", "a.img", "--quiet"];
        b.ok(&args.into_iter().chain(zoned).collect::<Vec<_>>());
        let named = &["-o", "device=b.img,device=c.img"];
        fill(&b, "a.img", named, &["c.img"]);
        fsck(&b, "a.img", named);
        let info = b.ok(&["info", "a.img", named[0], named[1]]);
        assert!(info.contains("  devices        a.img (30 MiB), b.img (30 MiB), c.img (15"), "{info}");
        // A tree goes in when the volume is made, into existing files.
        let args =
            ["mkfs", "-f", "--from", "filling", "-c", "b.img", "-c", "c.img", "--size", "30M", "a.img"];
        b.ok(&args.into_iter().chain(["--quiet"]).chain(zoned).collect::<Vec<_>>());
        assert_eq!(
            b.ok(&["ls", "a.img:/", named[0], named[1]]).lines().filter(|l| l.starts_with('f')).count(),
            48
        );
        fsck(&b, "a.img", named);
    }
}

#[test]
fn a_volume_of_mkfs_f2fs_on_two_files() {
    let b = Bench::new();
    files(&b, &[("a.img", 64), ("b.img", 64)]);
    let mkfs =
        Command::new("mkfs.f2fs").args(["-q", "-c", "b.img", "a.img"]).current_dir(b.dir.path()).output();
    let Ok(mkfs) = mkfs else { return eprintln!("skipped: mkfs.f2fs is not installed") };
    assert!(mkfs.status.success(), "{}", String::from_utf8_lossy(&mkfs.stdout));
    fill(&b, "a.img", &["-o", "device=b.img"], &["b.img"]);
    fsck(&b, "a.img", &["-o", "device=b.img"]);
}

#[test]
fn another_device_is_named_where_it_is_not_as_listed() {
    let b = Bench::new();
    files(&b, &[("b.img", 32), ("c.img", 128), ("short", 16)]);
    b.ok(&["mkfs", "-c", "b.img", "-c", "c.img", "--size", "32M", "a.img", "--quiet"]);
    fill(&b, "a.img", &["-o", "device=b.img,device=c.img"], &[]);
    let (image, more) = ("a.img:/", "-o");
    fs::create_dir(b.path("away")).unwrap();
    fs::rename(b.path("c.img"), b.path("away/c.img")).unwrap();
    let line = b.fails(&["ls", image], 1);
    let said = "a.img: on 3 devices, of which it lists number 2 as \"b.img\": a file is opened only where it is \
                named; -o device=PATH names";
    assert!(line.starts_with(said), "{line}");
    let both = "device=b.img,device=away/c.img";
    assert_eq!(b.ok(&["ls", more, both, image]), "filling\n");
    assert!(b.ok(&["check", more, both, "a.img"]).contains("clean"));
    assert!(b.fails(&["ls", more, "device=b.img", image], 1).contains("number 3"));
    let line = b.fails(&["ls", more, "device=b.img,device=short", image], 1);
    assert_eq!(line, "short: 16777216 bytes long, and the volume has 134217728 there: not this device of it");
    let line = b.fails(&["ls", more, "device=b.img,device=./b.img", image], 1);
    assert_eq!(line, "./b.img: two devices of one volume");
    assert!(
        b.fails(&["ls", more, "device=a.img,device=b.img", image], 1).contains("two devices of one volume")
    );
    let line = b.fails(&["ls", more, &format!("{both},device=x"), image], 1);
    assert!(line.contains("a volume on 3 devices, and 3 more than the first are named"), "{line}");
    assert!(b.fails(&["ls", more, "device=", image], 1).contains("no path of a device"));
    // A volume on one device, of either format.
    for format in ["f2fs", "ext4"] {
        b.ok(&["mkfs", "-t", format, "--size", "64M", format, "--quiet"]);
        let line = b.fails(&["ls", more, "device=b.img", &format!("{format}:/")], 1);
        assert!(line.contains("a volume on one device"), "{line}");
    }
}

/// A superblock is untrusted input: no file is opened because of it that was not named, not even one beside
/// the image.
#[test]
fn no_listed_file_is_opened_unasked() {
    let b = Bench::new();
    files(&b, &[("b.img", 64)]);
    b.ok(&["mkfs", "-c", "b.img", "--size", "32M", "a.img", "--quiet"]);
    let before = fs::read(b.path("b.img")).unwrap();
    for command in [&["ls", "a.img:/"][..], &["cp", "a.img:/", "out"], &["info", "a.img"]] {
        let line = b.fails(command, 1);
        assert!(line.contains("a file is opened only where it is named; -o device=PATH"), "{line}");
    }
    assert!(b.fails(&["check", "a.img"], 8).contains("only where it is named"));
    assert_eq!(fs::read(b.path("b.img")).unwrap(), before);
    b.ok(&["ls", "-o", "device=b.img", "a.img:/"]);
}

#[test]
fn devices_that_make_no_volume_are_refused() {
    let b = Bench::new();
    files(&b, &[("b.img", 96), ("empty", 0)]);
    let mkfs = |args: &[&str]| b.fails(&[&["mkfs", "--quiet"], args].concat(), 1);
    assert!(mkfs(&["-c", "none", "--size", "32M", "a.img"]).contains("truncate -s 1G makes"));
    assert!(mkfs(&["-c", "empty", "--size", "32M", "a.img"]).contains("truncate -s 1G makes"));
    assert!(mkfs(&["-c", "b.img", "-c", "b.img", "--size", "32M", "a.img"]).contains("two devices"));
    assert!(
        mkfs(&["-c", "b.img", "-t", "ext4", "--size", "32M", "a.img"]).contains("device is for f2fs: choose")
    );
    assert!(mkfs(&["-c", "b.img", "--size", "1M", "a.img"]).contains("has 2 MiB at least"));
    assert!(mkfs(&["-c", "b.img", "--size", "auto", "a.img"]).contains("give --size for this one"));
    assert!(!b.path("a.img").exists());
    b.ok(&["mkfs", "--size", "64M", "v.img", "--quiet"]);
    assert!(mkfs(&["-c", "v.img", "--size", "32M", "a.img"]).contains("v.img: holds an f2fs volume"));
    // The second device is shorter than a section, or no segment of the first is left.
    files(&b, &[("short.img", 20)]);
    let by_sections = |zoned, size, other| mkfs(&[zoned, "-c", other, "--size", size, "a.img"]);
    let line = by_sections("--zoned=64M", "1G", "short.img");
    assert!(line.contains("device number 2 is too short"), "{line}");
    let line = by_sections("--zoned=4M", "4M", "b.img");
    assert!(line.contains("device number 1 is too short"), "{line}");
    assert!(!b.path("a.img").exists());
    let long = format!("{}.img", "x".repeat(70));
    files(&b, &[(&long, 32)]);
    assert!(mkfs(&["-c", &long, "--size", "32M", "a.img"]).contains("at most 63 bytes"));
}

/// Each device after the first held a volume of its own, which must not be found there any more.
#[test]
fn earlier_volumes_are_gone_from_the_fronts_of_all_devices() {
    for (old, more) in [("f2fs", &[][..]), ("ext4", &[]), ("f2fs", &["--zoned=4M"])] {
        let b = Bench::new();
        for name in ["b.img", "c.img"] {
            b.ok(&["mkfs", "--quiet", "-t", old, "--size", "64M", name]);
        }
        let args = ["mkfs", "-c", "b.img", "-c", "c.img", "--force", "--size", "64M", "a.img", "--quiet"];
        b.ok(&args.iter().chain(more).copied().collect::<Vec<_>>());
        for name in ["b.img", "c.img"] {
            let line = b.fails(&["info", name], 1);
            assert!(line.contains("not an f2fs or ext4 volume"), "{old} {more:?}: {line}");
            if has("blkid") {
                let told = Command::new("blkid").arg("-p").arg(b.path(name)).output().unwrap();
                assert_eq!(String::from_utf8_lossy(&told.stdout), "", "{old} {more:?}");
            }
        }
        fsck(&b, "a.img", &["-o", "device=b.img,device=c.img"]);
    }
}

/// Loop devices: as block devices are listed, opened and mounted.
#[test]
fn a_volume_on_two_block_devices() {
    if !is_root() || !Path::new("/dev/loop-control").exists() {
        return eprintln!("skipped: loop devices are the superuser's");
    }
    let b = Bench::new();
    files(&b, &[("a.img", 48), ("b.img", 128)]);
    let Some(loops) =
        ["a.img", "b.img"].map(|name| Loop::over(&b.path(name))).into_iter().collect::<Option<Vec<_>>>()
    else {
        return eprintln!("skipped: no loop devices");
    };
    let (first, second) = (&*loops[0].0, &*loops[1].0);
    b.ok(&["mkfs", "-c", second, first, "--quiet"]);
    fill(&b, first, &[], &["b.img"]);
    fsck(&b, first, &[]);
    let info = b.ok(&["info", first]);
    assert!(info.contains(&format!("{first} (48 MiB), {second} (128 MiB)")), "{info}");
    // The image of the first lists a device, but a path is followed only from a device.
    let line = b.fails(&["ls", "a.img:/"], 1);
    assert!(line.contains("in use") || line.contains("only where it is named"), "{line}");
}

/// A loop device, let go of at the end.
struct Loop(String);

impl Loop {
    fn over(file: &Path) -> Option<Loop> {
        let out = Command::new("losetup").args(["-f", "--show"]).arg(file).output().ok()?;
        out.status.success().then(|| Loop(String::from_utf8_lossy(&out.stdout).trim().into()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("-d").arg(&self.0).status();
    }
}
