//! The cost of running a process.

use std::fs::File;
use std::io::{Read, Seek};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use rustix::fs::{MemfdFlags, memfd_create};
use serde::Serialize;
use tidegate_sys::child;

/// The cost of a process and of the children that it waited for.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Cost {
    /// Seconds from start to end.
    pub wall: f64,
    /// Seconds of user and system time.
    pub cpu: f64,
    /// Peak resident memory in MiB.
    pub rss: f64,
}

impl Cost {
    /// The total cost of one run followed by another.
    pub fn then(self, next: Cost) -> Cost {
        Cost { wall: self.wall + next.wall, cpu: self.cpu + next.cpu, rss: self.rss.max(next.rss) }
    }
}

/// Runs a command to its end; it is an error if the command fails.
pub fn run(command: &mut Command) -> Result<Cost> {
    let name = format!("{command:?}");
    let short: String = name.chars().take(200).collect();
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let mut errors = File::from(memfd_create("errors", MemfdFlags::CLOEXEC)?);
    command.stderr(errors.try_clone()?);
    let start = Instant::now();
    let child = command.spawn().with_context(|| format!("running {short}"))?;
    let (status, usage) = child::wait(child.id()).with_context(|| format!("waiting for {short}"))?;
    let wall = start.elapsed().as_secs_f64();
    if !status.success() {
        let mut text = Vec::new();
        errors.rewind()?;
        errors.read_to_end(&mut text)?;
        let text = String::from_utf8_lossy(&text);
        let last: String = text.trim().lines().last().unwrap_or_default().chars().take(200).collect();
        bail!("{short}: {status}: {last}");
    }
    Ok(Cost { wall, cpu: usage.cpu.as_secs_f64(), rss: usage.max_rss_kib as f64 / 1024.0 })
}

/// Median and extremes of several values.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Spread {
    /// The middle value.
    pub median: f64,
    /// The smallest value.
    pub min: f64,
    /// The largest value.
    pub max: f64,
}

impl Spread {
    /// The spread of the values; `None` without values.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut v: Vec<f64> = values.into_iter().collect();
        v.sort_by(f64::total_cmp);
        let (min, max) = (*v.first()?, *v.last()?);
        let (low, high) = (v.get((v.len() - 1) / 2)?, v.get(v.len() / 2)?);
        Some(Spread { median: (low + high) / 2.0, min, max })
    }

    /// The bounds of the 95 % confidence interval of the median of the distribution. They are computed by
    /// ranks, so any distribution will do. With few values, the bounds are the extremes.
    pub fn of_median(values: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut v: Vec<f64> = values.into_iter().collect();
        v.sort_by(f64::total_cmp);
        let n = v.len() as f64;
        // The rank is n/2 minus 1.96 standard deviations of a binomial distribution with p = 1/2.
        let rank = (n / 2.0 - 0.98 * n.sqrt()).floor().max(0.0) as usize;
        let (min, max) = (*v.get(rank)?, *v.get(v.len() - 1 - rank)?);
        Some(Spread { min, max, ..Spread::of(v)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spreads() {
        assert!(Spread::of([]).is_none());
        let s = Spread::of([4.0, 1.0, 3.0, 2.0]).unwrap();
        assert_eq!((s.median, s.min, s.max), (2.5, 1.0, 4.0));
        assert!(Spread::of_median([]).is_none());
        let s = Spread::of_median([4.0, 1.0, 3.0, 2.0]).unwrap();
        assert_eq!((s.median, s.min, s.max), (2.5, 1.0, 4.0));
        // Of 100 values, ranks 41 and 60 (as in any table of the sign test).
        let s = Spread::of_median((1..=100).map(f64::from)).unwrap();
        assert_eq!((s.median, s.min, s.max), (50.5, 41.0, 60.0));
    }

    #[test]
    fn costs() {
        let cost = run(Command::new("sh").args(["-c", "exit 0"])).unwrap();
        assert!(cost.wall > 0.0 && cost.rss > 0.0);
        assert!(run(Command::new("sh").args(["-c", "exit 3"])).is_err());
    }
}
