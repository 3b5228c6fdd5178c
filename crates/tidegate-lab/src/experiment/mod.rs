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
//! | [`room`] | the number of runs that there is room for at once |
//! | [`rounds`] | the number, order and seeds of runs |
//! | [`comparison`] | a figure of ours compared with the published one: yes, partly, no |
//! | [`interval`] | the interval of a figure from a few runs |
//! | [`sweep`] | the user's own experiments, from a TOML file |
//! | [`compare`] | one workload on several targets |
//! | [`contestant`] | targets by name: directories, images, models, kernels |
//! | [`jobs`] | runs side by side, each in a process of its own |
//! | [`excerpt`] | a few bios of a run, around one that was split |
//! | [`observer`] | recordings of one run of each position |
//! | [`outcome`] | results |

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
pub mod room;
pub mod rounds;
mod setting;
pub mod sweep;

use jobs::Job;
pub use jobs::Jobs;
pub(crate) use m3::AS_MANY as M3_AS_MANY;
pub use observer::{Looked, Observer};
pub use outcome::{Measured, Outcome};
pub use place::Where;
pub(crate) use setting::by_rounds;

use crate::error::{Error, Result};
use calibration::Calibration;
use comparison::Comparison;
use contestant::Hardware;
use setting::Setting;
use tidegate::Backend;
use tidegate::observe::Wanted;
use tidegate_vfs::MemoryLimits;

/// Held by a test while it runs volumes: recordings cover the whole process, and would include the events of
/// other tests. The lock is taken around whole simulated worlds, so it is part of none.
#[cfg(test)]
static ALONE: tidegate_rt::Mutex<()> = tidegate_rt::Mutex::new(&TESTS, ());
#[cfg(test)]
static TESTS: tidegate_rt::LockClass = tidegate_rt::LockClass::new("test->alone", 1);

/// The way volumes are opened, besides an experiment's own options.
#[derive(Clone, Debug, Default)]
pub struct Opening {
    /// Mount options, such as `fsync_mode=strict`; a position's options override them.
    pub options: String,
    /// Mount options for a kernel's mounts, besides those in its name.
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

/// The note for a setting that runs elsewhere than it was published.
fn on_another_device(device: &Where) -> String {
    format!(
        "On {device} instead of each setting's own device: nothing is demanded of these figures, and what is said below \
         of figures and their reasons is about those devices."
    )
}

/// The way experiments are run.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// A smaller workload, for a first look.
    pub quick: bool,
    /// Another device than the published setting's.
    pub device: Option<Where>,
    /// The first run's seed.
    pub seed: u64,
    /// Runs of each position; 0 for the default: [`rounds::RUNS`], or [`rounds::QUICK_RUNS`] for a first look.
    pub runs: u32,
    /// How volumes are opened.
    pub opening: Opening,
    /// The runs that are made at once.
    pub jobs: Jobs,
    /// Whether the kernel may be shown beside, where an experiment can; for programs that can be a guest's
    /// process 1 (see [`crate::kernel`]). Not in a first look, and not on another device.
    pub kernel: bool,
}

/// An experiment.
pub struct Experiment {
    /// Its name.
    pub name: &'static str,
    /// Its subject.
    pub title: &'static str,
    /// The reason why the positions differ.
    pub mechanism: &'static str,
    settings: fn(quick: bool) -> Vec<Setting>,
    notes: &'static [&'static str],
    /// Ratios across settings, added to the last of them.
    across: fn(&mut [outcome::Case]),
    /// The switch in Linux itself, if Linux has it.
    kernel: Option<Calibration>,
}

/// Every experiment, in the order of its mechanism.
pub const ALL: [&Experiment; 5] =
    [&m1::EXPERIMENT, &m2::EXPERIMENT, &m3::EXPERIMENT, &m4::EXPERIMENT, &m5::EXPERIMENT];

impl Experiment {
    /// The experiment of this name.
    ///
    /// # Errors
    /// There is none; the message lists the names.
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

    /// The settings with their numbers, from 1. On another device, settings that differ only in their device
    /// become one: the setting of that device, if there is one.
    fn planned(&self, plan: &Plan) -> Vec<(usize, Setting)> {
        let all: Vec<(usize, Setting)> = (1..).zip((self.settings)(plan.quick)).collect();
        let of = |(n, s): &(usize, Setting)| {
            let same = all.iter().filter(|(_, other)| other.job() == s.job());
            same.min_by_key(|(n, other)| (!other.is_at_home(plan), *n)).is_some_and(|(first, _)| first == n)
        };
        let kept: Vec<bool> = all.iter().map(|s| plan.device.is_none() || of(s)).collect();
        all.into_iter().zip(kept).filter_map(|(s, kept)| kept.then_some(s)).collect()
    }

    /// The number of runs, with these recordings.
    pub fn runs(&self, plan: &Plan, wanted: Wanted) -> u64 {
        let ours: usize = self.planned(plan).iter().map(|(_, s)| s.runs(plan, wanted)).sum();
        ours as u64 + self.kernel(plan).map_or(0, Calibration::runs)
    }

    /// All runs in simulated time, in the order in which [`Experiment::run`] wants them.
    fn jobs(&self, plan: &Plan) -> Vec<Job> {
        self.planned(plan).iter().flat_map(|(n, s)| s.jobs(plan, (self.name, *n))).collect()
    }

    /// The switch in Linux itself, if it is to be shown.
    fn kernel(&self, plan: &Plan) -> Option<&Calibration> {
        self.kernel.as_ref().filter(|_| plan.kernel && !plan.quick && plan.device.is_none())
    }

    /// Runs it; `observer` hears of each run. A setting that fails takes none of the others with it. The caller adds
    /// date and program.
    pub fn run(&self, plan: &Plan, observer: &dyn Observer) -> Measured {
        let settings = self.planned(plan);
        let simulated = settings.iter().all(|(_, s)| s.place(plan).is_simulated());
        let cpus = if simulated { settings.first().map_or(0, |(_, s)| s.cpus) } else { 0 };
        let elsewhere = |s: &Setting| !s.is_at_home(plan);
        let (mut cases, mut of, mut failed) = (Vec::new(), Vec::new(), Vec::new());
        for (n, s) in &settings {
            match s.measure(plan, (self.name, *n), observer) {
                Ok(case) => {
                    cases.push(case);
                    of.push(s);
                }
                Err(e) => failed.push((format!("{}, {}", self.name, s.called(plan)), e)),
            }
        }
        if failed.is_empty() {
            (self.across)(&mut cases);
        }
        for (case, _) in cases.iter_mut().zip(of).filter(|(_, s)| elsewhere(s)) {
            case.comparisons = case.comparisons.drain(..).map(Comparison::elsewhere).collect();
        }
        let chosen = plan.device.as_ref().filter(|_| settings.iter().any(|(_, s)| elsewhere(s)));
        let mut notes: Vec<String> = chosen.into_iter().map(on_another_device).collect();
        notes.extend(self.notes.iter().map(|n| (*n).to_owned()));
        if let Some(kernel) = self.kernel(plan) {
            let (case, note) = plan.jobs.here(true, || kernel.shown(plan, observer));
            cases.extend(case);
            notes.push(note);
        }
        notes.extend(conditions(&plan.opening));
        notes.extend(failed.iter().map(|(setting, e)| format!("{setting} failed: {e}")));
        let outcome = Outcome {
            head: outcome::Head { quick: plan.quick, ..outcome::Head::default() },
            experiment: self.name.into(),
            title: self.title.into(),
            mechanism: self.mechanism.into(),
            simulated,
            cpus,
            cases,
            notes,
        };
        Measured { outcome, failed }
    }
}

#[cfg(test)]
mod tests {
    use super::comparison::{Rule, Verdict};
    use super::*;
    use crate::workload::{FsMark, Spec};
    use tidegate_block::Preset;

    /// For each experiment, the names and numbers of its settings on a device.
    fn planned(name: &str, device: Option<&str>) -> Vec<(usize, String)> {
        let device = device.map(|d| d.parse().unwrap());
        let plan = Plan { quick: true, device, ..Plan::default() };
        Experiment::named(name).unwrap().planned(&plan).iter().map(|(n, s)| (*n, s.called(&plan))).collect()
    }

    #[test]
    fn settings_on_another_device_are_called_after_it() {
        let said =
            |list: &[(usize, &str)]| list.iter().map(|(n, s)| (*n, (*s).to_owned())).collect::<Vec<_>>();
        for e in ALL {
            assert_eq!(planned(e.name, None).len(), (e.settings)(true).len(), "{}: all of them", e.name);
        }
        let nvme = [(1, "pgioperf on nvme"), (3, "checkpoints of F2FS on nvme")];
        assert_eq!(planned("m2", Some("nvme")), said(&nvme));
        // The setting of that device is run, and judged.
        let hdd = [(2, "pgioperf on hdd"), (3, "checkpoints of F2FS on hdd")];
        assert_eq!(planned("m2", Some("hdd")), said(&hdd));
        let ufs = planned("m4", Some("ufs"));
        let files = [1, 2, 4, 9].map(|n| format!("{n} file{} on ufs", if n == 1 { "" } else { "s" }));
        assert!(ufs.iter().map(|(_, s)| s).take(4).eq(&files) && ufs.len() == 8, "{ufs:?}");
        assert!(planned("m4", Some("zoned:zns")).contains(&(6, "9 files on zones".into())));
        let m1 = [512, 4].map(|n| format!("16 threads, files of {n} KiB on hdd, real time"));
        assert!(planned("m1", Some("real:hdd")).iter().map(|(_, s)| s).eq(&m1));
    }

    /// A few files on a model of a telephone.
    fn few(_: bool) -> Vec<Setting> {
        let setting = (m4::EXPERIMENT.settings)(true).remove(0);
        let files = FsMark { files: 3, ..FsMark::default() };
        vec![Setting {
            name: "files on ufs".into(),
            job: Some("files"),
            place: Where::Preset(Preset::Ufs),
            size: 128 << 20,
            workload: Spec::FsMark(files),
            positions: &["sync_wait=caller"],
            bars: |p| {
                vec![Comparison::figure("a", Rule::AtLeast(1e9), &[p[0].metric.median; 2]).since("of A")]
            },
            ..setting
        }]
    }

    /// The first setting has too little room for its files.
    #[test]
    fn a_setting_that_fails_takes_none_with_it() {
        let _alone = ALONE.lock();
        let settings = |_: bool| {
            let files = FsMark { files: 3, size: 200 << 20, ..FsMark::default() };
            let too_large =
                Setting { name: "too large".into(), workload: Spec::FsMark(files), ..few(true).remove(0) };
            vec![too_large, few(true).remove(0)]
        };
        let across = |_: &mut [outcome::Case]| panic!("there are not all cases");
        let e = Experiment { settings, across, ..m4::EXPERIMENT };
        let ran = e.run(&Plan { quick: true, seed: 1, runs: 1, ..Plan::default() }, &|_: &str| {});
        assert!(ran.outcome.cases.iter().map(|c| &*c.name).eq(["files on ufs"]));
        assert!(ran.failed.iter().map(|f| &*f.0).eq(["m4, too large"]), "{:?}", ran.failed);
        assert!(
            ran.outcome.notes.iter().any(|n| n.starts_with("m4, too large failed: ")),
            "{:?}",
            ran.outcome.notes
        );
    }

    /// Verdicts and reasons hold only for the devices of the settings.
    #[test]
    fn another_device_is_not_judged() {
        let _alone = ALONE.lock();
        let e = Experiment { settings: few, notes: &["a note"], ..m4::EXPERIMENT };
        let outcome = |device: &str| {
            let device = Some(device.parse().unwrap());
            let plan = Plan { quick: true, device, seed: 1, runs: 1, ..Plan::default() };
            e.run(&plan, &|_: &str| {}).outcome
        };
        let (home, other) = (outcome("ufs"), outcome("ramdisk"));
        let [at_home, elsewhere] = [&home, &other].map(|o| &o.cases[0]);
        let judged = |c: &outcome::Case| (c.comparisons[0].reproduces, c.comparisons[0].why.contains("of A"));
        assert_eq!((&*at_home.name, judged(at_home)), ("files on ufs", (Verdict::No, true)));
        assert_eq!((&*elsewhere.name, judged(elsewhere)), ("files on ramdisk", (Verdict::Shown, false)));
        assert!(at_home.published.is_some() && elsewhere.published.is_none());
        assert_eq!(home.notes, ["a note"]);
        assert!(other.notes[0].starts_with("On ramdisk instead") && other.notes[1] == "a note");
    }
}
