//! Every table has the published form, and the measured figures.

use super::*;
use crate::commit_log::JBD2_COMMIT;
use crate::cpu::CpuTime;
use crate::experiment::excerpt::Excerpt;
use crate::experiment::outcome::{Position, Published};
use crate::result::{Event, Latency, LockStat, OpStats, RunResult, Series};
use crate::workload::{CkptStorm, FsMark, PgIoPerf, SYS_NS, Spec, StormGroup};
use std::collections::BTreeMap;
use tidegate::observe::bios::SentBio;
use tidegate::observe::lockstat::{CallPoint, Class, Row};
use tidegate::observe::why::{Cause, Part, Slow};

fn position(name: &str, run: RunResult) -> Position {
    Position {
        name: name.into(),
        values: vec![Some(1.5), Some(2.5), None],
        runs: vec![run],
        ..Position::default()
    }
}

fn outcome(experiment: &str, spec: &Spec, positions: Vec<Position>) -> Outcome {
    let case = Case {
        name: "the setting".into(),
        workload: serde_json::to_string(spec).unwrap(),
        published: Some(Published::default()),
        positions,
        ..Case::default()
    };
    Outcome { experiment: experiment.into(), cases: vec![case], ..Outcome::default() }
}

/// The text of a pane, found by the beginnings of its block's title and its own.
fn pane(o: &Outcome, title: &str, whose: &str) -> String {
    let blocks = blocks(o, None);
    let block =
        blocks.iter().find(|b| b.title.starts_with(title)).unwrap_or_else(|| panic!("{title}: {blocks:?}"));
    let pane = block
        .panes
        .iter()
        .find(|p| p.whose.starts_with(whose))
        .unwrap_or_else(|| panic!("{whose}: {block:?}"));
    pane.text.clone()
}

/// The words of each line.
fn words(text: &str) -> Vec<Vec<&str>> {
    text.lines().map(|l| l.split_whitespace().collect()).collect()
}

fn m1() -> Outcome {
    let bio = |tid, what: &str, sector, size, split| SentBio {
        thread: "fs_mark-3".into(),
        tid,
        cpu: (tid == 9).then_some(1),
        at_ns: 1_234_567_000,
        rw: "WRITE_SYNC".into(),
        what: what.into(),
        sector,
        size,
        split,
        ..SentBio::default()
    };
    let lines = vec![
        bio(8, "DATA", 1000, 520_192, false),
        bio(9, "DATA", 2016, 4096, true),
        bio(9, "NODE", 9000, 4096, false),
        bio(8, "DATA", 2024, 520_192, false),
    ];
    let excerpt = Excerpt { lines, bios: 77, split: 5, dropped: 0 };
    let real = CpuTime { user_ns: Some(88_400_000), sys_ns: 72_336_000_000 };
    let simulated = CpuTime { user_ns: None, sys_ns: 1_000_000 };
    let run = |elapsed_ns, cpu| RunResult { elapsed_ns, cpu, ..RunResult::default() };
    let split =
        Position { excerpt: Some(excerpt), ..position("writepages=locked", run(4_244_000_000, Some(real))) };
    let others = [
        position("writepages=submit_locked", run(63_822_000_000, Some(simulated))),
        position("writepages=extent", run(1, None)),
    ];
    outcome("m1", &Spec::FsMark(FsMark::default()), [split].into_iter().chain(others).collect())
}

#[test]
fn bios_stand_as_they_were_traced() {
    let o = m1();
    let line = |whose, i: usize| pane(&o, "Bios", whose).lines().nth(i).unwrap().trim().to_owned();
    let ours = line("writepages=locked: 5 of 77 data bios split", 1);
    let end = "[001] .....     1.234567: f2fs_submit_write_bio: dev = (0,0), rw = WRITE_SYNC, DATA, sector = 2016, \
        size = 4096  <";
    assert_eq!(ours, format!("fs_mark-3-9       {end}"));
    assert!(line("writepages=locked", 0).contains("[---]") && !line("writepages=locked", 0).ends_with('<'));
    assert!(
        line("published", 1).starts_with("fs_mark-6536    [000] .....  2242.270361: f2fs_submit_write_bio")
    );
    assert!(line("published", 1).ends_with("DATA, sector = 5767176, size = 4096  <"));
    assert_eq!(line("writepages=extent", 0), "no events were recorded");
}

#[test]
fn times_stand_as_time_prints_them() {
    let o = m1();
    let time = |whose| pane(&o, "time fs_mark", whose);
    assert_eq!(time("published, before"), "real    0m4.244s\nuser    0m0.088s\nsys     0m12.336s\n");
    assert_eq!(time("writepages=locked"), "real    0m4.244s\nuser    0m0.088s\nsys     1m12.336s\n");
    assert_eq!(time("writepages=submit_locked"), "real    1m3.822s\nuser    –\nsys     0m0.001s\n");
    assert_eq!(time("writepages=extent"), "real    0m0.000s\nuser    –\nsys     –\n");
}

#[test]
fn files_a_second_stand_as_fs_mark_prints_them() {
    let sync = |at_ns, sys| Event {
        at_ns,
        took_ns: 20_000_000,
        name: "sync".into(),
        values: BTreeMap::from([(SYS_NS.to_string(), sys)]),
    };
    let series = |slow: u64| (0..60).map(|i| (if i == 30 || i == 31 { slow } else { 100 }, 0)).collect();
    let run = |slow| RunResult {
        elapsed_ns: 600_000_000,
        series: Series {
            interval_ns: 10_000_000,
            ops: BTreeMap::from([("file".into(), series(slow))]),
            ..Series::default()
        },
        events: vec![sync(300_000_000, 3_000_000), sync(500_000_000, 5_000_000)],
        ..RunResult::default()
    };
    let positions =
        vec![position("sync_wait=flusher", run(5)), position("sync_wait=caller", RunResult::default())];
    let o = outcome("m3", &Spec::FsMark(FsMark { size: 8192, ..FsMark::default() }), positions);
    let table = pane(&o, "fs_mark beside a sync", "sync_wait=flusher");
    let rows = words(&table);
    assert_eq!(rows[0], ["FSUse%", "Count", "Size", "Files/sec", "App", "Overhead"]);
    assert_eq!((rows[1][0], rows.last().unwrap()[0], rows.len()), (".....", ".....", 1 + 1 + 8 + 1));
    // There are 300 files in 30 ms; the slow row has 290 files at the end of 29 intervals, and those made
    // during the sync.
    assert_eq!(rows[4], ["–", "3000", "8192", "10000.0", "–"]);
    assert_eq!(rows[5][..3], ["–", "3300", "8192"]);
    assert_eq!(
        (rows[5][3].parse::<f64>().unwrap() < 6500.0, &rows[5][4..]),
        (true, &["–", "<", "sync"][..]),
        "{table}"
    );
    let columns = |text: &str| text.lines().find(|l| l.contains("Count")).unwrap().to_owned();
    let published = pane(&o, "fs_mark beside a sync", "published");
    assert_eq!(columns(&published), columns(&table));
    assert_eq!(words(&published)[5], ["0", "880000", "4096", "1282.7", "1054367", "<", "sync"]);
    assert_eq!(pane(&o, "fs_mark beside a sync", "sync_wait=caller"), "–");
    let time = |whose| pane(&o, "time sync", whose);
    assert_eq!(time("published, after"), "real    0m6.930s\nuser    0m0.000s\nsys     0m0.039s\n");
    assert_eq!(time("sync_wait=flusher"), "real    0m0.020s\nuser    –\nsys     0m0.004s\n");
    assert_eq!(time("sync_wait=caller"), "–");
}

#[test]
fn the_elapsed_time_is_held_against_the_scaled_one() {
    let group = |times| StormGroup { times, ..StormGroup::default() };
    let spec = Spec::CkptStorm(CkptStorm { groups: vec![group(50), group(0)], ..CkptStorm::default() });
    let o = outcome("m5", &spec, vec![position("nocheckpoint_merge", RunResult::default())]);
    let of = |whose| pane(&o, "Elapsed time of thread A", whose);
    let both = |a, b| {
        format!("[ nocheckpoint_merge ]\nElapsed: avg. {a}\n[ checkpoint_merge ]\nElapsed: avg. {b}\n")
    };
    assert_eq!(of("published, 1000 times"), both("68.00 s", "48.00 s"));
    assert_eq!(of("published, scaled to 50"), both("3.40 s", "2.40 s"));
    assert_eq!(of("ours, 50 times, 1 runs"), both("2.00 s", "–"));
}

fn commits(longest: &[u64]) -> RunResult {
    let latency =
        Latency { count: 23, mean: 18e9, stddev: 41e9, longest: longest.to_vec(), ..Latency::default() };
    let counters = [("queue.kib_us", 3_000_000_000), ("queue.congested_ns", 500_000_000)];
    RunResult {
        elapsed_ns: 24_000_000_000,
        ops: BTreeMap::from([(JBD2_COMMIT.into(), OpStats { latency, ..OpStats::default() })]),
        series: Series {
            interval_ns: 1_000_000_000,
            ops: BTreeMap::from([(
                JBD2_COMMIT.into(),
                (0..24).map(|i| (u64::from(i % 2 == 0), 0)).collect(),
            )]),
            counters: counters.into_iter().map(|(name, by)| (name.to_string(), vec![by; 24])).collect(),
        },
        ..RunResult::default()
    }
}

#[test]
fn commits_stand_as_they_were_published() {
    let part = |what: &str, ns, parts| Part { cause: Cause::Step, what: what.into(), ns, parts };
    let slow: Slow = serde_json::from_value(serde_json::json!({
        "operation": "commit", "transaction": 7, "thread": "tg-jbd2", "at_ns": 0, "ns": 1_000_000_000, "named": 0.971,
        "parts": [part("locked", 900_000_000, vec![part("a handle of tg-flusher", 890_000_000, vec![])]),
            part("logging", 40_000_000, vec![])],
    }))
    .unwrap();
    let off =
        Position { slow_commits: vec![slow], ..position("nomap_first=off", commits(&[274_466_639_000, 5])) };
    let lost = Position { lost_events: 9, name: "nomap_first=on".into(), ..off.clone() };
    let mut o = outcome(
        "m2",
        &Spec::Pgioperf(PgIoPerf::default()),
        vec![off, lost, position("none", RunResult::default())],
    );
    o.cases.push(Case { name: "another".into(), ..o.cases[0].clone() });
    let title = "the setting: transaction commits";
    let published = pane(&o, title, "published, before");
    assert!(
        published
            .starts_with("average     18.000s\nstddev      41.000s\ntop 5:\n  274.466639s\n  126.467347s\n"),
        "{published}"
    );
    let want =
        "average     18.000s\nstddev      41.000s\ntop 5:\n  274.466639s\n    0.000000s\nof 23 commits\n";
    assert_eq!((pane(&o, title, "nomap_first=off"), pane(&o, title, "none")), (want.into(), NONE.into()));
    assert_eq!(pane(&o, "another: transaction commits", "nomap_first=off"), want, "each setting has its own");
    let rows = pane(&o, "the setting: congestion", "nomap_first=off");
    assert_eq!(words(&rows)[1], ["2", "3000", "1.0", "1"], "{rows}");
    let told = pane(&o, "the setting: the slowest commits", "nomap_first=off");
    let want =
        "transaction 7: 1.000 s, 97.1 % named\n   90.0 %  locked\n     89.0 %  a handle of tg-flusher\n";
    assert_eq!(told, want, "less than 5 % is left out");
    assert!(pane(&o, "the setting: the slowest", "nomap_first=on").starts_with("9 events were lost"));
}

#[test]
fn locks_stand_as_in_lock_stat() {
    let row = |letter: &str, contentions| Row {
        name: format!("sbi->cp_rwsem{letter}"),
        contentions,
        ..Row::default()
    };
    let point = |function: &str| CallPoint { count: 4, function: function.into(), place: "a.rs:1".into() };
    let table = Class {
        class: "sbi->cp_rwsem".into(),
        rows: vec![row("-W", 3), row("-R", 4)],
        waiting: vec![point("F2fs::begin_op")],
        holding: vec![point("F2fs::write_checkpoint")],
    };
    let locks = vec![LockStat { table, ..LockStat::default() }, LockStat::default()];
    let run = RunResult { locks, ..RunResult::default() };
    let o = outcome("m5", &Spec::CkptStorm(CkptStorm::default()), vec![position("checkpoint_merge", run)]);
    let (ours, published) = (pane(&o, "lock_stat", "checkpoint_merge"), pane(&o, "lock_stat", "published"));
    let at = |text: &str, line: &str| {
        text.lines().position(|l| l.trim().starts_with(line)).unwrap_or_else(|| panic!("{line}: {text}"))
    };
    for lines in [
        [
            "sbi->cp_rwsem-W:",
            "sbi->cp_rwsem-R:",
            "-------------",
            "sbi->cp_rwsem               4          [<a.rs:1>] F2fs::begin_op",
        ],
        [
            "class name",
            "sbi->cp_rwsem-R:",
            "sbi->cp_rwsem               4          [<a.rs:1>] F2fs::begin_op",
            ".....",
        ],
    ] {
        let found = lines.map(|l| at(&ours, l));
        assert!(found.is_sorted() || lines[2].starts_with('-'), "{found:?} {ours}");
    }
    assert!(ours.contains("[<a.rs:1>] F2fs::write_checkpoint"));
    assert_eq!(ours.lines().nth(2), published.lines().nth(2), "the same columns");
    let words = words(&published);
    let sentry = words.iter().find(|w| w.first() == Some(&"&sit_i->sentry_lock-W:")).unwrap();
    assert_eq!(
        sentry[1..],
        [
            "4644",
            "4846",
            "0.34",
            "1179.80",
            "9679.18",
            "2.00",
            "57326",
            "5920627",
            "1.04",
            "294251.76",
            "61121145.04",
            "10.32"
        ]
    );
    assert!(published.contains("56991          [<0000000025468521>] check_valid_map+0x48/0xd0"));
}

fn with_trees() -> Outcome {
    let tree = "mark;fsync;f2fs_writepages 20\nmark;fsync;f2fs_writepages;f2fs_allocate_data_block 30\n\
        tg-flusher;f2fs_writepages;f2fs_submit_page_write;[lock io->io_rwsem] 50\nmark;fsync 100\n";
    let p = Position { call_tree: tree.into(), ..position("checkpoint_merge", RunResult::default()) };
    outcome("m5", &Spec::CkptStorm(CkptStorm::default()), vec![p])
}

#[test]
fn calls_stand_as_perf_draws_them() {
    let o = with_trees();
    let title = "the setting: calls below f2fs_writepages";
    let ours = pane(&o, title, "checkpoint_merge, with waits");
    let want = "    50.00%    10.00%  f2fs_writepages\n            |\n            ---f2fs_writepages\n               |\n               \
        |--25.00%--f2fs_submit_page_write\n               |          |\n               |           \
        --25.00%--[lock io->io_rwsem]\n               |\n                --15.00%--f2fs_allocate_data_block\n";
    assert_eq!(ours, want);
    let work = pane(&o, title, "checkpoint_merge, without waits");
    assert!(
        work.starts_with("    33.33%    13.33%  f2fs_writepages\n") && !work.contains("submit"),
        "{work}"
    );
    let published = pane(&o, title, "published");
    assert!(
        published.starts_with("    31.97%") && published.contains("|--4.02%--f2fs_allocate_data_block"),
        "{published}"
    );
    let parts = pane(&o, "the setting: the parts", "shares");
    let rows = words(&parts);
    assert_eq!(
        rows[0],
        ["allocate_block", "get_dnode", "update_blkaddr", "set_page_writeback", "submit_page_write"]
    );
    assert_eq!(rows[1][rows[1].len() - 5..], ["12.6%", "18.5%", "5.9%", "12.4%", "11.4%"], "{parts}");
    assert_eq!(rows[3], ["checkpoint_merge", "60.0%", "0.0%", "0.0%", "0.0%", "0.0%"], "{parts}");
}

#[test]
fn another_function_may_be_asked_for() {
    let o = with_trees();
    let text = as_published(std::slice::from_ref(&o), Some("f2fs_submit_page_write"));
    assert!(
        text.contains("calls below f2fs_submit_page_write") && text.contains("--25.00%--[lock io->io_rwsem]"),
        "{text}"
    );
    assert!(!text.contains("allocate"), "{text}");
    let called = |symbol| is_called(std::slice::from_ref(&o), symbol);
    assert!(called("fsync") && !called("fsyn"));
    // An outcome that repeats no published setting has nothing else.
    let mut own = o;
    own.cases[0].published = None;
    assert_eq!(as_published(std::slice::from_ref(&own), None), "");
    assert!(as_published(&[own], Some("fsync")).contains("---fsync\n"));
}

#[test]
fn the_page_and_the_terminal_have_the_same() {
    let o = m1();
    let mut page = String::new();
    html(&mut page, &o, None);
    let text = as_published(std::slice::from_ref(&o), None);
    for line in ["real    1m3.822s", "sector = 2016, size = 4096  &lt;", "writepages=submit_locked"] {
        assert!(page.contains(line), "{line}: {page}");
        assert!(text.contains(&line.replace("&lt;", "<")), "{line}: {text}");
    }
    assert!(page.starts_with("<section") && page.ends_with("</section>"));
}
