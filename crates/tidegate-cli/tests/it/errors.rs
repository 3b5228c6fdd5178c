//! An obstacle is reported in one line that names the image and the cause.

use crate::common::{Bench, failed};
use std::fs;
use std::io::{Read, Write};
use std::process::{Command, Stdio};

#[test]
fn images_that_are_none() {
    let b = Bench::new();
    b.ok(&["mkfs", "--size", "64M", "good.img"]);
    let good = fs::read(b.path("good.img")).unwrap();
    fs::write(b.path("cut.img"), &good[..20 << 20]).unwrap();
    fs::write(b.path("short.img"), &good[..5000]).unwrap();
    fs::write(b.path("empty.img"), b"").unwrap();
    fs::write(b.path("garbage.img"), vec![0xa5; 1 << 20]).unwrap();
    let mut ext4 = vec![0; 1 << 20];
    ext4[1080..1082].copy_from_slice(&[0x53, 0xef]);
    fs::write(b.path("ext4.img"), ext4).unwrap();
    fs::create_dir(b.path("dir.img")).unwrap();
    for (image, cause) in [
        ("missing.img", "no such file or directory"),
        ("short.img", "not an f2fs or ext4 volume"),
        ("empty.img", "not an f2fs or ext4 volume: the image is empty"),
        ("garbage.img", "not an f2fs or ext4 volume"),
        ("ext4.img", "superblock: s_blocks_per_group: the volume is damaged"),
        ("dir.img", "is a directory"),
        ("cut.img", ""),
    ] {
        for args in [&["ls", image][..], &["mkdir", &format!("{image}:/x")], &["info", image]] {
            let line = b.fails(args, 1);
            assert!(line.starts_with(&format!("{image}: ")) && line.contains(cause), "{line}");
        }
        let line = b.fails(&["check", image], 8);
        assert!(line.starts_with(&format!("{image}: ")), "{line}");
    }
}

#[test]
fn an_image_in_use_is_left_alone() {
    let b = Bench::new();
    b.ok(&["mkfs", "--size", "64M", "a.img"]);
    let file = fs::File::open(b.path("a.img")).unwrap();
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockShared).unwrap();
    let line = b.fails(&["mkdir", "a.img:/x"], 1);
    assert!(line.starts_with("a.img: in use"), "{line}");
    let line = b.fails(&["mkfs", "--size", "64M", "a.img"], 1);
    assert!(line.starts_with("a.img: in use"), "{line}");
    // Readers go together.
    assert_eq!(b.ok(&["ls", "a.img"]), "");
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let line = b.fails(&["ls", "a.img"], 1);
    assert!(line.starts_with("a.img: in use"), "{line}");
}

#[test]
fn mkfs_that_fails_leaves_nothing() {
    let b = Bench::new();
    let names = || fs::read_dir(b.dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect::<Vec<_>>();
    assert!(b.fails(&["mkfs", "--force", "a.img"], 1).contains("--size"));
    assert!(b.fails(&["mkfs", "--force", "--size", "1M", "a.img"], 1).starts_with("a.img: "));
    assert!(
        b.fails(&["mkfs", "--force", "--from", "nowhere", "a.img"], 1).starts_with("nowhere: no such file")
    );
    assert!(names().is_empty(), "{:?}", names());
    fs::write(b.path("big"), vec![1; 60 << 20]).unwrap();
    fs::create_dir(b.path("src")).unwrap();
    fs::rename(b.path("big"), b.path("src/big")).unwrap();
    let line = b.fails(&["mkfs", "--force", "--size", "40M", "--from", "src", "a.img"], 1);
    assert!(line.starts_with("a.img:/big: ") && line.contains("no space"), "{line}");
    assert_eq!(names(), ["src"]);
    // An image that lies in its own source tree is left out.
    b.ok(&["mkfs", "--force", "--size", "128M", "src/a.img"]);
    b.ok(&["mkfs", "--force", "--from", "src", "src/a.img"]);
    assert_eq!(b.ok(&["ls", "src/a.img"]), "big\n");
}

#[test]
fn tars_that_are_none() {
    let b = Bench::new();
    let mut member = vec![0u8; 512];
    member[..4].copy_from_slice(b"name");
    fs::write(b.path("bad.tar"), &member).unwrap();
    fs::write(b.path("short.tar"), b"not a tar").unwrap();
    fs::write(b.path("x.tar.xz"), b"\xfd7zXZ\0").unwrap();
    for (name, cause) in
        [("bad.tar", "not a tar archive"), ("short.tar", "not a tar archive"), ("x.tar.xz", "xz compression")]
    {
        let line = b.fails(&["mkfs", "--from", name, "a.img"], 1);
        assert!(line.starts_with(&format!("{name}: ")) && line.contains(cause), "{line}");
    }
    let out = Command::new("tar").args(["-cf", "-", "/etc/passwd", "/etc/group"]).output();
    if let Ok(out) = out
        && out.stdout.len() > 1024
    {
        fs::write(b.path("cut.tar"), &out.stdout[..700]).unwrap();
        let line = b.fails(&["mkfs", "--from", "cut.tar", "--size", "64M", "a.img"], 1);
        assert!(line.starts_with("cut.tar: at etc/passwd: the archive is cut short"), "{line}");
    }
    assert!(!b.path("a.img").exists());
}

#[test]
fn a_reader_that_goes_away_is_no_panic() {
    let b = Bench::new();
    fs::create_dir(b.path("src")).unwrap();
    fs::write(b.path("src/f"), vec![b'x'; 8 << 20]).unwrap();
    b.ok(&["mkfs", "--from", "src", "a.img"]);
    for args in [&["cat", "a.img:/f"][..], &["tar", "a.img:/"]] {
        let mut child = b.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut few = [0; 10];
        child.stdout.take().unwrap().read_exact(&mut few).unwrap();
        let out = child.wait_with_output().unwrap();
        assert_eq!(out.status.code(), Some(141), "{}", String::from_utf8_lossy(&out.stderr));
        assert!(out.stderr.is_empty());
    }
}

#[test]
fn a_stream_of_zeros_is_an_empty_volume() {
    let b = Bench::new();
    let mut child = b.command(&["mkfs", "--from", "-", "a.img"]);
    let mut child = child.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(&[0; 10240]).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(b.ok(&["ls", "a.img"]), "");
    let out = b.command(&["mkfs", "--from", "-", "b.img"]).stdin(Stdio::null()).output().unwrap();
    assert!(failed(&out, 1).starts_with("standard input: not a tar archive"));
}
