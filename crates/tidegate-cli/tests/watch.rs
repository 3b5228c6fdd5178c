//! `--lockstat`, `--trace` and `--profile` on volume commands, and `tidegate trace` on a mount.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // tests wait for real processes

mod common;

use common::Bench;
use common::mounted::{Mounted, cannot_mount};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;

fn volume() -> Bench {
    let b = Bench::new();
    b.ok(&["mkfs", "--size", "128M", "vol.img", "--quiet"]);
    let src = b.path("src");
    fs::create_dir(&src).unwrap();
    for i in 0..40 {
        fs::write(src.join(format!("f{i}")), vec![i as u8; 3000 * i]).unwrap();
    }
    b
}

/// Checks that a trace is one that Perfetto loads: slices nest, requests are paired; the names in it.
fn check_chrome(text: &str) -> BTreeMap<String, usize> {
    let v: Value = serde_json::from_str(text).unwrap();
    let mut names = BTreeMap::new();
    let mut depth: BTreeMap<u64, i64> = BTreeMap::new();
    let mut requests: BTreeMap<u64, i64> = BTreeMap::new();
    let mut last = 0.0;
    for e in v["traceEvents"].as_array().unwrap() {
        if let Some(name) = e["name"].as_str() {
            *names.entry(name.to_string()).or_insert(0) += 1;
        }
        let ph = e["ph"].as_str().unwrap();
        if ph == "M" {
            continue;
        }
        let (ts, tid) = (e["ts"].as_f64().unwrap(), e["tid"].as_u64().unwrap());
        assert!(ts >= last, "events are in order of time");
        last = ts;
        match ph {
            "B" => *depth.entry(tid).or_default() += 1,
            "E" => {
                let d = depth.entry(tid).or_default();
                *d -= 1;
                assert!(*d >= 0, "an end without a beginning");
            }
            "b" => *requests.entry(e["id"].as_u64().unwrap()).or_default() += 1,
            "e" => *requests.entry(e["id"].as_u64().unwrap()).or_default() -= 1,
            "i" => assert_eq!(e["s"], "t"),
            other => panic!("phase {other}"),
        }
    }
    assert!(depth.values().all(|d| *d == 0), "slices without end: {depth:?}");
    assert!(requests.values().all(|n| *n == 0), "requests without end");
    names
}

#[test]
fn a_copy_is_looked_at_from_all_sides() {
    let b = volume();
    let args =
        ["cp", "--lockstat", "--trace", "t.json", "--profile", "p.txt", "-r", "src", "vol.img:/", "--quiet"];
    let out = b.command(&args).output().unwrap();
    let err = String::from_utf8(out.stderr).unwrap();
    assert!(out.status.success(), "{err}");
    assert!(err.starts_with("lock_stat version 0.4\n"), "{err}");
    let head = err.lines().nth(2).unwrap();
    let columns: Vec<&str> = head.split_whitespace().collect();
    assert_eq!(columns[..4], ["class", "name", "con-bounces", "contentions"]);
    assert_eq!(
        columns[8..],
        ["acq-bounces", "acquisitions", "holdtime-min", "holdtime-max", "holdtime-total", "holdtime-avg"]
    );
    for class in ["sbi->cp_rwsem:", "curseg->curseg_mutex:", "sit_i->sentry_lock:"] {
        assert!(err.lines().any(|l| l.trim_start().starts_with(class)), "{class} in\n{err}");
    }
    let names = check_chrome(&fs::read_to_string(b.path("t.json")).unwrap());
    for name in [
        "f2fs_submit_write_bio",
        "f2fs_submit_page_write",
        "f2fs_write_checkpoint",
        "vfs_write",
        "thread_name",
    ] {
        assert!(names.contains_key(name), "{name} in {names:?}");
    }
    assert!(names.keys().any(|n| n.starts_with("request W")), "{names:?}");
    let profile = fs::read_to_string(b.path("p.txt")).unwrap();
    for part in ["# Children      Self", "f2fs_write_checkpoint", "--f2fs_writepages", "tg-flusher"] {
        assert!(profile.contains(part), "{part} in\n{profile}");
    }
    b.fsck("vol.img");
}

#[test]
fn text_and_folded_stacks_by_their_names() {
    let b = volume();
    let small =
        ["cp", "--trace", "t.txt", "--trace-events", "50", "--profile", "p.folded", "src", "vol.img:/"];
    let out = b.command(&small).output().unwrap();
    assert!(out.status.success());
    assert!(String::from_utf8_lossy(&out.stderr).contains("events were dropped"), "fifty are too few");
    let text = fs::read_to_string(b.path("t.txt")).unwrap();
    let head = text.lines().find(|l| l.starts_with("# entries-in-buffer/entries-written:")).unwrap();
    let numbers: Vec<u64> =
        head.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse().ok()).collect();
    assert_eq!(numbers[1] - numbers[0], numbers[2], "{head}");
    let lines: Vec<&str> = text.lines().filter(|l| !l.starts_with('#')).collect();
    assert_eq!(lines.len() as u64, numbers[0]);
    // A checkpoint ends the unmount: it is among the last.
    for part in [
        "f2fs_write_checkpoint: dev = (",
        "checkpoint for Umount, state = finish checkpoint",
        "block_rq_complete: ",
    ] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
    for line in fs::read_to_string(b.path("p.folded")).unwrap().lines() {
        let (stack, n) = line.rsplit_once(' ').unwrap();
        assert!(stack.contains(';') && n.parse::<u64>().unwrap() > 0, "{line}");
    }
    let line = b.fails(&["mount", "vol.img", "nowhere", "--lockstat"], 1);
    assert!(line.contains("use tidegate trace DIR"), "{line}");
    let line = b.fails(&["ls", "vol.img:/", "--trace", "nowhere/t"], 1);
    assert!(line.contains("nowhere/t: no such file"), "{line}");
}

#[test]
fn a_running_mount_is_recorded() {
    if cannot_mount() {
        return;
    }
    let m = Mounted::new();
    let record =
        ["trace", "mnt", "--seconds", "1.5", "--trace", "t.json", "--profile", "p.folded", "--lockstat"];
    let mut child = m.bench.command(&record).stdout(std::process::Stdio::piped()).spawn().unwrap();
    let since = std::time::Instant::now();
    let mut i = 0;
    while child.try_wait().unwrap().is_none() {
        assert!(since.elapsed().as_secs() < 60, "it does not end");
        let mut f = fs::File::create(m.dir.join(format!("f{}", i % 50))).unwrap();
        f.write_all(&[1; 5000]).unwrap();
        f.sync_all().unwrap();
        i += 1;
    }
    let out = child.wait_with_output().unwrap();
    assert!(out.status.success());
    let table = String::from_utf8(out.stdout).unwrap();
    assert!(table.starts_with("lock_stat version 0.4") && table.contains("sbi->cp_rwsem:"), "{table}");
    let names = check_chrome(&fs::read_to_string(m.bench.path("t.json")).unwrap());
    for name in
        ["vfs_fsync_range", "f2fs_sync_file", "f2fs_issue_flush", "vfs_write", "f2fs_submit_write_bio"]
    {
        assert!(names.contains_key(name), "{name} in {names:?}");
    }
    let folded = fs::read_to_string(m.bench.path("p.folded")).unwrap();
    assert!(folded.lines().any(|l| l.contains(";vfs_fsync_range;f2fs_sync_file")), "{folded}");
    // Without being told what, a profile.
    let text = m.bench.ok(&["trace", "a.img", "--seconds", "0.1"]);
    assert!(text.starts_with("# Call tree of the spans"), "{text}");
    m.unmount();
    m.bench.fsck("a.img");
}

#[test]
fn one_records_at_a_time() {
    if cannot_mount() {
        return;
    }
    let m = Mounted::new();
    let long = ["trace", "mnt", "--seconds", "30", "--trace", "long.json"];
    let mut child = m.bench.command(&long).spawn().unwrap();
    let since = std::time::Instant::now();
    let refused = loop {
        assert!(since.elapsed().as_secs() < 20, "two record at a time");
        let out = m.bench.command(&["trace", "mnt", "--seconds", "0"]).output().unwrap();
        if !out.status.success() {
            break common::failed(&out, 1);
        }
    };
    assert!(refused.contains("somebody else is recording"), "{refused}");
    // The end of the mount is the end of the recording.
    m.unmount();
    let _ = child.wait().unwrap();
}
