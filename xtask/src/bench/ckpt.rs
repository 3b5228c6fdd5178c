//! `bench ckpt`: many fsyncs of a directory beside unimportant ones and a stream, with `checkpoint_merge` and
//! without.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde::{Deserialize, Serialize};

use super::measure::Spread;
use crate::workspace;

/// What to run.
#[derive(Debug, Clone, Args)]
pub struct CkptPlan {
    /// Rounds; each position of the switch runs once in each.
    #[arg(long, default_value_t = 3)]
    pub runs: u32,
    /// Files made, and fsyncs of their directory.
    #[arg(long, default_value_t = 1000)]
    pub files: u32,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

const POSITIONS: [&str; 2] = ["nocheckpoint_merge", "checkpoint_merge"];

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Step {
    step: String,
    mean_ns: f64,
}

/// What one run prints.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Run {
    seconds: f64,
    streamed: u64,
    background: u64,
    total_ckpt: u64,
    issued_ckpt: u64,
    peak_ckpt_time_ms: u64,
    steps: Vec<Step>,
}

/// Runs both positions in turn, round by round, and reports.
pub fn ckpt(plan: &CkptPlan) -> Result<()> {
    let built = Command::new(workspace::cargo())
        .args(["build", "--quiet", "--release", "-p", "tidegate", "--example", "ckpt_load"])
        .current_dir(workspace::root())
        .status()
        .context("running cargo build")?;
    ensure!(built.success(), "the workload was not built");
    let mut runs: [Vec<Run>; 2] = Default::default();
    for round in 1..=plan.runs.max(1) {
        for (position, runs) in POSITIONS.iter().zip(&mut runs) {
            let run = load(position, plan.files)?;
            eprintln!("{round}/{} {position}: {:.3} s", plan.runs, run.seconds);
            runs.push(run);
        }
    }
    if plan.json { json(plan, &runs) } else { table(plan, &runs) }
}

fn load(position: &str, files: u32) -> Result<Run> {
    let program = workspace::target_dir().join("release/examples/ckpt_load");
    let out = Command::new(&program)
        .arg(position)
        .arg(files.to_string())
        .output()
        .with_context(|| program.display().to_string())?;
    ensure!(out.status.success(), "{position}: {}", String::from_utf8_lossy(&out.stderr));
    serde_json::from_slice(&out.stdout).context("parsing the workload's report")
}

fn spread(runs: &[Run], f: impl Fn(&Run) -> f64) -> Spread {
    Spread::of(runs.iter().map(f)).unwrap_or_default()
}

fn table(plan: &CkptPlan, runs: &[Vec<Run>; 2]) -> Result<()> {
    println!("{} x (create; fsync of the directory); medians of {} [least to most]\n", plan.files, plan.runs);
    println!("{:<34} {:>26} {:>26}", "", POSITIONS[0], POSITIONS[1]);
    let row = |name: &str, f: &dyn Fn(&Run) -> f64| {
        let [a, b] = [0, 1].map(|i| {
            let s = spread(&runs[i], f);
            format!("{:.3} [{:.3} to {:.3}]", s.median, s.min, s.max)
        });
        println!("{name:<34} {a:>26} {b:>26}");
    };
    row("elapsed s", &|r| r.seconds);
    row("background fsyncs/s", &|r| r.background as f64 / r.seconds);
    row("stream beside it, MB/s", &|r| r.streamed as f64 / 1e6 / r.seconds);
    row("total_ckpt", &|r| r.total_ckpt as f64);
    row("issued_ckpt", &|r| r.issued_ckpt as f64);
    row("peak_ckpt_time ms", &|r| r.peak_ckpt_time_ms as f64);
    println!("\nmean ms of a checkpoint's steps");
    let steps = runs[0].first().map_or(0, |r| r.steps.len());
    for i in 0..steps {
        row(&runs[0][0].steps[i].step, &|r| r.steps.get(i).map_or(0.0, |s| s.mean_ns / 1e6));
    }
    let [before, after] = [0, 1].map(|i| spread(&runs[i], |r| r.seconds).median);
    println!(
        "\n{:.2} times as long without checkpoint_merge (published: 68 s to 48 s, 1.42)",
        before / after
    );
    Ok(())
}

fn json(plan: &CkptPlan, runs: &[Vec<Run>; 2]) -> Result<()> {
    let position =
        |i: usize| serde_json::json!({ "elapsed_s": spread(&runs[i], |r| r.seconds), "runs": runs[i] });
    let all = serde_json::json!({
        "files": plan.files,
        "nocheckpoint_merge": position(0),
        "checkpoint_merge": position(1),
    });
    println!("{}", serde_json::to_string_pretty(&all)?);
    Ok(())
}
