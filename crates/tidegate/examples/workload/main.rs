//! Workloads on an image, by the library, or on a mounted directory, by the kernel. One code serves both, so
//! that `cargo xtask bench` can compare them. Prints JSON.
//!
//! ```sh
//! cargo run --release -p tidegate --example workload -- --image demo.img mark --threads 16 --files 8 --size 524288
//! ```
//!
//! | module | holds |
//! |---|---|
//! | `target` | what a workload runs on |
//! | `volume`, `host` | an opened image; a directory of the host |
//! | `mark` | many threads make files, in the manner of fs_mark |
//! | `look` | marks under each kind of observation |
//! | `age` | a volume is filled, then overwritten at random |
//! | `beside` | threads append and fsync, or read, beside a thread that writes |
//! | `stamp` | pages that bear their own numbers |
#![forbid(unsafe_code)]

mod age;
mod beside;
mod host;
mod look;
mod mark;
mod stamp;
mod target;
mod volume;

use clap::{Parser, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use target::{Result, Target};

#[derive(Parser)]
#[command(name = "workload", about = "Runs a workload on an image or a directory and prints what it took")]
struct Cli {
    /// An image, opened by the library.
    #[arg(long, required_unless_present = "dir", conflicts_with = "dir")]
    image: Option<PathBuf>,
    /// Mount options for the image, as `writepages=locked,mode=lfs`.
    #[arg(short, long, default_value = "")]
    options: String,
    /// Bytes of the page cache for the image.
    #[arg(long, global = true, conflicts_with = "dir")]
    cache: Option<u64>,
    /// A directory of the host; best where something is mounted.
    #[arg(long)]
    dir: Option<PathBuf>,
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Threads make files: create, write, fsync.
    Mark(mark::Mark),
    /// Marks in rounds: with nothing looked at, and with each thing there is to look at.
    Look(look::Look),
    /// One file takes a share of the volume.
    Fill(age::Fill),
    /// Pages of that file are overwritten at random.
    Overwrite(age::Overwrite),
    /// Threads append and fsync, or read at random, beside one that writes without end.
    Beside(beside::Beside),
}

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(e) => {
            eprintln!("error: {e}");
            ExitCode::FAILURE
        }
    }
}

fn open(cli: &Cli) -> Result<Arc<dyn Target>> {
    match (&cli.image, &cli.dir) {
        (Some(image), _) => Ok(Arc::new(volume::Image::open(image, &cli.options, cli.cache)?)),
        (None, Some(dir)) => Ok(Arc::new(host::Directory::open(dir)?)),
        (None, None) => Err("--image or --dir is needed".into()),
    }
}

/// A line of JSON.
fn run(cli: &Cli) -> Result<String> {
    let target = open(cli)?;
    let mut report = match &cli.what {
        What::Mark(m) => m.run(&target)?,
        What::Look(l) => {
            let found = l.run(&target)?;
            target.close()?;
            return Ok(serde_json::to_string(&found)?);
        }
        What::Fill(f) => f.run(&*target)?,
        What::Overwrite(o) => o.run(&*target)?,
        What::Beside(b) => b.run(&target)?,
    };
    target.close()?;
    drop(target);
    if let What::Mark(m) = &cli.what
        && m.read_back
    {
        let target = open(cli)?;
        report.read_seconds = Some(m.read(&*target)?);
        report.counts.insert("read_back_bios", target.counts()["reads"]);
        target.close()?;
    }
    Ok(serde_json::to_string(&report)?)
}
