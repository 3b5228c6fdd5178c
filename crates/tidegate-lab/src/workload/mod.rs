//! Workloads: their parameters, and their runs.
//!
//! | module | holds |
//! |---|---|
//! | `fs_mark` | threads that make files and make them durable, in loops; a sync beside them |
//! | `pgioperf` | random readers and a random writer of a huge file, a small log with frequent fdatasync |
//! | `ckpt_storm` | groups that touch a file and fsync its directory, a sequential writer and others beside them |
//! | `stream` | sequential writers, one file each, with periodic syncs |
//!
//! Jobs in the manner of fio, one file for each thread, are in [`crate::fio`].

mod ckpt_storm;
mod fs_mark;
mod pgioperf;
mod stream;

pub use ckpt_storm::{CkptStorm, StormGroup};
pub use fs_mark::{FsMark, SYS_NS, SyncMode, USER_NS};
pub use pgioperf::PgIoPerf;
pub use stream::{Before, Periodic, Streams};

use crate::error::Result;
use crate::result::RunResult;
use crate::target::{OpenHow, Target, TargetFile};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use tidegate_block::IoContext;

/// A workload with its parameters. A parameter that is left out has the default of the program that the
/// workload is named after, reduced to a small device's size where that is gigabytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "workload", rename_all = "snake_case")]
pub enum Spec {
    /// Threads that make files, as fs_mark does.
    FsMark(FsMark),
    /// Readers, a writer and a log beside them, as in mmtests' pgioperf.
    Pgioperf(PgIoPerf),
    /// Groups of threads that ask for checkpoints.
    CkptStorm(CkptStorm),
    /// Writers of large files.
    Streams(Streams),
}

impl Spec {
    /// The workload's name.
    pub fn name(&self) -> &'static str {
        match self {
            Spec::FsMark(_) => "fs_mark",
            Spec::Pgioperf(_) => "pgioperf",
            Spec::CkptStorm(_) => "ckpt_storm",
            Spec::Streams(_) => "streams",
        }
    }

    /// This workload with a seed, if it is random and has no seed of its own.
    pub fn seeded(self, seed: u64) -> Spec {
        match self {
            Spec::Pgioperf(p) => Spec::Pgioperf(PgIoPerf { seed: p.seed.or(Some(seed)), ..p }),
            Spec::CkptStorm(s) => Spec::CkptStorm(CkptStorm { seed: s.seed.or(Some(seed)), ..s }),
            other => other,
        }
    }

    /// The directory of all its files.
    pub fn root(&self) -> &'static str {
        match self {
            Spec::FsMark(_) => "/fs_mark",
            Spec::Pgioperf(_) => "/pgioperf",
            Spec::CkptStorm(_) => "/storm",
            Spec::Streams(_) => "/streams",
        }
    }
}

/// Runs a workload. Its files stay; a second run on this target finds them and overwrites them.
///
/// # Errors
/// An impossible specification; the first error of the target.
pub fn run(spec: &Spec, target: &Arc<dyn Target>) -> Result<RunResult> {
    match spec {
        Spec::FsMark(s) => s.run(target),
        Spec::Pgioperf(s) => s.run(target),
        Spec::CkptStorm(s) => s.run(target),
        Spec::Streams(s) => s.run(target),
    }
}

/// Default length of an interval of series.
fn interval_ms() -> u64 {
    100
}

/// Bytes that preparations write at once.
const PREPARE_CHUNK: u64 = 1 << 20;

/// Makes a file of `size` bytes of `byte`, unless the file has them already.
pub(crate) fn lay_out(target: &dyn Target, path: &str, size: u64, byte: u8) -> Result<()> {
    let file = target.open(path, OpenHow { create: true, ..OpenHow::default() })?;
    let mut at = file.size()?;
    let data = vec![byte; PREPARE_CHUNK as usize];
    while at < size {
        let part = &data[..(PREPARE_CHUNK - at % PREPARE_CHUNK).min(size - at) as usize];
        file.write_at(at, part)?;
        at += part.len() as u64;
    }
    Ok(())
}

/// Opens a file that is new or emptied.
pub(crate) fn new_file(target: &dyn Target, path: &str) -> Result<Box<dyn TargetFile>> {
    target.open(path, OpenHow::NEW)
}

fn millis(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// The context of I/O group `group`.
fn group_ctx(group: u32) -> IoContext {
    IoContext { group, ..IoContext::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_of_its_own_stays() {
        for name in ["pgioperf", "ckpt_storm"] {
            let seed = |own: &str| {
                let text = format!("{{\"workload\":\"{name}\"{own}}}");
                let spec = serde_json::from_str::<Spec>(&text).unwrap().seeded(7);
                serde_json::to_value(&spec).unwrap()["seed"].clone()
            };
            assert_eq!([seed(""), seed(",\"seed\":5")], [7, 5], "{name}");
        }
    }
}
