//! Trees of the machine in ext4 volumes: put in by us and read by Linux; put in by mke2fs, taken out, edited
//! and put back. `TIDEGATE_TREE` names the tree, `/usr/include/linux` otherwise.

use crate::common::{Bench, assert_same, is_root};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tidegate_testing::manifest::Options;
use tidegate_testing::oracle::{require, skip_or_fail};

/// The tree, and a bench; `None` where the test is skipped.
fn ready() -> Option<(PathBuf, Bench)> {
    if ["mke2fs", "e2fsck"].into_iter().any(skip_or_fail) {
        return None;
    }
    let tree = PathBuf::from(std::env::var("TIDEGATE_TREE").unwrap_or("/usr/include/linux".into()));
    if !is_root() || !tree.is_dir() {
        println!("SKIPPED: not the superuser, or no {}", tree.display());
        return None;
    }
    Some((tree, Bench::new()))
}

fn run(b: &Bench, program: &str, args: &[&str]) {
    let mut c = Command::new(program);
    let out = c.args(args).current_dir(b.dir.path()).stdin(Stdio::null()).output().unwrap();
    assert!(out.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&out.stderr));
}

fn e2fsck(b: &Bench, image: &str) {
    tidegate_testing::ext4::is_clean(&b.path(image)).unwrap();
}

/// An image as the kernel mounts it.
struct Mounted(PathBuf);

impl Mounted {
    fn new(b: &Bench, image: &str) -> Mounted {
        let at = b.path("mnt");
        fs::create_dir_all(&at).unwrap();
        run(b, "mount", &["-o", "loop,ro", image, "mnt"]);
        Mounted(at)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

fn all() -> Options {
    Options { ignore_lost_found: true, ignore_sockets: true, ..Options::default() }
}

#[test]
fn linux_reads_a_tree_of_the_machine() {
    let Some((tree, b)) = ready() else { return };
    b.ok(&["mkfs", "--format", "ext4", "--from", tree.to_str().unwrap(), "u.img"]);
    e2fsck(&b, "u.img");
    let mounted = Mounted::new(&b, "u.img");
    assert_same(&tree, &mounted.0, &all());
}

/// The root of a system, made by `mke2fs -d`: its configuration is taken out, edited, and put back in its place.
#[test]
fn a_system_is_edited() {
    let Some((tree, b)) = ready() else { return };
    fs::create_dir_all(b.path("root/usr")).unwrap();
    run(&b, "cp", &["-a", "/etc", "root/"]);
    run(&b, "cp", &["-a", tree.to_str().unwrap(), "root/usr/tree"]);
    let kib = |dir: &Path| {
        let out = Command::new("du").arg("-sk").arg(dir).output().unwrap();
        String::from_utf8_lossy(&out.stdout).split_whitespace().next().unwrap().parse::<u64>().unwrap()
    };
    let size = format!("{}M", 64 + kib(&b.path("root")) / 700);
    let mke2fs = require("mke2fs").unwrap();
    run(&b, mke2fs.to_str().unwrap(), &["-q", "-t", "ext4", "-d", "root", "d.img", &size]);
    b.ok(&["cp", "d.img:/etc", "out"]);
    // mke2fs keeps times in seconds, and directories have those of their filling.
    let but = Options { ignore_nanoseconds: true, ignore_dir_mtime: true, ..all() };
    assert_same(&b.path("root/etc"), &b.path("out"), &but);
    let edit = "cd out; echo edited >> hostname; rm -f passwd; mkdir -p new.d; ln -s hostname link; ln group hard; \
                for n in $(seq 300); do seq $n > new.d/file-with-a-long-name-$n; done; chmod 600 hostname; \
                truncate -s 3M holes; echo end >> holes";
    run(&b, "sh", &["-ec", edit]);
    b.ok(&["rm", "-r", "d.img:/etc"]);
    b.ok(&["cp", "out", "d.img:/etc"]);
    e2fsck(&b, "d.img");
    b.ok(&["cp", "d.img:/etc", "again"]);
    assert_same(&b.path("out"), &b.path("again"), &all());
    let mounted = Mounted::new(&b, "d.img");
    assert_same(&b.path("out"), &mounted.0.join("etc"), &all());
    assert_same(&b.path("root/usr"), &mounted.0.join("usr"), &but);
}
