//! `tidegate top` and the socket behind it, on real mounts.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // tests wait for real processes

mod common;

use common::mounted::{Mounted, cannot_mount};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;

fn sample(m: &Mounted, place: &str) -> Value {
    serde_json::from_str(&m.bench.ok(&["top", place, "--json", "-d", "0.2"])).unwrap()
}

/// The one socket that is named after the image.
fn socket(m: &Mounted) -> PathBuf {
    let meta = fs::metadata(&m.image).unwrap();
    let name = format!("{:x}-{:x}.sock", meta.dev(), meta.ino());
    let dirs = ["/run/tidegate", "/tmp/tidegate-0"].map(PathBuf::from);
    dirs.iter().map(|d| d.join(&name)).find(|p| p.exists()).expect("a socket")
}

fn write_and_sync(m: &Mounted, name: &str) {
    let mut f = fs::File::create(m.dir.join(name)).unwrap();
    f.write_all(&[7; 100_000]).unwrap();
    f.sync_all().unwrap();
}

#[test]
fn image_and_directory_lead_to_the_same_numbers() {
    if cannot_mount() {
        return;
    }
    let m = Mounted::new();
    fs::create_dir(m.dir.join("sub")).unwrap();
    let before = sample(&m, "mnt");
    assert_eq!(before["fsync"]["count"], 0);
    for i in 0..3 {
        write_and_sync(&m, &format!("sub/f{i}"));
    }
    for place in ["mnt", "mnt/sub", "a.img"] {
        let s = sample(&m, place);
        assert_eq!(s["fsync"]["count"], 3, "{place}");
        assert_eq!(s["mountpoint"], fs::canonicalize(&m.dir).unwrap().to_str().unwrap());
        assert_eq!(s["format"], "f2fs");
        assert_eq!(s["image"], fs::canonicalize(&m.image).unwrap().to_str().unwrap());
        let number = |v: &Value| v.as_u64().unwrap();
        assert!(number(&s["io"]["write_bytes"]) >= number(&before["io"]["write_bytes"]) + 300_000);
        let times = ["min_ns", "p50_ns", "p90_ns", "p99_ns", "max_ns"].map(|k| number(&s["fsync"][k]));
        assert!(times[0] > 0 && times.is_sorted(), "{times:?}");
        let bios: u64 = s["io"]["sizes"].as_array().unwrap().iter().map(|c| number(&c["writes"])).sum();
        assert_eq!(bios, number(&s["io"]["write_bios"]));
    }
    let text = m.bench.ok(&["top", "mnt", "--prometheus"]);
    assert!(
        text.lines().any(|l| l.starts_with("tidegate_fsync_seconds_count{") && l.ends_with(" 3")),
        "{text}"
    );
    // Output that does not go to a terminal is text.
    let plain = m.bench.ok(&["top", "a.img", "-d", "0.1"]);
    assert!(plain.contains("fsync: 3 times, p50") && plain.contains("flusher: "), "{plain}");
    m.bench.ok(&["top", "mnt", "-d", "0.05", "--picture", "top.svg"]);
    let picture = fs::read_to_string(m.bench.path("top.svg")).unwrap();
    assert!(picture.starts_with("<svg ") && picture.contains(">fsync<") && picture.contains("Write-back"));
    m.unmount();
    m.bench.fsck("a.img");
}

#[test]
fn files_being_written_have_paths() {
    if cannot_mount() {
        return;
    }
    let m = Mounted::new();
    fs::create_dir_all(m.dir.join("a/b")).unwrap();
    let mut f = fs::File::create(m.dir.join("a/b/log")).unwrap();
    f.write_all(&vec![1; 3 << 20]).unwrap();
    // The kernel sends its pages, which are then dirty in the serving process.
    rustix::fs::sync();
    let s = sample(&m, "mnt");
    let files = s["files"].as_array().unwrap();
    // The files may have been written meanwhile, but each listed path is complete.
    for f in files.iter().filter_map(|f| f["path"].as_str()) {
        assert!(f.starts_with('[') || f == "/" || f.starts_with("/a"), "{f}");
    }
    drop(f);
    m.unmount();
}

#[test]
fn locks_are_counted_only_while_somebody_looks() {
    if cannot_mount() {
        return;
    }
    let m = Mounted::new();
    let mut stream = UnixStream::connect(socket(&m)).unwrap();
    let mut answers = BufReader::new(stream.try_clone().unwrap());
    let mut ask = |question: &str| -> Value {
        writeln!(stream, "{question}").unwrap();
        let mut line = String::new();
        answers.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    };
    let locks = |v: &Value| v["sample"]["locks"].as_array().unwrap().len();
    assert_eq!(locks(&ask(r#"{"v":1,"ask":"sample","locks":false}"#)), 0);
    ask(r#"{"v":1,"ask":"sample","locks":true}"#);
    write_and_sync(&m, "f");
    let v = ask(r#"{"v":1,"ask":"sample","locks":true}"#);
    let classes: Vec<&str> =
        v["sample"]["locks"].as_array().unwrap().iter().filter_map(|l| l["class"].as_str()).collect();
    assert!(classes.contains(&"sbi->cp_rwsem") && classes.contains(&"sit_i->sentry_lock"), "{classes:?}");
    // Another version and malformed questions get an error, and the connection stays open.
    assert!(ask(r#"{"v":7,"ask":"tides"}"#)["error"].as_str().unwrap().contains("version 1"));
    assert!(ask("nonsense")["error"].as_str().unwrap().contains("not a question"));
    drop((stream, answers));
    let gone = |_: &i32| {
        std::thread::sleep(std::time::Duration::from_millis(50));
        let mut s = UnixStream::connect(socket(&m)).unwrap();
        writeln!(s, r#"{{"v":1,"ask":"sample","locks":false}}"#).unwrap();
        let mut line = String::new();
        BufReader::new(s).read_line(&mut line).unwrap();
        locks(&serde_json::from_str(&line).unwrap()) == 0
    };
    assert!((0..100).any(|i| gone(&i)), "statistics stay on");
    m.unmount();
}

#[test]
fn clients_that_hang_hurt_nobody() {
    if cannot_mount() {
        return;
    }
    let m = Mounted::new();
    let path = socket(&m);
    let meta = fs::metadata(&path).unwrap();
    assert!(meta.file_type().is_socket());
    assert_eq!(meta.mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(path.parent().unwrap()).unwrap().mode() & 0o077, 0);
    let mut silent = UnixStream::connect(&path).unwrap();
    let mut half = UnixStream::connect(&path).unwrap();
    half.write_all(b"{\"v\":1,").unwrap();
    // This client asks for ever and reads nothing.
    let mut deaf = UnixStream::connect(&path).unwrap();
    deaf.set_nonblocking(true).unwrap();
    let question = b"{\"v\":1,\"ask\":\"sample\",\"locks\":false}\n";
    while deaf.write_all(question).is_ok() {}
    write_and_sync(&m, "f");
    assert_eq!(sample(&m, "mnt")["fsync"]["count"], 1);
    m.unmount();
    assert!(!path.exists(), "the socket goes with the mount");
    let mut rest = Vec::new();
    let _ = silent.read_to_end(&mut rest);
    let line = m.bench.fails(&["top", "mnt"], 1);
    assert!(line.contains("no Tidegate volume is mounted here"), "{line}");
    let line = m.bench.fails(&["top", "a.img", "--json"], 1);
    assert!(line.contains("not mounted"), "{line}");
}

#[test]
fn the_socket_of_a_dead_mount_is_replaced() {
    if cannot_mount() {
        return;
    }
    let m = Mounted::new();
    let path = socket(&m);
    m.kill();
    assert!(path.exists(), "nobody was left to remove it");
    let line = m.bench.fails(&["top", "a.img", "--json"], 1);
    assert!(line.contains("not mounted"), "{line}");
    m.mount();
    assert_eq!(socket(&m), path);
    assert_eq!(sample(&m, "a.img")["fsync"]["count"], 0);
    m.unmount();
}

#[test]
fn an_ordinary_user_asks_for_his_own_mounts_only() {
    use std::os::unix::process::CommandExt;
    if cannot_mount() {
        return;
    }
    let m = Mounted::new();
    let open = |mode| fs::Permissions::from_mode(mode);
    fs::set_permissions(m.bench.dir.path(), open(0o755)).unwrap();
    fs::set_permissions(&m.image, open(0o644)).unwrap();
    let mut command = Command::new(m.bench.program());
    let command = command.args(["top", "a.img", "--json"]).current_dir(m.bench.dir.path());
    let out = command.uid(65534).gid(65534).output().unwrap();
    let line = common::failed(&out, 1);
    assert!(line.contains("permission denied"), "{line}");
    m.unmount();
}
