//! `bench dir`: one directory of many files through our mount and through the kernel's ext4.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};

use super::bytes::drop_caches;
use super::peer::{Mounted, Peer};
use super::uring::{self, Offered};
use super::{COLUMNS, seconds};
use crate::bench::image::{Image, touch_memory};
use crate::bench::series::{Series, named, ratio};
use crate::bench::show::{Bar, Outcome};
use crate::bench::workload::Report;
use tidegate_testing::{oracle, workspace};

/// How a directory is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Way {
    /// Our mount by io_uring.
    Uring,
    /// Our mount by /dev/fuse.
    Dev,
    /// The kernel's ext4 on a loop device.
    Ext4,
    /// By io_uring, a server that only answers: what is left to any server by this way. It is not mounted
    /// anew between the steps, as it keeps nothing.
    Floor,
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Way::Uring => "uring",
            Way::Dev => "dev",
            Way::Ext4 => "ext4",
            Way::Floor => "floor",
        }
    }

    fn peer(self) -> Peer {
        match self {
            Way::Uring | Way::Dev => Peer::Tidegate,
            Way::Ext4 => Peer::Ext4,
            Way::Floor => Peer::Floor,
        }
    }
}

/// The plan of a run.
#[derive(Debug, Clone, Args)]
pub struct DirPlan {
    /// Files in the directory.
    #[arg(long, default_value_t = 1_000_000)]
    pub files: u64,
    /// Rounds; each way runs once in each.
    #[arg(long, default_value_t = 3)]
    pub runs: u32,
    /// The ways, in turn.
    #[arg(long, value_delimiter = ',', default_value = "uring,dev,ext4,floor")]
    pub ways: Vec<Way>,
    /// Where to make the scratch directory; best in memory.
    #[arg(long, default_value = "/dev/shm/tidegate-bench")]
    pub dir: PathBuf,
    /// Options for our mount.
    #[arg(long, default_value = "")]
    pub options: String,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// The name of a step, and its work on a directory with that many files.
type Step = (&'static str, fn(&Path, u64) -> Result<()>);

/// The steps, in order; before each but the first, the volume is mounted again and the kernel's caches are
/// dropped.
const STEPS: [Step; 5] =
    [("create", create), ("names", names), ("attributes", attributes), ("stat", stat), ("unlink", unlink)];

/// How many times ext4's time each step may take.
const BAR: f64 = 3.0;

/// Measures and reports.
pub fn run(plan: &DirPlan) -> Result<()> {
    ensure!(rustix::process::geteuid().is_root(), "mounting and dropping caches need root");
    let tidegate = workspace::build_tidegate()?;
    workspace::build_release(&["--example", "floor", "-p", "xtask"])?;
    let empty = |way: &Way| {
        STEPS.map(|(step, _)| Series { name: name(step, *way), reports: Vec::new(), failed: None })
    };
    let mut series: Vec<Series> = plan.ways.iter().flat_map(empty).collect();
    for round in 1..=plan.runs.max(1) {
        for way in &plan.ways {
            let done = once(plan, &tidegate, *way);
            for (at, (step, _)) in STEPS.iter().enumerate() {
                let Some(s) = series.iter_mut().find(|s| s.name == name(step, *way)) else { continue };
                match &done {
                    Ok(times) => s.reports.push(Report {
                        seconds: times[at].as_secs_f64(),
                        files: plan.files,
                        ..Report::default()
                    }),
                    Err(e) => s.failed = Some(format!("failed: {e:#}")),
                }
            }
            eprintln!("{round}/{} {}: {done:.2?}", plan.runs, way.name());
        }
    }
    let notes = vec![
        format!("backing files in {}", plan.dir.display()),
        "before each step but the first: mounted anew, the kernel's caches dropped".into(),
        "floor: our transport by io_uring with a server that only answers; mounted once".into(),
        "names: readdir alone; attributes: a stat of each name as it is listed; stat, unlink: at random"
            .into(),
    ];
    let title = format!("{} empty files in one directory; {} rounds", plan.files, plan.runs);
    Outcome { title, columns: &COLUMNS[..2], series: &series, notes, bars: bars(&series) }.print(plan.json)
}

fn name(step: &str, way: Way) -> String {
    format!("{step} {}", way.name())
}

fn bars(series: &[Series]) -> Vec<Bar> {
    let bar = |(step, _): &Step| {
        let of = |way| named(series, &name(step, way));
        let time = ratio(of(Way::Uring), of(Way::Ext4), seconds);
        Bar::most(format!("{step}: time by io_uring, to ext4"), BAR, time)
    };
    STEPS.iter().map(bar).collect()
}

/// Makes a volume and does all steps in one way; returns the time of each step.
fn once(plan: &DirPlan, tidegate: &Path, way: Way) -> Result<[Duration; STEPS.len()]> {
    let _offered = match way {
        Way::Uring | Way::Floor => Some(Offered::set(Path::new(uring::PARAMETER), true)?),
        Way::Dev | Way::Ext4 => None,
    };
    let transport = if way == Way::Dev { "transport=dev" } else { "transport=uring" };
    let words = [plan.options.as_str(), transport];
    let options = words.iter().filter(|w| !w.is_empty()).copied().collect::<Vec<_>>().join(",");
    let peer = way.peer();
    // Room for a block per file's inode, and for the names.
    let image = Image::new(&plan.dir, (plan.files * 8192).max(512 << 20))?;
    match peer {
        Peer::Ext4 => image.mkfs_ext4_of(plan.files + 1000)?,
        _ => peer.make(&image)?,
    }
    touch_memory(&plan.dir)?;
    let mount = || -> Result<Mounted> { peer.mount(&image, tidegate, &options, &[]) };
    let mut times = [Duration::ZERO; STEPS.len()];
    let mut mounted = mount()?;
    for (at, (step, work)) in STEPS.iter().enumerate() {
        if at > 0 && way != Way::Floor {
            mounted.end()?;
            mounted = mount()?;
        }
        drop_caches()?;
        let dir = mounted.dir().join("d");
        let start = Instant::now();
        work(&dir, plan.files).with_context(|| format!("{step} by {}", way.name()))?;
        times[at] = start.elapsed();
    }
    mounted.end()?;
    oracle_says(peer, &image)?;
    Ok(times)
}

/// Checks the measured volume with the reference fsck of its format.
fn oracle_says(peer: Peer, image: &Image) -> Result<()> {
    match peer {
        Peer::Tidegate if oracle::available("fsck.f2fs").is_none() => Ok(()),
        Peer::Tidegate => tidegate_testing::golden::fsck_f2fs(image.path()),
        _ => Ok(()),
    }
}

fn create(dir: &Path, files: u64) -> Result<()> {
    fs::create_dir(dir)?;
    for i in 0..files {
        File::create_new(dir.join(format!("file-{i:07}")))?;
    }
    Ok(())
}

fn names(dir: &Path, files: u64) -> Result<()> {
    let mut found = 0;
    for entry in fs::read_dir(dir)? {
        entry?;
        found += 1;
    }
    ensure!(found == files, "{found} names of {files}");
    Ok(())
}

fn attributes(dir: &Path, files: u64) -> Result<()> {
    let mut found = 0;
    for entry in fs::read_dir(dir)? {
        ensure!(entry?.metadata()?.is_file(), "no file");
        found += 1;
    }
    ensure!(found == files, "{found} names of {files}");
    Ok(())
}

/// The numbers below `files` in an order that is the same each time and has no pattern that a disk could
/// exploit.
fn shuffled(files: u64) -> impl Iterator<Item = u64> {
    let bits = files.next_power_of_two();
    // The period is full: the step is odd, and the factor is 1 modulo 4.
    let mut x = 1u64;
    (0..bits)
        .map(move |_| {
            x = (x.wrapping_mul(1_103_515_245).wrapping_add(12_345)) % bits;
            (x ^ x >> (bits.trailing_zeros() / 2).max(1)) % bits
        })
        .filter(move |&i| i < files)
}

fn stat(dir: &Path, files: u64) -> Result<()> {
    for i in shuffled(files) {
        fs::metadata(dir.join(format!("file-{i:07}")))?;
    }
    Ok(())
}

fn unlink(dir: &Path, files: u64) -> Result<()> {
    for i in shuffled(files) {
        fs::remove_file(dir.join(format!("file-{i:07}")))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_comes_once() {
        for files in [1, 2, 7, 64, 1000, 4097] {
            let mut all: Vec<u64> = shuffled(files).collect();
            all.sort_unstable();
            assert!(all.into_iter().eq(0..files), "{files}");
        }
    }

    #[test]
    fn a_bar_compares_io_uring_with_ext4() {
        let series = |name: &str, seconds| Series {
            name: name.into(),
            reports: vec![Report { seconds, ..Report::default() }],
            failed: None,
        };
        let bars = bars(&[series("stat uring", 8.0), series("stat ext4", 2.0), series("stat dev", 1.0)]);
        assert_eq!(bars.iter().filter_map(|b| b.value).collect::<Vec<_>>(), [4.0]);
        assert_eq!(bars.iter().filter_map(|b| b.met).collect::<Vec<_>>(), [false]);
    }
}
