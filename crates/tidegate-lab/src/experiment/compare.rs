//! One workload on several targets, in turn.

use super::observer::{First, Observer, folded, watch};
use super::outcome::{Case, Estimate, Outcome, Position};
use super::setting::preset;
use crate::error::{Error, Result};
use crate::result::RunResult;
use crate::target::{Directory, Rig, Target, VolumeTarget};
use crate::workload::{Spec, run};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use tidegate::observe::Wanted;
use tidegate::{OpenOptions, Volume};
use tidegate_block::Preset;

/// Something to run a workload on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Contestant {
    /// A directory of any file system that is mounted: `dir:PATH`.
    Dir(PathBuf),
    /// A volume in an image, opened in this process: `image:PATH`.
    Image(PathBuf),
    /// A new volume on a device model, in real time: `preset:NAME`.
    Preset(Preset),
}

impl FromStr for Contestant {
    type Err = String;

    fn from_str(s: &str) -> std::result::Result<Self, String> {
        match s.split_once(':') {
            Some(("dir", path)) => Ok(Contestant::Dir(path.into())),
            Some(("image", path)) => Ok(Contestant::Image(path.into())),
            Some(("preset", name)) => preset(name).map(Contestant::Preset),
            _ => Err("a target is dir:PATH, image:PATH or preset:NAME".into()),
        }
    }
}

/// What a race is called among outcomes.
const EXPERIMENT: &str = "compare";
/// Bytes of a volume on a device model.
const MODEL: u64 = 2 << 30;

impl Contestant {
    fn name(&self) -> String {
        match self {
            Contestant::Dir(p) => format!("dir:{}", p.display()),
            Contestant::Image(p) => format!("image:{}", p.display()),
            Contestant::Preset(p) => format!("preset:{p}"),
        }
    }

    fn run(&self, spec: &Spec) -> Result<RunResult> {
        let volume = match self {
            Contestant::Dir(path) => {
                return run(spec, &(Arc::new(Directory::open(path)?) as Arc<dyn Target>));
            }
            Contestant::Image(path) => {
                let volume = Volume::open(path, &OpenOptions::default())?;
                volume.check_writable()?;
                VolumeTarget::new(volume)
            }
            Contestant::Preset(preset) => Rig::new(*preset, MODEL).build()?,
        };
        super::setting::finish(Arc::new(volume), spec)
    }
}

/// Runs `spec` on each target in every round; `observer` is told of each run.
///
/// # Errors
/// The first run that fails; those of the observer.
pub fn compare(targets: &[Contestant], spec: &Spec, runs: u32, observer: &dyn Observer) -> Result<Outcome> {
    let mut all: Vec<Vec<RunResult>> = vec![Vec::new(); targets.len()];
    let mut trees = Vec::new();
    for round in 0..runs.max(1) {
        for (target, runs) in targets.iter().zip(&mut all) {
            let wanted = if round == 0 { observer.wants() } else { Wanted::default() };
            let (result, observed) = watch(wanted, || Ok((target.run(spec)?, None)))?;
            runs.push(result);
            let name = target.name();
            observer.ran(&name);
            if round == 0 {
                trees.push(observed.as_ref().map(folded).unwrap_or_default());
                let first =
                    First { experiment: EXPERIMENT, number: 1, setting: spec.name(), position: &name };
                observed.map_or(Ok(()), |o| observer.saw(&first, &o))?;
            }
        }
    }
    let position = |((t, runs), call_tree): ((&Contestant, Vec<RunResult>), String)| Position {
        name: t.name(),
        metric: Estimate::of(runs.iter().map(|r| r.elapsed_ns as f64 / 1e9)).unwrap_or_default(),
        counters: counters(&runs),
        runs,
        call_tree,
    };
    let case = Case {
        name: spec.name().into(),
        target: "each of the targets".into(),
        workload: serde_json::to_string(spec).map_err(|e| Error::Spec(e.to_string()))?,
        metric: "elapsed, s".into(),
        less_is_better: true,
        published: None,
        positions: targets.iter().zip(all).zip(trees).map(position).collect(),
        bars: Vec::new(),
    };
    Ok(Outcome {
        experiment: EXPERIMENT.into(),
        title: format!("{} on {} targets", spec.name(), targets.len()),
        cases: vec![case],
        ..Outcome::default()
    })
}

/// Operations a second by kind, and the p99 of each in milliseconds; medians.
fn counters(runs: &[RunResult]) -> Vec<(String, f64)> {
    let median = |f: &dyn Fn(&RunResult) -> f64| Estimate::of(runs.iter().map(f)).map_or(0.0, |e| e.median);
    let kinds = runs.first().into_iter().flat_map(|r| r.ops.keys().cloned());
    let both = |kind: String| {
        let p99 = |r: &RunResult| {
            let of = r.ops.get(&kind).and_then(|o| o.latency.percentiles.get("99.000000"));
            of.map_or(0.0, |ns| *ns as f64 / 1e6)
        };
        [(format!("{kind}/s"), median(&|r| r.per_second(&kind))), (format!("{kind}, p99 ms"), median(&p99))]
    };
    kinds.flat_map(both).collect()
}
