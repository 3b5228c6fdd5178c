//! Runs one workload or fio job file and prints what it gave, as JSON.
//!
//! ```sh
//! cargo run --release -p tidegate-lab --example lab_run -- --preset ufs --simulate 1 \
//!     --options checkpoint_merge --wfq '{"workload":"ckpt_storm"}'
//! cargo run --release -p tidegate-lab --example lab_run -- --dir /mnt jobs.fio
//! ```
#![forbid(unsafe_code)]

use clap::Parser;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use tidegate_block::{Elevator, Preset, WfqOptions};
use tidegate_lab::fio::{self, JobFile, json::Output};
use tidegate_lab::{Directory, Error, Result, Rig, Spec, Target};
use tidegate_rt::sim;

#[derive(Parser, Clone)]
#[command(name = "lab_run", about = "Runs a workload on a new volume on a device model, or on a directory")]
struct Cli {
    /// The device model of a new volume.
    #[arg(long, conflicts_with = "dir", default_value = "ramdisk")]
    preset: Preset,
    /// Its size in MiB.
    #[arg(long, default_value_t = 1024)]
    size: u64,
    /// Mount options of the volume, as `writepages=locked,mode=lfs`.
    #[arg(short, long, default_value = "")]
    options: String,
    /// Weighted fair queueing in front of the device.
    #[arg(long)]
    wfq: bool,
    /// In simulated time, with this seed.
    #[arg(long, conflicts_with = "dir")]
    simulate: Option<u64>,
    /// CPUs of the simulated world.
    #[arg(long, default_value_t = 4)]
    cpus: usize,
    /// A directory of the host instead of a volume.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// A specification in JSON, or the path of a fio job file.
    what: String,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = match cli.simulate {
        Some(seed) => sim::run(seed, cli.cpus, move || run(&cli)),
        None => run(&cli),
    };
    match done {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(e) => {
            eprintln!("error: {e}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: &Cli) -> Result<String> {
    if let Some(dir) = &cli.dir {
        return work(cli, &(Arc::new(Directory::open(dir)?) as Arc<dyn Target>));
    }
    let elevator = if cli.wfq { Elevator::Wfq(WfqOptions::default()) } else { Elevator::None };
    let rig = Rig { elevator, options: cli.options.clone(), ..Rig::new(cli.preset, cli.size << 20) };
    let volume = Arc::new(rig.build()?);
    let text = work(cli, &(volume.clone() as Arc<dyn Target>));
    match Arc::into_inner(volume) {
        Some(v) => v.unmount().and(text),
        None => text,
    }
}

fn work(cli: &Cli, target: &Arc<dyn Target>) -> Result<String> {
    let invalid = |e: &dyn std::fmt::Display| Error::Spec(format!("{}: {e}", cli.what));
    if cli.what.trim_start().starts_with('{') {
        let spec: Spec = serde_json::from_str(&cli.what).map_err(|e| invalid(&e))?;
        let result = tidegate_lab::run(&spec, target)?;
        return serde_json::to_string_pretty(&result).map_err(|e| invalid(&e));
    }
    let text = std::fs::read_to_string(&cli.what).map_err(|e| invalid(&e))?;
    let outcome = fio::run(&JobFile::parse(&text)?, target)?;
    outcome.notes.iter().for_each(|n| eprintln!("note: {n}"));
    Ok(Output::new(&outcome).to_json())
}
