//! Lock statistics as `/proc/lock_stat` shows them.
//!
//! Times are in microseconds. A bounce is an acquisition by another thread than the last one of the class (in the
//! kernel: by another processor than the last one of the lock). A class with readers has one row for writers (`-W`) and
//! one for readers (`-R`). Below them are the places that waited for its locks, and below these the places where the
//! locks had been taken, each with its function.

use serde::{Deserialize, Serialize};
use std::io::{self, Write};
use tidegate_rt::lockstat::{self, Figures, LockStat, Span};

mod functions;

const COLUMNS: [&str; 12] = [
    "con-bounces",
    "contentions",
    "waittime-min",
    "waittime-max",
    "waittime-total",
    "waittime-avg",
    "acq-bounces",
    "acquisitions",
    "holdtime-min",
    "holdtime-max",
    "holdtime-total",
    "holdtime-avg",
];

/// Width of the names.
const NAME: usize = 40;

/// A class of locks, as it is shown and kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Class {
    /// Its name.
    pub class: String,
    /// One row for each way in which its locks were taken, writers first.
    #[serde(default)]
    pub rows: Vec<Row>,
    /// The places that waited for locks, the most frequent first.
    #[serde(default)]
    pub waiting: Vec<CallPoint>,
    /// The places where the locks had been taken then: the holders that the others waited for.
    #[serde(default)]
    pub holding: Vec<CallPoint>,
}

/// Figures of one way in which locks of a class were taken.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// The class, with `-W` or `-R` at its end where there are readers.
    pub name: String,
    /// Contended acquisitions by another thread than the last contended acquisition.
    pub con_bounces: u64,
    /// Acquisitions that had to wait.
    pub contentions: u64,
    /// The time that these acquisitions waited.
    pub wait: Times,
    /// Acquisitions by another thread than the last acquisition.
    pub acq_bounces: u64,
    /// All acquisitions.
    pub acquisitions: u64,
    /// Time held.
    pub hold: Times,
}

/// Minimum, maximum, sum and mean of a time, in nanoseconds; 0 when nothing was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)] // in the order of the columns
pub struct Times {
    pub min_ns: u64,
    pub max_ns: u64,
    pub total_ns: u64,
    pub avg_ns: u64,
}

/// A place in the source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallPoint {
    /// How often the place was counted.
    pub count: u64,
    /// The function. Empty where it is not known.
    pub function: String,
    /// File and line, such as `tidegate-f2fs/src/tables/sit/mod.rs:236`.
    pub place: String,
}

impl Class {
    /// A class with its call points named.
    pub fn of(l: &LockStat) -> Class {
        // As in the kernel, a class without readers has no letter.
        let writers = if l.shared.acquisitions > 0 { "-W" } else { "" };
        let ways = [(writers, &l.alone), ("-R", &l.shared)];
        let used = ways.iter().filter(|(_, f)| f.acquisitions > 0);
        Class {
            class: l.class.into(),
            rows: used.map(|(letter, f)| Row::of(format!("{}{letter}", l.class), f)).collect(),
            waiting: l.waiting.iter().map(CallPoint::of).collect(),
            holding: l.holding.iter().map(CallPoint::of).collect(),
        }
    }
}

impl Row {
    fn of(name: String, f: &Figures) -> Row {
        let times = |s: &Span| Times { min_ns: s.min, max_ns: s.max, total_ns: s.total, avg_ns: s.avg };
        Row {
            name,
            con_bounces: f.con_bounces,
            contentions: f.contentions,
            wait: times(&f.wait),
            acq_bounces: f.acq_bounces,
            acquisitions: f.acquisitions,
            hold: times(&f.hold),
        }
    }
}

impl CallPoint {
    fn of(p: &lockstat::CallPoint) -> CallPoint {
        let function = functions::at(p.file, p.line).unwrap_or_default().into();
        CallPoint { count: p.count, function, place: format!("{}:{}", functions::short(p.file), p.line) }
    }
}

/// Writes the table.
///
/// # Errors
/// Those of writing.
pub fn write(locks: &[LockStat], to: &mut impl Write) -> io::Result<()> {
    write_table(&locks.iter().map(Class::of).collect::<Vec<_>>(), to)
}

/// Writes the table of classes that were kept.
///
/// # Errors
/// Those of writing.
pub fn write_table(classes: &[Class], to: &mut impl Write) -> io::Result<()> {
    let rule = "-".repeat(NAME + 1 + COLUMNS.len() * 15);
    writeln!(to, "lock_stat version 0.4\n{rule}")?;
    write!(to, "{:>NAME$} ", "class name")?;
    COLUMNS.iter().try_for_each(|c| write!(to, " {c:>14}"))?;
    writeln!(to, "\n{rule}\n")?;
    for c in classes {
        c.rows.iter().try_for_each(|r| write_row(r, to))?;
        if c.waiting.is_empty() && c.holding.is_empty() {
            continue;
        }
        for points in [&c.waiting, &c.holding] {
            writeln!(to, "{:>NAME$}", "-".repeat(c.class.len().min(NAME)))?;
            for CallPoint { count, place, function } in points {
                let function = if function.is_empty() { String::new() } else { format!(" {function}") };
                writeln!(to, "{:>NAME$} {count:>15}          [<{place}>]{function}", c.class)?;
            }
        }
        writeln!(to, "\n{}\n", ".".repeat(rule.len()))?;
    }
    Ok(())
}

fn write_row(r: &Row, to: &mut impl Write) -> io::Result<()> {
    write!(to, "{:>NAME$}: {:>14} {:>14}", r.name, r.con_bounces, r.contentions)?;
    times(&r.wait, to)?;
    write!(to, " {:>14} {:>14}", r.acq_bounces, r.acquisitions)?;
    times(&r.hold, to)?;
    writeln!(to)
}

fn times(t: &Times, to: &mut impl Write) -> io::Result<()> {
    let all = [t.min_ns, t.max_ns, t.total_ns, t.avg_ns];
    all.iter().try_for_each(|ns| write!(to, " {:>14.2}", *ns as f64 / 1000.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock() -> LockStat {
        let alone = Figures {
            contentions: 7,
            wait: Span { min: 1_500, max: 20_000, total: 70_000, avg: 10_000 },
            acquisitions: 12_345,
            hold: Span { min: 10, max: 99_990, total: 1_000_000, avg: 80 },
            con_bounces: 3,
            acq_bounces: 44,
        };
        let point = |line, count| lockstat::CallPoint { file: "elsewhere.rs", line, count };
        LockStat {
            class: "sbi->cp_rwsem",
            alone,
            shared: Figures { acquisitions: 9, ..Figures::default() },
            waiting: vec![point(85, 7), point(12, 2)],
            holding: vec![point(40, 9)],
        }
    }

    fn text(locks: &[LockStat]) -> String {
        let mut out = Vec::new();
        write(locks, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn columns_stand_below_their_names() {
        let text = text(&[lock()]);
        let lines: Vec<&str> = text.lines().collect();
        let (head, row) = (lines[2], lines[5]);
        let under = |name: &str| {
            let end = head.find(name).unwrap() + name.len();
            row[..end].rsplit(' ').next().unwrap().to_string()
        };
        let want =
            ["3", "7", "1.50", "20.00", "70.00", "10.00", "44", "12345", "0.01", "99.99", "1000.00", "0.08"];
        for (name, value) in COLUMNS.iter().zip(want) {
            assert_eq!(under(name), value, "{name} in\n{text}");
        }
        let words = |l: &str| l.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(words(row)[0], "sbi->cp_rwsem-W:");
        assert_eq!((words(lines[6])[0].as_str(), words(lines[6])[8].as_str()), ("sbi->cp_rwsem-R:", "9"));
        let rule = "-".repeat(13);
        assert_eq!([lines[7].trim(), lines[10].trim()], [&*rule, &*rule]);
        let points = [lines[8], lines[9], lines[11]].map(words);
        let place =
            |count: &str, line| ["sbi->cp_rwsem".into(), count.into(), format!("[<elsewhere.rs:{line}>]")];
        assert_eq!(points, [place("7", 85), place("2", 12), place("9", 40)], "{text}");
        assert_eq!(lines[13].trim_matches('.'), "");
    }

    #[test]
    fn classes_that_nobody_shares_have_no_letter() {
        let plain = LockStat { shared: Figures::default(), ..lock() };
        let text = text(&[plain]);
        assert!(
            text.contains(" sbi->cp_rwsem: ") && !text.contains("-W:") && !text.contains("-R:"),
            "{text}"
        );
        let readers = Class::of(&LockStat { alone: Figures::default(), ..lock() });
        assert_eq!(readers.rows.iter().map(|r| &*r.name).collect::<Vec<_>>(), ["sbi->cp_rwsem-R"]);
    }

    #[test]
    fn call_points_have_functions() {
        let file = "crates/tidegate/src/observe/lockstat/functions.rs";
        let here = Class::of(&LockStat {
            waiting: vec![lockstat::CallPoint { file: "crates/tidegate-rt/src/wait.rs", line: 0, count: 1 }],
            ..lock()
        });
        assert_eq!((&*here.waiting[0].function, &*here.waiting[0].place), ("", "tidegate-rt/src/wait.rs:0"));
        assert_eq!(functions::short(file), "tidegate/src/observe/lockstat/functions.rs");
        let point = CallPoint { count: 4, function: "F2fs::f".into(), place: "a.rs:1".into() };
        let class = Class { waiting: vec![point], ..Class::of(&lock()) };
        let mut out = Vec::new();
        write_table(&[class], &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("4          [<a.rs:1>] F2fs::f\n"), "{text}");
    }
}
