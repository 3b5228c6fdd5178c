//! The part of the main area that is kept back.
//!
//! Cleaning a segment of which the share r is invalid frees r of a segment, so 1/r segments must be moved
//! before one comes free. The reserve holds these segments for data and for nodes, plus a section for each
//! log: `2 (1/r + 1) + 6`. A small r costs a large reserve, a large r costs r itself; the best ratio lies
//! between.

use super::MkfsError;

/// Logs, each with a section open.
const LOGS: u64 = 6;
/// Ratio of a volume so small that all free segments are its reserve, in percent.
const TINY_PERCENT: f64 = 45.0;
/// Below this many segments the ratio is searched in coarse steps.
const COARSE_BELOW: u64 = 256;

/// The part that is kept back, in segments.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Overprovision {
    /// The ratio in percent.
    pub percent: f64,
    /// Segments kept for cleaning alone.
    pub reserved: u64,
    /// Segments out of users' reach: `reserved` and the ratio's share of the rest.
    pub total: u64,
}

/// The part to keep back of a main area of `main` segments: at the `wanted` ratio, or at the ratio that
/// leaves users the most.
pub(super) fn choose(main: u64, segs_per_sec: u64, wanted: Option<f64>) -> Result<Overprovision, MkfsError> {
    // A section is the unit of cleaning, so only whole sections count as free.
    let free = (main / segs_per_sec).saturating_sub(LOGS) * segs_per_sec;
    let percent = wanted.unwrap_or_else(|| best_percent(main, segs_per_sec));
    let reserved = reserve(percent, segs_per_sec) as u64;
    let over = match wanted {
        Some(percent) if reserved > free => {
            return Err(MkfsError::Overprovision { percent, reserved, free });
        }
        None if reserved > free => split(main, free, TINY_PERCENT),
        _ => split(main, reserved, percent),
    };
    // Rounding can take the last segment at a ratio a hair below 100 %.
    if over.total < main { Ok(over) } else { Err(MkfsError::BadOverprovision(percent)) }
}

fn split(main: u64, reserved: u64, percent: f64) -> Overprovision {
    let share = (main - reserved) as f64 * percent / 100.0;
    Overprovision { percent, reserved, total: reserved + share as u64 }
}

/// Segments that cleaning needs in reserve.
fn reserve(percent: f64, segs_per_sec: u64) -> f64 {
    segs_per_sec as f64 * (2.0 * (100.0 / percent + 1.0) + LOGS as f64)
}

fn best_percent(main: u64, segs_per_sec: u64) -> f64 {
    let (mut percent, last, step) = if main < COARSE_BELOW { (10.0, 95.0, 5.0) } else { (0.01, 10.0, 0.01) };
    let (mut best, mut most) = (TINY_PERCENT, 0.0);
    // The steps are summed up, as in mkfs.f2fs: the sum's rounding shows in the reserve.
    while percent <= last {
        let reserved = reserve(percent, segs_per_sec);
        let left = (main as f64 - reserved) * (1.0 - percent / 100.0);
        if left > most {
            (best, most) = (percent, left);
        }
        percent += step;
    }
    best
}
