//! `--lockstat`, `--trace` and `--profile` on volume commands, and `tidegate trace` on a mount.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // tests wait for real processes

mod common;

use common::Bench;
use common::chrome;
use common::mounted::{Mounted, cannot_mount};
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

#[test]
fn what_is_no_trace_is_found() {
    let with = |events: &str| chrome::check(&format!("{{\"traceEvents\":[{events}]}}"));
    let name = r#"{"ph":"M","pid":1,"tid":2,"name":"thread_name","args":{"name":"t"}}"#;
    let e = |ph: &str, ts: &str, rest: &str| {
        format!(r#"{{"ph":"{ph}","pid":1,"tid":2,"ts":{ts},"name":"n"{rest}}}"#)
    };
    let request = |ph, ts| e(ph, ts, r#","cat":"block","id2":{"local":"0x1"}"#);
    let good = [e("B", "1", ""), request("b", "2"), e("E", "2.5", ""), request("e", "3")];
    let found = with(&format!("{name},{}", good.join(","))).unwrap();
    assert_eq!((found.names["n"], found.span), (3, (1.0, 3.0)));
    for (bad, why) in [
        (vec![e("E", "1", "")], "an end without a beginning"),
        (vec![e("B", "1", "")], "slices open"),
        (vec![e("i", "2", ""), e("i", "1", "")], "goes back"),
        (vec![e("i", "-1", "")], "ts is no time"),
        (vec![e("i", "\"NaN\"", "")], "ts is no time"),
        (vec![e("b", "1", r#","cat":"block""#)], "local is missing"),
        (vec![request("b", "1")], "has no end"),
        (vec![request("b", "1"), request("b", "2")], "in use"),
        (vec![e("X", "1", "")], "phase X"),
    ] {
        let error = with(&format!("{name},{}", bad.join(","))).unwrap_err();
        assert!(error.contains(why), "{error}");
    }
    assert!(with(&e("i", "1", "")).unwrap_err().contains("has no name"));
    assert!(with(&e("i", "NaN", "")).is_err());
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
    let rows = ["sbi->cp_rwsem-W:", "sbi->cp_rwsem-R:", "curseg->curseg_mutex:", "sit_i->sentry_lock:"];
    for class in rows {
        assert!(err.lines().any(|l| l.trim_start().starts_with(class)), "{class} in\n{err}");
    }
    let names = chrome::check_file(&b.path("t.json")).names;
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
fn runs_of_the_lab_are_looked_at() {
    let b = Bench::new();
    let watched =
        ["lab", "run", "m5", "--quick", "--lockstat", "--trace", "t.json", "--profile", "p.folded", "--json"];
    let out = b.command(&watched).output().unwrap();
    let err = String::from_utf8(out.stderr).unwrap();
    assert!(out.status.success(), "{err}");
    // Observation takes no virtual time: only the date differs.
    let undated = |json: &[u8]| -> Vec<String> {
        String::from_utf8_lossy(json)
            .lines()
            .filter(|l| !l.contains("\"date\":"))
            .map(str::to_owned)
            .collect()
    };
    let watched = undated(&out.stdout);
    let alone = undated(b.ok(&["lab", "run", "m5", "--quick", "--json"]).as_bytes());
    let differs: Vec<_> =
        watched.iter().zip(&alone).enumerate().filter(|(_, (w, a))| w != a).take(20).collect();
    assert!(
        watched == alone,
        "{} and {} lines, of which these differ: {differs:#?}",
        watched.len(),
        alone.len()
    );
    assert!(watched.len() > 100, "one line each: {} lines", watched.len());
    for position in ["1.checkpoint_merge", "2.nocheckpoint_merge"] {
        let found = chrome::check_file(&b.path(&format!("t.m5.{position}.json")));
        // From the beginning of the simulated world, which lasts some minutes at most.
        assert!(found.span.1 < 600e6, "{:?}", found.span);
        for name in ["f2fs_write_checkpoint", "request WSM", "thread_name"] {
            assert!(found.names.contains_key(name), "{name} in {:?}", found.names);
        }
        let folded = fs::read_to_string(b.path(&format!("p.m5.{position}.folded"))).unwrap();
        assert!(folded.contains("f2fs_write_checkpoint;"), "{folded}");
    }
    assert_eq!(err.matches("lock_stat version 0.4").count(), 4, "{err}");
    let shown = b.ok(&["lab", "report"]);
    assert!(
        shown.contains("[ checkpoint_merge ]\nElapsed: avg. 2.40 s")
            && shown.contains("lock_stat version 0.4"),
        "{shown}"
    );
    assert!(shown.lines().last().unwrap().ends_with("report.html"), "{shown}");
    let shown = b.ok(&["lab", "report", "--symbol", "f2fs_issue_checkpoint"]);
    assert!(shown.contains("---f2fs_issue_checkpoint\n") && !shown.contains("---f2fs_writepages"), "{shown}");
    assert!(b.fails(&["lab", "report", "--symbol", "f2fs_nothing"], 1).contains("f2fs_nothing: no result"));
    let page = b.ok(&["lab", "report", "--quiet"]);
    let page = fs::read_to_string(b.path(page.trim())).unwrap();
    assert_eq!(page.matches(": call tree of the median run</figcaption>").count(), 4);
    let line = b.fails(&["lab", "run", "m5", "--quick", "--trace", "nowhere/t.json"], 1);
    assert!(line.contains("nowhere/t.json: no such file"), "{line}");
    // In real time, only what was asked for is recorded.
    let race =
        ["lab", "compare", "--target", "preset:nvme", "--files", "5", "--runs", "1", "--profile", "r.txt"];
    b.ok(&race);
    let tree = fs::read_to_string(b.path("r.compare.1.preset-nvme.txt")).unwrap();
    assert!(tree.contains("f2fs_sync_file"), "{tree}");
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
        let path = m.dir.join(format!("f{i}"));
        let mut f = fs::File::create(&path).unwrap();
        f.write_all(&[1; 5000]).unwrap();
        f.sync_all().unwrap();
        // With the time of birth, which this volume does not keep.
        fs::metadata(&path).unwrap();
        i += 1;
    }
    let out = child.wait_with_output().unwrap();
    assert!(out.status.success());
    let table = String::from_utf8(out.stdout).unwrap();
    assert!(table.starts_with("lock_stat version 0.4") && table.contains("sbi->cp_rwsem-R:"), "{table}");
    let names = chrome::check_file(&m.bench.path("t.json")).names;
    for name in
        ["vfs_fsync_range", "f2fs_sync_file", "f2fs_issue_flush", "vfs_write", "f2fs_submit_write_bio"]
    {
        assert!(names.contains_key(name), "{name} in {names:?}");
    }
    let births = names.get("fuse_statx").copied().unwrap_or_default();
    assert!(births <= 2, "births are asked for {births} times of {i}: the answer is the same for all files");
    let folded = fs::read_to_string(m.bench.path("p.folded")).unwrap();
    for stack in ["fuse_fsync;vfs_fsync_range;f2fs_sync_file", "fuse_create;", "fuse_write;vfs_write"] {
        assert!(folded.lines().any(|l| l.contains(stack)), "{stack} in {folded}");
    }
    // Without options, the result is a profile.
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
    let spawn = || m.bench.command(&long).spawn().unwrap();
    let mut child = spawn();
    let since = std::time::Instant::now();
    let refused = loop {
        assert!(since.elapsed().as_secs() < 20, "two record at a time");
        // The request may have come while one of the recordings below was running.
        if child.try_wait().unwrap().is_some() {
            child = spawn();
        }
        let out = m.bench.command(&["trace", "mnt", "--seconds", "0"]).output().unwrap();
        if !out.status.success() {
            break common::failed(&out, 1);
        }
    };
    assert!(refused.contains("somebody else is recording"), "{refused}");
    // A recording ends when its client is killed.
    child.kill().unwrap();
    child.wait().unwrap();
    let since = std::time::Instant::now();
    while !m.bench.command(&["trace", "mnt", "--seconds", "0"]).output().unwrap().status.success() {
        assert!(since.elapsed().as_secs() < 20, "it goes on for one who is gone");
    }
    let mut child = spawn();
    // The end of the mount is the end of the recording.
    m.unmount();
    let _ = child.wait().unwrap();
}
