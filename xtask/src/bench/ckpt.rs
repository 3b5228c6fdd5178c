//! `bench ckpt`: many fsyncs of a directory beside unimportant ones and a stream, with `checkpoint_merge` and
//! without. It is the lab's m5 in real time, on a device in memory with the delays of its model.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::Args;

use tidegate_testing::workspace;

/// The plan of a run.
#[derive(Debug, Clone, Args)]
pub struct CkptPlan {
    /// Rounds; each position of the switch runs once in each.
    #[arg(long, default_value_t = 3)]
    pub runs: u32,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Runs both positions in turn, round by round, and reports. `tidegate lab report` draws the kept results,
/// with the steps of the checkpoints.
pub fn ckpt(plan: &CkptPlan) -> Result<()> {
    let tidegate = workspace::build_tidegate()?;
    let kept = workspace::target_dir().join("bench/ckpt");
    let mut lab = Command::new(&tidegate);
    lab.args(["lab", "run", "m5", "--device", "real:ufs", "--runs", &plan.runs.to_string()]);
    lab.arg("--out").arg(&kept).args(plan.json.then_some("--json"));
    let done = lab.status().with_context(|| tidegate.display().to_string())?;
    ensure!(done.success(), "{} lab run m5: {done}", tidegate.display());
    Ok(())
}
