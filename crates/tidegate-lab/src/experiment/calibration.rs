//! The kernel's own ratio, beside ours: the switch is changed in Linux itself, in a guest. There is no demand
//! on this ratio.
//!
//! The guest has one CPU and the disk of this host, so its figures are of another machine than ours. The
//! comparison tells which position is better there, and by how much.

use super::Plan;
use super::comparison::Comparison;
use super::observer::Observer;
use super::outcome::{Case, Counted, Position};
use super::rounds::Rounds;
use super::setting::{Counter, Metric, ratio};
use crate::error::{Error, Result};
use crate::kernel::{Format, Guest, Named, Shares, What, directory};
use crate::result::RunResult;
use crate::workload::Spec;
use std::time::Duration;
use tidegate_rt::clock;

/// Most rounds; each is two boots and two runs.
const ROUNDS: u64 = 5;
/// Rounds that are run in any case: with fewer an interval says nothing.
const LEAST: u64 = 3;
/// The longest time for all rounds, as the disk may be slow or busy.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes of the volume.
const SIZE: u64 = 1 << 30;

/// A run of the same workload in Linux itself, for a ratio beside ours.
pub(super) struct Calibration {
    /// Mount options, the old one first.
    pub positions: &'static [&'static str],
    pub workload: fn() -> Spec,
    /// Bytes that may be dirty in the guest.
    pub dirty: u64,
    pub counters: &'static [Counter],
    /// The name of the ratio: the first position's figure over the second's.
    pub name: &'static str,
    /// The published ratio.
    pub published: fn() -> f64,
    /// The differences from ours.
    pub note: &'static str,
}

impl Calibration {
    /// Number of runs of all positions, if there is time for all.
    pub(super) fn runs(&self) -> u64 {
        ROUNDS * self.positions.len() as u64
    }

    /// The kernel's figures with their conditions; if the kernel cannot be run, the reason.
    pub(super) fn shown(&self, plan: &Plan, observer: &dyn Observer) -> (Option<Case>, String) {
        match self.measure(plan, observer) {
            Ok(case) => {
                let note = format!(
                    "The kernel is {}, with one CPU, in real time. Its image is in {}, on the host's disk, for which \
                     each write waits. The elevator is BFQ with strict_guarantees. {} Nothing is demanded of it.",
                    case.target,
                    directory().display(),
                    self.note
                );
                (Some(case), note)
            }
            Err(e) => (None, format!("The kernel is not shown beside: {e}")),
        }
    }

    fn measure(&self, plan: &Plan, observer: &dyn Observer) -> Result<Case> {
        let shares = Shares { dirty: self.dirty };
        let in_a_guest = |options: &str, spec: &Spec| {
            let volume = Named { what: What::New(Format::F2fs), options: options.into() };
            let guest = Guest { volume: &volume, options: "", size: SIZE, shares: Some(shares) };
            Ok(guest.run(spec)?.result)
        };
        self.measure_by(plan, observer, &in_a_guest)
    }

    /// Runs all rounds; `run` makes a run with these mount options.
    fn measure_by(
        &self,
        plan: &Plan,
        observer: &dyn Observer,
        run: &dyn Fn(&str, &Spec) -> Result<RunResult>,
    ) -> Result<Case> {
        let mut rounds = Rounds::new(plan.seed, ROUNDS, self.positions.len());
        let spec = (self.workload)();
        let mut runs: Vec<Vec<RunResult>> = vec![Vec::new(); self.positions.len()];
        let (begin, mut done) = (clock::now(), 0);
        for (_, order) in rounds.each() {
            if !has_time(done, clock::now().since(begin).duration()) {
                break;
            }
            done += 1;
            for i in order {
                let options = self.positions[*i];
                runs[*i].push(run(options, &spec)?);
                observer.ran(&format!("the kernel, {options}"));
            }
        }
        let workload = serde_json::to_string(&spec).map_err(|e| Error::spec(e.to_string()))?;
        rounds.seeds.truncate(done as usize);
        rounds.order.truncate(done as usize);
        Ok(self.case(workload, rounds, runs))
    }

    fn case(&self, workload: String, rounds: Rounds, runs: Vec<Vec<RunResult>>) -> Case {
        let target = runs.iter().flatten().next().map(|r| r.target.clone()).unwrap_or_default();
        let position = |(name, runs): (&&str, Vec<RunResult>)| {
            let of_runs = |f: &dyn Fn(&RunResult) -> Option<f64>| runs.iter().map(f).collect::<Vec<_>>();
            let counters =
                self.counters.iter().filter_map(|(name, f)| Counted::of(name, of_runs(f))).collect();
            let values = of_runs(&|r| Metric::Elapsed.of(r));
            Position { counters, ..Position::of(name, values, runs) }
        };
        let positions: Vec<Position> = self.positions.iter().zip(runs).map(position).collect();
        let rounds_of_both = ratio(&positions, self.positions[0], self.positions[1]);
        Case {
            name: "the kernel, in this setting".into(),
            target,
            workload,
            metric: Metric::Elapsed.name().into(),
            less_is_better: true,
            comparisons: vec![Comparison::shown(self.name, (self.published)(), &rounds_of_both)],
            published: None,
            seeds: rounds.seeds,
            order: rounds.order,
            positions,
        }
    }
}

/// Whether there is time for one more round as long as the ones before.
fn has_time(done: u64, took: Duration) -> bool {
    done < LEAST || took * (done as u32 + 1) <= PATIENCE * done as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::comparison::Verdict;
    use crate::experiment::{ALL, Experiment, Where};
    use std::cell::RefCell;
    use tidegate::observe::Wanted;

    fn kernel() -> &'static Calibration {
        Experiment::named("m5").unwrap().kernel.as_ref().unwrap()
    }

    #[test]
    fn the_kernels_ratio_is_shown_and_not_judged() {
        let run = |s: u64| RunResult { elapsed_ns: s * 1_000_000_000, ..RunResult::default() };
        let runs = vec![vec![run(3), run(6), run(3), run(3)], vec![run(6), run(12), run(6), run(6)]];
        let case = kernel().case(String::new(), Rounds::new(1, 4, 2), runs);
        let [c] = &case.comparisons[..] else { panic!("{:?}", case.comparisons) };
        assert_eq!((c.ours.map(|r| (r * 1e6).round()), c.published), (Some(500_000.0), Some(68.0 / 48.0)));
        assert_eq!(
            (c.reproduces, &*c.why),
            (Verdict::Shown, ""),
            "worse than published, and no defect of ours"
        );
        assert!(c.low.is_some() && c.high.is_some());
        assert_eq!(case.positions[0].name, "nocheckpoint_merge");
    }

    /// Each round has both positions, in the order of the case, and figures stay with their position.
    #[test]
    fn each_round_turns_the_switch() {
        let asked = RefCell::new(Vec::new());
        let run = |options: &str, spec: &Spec| {
            assert_eq!(
                serde_json::to_string(spec).unwrap(),
                serde_json::to_string(&(kernel().workload)()).unwrap()
            );
            asked.borrow_mut().push(options.to_owned());
            let seconds = if options == "checkpoint_merge" { 2 } else { 3 };
            let elapsed_ns = (seconds * 1_000_000_000) + asked.borrow().len() as u64;
            Ok(RunResult { elapsed_ns, target: "Linux, a guest".into(), ..RunResult::default() })
        };
        let told = RefCell::new(Vec::new());
        let observer = |what: &str| told.borrow_mut().push(what.to_owned());
        let plan = Plan { seed: 7, kernel: true, ..Plan::default() };
        let case = kernel().measure_by(&plan, &observer, &run).unwrap();
        let of_order: Vec<&str> = case.order.iter().flatten().map(|i| kernel().positions[*i]).collect();
        assert_eq!(*asked.borrow(), of_order);
        assert_eq!(asked.borrow().len() as u64, kernel().runs());
        assert_eq!(case.seeds, (7..7 + ROUNDS).collect::<Vec<_>>());
        let names: Vec<String> = of_order.iter().map(|o| format!("the kernel, {o}")).collect();
        assert_eq!(*told.borrow(), names);
        for (p, seconds) in case.positions.iter().zip([3.0, 2.0]) {
            assert_eq!(p.values.len() as u64, ROUNDS);
            assert!(p.values.iter().flatten().all(|v| (v - seconds).abs() < 1e-6), "{p:?}");
        }
        assert_eq!(case.target, "Linux, a guest");
        assert_eq!(case.comparisons[0].ours.map(|r| (r * 1e3).round()), Some(1500.0));
        let fails = |_: &str, _: &Spec| Err(Error::spec("no such kernel"));
        let told = kernel().measure_by(&plan, &observer, &fails).err().map(|e| e.to_string());
        assert_eq!(told, Some(Error::spec("no such kernel").to_string()));
    }

    #[test]
    fn rounds_go_on_while_there_is_time() {
        let after = |done, seconds| has_time(done, Duration::from_secs(seconds));
        assert!(after(0, 0) && after(2, 500), "three in any case");
        assert!(after(3, 45) && !after(3, 46));
        assert!(after(4, 48) && !after(4, 49));
    }

    #[test]
    fn the_kernel_runs_where_it_may() {
        let m5 = Experiment::named("m5").unwrap();
        let runs = |plan: Plan| {
            m5.runs(&plan, Wanted::default()) - m5.runs(&Plan { kernel: false, ..plan }, Wanted::default())
        };
        let may = || Plan { kernel: true, ..Plan::default() };
        assert_eq!(runs(may()), 2 * ROUNDS);
        assert_eq!(runs(Plan { quick: true, ..may() }), 0);
        assert_eq!(runs(Plan { device: Some(Where::Preset(tidegate_block::Preset::Hdd)), ..may() }), 0);
        assert_eq!(ALL.iter().filter(|e| e.kernel.is_some()).count(), 1);
    }
}
