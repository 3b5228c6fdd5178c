//! The published experiments: each setting with its switch in every position, and the comparison with
//! published figures.
//!
//! Lock owned: `lab->runs` 12.
//!
//! | module | holds |
//! |---|---|
//! | `m1`, `m2`, `m3`, `m4`, `m5` | the experiments by mechanism |
//! | `calibration` | the kernel's own ratio, beside ours |
//! | `place`, `setting` | devices by name; one setting, measured |
//! | [`rounds`] | how often positions run, in which order, with which seeds |
//! | [`comparison`] | a figure of ours against what was published: yes, partly, no |
//! | [`interval`] | where a figure lies, by a few runs |
//! | [`sweep`] | experiments of one's own, from a TOML file |
//! | [`compare`] | one workload on several targets |
//! | [`contestant`] | targets by name: directories, images, models, kernels |
//! | [`jobs`] | runs side by side, each in a process of its own |
//! | [`excerpt`] | a few bios of a run, around one that was split |
//! | [`observer`] | looking inside one run of each position |
//! | [`outcome`] | what comes of it |

#[cfg(test)]
mod bars;
mod calibration;
pub mod compare;
pub mod comparison;
pub mod contestant;
pub mod excerpt;
pub mod interval;
pub mod jobs;
mod m1;
mod m2;
mod m3;
mod m4;
mod m5;
pub mod observer;
pub mod outcome;
mod place;
pub mod rounds;
mod setting;
pub mod sweep;

use jobs::Job;
pub use jobs::Jobs;
pub use observer::{Looked, Observer};
pub use outcome::Outcome;
pub use place::Where;
pub(crate) use setting::by_rounds;

use crate::error::{Error, Result};
use calibration::Calibration;
use contestant::Hardware;
use setting::Setting;
use tidegate::Backend;
use tidegate::observe::Wanted;
use tidegate_vfs::MemoryLimits;

/// Held by a test while it runs volumes: recordings are of the whole process, and would have the events of
/// others in them. Around whole simulated worlds, so it is in none of them.
#[cfg(test)]
static ALONE: tidegate_rt::Mutex<()> = tidegate_rt::Mutex::new(&TESTS, ());
#[cfg(test)]
static TESTS: tidegate_rt::LockClass = tidegate_rt::LockClass::new("test->alone", 1);

/// How volumes are opened, beside what an experiment says.
#[derive(Clone, Debug, Default)]
pub struct Opening {
    /// Mount options, as `fsync_mode=strict`; those of a position go over them.
    pub options: String,
    /// Mount options of what a kernel mounts, beside those that its name has.
    pub mounted: String,
    /// Memory, instead of an experiment's.
    pub memory: Option<MemoryLimits>,
    /// The way of I/O on a file.
    pub backend: Backend,
    /// The device of the new volumes of a comparison.
    pub hardware: Hardware,
}

/// The conditions that are reported beside the figures.
fn conditions(opening: &Opening) -> Vec<String> {
    let options = (!opening.options.is_empty()).then(|| format!("Volumes with -o {}.", opening.options));
    let cache = |m: MemoryLimits| format!("Volumes with {} MiB for cached pages.", m.cache >> 20);
    options.into_iter().chain(opening.memory.map(cache)).collect()
}

/// How experiments are run.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Less of everything, for a first look.
    pub quick: bool,
    /// Another device than the published setting's.
    pub device: Option<Where>,
    /// The first run's seed.
    pub seed: u64,
    /// Runs of each position; 0 for the default: [`rounds::RUNS`], or [`rounds::QUICK_RUNS`] for a first look.
    pub runs: u32,
    /// How volumes are opened.
    pub opening: Opening,
    /// How many runs there are at once.
    pub jobs: Jobs,
    /// Whether the kernel may be shown beside, where an experiment can; for programs that can be a guest's process 1
    /// (see [`crate::kernel`]). Not in a first look, and not on another device.
    pub kernel: bool,
}

/// An experiment.
pub struct Experiment {
    /// Its name.
    pub name: &'static str,
    /// Its subject.
    pub title: &'static str,
    /// Why the positions differ.
    pub mechanism: &'static str,
    settings: fn(quick: bool) -> Vec<Setting>,
    notes: &'static [&'static str],
    /// Ratios across settings, put to the last of them.
    across: fn(&mut [outcome::Case]),
    /// The switch in Linux itself, if it can be turned there.
    kernel: Option<Calibration>,
}

/// Every experiment, in the order of its mechanism.
pub const ALL: [&Experiment; 5] =
    [&m1::EXPERIMENT, &m2::EXPERIMENT, &m3::EXPERIMENT, &m4::EXPERIMENT, &m5::EXPERIMENT];

impl Experiment {
    /// The experiment of that name.
    ///
    /// # Errors
    /// There is none; the message names those there are.
    pub fn named(name: &str) -> Result<&'static Experiment> {
        let known = || ALL.map(|e| e.name).join(", ");
        ALL.into_iter()
            .find(|e| e.name == name)
            .ok_or_else(|| Error::spec(format!("no experiment is called \"{name}\"; there are {}", known())))
    }

    /// The settings: name, device, the figures that are compared.
    pub fn settings(&self) -> Vec<(String, String, String)> {
        let tell = |s: Setting| (s.name, s.place.to_string(), s.metric.name().to_string());
        (self.settings)(false).into_iter().map(tell).collect()
    }

    /// How many runs it takes, if that is to be recorded.
    pub fn runs(&self, plan: &Plan, wanted: Wanted) -> u64 {
        let ours: usize = (self.settings)(plan.quick).iter().map(|s| s.runs(plan, wanted)).sum();
        ours as u64 + self.kernel(plan).map_or(0, Calibration::runs)
    }

    /// All runs in simulated time, in the order in which [`Experiment::run`] wants them.
    fn jobs(&self, plan: &Plan) -> Vec<Job> {
        let settings = (self.settings)(plan.quick);
        settings.iter().enumerate().flat_map(|(i, s)| s.jobs(plan, (self.name, i + 1))).collect()
    }

    /// The switch in Linux itself, if it is to be shown.
    fn kernel(&self, plan: &Plan) -> Option<&Calibration> {
        self.kernel.as_ref().filter(|_| plan.kernel && !plan.quick && plan.device.is_none())
    }

    /// Runs it; `observer` is told of each run. When and by what, the caller adds.
    ///
    /// # Errors
    /// The first run that fails; those of the observer.
    pub fn run(&self, plan: &Plan, observer: &dyn Observer) -> Result<Outcome> {
        let settings = (self.settings)(plan.quick);
        let simulated = settings.iter().all(|s| s.place(plan).is_simulated());
        let cpus = if simulated { settings.first().map_or(0, |s| s.cpus) } else { 0 };
        let mut cases = Vec::new();
        for (i, s) in settings.iter().enumerate() {
            cases.push(s.measure(plan, (self.name, i + 1), observer)?);
        }
        (self.across)(&mut cases);
        let mut notes: Vec<String> = self.notes.iter().map(|n| (*n).to_owned()).collect();
        if let Some(kernel) = self.kernel(plan) {
            let (case, note) = plan.jobs.here(true, || kernel.shown(plan, observer));
            cases.extend(case);
            notes.push(note);
        }
        notes.extend(conditions(&plan.opening));
        Ok(Outcome {
            head: outcome::Head { quick: plan.quick, ..outcome::Head::default() },
            experiment: self.name.into(),
            title: self.title.into(),
            mechanism: self.mechanism.into(),
            simulated,
            cpus,
            cases,
            notes,
        })
    }
}
