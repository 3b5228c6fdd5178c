//! How a mount ends when it is told to: all of it, and with a word about what went wrong.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // tests wait for real processes

mod common;

use common::mounted::{Mounted, cannot_mount};
use std::fs;
use std::path::Path;
use std::process::Command;

fn ok(program: &str, args: &[&str], at: &[&Path]) {
    assert!(Command::new(program).args(args).args(at).status().unwrap().success(), "{program} {args:?}");
}

fn terminate(pid: u32) {
    ok("kill", &["-TERM", &pid.to_string()], &[]);
}

/// Something else that is mounted; gone at the end.
struct Other<'a>(&'a Path);

impl Drop for Other<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

/// Who told only the mount that it knows would leave the others served by one that is deaf.
#[test]
fn a_signal_ends_a_mount_that_is_elsewhere_too() {
    if cannot_mount() {
        return;
    }
    let m = Mounted::new();
    let other = m.bench.path("other");
    fs::create_dir(&other).unwrap();
    ok("mount", &["--bind"], &[&m.dir, &other]);
    let _other = Other(&other);
    fs::write(m.dir.join("f"), "content").unwrap();
    terminate(m.server().unwrap());
    m.wait_for_end();
    assert_eq!(m.bench.ok(&["cat", "a.img:/f"]), "content");
    m.bench.fsck("a.img");
}

#[test]
fn a_signal_leaves_alone_what_is_mounted_over_it() {
    if cannot_mount() {
        return;
    }
    let m = Mounted::new();
    fs::write(m.dir.join("f"), "content").unwrap();
    ok("mount", &["-t", "tmpfs", "tidegate-test"], &[&m.dir]);
    let over = Other(&m.dir);
    fs::write(m.dir.join("over"), "x").unwrap();
    terminate(m.server().unwrap());
    m.wait_for_end();
    assert!(m.dir.join("over").exists(), "what was over it is gone");
    drop(over);
    assert_eq!(m.bench.ok(&["cat", "a.img:/f"]), "content");
    m.bench.fsck("a.img");
}
