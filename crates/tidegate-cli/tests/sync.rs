//! `tidegate sync`: synced data survives the serving process; `--json` of the commands for mounts.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // tests wait for real processes

mod common;

use common::Bench;
use common::mounted::{Mounted, cannot_mount};
use std::fs::{self, File};
use std::io::Write;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// A mount in the foreground, which ends when this is dropped.
struct Served(Child, std::path::PathBuf);

impl Served {
    fn end(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
        let _ = Command::new("fusermount3").args(["-q", "-u", "-z"]).arg(&self.1).status();
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.end();
    }
}

#[test]
fn all_of_it_is_durable() {
    if cannot_mount() {
        return;
    }
    let bench = Bench::new();
    bench.ok(&["mkfs", "--size", "256M", "a.img"]);
    let dir = bench.path("mnt");
    fs::create_dir(&dir).unwrap();
    let before = rustix::fs::stat(&dir).unwrap().st_dev;
    let child = bench.command(&["mount", "--foreground", "a.img", "mnt"]).spawn().unwrap();
    let mut served = Served(child, dir.clone());
    let since = Instant::now();
    while rustix::fs::stat(&dir).is_ok_and(|s| s.st_dev == before) {
        assert!(since.elapsed() < Duration::from_secs(30), "it does not mount");
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut f = File::create(dir.join("f")).unwrap();
    f.write_all(&[7; 300_000]).unwrap();
    fs::create_dir(dir.join("d")).unwrap();
    assert_eq!(bench.ok(&["sync", "mnt/d"]), "");
    assert_eq!(bench.fails(&["sync", "mnt", "."], 1), ".: not in a mounted volume");
    assert!(bench.fails(&["sync", "missing"], 1).starts_with("missing: "));
    served.end();
    drop(f);
    let listed = bench.ok(&["ls", "-l", "a.img:/"]);
    assert!(listed.contains("300000") && listed.lines().count() >= 2, "{listed}");
}

/// The other commands are in `it::json`.
#[test]
fn commands_for_mounts_print_one_document_or_refuse_json() {
    if cannot_mount() {
        return;
    }
    let m = Mounted::unmounted(|_| ());
    for line in [
        "mount a.img mnt",
        "sync mnt",
        "sync --quiet mnt mnt",
        "top --interval 0.05 mnt",
        "why --seconds 0 mnt",
        "mount a.img mnt -o remount,ro",
        "umount --quiet mnt",
    ] {
        let args: Vec<&str> = line.split(' ').chain(["--json"]).collect();
        let said = m.bench.ok(&args);
        let document: serde_json::Value =
            serde_json::from_str(&said).unwrap_or_else(|e| panic!("{line}: {e}: {said:?}"));
        match line.split(' ').next() {
            Some("mount") => {
                assert_eq!((&document["image"], &document["directory"]), (&"a.img".into(), &"mnt".into()))
            }
            Some("sync") => {
                assert_eq!((&document[0]["directory"], &document[0]["synced"]), (&"mnt".into(), &true.into()))
            }
            Some("umount") => assert_eq!(document["written"], true),
            _ => assert!(document.is_object(), "{line}: {said}"),
        }
        if line == "top --interval 0.05 mnt" {
            assert!(m.bench.fails(&["trace", "--json", "mnt"], 1).starts_with("--json: "));
        }
    }
}
