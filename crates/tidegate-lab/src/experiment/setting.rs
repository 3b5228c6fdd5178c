//! One setting of an experiment: the workload, its target, and the figure that is compared.

use super::Plan;
use super::comparison::Comparison;
use super::excerpt::Excerpt;
use super::jobs::{JOBS, Job, Seen};
use super::observer::{Looked, Observer, Watched, folded, watch};
use super::outcome::{Case, Counted, Position, Published, slowest_commits};
use super::place::Where;
use super::rounds::{QUICK_RUNS, RUNS, Rounds, world};
use crate::error::{Error, Result};
use crate::result::{LockStat, RunResult};
use crate::target::{Rig, Target, VolumeTarget};
use crate::workload::{Spec, run};
use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use tidegate::detect::Format;
use tidegate::observe::{Observed, Wanted};
use tidegate::{Backend, Elevator};
use tidegate_block::{Preset, QueueLimits, file};
use tidegate_rt::lockstat;
use tidegate_rt::sim::{self, Costs};
use tidegate_vfs::MemoryLimits;

/// Events kept of each thread, if the setting is about bios.
const EVENTS: usize = 1 << 16;
/// Events kept of each thread, if the setting is about causes, in simulated time. It is more than a thread
/// has in a run, since the loss of one event also loses the names of others. Only recorded events take
/// memory.
const ALL_EVENTS: usize = 1 << 21;

/// The figure that is compared.
#[derive(Clone, Copy, Debug)]
pub(super) enum Metric {
    /// Seconds of the measured part.
    Elapsed,
    /// Mean seconds of the events of this name.
    Event(&'static str),
    /// Mean seconds of an operation of this name.
    Op(&'static str),
    /// Mean seconds of a checkpoint.
    Checkpoint,
}

impl Metric {
    pub(super) fn name(self) -> &'static str {
        match self {
            Metric::Elapsed => "elapsed, s",
            Metric::Event(_) => "mean time of a sync, s",
            Metric::Op(_) => "mean time of a commit, s",
            Metric::Checkpoint => "mean time of a checkpoint, s",
        }
    }

    pub(super) fn of(self, r: &RunResult) -> Option<f64> {
        match self {
            Metric::Elapsed => Some(r.elapsed_ns as f64 / 1e9),
            Metric::Event(name) => {
                let took: Vec<u64> = r.events.iter().filter(|e| e.name == name).map(|e| e.took_ns).collect();
                let n = took.len();
                (n > 0).then(|| took.iter().sum::<u64>() as f64 / n as f64 / 1e9)
            }
            Metric::Op(name) => r.ops.get(name).map(|o| o.latency.mean / 1e9),
            Metric::Checkpoint => per(r, "fs.commit_ns", "fs.commits").map(|ns| ns / 1e9),
        }
    }
}

/// A value of a run that is shown beside the metric.
pub(super) type Counter = (&'static str, fn(&RunResult) -> Option<f64>);

/// One setting of an experiment.
pub(super) struct Setting {
    pub name: String,
    /// The name without the device, if the name contains it: settings with one such name differ only in their
    /// device.
    pub job: Option<&'static str>,
    pub place: Where,
    /// Bytes of the device.
    pub size: u64,
    /// As [`Rig::shorter`].
    pub shorter: u64,
    pub format: Format,
    pub cpus: usize,
    /// The costs of things in simulated time.
    pub costs: Costs,
    pub elevator: Elevator,
    pub memory: MemoryLimits,
    /// Mount options in every position.
    pub options: &'static str,
    pub workload: Spec,
    pub metric: Metric,
    /// The mount options of each position, the old one first.
    pub positions: &'static [&'static str],
    pub published: Option<Published>,
    pub counters: &'static [Counter],
    pub bars: fn(&[Position]) -> Vec<Comparison>,
    /// The recorded run keeps bios.
    pub bios: bool,
    /// The recorded run keeps the causes of its slowest commits.
    pub causes: bool,
}

impl Setting {
    /// Rounds.
    fn rounds(&self, plan: &Plan) -> Rounds {
        let runs = match (plan.runs, plan.quick) {
            (0, true) => QUICK_RUNS,
            (0, false) => RUNS,
            (n, _) => u64::from(n),
        };
        Rounds::new(plan.seed, runs, self.positions.len())
    }

    /// Number of runs of all positions, uncounted runs included.
    pub(super) fn runs(&self, plan: &Plan, wanted: Wanted) -> usize {
        let warm_up = usize::from(!self.place(plan).is_simulated());
        let look = usize::from(self.place(plan).looked_at(wanted).is_some());
        self.positions.len() * (self.rounds(plan).seeds.len() + warm_up + look)
    }

    pub(super) fn place<'a>(&'a self, plan: &'a Plan) -> &'a Where {
        plan.device.as_ref().unwrap_or(&self.place)
    }

    /// Whether it runs on its own device.
    pub(super) fn is_at_home(&self, plan: &Plan) -> bool {
        *self.place(plan) == self.place
    }

    /// The name without the device.
    pub(super) fn job(&self) -> &str {
        self.job.unwrap_or(&self.name)
    }

    /// The setting's name on the device that it runs on.
    pub(super) fn called(&self, plan: &Plan) -> String {
        match self.is_at_home(plan) {
            true => self.name.clone(),
            false => format!("{} on {}", self.job(), self.place(plan)),
        }
    }

    /// Runs each position in every round; `of` is the experiment's name and the number of this setting.
    pub(super) fn measure(&self, plan: &Plan, of: (&str, usize), observer: &dyn Observer) -> Result<Case> {
        let (place, name) = (self.place(plan), self.called(plan));
        let rounds = self.rounds(plan);
        let mut runs: Vec<Vec<RunResult>> = vec![Vec::new(); self.positions.len()];
        let run = |i: usize, seed| {
            let result = match self.is_apart(plan) {
                true => plan.jobs.answer(&Job::new(of, i, seed, plan, false))?.0,
                false => {
                    plan.jobs.here(true, || self.once(plan, self.positions[i], seed, Wanted::default()))?.0
                }
            };
            observer.ran(&format!("{name}, {}", self.positions[i]));
            Ok::<_, Error>(result)
        };
        if !place.is_simulated() {
            for i in 0..self.positions.len() {
                run(i, plan.seed)?;
            }
        }
        for (seed, order) in rounds.each() {
            for i in order {
                runs[*i].push(run(*i, seed)?);
            }
        }
        let mut positions: Vec<Position> =
            self.positions.iter().zip(runs).map(|(name, runs)| self.position(name, runs)).collect();
        self.look(plan, of, (&rounds, &mut positions), observer)?;
        Ok(Case {
            name,
            target: place.to_string(),
            workload: serde_json::to_string(&self.workload).map_err(|e| Error::spec(e.to_string()))?,
            metric: self.metric.name().into(),
            less_is_better: true,
            published: self.published.clone().filter(|_| self.is_at_home(plan)),
            seeds: rounds.seeds,
            order: rounds.order,
            comparisons: (self.bars)(&positions),
            positions,
        })
    }

    /// Whether its runs have processes of their own.
    fn is_apart(&self, plan: &Plan) -> bool {
        plan.jobs.apart() && self.place(plan).is_simulated()
    }

    /// All of its runs in simulated time, without the recorded ones; `of` as for [`Setting::measure`].
    pub(super) fn jobs(&self, plan: &Plan, of: (&str, usize)) -> Vec<Job> {
        if !self.place(plan).is_simulated() {
            return Vec::new();
        }
        let rounds = self.rounds(plan);
        let round = |(seed, order): (u64, &[usize])| {
            order.iter().map(|i| Job::new(of, *i, seed, plan, false)).collect::<Vec<_>>()
        };
        rounds.each().flat_map(round).collect()
    }

    /// Records one more run of each position.
    fn look(
        &self,
        plan: &Plan,
        of: (&str, usize),
        (rounds, positions): (&Rounds, &mut [Position]),
        observer: &dyn Observer,
    ) -> Result<()> {
        let Some(wanted) = self.looks(plan, observer.wants()) else { return Ok(()) };
        // A recording stays in its process, except for the kept parts.
        let apart = self.is_apart(plan) && !observer.wants().anything();
        let seed = |p: &Position| rounds.seeds[p.drawn];
        let job = |(i, p)| Job::new(of, i, seed(p), plan, true);
        let jobs: Vec<Job> = positions.iter().enumerate().map(job).collect();
        if apart {
            plan.jobs.hurry(&jobs);
        }
        let name = self.called(plan);
        for ((measured, job), position) in positions.iter_mut().zip(&jobs).zip(self.positions) {
            let simulated = self.place(plan).is_simulated();
            let (again, seen) = match apart {
                true => plan.jobs.answer(job)?,
                false => {
                    let once = || self.once(plan, position, seed(measured), wanted);
                    // Recordings and lock statistics belong to the process: nothing else may run in it
                    // meanwhile.
                    let (again, observed) = plan.jobs.here(true, once)?;
                    if let Some(o) = observed.as_ref().filter(|_| observer.wants().anything()) {
                        let drawn = Looked { experiment: of.0, number: of.1, setting: &name, position };
                        observer.saw(&drawn, o)?;
                    }
                    (again, observed.map(|o| self.seen(&o)))
                }
            };
            observer.ran(&format!("{name}, {position}"));
            let drawn = measured.runs[measured.drawn].elapsed_ns;
            if simulated && again.elapsed_ns != drawn {
                return Err(Error::Differs {
                    position: (*position).into(),
                    once: drawn,
                    again: again.elapsed_ns,
                });
            }
            if let Some(seen) = seen {
                measured.seen(&seen.call_tree);
                measured.excerpt = seen.excerpt;
                (measured.slow_commits, measured.lost_events) = (seen.slow_commits, seen.lost_events);
            }
        }
        Ok(())
    }

    /// The recordings of the recorded run, if there is one.
    pub(super) fn looks(&self, plan: &Plan, wanted: Wanted) -> Option<Wanted> {
        let place = self.place(plan);
        place.looked_at(wanted).map(|wanted| self.closer(place, wanted))
    }

    /// The kept parts of a recording.
    pub(super) fn seen(&self, o: &Observed) -> Seen {
        let (slow_commits, lost_events) = if self.causes { slowest_commits(o) } else { (Vec::new(), 0) };
        let excerpt = self.bios.then(|| Excerpt::of(o)).flatten();
        Seen { call_tree: folded(o), excerpt, slow_commits, lost_events }
    }

    /// The recordings of the recorded run.
    fn closer(&self, place: &Where, wanted: Wanted) -> Wanted {
        let own = match self.causes && place.is_simulated() {
            true => Some(ALL_EVENTS),
            false => wanted.events.or((self.bios || self.causes).then_some(EVENTS)),
        };
        Wanted { events: own.max(wanted.events), causes: wanted.causes || self.causes, ..wanted }
    }

    fn position(&self, name: &str, runs: Vec<RunResult>) -> Position {
        let of_runs = |f: &dyn Fn(&RunResult) -> Option<f64>| runs.iter().map(f).collect::<Vec<_>>();
        let counters = self.counters.iter().filter_map(|(name, f)| Counted::of(name, of_runs(f))).collect();
        let values = of_runs(&|r| self.metric.of(r));
        Position { counters, ..Position::of(name, values, runs) }
    }

    /// Makes one run in this process.
    pub(super) fn once(
        &self,
        plan: &Plan,
        position: &str,
        seed: u64,
        wanted: Wanted,
    ) -> Result<Watched<RunResult>> {
        let (place, opening) = (self.place(plan), &plan.opening);
        let options = [self.options, &opening.options, position].join(",");
        let rig = |preset| Rig {
            format: self.format,
            elevator: self.elevator,
            options,
            memory: opening.memory.unwrap_or(self.memory),
            shorter: self.shorter,
            ..Rig::new(preset, self.size)
        };
        let (workload, costs) = (self.workload.clone().seeded(seed), self.costs);
        lockstat::reset();
        lockstat::enable(true);
        let result = watch(wanted, || match place {
            Where::Preset(preset) | Where::Zoned(preset) => {
                let rig = Rig { zoned: matches!(place, Where::Zoned(_)), ..rig(*preset) };
                let done = sim::run_with(&sim::Config { costs, ..world(seed, self.cpus) }, move || {
                    on_model(&rig, &workload)
                });
                let done = done.map_err(|deadlock| Error::spec(deadlock.to_string()))?;
                Ok((done.value?, Some(done.elapsed)))
            }
            Where::Real(preset) => Ok((on_model(&rig(*preset), &workload)?, None)),
            Where::File(path) => {
                Ok((on_file(&rig(Preset::Ramdisk), &workload, path, opening.backend)?, None))
            }
        });
        lockstat::enable(false);
        // Threads outside of the run's world take this lock at moments that the machine chooses.
        let of_the_run = |l: &LockStat| l.table.class != JOBS.name();
        result.map(|(mut result, observed)| {
            result.locks.retain(of_the_run);
            (result, observed)
        })
    }
}

fn on_model(rig: &Rig, workload: &Spec) -> Result<RunResult> {
    on_volume(rig.build()?, |t| run(workload, t))
}

/// Runs on a new file: a file that exists already belongs to the user.
fn on_file(rig: &Rig, workload: &Spec, path: &Path, backend: Backend) -> Result<RunResult> {
    File::create_new(path).map_err(|e| match e.kind() {
        ErrorKind::AlreadyExists => Error::Exists { path: path.to_path_buf() },
        _ => Error::host(path, e),
    })?;
    let how = file::OpenOptions { create: Some(rig.size), backend, ..file::OpenOptions::default() };
    let device = file::open(path, how).map_err(|e| Error::spec(e.to_string()))?;
    let result = rig.on(device, QueueLimits::default()).and_then(|v| on_volume(v, |t| run(workload, t)));
    std::fs::remove_file(path).map_err(|e| Error::host(path, e))?;
    result
}

/// Calls `f` on a volume and unmounts it.
pub(super) fn on_volume<R>(volume: VolumeTarget, f: impl FnOnce(&Arc<dyn Target>) -> Result<R>) -> Result<R> {
    let volume = Arc::new(volume);
    let result = f(&(volume.clone() as Arc<dyn Target>));
    let unmounted = Arc::into_inner(volume).map_or(Ok(()), VolumeTarget::unmount);
    let result = result?;
    unmounted.map(|()| result)
}

/// A counter of a run.
pub(super) fn count(r: &RunResult, name: &str) -> Option<f64> {
    r.counters.get(name).map(|n| *n as f64)
}

/// One counter divided by another.
pub(super) fn per(r: &RunResult, a: &str, b: &str) -> Option<f64> {
    Some(count(r, a).unwrap_or(0.0) / count(r, b).filter(|n| *n > 0.0)?)
}

/// The metric of one position divided by another's, in each round that has both.
pub(super) fn ratio(positions: &[Position], a: &str, b: &str) -> Vec<f64> {
    let of = |name: &str| positions.iter().find(|p| is(&p.name, name));
    of(a).zip(of(b)).map_or(Vec::new(), |(a, b)| by_rounds(&a.values, &b.values))
}

/// A counter of one position divided by another's, in each round that has both.
pub(super) fn counter_ratio(positions: &[Position], name: &str, a: &str, b: &str) -> Vec<f64> {
    by_rounds(counted(positions, a, name), counted(positions, b, name))
}

/// A counter in a position, for each run that has it.
pub(super) fn counter(positions: &[Position], position: &str, name: &str) -> Vec<f64> {
    counted(positions, position, name).iter().flatten().copied().collect()
}

fn counted<'a>(positions: &'a [Position], position: &str, name: &str) -> &'a [Option<f64>] {
    let of = positions.iter().find(|p| is(&p.name, position));
    let counter = of.and_then(|p| p.counters.iter().find(|c| c.name == name));
    counter.map_or(&[], |c| &c.values)
}

/// One figure divided by another, round by round.
pub(crate) fn by_rounds(a: &[Option<f64>], b: &[Option<f64>]) -> Vec<f64> {
    let both = a.iter().zip(b).filter_map(|(a, b)| Some((*a)?).zip(*b));
    both.filter(|(_, b)| *b > 0.0).map(|(a, b)| a / b).collect()
}

/// Milliseconds that threads waited for locks of a class.
pub(super) fn lock_wait_ms(r: &RunResult, class: &str) -> Option<f64> {
    r.locks.iter().find(|l| l.table.class == class).map(|l| l.wait_total_ns as f64 / 1e6)
}

/// Whether a position has this name, with or without the switch's name, or has it with further options.
fn is(position: &str, name: &str) -> bool {
    let (all, position) = (position, position.split(',').next().unwrap_or(position));
    all == name || position == name || position.split_once('=').is_some_and(|(_, word)| word == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::ALONE;
    use crate::workload::{FsMark, SyncMode};
    use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

    fn setting(place: Where) -> Setting {
        let files =
            FsMark { threads: 8, files: 40, sync: SyncMode::None, sync_every_ms: 1, ..FsMark::default() };
        Setting {
            name: "a few files".into(),
            job: None,
            place,
            size: 128 << 20,
            shorter: 1,
            format: Format::F2fs,
            cpus: 4,
            costs: Costs::default(),
            elevator: Elevator::None,
            memory: MemoryLimits::default(),
            options: "",
            workload: Spec::FsMark(files),
            metric: Metric::Elapsed,
            positions: &["sync_wait=flusher", "sync_wait=caller"],
            published: None,
            counters: &[],
            bars: |_| Vec::new(),
            bios: true,
            causes: false,
        }
    }

    /// The measurements in three rounds, and the number of runs.
    fn measured(place: Where) -> (Case, u64) {
        let ran = AtomicU64::new(0);
        let count = |_: &str| {
            ran.fetch_add(1, SeqCst);
        };
        let plan = Plan { quick: true, seed: 3, ..Plan::default() };
        let setting = setting(place);
        let case = setting.measure(&plan, ("test", 1), &count).unwrap();
        let ran = ran.load(SeqCst);
        assert_eq!(ran, setting.runs(&plan, Wanted::default()) as u64, "what is said before");
        (case, ran)
    }

    /// The checks share one test, since recordings belong to the process.
    #[test]
    fn rounds_are_run_as_said() {
        let _alone = ALONE.lock();
        seeds_differ_and_each_gives_one_run();
        in_real_time_a_run_goes_before_that_does_not_count();
    }

    fn seeds_differ_and_each_gives_one_run() {
        println!("seeds 3, 4, 5");
        let (case, ran) = measured(Where::Preset(Preset::Ufs));
        assert_eq!((&case.seeds[..], ran), (&[3, 4, 5][..], 2 * (3 + 1)), "the median run once more");
        assert_eq!(case.order, Rounds::new(3, 3, 2).order);
        for p in &case.positions {
            assert!(p.values[0] != p.values[1] || p.values[1] != p.values[2], "{:?}", p.values);
            assert_eq!(Some(p.metric.median), p.values[p.drawn], "{:?}", p.values);
            assert!(p.call_tree.contains("f2fs_writepages"), "{}", p.call_tree);
            assert!(p.excerpt.as_ref().is_some_and(|e| e.bios > 0), "{:?}", p.excerpt);
        }
        let (again, _) = measured(Where::Preset(Preset::Ufs));
        let values = |c: &Case| c.positions.iter().map(|p| p.values.clone()).collect::<Vec<_>>();
        assert_eq!(values(&case), values(&again));
    }

    fn in_real_time_a_run_goes_before_that_does_not_count() {
        let (case, ran) = measured(Where::Real(Preset::Ramdisk));
        assert_eq!(ran, 2 * (1 + 3 + 1), "one to warm up, one to look at");
        assert!(case.positions.iter().all(|p| p.runs.len() == 3 && p.values.len() == 3));
        let dir = tempfile::tempdir().unwrap();
        let (_, ran) = measured(Where::File(dir.path().join("v.img")));
        assert_eq!(ran, 2 * (1 + 3), "nobody wanted to look");
    }

    #[test]
    fn a_file_that_is_there_is_left_alone() {
        let _alone = ALONE.lock();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("mine.img");
        std::fs::write(&path, "mine").unwrap();
        let small = Spec::FsMark(crate::workload::FsMark { files: 3, ..Default::default() });
        let rig = Rig::new(Preset::Ramdisk, 64 << 20);
        let e = on_file(&rig, &small, &path, Backend::Auto).unwrap_err();
        assert!(matches!(&e, Error::Exists { path: there } if *there == path), "{e}");
        assert_eq!(std::fs::read(&path).unwrap(), b"mine");
        let other = dir.path().join("other.img");
        assert_eq!(on_file(&rig, &small, &other, Backend::Auto).unwrap().ops["file"].latency.count, 3);
        assert!(!other.exists(), "removed");
    }
}
