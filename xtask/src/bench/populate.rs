//! `bench populate`: volumes filled, emptied, streamed into and opened.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::cases::Bench;
use super::cli::Plan;
use super::measure::Cost;
use super::{report, tree};
use tidegate_testing::temp::TempDir;
use tidegate_testing::{oracle, workspace};

type Case = (&'static str, fn(&Bench) -> Result<Cost>);

const CASES: &[Case] = &[
    ("populate tidegate", Bench::populate),
    ("populate f2fs-tools", Bench::populate_f2fs_tools),
    ("populate tidegate ext4", Bench::populate_own_ext4),
    ("populate ext4", Bench::populate_ext4),
    ("copy-out tidegate", Bench::copy_out),
    ("copy-out tar archive", Bench::tar_archive),
    ("copy-out tar copy", Bench::tar_copy),
    ("large-in tidegate", Bench::large_in),
    ("large-in fio", Bench::large_fio),
    ("open 1T tidegate", Bench::open_large),
    ("open 16T tidegate ext4", Bench::open_large_ext4),
];

/// The costs of each case, or why there are none.
pub(super) type Results = BTreeMap<&'static str, Result<Vec<Cost>, String>>;

/// Runs every case in turn, round by round, and reports.
pub fn populate(plan: &Plan) -> Result<()> {
    for name in ["mkfs.f2fs", "sload.f2fs", "mke2fs", "fio"] {
        oracle::require(name)?;
    }
    if let Err(e) = workspace::build_tidegate() {
        eprintln!("{e:#}; measuring its peers alone");
    }
    fs::create_dir_all(&plan.dir).with_context(|| format!("creating {}", plan.dir.display()))?;
    let scratch = TempDir::new_in(&plan.dir, "bench")?;
    let (results, sizes) = measure(plan, scratch.path())?;
    if plan.json {
        report::json(&results, sizes)
    } else {
        report::table(&results, sizes);
        Ok(())
    }
}

/// Sizes of the measured trees, and other values that are equal in all rounds.
#[derive(Debug, Clone, Copy, serde::Serialize)]
pub(super) struct Sizes {
    pub runs: u32,
    pub files: u64,
    pub tree_bytes: u64,
    pub large_bytes: u64,
    /// The number of bytes in which two ext4 volumes from the tree differ.
    pub differing: Option<u64>,
}

fn measure(plan: &Plan, dir: &Path) -> Result<(Results, Sizes)> {
    let scale = plan.scale.clamp(0.0005, 1.0);
    let files = (50_000.0 * scale) as u64;
    let large = (4096.0 * scale).ceil() as u64 * (1 << 20);
    let source = dir.join("src");
    fs::create_dir(&source)?;
    let tree_bytes = tree::source_tree(&source, files)?;
    tree::large_file(&dir.join("large.dat"), large)?;
    let bench =
        Bench { tidegate: workspace::target_dir().join("release/tidegate"), dir: dir.to_path_buf(), large };
    let mut results: Results = CASES.iter().map(|(name, _)| (*name, Ok(Vec::new()))).collect();
    for round in 1..=plan.runs.max(1) {
        for (name, case) in CASES {
            let Some(Ok(costs)) = results.get_mut(name) else { continue };
            match case(&bench) {
                Ok(cost) => {
                    eprintln!("{round}/{} {name}: {:.3} s", plan.runs, cost.wall);
                    costs.push(cost);
                }
                Err(e) => {
                    eprintln!("{round}/{} {name}: failed: {e:#}", plan.runs);
                    results.insert(name, Err(format!("{e:#}")));
                }
            }
        }
    }
    let differing = bench.differing_ext4().inspect_err(|e| eprintln!("ext4 twice: failed: {e:#}")).ok();
    Ok((results, Sizes { runs: plan.runs, files, tree_bytes, large_bytes: large, differing }))
}
