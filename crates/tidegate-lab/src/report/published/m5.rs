//! M5 as commit 261eeb9c shows it: the duration of the thread in the heavy group.

use super::{Block, Case, NONE};
use crate::workload::Spec;

/// The thread's durations, without and with the change, in seconds.
const ELAPSED: [(&str, f64); 2] = [("nocheckpoint_merge", 68.0), ("checkpoint_merge", 48.0)];
/// Number of times that the thread touched a file and synced the directory for that.
const TIMES: u64 = 1000;

pub(super) fn blocks(case: &Case) -> Vec<Block> {
    let times = match serde_json::from_str(&case.workload) {
        Ok(Spec::CkptStorm(storm)) => storm.groups.iter().map(|g| g.times).max(),
        _ => None,
    };
    let times = times.unwrap_or(TIMES);
    let mut b = Block::new("Elapsed time of thread A").note(
        "Thread A does so many times: touch a file, fsync its directory. Scaled is the published time by the \
            number of times that ours did it.",
    );
    b.pane(format!("published, {TIMES} times"), lines(|i| Some(ELAPSED[i].1)));
    let share = times as f64 / TIMES as f64;
    b.pane(format!("published, scaled to {times}"), lines(|i| Some(ELAPSED[i].1 * share)));
    let runs = case.positions.iter().map(|p| p.runs.len()).max().unwrap_or(0);
    b.pane(format!("ours, {times} times, {runs} runs"), lines(|i| average(case, ELAPSED[i].0)));
    vec![b]
}

fn lines(seconds: impl Fn(usize) -> Option<f64>) -> String {
    let one = |(i, (name, _)): (usize, &(&str, f64))| {
        let time = seconds(i).map_or(NONE.into(), |s| format!("{s:.2} s"));
        format!("[ {name} ]\nElapsed: avg. {time}\n")
    };
    ELAPSED.iter().enumerate().map(one).collect()
}

/// The average over the runs of a position that have a figure.
fn average(case: &Case, position: &str) -> Option<f64> {
    let values = &case.positions.iter().find(|p| p.name == position)?.values;
    let seconds: Vec<f64> = values.iter().flatten().copied().collect();
    (!seconds.is_empty()).then(|| seconds.iter().sum::<f64>() / seconds.len() as f64)
}
