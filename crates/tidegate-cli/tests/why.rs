//! `tidegate why` on real mounts.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // tests wait for real processes

mod common;

use common::Bench;
use common::mounted::{Mounted, cannot_mount};
use serde_json::Value;
use std::fs;
use std::io::Write;

#[test]
fn slow_fsyncs_of_a_mount_are_explained() {
    if cannot_mount() {
        return;
    }
    let m = Mounted::new();
    fs::create_dir(m.dir.join("sub")).unwrap();
    let watch = ["why", "mnt", "--over", "0us", "--seconds", "2", "--json"];
    // More than a pipe holds.
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
        assert!(s["named"].as_f64().unwrap() > 0.5, "{s:#}");
    }
    assert!(fsyncs.iter().all(|s| s["path"].as_str().unwrap().starts_with("/sub")), "{fsyncs:#?}");
    assert!(fsyncs.iter().all(|s| s["thread"].as_str().unwrap().starts_with("tg-fuse")), "{fsyncs:#?}");
    let text = m.bench.ok(&["why", "a.img", "--seconds", "0.1"]);
    assert!(text.contains("Nothing took longer than 50.0 ms; --over sets a lower threshold."), "{text}");
    m.unmount();
    m.bench.fsck("a.img");
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
