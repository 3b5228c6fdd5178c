//! `cargo xtask soak`: long runs of tests that are otherwise short.

use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

use tidegate_testing::{oracle, workspace};

/// A test, and the reason for its length.
struct Long {
    /// The package and the test program.
    of: (&'static str, &'static str),
    name: &'static str,
    settings: &'static [(&'static str, &'static str)],
}

const MOUNT: (&str, &str) = ("tidegate-fuse", "mount");
const F2FS: (&str, &str) = ("tidegate-f2fs", "it");

const LONG: &[Long] = &[
    // Thousands of volumes with random damage: check, repair and the reference fsck agree, and reading ends.
    Long { of: ("tidegate-f2fs", "corrupt"), name: "chance::", settings: &[("TIDEGATE_DAMAGED", "20000")] },
    Long { of: ("tidegate-ext4", "it"), name: "repaired::", settings: &[("TIDEGATE_DAMAGED", "2000")] },
    Long { of: ("tidegate-ext4", "it"), name: "fuzzed::", settings: &[("TIDEGATE_DAMAGED", "20000")] },
    Long { of: ("tidegate-ext4", "it"), name: "damaged", settings: &[("TIDEGATE_DAMAGED", "1000")] },
    // Random work on volumes of many kinds, judged by e2fsck, Linux and a model in memory.
    Long { of: ("tidegate-ext4", "it"), name: "soaked::", settings: &[("TIDEGATE_SOAK", "900")] },
    // Random series of operations on a volume and on a plain model.
    Long { of: ("tidegate-ext4", "it"), name: "model::", settings: &[("PROPTEST_CASES", "2000")] },
    Long { of: F2FS, name: "model::", settings: &[("PROPTEST_CASES", "2000")] },
    // Power cuts of F2FS volumes, also on zones, and of ext4 volumes.
    Long {
        of: ("tidegate-crash", "explore"),
        name: "power_cuts",
        settings: &[("TIDEGATE_CRASH_STATES", "100000")],
    },
    // Writers on zones, in worlds with other orders of threads and completions.
    Long { of: F2FS, name: "zoned_sim::", settings: &[("TIDEGATE_ZONED_RUNS", "10000")] },
    // Linux takes over what streams left, with every policy and number of streams.
    Long { of: F2FS, name: "streams_kernel::", settings: &[("TIDEGATE_STREAMS", "all")] },
    // Linux and we are killed in the midst of writes, and each recovers the other's volume.
    Long { of: F2FS, name: "power::", settings: &[("TIDEGATE_KILLS", "20")] },
    // The serving process is killed at 200 random moments of a mixed load.
    Long { of: MOUNT, name: "kill::", settings: &[("TIDEGATE_KILLS", "200")] },
    // A volume is filled up 50 times.
    Long { of: MOUNT, name: "full::a_full", settings: &[("TIDEGATE_FULL_ROUNDS", "50")] },
    Long { of: MOUNT, name: "fsx::", settings: &[("TIDEGATE_FSX_OPS", "2000000")] },
    // A million inodes are looked up with `cache=256M`.
    Long {
        of: MOUNT,
        name: "memory::",
        settings: &[("TIDEGATE_FUSE_FILES", "1000000"), ("TIDEGATE_FUSE_CACHE", "256")],
    },
    Long { of: MOUNT, name: "postgres::", settings: &[("TIDEGATE_PG_KILLS", "10")] },
    Long { of: MOUNT, name: "stress::", settings: &[("TIDEGATE_STRESS_SECONDS", "300")] },
    Long {
        of: MOUNT,
        name: "programs::",
        settings: &[("TIDEGATE_SQLITE_ROWS", "1000"), ("TIDEGATE_KILLS", "20")],
    },
    // All of /usr/share is copied into a volume and out of it.
    Long { of: ("tidegate-cli", "it"), name: "system::", settings: &[("TIDEGATE_TREE", "/usr/share")] },
    Long { of: MOUNT, name: "trees::a_tree", settings: &[("TIDEGATE_TREE", "/usr")] },
    Long { of: MOUNT, name: "exercise::", settings: &[("TIDEGATE_FUSE_ROUNDS", "100")] },
    Long { of: MOUNT, name: "load::", settings: &[("TIDEGATE_FUSE_OPS", "5000")] },
];

/// The plan of a run.
#[derive(Args)]
pub struct SoakArgs {
    /// Only tests whose names contain one of these.
    only: Vec<String>,
    /// Repeat a random failure: the seed that it printed.
    #[arg(long)]
    seed: Option<u64>,
    /// The volumes' format: f2fs or ext4.
    #[arg(long, default_value = "f2fs", value_parser = ["f2fs", "ext4"])]
    format: String,
    /// List them and run none.
    #[arg(long)]
    list: bool,
}

/// Runs the long tests one after the other, built with optimisation; needs root. Continues after a failure.
pub fn run(args: &SoakArgs) -> Result<()> {
    let wanted = |l: &&Long| args.only.is_empty() || args.only.iter().any(|o| l.name.contains(o.as_str()));
    let chosen: Vec<&Long> = LONG.iter().filter(wanted).collect();
    if chosen.is_empty() {
        bail!("no long test is called {}", args.only.join(" or "));
    }
    if args.list {
        for l in chosen {
            println!("{:<16} {}", l.name, shown(l));
        }
        return Ok(());
    }
    oracle::install_missing()?;
    let mut failed = Vec::new();
    for l in chosen {
        let start = Instant::now();
        println!("== {} {}", l.name, shown(l));
        let good = test(l, args)?;
        println!(
            "== {}: {} in {:.0} s",
            l.name,
            if good { "good" } else { "FAILED" },
            start.elapsed().as_secs_f64()
        );
        if !good {
            failed.push(l.name);
        }
    }
    if !failed.is_empty() {
        bail!("failed: {}", failed.join(", "));
    }
    println!("xtask soak: all good");
    Ok(())
}

fn shown(l: &Long) -> String {
    l.settings.iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>().join(" ")
}

fn cargo(l: &Long) -> Command {
    let mut cargo = Command::new(workspace::cargo());
    cargo
        .args(["test", "--release", "--quiet", "--package", l.of.0, "--test", l.of.1, "--", l.name])
        .current_dir(workspace::root());
    cargo
}

/// Whether there is such a test. A run of no test counts as passed.
fn listed(l: &Long) -> Result<bool> {
    let out = cargo(l).arg("--list").stderr(Stdio::inherit()).output().context("running cargo")?;
    Ok(String::from_utf8_lossy(&out.stdout).lines().any(|line| line.ends_with(": test")))
}

/// Whether a test passes. A missing tool is a failure: a soak needs every tool.
fn test(l: &Long, args: &SoakArgs) -> Result<bool> {
    ensure!(listed(l)?, "{}: no test has this name", l.name);
    let mut cargo = cargo(l);
    cargo
        .args(["--nocapture", "--test-threads=1"])
        .env("CI", "true")
        .env("TIDEGATE_TEST_FORMAT", &args.format)
        .envs(l.settings.iter().copied());
    if let Some(seed) = args.seed {
        cargo.env("TIDEGATE_SEED", seed.to_string());
    }
    Ok(cargo.status().context("running cargo")?.success())
}
