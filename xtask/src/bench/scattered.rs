//! `bench scattered`: a file that is written to a volume whose free blocks lie apart, and read back, by our ext4 and the
//! kernel's.

use std::fs::File;
use std::io::Read;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use rustix::fs::{FallocateFlags, fallocate, fsync};

use super::cli::Plan;
use super::image::{Image, Mounted};
use super::series::{Case, Series, named, ratio, rounds};
use super::show::{Bar, Column, Outcome};
use super::workload::{Report, Workload, words};

const VOLUME: u64 = 2 << 30;
const MIB: u64 = 1 << 20;
const BLOCK: u64 = 4096;
/// MiB of the file that loses every other block, and of the file that is written then.
const AROUND_MIB: u64 = 1600;
const FILE_MIB: u64 = 600;

const OURS: &str = "tidegate";
/// The kernel's ext4 on a loop device that goes through the host's page cache, or (true) around it.
const EXT4: [(&str, bool); 2] = [("ext4", false), ("ext4 direct", true)];

const COLUMNS: &[Column] = &[
    Column { head: "MiB/s", digits: 0, of: speed },
    Column { head: "CPU s", digits: 2, of: |r| r.cpu_seconds },
    Column { head: "read MiB/s", digits: 0, of: read_speed },
];

fn mib(r: &Report) -> f64 {
    r.bytes as f64 / MIB as f64
}

fn speed(r: &Report) -> Option<f64> {
    Some(mib(r) / r.seconds)
}

fn read_speed(r: &Report) -> Option<f64> {
    Some(mib(r) / r.read_seconds.filter(|s| *s > 0.0)?)
}

/// Measures and reports.
pub fn run(plan: &Plan) -> Result<()> {
    ensure!(rustix::process::geteuid().is_root(), "the volume is prepared by the kernel, which needs root");
    let workload = &Workload::build(Duration::from_secs(60))?;
    let image = &Image::new(&plan.dir, VOLUME)?;
    let file = plan.scaled(FILE_MIB) * MIB;
    let args = &words(&format!("mark --threads 1 --files 1 --size {file} --chunk 1048576"));
    let and_read = &[args.clone(), words("--read-back")].concat();
    let fresh = move || {
        image.mkfs_ext4()?;
        scatter(&image.mount_ext4(false)?)
    };
    let ours = move || {
        fresh()?;
        let report = workload.on_image(image.path(), "", and_read)?;
        image.e2fsck()?;
        Ok(report)
    };
    let mut cases = vec![Case::new(OURS, ours)];
    for (name, direct) in EXT4 {
        let theirs = move || {
            fresh()?;
            let report = workload.on_dir(image.mount_ext4(direct)?.dir(), args)?;
            Ok(Report { read_seconds: Some(read(&image.mount_ext4(direct)?)?), ..report })
        };
        cases.push(Case::new(name, theirs));
    }
    let series = rounds(plan.runs, &cases);
    let title = format!("{} MiB to a volume of {} MiB; {} rounds", file / MIB, VOLUME / MIB, plan.runs);
    let notes = vec![
        format!(
            "every other block of {AROUND_MIB} MiB is free; the rest of the volume is free but for its tables"
        ),
        "written by one thread, and fsynced".into(),
        "read back: in a newly opened volume".into(),
    ];
    let bars = bars(&series);
    Outcome { title, columns: COLUMNS, series: &series, notes, bars }.print(plan.json)
}

/// Makes a file that takes most of the volume, and a hole of every other of its blocks.
fn scatter(volume: &Mounted) -> Result<()> {
    let file = File::create_new(volume.dir().join("around"))?;
    fallocate(&file, FallocateFlags::empty(), 0, AROUND_MIB * MIB)?;
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    (0..AROUND_MIB * MIB)
        .step_by(2 * BLOCK as usize)
        .try_for_each(|at| fallocate(&file, punch, at, BLOCK))?;
    Ok(fsync(&file)?)
}

/// Reads the file that was written to a newly mounted volume; returns the seconds.
fn read(volume: &Mounted) -> Result<f64> {
    let begun = Instant::now();
    let mut file = File::open(volume.dir().join("t0/f0"))?;
    let mut chunk = vec![0; MIB as usize];
    while file.read(&mut chunk)? > 0 {}
    Ok(begun.elapsed().as_secs_f64())
}

fn bars(all: &[Series]) -> Vec<Bar> {
    EXT4.iter()
        .map(|(peer, _)| {
            let ratio = ratio(named(all, OURS), named(all, peer), speed);
            Bar::least(format!("MiB/s, {OURS} to {peer}"), 1.0, ratio)
        })
        .collect()
}
