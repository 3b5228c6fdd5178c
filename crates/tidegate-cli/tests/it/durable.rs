//! The system calls of an fsync: all data that went to the image is made durable before the fsync returns.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use tidegate::vfs::{Cred, OpenFlags};
use tidegate::{OpenOptions, Volume};
use tidegate_testing::oracle;

/// The environment variable that makes this program the writer. It names the image.
const WRITE: &str = "TIDEGATE_TEST_DURABLE";
/// Printed after each fsync.
const ACKED: &str = "acked";
const FSYNCS: usize = 3;

/// Not a test of its own: the program that is traced.
#[test]
fn writer() {
    let Some(image) = std::env::var_os(WRITE) else { return };
    let volume = Volume::open(Path::new(&image), &OpenOptions::default()).unwrap();
    let flags = OpenFlags::CREATE | OpenFlags::WRITE;
    let file = volume.vfs().open_path(&Cred::ROOT, b"/file", flags, 0o644).unwrap();
    for n in 0..FSYNCS as u64 {
        file.write_at(n * 5000, &[n as u8 + 1; 70_000]).unwrap();
        file.fsync(n == 1).unwrap();
        writeln!(std::io::stdout(), "{ACKED}").unwrap();
    }
}

/// A system call: the lines of the trace where it began and ended, and whether it is one of the image's.
struct Call {
    name: String,
    of_image: bool,
    began: usize,
    ended: usize,
    result: String,
}

/// The calls of a trace with a thread's number in front of each line.
fn calls(trace: &str, image: &str) -> Vec<Call> {
    let mut calls: Vec<Call> = Vec::new();
    let mut under_way = std::collections::BTreeMap::new();
    for (n, line) in trace.lines().enumerate() {
        let Some((thread, text)) = line.split_once(' ') else { continue };
        let result = text.rsplit_once(" = ").map_or(String::new(), |r| r.1.to_string());
        if text.trim_start().starts_with("<... ") {
            if let Some(call) = under_way.remove(thread) {
                let call: &mut Call = &mut calls[call];
                (call.ended, call.result) = (n, result);
            }
            continue;
        }
        let Some((name, rest)) = text.trim_start().split_once('(') else { continue };
        let ended = if text.ends_with("<unfinished ...>") { usize::MAX } else { n };
        if ended == usize::MAX {
            under_way.insert(thread, calls.len());
        }
        let name = if rest.contains(ACKED) { ACKED.to_string() } else { name.to_string() };
        calls.push(Call { name, of_image: rest.contains(image), began: n, ended, result });
    }
    calls
}

fn traced(format: &str) -> String {
    let b = crate::common::Bench::new();
    b.ok(&["mkfs", "--format", format, "--size", "64M", "a.img", "--quiet"]);
    let (image, trace) = (b.path("a.img"), b.path("trace"));
    let out = Command::new(oracle::require("strace").unwrap())
        .args(["-f", "-y", "-s", "64", "-e", "trace=write,pwrite64,pwritev,pwritev2,fsync,fdatasync", "-o"])
        .arg(&trace)
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "durable::writer", "--nocapture"])
        .env(WRITE, &image)
        // Writes by io_uring would be no system calls.
        .env("TIDEGATE_IO_URING", "refuse")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    std::fs::read_to_string(&trace).unwrap()
}

#[test]
fn an_fsync_is_behind_the_host_s_own() {
    if oracle::skip_or_fail("strace") {
        return;
    }
    for format in ["f2fs", "ext4"] {
        let trace = traced(format);
        let calls = calls(&trace, "/a.img>");
        let acked: Vec<_> = calls.iter().filter(|c| c.name == ACKED).map(|c| c.began).collect();
        assert_eq!(acked.len(), FSYNCS, "{trace}");
        let mut before = 0;
        for acked in acked {
            let of =
                |name: &str| calls.iter().filter(|c| c.of_image && c.name.contains(name)).collect::<Vec<_>>();
            let writes = of("write").into_iter().filter(|c| (before..acked).contains(&c.began));
            let last = writes.map(|c| c.ended).max().unwrap_or(usize::MAX);
            let good = |c: &&Call| c.began > last && c.ended < acked && c.result == "0";
            assert!(of("sync").iter().any(good), "{format}: none from line {last} to {acked} of\n{trace}");
            before = acked;
        }
    }
}
