//! One setting of an experiment: what is run, on what, and what of it is compared.

use super::Plan;
use super::comparison::Comparison;
use super::observer::{First, Observer, Watched, folded, watch};
use super::outcome::{Case, Counted, Estimate, Position, Published};
use crate::error::{Error, Result};
use crate::result::RunResult;
use crate::target::{Rig, Target, VolumeTarget};
use crate::workload::{Spec, run};
use std::fmt;
use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use tidegate::observe::Wanted;
use tidegate::{Backend, Elevator};
use tidegate_block::{Preset, QueueLimits, file};
use tidegate_rt::{lockstat, sim};
use tidegate_vfs::MemoryLimits;

/// What an experiment runs on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Where {
    /// A device model, in simulated time.
    Preset(Preset),
    /// A device model, in real time: with this machine's CPUs, threads and noise.
    Real(Preset),
    /// An image file that is made for it, in real time.
    File(PathBuf),
}

impl Where {
    pub(super) fn is_simulated(&self) -> bool {
        matches!(self, Where::Preset(_))
    }
}

impl FromStr for Where {
    type Err = String;

    fn from_str(s: &str) -> std::result::Result<Self, String> {
        let preset = |s: &str| preset(s).map_err(|e| format!("{e}, real:PRESET or file:PATH"));
        match s.split_once(':') {
            Some(("file", "")) => Err("file: needs the path of a file to make".into()),
            Some(("file", path)) => Ok(Where::File(path.into())),
            Some(("real", name)) => preset(name).map(Where::Real),
            _ => preset(s).map(Where::Preset),
        }
    }
}

/// The device model of that name, of those that a volume works on.
pub(super) fn preset(name: &str) -> std::result::Result<Preset, String> {
    match name.parse() {
        Ok(p @ Preset::Zns) => Err(format!("{p}: F2FS on zones is not supported yet; there are {PRESETS}")),
        Ok(p) => Ok(p),
        Err(_) => Err(format!("no device model is called \"{name}\"; there are {PRESETS}")),
    }
}

const PRESETS: &str = "ramdisk, hdd, raid-bbwc, ufs, nvme";

impl fmt::Display for Where {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Where::Preset(p) => write!(f, "{p}"),
            Where::Real(p) => write!(f, "{p}, real time"),
            Where::File(path) => write!(f, "{}", path.display()),
        }
    }
}

/// What is compared.
#[derive(Clone, Copy, Debug)]
pub(super) enum Metric {
    /// Seconds of the measured part.
    Elapsed,
    /// Mean seconds of the events of that name.
    Event(&'static str),
    /// Mean seconds of an operation of that name.
    Op(&'static str),
}

impl Metric {
    pub(super) fn name(self) -> &'static str {
        match self {
            Metric::Elapsed => "elapsed, s",
            Metric::Event(_) => "mean time of a sync, s",
            Metric::Op(_) => "mean time of a commit, s",
        }
    }

    fn of(self, r: &RunResult) -> Option<f64> {
        match self {
            Metric::Elapsed => Some(r.elapsed_ns as f64 / 1e9),
            Metric::Event(name) => {
                let took: Vec<u64> = r.events.iter().filter(|e| e.name == name).map(|e| e.took_ns).collect();
                let n = took.len();
                (n > 0).then(|| took.iter().sum::<u64>() as f64 / n as f64 / 1e9)
            }
            Metric::Op(name) => r.ops.get(name).map(|o| o.latency.mean / 1e9),
        }
    }
}

/// A value of a run to show beside the metric.
pub(super) type Counter = (&'static str, fn(&RunResult) -> Option<f64>);

/// See the module.
pub(super) struct Setting {
    pub name: String,
    pub place: Where,
    /// Bytes of the device.
    pub size: u64,
    pub cpus: usize,
    /// Runs of each position in simulated time for a first look.
    pub quick_runs: u64,
    pub elevator: Elevator,
    pub memory: MemoryLimits,
    /// Mount options in every position.
    pub options: &'static str,
    pub workload: Spec,
    pub metric: Metric,
    /// Mount options that are the positions, the old one first.
    pub positions: &'static [&'static str],
    pub published: Option<Published>,
    pub counters: &'static [Counter],
    pub bars: fn(&[Position]) -> Vec<Comparison>,
}

impl Setting {
    pub(super) fn runs(&self, plan: &Plan) -> u64 {
        match plan.runs {
            0 if self.place(plan).is_simulated() && plan.quick => self.quick_runs,
            0 => 5,
            n => u64::from(n),
        }
    }

    pub(super) fn place<'a>(&'a self, plan: &'a Plan) -> &'a Where {
        plan.device.as_ref().unwrap_or(&self.place)
    }

    /// Runs each position in every round, in turn; `of` is the experiment's name and which of its settings
    /// this is.
    pub(super) fn measure(&self, plan: &Plan, of: (&str, usize), observer: &dyn Observer) -> Result<Case> {
        let place = self.place(plan);
        let mut runs: Vec<Vec<RunResult>> = vec![Vec::new(); self.positions.len()];
        let mut trees = Vec::new();
        for round in 0..self.runs(plan) {
            for (position, runs) in self.positions.iter().zip(&mut runs) {
                let wanted = if round == 0 { wanted(observer, place) } else { Wanted::default() };
                let (result, observed) = self.once(plan, position, plan.seed.wrapping_add(round), wanted)?;
                runs.push(result);
                observer.ran(&format!("{}, {position}", self.name));
                if round > 0 {
                    continue;
                }
                trees.push(match observed.as_ref().filter(|o| o.wanted.calls) {
                    Some(o) => folded(o),
                    None => self.tree_beside(plan, position)?,
                });
                let first = First { experiment: of.0, number: of.1, setting: &self.name, position };
                observed
                    .filter(|_| observer.wants().anything())
                    .map_or(Ok(()), |o| observer.saw(&first, &o))?;
            }
        }
        let positions = self.positions.iter().zip(runs).zip(trees);
        let positions: Vec<_> = positions.map(|((p, r), tree)| self.position(p, r, tree)).collect();
        Ok(Case {
            name: self.name.clone(),
            target: place.to_string(),
            workload: serde_json::to_string(&self.workload).map_err(|e| Error::spec(e.to_string()))?,
            metric: self.metric.name().into(),
            less_is_better: true,
            published: self.published.clone(),
            comparisons: (self.bars)(&positions),
            positions,
        })
    }

    fn position(&self, name: &str, runs: Vec<RunResult>, call_tree: String) -> Position {
        let of_runs = |f: &dyn Fn(&RunResult) -> Option<f64>| runs.iter().map(f).collect::<Vec<_>>();
        let blocked = (!call_tree.is_empty()).then(|| vec![Some(flusher_blocked_ms(&call_tree))]);
        let counters = self.counters.iter().map(|(name, f)| (*name, of_runs(f)));
        let counters = counters.chain(blocked.map(|values| (BLOCKED, values)));
        let counters = counters.filter_map(|(name, values)| Counted::of(name, values)).collect();
        let values = of_runs(&|r| self.metric.of(r));
        let metric = Estimate::of(values.iter().flatten().copied()).unwrap_or_default();
        Position { name: name.into(), metric, values, counters, runs, call_tree }
    }

    /// The call tree of a run that is not among the results, on a device that is ours to use.
    fn tree_beside(&self, plan: &Plan, position: &str) -> Result<String> {
        if !matches!(self.place(plan), Where::Real(_)) {
            return Ok(String::new());
        }
        let calls = Wanted { calls: true, ..Wanted::default() };
        let (_, observed) = self.once(plan, position, plan.seed, calls)?;
        Ok(observed.as_ref().map(folded).unwrap_or_default())
    }

    fn once(&self, plan: &Plan, position: &str, seed: u64, wanted: Wanted) -> Result<Watched<RunResult>> {
        let (place, opening) = (self.place(plan), &plan.opening);
        let options = [self.options, &opening.options, position].join(",");
        let rig = |preset| Rig {
            elevator: self.elevator,
            options,
            memory: opening.memory.unwrap_or(self.memory),
            ..Rig::new(preset, self.size)
        };
        let workload = self.workload.clone();
        lockstat::reset();
        lockstat::enable(true);
        let result = watch(wanted, || match place {
            Where::Preset(preset) => {
                let rig = rig(*preset);
                let config = sim::Config { seed, cpus: self.cpus, ..sim::Config::default() };
                let done = sim::run_with(&config, move || on_model(&rig, &workload));
                let done = done.map_err(|deadlock| Error::spec(deadlock.to_string()))?;
                Ok((done.value?, Some(done.elapsed)))
            }
            Where::Real(preset) => Ok((on_model(&rig(*preset), &workload)?, None)),
            Where::File(path) => {
                Ok((on_file(&rig(Preset::Ramdisk), &workload, path, opening.backend)?, None))
            }
        });
        lockstat::enable(false);
        result
    }
}

/// What is recorded of a first run. In real time nothing that was not asked for: it would be measured, too.
fn wanted(observer: &dyn Observer, place: &Where) -> Wanted {
    let wanted = observer.wants();
    Wanted { calls: wanted.calls || place.is_simulated(), ..wanted }
}

fn on_model(rig: &Rig, workload: &Spec) -> Result<RunResult> {
    on_volume(rig.build()?, |t| run(workload, t))
}

/// On a file that is made for it: what is there already is somebody's.
fn on_file(rig: &Rig, workload: &Spec, path: &Path, backend: Backend) -> Result<RunResult> {
    File::create_new(path).map_err(|e| match e.kind() {
        ErrorKind::AlreadyExists => Error::spec(format!(
            "{}: is there already; the lab makes this file for each run and removes it again",
            path.display()
        )),
        _ => Error::host(path, e),
    })?;
    let how = file::OpenOptions { create: Some(rig.size), backend, ..file::OpenOptions::default() };
    let device = file::open(path, how).map_err(|e| Error::spec(e.to_string()))?;
    let result = rig.on(device, QueueLimits::default()).and_then(|v| on_volume(v, |t| run(workload, t)));
    std::fs::remove_file(path).map_err(|e| Error::host(path, e))?;
    result
}

/// Does `f` on a volume and unmounts it.
pub(super) fn on_volume<R>(volume: VolumeTarget, f: impl FnOnce(&Arc<dyn Target>) -> Result<R>) -> Result<R> {
    let volume = Arc::new(volume);
    let result = f(&(volume.clone() as Arc<dyn Target>));
    let unmounted = Arc::into_inner(volume).map_or(Ok(()), VolumeTarget::unmount);
    let result = result?;
    unmounted.map(|()| result)
}

/// What the flusher waited for anything, in the first run of a position.
const BLOCKED: &str = "flusher blocked, ms (first run)";
/// Spans of the flusher that are nothing but waiting.
const WAITS: [&str; 4] = ["folio_wait_writeback", "submit_bio_wait", "f2fs_issue_flush", "blk_mq_get_tag"];

/// The same, of a call tree as folded stacks.
fn flusher_blocked_ms(folded: &str) -> f64 {
    let stacks = folded.lines().filter_map(|l| l.rsplit_once(' '));
    let waits = |stack: &str| {
        let last = stack.rsplit(';').next().unwrap_or_default();
        stack.starts_with("tg-flusher;") && (last.starts_with("[lock ") || WAITS.contains(&last))
    };
    let ns = stacks.filter(|(stack, _)| waits(stack)).filter_map(|(_, ns)| ns.parse::<u64>().ok());
    ns.sum::<u64>() as f64 / 1e6
}

/// A counter of a run.
pub(super) fn count(r: &RunResult, name: &str) -> Option<f64> {
    r.counters.get(name).map(|n| *n as f64)
}

/// One counter by another.
pub(super) fn per(r: &RunResult, a: &str, b: &str) -> Option<f64> {
    Some(count(r, a).unwrap_or(0.0) / count(r, b).filter(|n| *n > 0.0)?)
}

/// Metric of one position by another's, in each round that has both.
pub(super) fn ratio(positions: &[Position], a: &str, b: &str) -> Vec<f64> {
    let of = |name: &str| positions.iter().find(|p| is(&p.name, name));
    of(a).zip(of(b)).map_or(Vec::new(), |(a, b)| by_rounds(&a.values, &b.values))
}

/// A counter of one position by another's, in each round that has both.
pub(super) fn counter_ratio(positions: &[Position], name: &str, a: &str, b: &str) -> Vec<f64> {
    by_rounds(counted(positions, a, name), counted(positions, b, name))
}

/// A counter in a position, of each run that has it.
pub(super) fn counter(positions: &[Position], position: &str, name: &str) -> Vec<f64> {
    counted(positions, position, name).iter().flatten().copied().collect()
}

fn counted<'a>(positions: &'a [Position], position: &str, name: &str) -> &'a [Option<f64>] {
    let of = positions.iter().find(|p| is(&p.name, position));
    let counter = of.and_then(|p| p.counters.iter().find(|c| c.name == name));
    counter.map_or(&[], |c| &c.values)
}

/// One figure by another, round by round.
pub(crate) fn by_rounds(a: &[Option<f64>], b: &[Option<f64>]) -> Vec<f64> {
    let both = a.iter().zip(b).filter_map(|(a, b)| Some((*a)?).zip(*b));
    both.filter(|(_, b)| *b > 0.0).map(|(a, b)| a / b).collect()
}

/// Milliseconds that were waited for locks of a class.
pub(super) fn lock_wait_ms(r: &RunResult, class: &str) -> Option<f64> {
    r.locks.iter().find(|l| l.class == class).map(|l| l.wait_total_ns as f64 / 1e6)
}

/// Whether a position is called so, with or without the switch's name.
fn is(position: &str, name: &str) -> bool {
    position == name || position.split_once('=').is_some_and(|(_, word)| word == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_those_that_a_volume_works_on() {
        assert_eq!("real:hdd".parse(), Ok(Where::Real(Preset::Hdd)));
        assert_eq!("file:/x:y".parse(), Ok(Where::File("/x:y".into())));
        for (text, word) in [
            ("zns", "not supported yet"),
            ("real:zns", "not supported yet"),
            ("nvme2", "\"nvme2\"; there are ramdisk"),
            ("file:", "path"),
            ("", "file:PATH"),
        ] {
            let e = text.parse::<Where>().unwrap_err();
            assert!(e.contains(word), "{text}: {e}");
        }
    }

    #[test]
    fn what_the_flusher_waited_for_is_told_by_its_call_tree() {
        let tree = "tg-flusher;wb_sync 5\ntg-flusher;wb_sync;folio_wait_writeback 2000000\n\
            tg-flusher;wb_sync;folio_wait_writeback;[lock a b] 500000\ntg-flusher;wb_sync;f2fs_writepages 7\n\
            sync;wait_sb_inodes;folio_wait_writeback 9000000\nsync;[lock a b] 1\n";
        assert_eq!((flusher_blocked_ms(tree), flusher_blocked_ms("")), (2.5, 0.0));
    }

    #[test]
    fn a_file_that_is_there_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("mine.img");
        std::fs::write(&path, "mine").unwrap();
        let small = Spec::FsMark(crate::workload::FsMark { files: 3, ..Default::default() });
        let rig = Rig::new(Preset::Ramdisk, 64 << 20);
        let e = on_file(&rig, &small, &path, Backend::Auto).unwrap_err();
        assert!(e.to_string().contains("is there already"), "{e}");
        assert_eq!(std::fs::read(&path).unwrap(), b"mine");
        let other = dir.path().join("other.img");
        assert_eq!(on_file(&rig, &small, &other, Backend::Auto).unwrap().ops["file"].latency.count, 3);
        assert!(!other.exists(), "removed");
    }
}
