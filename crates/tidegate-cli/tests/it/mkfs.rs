//! The files that `mkfs` may overwrite, its remains when it is cut short, and its message then.

use crate::common;
use crate::common::{Bench, failed, is_root};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};

const MIB: usize = 1 << 20;

fn names(b: &Bench) -> Vec<String> {
    let mut v: Vec<String> =
        fs::read_dir(b.dir.path()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    v.sort();
    v
}

/// A volume `a.img` with one file, and a directory `src` with one that does not fit 40 MiB.
fn old_image(b: &Bench) -> Vec<u8> {
    fs::create_dir_all(b.path("one")).unwrap();
    fs::write(b.path("one/old"), "old").unwrap();
    b.ok(&["mkfs", "--from", "one", "a.img"]);
    fs::create_dir_all(b.path("src")).unwrap();
    fs::write(b.path("src/big"), vec![1; 60 * MIB]).unwrap();
    fs::read(b.path("a.img")).unwrap()
}

#[test]
fn what_is_no_image_is_not_destroyed() {
    let b = Bench::new();
    fs::create_dir(b.path("src")).unwrap();
    let mut ext4 = vec![0; MIB];
    ext4[1080..1082].copy_from_slice(&[0x53, 0xef]);
    let mut late = vec![0; MIB];
    late[65_535] = 1;
    let mut last = vec![0; 5 * MIB];
    last[5 * MIB - 1] = 1;
    let mut disk = vec![0; MIB];
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    for (name, bytes, what) in [
        ("notes.pdf", b"%PDF-1.7 and so on".to_vec(), "a PDF document"),
        ("ext4.img", ext4, "an ext2, ext3 or ext4 file system"),
        ("late.bin", late, "data that is no volume"),
        ("last.bin", last, "data that is no volume"),
        ("disk.img", disk, "a partition table"),
    ] {
        fs::write(b.path(name), &bytes).unwrap();
        for args in [&["--size", "64M"][..], &["--from", "src"], &[]] {
            let line = b.fails(&[&["mkfs", name], args].concat(), 1);
            assert!(line.starts_with(&format!("{name}: ")), "{line}");
            if !args.is_empty() {
                assert!(line.contains(what) && line.contains("--force (-f)"), "{line}");
            }
            assert!(fs::read(b.path(name)).unwrap() == bytes, "{name} was changed");
        }
        b.ok(&["mkfs", "-f", "--from", "src", name]);
        b.fsck(name);
    }
    // The file holds nothing that could be missed; afterwards it holds a volume.
    fs::write(b.path("empty"), b"").unwrap();
    fs::write(b.path("zeros"), vec![0; MIB]).unwrap();
    for name in ["empty", "zeros", "new"] {
        b.ok(&["mkfs", "--size", "64M", name]);
        for args in [&["--size", "64M"][..], &["--from", "src"], &[]] {
            let line = b.fails(&[&["mkfs", name], args].concat(), 1);
            assert!(line.contains("an f2fs volume") && line.contains("--force (-f)"), "{line}");
            b.fsck(name);
        }
        b.ok(&["mkfs", "--force", name]);
    }
}

#[test]
fn a_prepared_file_keeps_its_size_and_a_fitting_one_leaves_room() {
    let b = Bench::new();
    fs::create_dir(b.path("src")).unwrap();
    fs::write(b.path("src/f"), vec![1; MIB]).unwrap();
    fs::File::create(b.path("a.img")).unwrap().set_len(200 << 20).unwrap();
    b.ok(&["mkfs", "--from", "src", "a.img"]);
    assert_eq!(fs::metadata(b.path("a.img")).unwrap().len(), 200 << 20);
    b.ok(&["mkfs", "--from", "src", "--free", "150M", "b.img"]);
    b.fsck("b.img");
    let df: serde_json::Value = serde_json::from_str(&b.ok(&["--json", "df", "b.img"])).unwrap();
    let available = df[0]["available"].as_u64().unwrap();
    assert!((150 << 20..180 << 20).contains(&available), "{df}");
}

#[test]
fn options_that_would_do_nothing_are_refused() {
    let b = Bench::new();
    fs::create_dir(b.path("src")).unwrap();
    fs::File::create(b.path("there.img")).unwrap().set_len(64 << 20).unwrap();
    for (options, why) in [
        (&["--from", "src", "--size", "64M", "--free", "1M", "a.img"][..], "--free is for"),
        (&["--from", "src", "--free", "1M", "there.img"], "--free is for"),
        (&["--size", "64M", "--owner", "1:2", "a.img"], "--owner is for what --from holds"),
        (&["--size", "64M", "--all-root", "a.img"], "--all-root is for what --from holds"),
    ] {
        let line = b.fails(&[&["mkfs"], options].concat(), 1);
        assert!(line.contains(why), "{options:?}: {line}");
        assert!(!b.path("a.img").exists(), "{options:?}");
    }
    b.ok(&["mkfs", "--from", "src", "--size", "auto", "--free", "1M", "a.img"]);
    let out = b.command(&["tar", "--json", "a.img:/"]).output().unwrap();
    assert!(common::failed(&out, 1).contains("a tar is not JSON") && out.stdout.is_empty());
}

/// The owners that fakeroot pretends go in and come out.
#[test]
fn fakeroot_is_seen() {
    if !common::has("fakeroot") {
        eprintln!("skipped: fakeroot is not installed");
        assert!(std::env::var_os("CI").is_none());
        return;
    }
    let b = Bench::new();
    let script = "mkdir src && mknod src/console c 5 1 && echo x >src/f && chown 123:456 src/f && \
        $0 mkfs --quiet --from src a.img && $0 cp a.img:/ out && stat -c '%F %t %T' out/console && \
        stat -c '%u %g' out/f";
    let mut c = Command::new("fakeroot");
    // The commands run as a user without these rights.
    if common::is_root() {
        use std::os::unix::process::CommandExt;
        std::os::unix::fs::chown(b.dir.path(), Some(12_345), Some(12_345)).unwrap();
        c.uid(12_345).gid(12_345);
    }
    let copy = b.program();
    c.args(["bash", "-c", script]).arg(&copy).current_dir(b.dir.path());
    let out = c.output().unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "{text}");
    assert_eq!(text, "character special file 5 1\n123 456\n");
    let listed = b.ok(&["ls", "-l", "a.img:/"]);
    assert!(listed.contains("crw") && listed.contains(" 123 456 "), "{listed}");
}

#[test]
fn owners_are_who_is_asked_for() {
    let b = Bench::new();
    fs::create_dir_all(b.path("src/d")).unwrap();
    fs::write(b.path("src/d/f"), "x").unwrap();
    let owner = |image: &str, path: &str| {
        let json: serde_json::Value =
            serde_json::from_str(&b.ok(&["--json", "stat", &format!("{image}:{path}")])).unwrap();
        (json[0]["uid"].as_u64().unwrap(), json[0]["gid"].as_u64().unwrap())
    };
    b.ok(&["mkfs", "--from", "src", "--owner", "7:8", "--root-owner", "9:10", "a.img"]);
    assert_eq!(
        [owner("a.img", "/"), owner("a.img", "/d"), owner("a.img", "/d/f")],
        [(9, 10), (7, 8), (7, 8)]
    );
    b.ok(&["mkfs", "--from", "src", "--all-root", "b.img"]);
    assert_eq!([owner("b.img", "/"), owner("b.img", "/d/f")], [(0, 0), (0, 0)]);
    b.ok(&["mkfs", "--size", "64M", "--root-owner", "11:12", "c.img"]);
    assert_eq!(owner("c.img", "/"), (11, 12));
}

#[test]
fn a_device_with_a_volume_wants_force() {
    let b = Bench::new();
    b.ok(&["mkfs", "--size", "64M", "a.img"]);
    let mut losetup = Command::new("losetup");
    let out = losetup.args(["--find", "--show"]).arg(b.path("a.img")).output();
    let Some(out) = out.ok().filter(|o| o.status.success()) else {
        eprintln!("skipped: no loop device");
        return;
    };
    let device = String::from_utf8(out.stdout).unwrap().trim().to_string();
    struct Loop(String);
    impl Drop for Loop {
        fn drop(&mut self) {
            let _ = Command::new("losetup").args(["--detach", &self.0]).status();
        }
    }
    let _loop = Loop(device.clone());
    let line = b.fails(&["mkfs", &device], 1);
    assert!(line.contains("an f2fs volume") && line.contains("--force"), "{line}");
    fs::create_dir(b.path("src")).unwrap();
    fs::write(b.path("src/big"), vec![1; 60 * MIB]).unwrap();
    let line = b.fails(&["mkfs", "--force", "--from", "src", &device], 1);
    assert!(line.contains("the device is too small") && line.contains("before is gone"), "{line}");
    // Not half of a volume.
    b.fails(&["ls", &device], 1);
    // Its size is not one that content could be made to fit.
    let line = b.fails(&["mkfs", "--force", "--size", "auto", "--from", "src", &device], 1);
    assert!(line.contains("a device has its size; leave --size out"), "{line}");
    b.ok(&["mkfs", &device]);
}

#[test]
fn a_failure_leaves_the_old_image_and_says_which_size_would_do() {
    let b = Bench::new();
    let old = old_image(&b);
    let before = names(&b);
    let line = b.fails(&["mkfs", "--force", "--size", "40M", "--from", "src", "a.img"], 1);
    assert!(line.starts_with("a.img:/big: ") && line.contains("no space left on the volume"), "{line}");
    let size = line.split("--size ").nth(1).unwrap().split(' ').next().unwrap().to_string();
    assert!(fs::read(b.path("a.img")).unwrap() == old, "the old image was changed");
    assert_eq!(names(&b), before);
    fs::write(b.path("cut.tar"), [b"x".repeat(512), vec![0; 100]].concat()).unwrap();
    b.fails(&["mkfs", "--force", "--size", "64M", "--from", "cut.tar", "a.img"], 1);
    assert!(fs::read(b.path("a.img")).unwrap() == old);
    b.ok(&["mkfs", "--force", "--size", &size, "--from", "src", "a.img"]);
    b.fsck("a.img");
    assert_eq!(b.ok(&["ls", "a.img"]), "big\n");
}

#[test]
fn a_new_image_keeps_what_the_old_file_was() {
    let b = Bench::new();
    old_image(&b);
    let image = b.path("a.img");
    fs::set_permissions(&image, fs::Permissions::from_mode(0o640)).unwrap();
    if is_root() {
        std::os::unix::fs::chown(&image, Some(1234), Some(4321)).unwrap();
    }
    let was = fs::metadata(&image).unwrap();
    std::os::unix::fs::symlink("a.img", b.path("link.img")).unwrap();
    b.ok(&["mkfs", "--force", "--from", "src", "link.img"]);
    let is = fs::metadata(&image).unwrap();
    assert!(b.path("link.img").is_symlink() && was.ino() != is.ino());
    assert_eq!((was.mode(), was.uid(), was.gid()), (is.mode(), is.uid(), is.gid()));
    assert_eq!(b.ok(&["ls", "a.img"]), "big\n");
    // Other names stay names of the image.
    fs::hard_link(&image, b.path("b.img")).unwrap();
    b.ok(&["mkfs", "--force", "--from", "one", "a.img"]);
    assert_eq!(b.ok(&["ls", "b.img"]), "old\n");
    let line = b.fails(&["mkfs", "--force", "--size", "40M", "--from", "src", "b.img"], 1);
    assert!(line.ends_with("; what was there before is gone"), "{line}");
    assert!(b.fails(&["ls", "a.img"], 1).contains("not an f2fs"), "half a volume passes for one");
    b.ok(&["mkfs", "--force", "--from", "one", "a.img"]);
    b.fsck("b.img");
}

/// A `mkfs` that waits for the rest of a tar.
fn waiting(b: &Bench) -> (Child, std::process::ChildStdin) {
    let mut c = b.command(&["mkfs", "--force", "--size", "64M", "--from", "-", "a.img"]);
    let mut child = c.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut tar =
        Command::new("tar").args(["-cf", "-", "-C"]).arg(b.path("one")).arg("old").output().unwrap();
    tar.stdout.truncate(700);
    stdin.write_all(&tar.stdout).unwrap();
    let tasks = format!("/proc/{}/task", child.id());
    let reads = || {
        fs::read_dir(&tasks).unwrap().any(|t| {
            let comm = fs::read_to_string(t.unwrap().path().join("comm"));
            comm.is_ok_and(|c| c.trim() == "tg-reader")
        })
    };
    while !reads() {
        assert!(child.try_wait().unwrap().is_none(), "it ended");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    (child, stdin)
}

fn end(b: &Bench, signal: &str) -> (i32, String) {
    let (mut child, stdin) = waiting(b);
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-s", signal, &pid]).status().unwrap().success());
    let status = child.wait().unwrap();
    drop(stdin);
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    (status.signal().unwrap_or(0), said)
}

#[test]
fn an_interruption_leaves_the_old_image_and_says_so() {
    if !common::has("tar") {
        eprintln!("skipped: needs tar");
        return;
    }
    let b = Bench::new();
    let old = old_image(&b);
    let before = names(&b);
    let kept = "tidegate: a.img: interrupted; the image that was there is as it was\n";
    // Started by a shell in the background, all of this ignores SIGINT.
    let int =
        (!tidegate_fuse::session::ignored(nix::sys::signal::Signal::SIGINT)).then_some(("INT", 2, kept));
    for (signal, number, text) in int.into_iter().chain([("TERM", 15, kept), ("KILL", 9, "")]) {
        assert_eq!(end(&b, signal), (number, text.to_string()));
        assert!(fs::read(b.path("a.img")).unwrap() == old, "the old image was changed");
        assert_eq!(names(&b), before);
    }
    // In place.
    fs::hard_link(b.path("a.img"), b.path("b.img")).unwrap();
    let gone = "tidegate: a.img: interrupted; what was there before is gone\n";
    assert_eq!(end(&b, "TERM"), (15, gone.to_string()));
    b.fails(&["ls", "a.img"], 1);
    for name in ["a.img", "b.img"] {
        fs::remove_file(b.path(name)).unwrap();
    }
    let none = "tidegate: a.img: interrupted; no image was made\n";
    assert_eq!(end(&b, "TERM"), (15, none.to_string()));
    assert_eq!(names(&b), ["one", "src"]);
}

/// Whether the image holds no volume, to us and to the stock checker.
fn is_none(b: &Bench, image: &str) -> Result<(), String> {
    for args in [&["ls", image][..], &["check", image], &["check", "--repair", image]] {
        let out = b.command(args).output().unwrap();
        if out.status.success() {
            return Err(format!("{args:?} succeeds: {}", String::from_utf8_lossy(&out.stdout).trim()));
        }
    }
    let Ok(out) = Command::new("fsck.f2fs").arg("--dry-run").arg(b.path(image)).output() else {
        return Ok(());
    };
    if out.status.success() { Err("fsck.f2fs calls it a volume".into()) } else { Ok(()) }
}

/// Nothing can be cleaned up after a kill, so an unfinished volume must never be valid.
#[test]
fn a_killed_making_in_place_leaves_no_volume() {
    if !common::has("tar") {
        eprintln!("skipped: needs tar");
        return;
    }
    let b = Bench::new();
    old_image(&b);
    fs::hard_link(b.path("a.img"), b.path("b.img")).unwrap();
    assert_eq!(end(&b, "KILL"), (9, String::new()));
    is_none(&b, "a.img").unwrap();
    b.ok(&["mkfs", "--force", "--from", "one", "a.img"]);
    b.fsck("b.img");
}

#[test]
fn a_making_in_place_that_is_killed_anywhere_leaves_the_old_or_none_or_the_new() {
    let b = Bench::new();
    old_image(&b);
    fs::create_dir(b.path("many")).unwrap();
    for n in 0..3000 {
        fs::write(b.path(&format!("many/{n}")), vec![n as u8; 20_000]).unwrap();
    }
    b.ok(&["mkfs", "--force", "--size", "200M", "--from", "one", "a.img"]);
    let old = fs::read(b.path("a.img")).unwrap();
    fs::hard_link(b.path("a.img"), b.path("b.img")).unwrap();
    let mut bad = Vec::new();
    for millis in (0..300).step_by(15) {
        fs::write(b.path("b.img"), &old).unwrap();
        let mut c = b.command(&["mkfs", "--force", "--size", "200M", "--from", "many", "a.img"]);
        let mut child = c.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(millis));
        child.kill().unwrap();
        child.wait().unwrap();
        let out = b.command(&["ls", "a.img"]).output().unwrap();
        let names = String::from_utf8_lossy(&out.stdout).lines().count();
        let whole = out.status.success() && (names == 3000 || out.stdout == b"old\n");
        if let Some(e) = is_none(&b, "b.img").err().filter(|_| !whole) {
            bad.push(format!("killed after {millis} ms: {names} names; {e}"));
        }
    }
    assert!(bad.is_empty(), "{} of them:\n{}", bad.len(), bad.join("\n"));
}

#[test]
fn sizes_and_a_full_standard_output() {
    let b = Bench::new();
    for (size, said) in [
        ("0", "some room"),
        ("99999999T", "at most 16T"),
        ("17T", "at most 16T"),
        ("64X", "not a size such as 64M"),
    ] {
        let out = b.command(&["mkfs", "--size", size, "a.img"]).output().unwrap();
        let text = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(out.status.code() == Some(2) && text.contains(said), "{size}: {text}");
    }
    // The host may take a file of that size.
    let out = b.command(&["mkfs", "--size", "16T", "a.img"]).output().unwrap();
    if !out.status.success() {
        let line = failed(&out, 1);
        assert!(line.contains("larger than a file can be where it is kept"), "{line}");
        assert!(names(&b).is_empty());
    }
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let out = b.command(&["mkfs", "--size", "64M", "b.img"]).stdout(full).output().unwrap();
    let line = failed(&out, 1);
    assert!(
        line.starts_with("standard output: ") && line.ends_with("the image is made all the same"),
        "{line}"
    );
    b.fsck("b.img");
}

#[test]
fn a_file_named_by_an_open_descriptor_is_written_in_place() {
    let b = Bench::new();
    fs::create_dir(b.path("src")).unwrap();
    fs::write(b.path("src/f"), "new").unwrap();
    let file = fs::File::create(b.path("a.img")).unwrap();
    let ino = file.metadata().unwrap().ino();
    let mut c = b.command(&["mkfs", "--from", "src", "/dev/fd/0"]);
    let out = c.stdin(file).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    assert_eq!(fs::metadata(b.path("a.img")).unwrap().ino(), ino);
    assert_eq!(b.ok(&["cat", "a.img:/f"]), "new");
    assert_eq!(names(&b), ["a.img", "src"]);
}

/// Removed at the end.
struct Mounted(std::path::PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

fn mount(args: &[&str], at: std::path::PathBuf) -> Option<Mounted> {
    let done = Command::new("mount").args(args).arg(&at).output();
    done.is_ok_and(|o| o.status.success()).then(|| Mounted(at))
}

#[test]
fn a_file_that_is_mounted_is_written_in_place() {
    let b = Bench::new();
    old_image(&b);
    fs::write(b.path("c.img"), "").unwrap();
    let Some(_mounted) = mount(&["--bind", b.path("a.img").to_str().unwrap()], b.path("c.img")) else {
        eprintln!("skipped: nothing can be mounted here");
        return;
    };
    b.ok(&["mkfs", "--force", "--from", "src", "c.img"]);
    assert_eq!(b.ok(&["ls", "a.img"]).trim(), "big");
}

#[test]
fn a_host_that_holds_one_image_but_not_two_keeps_the_old() {
    let b = Bench::new();
    fs::create_dir_all(b.path("out")).unwrap();
    let Some(_mounted) = mount(&["-t", "tmpfs", "-o", "size=100m", "tidegate"], b.path("out")) else {
        eprintln!("skipped: no tmpfs can be mounted here");
        return;
    };
    old_image(&b);
    b.ok(&["mkfs", "--force", "--from", "src", "out/a.img"]);
    let old = fs::read(b.path("out/a.img")).unwrap();
    let line = b.fails(&["mkfs", "--force", "--from", "src", "out/a.img"], 1);
    assert!(line.contains("no space left"), "{line}");
    assert!(line.contains("the old image is kept") && line.contains("remove it first"), "{line}");
    assert!(fs::read(b.path("out/a.img")).unwrap() == old, "the old image was changed");
    assert_eq!(fs::read_dir(b.path("out")).unwrap().count(), 1);
}

#[test]
fn times_are_for_programs_to_read() {
    let b = Bench::new();
    let made = b
        .command(&["mkfs", "--size", "64M", "a.img"])
        .env("SOURCE_DATE_EPOCH", "951782401")
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    let json: serde_json::Value = serde_json::from_str(&b.ok(&["--json", "stat", "a.img:/"])).unwrap();
    assert_eq!(json[0]["mtime"], "2000-02-29T00:00:01.000000000Z", "{json}");
}

/// A tar may name neither the directories above its files nor the root.
#[test]
fn directories_that_a_tar_leaves_out_have_the_owner_too() {
    let b = Bench::new();
    fs::create_dir_all(b.path("src/opt/app")).unwrap();
    fs::write(b.path("src/opt/app/run"), "x").unwrap();
    let tar = ["-C", "src", "-cf", "t.tar", "opt/app/run"];
    assert!(Command::new("tar").args(tar).current_dir(b.path("")).status().unwrap().success());
    for (more, root) in [(&[][..], "7:8"), (&["--root-owner", "9:10"], "9:10")] {
        let args: Vec<&str> =
            ["mkfs", "-q", "--force", "--from", "t.tar", "--owner", "7:8", "a.img"].to_vec();
        b.ok(&[&args[..], more].concat());
        for (path, owner) in [("/", root), ("/opt", "7:8"), ("/opt/app", "7:8"), ("/opt/app/run", "7:8")] {
            let v: serde_json::Value =
                serde_json::from_str(&b.ok(&["stat", "--json", &format!("a.img:{path}")])).unwrap();
            assert_eq!(format!("{}:{}", v[0]["uid"], v[0]["gid"]), owner, "{path}");
        }
    }
}
