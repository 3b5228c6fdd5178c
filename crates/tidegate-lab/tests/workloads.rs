//! Every workload on a volume and on a directory of the host, in real and in simulated time.

use std::sync::Arc;
use tidegate::detect::Format;
use tidegate_block::{Elevator, Preset};
use tidegate_lab::commit_log::JBD2_COMMIT;
use tidegate_lab::workload::{CkptStorm, FsMark, Periodic, PgIoPerf, StormGroup, Streams, SyncMode};
use tidegate_lab::{Directory, Rig, RunResult, Spec, Target, run};
use tidegate_rt::sim;

/// Small workloads with the fewest operations that each must have done, by kind. pgioperf takes `mix_ms`
/// milliseconds.
fn specs(mix_ms: u64) -> Vec<(Spec, Vec<(&'static str, u64)>)> {
    let mark = |sync, loops| FsMark { threads: 3, files: 10, size: 20_000, sync, loops, ..FsMark::default() };
    let mix = PgIoPerf {
        readers: 2,
        file_size: 4 << 20,
        log_size: 1 << 20,
        writes_per_fsync: 16,
        write_pause_us: 500,
        duration_ms: mix_ms,
        ..PgIoPerf::default()
    };
    let groups = vec![
        StormGroup { times: 20, ..StormGroup::default() },
        StormGroup { group: 2, weight: 20, times: 0, threads: 1 },
    ];
    let storm = CkptStorm {
        groups,
        stream_size: 4 << 20,
        readers: 2,
        read_size: 2 << 20,
        creators: 1,
        ..CkptStorm::default()
    };
    let stream = |periodic| Streams { writers: 3, size: 2 << 20, periodic, ..Streams::default() };
    vec![
        (
            Spec::FsMark(mark(SyncMode::Each, 2)),
            vec![("create", 60), ("write", 120), ("fsync", 60), ("close", 60), ("file", 60)],
        ),
        (
            Spec::FsMark(FsMark { sync_every_ms: 5, ..mark(SyncMode::Sync, 1) }),
            vec![("file", 30), ("sync", 1)],
        ),
        (Spec::FsMark(mark(SyncMode::PostReverse, 1)), vec![("fsync", 30)]),
        (Spec::FsMark(FsMark { logs: 2, ..mark(SyncMode::None, 1) }), vec![("file", 30), ("commit", 2)]),
        (
            Spec::Pgioperf(mix),
            vec![("read", 10), ("write", 16), ("wal", 10), ("commit", 2), ("checkpoint", 1)],
        ),
        (
            Spec::CkptStorm(storm),
            vec![
                ("touch+fsync", 21),
                ("touch+fsync g1", 20),
                ("touch+fsync g2", 1),
                ("stream", 1),
                ("read", 2),
                ("create", 1),
                ("unlink", 1),
            ],
        ),
        (
            Spec::Streams(stream(Periodic::FsyncEvery(1 << 20))),
            vec![("write", 48), ("fsync", 6), ("sync", 1)],
        ),
        (Spec::Streams(stream(Periodic::SyncEveryMs(20))), vec![("write", 48), ("sync", 1)]),
    ]
}

#[track_caller]
fn did(r: &RunResult, spec: &Spec, what: &[(&str, u64)]) {
    assert_eq!(r.workload, spec.name());
    assert!(r.elapsed_ns > 0);
    for (op, least) in what {
        let o = r.ops.get(*op).unwrap_or_else(|| panic!("{}: no {op}", r.workload));
        assert!(o.latency.count >= *least, "{}: {} {op}", r.workload, o.latency.count);
        assert_eq!(o.histogram.iter().map(|(_, n)| n).sum::<u64>(), o.latency.count);
        let series = &r.series.ops[*op];
        assert_eq!(series.iter().map(|(n, _)| n).sum::<u64>(), o.latency.count);
        assert_eq!(series.iter().map(|(_, b)| b).sum::<u64>(), o.bytes);
    }
    let seen: u64 = r.events.iter().filter(|e| e.name == "fs_commits").map(|e| e.values["count"]).sum();
    assert_eq!(seen, r.series.counters.get("fs.commits").map_or(0, |s| s.iter().sum()));
    assert!(r.events.is_sorted());
    for (name, by) in &r.counters {
        let sampled: u64 = r.series.counters.get(name).map_or(0, |s| s.iter().sum());
        assert!(sampled <= *by, "{name}: {sampled} of {by}");
    }
}

fn rig(preset: Preset) -> Rig {
    Rig { elevator: Elevator::Wfq(Default::default()), ..Rig::new(preset, 256 << 20) }
}

fn on_volume(preset: Preset, spec: &Spec) -> RunResult {
    let target = Arc::new(rig(preset).build().unwrap());
    let r = run(spec, &(target.clone() as Arc<dyn Target>)).unwrap();
    Arc::into_inner(target).expect("nobody else works on it").unmount().unwrap();
    r
}

#[test]
fn on_a_volume_in_memory() {
    for (spec, what) in specs(600) {
        let r = on_volume(Preset::Ramdisk, &spec);
        did(&r, &spec, &what);
        assert!(r.counters["queue.write_bytes"] > 0 && r.commits.is_some());
    }
}

#[test]
fn on_a_directory() {
    for (spec, what) in specs(600) {
        let dir = tempfile::tempdir().unwrap();
        let target: Arc<dyn Target> = Arc::new(Directory::open(dir.path()).unwrap());
        let r = run(&spec, &target).unwrap();
        did(&r, &spec, &what);
        // A workload that sets weights gets a note that there are none here.
        assert_eq!(r.notes.is_empty(), !matches!(spec, Spec::CkptStorm(_)), "{:?}", r.notes);
        // The second run finds the files of the first.
        did(&run(&spec, &target).unwrap(), &spec, &[]);
    }
}

#[test]
fn in_simulated_time_each_run_is_the_same() {
    for preset in [Preset::Ufs, Preset::Hdd] {
        for (spec, what) in specs(6000) {
            let once = || {
                let spec = spec.clone();
                sim::run(7, 4, move || on_volume(preset, &spec))
            };
            let first = once();
            did(&first, &spec, &what);
            let (a, b) = (serde_json::to_string(&first).unwrap(), serde_json::to_string(&once()).unwrap());
            assert!(a == b, "{preset} {spec:?}: two runs of seed 7 differ");
            let back: RunResult = serde_json::from_str(&a).unwrap();
            assert_eq!(
                (back.events, back.counters, back.series),
                (first.events, first.counters, first.series)
            );
        }
    }
}

#[test]
fn specifications_are_read_and_wrong_ones_refused() {
    let text = r#"{"workload":"fs_mark","threads":16,"size":524288,"sync":"post"}"#;
    let spec: Spec = serde_json::from_str(text).unwrap();
    let want = FsMark { threads: 16, size: 524_288, sync: SyncMode::Post, ..FsMark::default() };
    assert_eq!(spec, Spec::FsMark(want));
    assert_eq!(serde_json::from_str::<Spec>(&serde_json::to_string(&spec).unwrap()).unwrap(), spec);
    for wrong in [r#"{"workload":"fs_mark","treads":1}"#, r#"{"workload":"fsmark"}"#] {
        assert!(serde_json::from_str::<Spec>(wrong).is_err(), "{wrong}");
    }
    let dir = tempfile::tempdir().unwrap();
    let target: Arc<dyn Target> = Arc::new(Directory::open(dir.path()).unwrap());
    let endless = vec![StormGroup { times: 0, ..StormGroup::default() }];
    for spec in [
        Spec::FsMark(FsMark { threads: 0, ..FsMark::default() }),
        Spec::Pgioperf(PgIoPerf { block: 0, ..PgIoPerf::default() }),
        Spec::CkptStorm(CkptStorm { groups: endless, ..CkptStorm::default() }),
        Spec::CkptStorm(CkptStorm { readers: 1, read_size: 4095, ..CkptStorm::default() }),
        Spec::Streams(Streams { block: 0, ..Streams::default() }),
    ] {
        assert!(run(&spec, &target).is_err(), "{spec:?}");
    }
}

/// Commits on ext4, whose journal reports each.
#[test]
fn on_ext4_commits_are_counted_one_by_one() {
    let (mix, _) = specs(2000).remove(4);
    assert_eq!(mix.name(), "pgioperf");
    let once = || {
        let mix = mix.clone();
        let rig = Rig { format: Format::Ext4, options: "journal=jbd2,commit=1".into(), ..rig(Preset::Ufs) };
        sim::run(7, 4, move || {
            let target = Arc::new(rig.build().unwrap());
            // There is something to commit, even if an fdatasync does not need it.
            target.touch("/new").unwrap();
            let r = run(&mix, &(target.clone() as Arc<dyn Target>)).unwrap();
            Arc::into_inner(target).expect("nobody else works on it").unmount().unwrap();
            r
        })
    };
    let r = once();
    assert!(r.target.starts_with("ext4 on"), "{}", r.target);
    let commits = &r.ops[JBD2_COMMIT].latency;
    assert!(commits.count > 0 && commits.count == r.counters["fs.commits"], "{commits:?}");
    let took = r.counters["fs.commit_ns"] as f64 / commits.count as f64;
    assert!((commits.mean / took - 1.0).abs() < 0.01, "{} and {took}", commits.mean);
    let slowest = r.events.iter().filter(|e| e.name == JBD2_COMMIT).max_by_key(|e| e.took_ns).unwrap();
    let phases: u64 = ["locked", "flushing", "logging"].iter().map(|p| slowest.values[*p]).sum();
    assert_eq!(slowest.took_ns, commits.longest[0]);
    assert!(phases <= slowest.took_ns && phases * 100 > slowest.took_ns * 95, "{slowest:?}");
    assert_eq!(serde_json::to_string(&r).unwrap(), serde_json::to_string(&once()).unwrap(), "seed 7");
}

/// A default run in simulated time has a limit and says so; in real time there is none, and neither if it is
/// lifted.
#[test]
fn pgioperf_does_not_simulate_for_ever() {
    let mix = |operations| {
        let huge = PgIoPerf { file_size: 4 << 20, log_size: 1 << 20, duration_ms: 40, ..PgIoPerf::default() };
        Spec::Pgioperf(PgIoPerf { readers: 2, operations, ..huge })
    };
    let simulated = |operations| sim::run(1, 4, move || on_volume(Preset::Nvme, &mix(operations)));
    let count =
        |r: &RunResult| ["read", "write", "wal"].map(|op| r.ops[op].latency.count).iter().sum::<u64>();
    let bounded = simulated(Some(500));
    // The other threads finish the operation that they are in.
    assert!((500..504).contains(&count(&bounded)), "{}", count(&bounded));
    assert!(bounded.elapsed_ns < 40_000_000, "{}", bounded.elapsed_ns);
    assert!(bounded.notes[0].contains("ended after 500 operations"), "{:?}", bounded.notes);
    let whole = simulated(Some(0));
    assert!(whole.elapsed_ns >= 40_000_000 && whole.notes.is_empty(), "{:?}", whole.notes);
    assert!(on_volume(Preset::Nvme, &mix(None)).notes.is_empty(), "real time ends by itself");
}
