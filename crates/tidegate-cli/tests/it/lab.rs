//! `tidegate lab`: obstacles are reported before anything is run, and existing files are not touched.

use crate::common::Bench;
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

const NOBODY: u32 = 65_534;

const RACE: [&str; 8] = ["lab", "compare", "--files", "5", "--runs", "2", "--target", "sim:ufs"];

#[test]
fn a_target_that_fails_costs_nothing_but_itself() {
    let b = Bench::new();
    b.ok(&["mkfs", "--size", "64M", "v.img"]);
    fs::create_dir(b.path("d")).unwrap();
    let targets = ["--target", "image:nowhere.img", "--target", "image:v.img", "--target", "dir:d"];
    let out = b.command(&[&RACE[..], &targets].concat()).output().unwrap();
    assert_eq!(out.status.code(), Some(1));
    let said = String::from_utf8(out.stderr).unwrap();
    assert!(said.contains("image:nowhere.img"), "{said}");
    let kept: Value =
        serde_json::from_slice(&fs::read(b.path("tidegate-lab/compare.json")).unwrap()).unwrap();
    let ran: Vec<_> = kept["cases"][0]["positions"].as_array().unwrap().iter().map(|p| &p["name"]).collect();
    assert_eq!(ran, ["sim:ufs", "image:v.img", "dir:d"]);
    assert_eq!(fs::read_dir(b.path("d")).unwrap().count(), 0);
    assert_eq!(b.ok(&["ls", "v.img:/"]), "");
    b.fsck("v.img");
    let json = |args: &[&str]| {
        let printed = b.ok(&[&RACE[..], &["--json"], args].concat());
        let v: Value = serde_json::from_str(&printed).unwrap();
        let kept = fs::read(b.path("tidegate-lab/compare.json")).unwrap();
        let kept: Value = serde_json::from_slice(&kept).unwrap();
        let (head, dated) = (&v[0]["head"], &kept["head"]);
        let date = dated["date"].as_str().unwrap();
        assert!(date.len() == 20 && date.ends_with('Z') && &date[10..11] == "T", "{dated}");
        assert!(head.get("date").is_none(), "in simulated time it is the same at any time: {head}");
        assert!(head["commit"].as_str().is_some_and(|c| !c.is_empty()) && head["quick"] == false, "{head}");
        assert_eq!(head["commit"], dated["commit"]);
        printed
    };
    assert_eq!(json(&[]), json(&[]), "simulated");
    assert_ne!(json(&["-o", "fsync_mode=strict"]), json(&[]), "options of every command count");
    assert!(b.fails(&[&RACE[..], &["-o", "bogus=1"]].concat(), 1).contains("bogus"));
}

#[test]
fn models_have_the_format_that_is_asked_for_and_others_their_own() {
    let b = Bench::new();
    let ext4 = b.ok(&[&RACE[..], &["--format", "ext4", "-o", "journal=jbd2", "--json"]].concat());
    let v: Value = serde_json::from_str(&ext4).unwrap();
    let run = &v[0]["cases"][0]["positions"][0]["runs"][0];
    assert!(run["target"].as_str().unwrap().starts_with("ext4 on"), "{run}");
    assert!(run["ops"]["jbd2_commit"]["latency"]["count"].as_u64() > Some(0), "{run}");
    let line = b.fails(&["lab", "compare", "--target", "dir:.", "--format", "ext4"], 1);
    assert!(line.contains("--format: dir:. has its own"), "{line}");
}

#[test]
fn a_report_leaves_out_what_is_no_result() {
    let b = Bench::new();
    b.ok(&RACE);
    let dir = b.path("tidegate-lab");
    fs::write(dir.join("m1.json"), "{\"experiment\":\"m1\"").unwrap();
    fs::write(dir.join("t.json"), "{\"traceEvents\":[]}").unwrap();
    let out = b.command(&["lab", "report"]).output().unwrap();
    let said = String::from_utf8(out.stderr).unwrap();
    assert!(out.status.success() && said.contains("m1.json") && said.contains("t.json"), "{said}");
    let page = fs::read_to_string(dir.join("report.html")).unwrap();
    assert!(page.contains("fs_mark on 1 target<") && page.contains("eUFS 3.0"));
    fs::remove_file(dir.join("compare.json")).unwrap();
    let out = b.command(&["lab", "report"]).output().unwrap();
    assert!(!out.status.success() && String::from_utf8(out.stderr).unwrap().contains("no results yet"));
    assert!(!fs::read_dir(&dir).unwrap().any(|e| e.unwrap().path().extension().is_some_and(|x| x == "new")));
}

#[test]
fn nothing_is_run_that_could_not_be_kept() {
    let b = Bench::new();
    fs::write(b.path("file"), "").unwrap();
    fs::write(b.path("mine.img"), "mine").unwrap();
    let line = b.fails(&["lab", "run", "m1", "--device", "file:made.img", "--out", "file"], 1);
    assert!(line.contains("file") && !b.path("made.img").exists(), "{line}");
    let line = b.fails(&["lab", "run", "m1", "--quick", "--device", "file:mine.img"], 1);
    assert!(line.contains("is there already"), "{line}");
    assert_eq!(fs::read(b.path("mine.img")).unwrap(), b"mine");
    for wrong in [["--device", "zns"], ["--runs", "0"]] {
        let out = b.command(&[&["lab", "run", "m1"], &wrong[..]].concat()).output().unwrap();
        assert_eq!(out.status.code(), Some(2), "{wrong:?}");
    }
}

#[test]
fn a_job_file_runs_on_any_target() {
    let b = Bench::new();
    b.ok(&["mkfs", "--size", "64M", "v.img"]);
    fs::write(b.path("j.fio"), "[global]\nsize=256k\n[w]\nrw=write\nfsync=8\nioengine=libaio\n").unwrap();
    let out = b.command(&["lab", "fio", "j.fio", "--target", "image:v.img", "--json"]).output().unwrap();
    let v: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(v["jobs"][0]["write"]["total_ios"], 64);
    assert!(String::from_utf8(out.stderr).unwrap().contains("libaio"), "what is done otherwise is said");
    assert!(b.ok(&["ls", "-l", "v.img:/"]).contains("262144"));
    let table = b.ok(&["lab", "fio", "j.fio", "--target", "sim:nvme", "-q"]);
    assert!(table.lines().any(|l| l.starts_with("w") && l.contains("write")), "{table}");
    fs::write(b.path("j.fio"), "[w]\nsize=1m\nfrobnicate=1").unwrap();
    let line = b.fails(&["lab", "fio", "j.fio", "--target", "sim:nvme"], 1);
    assert!(line.contains("line 3") && line.contains("frobnicate"), "{line}");
}

#[test]
fn an_experiment_of_ones_own_is_a_file() {
    let b = Bench::new();
    let text = "name = \"own\"\ndevices = [\"sim:ufs\"]\nseeds = [7, 9]\n\
        [workload]\nworkload = \"fs_mark\"\nfiles = [3, 5]\n[options]\nsync_wait = [\"flusher\", \"caller\"]\n";
    fs::write(b.path("own.toml"), text).unwrap();
    let v: Value = serde_json::from_str(&b.ok(&["lab", "run", "own.toml", "--json"])).unwrap();
    assert_eq!(
        (&v[0]["experiment"], &v[0]["cases"][1]["seeds"]),
        (&"own".into(), &serde_json::json!([7, 9]))
    );
    let rows = fs::read_to_string(b.path("tidegate-lab/own.csv")).unwrap();
    // Two numbers of files, two positions, two runs; create, write, fsync, close, file.
    assert_eq!(rows.lines().count(), 1 + 2 * 2 * 2 * 5, "{rows}");
    let table = b.ok(&["lab", "run", "own.toml", "--runs", "1", "-q"]);
    assert!(table.contains("fs_mark, files=3 on sim:ufs") && table.contains("own: "), "{table}");
    assert!(b.ok(&["lab", "report", "--picture", "r.svg"]).contains("report.html"));
    assert!(fs::read_to_string(b.path("r.svg")).unwrap().contains("<svg role=\"img\""));
    assert!(b.fails(&["lab", "run", "own.toml", "--device", "hdd"], 1).contains("in the file"));
    fs::write(b.path("own.toml"), text.replace("files =", "flies =")).unwrap();
    assert!(b.fails(&["lab", "run", "own.toml"], 1).contains("flies"));
    assert!(b.fails(&["lab", "run", "nowhere.toml"], 1).contains("nowhere.toml"));
}

/// The runs are done in this process one by one, and in other processes side by side.
#[test]
fn runs_side_by_side_are_the_same_runs() {
    let b = Bench::new();
    let run = |jobs: &str| b.ok(&["lab", "run", "m5", "--quick", "--runs", "2", "--json", "--jobs", jobs]);
    let one_by_one = run("1");
    assert!(one_by_one.contains("call_tree"), "looked at");
    assert_eq!(one_by_one, run("3"));
    let line = b.fails(&["lab", "run", "m5", "--quick", "--jobs", "2", "-o", "bogus=1"], 1);
    assert!(line.contains("bogus=1"), "{line}");
    for wrong in ["0", "many"] {
        let out = b.command(&["lab", "run", "m5", "--jobs", wrong]).output().unwrap();
        assert!(String::from_utf8(out.stderr).unwrap().contains("--jobs"), "{wrong}");
    }
}

#[test]
fn a_run_that_nobody_names_is_an_error() {
    let b = Bench::new();
    let mut command = b.command(&["lab-run"]);
    let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"{}\n").unwrap();
    let out = child.wait_with_output().unwrap();
    let said = String::from_utf8(out.stderr).unwrap();
    assert!(
        !out.status.success() && said.starts_with("tidegate: lab-run: ") && said.contains("experiment"),
        "{said}"
    );
}

/// The threads first wait for each other, but not for a thread that could not be started.
#[test]
fn a_thread_that_cannot_be_started_ends_the_run() {
    let b = Bench::new();
    fs::create_dir(b.path("d")).unwrap();
    let race = "lab compare --target dir:d --threads 4000 --files 3 --runs 1";
    // The superuser has no limit of processes, so a test of the superuser runs as another user.
    let mut command = Command::new("prlimit");
    command.arg("--nproc=1000").arg(b.program()).args(race.split(' ')).current_dir(b.path("."));
    if rustix::process::geteuid().is_root() {
        for path in [b.path("."), b.path("d")] {
            chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        command.uid(NOBODY).gid(NOBODY);
    }
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let since = std::time::Instant::now();
    while child.try_wait().unwrap().is_none() {
        if since.elapsed().as_secs() > 120 {
            child.kill().unwrap();
            panic!("it waits for a thread that is not there");
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let out = child.wait_with_output().unwrap();
    let said = String::from_utf8(out.stderr).unwrap();
    assert!(!out.status.success() && said.contains("could not be started"), "{said}");
}
