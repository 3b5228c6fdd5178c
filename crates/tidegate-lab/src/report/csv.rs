//! Outcomes as CSV: a row for each kind of operation of each run.

use super::{Case, Outcome, Position};
use crate::result::{OpStats, RunResult};
use serde::Serialize;

/// The columns; times in the unit of their names.
#[derive(Serialize)]
struct Row<'a> {
    experiment: &'a str,
    case: &'a str,
    target: &'a str,
    position: &'a str,
    round: usize,
    seed: Option<u64>,
    /// Its position in the order of its round.
    place: Option<usize>,
    elapsed_s: f64,
    metric: &'a str,
    value: Option<f64>,
    operation: &'a str,
    count: u64,
    bytes: u64,
    per_second: f64,
    mean_ns: f64,
    stddev_ns: f64,
    min_ns: u64,
    p50_ns: Option<u64>,
    p99_ns: Option<u64>,
    p99_9_ns: Option<u64>,
    p99_99_ns: Option<u64>,
    max_ns: u64,
}

/// All measurements of every run; a run without operations has one row.
///
/// # Errors
/// Those of the writer.
pub fn csv(outcome: &Outcome) -> Result<Vec<u8>, csv::Error> {
    let mut out = csv::Writer::from_writer(Vec::new());
    let none = OpStats::default();
    for case in &outcome.cases {
        for (i, p) in case.positions.iter().enumerate() {
            for (round, run) in p.runs.iter().enumerate() {
                let ops = run.ops.iter().map(|(name, op)| (&**name, op));
                for op in ops.chain(run.ops.is_empty().then_some(("", &none))) {
                    out.serialize(row(outcome, case, (i, p), (round, run), op))?;
                }
            }
        }
    }
    out.into_inner().map_err(|e| e.into_error().into())
}

fn row<'a>(
    outcome: &'a Outcome,
    case: &'a Case,
    (number, p): (usize, &'a Position),
    (round, run): (usize, &'a RunResult),
    (operation, op): (&'a str, &OpStats),
) -> Row<'a> {
    let l = &op.latency;
    let at = |p: &str| l.percentiles.get(p).copied();
    Row {
        experiment: &outcome.experiment,
        case: &case.name,
        target: &case.target,
        position: &p.name,
        round: round + 1,
        seed: case.seeds.get(round).copied(),
        place: case.order.get(round).and_then(|o| o.iter().position(|i| *i == number)).map(|i| i + 1),
        elapsed_s: run.elapsed_ns as f64 / 1e9,
        metric: &case.metric,
        value: p.values.get(round).copied().flatten(),
        operation,
        count: l.count,
        bytes: op.bytes,
        per_second: run.per_second(operation),
        mean_ns: l.mean,
        stddev_ns: l.stddev,
        min_ns: l.min,
        p50_ns: at("50.000000"),
        p99_ns: at("99.000000"),
        p99_9_ns: at("99.900000"),
        p99_99_ns: at("99.990000"),
        max_ns: l.max,
    }
}
