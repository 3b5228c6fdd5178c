//! One large file that fills a volume, and random overwrites in it.

use crate::stamp::{PAGE, check, stamp};
use crate::target::{Report, Result, Target, grown, seconds_since};
use clap::Args;
use tidegate_rt::clock;

const FILE: &str = "/aged";
const CHUNK: usize = 256 * PAGE;

#[derive(Args)]
pub struct Fill {
    /// Share of what an empty volume has available.
    #[arg(long, default_value_t = 0.95)]
    share: f64,
}

#[derive(Args)]
pub struct Overwrite {
    /// For how long.
    #[arg(long, default_value_t = 60.0)]
    seconds: f64,
    /// Pages between two fsyncs.
    #[arg(long, default_value_t = 1000)]
    fsync_every: u64,
    /// The seed that chooses the pages; equal seeds choose equal pages.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

impl Fill {
    pub fn run(&self, target: &dyn Target) -> Result<Report> {
        let before = target.counts();
        let start = clock::now();
        let left = (target.available()? as f64 * (1.0 - self.share)) as u64;
        let file = target.open(FILE, true)?;
        let mut chunk = vec![0x5a; CHUNK];
        let mut at = 0;
        loop {
            let room = target.available()?.saturating_sub(left);
            if room < PAGE as u64 {
                break;
            }
            let part = &mut chunk[..(room as usize / PAGE * PAGE).min(CHUNK)];
            for (i, page) in part.chunks_exact_mut(PAGE).enumerate() {
                stamp(page, at / PAGE as u64 + i as u64, 0);
            }
            file.write_at(at, part)?;
            at += part.len() as u64;
        }
        file.fsync()?;
        target.sync()?;
        let counts = grown(&before, &target.counts());
        Ok(Report {
            seconds: seconds_since(start),
            files: 1,
            bytes: at,
            fsyncs: 1,
            counts,
            ..Default::default()
        })
    }
}

impl Overwrite {
    pub fn run(&self, target: &dyn Target) -> Result<Report> {
        let file = target.open(FILE, false)?;
        let pages = file.size()? / PAGE as u64;
        let mut versions = vec![0u64; pages as usize];
        let mut random = self.seed;
        let mut page = vec![0x5a; PAGE];
        let (mut writes, mut fsyncs) = (0, 0);
        let before = target.counts();
        let start = clock::now();
        while writes == 0 || seconds_since(start) < self.seconds {
            let at = ((u128::from(next(&mut random)) * u128::from(pages)) >> 64) as u64;
            let version = &mut versions[at as usize];
            *version += 1;
            stamp(&mut page, at, *version);
            let here = |e| format!("write {writes}, page {at}: {e}");
            file.write_at(at * PAGE as u64, &page).map_err(here)?;
            writes += 1;
            if writes % self.fsync_every == 0 {
                file.fsync().map_err(|e| format!("fsync after write {writes}: {e}"))?;
                fsyncs += 1;
            }
        }
        file.fsync()?;
        let seconds = seconds_since(start);
        let counts = grown(&before, &target.counts());
        for (at, version) in versions.iter().enumerate() {
            file.read_at((at * PAGE) as u64, &mut page)?;
            check(&page, at as u64, *version, &format!("{FILE}, page {at}"))?;
        }
        let bytes = writes * PAGE as u64;
        Ok(Report { seconds, files: 1, bytes, fsyncs: fsyncs + 1, counts, ..Default::default() })
    }
}

/// The next number of a splitmix64 sequence.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
