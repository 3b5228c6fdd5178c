//! The user's own experiments: workload × devices × mount options, from a TOML file.
//!
//! The example explains each line:
//!
//! ```toml
#![doc = include_str!("../../examples/commits.toml")]
//! ```
//!
//! Each device with each point of the workload is a case, and each combination of options one of its positions.

use super::compare::{Entrant, Heat, Measure, heat, runs};
use super::contestant::{Contestant, Hardware};
use super::observer::Observer;
use super::outcome::{Case, Measured, Outcome};
use super::rounds::{QUICK_RUNS, RUNS, Rounds};
use super::{ALL, Opening, conditions};
use crate::error::{Error, Result};
use crate::kernel::joined;
use crate::workload::Spec;
use serde::Deserialize;
use std::fmt::Display;
use std::ops::RangeInclusive;
use tidegate::observe::Wanted;
use tidegate::{Elevator, Queues, WfqOptions};
use tidegate_vfs::MemoryLimits;
use toml::{Table, Value};

/// The file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: String,
    #[serde(default)]
    title: String,
    devices: Vec<String>,
    runs: Option<u32>,
    seeds: Option<Vec<u64>>,
    metric: Option<String>,
    size: Option<u64>,
    cpus: Option<usize>,
    elevator: Option<String>,
    format: Option<String>,
    memory: Option<u64>,
    workload: Table,
    #[serde(default)]
    options: Table,
}

/// An experiment that was read from a file.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// The name of its results.
    pub name: String,
    /// A seed for each round.
    pub seeds: Vec<u64>,
    title: String,
    devices: Vec<Contestant>,
    hardware: Hardware,
    memory: Option<MemoryLimits>,
    measure: Measure,
    /// Each point of the workload: its own parameters, and the whole.
    workloads: Vec<(String, Spec)>,
    /// Mount options of each position: its own ones, and all of them.
    options: Vec<(String, String)>,
}

impl Sweep {
    /// Reads the text of a file.
    ///
    /// # Errors
    /// The fault in it, and its place.
    pub fn parse(text: &str) -> Result<Sweep> {
        let file: File = toml::from_str(text).map_err(|e| Error::spec(e.to_string().trim_end()))?;
        let plain = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
        if file.name.is_empty() || !file.name.chars().all(plain) {
            return Err(Error::spec(format!("name = {:?}: letters, digits, - and _", file.name)));
        }
        if ALL.iter().any(|e| e.name == file.name) || ["all", "compare"].contains(&&*file.name) {
            return Err(Error::spec(format!("name = {:?}: the lab's own results are called so", file.name)));
        }
        if file.devices.is_empty() {
            return Err(Error::spec("devices: at least one"));
        }
        let device = |d: &String| d.parse().map_err(|e: String| Error::spec(format!("devices: {e}")));
        let devices: Vec<Contestant> = file.devices.iter().map(device).collect::<Result<_>>()?;
        let mounted = |d: &&Contestant| matches!(d, Contestant::Dir(_)) && !file.options.is_empty();
        if let Some(dir) = devices.iter().find(mounted) {
            return Err(Error::spec(format!("{dir}: a directory is mounted already and takes no options")));
        }
        let hardware = file.hardware(&devices)?;
        let memory = file.memory(&devices)?;
        let workload = |(label, table)| {
            let spec = Spec::deserialize(Value::Table(table));
            Ok((label, spec.map_err(|e| Error::spec(format!("workload: {e}")))?))
        };
        let workloads = points(&file.workload).into_iter().map(workload).collect::<Result<_>>()?;
        let options = points(&file.options).into_iter().map(|(_, table)| position(&file.options, &table));
        let options = options.collect::<Result<_>>()?;
        let seeds = match (file.seeds, file.runs) {
            (Some(_), Some(_)) => {
                return Err(Error::spec("seeds and runs: one of them says how many rounds"));
            }
            (Some(seeds), None) if seeds.is_empty() => return Err(Error::spec("seeds: at least one")),
            (Some(seeds), None) => seeds,
            (None, Some(0)) => return Err(Error::spec("runs: at least one")),
            (None, runs) => (1..=runs.map_or(RUNS, u64::from)).collect(),
        };
        let measure = file.metric.map_or(Measure::Elapsed, Measure::Op);
        let (name, title) = (file.name, file.title);
        Ok(Sweep { name, title, devices, hardware, memory, seeds, measure, workloads, options })
    }

    /// No more rounds than a first look has.
    pub fn quick(&mut self) {
        self.seeds.truncate(QUICK_RUNS as usize);
    }

    /// The number of runs, with these recordings.
    pub fn runs(&self, wanted: Wanted) -> u64 {
        let each = runs(&self.devices, self.seeds.len() as u64, wanted);
        each * (self.workloads.len() * self.options.len()) as u64
    }

    /// Runs it; `observer` hears of each run. A position that fails takes no further part in its case.
    ///
    /// # Errors
    /// Those of the observer.
    pub fn run(&self, opening: &Opening, observer: &dyn Observer) -> Result<Measured> {
        let mut race = Measured::default();
        let memory = self.memory.or(opening.memory);
        let opening = &Opening { memory, hardware: self.hardware, ..opening.clone() };
        let mut notes = conditions(opening);
        for target in &self.devices {
            for (label, spec) in &self.workloads {
                let entrant = |(name, options): &(String, String)| {
                    let mounted = joined(&opening.mounted, options);
                    let options = joined(&opening.options, options);
                    let opening = Opening { options, mounted, ..opening.clone() };
                    Entrant { name: name.clone(), target, opening }
                };
                let entrants: Vec<Entrant<'_>> = self.options.iter().map(entrant).collect();
                let rounds = Rounds::with_seeds(self.seeds.clone(), entrants.len());
                let of = (&*self.name, race.outcome.cases.len() + 1);
                let heat: Heat = heat(&entrants, (spec, &self.measure), &rounds, of, observer)?;
                let separator = if label.is_empty() { "" } else { ", " };
                let name = format!("{}{separator}{label} on {target}", spec.name());
                let in_case = |(who, e): (String, Error)| (format!("{name}, {who}"), e);
                race.failed.extend(heat.failed.into_iter().map(in_case));
                notes.extend(heat.notes.into_iter().map(|n| format!("{name}: {n}")));
                race.outcome.cases.push(Case { name, target: target.to_string(), ..heat.case });
            }
        }
        let simulated = self.devices.iter().all(Contestant::is_simulated);
        race.outcome = Outcome {
            experiment: self.name.clone(),
            title: self.title.clone(),
            simulated,
            cpus: if simulated { self.hardware.cpus } else { 0 },
            notes,
            ..race.outcome
        };
        Ok(race)
    }
}

/// Fewest and most bytes of a volume.
const SIZES: RangeInclusive<u64> = 64 << 20..=16 << 40;
/// CPUs of a simulated world.
const CPUS: RangeInclusive<usize> = 1..=1024;
/// Bytes of memory.
const MEMORY: RangeInclusive<u64> = 32 << 20..=16 << 40;

impl File {
    /// The device of the new volumes.
    fn hardware(&self, devices: &[Contestant]) -> Result<Hardware> {
        let not = |key: &str, takes: fn(&Contestant) -> bool, what: &str| {
            let other = devices.iter().find(|d| !takes(d));
            other.map_or(Ok(()), |d| Err(Error::spec(format!("{key}: {d} takes none; {what}"))))
        };
        let mut hardware = Hardware::default();
        if let Some(size) = self.size {
            not("size", Contestant::is_new, "only new volumes do")?;
            hardware.size = within("size", size, &SIZES)?;
        }
        if let Some(cpus) = self.cpus {
            not("cpus", Contestant::is_simulated, "only sim:NAME does")?;
            hardware.cpus = within("cpus", cpus, &CPUS)?;
        }
        if let Some(elevator) = &self.elevator {
            not("elevator", Contestant::is_model, "only sim:NAME and preset:NAME do")?;
            hardware.elevator = self::elevator(elevator)?;
        }
        if let Some(format) = &self.format {
            not("format", Contestant::is_model, "only sim:NAME and preset:NAME do")?;
            let known = |known| Error::spec(format!("format = {format:?}: {known}"));
            hardware.format = format.parse().map_err(known)?;
        }
        Ok(hardware)
    }

    /// Memory of the volumes, divided as Linux divides a machine's.
    fn memory(&self, devices: &[Contestant]) -> Result<Option<MemoryLimits>> {
        let Some(memory) = self.memory else { return Ok(None) };
        if let Some(d) = devices.iter().find(|d| !d.is_ours()) {
            return Err(Error::spec(format!("memory: {d} takes none; only volumes of this process do")));
        }
        within("memory", memory, &MEMORY).map(|m| Some(MemoryLimits::of_machine(m)))
    }
}

fn within<T: PartialOrd + Copy + Display>(key: &str, value: T, range: &RangeInclusive<T>) -> Result<T> {
    if range.contains(&value) {
        return Ok(value);
    }
    Err(Error::spec(format!("{key} = {value}: from {} to {}", range.start(), range.end())))
}

/// An elevator in its spelling: `none`, or `wfq` with options behind commas.
fn elevator(text: &str) -> Result<Elevator> {
    let wrong = || {
        Error::spec(format!(
            "elevator = {text:?}: none, or wfq with any of strict_guarantees, processes and depth=N behind commas"
        ))
    };
    let mut words = text.split(',');
    match words.next() {
        Some("none") if words.next().is_none() => return Ok(Elevator::None),
        Some("wfq") => {}
        _ => return Err(wrong()),
    }
    let mut options = WfqOptions::default();
    for word in words {
        match (word, word.strip_prefix("depth=").map(str::parse)) {
            ("strict_guarantees", _) => options.strict_guarantees = true,
            ("processes", _) => options.queues = Queues::Processes,
            (_, Some(Ok(depth @ 1..))) => options.depth = depth,
            _ => return Err(wrong()),
        }
    }
    Ok(Elevator::Wfq(options))
}

/// Values that are tried one by one. A list of tables is a single value, such as the groups of a workload.
fn axis(value: &Value) -> Option<&Vec<Value>> {
    value.as_array().filter(|list| !list.is_empty() && !list.iter().any(Value::is_table))
}

/// Every combination of the values in lists, with the part that is particular to it.
fn points(table: &Table) -> Vec<(String, Table)> {
    let mut points = vec![(String::new(), table.clone())];
    for (key, values) in table.iter().filter_map(|(k, v)| Some((k, axis(v)?))) {
        let mut more = Vec::new();
        for (label, point) in &points {
            for value in values {
                let mut point = point.clone();
                point.insert(key.clone(), value.clone());
                let separator = if label.is_empty() { "" } else { ", " };
                more.push((format!("{label}{separator}{key}={}", bare(value)), point));
            }
        }
        points = more;
    }
    points
}

/// Mount options of one combination: its own ones, and all of them.
fn position(all: &Table, point: &Table) -> Result<(String, String)> {
    let option = |(key, value): (&String, &Value)| match value {
        Value::Boolean(true) => Ok(key.clone()),
        Value::Boolean(false) => Ok(format!("no{key}")),
        Value::Table(_) | Value::Array(_) => {
            Err(Error::spec(format!("options: {key}: one value, or a list of them")))
        }
        value => Ok(format!("{key}={}", bare(value))),
    };
    let join = |swept: bool| {
        let chosen = point.iter().filter(|(key, _)| !swept || axis(&all[*key]).is_some());
        chosen.map(option).collect::<Result<Vec<_>>>().map(|o| o.join(","))
    };
    let name = join(true)?;
    Ok((if name.is_empty() { "as given".into() } else { name }, join(false)?))
}

/// A value without quotes.
fn bare(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::ALONE;
    use crate::result::RunResult;
    use tidegate_vfs::ErrorKind;

    const EXAMPLE: &str = include_str!("../../examples/commits.toml");

    #[test]
    fn the_example_runs() {
        let _alone = ALONE.lock();
        let small = EXAMPLE
            .replace("134_217_728", "33_554_432")
            .replace("operations = 20_000", "operations = 2_000")
            .replace("[4, 16]", "[1, 2]");
        assert_ne!(small.len(), EXAMPLE.len(), "what makes it small is there");
        let mut sweep = Sweep::parse(&small).unwrap();
        assert_eq!((sweep.devices.len(), sweep.workloads.len(), sweep.options.len()), (2, 2, 2));
        println!("seeds {:?}", sweep.seeds);
        sweep.seeds.truncate(2);
        assert_eq!(sweep.runs(Wanted::default()), 2 * 2 * 2 * 2);
        let race = sweep.run(&Opening::default(), &|_: &str| {}).unwrap();
        assert!(race.failed.is_empty(), "{:?}", race.failed);
        let cases = &race.outcome.cases;
        assert_eq!((cases.len(), &*cases[0].name), (4, "pgioperf, readers=1 on sim:nvme"));
        for c in cases {
            let positions: Vec<&str> = c.positions.iter().map(|p| &*p.name).collect();
            assert_eq!(positions, ["fsync_mode=posix", "fsync_mode=nobarrier"], "{}", c.name);
            let measured = c.positions.iter().all(|p| p.values.len() == 2 && p.metric.median > 0.0);
            assert!(measured, "{}", c.name);
            assert_eq!((&*c.metric, c.seeds.len()), ("mean time of commit, s", 2));
        }
        assert_ne!(cases[0].workload, cases[1].workload, "the point is run, not only named");
    }

    #[test]
    fn a_metric_that_no_run_has_is_no_result() {
        let _alone = ALONE.lock();
        let text = "name = \"a\"\ndevices = [\"sim:ufs\"]\nruns = 1\nmetric = \"commit\"\n\
            [workload]\nworkload = \"fs_mark\"\nfiles = 2\n";
        let race = Sweep::parse(text).unwrap().run(&Opening::default(), &|_: &str| {}).unwrap();
        assert!(race.outcome.cases[0].positions.is_empty());
        let missing =
            |e: &Error| matches!(e, Error::NoValue { metric } if metric == "mean time of commit, s");
        assert!(missing(&race.failed[0].1), "{:?}", race.failed);
    }

    #[test]
    fn lists_are_tried_value_by_value_and_tables_are_not() {
        let text = |more: &str| format!("name = \"a\"\ndevices = [\"sim:ufs\"]\nruns = 2\n{more}");
        let storm = "[workload]\nworkload = \"ckpt_storm\"\nstream_group = [0, 1]\n\
            stream_size = [131072, 262144]\ngroups = [{ times = 3 }, { group = 2, times = 0 }]\n\
            [options]\ncheckpoint_merge = [true, false]\nfsync_mode = \"strict\"\n";
        let sweep = Sweep::parse(&text(storm)).unwrap();
        assert_eq!((sweep.workloads.len(), sweep.seeds), (4, vec![1, 2]));
        assert_eq!(sweep.workloads[3].0, "stream_group=1, stream_size=262144");
        let Spec::CkptStorm(s) = &sweep.workloads[3].1 else { panic!("{:?}", sweep.workloads[3]) };
        assert_eq!((s.groups.len(), s.stream_group, s.stream_size), (2, 1, 262_144));
        let options: Vec<(&str, &str)> = sweep.options.iter().map(|(a, b)| (&**a, &**b)).collect();
        let (on, off) = ("checkpoint_merge,fsync_mode=strict", "nocheckpoint_merge,fsync_mode=strict");
        assert_eq!(options, [("checkpoint_merge", on), ("nocheckpoint_merge", off)]);
        let plain = Sweep::parse(&text("[workload]\nworkload = \"fs_mark\"")).unwrap();
        assert_eq!(plain.options, [("as given".to_owned(), String::new())]);
    }

    /// Each setting must change the measurement: one that is read and then forgotten would not.
    #[test]
    fn what_a_volume_is_on_counts() {
        let _alone = ALONE.lock();
        println!("seed 1");
        let run = |more: &str, files: u64, groups: &str| {
            let text = format!(
                "name = \"a\"\ndevices = [\"sim:hdd\"]\nseeds = [1]\n{more}\n[workload]\n\
                 workload = \"fs_mark\"\nthreads = 4\nsize = 65536\nfiles = {files}\n{groups}"
            );
            let race = Sweep::parse(&text).unwrap().run(&Opening::default(), &|_: &str| {}).unwrap();
            let run = |c: &Case| c.positions.first().map(|p| p.runs[0].clone());
            (race.outcome.cpus, race.outcome.cases.first().and_then(run), race.failed)
        };
        let each = "sync = \"none\"";
        let (cpus, plain, _) = run("", 50, each);
        let (one, alone, _) = run("cpus = 1", 50, each);
        assert_eq!((cpus, one), (Hardware::default().cpus, 1));
        let elapsed = |r: &Option<RunResult>| r.as_ref().unwrap().elapsed_ns;
        assert!(elapsed(&alone) > 2 * elapsed(&plain), "one CPU for four threads");
        // A seed gives one run; only the order of requests makes it a different one.
        let (_, many, _) = run("", 200, each);
        let (_, wfq, _) = run("elevator = \"wfq\"", 200, each);
        assert_ne!(elapsed(&many), elapsed(&wfq));
        let (_, one, _) = run("elevator = \"wfq,processes,depth=1\"", 200, each);
        assert_ne!(elapsed(&one), elapsed(&wfq));
        let (_, ext4, _) = run("format = \"ext4\"", 50, each);
        assert!(ext4.unwrap().target.starts_with("ext4 on"));
        let (_, _, failed) = run("size = 67108864", 300, each);
        let full = |e: &Error| matches!(e, Error::Vfs { source, .. } if source.kind() == ErrorKind::NoSpace);
        assert!(failed.iter().any(|(_, e)| full(e)), "75 MB into 64 MiB: {failed:?}");
        let (_, all, _) = run("memory = 1073741824", 1000, each);
        let (_, few, _) = run("memory = 67108864", 1000, each);
        assert!(elapsed(&few) > 2 * elapsed(&all), "250 MB that memory holds, and that it does not hold");
    }

    #[test]
    fn what_is_wrong_is_named() {
        let mark = "[workload]\nworkload = \"fs_mark\"\n";
        let file = |head: &str, more: &str| format!("{head}\n{mark}{more}");
        let (name, ufs) = ("name = \"a\"", "devices = [\"sim:ufs\"]");
        for (text, word) in [
            (file(&format!("name = \"m3\"\n{ufs}"), ""), "own results"),
            (file(&format!("name = \"../a\"\n{ufs}"), ""), "letters"),
            (file(&format!("{name}\ndevices = [\"floppy\"]"), ""), "dir:PATH"),
            (file(&format!("{name}\ndevices = []"), ""), "at least one"),
            (file(&format!("{name}\n{ufs}\nruns = 1\nseeds = [1]"), ""), "one of them"),
            (file(&format!("{name}\n{ufs}\nruns = 0"), ""), "at least one"),
            (file(&format!("{name}\n{ufs}\nbogus = 1"), ""), "bogus"),
            (file(&format!("{name}\n{ufs}"), "bogus = [1, 2]"), "bogus"),
            (
                file(&format!("{name}\ndevices = [\"dir:/tmp\"]"), "[options]\nsync_wait = \"caller\""),
                "mounted",
            ),
            (format!("{name}\n{ufs}"), "workload"),
            (file(&format!("{name}\n{ufs}\nsize = 4096"), ""), "size = 4096"),
            (file(&format!("{name}\n{ufs}\nsize = \"8G\""), ""), "size"),
            (file(&format!("{name}\ndevices = [\"dir:/tmp\"]\nsize = 1073741824"), ""), "size: dir:/tmp"),
            (file(&format!("{name}\n{ufs}\ncpus = 0"), ""), "cpus = 0"),
            (file(&format!("{name}\ndevices = [\"preset:ufs\"]\ncpus = 2"), ""), "cpus: preset:ufs"),
            (file(&format!("{name}\n{ufs}\nelevator = \"cfq\""), ""), "elevator = \"cfq\""),
            (
                file(&format!("{name}\ndevices = [\"kernel:f2fs\"]\nelevator = \"wfq\""), ""),
                "elevator: kernel",
            ),
            (file(&format!("{name}\n{ufs}\nmemory = 1"), ""), "memory = 1"),
            (file(&format!("{name}\ndevices = [\"dir:/tmp\"]\nmemory = 1073741824"), ""), "memory: dir:/tmp"),
        ] {
            let e = Sweep::parse(&text).unwrap_err().to_string();
            assert!(e.contains(word), "{text}: {e}");
        }
    }
}
