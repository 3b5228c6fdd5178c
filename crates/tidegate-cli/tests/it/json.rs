//! `--json` prints one document, or is refused by name.

use crate::common::Bench;
use crate::shells::commands;
use std::collections::BTreeSet;
use std::fs;
use std::process::{Output, Stdio};

/// Commands whose JSON is looked at where something is mounted: `mount.rs`.
const OF_MOUNTS: [&str; 5] = ["umount", "sync", "top", "trace", "why"];

/// Each command, some with several ways. `#` is the number of the run.
const CASES: [&str; 32] = [
    "mkfs --size 64M new#.img",
    "cp f a.img:/f#",
    "cp a.img:/f out#",
    "cp - a.img:/stdin#",
    "ls a.img:/",
    "ls -R a.img:/",
    "stat a.img:/f",
    "tree a.img:/",
    "mkdir a.img:/d#",
    "touch a.img:/t#",
    "chmod 600 a.img:/t#",
    "chown 1:2 a.img:/t#",
    "rmdir a.img:/d#",
    "ln a.img:/f a.img:/l#",
    "mv a.img:/l# a.img:/m#",
    "rm a.img:/m#",
    "df a.img",
    "trim a.img",
    "info a.img",
    "info --checkpoints a.img",
    "check a.img",
    "check --repair a.img",
    "mount --fake a.img .",
    "lab list",
    "lab compare --target sim:ufs --files 4 --runs 1",
    "lab fio --target sim:ufs jobs.fio",
    "lab report",
    "cat a.img:/f",
    "tar a.img:/",
    "completions bash",
    "man pages",
    "cp a.img:/f -",
];

/// The document that a run printed, or nothing where --json was refused.
pub fn document(args: &str, out: &Output) -> Option<serde_json::Value> {
    let (said, told) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    if out.status.success() {
        return Some(serde_json::from_str(&said).unwrap_or_else(|e| panic!("{args}: {e}: {said:?}")));
    }
    assert!(told.starts_with("tidegate: --json: ") && said.is_empty(), "{args}: {said}{told}");
    None
}

#[test]
fn each_command_prints_one_document_or_refuses() {
    let b = Bench::new();
    fs::write(b.path("f"), "content").unwrap();
    fs::write(b.path("jobs.fio"), "[a]\nrw=write\nsize=64k\n").unwrap();
    b.ok(&["mkfs", "--quiet", "--size", "64M", "a.img"]);
    b.ok(&["cp", "f", "a.img:/f"]);
    let mut refused = BTreeSet::new();
    for (run, more) in [&["--json"][..], &["--json", "--quiet"]].into_iter().enumerate() {
        for case in CASES {
            let words = case.replace('#', &run.to_string());
            let args: Vec<&str> = words.split_whitespace().chain(more.iter().copied()).collect();
            let out = b.command(&args).stdin(Stdio::null()).output().unwrap();
            if document(case, &out).is_none() {
                refused.insert(case);
            }
        }
    }
    // Standard output under another name.
    let out = b.command(&["cp", "--json", "a.img:/f", "/dev/stdout"]).output().unwrap();
    assert_eq!(document("cp to /dev/stdout", &out), None);
    let listed: serde_json::Value = serde_json::from_str(&b.ok(&["lab", "list", "--json"])).unwrap();
    assert_eq!(listed.as_array().unwrap().len(), 5);
    assert!(refused.into_iter().eq([
        "cat a.img:/f",
        "completions bash",
        "cp a.img:/f -",
        "man pages",
        "tar a.img:/"
    ]));
    let tried: BTreeSet<&str> = CASES.iter().filter_map(|c| c.split(' ').next()).chain(OF_MOUNTS).collect();
    let left: Vec<_> = commands(&b).into_iter().filter(|c| c != "help" && !tried.contains(&c[..])).collect();
    assert!(left.is_empty(), "no case for {left:?}");
}

#[test]
fn a_quiet_check_prints_problems_alone() {
    let b = Bench::new();
    b.ok(&["mkfs", "--quiet", "--size", "64M", "a.img"]);
    assert_eq!(b.ok(&["check", "--quiet", "a.img"]), "");
    assert_eq!(b.ok(&["check", "--quiet", "--repair", "a.img"]), "");
    assert!(b.ok(&["check", "a.img"]).contains("clean"));
}
