//! The cost of observation: equal marks on one volume, without observation and with each kind of observation.
//! Runs that lie close together in time are compared, since the speed of a shared machine varies.

use crate::mark::Mark;
use crate::target::{Report, Result, Target};
use clap::Args;
use std::collections::BTreeMap;
use std::sync::Arc;
use tidegate::observe::{Recording, Wanted};
use tidegate_rt::rng::Rng;

/// The number of events that are kept of each thread, as in `tidegate --trace`.
const EVENTS: usize = 65_536;

const OFF: Wanted = Wanted { locks: false, events: None, calls: false, causes: false };
const WAYS: [(&str, Wanted); 5] = [
    ("off", OFF),
    ("lockstat", Wanted { locks: true, ..OFF }),
    ("trace", Wanted { events: Some(EVENTS), ..OFF }),
    ("profile", Wanted { calls: true, ..OFF }),
    ("all", Wanted { locks: true, events: Some(EVENTS), calls: true, ..OFF }),
];

#[derive(Args)]
pub struct Look {
    #[command(flatten)]
    mark: Mark,
    /// Rounds. In each, every way has one repetition, in a new random order.
    #[arg(long, default_value_t = 10)]
    rounds: u64,
    /// Only these ways, of off, lockstat, trace, profile and all.
    #[arg(long, value_delimiter = ',')]
    ways: Vec<String>,
    /// The seed of the orders.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

impl Look {
    /// Returns a report for each round, by way.
    pub fn run(&self, target: &Arc<dyn Target>) -> Result<BTreeMap<&'static str, Vec<Report>>> {
        let mut found = BTreeMap::<_, Vec<Report>>::new();
        let mut rng = Rng::new(self.seed);
        self.mark.prepare(&**target)?;
        // The first run finds caches empty, and is not counted.
        self.once(target, OFF)?;
        for _ in 0..self.rounds {
            let mut left = WAYS.to_vec();
            left.retain(|(way, _)| self.ways.is_empty() || self.ways.iter().any(|w| w == way));
            while !left.is_empty() {
                let (way, wanted) = left.swap_remove(rng.below(left.len() as u64) as usize);
                found.entry(way).or_default().push(self.once(target, wanted)?);
            }
        }
        Ok(found)
    }

    /// Runs the marks once. Records are collected and thrown away.
    fn once(&self, target: &Arc<dyn Target>, wanted: Wanted) -> Result<Report> {
        let recording = if wanted == OFF { None } else { Recording::start(wanted) };
        let mut report = self.mark.once(target)?;
        if let Some(r) = recording {
            let observed = r.finish();
            let calls = observed.recorded.calls.iter().flat_map(|t| &t.nodes);
            report.counts.insert("spans", calls.map(|n| n.count).sum());
            report.counts.insert("acquisitions", observed.locks.iter().map(|l| l.all().acquisitions).sum());
            let events = observed.recorded.events.len() as u64 + observed.recorded.dropped;
            report.counts.insert("events", events);
        }
        self.mark.remove(&**target)?;
        target.sync()?;
        Ok(report)
    }
}
