//! Many runs, on several threads.

use crate::base::Base;
use crate::crowd;
use crate::generate::Profile;
use crate::plan::Plan;
use crate::recover::{Depth, inspect, inspect_all};
use crate::run::{Recording, Switches, record};
use crate::shrink::{Short, shrink};
use crate::state::{Amount, State, states};
use crate::{Fault, Settings};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use tidegate_block::Overlay;
use tidegate_rt::rng::Rng;
use tidegate_rt::{LockClass, Mutex, clock, thread};

static FAILURES: LockClass = LockClass::new("crash_failures", 985);

/// How much is explored.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The first run's seed; the others follow.
    pub seed: u64,
    /// Stop after this many states.
    pub states: u64,
    /// Stop after this many nanoseconds.
    pub nanos: u64,
    /// Threads.
    pub workers: usize,
    /// One state in this many goes to the reference checker; 0 for none.
    pub reference: u64,
    /// The number of states of each run.
    pub amount: Amount,
    /// Stop after this many failures.
    pub failures: usize,
    /// Seconds that shrinking a failure may take; 0 for no shrinking.
    pub shrink: u64,
    /// One run in this many is done by several threads at once; 0 for none.
    pub crowds: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            seed: 1,
            states: u64::MAX,
            nanos: u64::MAX,
            workers: thread::parallelism(),
            reference: 0,
            amount: Amount { boundaries: 60, prefixes: 150, subsets: 300 },
            failures: 3,
            shrink: 40,
            crowds: 16,
        }
    }
}

impl Limits {
    /// Whether the run of a seed is done by several threads.
    pub fn is_crowd(&self, seed: u64) -> bool {
        self.crowds > 0 && Rng::new(seed).fork(8).one_in(self.crowds)
    }
}

/// Counters that advance during the exploration.
#[derive(Default)]
#[allow(missing_docs)] // the words of `Report`
pub struct Progress {
    pub runs: AtomicU64,
    pub full: AtomicU64,
    pub operations: AtomicU64,
    pub epochs: AtomicU64,
    pub states: AtomicU64,
    pub recoveries: AtomicU64,
    pub references: AtomicU64,
    pub stop: AtomicBool,
}

/// A run that broke a promise.
pub struct Failure {
    /// The run's seed.
    pub seed: u64,
    /// The number of its state; `None` when the run itself failed.
    pub state: Option<usize>,
    /// The power cut, described in words.
    pub cut: Option<String>,
    /// The volume after the power cut.
    pub image: Option<Overlay>,
    /// The promise that was broken first.
    pub fault: Fault,
    /// How many states had been tried by then.
    pub after: u64,
    /// Nanoseconds until then.
    pub nanos: u64,
    /// The shrunk failure.
    pub short: Option<Short>,
}

/// The findings of an exploration.
pub struct Report {
    /// Runs done.
    pub runs: u64,
    /// Runs that ended early because the volume was full.
    pub full: u64,
    /// Operations done.
    pub operations: u64,
    /// Flushes; the order of writes between two flushes is free.
    pub epochs: u64,
    /// States recovered and judged.
    pub states: u64,
    /// States whose recovery was cut short, too.
    pub recoveries: u64,
    /// States that the reference checker saw.
    pub references: u64,
    /// The duration of the exploration in nanoseconds.
    pub nanos: u64,
    /// The promises that were broken.
    pub failures: Vec<Failure>,
}

struct Shared {
    limits: Limits,
    settings: Settings,
    next: AtomicU64,
    start: u64,
    progress: Arc<Progress>,
    failures: Mutex<Vec<Failure>>,
}

/// Explores until a limit is reached.
///
/// # Errors
/// A volume cannot be made, or a thread cannot be started.
pub fn explore(limits: &Limits, settings: &Settings, progress: &Arc<Progress>) -> Result<Report, Fault> {
    let shared = Arc::new(Shared::new(limits, settings, progress));
    let workers = (0..limits.workers.max(1)).map(|n| {
        let s = shared.clone();
        thread::spawn(&format!("tg-crash-{n}"), move || s.work())
            .map_err(|e| Fault::new("run", format!("starting a thread: {e}")))
    });
    let workers: Vec<_> = workers.collect::<Result<_, _>>()?;
    let ended: Vec<_> = workers.into_iter().map(|w| w.join()).collect();
    ended.into_iter().collect::<Result<Vec<()>, _>>()?;
    Ok(shared.report())
}

/// Repeats the run of `limits.seed`: all its states or one; all its operations or those whose numbers are in
/// `keep`.
///
/// # Errors
/// No volume can be made.
pub fn replay(
    limits: &Limits,
    settings: &Settings,
    state: Option<usize>,
    keep: &[u32],
) -> Result<Report, Fault> {
    let shared = Shared::new(limits, settings, &Arc::default());
    shared.run(limits.seed, state, keep)?;
    Ok(shared.report())
}

impl Shared {
    fn new(limits: &Limits, settings: &Settings, progress: &Arc<Progress>) -> Self {
        Shared {
            limits: limits.clone(),
            settings: settings.clone(),
            next: AtomicU64::new(limits.seed),
            start: clock::now().0,
            progress: progress.clone(),
            failures: Mutex::new(&FAILURES, Vec::new()),
        }
    }

    fn report(&self) -> Report {
        let p = &self.progress;
        Report {
            runs: p.runs.load(Relaxed),
            full: p.full.load(Relaxed),
            operations: p.operations.load(Relaxed),
            epochs: p.epochs.load(Relaxed),
            states: p.states.load(Relaxed),
            recoveries: p.recoveries.load(Relaxed),
            references: p.references.load(Relaxed),
            nanos: clock::now().0 - self.start,
            failures: std::mem::take(&mut *self.failures.lock()),
        }
    }

    fn done(&self) -> bool {
        let p = &self.progress;
        p.stop.load(Relaxed)
            || p.states.load(Relaxed) >= self.limits.states
            || clock::now().0 - self.start >= self.limits.nanos
    }

    fn work(&self) -> Result<(), Fault> {
        while !self.done() {
            self.run(self.next.fetch_add(1, Relaxed), None, &[])?;
        }
        Ok(())
    }

    /// Does the run of a seed.
    ///
    /// # Errors
    /// Its volume cannot be made.
    fn run(&self, seed: u64, only: Option<usize>, keep: &[u32]) -> Result<(), Fault> {
        if self.limits.is_crowd(seed) {
            return self.crowd(seed, only);
        }
        let mut plan = Plan::new(seed, &self.settings.bases)?;
        plan.steps.retain(|s| keep.is_empty() || keep.contains(&s.serial));
        let base = self.settings.bases.get(plan.base)?;
        let p = &self.progress;
        let run = match record(base, &plan.steps, plan.manner, &self.settings) {
            Ok(run) => run,
            Err(fault) => {
                self.failed(seed, &plan, base, Depth::default(), None, (fault, None));
                return Ok(());
            }
        };
        p.runs.fetch_add(1, Relaxed);
        p.full.fetch_add(run.full as u64, Relaxed);
        p.operations.fetch_add(run.steps.len() as u64, Relaxed);
        p.epochs.fetch_add(run.tape.flushes(), Relaxed);
        for (n, state) in plan.states(&run, self.limits.amount).into_iter().enumerate() {
            if self.done() {
                break;
            }
            if only.is_some_and(|o| o != n) {
                continue;
            }
            let depth = self.depth(seed, n as u64, plan.profile);
            let r = inspect(&run, &state, depth, &self.settings);
            self.count(depth);
            if let Err(fault) = r {
                self.failed(seed, &plan, base, depth, Some(n), (fault, Some((run, state))));
                break;
            }
        }
        Ok(())
    }

    fn depth(&self, seed: u64, n: u64, profile: Profile) -> Depth {
        let mut rng = Rng::new(seed).fork(1000 + n);
        let again = rng.one_in(if profile.is_small() { 20 } else { 80 }).then(|| rng.bits());
        let often = self.limits.reference;
        let reference = often > 0 && self.settings.reference.is_some() && rng.one_in(often);
        let same_options = rng.one_in(3);
        let twice = profile.is_small() || again.is_some() || rng.one_in(8);
        Depth { again, reference, twice, same_options }
    }

    fn failed(
        &self,
        seed: u64,
        plan: &Plan,
        base: &Base,
        depth: Depth,
        state: Option<usize>,
        first: (Fault, Option<(Recording, State)>),
    ) {
        let after = self.progress.states.load(Relaxed);
        let nanos = clock::now().0 - self.start;
        let fault = first.0.clone();
        let cut = first.1.as_ref().map(|(run, s)| s.describe(&run.tape));
        let image = first.1.as_ref().map(|(run, s)| s.image(&run.tape));
        let seconds = self.limits.shrink;
        let short = (seconds > 0)
            .then(|| shrink(base, &plan.steps, plan.manner, depth, first, &self.settings, seconds));
        self.add(Failure { seed, state, cut, image, fault, after, nanos, short });
    }

    fn add(&self, f: Failure) {
        let mut failures = self.failures.lock();
        failures.push(f);
        if failures.len() >= self.limits.failures {
            self.progress.stop.store(true, Relaxed);
        }
    }

    /// Does a run of several threads. A failure is reported as it is: such a run is not shrunk.
    fn crowd(&self, seed: u64, only: Option<usize>) -> Result<(), Fault> {
        let mut rng = Rng::new(seed).fork(9);
        let bases = &self.settings.bases;
        let switches = Switches::any(&mut rng, bases.format());
        let mut plans = crowd::plans(&mut rng);
        let shape = bases.crowd_shape(&mut rng.fork(2));
        plans.iter_mut().for_each(|p| p.retain(|s| bases.takes(shape, &s.op)));
        let base = bases.crowd(shape, switches.have_streams())?;
        let p = &self.progress;
        let fail = |state: Option<usize>, cut: Option<String>, image: Option<Overlay>, fault: Fault| {
            let (after, nanos) = (p.states.load(Relaxed), clock::now().0 - self.start);
            self.add(Failure { seed, state, cut, image, fault, after, nanos, short: None });
        };
        let runs = match crowd::record(base, plans, switches, &self.settings, rng.fork(1)) {
            Ok(runs) => runs,
            Err(fault) => {
                fail(None, None, None, fault);
                return Ok(());
            }
        };
        let Some(one) = runs.first() else { return Ok(()) };
        p.runs.fetch_add(1, Relaxed);
        p.full.fetch_add(runs.iter().any(|r| r.full) as u64, Relaxed);
        p.operations.fetch_add(runs.iter().map(|r| r.steps.len() as u64).sum(), Relaxed);
        p.epochs.fetch_add(one.tape.flushes(), Relaxed);
        for (n, state) in states(&one.tape, &mut rng, self.limits.amount, 0, one.end).into_iter().enumerate()
        {
            if self.done() {
                break;
            }
            if only.is_some_and(|o| o != n) {
                continue;
            }
            let depth = self.depth(seed, n as u64, Profile::Mixed);
            let r = inspect_all(&runs, &state, depth, &self.settings);
            self.count(depth);
            if let Err(fault) = r {
                let text = state.describe(&one.tape) + &crowd::describe(&runs, state.cut);
                fail(Some(n), Some(text), Some(state.image(&one.tape)), fault);
                break;
            }
        }
        Ok(())
    }

    fn count(&self, depth: Depth) {
        let p = &self.progress;
        p.states.fetch_add(1, Relaxed);
        p.recoveries.fetch_add(depth.again.is_some() as u64, Relaxed);
        p.references.fetch_add(depth.reference as u64, Relaxed);
    }
}
