//! Lock statistics as `/proc/lock_stat` shows them.
//!
//! Times are in microseconds. A bounce is an acquisition by another thread than the class's last one (the
//! kernel's: by another processor than the lock's last one). Below a class stand the places that waited for it.

use std::io::{self, Write};
use tidegate_rt::lockstat::{LockStat, Span};

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

/// Writes the table.
///
/// # Errors
/// Those of writing.
pub fn write(locks: &[LockStat], to: &mut impl Write) -> io::Result<()> {
    let rule = "-".repeat(NAME + 1 + COLUMNS.len() * 15);
    writeln!(to, "lock_stat version 0.4\n{rule}")?;
    write!(to, "{:>NAME$} ", "class name")?;
    COLUMNS.iter().try_for_each(|c| write!(to, " {c:>14}"))?;
    writeln!(to, "\n{rule}\n")?;
    for l in locks {
        write!(to, "{:>NAME$}:", l.class)?;
        write!(to, " {:>14} {:>14}", l.con_bounces, l.contentions)?;
        span(&l.wait, to)?;
        write!(to, " {:>14} {:>14}", l.acq_bounces, l.acquisitions)?;
        span(&l.hold, to)?;
        writeln!(to)?;
        if !l.points.is_empty() {
            writeln!(to, "{:>NAME$}", "-".repeat(l.class.len().min(NAME)))?;
            for (place, n) in &l.points {
                writeln!(to, "{:>NAME$} {n:>15}          [<{place}>]", l.class)?;
            }
            writeln!(to, "\n{}\n", ".".repeat(rule.len()))?;
        }
    }
    Ok(())
}

fn span(s: &Span, to: &mut impl Write) -> io::Result<()> {
    [s.min, s.max, s.total, s.avg].iter().try_for_each(|ns| write!(to, " {:>14.2}", *ns as f64 / 1000.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_below_their_names() {
        let lock = LockStat {
            class: "sbi->cp_rwsem",
            contentions: 7,
            wait: Span { min: 1_500, max: 20_000, total: 70_000, avg: 10_000 },
            acquisitions: 12_345,
            hold: Span { min: 10, max: 99_990, total: 1_000_000, avg: 80 },
            con_bounces: 3,
            acq_bounces: 44,
            points: vec![("checkpoint.rs:85".into(), 7)],
        };
        let mut out = Vec::new();
        write(&[lock], &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
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
        assert!(row.trim_start().starts_with("sbi->cp_rwsem:"));
        assert!(lines[7].contains("7          [<checkpoint.rs:85>]"), "{text}");
    }
}
