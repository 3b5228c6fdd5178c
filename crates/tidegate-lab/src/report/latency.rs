//! The columns of every table of latencies.

use super::text::nanos;
use crate::record::LONGEST;
use crate::result::Latency;

/// Percentages in tables, by their names in results, with their headings.
const SHOWN: [(&str, &str); 4] =
    [("50.000000", "p50"), ("99.000000", "p99"), ("99.900000", "p99.9"), ("99.990000", "p99.99")];

/// Headings.
pub fn columns() -> Vec<String> {
    let shown = SHOWN.iter().map(|(_, heading)| heading.to_string());
    let first = ["mean", "deviation"].map(String::from).into_iter();
    first.chain(shown).chain([format!("longest {LONGEST}")]).collect()
}

/// The cells of one kind of operation.
pub fn cells(l: &Latency) -> Vec<String> {
    let at = |(p, _): &(&str, &str)| l.percentiles.get(*p).map_or("–".into(), |v| nanos(*v as f64));
    let longest: Vec<String> = l.longest.iter().map(|v| nanos(*v as f64)).collect();
    let first = [nanos(l.mean), nanos(l.stddev)].into_iter();
    first.chain(SHOWN.iter().map(at)).chain([longest.join(", ")]).collect()
}
