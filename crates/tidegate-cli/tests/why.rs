//! `tidegate why` on real mounts.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // tests wait for real processes

mod common;

use common::Bench;
use common::mounted::{Mounted, cannot_mount};
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

#[test]
fn slow_fsyncs_of_a_mount_are_explained() {
    if cannot_mount() {
        return;
    }
    let m = Mounted::new();
    fs::create_dir(m.dir.join("sub")).unwrap();
    let watch = ["why", "mnt", "--over", "0us", "--seconds", "2", "--json"];
    // The output is more than a pipe holds.
    let to = fs::File::create(m.bench.path("why.json")).unwrap();
    let mut child = m.bench.command(&watch).stdout(to).spawn().unwrap();
    let since = std::time::Instant::now();
    let mut i = 0;
    while child.try_wait().unwrap().is_none() {
        assert!(since.elapsed().as_secs() < 60, "it does not end");
        let mut f = fs::File::create(m.dir.join(format!("sub/f{}", i % 20))).unwrap();
        f.write_all(&[1; 5000]).unwrap();
        f.sync_all().unwrap();
        if i % 10 == 9 {
            fs::File::open(m.dir.join("sub")).unwrap().sync_all().unwrap();
        }
        i += 1;
    }
    assert!(child.wait().unwrap().success());
    let report: Value = serde_json::from_slice(&fs::read(m.bench.path("why.json")).unwrap()).unwrap();
    let kind = |n: usize, name: &str| {
        assert_eq!(report["kinds"][n]["operation"], name);
        report["kinds"][n]["slowest"].as_array().unwrap().clone()
    };
    let (fsyncs, checkpoints) = (kind(0, "fsync"), kind(2, "checkpoint"));
    assert_eq!(fsyncs.len(), 10, "{report:#}");
    assert!(!checkpoints.is_empty(), "{report:#}");
    for s in fsyncs.iter().chain(&checkpoints) {
        let sum: u64 = s["parts"].as_array().unwrap().iter().map(|p| p["ns"].as_u64().unwrap()).sum();
        let all = s["ns"].as_u64().unwrap();
        assert!(sum.abs_diff(all) <= all / 100, "{sum} of {s:#}");
    }
    assert_named("f2fs", &[&fsyncs[..], &checkpoints].concat());
    assert!(fsyncs.iter().all(|s| s["path"].as_str().unwrap().starts_with("/sub")), "{fsyncs:#?}");
    assert!(fsyncs.iter().all(|s| s["thread"].as_str().unwrap().starts_with("tg-fuse")), "{fsyncs:#?}");
    let text = m.bench.ok(&["why", "a.img", "--seconds", "0.1"]);
    assert!(
        text.contains(
            "Nothing that began meanwhile took longer than 50.0 ms; --over sets a lower threshold."
        ),
        "{text}"
    );
    m.unmount();
    m.bench.fsck("a.img");
}

/// Fsyncs small files, as a mail server does, and each directory at times.
fn deliver(m: &Mounted, n: usize, over: &AtomicBool) {
    let dir = m.dir.join(format!("mail{n}"));
    fs::create_dir(&dir).unwrap();
    for i in (0..).take_while(|_| !over.load(Relaxed)) {
        let mut f = fs::File::create(dir.join(format!("{}", i % 50))).unwrap();
        f.write_all(&vec![n as u8; 4096 << (i % 4)]).unwrap();
        f.sync_all().unwrap();
        if i % 16 == 15 {
            fs::File::open(&dir).unwrap().sync_all().unwrap();
        }
    }
}

/// Writes as fast as possible.
fn stream(m: &Mounted, over: &AtomicBool) {
    while !over.load(Relaxed) {
        let mut f = fs::File::create(m.dir.join("stream")).unwrap();
        for _ in 0..32 {
            f.write_all(&[7; 1 << 20]).unwrap();
        }
    }
}

/// Reads the written files, and syncs the volume from time to time.
fn read_and_sync(m: &Mounted, over: &AtomicBool) {
    let mut bytes = Vec::new();
    for i in (0..).take_while(|_| !over.load(Relaxed)) {
        if let Ok(mut f) = fs::File::open(m.dir.join("stream")) {
            bytes.clear();
            f.read_to_end(&mut bytes).unwrap();
        }
        if i % 4 == 3 {
            m.bench.ok(&["sync", "mnt"]);
        }
    }
}

/// Asserts that nine tenths of the time of these operations together have a name. A single operation may have a gap in
/// which it waited for the scheduler. For simulated volumes, `tidegate`'s tests require more, and of each operation.
fn assert_named(format: &str, slowest: &[Value]) {
    let (ns, share) =
        (|s: &Value| s["ns"].as_u64().unwrap() as f64, |s: &Value| s["named"].as_f64().unwrap());
    let all: f64 = slowest.iter().map(ns).sum();
    let named: f64 = slowest.iter().map(|s| ns(s) * share(s)).sum();
    let least = slowest.iter().min_by(|a, b| share(a).total_cmp(&share(b)));
    assert!(named >= 0.9 * all, "{format}: {:.3} is named; the least: {:#}", named / all, least.unwrap());
}

/// A mount under load, on all processors and beside other programs.
#[test]
fn slow_operations_of_a_mount_under_load_are_explained() {
    if cannot_mount() {
        return;
    }
    for (format, last) in [("f2fs", "checkpoint"), ("ext4", "commit")] {
        let m = Mounted::of(format);
        let over = AtomicBool::new(false);
        let out = std::thread::scope(|s| {
            let (m, over) = (&m, &over);
            (0..4).for_each(|n| _ = s.spawn(move || deliver(m, n, over)));
            s.spawn(move || stream(m, over));
            s.spawn(move || read_and_sync(m, over));
            let watch = ["why", "mnt", "--over", "0us", "--seconds", "3", "--json"];
            let out = m.bench.command(&watch).output();
            over.store(true, Relaxed);
            out.unwrap()
        });
        assert!(out.status.success(), "{format}: {}", String::from_utf8_lossy(&out.stderr));
        let report: Value = serde_json::from_slice(&out.stdout).unwrap();
        assert_eq!(report["dropped"], 0, "{format}");
        let mut seen = Vec::new();
        for kind in report["kinds"].as_array().unwrap() {
            let slowest = kind["slowest"].as_array().unwrap();
            if !slowest.is_empty() {
                assert_named(format, slowest);
                seen.push(kind["operation"].as_str().unwrap().to_string());
            }
        }
        assert!(seen.iter().any(|o| o == "fsync") && seen.iter().any(|o| o == last), "{format}: {seen:?}");
        m.unmount();
        assert!(m.bench.ok(&["check", "a.img"]).contains("clean"), "{format}");
    }
}

#[test]
fn what_cannot_be_is_said() {
    let b = Bench::new();
    let line = b.fails(&["why", "nowhere"], 1);
    assert!(line.contains("nowhere"), "{line}");
    for (args, why) in [(["--over", "50"], "such as 50ms"), (["--seconds", "3601"], "it must be 0 to 3600")] {
        let out = b.command(&["why", "nowhere", args[0], args[1]]).output().unwrap();
        let text = String::from_utf8(out.stderr).unwrap();
        assert!(!out.status.success() && text.contains(why), "{text}");
    }
    let line = b.fails(&["why", "nowhere", "--lockstat"], 1);
    assert!(line.contains("use tidegate trace DIR"), "{line}");
}
