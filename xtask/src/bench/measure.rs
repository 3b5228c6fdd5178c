//! The cost of a process's run.

use std::fs::File;
use std::io::{Read, Seek};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use rustix::fs::{MemfdFlags, memfd_create};
use serde::Serialize;
use tidegate_sys::child;

/// Cost of a process and of the children it waited for.
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
    /// Cost of one run after the other.
    pub fn then(self, next: Cost) -> Cost {
        Cost { wall: self.wall + next.wall, cpu: self.cpu + next.cpu, rss: self.rss.max(next.rss) }
    }
}

/// Runs a command to its end; one that fails is an error.
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
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
}

impl Spread {
    /// The spread of values, none when there are none.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut v: Vec<f64> = values.into_iter().collect();
        v.sort_by(f64::total_cmp);
        let (min, max) = (*v.first()?, *v.last()?);
        let (low, high) = (v.get((v.len() - 1) / 2)?, v.get(v.len() / 2)?);
        Some(Spread { median: (low + high) / 2.0, min, max })
    }

    /// The bounds between which the median of all that could be drawn lies with 95 % confidence: by ranks,
    /// whatever the distribution. As wide as the values where these are few.
    pub fn of_median(values: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut v: Vec<f64> = values.into_iter().collect();
        v.sort_by(f64::total_cmp);
        let n = v.len() as f64;
        // Half of n, and 1.96 standard deviations of a binomial with p = 1/2.
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
        // Of 100 values, ranks 41 and 60 (any table of the sign test, for one).
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
