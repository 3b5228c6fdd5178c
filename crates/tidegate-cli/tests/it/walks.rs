//! Walks through a volume: deep trees, and directories that lie below themselves.

use crate::common::{Bench, damage};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};
use tidegate::vfs::Cred;
use tidegate::{OpenOptions, Volume};

/// Makes directories called "d", each in the one before, and a file in the last.
fn deepen(b: &Bench, image: &str, depth: usize) {
    let volume = Volume::open(&b.path(image), &OpenOptions::default()).unwrap();
    let vfs = volume.vfs();
    let mut dir = vfs.mkdir(&Cred::ROOT, &vfs.root().unwrap(), b"top", 0o755).unwrap();
    for _ in 1..depth {
        dir = vfs.mkdir(&Cred::ROOT, &dir, b"d", 0o755).unwrap();
    }
    vfs.create(&Cred::ROOT, &dir, b"f", 0o644).unwrap();
    drop(dir);
    volume.unmount().unwrap();
}

/// Runs the program with so little address space that a copy of each path, or a walk without end, does not fit.
fn bounded(b: &Bench, args: &str) -> Output {
    let program = env!("CARGO_BIN_EXE_tidegate");
    let line = format!("ulimit -v 700000; $0 --cache 32M {args}");
    Command::new("bash").args(["-c", &line, program]).current_dir(b.dir.path()).output().unwrap()
}

#[test]
fn deep_trees_cost_what_their_names_cost() {
    const DEPTH: usize = 20_000;
    let b = Bench::new();
    b.ok(&["mkfs", "--size", "256M", "a.img"]);
    deepen(&b, "a.img", DEPTH);
    let ok = |args: &str| {
        let out = bounded(&b, args);
        assert!(out.status.success(), "{args}: {}", String::from_utf8_lossy(&out.stderr));
    };
    ok("tree a.img:/ -L 100");
    // The stock rm goes deeper than the standard library can.
    let copied = bounded(&b, "cp a.img:/ out && $0 mkfs --from out copy.img");
    assert!(Command::new("rm").arg("-rf").arg(b.path("out")).status().unwrap().success());
    assert!(copied.status.success(), "{}", String::from_utf8_lossy(&copied.stderr));
    // The stock check follows a tree by recursion and overflows its stack here: ours judges.
    assert!(b.ok(&["check", "copy.img"]).contains("clean"));
    ok("rm -r copy.img:/top");
    assert_eq!(b.ok(&["ls", "copy.img:/"]), "");
    b.fsck("copy.img");
    ok("rm -r a.img:/top");
    b.fsck("a.img");
}

#[test]
fn long_paths_are_listed_and_archived() {
    const DEPTH: usize = 3000;
    let b = Bench::new();
    b.ok(&["mkfs", "--size", "64M", "a.img"]);
    deepen(&b, "a.img", DEPTH);
    let listed = b.ok(&["ls", "-R", "a.img:/"]);
    assert_eq!(listed.lines().filter(|l| l.ends_with(':')).count(), DEPTH + 1);
    let shown = b.ok(&["tree", "a.img:/"]);
    assert!(shown.ends_with(&format!("\n{DEPTH} directories, 1 files\n")));
    let tar = b.command(&["tar", "a.img:/"]).output().unwrap();
    assert!(tar.status.success());
    fs::write(b.path("a.tar"), tar.stdout).unwrap();
    b.ok(&["mkfs", "--from", "a.tar", "b.img"]);
    assert_eq!(b.ok(&["ls", "-R", "b.img:/"]).replace("b.img", "a.img"), listed);
}

/// A volume where "a/b/c" is "a" itself.
fn with_a_loop(b: &Bench) {
    fs::create_dir_all(b.path("src/a/b/c")).unwrap();
    fs::set_permissions(b.path("src/a"), fs::Permissions::from_mode(0o755)).unwrap();
    b.ok(&["mkfs", "--from", "src", "a.img"]);
    let ino = |path: &str| {
        let json: serde_json::Value =
            serde_json::from_str(&b.ok(&["--json", "stat", &format!("a.img:{path}")])).unwrap();
        json[0]["inode"].as_u64().unwrap_or_else(|| panic!("{json}")) as u32
    };
    let (a, c) = (ino("/a").to_le_bytes(), ino("/a/b/c").to_le_bytes());
    damage::inodes(b, "b", |block| {
        // Behind the inode's own fields, which end with its extent, are the entries.
        let at = (360..4072).find(|&i| block[i..i + 4] == c).expect("the entry of c");
        block[at..at + 4].copy_from_slice(&a);
    });
}

#[test]
fn a_directory_below_itself_ends_each_walk() {
    let b = Bench::new();
    with_a_loop(&b);
    fs::copy(b.path("a.img"), b.path("keep.img")).unwrap();
    for args in ["ls -R a.img:/", "tree a.img:/", "cp a.img:/ out", "tar a.img:/", "rm -r a.img:/a"] {
        fs::copy(b.path("keep.img"), b.path("a.img")).unwrap();
        let out = bounded(&b, args);
        let text = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(1), "{args}: {text}");
        assert!(text.contains("a directory with two parents"), "{args}: {text}");
    }
}
