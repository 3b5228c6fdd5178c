//! `bench mount`: the mount beside fuse2fs and the kernel's ext4, all on the same backing file, and beside a server
//! that only answers.
//!
//! | module | holds |
//! |---|---|
//! | `peer` | the measured peers: making their volumes, mounting them |
//! | `trees` | many small files: unpacked, copied, walked |
//! | `bytes` | one large file, in order and at random |
//! | `judge` | the bars |
//! | [`dir`] | `bench dir`: one directory of many files |
//! | `uring` | having the kernel offer io_uring meanwhile |

mod bytes;
pub mod dir;
mod judge;
pub(super) mod peer;
mod trees;
mod uring;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use clap::Args;

use super::cli::Plan;
use super::image::{Image, touch_memory};
use super::series::{Case, rounds};
use super::show::{Column, Outcome};
use super::workload::{Report, Workload, words};
use peer::Peer;
use tidegate_testing::{oracle, workspace};
use uring::Offered;

/// Bytes of each volume.
const VOLUME: u64 = 2 << 30;
/// Files of the tree.
const FILES: u64 = 50_000;
const THREADS: u64 = 16;
/// The number of files that each thread makes durable, and the bytes of each.
const MARKED: (u64, u64) = (400, 4096);

const FSYNC: &str = "16 threads fsync";

const COLUMNS: &[Column] = &[
    Column { head: "s", digits: 3, of: seconds },
    Column { head: "files/s", digits: 0, of: files_per_second },
    Column { head: "MiB/s", digits: 1, of: speed },
];

fn seconds(r: &Report) -> Option<f64> {
    (r.seconds > 0.0).then_some(r.seconds)
}

fn files_per_second(r: &Report) -> Option<f64> {
    (r.files > 0).then_some(r.files as f64 / seconds(r)?)
}

fn speed(r: &Report) -> Option<f64> {
    (r.bytes > 0).then_some(r.bytes as f64 / f64::from(1 << 20) / seconds(r)?)
}

/// The plan of a run.
#[derive(Debug, Clone, Args)]
pub struct MountPlan {
    /// The plan.
    #[command(flatten)]
    pub plan: Plan,
    /// Only the cases whose names contain this.
    #[arg(long)]
    pub only: Option<String>,
    /// Options for our mount. With `transport=dev` or `uring` that one alone is measured.
    #[arg(long, default_value = "")]
    pub options: String,
}

/// The parts that all cases share.
struct Bench {
    plan: Plan,
    tidegate: PathBuf,
    options: String,
    /// Each case that writes formats this image again.
    scratch: Image,
    workload: Workload,
}

impl Bench {
    /// Mounts a new volume on the scratch image.
    fn fresh(&self, peer: Peer) -> Result<peer::Mounted> {
        peer.make(&self.scratch)?;
        touch_memory(&self.plan.dir)?;
        self.mount(peer, &self.scratch)
    }

    fn mount(&self, peer: Peer, image: &Image) -> Result<peer::Mounted> {
        peer.mount(image, &self.tidegate, &self.options, &[])
    }
}

/// Measures and reports, with /dev/fuse and, where the kernel has it and permits it, with io_uring.
pub fn run(plan: &MountPlan) -> Result<()> {
    if plan.options.contains("transport=") {
        return measure(plan);
    }
    let by = |transport: &str| {
        let words = [plan.options.as_str(), transport];
        let options = words.iter().filter(|w| !w.is_empty()).copied().collect::<Vec<_>>().join(",");
        measure(&MountPlan { options, ..plan.clone() })
    };
    by("transport=dev")?;
    match Offered::set(Path::new(uring::PARAMETER), true) {
        Ok(_offered) => by("transport=uring"),
        Err(e) => {
            eprintln!("not measured by io_uring: {e:#}");
            Ok(())
        }
    }
}

fn measure(plan: &MountPlan) -> Result<()> {
    let MountPlan { plan, only, options } = plan.clone();
    let tidegate = workspace::build_tidegate()?;
    workspace::build_release(&["--example", "floor", "-p", "xtask"])?;
    let bench = Bench {
        tidegate,
        options,
        scratch: Image::new(&plan.dir, VOLUME)?,
        workload: Workload::build(Duration::from_secs(60))?,
        plan,
    };
    let trees = trees::Trees::new(&bench);
    let mut cases = Vec::new();
    for peer in Peer::ALL {
        cases.extend(trees.cases(peer));
        cases.extend(bytes::cases(&bench, peer));
        cases.push((FSYNC, peer, fsyncs(&bench, peer)));
    }
    let no_git = oracle::available("git").is_none().then_some("git is not installed");
    let cases: Vec<Case<'_>> = cases
        .into_iter()
        .filter(|(what, ..)| only.as_ref().is_none_or(|word| what.contains(word.as_str())))
        .map(|(what, peer, run)| {
            let git = what.starts_with("git").then_some(no_git).flatten();
            Case::new(format!("{what} {}", peer.name()), run).unless(git).unless(peer.missing())
        })
        .collect();
    let series = rounds(bench.plan.runs, &cases);
    let mut notes = vec![
        format!("backing files of 2 GiB in {}", bench.plan.dir.display()),
        "unpacking and copying as the caller sees it, without a sync; large writes and marks with fsync"
            .into(),
        "cold: mounted anew, the kernel's caches dropped".into(),
        "floor: our transport with a server that only answers; contents are nowhere, git's in memory".into(),
        format!("our mount options: {:?}; FUSE over io_uring: {}", bench.options, rings()),
    ];
    notes.extend(judge::floors(&series));
    let bars = judge::bars(&series, bench.options.contains("transport=uring"));
    let title = format!("{} files; {} rounds", bench.plan.scaled(FILES), bench.plan.runs);
    Outcome { title, columns: COLUMNS, series: &series, notes, bars }.print(bench.plan.json)
}

/// Whether the kernel offers FUSE over io_uring.
fn rings() -> &'static str {
    match std::fs::read_to_string(uring::PARAMETER) {
        Ok(word) if word.trim() == "Y" => "offered",
        Ok(_) => "not offered",
        Err(_) => "not in this kernel",
    }
}

/// The function that runs a case.
type Run<'a> = Box<dyn Fn() -> Result<Report> + 'a>;

fn fsyncs(bench: &Bench, peer: Peer) -> Run<'_> {
    let (files, bytes) = MARKED;
    let mark =
        words(&format!("mark --threads {THREADS} --files {} --size {bytes}", bench.plan.scaled(files)));
    Box::new(move || {
        let mounted = bench.fresh(peer)?;
        let report = bench.workload.on_dir(mounted.dir(), &mark)?;
        mounted.end()?;
        Ok(report)
    })
}
