//! `tidegate lab` on Linux's own file systems: figures come back, existing files stay, and obstacles are reported.

mod common;

use common::{Bench, has, is_root};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use tidegate_rt::{clock, thread};
use tidegate_testing::oracle::{in_ci, skip_or_fail};

const RACE: [&str; 8] = ["lab", "compare", "--json", "--files", "5", "--runs", "1", "--target"];

const NOBODY: u32 = 65_534;

/// The positions of the race's only case.
fn positions(json: &str) -> Vec<Value> {
    let v: Value = serde_json::from_str(json).unwrap();
    v[0]["cases"][0]["positions"].as_array().unwrap().clone()
}

#[test]
fn a_workload_runs_in_linux_itself() {
    if skip_or_fail("linux.uml") {
        return;
    }
    let b = Bench::new();
    let f2fs = "kernel:f2fs,nocheckpoint_merge";
    let both = positions(&b.ok(&[&RACE[..], &[f2fs, "--target", "kernel:ext4"]].concat()));
    let names: Vec<&Value> = both.iter().map(|p| &p["name"]).collect();
    assert_eq!(names, [f2fs, "kernel:ext4"]);
    for p in &both {
        let run = &p["runs"][0];
        assert_eq!(run["ops"]["file"]["latency"]["count"], 5, "{p}");
        assert!(run["elapsed_ns"].as_u64().unwrap() > 0);
        assert!(run["target"].as_str().unwrap().ends_with("in user-mode-linux"), "{run}");
        assert!(run["counters"]["queue.flushes"].as_u64().unwrap() > 0, "the kernel's own counters: {run}");
    }
    let line = b.fails(&[&RACE[..], &["kernel:f2fs,bogus"]].concat(), 1);
    assert!(line.contains("kernel:f2fs,bogus") && line.contains("\"bogus\""), "{line}");
}

#[test]
fn an_image_that_is_there_is_left_as_it_was() {
    if skip_or_fail("linux.uml") {
        return;
    }
    let b = Bench::new();
    b.ok(&["mkfs", "--size", "64M", "v.img"]);
    let p = positions(&b.ok(&[&RACE[..], &["kernel:v.img"]].concat()));
    assert_eq!(p[0]["runs"][0]["ops"]["file"]["latency"]["count"], 5);
    assert_eq!(b.ok(&["ls", "v.img:/"]), "");
    b.fsck("v.img");
    b.ok(&["mkdir", "v.img:/fs_mark", "v.img:/fs_mark/mine"]);
    let out = b.ok(&[&RACE[..], &["kernel:v.img"]].concat());
    assert!(out.contains("was there before"), "{out}");
    assert!(b.ok(&["ls", "v.img:/fs_mark"]).contains("mine"));
    assert!(b.fails(&[&RACE[..], &["kernel:none.img"]].concat(), 1).contains("none.img"));
    fs::write(b.path("j.fio"), "[w]\nrw=write\nsize=64k\n").unwrap();
    let line = b.fails(&["lab", "fio", "j.fio", "--target", "kernel:v.img"], 1);
    assert!(line.contains("dir:PATH"), "{line}");
}

/// The test needs root and loop devices: a container may have none.
#[test]
fn a_workload_runs_on_the_hosts_ext4() {
    let loops = fs::metadata("/dev/loop-control").is_ok();
    if !is_root() || !loops || !has("mke2fs") {
        assert!(!in_ci() || !loops, "root and mke2fs are needed");
        println!("SKIPPED: a loop mount needs root, loop devices and mke2fs");
        return;
    }
    let b = Bench::new();
    let p = positions(&b.ok(&[&RACE[..], &["host:ext4,data=journal"]].concat()));
    assert_eq!(p[0]["runs"][0]["ops"]["file"]["latency"]["count"], 5, "{p:?}");
    let line = b.fails(&[&RACE[..], &["host:ext4,data=bogus"]].concat(), 1);
    assert!(line.contains("host:ext4,data=bogus") && line.contains("mount: "), "{line}");
    assert_eq!(mounts_below(&b), 0, "nothing stays mounted");
}

fn mounts_below(b: &Bench) -> usize {
    let dir = b.dir.path().to_string_lossy().into_owned();
    fs::read_to_string("/proc/mounts").unwrap().lines().filter(|l| l.contains(&dir)).count()
}

/// As root, the test runs as the user `nobody`.
#[test]
fn a_guest_needs_no_root_and_a_loop_mount_does() {
    let b = Bench::new();
    fs::set_permissions(b.dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let program = b.program();
    let race = |target: &str| {
        let mut race = Command::new(&program);
        race.args(RACE).arg(target).current_dir(b.dir.path());
        if is_root() {
            race.uid(NOBODY).gid(NOBODY);
        }
        race.output().unwrap()
    };
    let line = common::failed(&race("host:ext4"), 1);
    assert!(line.contains("run this as root") && line.contains("kernel:ext4"), "{line}");
    if skip_or_fail("linux.uml") {
        return;
    }
    let out = race("kernel:f2fs");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    assert_eq!(positions(&String::from_utf8(out.stdout).unwrap()).len(), 1);
}

#[test]
fn a_guest_ends_with_whoever_started_it() {
    if skip_or_fail("linux.uml") {
        return;
    }
    let b = Bench::new();
    b.ok(&["mkfs", "--size", "2G", "v.img"]);
    let allocated = || b.path("v.img").metadata().unwrap().blocks() * 512;
    let empty = allocated();
    let long = ["--files", "1000", "--size", "1M", "--target", "kernel:v.img"];
    let mut command = b.command(&[&["lab", "compare"], &long[..]].concat());
    // Everything that a killed program leaves is removed with the directory of the bench.
    let mut started = command.env("TMPDIR", b.dir.path()).spawn().unwrap();
    let guests = || processes(&b.path("v.img"), "linux.uml");
    assert!(within(60, || allocated() > empty + (16 << 20)), "the guest writes");
    assert!(guests() > 0);
    started.kill().unwrap();
    started.wait().unwrap();
    assert!(within(30, || guests() == 0), "the guest has gone");
}

/// Processes whose command lines have both words.
fn processes(path: &Path, word: &str) -> usize {
    let path = path.to_string_lossy().into_owned();
    let lines =
        fs::read_dir("/proc").unwrap().flatten().filter_map(|e| fs::read(e.path().join("cmdline")).ok());
    let both = |l: &Vec<u8>| {
        let line = String::from_utf8_lossy(l);
        line.contains(&path) && line.contains(word)
    };
    lines.filter(both).count()
}

fn within(seconds: u64, holds: impl Fn() -> bool) -> bool {
    let begin = clock::now();
    while !holds() {
        if clock::now().since(begin).duration() > Duration::from_secs(seconds) {
            return false;
        }
        thread::sleep(Duration::from_millis(20));
    }
    true
}
