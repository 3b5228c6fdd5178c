//! `tidegate cp` into a volume goes on after a file that cannot be read, whatever standard error is.

use crate::common::mounted::cannot_mount;
use crate::common::{Bench, assert_same, damage, is_root};
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::process::Command;
use tidegate_testing::manifest::Options;

const NOBODY: u32 = 65_534;
const MIB: usize = 1 << 20;

/// The lines that the copy, which must fail, printed.
fn failures(mut copy: Command) -> Vec<String> {
    let out = copy.output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(1), "{said}");
    said.lines().map(str::to_string).collect()
}

#[test]
fn what_is_not_permitted_is_left_out() {
    let b = Bench::new();
    b.ok(&["mkfs", "--size", "64M", "a.img"]);
    fs::create_dir_all(b.path("src/closed/below")).unwrap();
    fs::create_dir_all(b.path("src/open")).unwrap();
    for name in ["a", "secret", "z", "open/f"] {
        fs::write(b.path("src").join(name), name).unwrap();
    }
    fs::hard_link(b.path("src/secret"), b.path("src/secret too")).unwrap();
    symlink("a", b.path("src/link")).unwrap();
    let closed = fs::Permissions::from_mode(0o0);
    fs::set_permissions(b.path("src/secret"), closed.clone()).unwrap();
    fs::set_permissions(b.path("src/closed"), closed).unwrap();

    let mut copy = Command::new(b.program());
    copy.args(["cp", "src", "a.img:/"]).current_dir(b.dir.path());
    if is_root() {
        fs::set_permissions(b.dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        chown(b.path("a.img"), Some(NOBODY), Some(NOBODY)).unwrap();
        copy.uid(NOBODY).gid(NOBODY);
    }
    let mut said = failures(copy);
    said.sort();
    let denied = ["closed", "secret too", "secret"].map(|n| format!("tidegate: src/{n}: permission denied"));
    assert_eq!(said, denied);
    assert_eq!(b.ok(&["ls", "a.img:/src"]), "a\nlink\nopen\nz\n");
    assert_eq!(b.ok(&["cat", "a.img:/src/open/f"]), "open/f");
    b.fsck("a.img");
    fs::set_permissions(b.path("src/closed"), fs::Permissions::from_mode(0o755)).unwrap();
}

/// A mount of a damaged volume is a directory with a file that ends in an error.
#[test]
fn half_a_file_is_taken_away() {
    if cannot_mount() {
        return;
    }
    let b = Bench::new();
    fs::create_dir(b.path("src")).unwrap();
    for (name, size) in [("first", 9 * MIB), ("large", 9 * MIB), ("last", 1)] {
        fs::write(b.path("src").join(name), vec![3; size]).unwrap();
    }
    fs::hard_link(b.path("src/large"), b.path("src/larger")).unwrap();
    b.ok(&["mkfs", "--size", "128M", "--from", "src", "a.img"]);
    b.ok(&["mkfs", "--size", "128M", "b.img"]);
    damage::inodes(&b, "large", damage::points_outside);
    fs::create_dir(b.path("mnt")).unwrap();
    b.ok(&["mount", "a.img", "mnt", "-o", "ro"]);
    let said = failures(b.command(&["cp", "mnt", "b.img:/"]));
    b.ok(&["umount", "mnt"]);
    assert_eq!(said.len(), 2, "{said:?}");
    for (line, name) in said.iter().zip(["large", "larger"]) {
        assert!(line.starts_with(&format!("tidegate: mnt/{name}: ")), "{said:?}");
    }
    assert_eq!(b.ok(&["ls", "b.img:/mnt"]), "first\nlast\n");
    b.ok(&["cp", "b.img:/mnt/first", "copy"]);
    assert!(fs::read(b.path("copy")).unwrap() == vec![3; 9 * MIB]);
    b.fsck("b.img");
}

#[test]
fn nobody_has_to_hear_of_it() {
    let b = Bench::new();
    b.ok(&["mkfs", "--size", "64M", "a.img"]);
    for name in ["a", "z"] {
        fs::write(b.path(name), name).unwrap();
    }
    let (hears, says) = std::io::pipe().unwrap();
    drop(hears);
    let mut copy = b.command(&["cp", "a", "missing", "z", "a.img:/"]);
    assert_eq!(copy.stderr(says).status().unwrap().code(), Some(1));
    assert_eq!(b.ok(&["ls", "a.img:/"]), "a\nz\n");
}

#[test]
fn a_dash_is_a_stream() {
    let b = Bench::new();
    b.ok(&["mkfs", "--size", "64M", "a.img", "--quiet"]);
    fs::write(b.path("in"), vec![7; 3 << 20]).unwrap();
    for _ in 0..2 {
        let from = fs::File::open(b.path("in")).unwrap();
        let out = b.command(&["cp", "-", "a.img:/f"]).stdin(from).output().unwrap();
        assert!(out.status.success() && out.stdout.is_empty() && out.stderr.is_empty(), "{out:?}");
        fs::write(b.path("in"), "short").unwrap();
    }
    b.fsck("a.img");
    let out = b.command(&["cp", "a.img:/f", "-"]).output().unwrap();
    assert!(out.status.success() && out.stdout == b"short", "{out:?}");
    assert!(!b.path("-").exists());
}

/// As with cp(1), a directory replaces only a directory, and nothing else replaces a directory. The rest goes
/// in.
#[test]
fn directories_and_the_rest_do_not_replace_each_other() {
    let b = Bench::new();
    for dir in ["um/usr/lib", "um/was/full", "ov/lib/mod/deep", "ov/conf", "ov/usr/lib/new", "ov/gone"] {
        fs::create_dir_all(b.path(dir)).unwrap();
    }
    symlink("usr/lib", b.path("um/lib")).unwrap();
    for (file, size) in
        [("um/conf", 1), ("ov/lib/mod/deep/f", 9 * MIB), ("ov/lib/one", 1), ("ov/was", 9 * MIB)]
    {
        fs::write(b.path(file), vec![5; size]).unwrap();
    }
    for file in ["ov/conf/below", "ov/usr/lib/new/f", "ov/gone/f", "ov/zz"] {
        fs::write(b.path(file), file).unwrap();
    }
    symlink("x", b.path("ov/usr/lib/new/link")).unwrap();
    fs::hard_link(b.path("ov/gone/f"), b.path("ov/gone/g")).unwrap();
    for format in ["f2fs", "ext4"] {
        b.ok(&["mkfs", "-q", "-t", format, "--size", "64M", "--from", "um", "a.img", "--force"]);
        if format == "ext4" {
            b.ok(&["rm", "-r", "a.img:/lost+found"]);
        }
        let stays = "not a directory: it stays, and the directory of that name is left out";
        let want = [
            format!("tidegate: a.img:/conf: {stays}"),
            format!("tidegate: a.img:/lib: {stays}"),
            "tidegate: a.img:/was: is a directory".to_string(),
        ];
        let said = failures(b.command(&["cp", "ov/conf", "ov/zz", "a.img:/"]));
        assert_eq!(said, want[..1]);
        let mut said = failures(b.command(&["cp", "ov/.", "a.img:/"]));
        said.sort();
        assert_eq!(said, want);
        b.ok(&["cp", "a.img:/", format]);
        assert!(b.ok(&["check", "a.img"]).contains("clean"));
    }
    let out = Command::new("cp").args(["-a", "ov/.", "um/"]).current_dir(b.dir.path()).output().unwrap();
    assert_eq!(out.status.code(), Some(1));
    for format in ["f2fs", "ext4"] {
        assert_same(&b.path("um"), &b.path(format), &Options::default());
    }
}

/// A second name of a file below a directory that is left out.
#[test]
fn another_name_of_something_left_out_is_told() {
    let b = Bench::new();
    fs::create_dir_all(b.path("ov/a")).unwrap();
    fs::create_dir_all(b.path("ov/b")).unwrap();
    fs::create_dir(b.path("um")).unwrap();
    fs::write(b.path("um/a"), "a").unwrap();
    fs::write(b.path("ov/a/f"), "f").unwrap();
    fs::hard_link(b.path("ov/a/f"), b.path("ov/b/f")).unwrap();
    b.ok(&["mkfs", "--size", "64M", "--from", "um", "a.img"]);
    let said = failures(b.command(&["cp", "ov/.", "a.img:/"]));
    assert_eq!(said.len(), 2, "{said:?}");
    assert_eq!(said[1], "tidegate: a.img:/b/f: a hard link to something that was left out");
    assert_eq!(b.ok(&["ls", "a.img:/b"]), "");
    b.fsck("a.img");
}

/// As with cp(1), and with `cp - IMG:/link`.
#[test]
fn a_file_is_written_into_the_one_that_is_there() {
    let b = Bench::new();
    fs::create_dir_all(b.path("um/d")).unwrap();
    fs::write(b.path("um/f"), vec![1; MIB]).unwrap();
    fs::set_permissions(b.path("um/f"), fs::Permissions::from_mode(0o604)).unwrap();
    fs::hard_link(b.path("um/f"), b.path("um/g")).unwrap();
    symlink("../f", b.path("um/d/link")).unwrap();
    symlink("nowhere", b.path("um/d/new")).unwrap();
    fs::write(b.path("new"), "the new content").unwrap();
    fs::write(b.path("link"), vec![7; 5000]).unwrap();
    fs::write(b.path("empty"), "").unwrap();
    fs::set_permissions(b.path("new"), fs::Permissions::from_mode(0o751)).unwrap();
    for format in ["f2fs", "ext4"] {
        b.ok(&["mkfs", "-q", "-t", format, "--size", "64M", "--from", "um", "a.img", "--force"]);
        let _ = fs::remove_dir_all(b.path("host"));
        assert!(
            Command::new("cp")
                .args(["-a", "um", "host"])
                .current_dir(b.dir.path())
                .status()
                .unwrap()
                .success()
        );
        for (n, (source, to)) in
            [("new", "d/link"), ("link", "d"), ("empty", "g"), ("new", "d/new"), ("new", "f")]
                .into_iter()
                .enumerate()
        {
            let host =
                Command::new("cp").args([source, &format!("host/{to}")]).current_dir(b.dir.path()).output();
            let ours = b.command(&["cp", source, &format!("a.img:/{to}")]).output().unwrap();
            assert_eq!(ours.status.code(), host.unwrap().status.code(), "{source} to {to}");
            let out = format!("out-{format}-{n}");
            b.ok(&["cp", "a.img:/", &out]);
            let _ = fs::remove_dir(b.path(&out).join("lost+found"));
            let options = Options { ignore_mtime: true, ..Options::default() };
            assert_same(&b.path("host"), &b.path(&out), &options);
        }
        assert!(
            b.fails(&["cp", "new", "a.img:/d/new"], 1)
                .contains("/d/new: a link to something that is not there")
        );
        assert!(b.ok(&["check", "a.img"]).contains("clean"));
        b.ok(&["cp", "-p", "new", "a.img:/d/link"]);
        assert!(b.ok(&["ls", "-l", "a.img:/g"]).starts_with("-rwxr-x--x 2 "));
    }
}
