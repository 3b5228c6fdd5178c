//! The findings, on a page.

use super::{Kind, Part, Report, Slow};
use std::fmt::Write as _;
use std::io::{self, Write};

/// The most operations that threads waited for on the page.
const WAITED_FOR: usize = 10;
/// The most checkpoints and commits on the page: they are also parts of other operations.
const CHECKPOINTS: usize = 3;
/// The most parts of one operation.
const PARTS: usize = 6;
/// The most parts of a part.
const WITHIN: usize = 4;
/// Columns of a line.
const WIDTH: usize = 116;

/// Writes the page. `what` is the thing that was watched.
///
/// # Errors
/// Those of writing.
pub fn write(report: &Report, what: &str, to: &mut impl Write) -> io::Result<()> {
    let seconds = report.recorded_ns as f64 / 1e9;
    writeln!(to, "{what}, watched for {seconds:.1} s")?;
    if report.dropped > 0 {
        let all = report.events + report.dropped;
        writeln!(
            to,
            "{} of {all} events were dropped, the oldest: operations of the first {} are counted alone. Watch for less time \
             (--seconds), or keep more (--trace-events)",
            report.dropped,
            time(report.explained_from_ns)
        )?;
    }
    report.kinds.iter().try_for_each(|k| head(k, report.over_ns, to))?;
    let of = |waited_for: bool| {
        let kinds = report.kinds.iter().filter(move |k| k.operation.is_waited_for() == waited_for);
        let mut all: Vec<&Slow> = kinds.flat_map(|k| &k.slowest).collect();
        all.sort_by_key(|s| std::cmp::Reverse(s.ns));
        all
    };
    let (waited_for, checkpoints) = (of(true), of(false));
    let shown = waited_for.iter().take(WAITED_FOR).chain(checkpoints.iter().take(CHECKPOINTS));
    for (i, s) in shown.enumerate() {
        slow(i + 1, s, to)?;
    }
    if waited_for.is_empty() && checkpoints.is_empty() {
        writeln!(to)?;
        lines("", 0, &nothing(report), to)?;
    }
    if !report.advice.is_empty() {
        writeln!(
            to,
            "\nWhat to do, by share of the time explained above (a part within another counts for both)"
        )?;
        for a in &report.advice {
            lines(&format!("  {:>5.1} %  ", a.share * 100.0), 11, &a.text, to)?;
        }
    }
    Ok(())
}

/// The reason why no operation is explained.
fn nothing(report: &Report) -> String {
    let all = |of: fn(&Kind) -> usize| report.kinds.iter().map(of).sum::<usize>();
    let (over, lasting, limit) = (all(|k| k.over), all(|k| k.lasting_over), time(report.over_ns));
    let ended = "began before events that were dropped, which may be the ones that say why";
    let not_ended = "had not ended at the end: watch for longer (--seconds), and they are explained";
    match (over, lasting) {
        (0, 0) => {
            format!("Nothing that began meanwhile took longer than {limit}; --over sets a lower threshold.")
        }
        (0, n) => format!("Of those that took longer than {limit}, {n} {not_ended}."),
        (n, 0) => format!("Of those that took longer than {limit}, {n} {ended}."),
        (n, m) => format!("Of those that took longer than {limit}, {n} {ended}; {m} {not_ended}."),
    }
}

fn head(k: &Kind, over: u64, to: &mut impl Write) -> io::Result<()> {
    ended(k, over, to)?;
    if k.lasting == 0 {
        return Ok(());
    }
    let (n, longest, slow) = (k.lasting, time(k.lasting_ns), k.lasting_over);
    writeln!(to, "  {:<10} {n} had not ended, the longest after {longest}; {slow} over {}", "", time(over))
}

fn ended(k: &Kind, over: u64, to: &mut impl Write) -> io::Result<()> {
    let name = k.operation.word();
    if k.count == 0 {
        return writeln!(to, "  {name:<10} none{}", if k.lasting > 0 { " ended" } else { "" });
    }
    writeln!(
        to,
        "  {name:<10} {} times, p50 {}, p99 {}, max {}; {} over {}",
        k.count,
        time(k.p50_ns),
        time(k.p99_ns),
        time(k.max_ns),
        k.over,
        time(over)
    )
}

fn slow(n: usize, s: &Slow, to: &mut impl Write) -> io::Result<()> {
    let mut title = format!("{} of {}", s.operation.word(), time(s.ns));
    if let Some(ino) = s.ino {
        let _ = write!(title, ": inode {ino}");
    }
    if let Some(tid) = s.transaction {
        let _ = write!(title, ": transaction {tid}");
    }
    if let Some(path) = &s.path {
        let _ = write!(title, " {path}");
    }
    let _ =
        write!(title, ", at {:.3} s, by {}; {:.1} % named", s.at_ns as f64 / 1e9, s.thread, s.named * 100.0);
    if !s.asked_by.is_empty() {
        let _ = write!(title, "; asked for by {}", s.asked_by.join(", "));
    }
    writeln!(to)?;
    lines(&format!("{n:>2}. "), 4, &title, to)?;
    for p in s.parts.iter().take(PARTS).filter(|p| p.ns * 50 >= s.ns) {
        let share = p.ns as f64 / s.ns.max(1) as f64 * 100.0;
        lines(&format!("    {share:>5.1} %  {:>8}  ", time(p.ns)), 23, &p.what, to)?;
        let within = within(p);
        if !within.is_empty() {
            lines(&" ".repeat(25), 25, &within, to)?;
        }
    }
    Ok(())
}

/// The parts of a part, in a sentence.
fn within(p: &Part) -> String {
    let mut named = p.parts.iter().filter(|q| q.ns * 10 >= p.ns).take(WITHIN).peekable();
    // A name that repeats the name around it says nothing.
    if p.parts.len() == 1 && named.peek().is_some_and(|q| q.parts.is_empty() && q.what.ends_with(" itself")) {
        return String::new();
    }
    let one = |q: &Part| {
        let largest = q.parts.first().filter(|r| r.ns * 2 >= q.ns).map(|r| format!(" ({})", r.what));
        format!("{} {}{}", time(q.ns), q.what, largest.unwrap_or_default())
    };
    named.map(one).collect::<Vec<_>>().join("; ")
}

/// Writes a text after `first`, on as many lines as needed. The other lines are indented by `by`.
fn lines(first: &str, by: usize, text: &str, to: &mut impl Write) -> io::Result<()> {
    let mut line = first.to_string();
    let mut is_empty = true;
    for word in text.split(' ') {
        if !is_empty && line.chars().count() + 1 + word.chars().count() > WIDTH {
            writeln!(to, "{}", line.trim_end())?;
            line = " ".repeat(by);
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line.push_str(word);
        is_empty = false;
    }
    writeln!(to, "{}", line.trim_end())
}

fn time(ns: u64) -> String {
    match ns {
        0..10_000 => format!("{ns} ns"),
        10_000..1_000_000 => format!("{} us", ns / 1000),
        1_000_000..10_000_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        _ => format!("{:.1} s", ns as f64 / 1e9),
    }
}
