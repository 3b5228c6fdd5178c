//! Writers on zones in simulated worlds: in any order of threads and of completions, every write is at its
//! zone's write pointer, and no more zones are active than allowed.

use crate::common::zoned::{MIB, ROOT, content, file};
use std::sync::Arc;
use tidegate_block::{Device, MemoryDevice, Model, Preset, QueueLimits, RequestQueue, ZoneSpec, ZonedDevice};
use tidegate_f2fs::check::{CheckOptions, check};
use tidegate_f2fs::mkfs::{MkfsOptions, mkfs};
use tidegate_f2fs::raw::Features;
use tidegate_f2fs::{F2fs, F2fsOptions};
use tidegate_rt::rng::Rng;
use tidegate_rt::sim::{self, Config};
use tidegate_rt::thread;
use tidegate_vfs::*;

/// Number of worlds, unless `TIDEGATE_ZONED_RUNS` sets it.
const RUNS: u64 = 12;
/// Operations of each thread.
const STEPS: u64 = 24;

fn told(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|n| n.parse().unwrap_or_else(|e| panic!("{name}: {e}")))
}

fn any<T: Copy>(rng: &mut Rng, of: &[T]) -> T {
    of[rng.below(of.len() as u64) as usize]
}

/// Random options: streams, their policy, Linux's ways to write pages, and Linux's locks.
fn options(rng: &mut Rng) -> String {
    [
        any(
            rng,
            &[
                "",
                "warm_streams=2",
                "warm_streams=4",
                "hot_streams=2,warm_streams=5,cold_streams=2",
                "warm_streams=11",
            ],
        ),
        any(rng, &["", "stream_policy=srr", "stream_policy=spf", "stream_policy=auto"]),
        any(rng, &["", "", "writepages=submit_locked", "writepages=locked", "min_seq_blocks=0"]),
        any(rng, &["", "checkpoint_merge", "nocheckpoint_merge"]),
        any(rng, &["", "stream_flush=all", "background_gc=off", "fsync_mode=strict"]),
    ]
    .map(String::from)
    .into_iter()
    .filter(|o| !o.is_empty())
    .collect::<Vec<_>>()
    .join(",")
}

/// One thread writes one file, and remembers the last write to each of its pieces.
fn write_one(v: &Arc<Vfs>, n: u64, mut rng: Rng) {
    let (name, piece) = (format!("/f{n}"), any(&mut rng, &[4096, 65536, 300 << 10]));
    let mut f = file(v, &name);
    let mut pieces = vec![0u64; 6];
    for step in 1..=STEPS {
        let at = rng.below(pieces.len() as u64);
        match rng.below(12) {
            0..7 => {
                f.write_at(at * piece, &content(n << 32 | step, piece as usize)).unwrap();
                pieces[at as usize] = step;
            }
            7..10 => f.fsync(rng.one_in(2)).unwrap(),
            10 => v.sync().unwrap(),
            _ => {
                drop(f);
                v.unlink(ROOT, &v.root().unwrap(), &name.as_bytes()[1..]).unwrap();
                f = file(v, &name);
                pieces.fill(0);
            }
        }
    }
    let mut bytes = vec![0; piece as usize];
    for (at, step) in (0..).zip(&pieces).filter(|p| *p.1 > 0) {
        f.read_at(at * piece, &mut bytes).unwrap();
        assert!(bytes == content(n << 32 | step, piece as usize), "file {n}, piece {at}");
    }
}

/// Runs one world; returns the writes that the device and the queue refused, and the faults that a check finds.
fn world(seed: u64) -> (u64, u64, Vec<String>) {
    let mut rng = Rng::new(seed);
    let max = any(&mut rng, &[7, 8, 10, 14, 17, 20]);
    let capacity = any(&mut rng, &[4 * MIB, 3 * MIB]);
    let spec = ZoneSpec { size: 4 * MIB, capacity, conventional: 8, max_open: max, max_active: max };
    let mib = any(&mut rng, &[160, 240]);
    // Completions come in the order of a server's flash, or at once.
    let below: Arc<dyn Device> = match rng.one_in(3) {
        true => Arc::new(MemoryDevice::new(mib * MIB)),
        false => Model::new(Preset::Nvme, mib * MIB),
    };
    let device = Arc::new(ZonedDevice::new(below, spec));
    let queue = Arc::new(RequestQueue::new(device.clone(), QueueLimits::default()));
    mkfs(&queue, &MkfsOptions { features: Features::BLKZONED, ..Default::default() }).unwrap();
    let mut refused = 0;
    for mount in 0..2 {
        let said = options(&mut rng);
        let mut o = F2fsOptions::default();
        o.parse(&said).unwrap();
        let bdi = Bdi::new(MemoryLimits::default());
        let queue = Arc::new(RequestQueue::new(device.clone(), QueueLimits::default()));
        let fs = F2fs::open(queue.clone(), bdi.clone(), o).unwrap();
        let v = Vfs::mount(fs, bdi, MountOptions::default()).unwrap();
        let threads: Vec<_> = (0..rng.below(9) + 1)
            .map(|n| {
                let (v, rng) = (v.clone(), rng.fork(mount << 8 | n));
                thread::spawn(&format!("w{n}"), move || write_one(&v, n, rng)).unwrap()
            })
            .collect();
        threads.into_iter().for_each(|t| t.join());
        v.unmount().unwrap();
        refused += queue.stats().zone_refused;
    }
    let report = check(&queue, CheckOptions::default()).unwrap();
    (device.refused(), refused, report.problems.iter().map(|p| format!("{p:?}")).collect())
}

/// Prints the seed of a world that ends in a panic.
struct Named(u64);

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("TIDEGATE_SEED={} TIDEGATE_ZONED_RUNS=1", self.0);
        }
    }
}

/// `TIDEGATE_SEED` is the seed of the first world; each further world has the next seed.
#[test]
fn no_write_misses_its_write_pointer_in_any_order() {
    let runs = told("TIDEGATE_ZONED_RUNS").unwrap_or(RUNS);
    let first = told("TIDEGATE_SEED").unwrap_or_else(|| tidegate_rt::clock::entropy() % 1_000_000_000);
    println!("TIDEGATE_SEED={first}, {runs} worlds");
    for seed in first..first + runs {
        let mut rng = Rng::new(!seed);
        let (cpus, jitter) = (any(&mut rng, &[1, 3, 8]), any(&mut rng, &[0, 16, 64]));
        let config = Config { seed, cpus, jitter, ..Config::default() };
        let named = Named(seed);
        let done = sim::run_with(&config, move || world(seed));
        drop(named);
        let done = done.unwrap_or_else(|deadlock| panic!("TIDEGATE_SEED={seed}: {deadlock}"));
        assert_eq!(done.value, (0, 0, Vec::new()), "TIDEGATE_SEED={seed}");
    }
}
