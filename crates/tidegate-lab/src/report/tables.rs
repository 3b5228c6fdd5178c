//! Tables of an experiment: latencies, counters, locks, steps of checkpoints.

use super::text::{count, esc, nanos, num};
use super::{Case, Outcome, Position, colour, latency, percentile};
use crate::result::LockStat;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use tidegate::observe::lockstat::Row;

/// Number of locks shown of each position: those with the longest waits.
const LOCKS: usize = 12;

/// A table by its caption, its columns (all but the first are numbers) and its body.
fn table(caption: &str, columns: &[String], body: &str) -> String {
    let head = |(i, c): (usize, &String)| {
        let class = if i == 0 { "" } else { " class=\"n\"" };
        format!("<th scope=\"col\"{class}>{}</th>", esc(c))
    };
    let head: String = columns.iter().enumerate().map(head).collect();
    let caption = esc(caption);
    format!(
        "<div class=\"wide\"><table><caption>{caption}</caption><thead><tr>{head}</tr></thead>{body}</table></div>"
    )
}

fn row(name: &str, cells: impl IntoIterator<Item = String>) -> String {
    let mut out = format!("<tr><th scope=\"row\">{}</th>", esc(name));
    for c in cells {
        let _ = write!(out, "<td class=\"n\">{}</td>", esc(&c));
    }
    out.push_str("</tr>");
    out
}

/// The line above a position's rows.
fn group(o: &Outcome, name: &str, columns: usize, more: &str) -> String {
    let (k, name) = (colour(o, name), esc(name));
    let more = if more.is_empty() { String::new() } else { format!(" <small>{}</small>", esc(more)) };
    format!(
        "<tr class=\"group\"><th scope=\"rowgroup\" colspan=\"{columns}\"><i class=\"key k{k}\"></i>{name}{more}</th></tr>"
    )
}

fn owned(columns: &[&str]) -> Vec<String> {
    columns.iter().map(|c| c.to_string()).collect()
}

/// Latencies of every kind of operation, in the median run of each position.
pub fn latencies(o: &Outcome, case: &Case) -> Option<String> {
    let (ops, _) = percentile::ops(&case.positions);
    let columns = [owned(&["operation", "operations"]), latency::columns()].concat();
    let mut body = String::new();
    for p in &case.positions {
        let Some(run) = p.drawn_run() else { continue };
        body += &format!("<tbody>{}", group(o, &p.name, columns.len(), ""));
        for (name, op) in ops.iter().filter_map(|n| run.ops.get_key_value(n)) {
            let l = &op.latency;
            body += &row(name, [count(l.count)].into_iter().chain(latency::cells(l)));
        }
        body += "</tbody>";
    }
    let caption = "Latencies in the median run of each position";
    (!ops.is_empty()).then(|| table(caption, &columns, &body))
}

/// The mechanism's counters, medians over the runs.
pub fn counters(case: &Case) -> Option<String> {
    let mut names: Vec<&str> = Vec::new();
    for name in case.positions.iter().flat_map(|p| &p.counters).map(|c| c.name.as_str()) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let value = |p: &Position, n: &str| p.counters.iter().find(|c| c.name == n).map(|c| c.median);
    let cells = |n: &str| {
        let of = |p: &Position| value(p, n).map_or("–".into(), num);
        row(n, case.positions.iter().map(of))
    };
    let body: String = names.iter().map(|n| cells(n)).collect();
    let caption = "The mechanism's counters, medians over the runs";
    (!names.is_empty())
        .then(|| table(caption, &by_position("counter", case), &format!("<tbody>{body}</tbody>")))
}

fn by_position(first: &str, case: &Case) -> Vec<String> {
    [first.to_string()].into_iter().chain(case.positions.iter().map(|p| p.name.clone())).collect()
}

/// All counters of the target in the median run of each position.
pub fn all_counters(case: &Case) -> Option<String> {
    let runs: Vec<Option<&BTreeMap<String, u64>>> =
        case.positions.iter().map(|p| p.drawn_run().map(|r| &r.counters)).collect();
    let names: BTreeSet<&String> = runs.iter().flatten().flat_map(|c| c.keys()).collect();
    let cells = |n: &&String| {
        let of =
            |c: &Option<&BTreeMap<String, u64>>| c.map_or("–".into(), |c| count(*c.get(*n).unwrap_or(&0)));
        row(n, runs.iter().map(of))
    };
    let body: String = names.iter().map(cells).collect();
    let caption = "All counters, in the median run of each position";
    (!names.is_empty())
        .then(|| table(caption, &by_position("counter", case), &format!("<tbody>{body}</tbody>")))
}

/// Locks by the time that threads waited for them, with the columns of `/proc/lock_stat`.
pub fn locks(o: &Outcome, case: &Case) -> Option<String> {
    let columns = owned(&[
        "class",
        "contentions",
        "waittime-max",
        "waittime-total",
        "acquisitions",
        "holdtime-max",
        "holdtime-total",
    ]);
    let mut body = String::new();
    for p in &case.positions {
        let mut locks: Vec<_> = p.drawn_run().map(|r| r.locks.iter().collect()).unwrap_or_default();
        locks.sort_by(|a: &&LockStat, b| {
            (b.wait_total_ns, b.acquisitions, &a.table.class).cmp(&(
                a.wait_total_ns,
                a.acquisitions,
                &b.table.class,
            ))
        });
        if locks.is_empty() {
            continue;
        }
        let more = match locks.len() {
            n if n > LOCKS => format!("the first {LOCKS} of {n} classes"),
            _ => String::new(),
        };
        body += &format!("<tbody>{}", group(o, &p.name, columns.len(), &more));
        for l in locks.iter().take(LOCKS) {
            body += &lock(l);
        }
        body += "</tbody>";
    }
    let caption = "Locks in the median run of each position, most waited for first";
    (!body.is_empty()).then(|| table(caption, &columns, &body))
}

/// A row for each way in which locks of a class were taken; for older results one row.
fn lock(l: &LockStat) -> String {
    let one = |name: &str, counts: [u64; 2], times: [u64; 4]| {
        let [wait_max, wait_total, hold_max, hold_total] = times.map(|ns| nanos(ns as f64));
        let [contentions, acquisitions] = counts.map(count);
        row(name, [contentions, wait_max, wait_total, acquisitions, hold_max, hold_total])
    };
    if l.table.rows.is_empty() {
        let times = [l.wait_max_ns, l.wait_total_ns, l.hold_max_ns, l.hold_total_ns];
        return one(&l.table.class, [l.contentions, l.acquisitions], times);
    }
    let of = |r: &Row| {
        let times = [r.wait.max_ns, r.wait.total_ns, r.hold.max_ns, r.hold.total_ns];
        one(&r.name, [r.contentions, r.acquisitions], times)
    };
    l.table.rows.iter().map(of).collect()
}

/// The time of each step of commits.
pub fn steps(o: &Outcome, case: &Case) -> Option<String> {
    let columns = owned(&["step", "times", "shortest", "mean", "p99", "longest"]);
    let mut body = String::new();
    for p in &case.positions {
        let Some(c) = p.drawn_run().and_then(|r| r.commits.as_ref()) else { continue };
        let merge = if c.merge { "one serves all who wait" } else { "each for itself" };
        let (total, issued) = (count(c.total), count(c.issued));
        let more = format!("{merge}; {issued} issued, {total} served; longest {} ms", c.peak_ms);
        body += &format!("<tbody>{}", group(o, &p.name, columns.len(), &more));
        for s in c.steps.iter().filter(|s| s.count > 0) {
            let times = [s.min_ns, s.mean_ns, s.p99_ns, s.max_ns].map(|v| nanos(v as f64));
            body += &row(&s.name, [count(s.count)].into_iter().chain(times));
        }
        body += "</tbody>";
    }
    let caption = "Steps of commits in the median run of each position, since the volume was opened";
    (!body.is_empty()).then(|| table(caption, &columns, &body))
}
