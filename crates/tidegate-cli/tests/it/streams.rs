//! Sources that can be read once: pipes by whatever name.

use crate::common::Bench;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// Runs a line of bash in which `$T` is the program.
fn bash(b: &Bench, line: &str) -> Output {
    let program = Path::new(env!("CARGO_BIN_EXE_tidegate"));
    let line = format!("set -o pipefail; {line}");
    // A program that reads a pipe twice waits for ever.
    let mut limited = Command::new("timeout");
    limited.args(["60", "bash", "-c", &line]).current_dir(b.dir.path());
    limited.env("T", program).env_remove("SOURCE_DATE_EPOCH").output().unwrap()
}

/// Runs one that must succeed.
fn ok(b: &Bench, line: &str) {
    let out = bash(b, line);
    assert!(out.status.success(), "{line}: {:?} {}", out.status, String::from_utf8_lossy(&out.stderr));
}

fn tree(b: &Bench) {
    fs::create_dir(b.path("src")).unwrap();
    fs::write(b.path("src/f"), "content").unwrap();
}

#[test]
fn a_volume_is_filled_from_a_pipe_of_any_name() {
    let b = Bench::new();
    tree(&b);
    let lines = [
        "$T mkfs -q --from <(tar -C src -cf - .) a.img",
        "tar -C src -cf - . | $T mkfs -q --from /dev/stdin a.img",
        "tar -C src -czf - . | $T mkfs -q --from /proc/self/fd/0 a.img",
        "mkfifo p; tar -C src -cf p . & $T mkfs -q --from p a.img",
        "$T mkfs -q --size 64M --from <(tar -C src -cf - .) a.img",
        "tar -C src -cf t.tar .; $T mkfs -q --from /dev/stdin a.img < t.tar",
    ];
    for line in lines {
        for format in ["f2fs", "ext4"] {
            let line = line
                .replace("mkfs", &format!("mkfs --force --format {format}"))
                .replace("mkfifo p;", "rm -f p; mkfifo p;");
            ok(&b, &line);
            assert_eq!(b.ok(&["cat", "a.img:/f"]), "content", "{line}");
            fs::remove_file(b.path("a.img")).unwrap();
        }
    }
}

#[test]
fn a_pipe_that_holds_no_tar_is_refused() {
    let b = Bench::new();
    let out = bash(&b, "$T mkfs -q --from <(echo no tar) a.img");
    assert_eq!(out.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&out.stderr).starts_with("tidegate: /dev/fd/"), "{out:?}");
    assert!(!b.path("a.img").exists());
}

#[test]
fn a_file_is_copied_from_a_pipe_of_any_name() {
    let b = Bench::new();
    b.ok(&["mkfs", "-q", "--size", "64M", "a.img"]);
    for line in [
        "$T cp <(echo hello) a.img:/f",
        "echo hello | $T cp /dev/stdin a.img:/f",
        "echo hello | $T cp - a.img:/f",
    ] {
        ok(&b, line);
        assert_eq!(b.ok(&["cat", "a.img:/f"]), "hello\n", "{line}");
        b.ok(&["rm", "a.img:/f"]);
    }
    // A fifo by its own name is one in the volume, too.
    ok(&b, "mkfifo p; $T cp p a.img:/p");
    assert!(b.ok(&["stat", "a.img:/p"]).contains("Type: fifo"));
}
