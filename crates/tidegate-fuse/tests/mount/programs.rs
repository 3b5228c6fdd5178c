//! Programs that can verify what they wrote: fio, sqlite, git, make.

use crate::rig::{Rig, Rng, cannot_mount, number, seed};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// The output of a shell, which must succeed.
pub fn sh(dir: &Path, script: &str) -> String {
    let out = Command::new("sh").args(["-ec", script]).current_dir(dir).output().unwrap();
    assert!(out.status.success(), "{script}\n{}", said(&out));
    String::from_utf8_lossy(&out.stdout).trim().to_string()
}

fn said(out: &Output) -> String {
    format!("{}\n{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr))
}

/// All ways of writing at once. Every block has a checksum of itself.
const JOBS: &str = "
size=8m
verify=crc32c
verify_fatal=1
rw=randwrite
group_reporting=1
[buffered]
bs=4k
[odd]
bs=1300
[mapped]
ioengine=mmap
bs=4k
[direct]
direct=1
bs=16k
[queued]
ioengine=libaio
iodepth=16
direct=1
bs=64k
[fsync]
size=1m
bs=4k
fsync=8
[large]
rw=write
bs=1m
end_fsync=1
";

#[test]
fn fio_reads_what_it_wrote() {
    if cannot_mount() || tidegate_testing::oracle::skip_or_fail("fio") {
        return;
    }
    let seed = seed() >> 33;
    let mut rig = Rig::new(256, "cache=16M");
    let job = rig.scratch.path().join("jobs.fio");
    let fio = |dir: &Path, verify_only: bool| {
        let only = if verify_only { "verify_only=1" } else { "" };
        let head = format!("[global]\ndirectory={}\nrandseed={seed}\n{only}\n", dir.display());
        std::fs::write(&job, head + JOBS).unwrap();
        let out = Command::new("fio").arg(&job).current_dir(dir.parent().unwrap()).output().unwrap();
        assert!(out.status.success(), "verify_only {verify_only}: {}", said(&out));
    };
    fio(&rig.dir, false);
    assert!(rig.unmount());
    rig.mount("").unwrap();
    fio(&rig.dir, true);
    rig.finish();
}

/// The number of processes, each of which commits rows one by one.
const WRITERS: u64 = 4;

/// Several writers at once. Every commit is synced, so all rows survive the mount.
fn sqlite(mode: &str) {
    if cannot_mount() || tidegate_testing::oracle::skip_or_fail("sqlite3") {
        return;
    }
    let rows = number("TIDEGATE_SQLITE_ROWS", 40);
    let mut rig = Rig::new(256, "cache=16M");
    let ask = |rig: &Rig, sql: &str| {
        let out = Command::new("sqlite3").arg(rig.dir.join("db")).arg(sql).output().unwrap();
        assert!(out.status.success(), "{sql}: {}", said(&out));
        String::from_utf8_lossy(&out.stdout).trim().to_string()
    };
    let table = "create table t(w, n, pad, primary key (w, n))";
    assert_eq!(ask(&rig, &format!("pragma journal_mode={mode}; {table}")), mode);
    let writers: Vec<_> = (0..WRITERS)
        .map(|w| {
            let mut sql = ".timeout 60000\npragma synchronous=extra;\n".to_string();
            for n in 0..rows {
                sql += &format!("begin immediate; insert into t values({w}, {n}, hex(randomblob(1500)));\n");
                sql +=
                    "update t set pad = hex(randomblob(700)) where n = (select max(n) from t) / 2; commit;\n";
            }
            let child = Command::new("sqlite3")
                .arg("-bail")
                .arg(rig.dir.join("db"))
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn();
            std::thread::spawn(move || {
                let mut child = child.unwrap();
                std::io::Write::write_all(&mut child.stdin.take().unwrap(), sql.as_bytes()).unwrap();
                let out = child.wait_with_output().unwrap();
                assert!(out.status.success(), "writer {w}: {}", said(&out));
            })
        })
        .collect();
    writers.into_iter().for_each(|w| w.join().unwrap());
    let all = (rows * WRITERS).to_string();
    assert_eq!(ask(&rig, "pragma integrity_check; select count(*) from t"), format!("ok\n{all}"));
    rig.kill();
    rig.mount("").unwrap();
    assert_eq!(ask(&rig, "pragma integrity_check; select count(*) from t"), format!("ok\n{all}"));
    rig.finish();
}

#[test]
fn sqlite_with_a_journal() {
    sqlite("delete");
}

#[test]
fn sqlite_with_a_wal() {
    sqlite("wal");
}

/// The serving process is killed under a writer: every row that was reported as committed is there, and the database is
/// whole.
fn sqlite_killed(mode: &str) {
    if cannot_mount() || tidegate_testing::oracle::skip_or_fail("sqlite3") {
        return;
    }
    let mut rng = Rng(seed());
    let mut rig = Rig::new(256, "cache=16M");
    let mut committed = 0;
    for round in 0..number("TIDEGATE_KILLS", 3) {
        let mut sql = format!(".timeout 5000\npragma journal_mode={mode};\npragma synchronous=extra;\n");
        sql += "create table if not exists t(n integer primary key, pad);\n";
        for n in committed + 1..committed + 2000 {
            sql += &format!("insert into t values({n}, hex(randomblob(900)));\nselect {n};\n");
        }
        let mut child = Command::new("sqlite3")
            .arg("-bail")
            .arg(rig.dir.join("db"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (mut input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        // The thread ends when the mount ends.
        let feed = std::thread::spawn(move || std::io::Write::write_all(&mut input, sql.as_bytes()));
        let until = committed + 20 + rng.below(100);
        let mut lines = BufReader::new(output).lines().map_while(Result::ok);
        committed = lines.by_ref().filter_map(|l| l.parse().ok()).find(|n| *n >= until).unwrap();
        rig.kill();
        committed = lines.filter_map(|l| l.parse().ok()).last().unwrap_or(committed);
        child.wait().unwrap();
        let _ = feed.join();
        rig.mount("cache=16M").unwrap();
        let ask = "pragma integrity_check; select count(*), max(n) from t";
        let out = Command::new("sqlite3").arg(rig.dir.join("db")).arg(ask).output().unwrap();
        let text = said(&out);
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some("ok"), "round {round}: {text}");
        let (count, max) = lines.next().and_then(|l| l.split_once('|')).unwrap();
        assert_eq!(count, max, "round {round}: {text}");
        let max: u64 = max.parse().unwrap();
        assert!(max >= committed, "round {round}: {committed} were committed: {text}");
        committed = max;
    }
    rig.finish();
}

#[test]
fn sqlite_with_a_journal_outlives_a_kill() {
    sqlite_killed("delete");
}

#[test]
fn sqlite_with_a_wal_outlives_a_kill() {
    sqlite_killed("wal");
}

/// A project of many files is built, undisturbed and under a kill, and the result runs.
#[test]
fn a_program_is_built() {
    if cannot_mount() || ["make", "cc"].into_iter().any(tidegate_testing::oracle::skip_or_fail) {
        return;
    }
    let mut rig = Rig::new(256, "suid,exec,cache=16M");
    let project = rig.dir.join("project");
    std::fs::create_dir(&project).unwrap();
    let files = 60;
    let (mut names, mut sum) = (String::new(), String::new());
    for n in 0..files {
        std::fs::write(project.join(format!("f{n}.c")), format!("int f{n}(int x) {{ return x * {n}; }}\n"))
            .unwrap();
        names += &format!("int f{n}(int);\n");
        sum += &format!(" + f{n}(2)");
    }
    let main =
        format!("#include <stdio.h>\n{names}int main(void) {{ printf(\"%d\\n\", 0{sum}); return 0; }}\n");
    std::fs::write(project.join("main.c"), main).unwrap();
    let make = "prog: lib.a main.o\n\tcc -o $@ main.o lib.a\n\
                lib.a: $(filter-out main.o,$(patsubst %.c,%.o,$(wildcard *.c)))\n\tar rcs $@ $^\n";
    std::fs::write(project.join("Makefile"), make).unwrap();
    let expected = (files * (files - 1)).to_string();
    assert_eq!(sh(&project, "make -s -j4; ./prog"), expected);
    sh(&project, "rm -f *.o *.a prog; sync Makefile *.c .");
    let mut building =
        Command::new("make").args(["-s", "-j4"]).current_dir(&project).stderr(Stdio::null()).spawn().unwrap();
    while !project.join("f9.o").exists() {
        std::thread::yield_now();
    }
    rig.kill();
    building.wait().unwrap();
    rig.mount("suid,exec,cache=16M").unwrap();
    assert_eq!(sh(&project, "rm -f *.o *.a prog; make -s -j4; ./prog"), expected);
    assert!(rig.unmount());
    rig.mount("exec").unwrap();
    assert_eq!(sh(&project, "./prog"), expected);
    rig.finish();
}

#[test]
fn git_finds_its_objects() {
    if cannot_mount() || tidegate_testing::oracle::skip_or_fail("git") {
        return;
    }
    let rig = Rig::new(512, "cache=16M");
    let source = rig.scratch.path().join("source");
    std::fs::create_dir(&source).unwrap();
    let git = "export GIT_CONFIG_NOSYSTEM=1 HOME=/nonexistent GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b \
               GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b; git config --global --add safe.directory '*' \
               2>/dev/null || true;";
    let work = "for c in 1 2 3 4 5 6; do for f in $(seq 60); do mkdir -p d$((f % 7)); \
                { echo commit $c file $f; seq $((f * c * 10)); } > d$((f % 7))/f$f; done; \
                git add -A; git commit -qm c$c; git branch b$c; done";
    sh(&source, &format!("{git} git init -q .; {work}"));
    let clone = "git clone -q --no-local source mnt/clone; cd mnt/clone";
    sh(rig.scratch.path(), &format!("{git} {clone}; git fsck --full --strict 2>&1"));
    let repo = rig.dir.join("clone");
    sh(&repo, &format!("{git} git checkout -q -b more HEAD~2; git mv d1 moved; {work}"));
    sh(&repo, &format!("{git} git gc -q --aggressive --prune=now; git fsck --full --strict 2>&1"));
    let mut rig = rig;
    assert!(rig.unmount());
    rig.mount("").unwrap();
    let status = sh(&repo, &format!("{git} git fsck --full --strict 2>&1; git status --porcelain"));
    assert!(status.is_empty(), "{status}");
    let back = "git clone -q --no-local mnt/clone back; cd back; git rev-parse HEAD";
    let (there, here) =
        (sh(&repo, &format!("{git} git rev-parse HEAD")), sh(rig.scratch.path(), &format!("{git} {back}")));
    assert_eq!(there, here);
    rig.finish();
}
