//! The page is complete: every drawing is well-formed, nothing is loaded, every name is there.

use super::*;
use crate::experiment::comparison::{Because, Comparison, Rule};
use crate::experiment::outcome::{Counted, Head, Published};
use crate::result::{Event, Latency, LockStat, OpStats, RunResult, Series};
use std::collections::BTreeMap;
use tidegate::observe::lockstat;
use tidegate_vfs::{CommitStats, StepStats};

fn run(slow: u64) -> RunResult {
    let histogram: Vec<(u64, u64)> = (1..200).map(|i| (i * i * slow * 1000, 400 / i + 1)).collect();
    let count = histogram.iter().map(|h| h.1).sum();
    let percentiles = BTreeMap::from([("50.000000".to_string(), 9000 * slow)]);
    let latency =
        Latency { count, min: 1, max: 9, mean: 5e6, stddev: 1.23e6, longest: vec![9 * slow, 8], percentiles };
    let series: Vec<(u64, u64)> = (0..1000).map(|i| (i % 7, i % 7 * 65536)).collect();
    let counters = BTreeMap::from([
        ("queue.write_bios".to_string(), vec![4; 1000]),
        ("queue.write_bytes".to_string(), (0..1000).map(|i| i * 4096).collect()),
        ("fs.commits".to_string(), (0..1000).map(|i| u64::from(i % 50 == 0)).collect()),
    ]);
    let sync =
        |at_ns| Event { at_ns, took_ns: slow * 90_000_000, name: "sync".into(), values: BTreeMap::new() };
    let step = StepStats { name: "flush <nat>".into(), count: 4, mean_ns: 2, ..StepStats::default() };
    RunResult {
        workload: "fs_mark".into(),
        elapsed_ns: 100_000_000_000,
        ops: BTreeMap::from([("file".to_string(), OpStats { bytes: 1, latency, histogram })]),
        series: Series {
            interval_ns: 100_000_000,
            ops: BTreeMap::from([("file".to_string(), series)]),
            counters,
        },
        events: (0..30).map(|i| sync(i * 3_000_000_000)).collect(),
        counters: BTreeMap::from([("queue.flushes".to_string(), 12_345)]),
        commits: Some(CommitStats { steps: vec![step], ..CommitStats::default() }),
        locks: vec![LockStat { table: lock_class(), wait_total_ns: 5, ..LockStat::default() }],
        notes: vec!["a <note>".into()],
        ..RunResult::default()
    }
}

fn lock_class() -> lockstat::Class {
    let row = |letter, n| lockstat::Row {
        name: format!("sbi->writepages{letter}"),
        contentions: n,
        acquisitions: 10 * n,
        ..lockstat::Row::default()
    };
    let point = |function: &str, count| lockstat::CallPoint {
        count,
        function: function.into(),
        place: "a.rs:1".into(),
    };
    lockstat::Class {
        class: "sbi->writepages".into(),
        rows: vec![row("-W", 3), row("-R", 4)],
        waiting: vec![point("F2fs::waits<T>", 7)],
        holding: vec![point("F2fs::holds", 7)],
    }
}

fn position(name: &str, slow: u64) -> Position {
    let m = slow as f64;
    let metric = Estimate { median: m, low: m * 0.9, high: m * 1.2 };
    let counters =
        vec![Counted { name: "stray bios".into(), median: 3.5, values: vec![Some(3.0), Some(4.0)] }];
    let values = vec![Some(m), Some(m * 1.1)];
    let call_tree = "mark;fsync <x> 60\nmark;[lock i_rwsem] 40\n".into();
    Position {
        name: name.into(),
        metric,
        values,
        counters,
        runs: vec![run(slow), run(slow + 1)],
        drawn: 1,
        call_tree,
        excerpt: None,
        slow_commits: Vec::new(),
        lost_events: 0,
    }
}

fn outcome() -> Outcome {
    let because = Because { larger: "of <this>", ..Because::default() };
    let case = Case {
        name: "one sync & 16 threads".into(),
        target: "f2fs on \"hdd\"".into(),
        workload: "{\"workload\":\"fs_mark\"}".into(),
        metric: "seconds of a sync".into(),
        seeds: vec![5, 6],
        order: vec![vec![2, 0, 1], vec![1, 0, 2]],
        less_is_better: true,
        published: Some(Published { before: 52.4, after: 6.9, ..Published::default() }),
        positions: vec![
            position("sync_wait=flusher", 50),
            position("sync_wait=caller", 7),
            position("sync_wait=epoch", 3),
        ],
        comparisons: vec![
            Comparison::reproduces("flusher / caller", 7.5, &[7.1, 7.2, 7.1], because),
            Comparison::reproduces("flusher / epoch", 7.5, &[16.0, 16.1, 16.2], because),
            Comparison::reproduces("flusher / none", 7.5, &[], because),
            Comparison::ratio("caller / epoch", Rule::AtLeast(1.0), &[2.3, 2.4]),
            Comparison::figure("KiB of a bio", Rule::AtLeast(508.0), &[400.0, 402.0]),
            Comparison::shown("the kernel", 7.5, &[0.9, 0.9]),
        ],
    };
    let plain =
        Case { comparisons: Vec::new(), published: None, name: "without bars".into(), ..case.clone() };
    Outcome {
        experiment: "m3".into(),
        title: "sync(2) <waits>".into(),
        mechanism: "The flusher submits & does not wait.".into(),
        cases: vec![case, plain, Case::default()],
        notes: vec!["said http://example.org/ & more".into()],
        ..Outcome::default()
    }
}

fn page() -> String {
    let folded = vec![("writes".to_string(), "a;b<T>;c 5\na;d 7\ne 1\n".to_string())];
    html(&[outcome()], &Extras { folded, ..Extras::default() })
}

/// The number of elements of `text`, which must nest; the error names the place where they do not.
fn nested(text: &str) -> Result<usize, String> {
    let (mut open, mut seen, mut rest) = (Vec::new(), 0, text);
    while let Some(at) = rest.find('<') {
        let end = rest[at..].find('>').ok_or("a tag without an end")? + at;
        let (between, tag) = (&rest[..at], &rest[at + 1..end]);
        if between.contains('>') || between.replace("&amp;", "").contains("& ") {
            return Err(format!("not escaped: {between}"));
        }
        if let Some(name) = tag.strip_prefix('/') {
            let last = open.pop();
            if last != Some(name) {
                return Err(format!("</{name}> closes {last:?}"));
            }
        } else {
            seen += 1;
            if tag.matches('"').count() % 2 != 0 {
                return Err(format!("quotes: <{tag}>"));
            }
            if !tag.ends_with('/') {
                open.push(tag.split(' ').next().unwrap_or(tag));
            }
        }
        rest = &rest[end + 1..];
    }
    if open.is_empty() { Ok(seen) } else { Err(format!("left open: {open:?}")) }
}

#[test]
fn elements_nest() {
    assert!(nested("<a><b></a></b>").is_err() && nested("<a>").is_err() && nested("<a>1 > 0</a>").is_err());
    let page = page();
    // These are the elements that XML requires to be closed.
    let body = &page[page.find("<body>").unwrap()..page.rfind("</html>").unwrap()];
    assert!(nested(body).unwrap() > 300);
    let drawings: Vec<&str> = body.split("<svg").skip(1).collect();
    for d in &drawings {
        let one = format!("<svg{}", &d[..d.find("</svg>").unwrap() + 6]);
        nested(&one).unwrap();
        assert!(!one.contains("NaN") && !one.contains("inf\"") && !one.contains("infL"), "{one}");
        assert!(one.contains("aria-hidden") || one.contains("<title>") && one.contains("<desc>"), "{one}");
    }
    // Ratios; for two cases, a metric, percentiles, throughput, bio size, the legend's three, and three call
    // trees; one further call tree.
    assert_eq!(drawings.len(), 1 + 2 * (4 + 3 + 3) + 1);
}

#[test]
fn a_picture_stands_by_itself() {
    let drawn = picture(&[outcome(), outcome()]).unwrap();
    assert!(nested(&drawn).unwrap() > 30);
    assert!(
        !drawn.contains("var(") && !drawn.contains("@media") && drawn.contains("fill=\"#fff\""),
        "{drawn}"
    );
    // Each class that a drawing names has a rule.
    for class in ["grid", "whisker", "ours", "published", "title"] {
        assert!(
            drawn.contains(&format!("class=\"{class}\"")) && drawn.contains(&format!(".{class}{{")),
            "{class}"
        );
    }
    let tops: Vec<&str> = drawn.match_indices("translate(0 ").map(|(at, _)| &drawn[at..at + 20]).collect();
    assert!(tops.len() == 2 && tops[0] != tops[1], "{tops:?}");
    assert!(picture(&[]).is_none());
}

#[test]
fn nothing_is_loaded() {
    let page = page();
    for loads in ["src=", "url(", "@import", "<script", "<link", "<iframe", "xlink"] {
        assert!(!page.contains(loads), "{loads}");
    }
    for (at, _) in page.match_indices("href=\"") {
        assert!(page[at + 6..].starts_with('#'));
    }
}

#[test]
fn everybody_is_named() {
    let page = page();
    let names =
        ["sync_wait=flusher", "sync_wait=caller", "sync_wait=epoch", "stray bios", "sbi-&gt;writepages-R<"];
    for name in names.into_iter().chain([
        "flush &lt;nat&gt;",
        "b&lt;T&gt;",
        "a &lt;note&gt;",
        "p99.99",
        "12,345",
        "longest 5",
        "1.23\u{a0}ms",
    ]) {
        assert!(page.contains(name), "{name}");
    }
    let why = "larger than published, because of &lt;this&gt;";
    for verdict in
        ["✗ no<", "✓ yes<", "~ partly<", "· shown<", why, "Of 5 comparisons 2 reproduce, 1 partly, 2 not"]
    {
        assert!(page.contains(verdict), "{verdict}");
    }
    assert_eq!(page, self::page(), "equal outcomes give equal bytes");
}

#[test]
fn the_head_says_when_and_by_what() {
    let head = |quick| Head {
        date: "2026-11-23T15:04:05Z".into(),
        version: "0.1.0".into(),
        commit: "0123456789ab".into(),
        machine: "<cpu>, 2 CPUs, Linux 6.18".into(),
        quick,
    };
    let of =
        |experiment: &str, quick| Outcome { experiment: experiment.into(), head: head(quick), ..outcome() };
    let outcomes = [of("m1", true), of("m3", true), of("m5", false)];
    let said =
        "m1, m3: 2026-11-23T15:04:05Z, tidegate 0.1.0, commit 0123456789ab, <cpu>, 2 CPUs, Linux 6.18, quick";
    let page = html(&outcomes, &Extras::default());
    assert!(page.contains(&text::esc(said)) && page.contains("m5: ") && page.contains("Linux 6.18, full"));
    let table = table(&outcomes, false);
    assert!(table.replace('\n', " ").starts_with(said), "{table}");
}

#[test]
fn other_programs_read_every_run() {
    let text = csv(&outcome()).unwrap();
    let mut read = ::csv::Reader::from_reader(&text[..]);
    let rows: Vec<BTreeMap<String, String>> = read.deserialize().map(Result::unwrap).collect();
    assert_eq!(rows.len(), 2 * 3 * 2, "cases with positions, positions, runs");
    let of = |i: usize, column: &str| &*rows[i][column];
    let which = |i| [of(i, "position"), of(i, "round"), of(i, "seed"), of(i, "place")];
    assert_eq!(which(0), ["sync_wait=flusher", "1", "5", "2"]);
    assert_eq!(which(1), ["sync_wait=flusher", "2", "6", "2"]);
    assert_eq!(which(4), ["sync_wait=epoch", "1", "5", "1"]);
    assert_eq!([of(1, "operation"), of(1, "p50_ns"), of(1, "p99_ns")], ["file", "459000", ""]);
    assert_eq!([of(0, "case"), of(0, "value")], ["one sync & 16 threads", "50.0"]);
}

#[test]
fn the_median_run_is_drawn() {
    let page = page();
    // The p50 of the second run of the first position, which is the drawn one, and not of the first run.
    assert!(page.contains("459\u{a0}µs") && !page.contains("450\u{a0}µs"));
    assert!(page.contains("seeds 5, 6,") || page.contains("seeds 5 to 6,"), "how it was measured");
}

#[test]
fn call_trees_are_there_or_asked_for() {
    let page = page();
    for part in ["sync_wait=caller: call tree of the median run", "[lock i_rwsem]: 40.0 % (40)"] {
        assert!(page.contains(part), "{part}");
    }
    assert!(page.contains("fsync &lt;x&gt;: 60.0 %") && !page.contains("No call tree was recorded"));
    let mut without = outcome();
    without.cases.iter_mut().flat_map(|c| &mut c.positions).for_each(|p| p.call_tree.clear());
    let page = html(&[without], &Extras::default());
    assert!(page.contains("<code>tidegate lab run m3 --profile FILE</code>"), "how to get one");
}

#[test]
fn a_colour_is_for_one_position() {
    let o = outcome();
    let of = |n| colour(&o, n);
    assert_eq!([of("sync_wait=flusher"), of("sync_wait=caller"), of("sync_wait=epoch")], [0, 1, 2]);
}

#[test]
fn a_long_series_stays_small() {
    assert!(page().len() < 180_000, "{}", page().len());
}

#[test]
fn nothing_measured_is_a_page_too() {
    let empty = html(&[Outcome::default()], &Extras::default());
    assert!(empty.contains("0 runs of each position"));
    assert!(html(&[], &Extras::default()).contains("No experiment was measured"));
    assert_eq!(table(&[], false).lines().count(), 1);
}

#[test]
fn the_terminal_has_the_same_table() {
    let plain = table(&[outcome()], false);
    // A heading and two lines about few runs; for each case a blank line and its name; positions; figures;
    // three reasons; notes; published figures.
    assert_eq!(plain.lines().count(), 3 + 3 * 2 + 3 + 3 + (6 + 1) + 3 + 2 + 1, "{plain}");
    assert_eq!(plain.lines().filter(|l| *l == "  a <note>").count(), 2, "once in a case");
    assert!(!plain.contains('\x1b'));
    let words: Vec<String> =
        plain.lines().map(|l| l.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    for s in [
        "ours between published reproduces",
        "between: of a position with fewer than six runs the least and the greatest,",
        "m3 one sync & 16 threads: seconds of a sync",
        "flusher 50 45–60",
        "caller 7 6.3–8.4",
        "flusher / caller 7.13× 6.99–7.28 7.5× yes",
        "flusher / epoch 16.1× 15.9–16.4 7.5× partly",
        "flusher / none – 7.5× no",
        "not measured",
        "larger than published, because of <this>",
        "KiB of a bio 401 388–414 ≥ 508 no",
        "the kernel 0.9× 0.9–0.9 7.5× shown",
    ] {
        assert!(words.iter().any(|w| w == s), "{s}:\n{plain}");
    }
    assert!(plain.lines().all(|l| l.chars().count() <= 80), "{plain}");
    let mut many = outcome();
    many.cases.iter_mut().for_each(|c| c.seeds = (1..=7).collect());
    let many = table(&[many], false);
    assert!(many.lines().next().is_some_and(|l| l.contains("  95 %")) && !many.contains("between"), "{many}");
    let coloured = table(&[outcome()], true);
    for (style, verdict) in [("32", "yes"), ("33", "partly"), ("31", "no")] {
        let line =
            |l: &str| l.starts_with(&format!("\x1b[{style}m")) && l.contains(&format!("  {verdict}\x1b"));
        assert!(coloured.lines().any(line), "{verdict}: {coloured}");
    }
    let evil = Outcome { experiment: "\x1b[2J".into(), cases: vec![Case::default()], ..Outcome::default() };
    assert!(!table(&[evil], false).contains('\x1b'));
}
