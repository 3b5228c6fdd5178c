//! Rounds: the number and order of runs of each participant, and their worlds.
//!
//! Each round runs every participant once, in an order of its own, so that neither a machine that grows
//! slower nor a neighbour in the order affects only one of them. In real time an unmeasured round comes
//! first, since the first run has cold caches, slow clocks and files that are not there yet. In simulated
//! time there is nothing to warm up: a run depends only on its seed.

use super::outcome::Estimate;
use tidegate_rt::rng::Rng;
use tidegate_rt::sim;

/// Default number of rounds.
pub const RUNS: u64 = 7;
/// Default number of rounds for a first look.
pub const QUICK_RUNS: u64 = 3;

/// One in this many meetings of threads in a simulated world is delayed, by up to 3 ms, as by interrupts and
/// other work of a machine: on average 11 ns for each lock, half of the lock's own cost. Without the delays
/// every seed would give nearly equal figures, and intervals would say nothing.
const JITTER: u32 = 1 << 17;

/// The order of runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rounds {
    /// Each round's seed.
    pub seeds: Vec<u64>,
    /// For each round, the numbers of the participants in the order of their runs.
    pub order: Vec<Vec<usize>>,
}

impl Rounds {
    /// `rounds` rounds of `of` participants; the first has `seed`, each further one the next.
    pub fn new(seed: u64, rounds: u64, of: usize) -> Rounds {
        Self::with_seeds((0..rounds.max(1)).map(|n| seed.wrapping_add(n)).collect(), of)
    }

    /// A round for each of these seeds.
    pub fn with_seeds(seeds: Vec<u64>, of: usize) -> Rounds {
        let order = seeds.iter().map(|seed| shuffled(*seed, of)).collect();
        Rounds { seeds, order }
    }

    /// Seed and order of each round.
    pub fn each(&self) -> impl Iterator<Item = (u64, &[usize])> {
        self.seeds.iter().zip(&self.order).map(|(seed, order)| (*seed, &order[..]))
    }
}

/// All numbers below `n` in an order that the seed decides.
fn shuffled(seed: u64, n: usize) -> Vec<usize> {
    // The world of the round draws from the seed itself.
    let mut rng = Rng::new(seed).fork(1);
    let mut all: Vec<usize> = (0..n).collect();
    for i in (1..n).rev() {
        all.swap(i, rng.below(i as u64 + 1) as usize);
    }
    all
}

/// The simulated world of a run.
pub fn world(seed: u64, cpus: usize) -> sim::Config {
    sim::Config { seed, cpus, jitter: JITTER, ..sim::Config::default() }
}

/// The number of the median run: the first of the runs whose figure is nearest to the median of all.
pub fn median_run(values: &[Option<f64>]) -> usize {
    let Some(all) = Estimate::of(values.iter().flatten().copied()) else { return 0 };
    let away = |v: &Option<f64>| v.map_or(f64::INFINITY, |v| (v - all.median).abs());
    let nearest = values.iter().enumerate().min_by(|a, b| away(a.1).total_cmp(&away(b.1)));
    nearest.map_or(0, |(i, _)| i)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_runs_once_in_each_round_and_at_every_place() {
        let seed = 5;
        println!("seed {seed}");
        let rounds = Rounds::new(seed, 300, 3);
        assert_eq!((rounds.seeds[0], rounds.seeds[299]), (5, 304));
        let mut times = [[0; 3]; 3];
        for (_, order) in rounds.each() {
            let mut sorted = order.to_vec();
            sorted.sort_unstable();
            assert_eq!(sorted, [0, 1, 2]);
            order.iter().enumerate().for_each(|(place, who)| times[*who][place] += 1);
        }
        assert!(times.iter().flatten().all(|n| (70..130).contains(n)), "{times:?}");
        assert_eq!(rounds, Rounds::new(seed, 300, 3), "by the seed");
    }

    #[test]
    fn the_median_run_is_one_that_was_run() {
        assert_eq!(median_run(&[Some(9.0), Some(1.0), Some(4.0)]), 2);
        assert_eq!(median_run(&[Some(9.0), None, Some(1.0), Some(4.0), Some(4.5)]), 3);
        assert_eq!((median_run(&[None]), median_run(&[])), (0, 0));
    }
}
