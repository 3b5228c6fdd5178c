//! Jobs run by fio itself and here, on one directory.

use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use tidegate_block::Preset;
use tidegate_lab::fio::{self, JobFile, json};
use tidegate_lab::{Directory, Rig, Target};
use tidegate_rt::sim;

const JOBS: &str = "
[global]
size=256k
bs=4k
ioengine=psync
randseed=5

[write]
rw=write
fsync=8
end_fsync=1
numjobs=2

[mixed]
stonewall
rw=randrw
rwmixread=70
bs=8k
nrfiles=2
fdatasync=4

[readers]
stonewall
rw=randread
numjobs=3
filename=shared
group_reporting

[timed]
stonewall
rw=read
time_based
runtime=200ms
thinktime=1ms
";

fn by_fio(dir: &Path) -> Option<Value> {
    let file = dir.join("jobs.fio");
    std::fs::write(&file, JOBS.replace("[global]", &format!("[global]\ndirectory={}", dir.display())))
        .unwrap();
    match Command::new("fio").arg("--output-format=json").arg(&file).output() {
        Ok(out) => {
            assert!(out.status.success(), "fio: {}", String::from_utf8_lossy(&out.stderr));
            let text = String::from_utf8(out.stdout).unwrap();
            Some(serde_json::from_str(&text[text.find('{').unwrap()..]).unwrap())
        }
        Err(e) => {
            assert!(std::env::var_os("CI").is_none_or(|v| v != "true"), "fio: {e} (Debian package fio)");
            eprintln!("skipped: fio is not installed (Debian package fio)");
            None
        }
    }
}

fn here(target: &Arc<dyn Target>) -> Value {
    let outcome = fio::run(&JobFile::parse(JOBS).unwrap(), target).unwrap();
    serde_json::from_str(&json::Output::new(&outcome).to_json()).unwrap()
}

/// All names in a value, as paths; names that the user or a percentage gives are left out.
fn names(v: &Value, path: &str, out: &mut BTreeSet<String>) {
    match v {
        Value::Object(m) if path.ends_with("options") || path.ends_with("percentile") => {
            out.extend(m.keys().filter(|_| path.ends_with("percentile")).map(|k| format!("{path}/{k}")));
        }
        Value::Object(m) => {
            for (k, v) in m {
                out.insert(format!("{path}/{k}"));
                names(v, &format!("{path}/{k}"), out);
            }
        }
        Value::Array(a) => a.iter().for_each(|v| names(v, path, out)),
        _ => {}
    }
}

/// For each job: name, group, and the amounts of each direction.
fn work(v: &Value) -> Vec<(String, u64, [u64; 5])> {
    let number = |v: &Value| v.as_u64().unwrap();
    let one = |j: &Value| {
        let (r, w) = (&j["read"], &j["write"]);
        let sync = number(&j["sync"]["total_ios"]);
        let n = [&r["io_bytes"], &r["total_ios"], &w["io_bytes"], &w["total_ios"]].map(number);
        let all = [n[0], n[1], n[2], n[3], sync];
        (j["jobname"].as_str().unwrap().to_string(), number(&j["groupid"]), all)
    };
    v["jobs"].as_array().unwrap().iter().map(one).collect()
}

#[test]
fn the_same_jobs_do_the_same_as_with_fio() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let Some(theirs) = by_fio(dirs[0].path()) else { return };
    let ours = here(&(Arc::new(Directory::open(dirs[1].path()).unwrap()) as Arc<dyn Target>));
    let (mut known, mut used) = (BTreeSet::new(), BTreeSet::new());
    names(&theirs, "", &mut known);
    names(&ours, "", &mut used);
    let strange: Vec<_> = used.difference(&known).collect();
    assert!(strange.is_empty(), "fio has no {strange:?}");
    let (a, b) = (work(&theirs), work(&ours));
    assert_eq!(a.len(), b.len(), "{a:?}\n{b:?}");
    for ((name, group, a), (our_name, our_group, b)) in a.into_iter().zip(b) {
        assert_eq!((name.as_str(), group), (our_name.as_str(), our_group));
        match name.as_str() {
            // The random choices differ; the amounts do not.
            "mixed" => assert_eq!((a[0] + a[2], a[1] + a[3]), (b[0] + b[2], b[1] + b[3])),
            "timed" => assert!(b[1] > 10 && b[0] == b[1] * 4096, "{b:?}"),
            _ => assert_eq!(a[..4], b[..4], "{name}"),
        }
        // fio does not count the calls of fdatasync=.
        if name != "mixed" {
            assert_eq!(a[4] > 0, b[4] > 0, "{name}: {} and {} syncs", a[4], b[4]);
        }
    }
    let files = |d: &tempfile::TempDir| {
        let names = std::fs::read_dir(d.path()).unwrap().map(|e| e.unwrap());
        let names = names.filter(|e| e.file_name() != "jobs.fio");
        names.map(|e| (e.file_name(), e.metadata().unwrap().len())).collect::<BTreeSet<_>>()
    };
    assert_eq!(files(&dirs[0]), files(&dirs[1]));
}

#[test]
fn jobs_run_on_a_volume_in_simulated_time() {
    let once = || {
        sim::run(3, 2, || {
            let volume = Arc::new(Rig::new(Preset::Ufs, 128 << 20).build().unwrap());
            let out = here(&(volume.clone() as Arc<dyn Target>));
            Arc::into_inner(volume).unwrap().unmount().unwrap();
            out
        })
    };
    let first = once();
    assert_eq!(first, once());
    let work = work(&first);
    assert_eq!(
        work.iter().map(|w| w.0.as_str()).collect::<Vec<_>>(),
        ["write", "write", "mixed", "readers", "timed"]
    );
    assert_eq!(work[0].2, [0, 0, 256 << 10, 64, 9]);
    assert_eq!(work[3].2[..2], [3 * (256 << 10), 192]);
    // The job pauses for 1 ms and does hardly anything else.
    assert!((150..=200).contains(&work[4].2[1]), "{work:?}");
}

#[test]
fn direct_reads_and_writes_go_around_the_page_cache() {
    // Not every file system of a host supports O_DIRECT; the build directory's mostly does.
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let target: Arc<dyn Target> = Arc::new(Directory::open(dir.path()).unwrap());
    let file = JobFile::parse("[d]\nrw=rw\nsize=128k\ndirect=1\nrate_iops=2000").unwrap();
    match fio::run(&file, &target) {
        Ok(o) => assert_eq!(o.jobs[0].read.bytes + o.jobs[0].write.bytes, 128 << 10),
        Err(e) => assert!(e.to_string().contains("Invalid argument"), "{e}"),
    }
}

#[test]
fn a_volume_says_that_nothing_goes_around_its_page_cache() {
    let notes = |text: &'static str| {
        sim::run(1, 2, move || {
            let volume: Arc<dyn Target> = Arc::new(Rig::new(Preset::Ufs, 128 << 20).build().unwrap());
            fio::run(&JobFile::parse(text).unwrap(), &volume).unwrap().notes
        })
    };
    let said = notes("[d]\nrw=write\nsize=64k\ndirect=1\n[e]\nsize=64k\nbuffered=0");
    assert!(said.len() == 1 && said[0].starts_with("direct=1 is not done on a volume"), "{said:?}");
    assert!(notes("[d]\nrw=write\nsize=64k\ndirect=0").is_empty());
}
