//! One large file, read and written in order and at random.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};

use super::peer::Peer;
use super::{Bench, Run};
use crate::bench::image::touch_memory;
use crate::bench::workload::Report;
use tidegate_testing::fill::Rng;

const MIB: u64 = 1 << 20;
const PAGE: u64 = 4096;
/// Mebibytes of the file that is accessed in order, and of the file that is accessed at random.
const IN_ORDER: u64 = 512;
const AT_RANDOM: u64 = 256;
/// One page in this many is read or written at random.
const SPARSE: u64 = 4;

pub const WRITE: &str = "write 1 MiB in order";
pub const READ: &str = "read 1 MiB in order";
pub const RANDOM_WRITE: &str = "write 4 KiB at random";
pub const RANDOM_SYNCED: &str = "write 4 KiB at random, fsync";
pub const RANDOM_READ: [&str; 2] = ["read 4 KiB at random, cold", "read 4 KiB at random, warm"];

/// The cases of `peer`.
pub fn cases(bench: &Bench, peer: Peer) -> Vec<(&'static str, Peer, Run<'_>)> {
    let (order, random) = (bench.plan.scaled(IN_ORDER) * MIB, bench.plan.scaled(AT_RANDOM) * MIB);
    let run = move |bytes: u64, before: Before, work: fn(&Path, u64) -> Result<Report>| -> Run<'_> {
        Box::new(move || {
            let mut mounted = bench.fresh(peer)?;
            if before != Before::Empty {
                write_in_order(&mounted.dir().join("large"), bytes)?;
            }
            if before == Before::Cold {
                // The floor is not mounted again: its content would be lost, and only names and sizes are in
                // its own memory.
                if peer != Peer::Floor {
                    mounted.end()?;
                    mounted = bench.mount(peer, &bench.scratch)?;
                }
                touch_memory(&bench.plan.dir)?;
                drop_caches()?;
            }
            let report = work(&mounted.dir().join("large"), bytes)?;
            mounted.end()?;
            Ok(report)
        })
    };
    vec![
        (WRITE, peer, run(order, Before::Empty, write_in_order)),
        (READ, peer, run(order, Before::Cold, read_in_order)),
        (RANDOM_WRITE, peer, run(random, Before::Written, |p, n| write_at_random(p, n, false))),
        (RANDOM_SYNCED, peer, run(random, Before::Written, |p, n| write_at_random(p, n, true))),
        (RANDOM_READ[0], peer, run(random, Before::Cold, read_at_random)),
        (RANDOM_READ[1], peer, run(random, Before::Written, read_at_random)),
    ]
}

/// The state when the work begins.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    /// An empty volume.
    Empty,
    /// The file, in the caches.
    Written,
    /// The file, after a new mount.
    Cold,
}

/// Has the kernel drop its clean caches.
pub fn drop_caches() -> Result<()> {
    rustix::fs::sync();
    fs::write("/proc/sys/vm/drop_caches", "3").context("dropping caches")
}

fn report(start: Instant, bytes: u64) -> Report {
    Report { seconds: start.elapsed().as_secs_f64(), bytes, ..Report::default() }
}

fn write_in_order(path: &Path, bytes: u64) -> Result<Report> {
    let data = Rng::new(1).bytes(MIB as usize);
    let start = Instant::now();
    let mut file = File::create(path).with_context(|| path.display().to_string())?;
    for _ in 0..bytes / MIB {
        file.write_all(&data)?;
    }
    file.sync_all()?;
    Ok(report(start, bytes))
}

fn read_in_order(path: &Path, bytes: u64) -> Result<Report> {
    let mut buffer = vec![0; MIB as usize];
    let start = Instant::now();
    let mut file = File::open(path).with_context(|| path.display().to_string())?;
    for _ in 0..bytes / MIB {
        file.read_exact(&mut buffer)?;
    }
    Ok(report(start, bytes))
}

/// Positions of pages in random order.
fn positions(bytes: u64) -> impl Iterator<Item = u64> {
    let mut rng = Rng::new(2);
    let pages = bytes / PAGE;
    (0..pages / SPARSE).map(move |_| rng.below(pages) * PAGE)
}

fn write_at_random(path: &Path, bytes: u64, sync: bool) -> Result<Report> {
    let data = Rng::new(3).bytes(PAGE as usize);
    let file = File::options().write(true).open(path)?;
    let start = Instant::now();
    let mut done = 0;
    for at in positions(bytes) {
        file.write_all_at(&data, at)?;
        done += PAGE;
    }
    if sync {
        file.sync_all()?;
    }
    Ok(report(start, done))
}

fn read_at_random(path: &Path, bytes: u64) -> Result<Report> {
    let mut page = [0; PAGE as usize];
    let file = File::open(path)?;
    let start = Instant::now();
    let mut done = 0;
    for at in positions(bytes) {
        file.read_exact_at(&mut page, at)?;
        done += PAGE;
    }
    Ok(report(start, done))
}
