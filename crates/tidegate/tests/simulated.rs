//! A whole volume in the simulated world: its writers, flusher and checkpoint thread in an order that a seed
//! chooses, and in the same order again with the same seed.

use std::error::Error;
use std::sync::Arc;
use tidegate::vfs::{Cred, MemoryLimits, OpenFlags};
use tidegate::{OpenOptions, Volume};
use tidegate_block::{MemoryDevice, QueueLimits, Recorder, RequestQueue};
use tidegate_f2fs::check::{CheckOptions, check};
use tidegate_f2fs::mkfs::{MkfsOptions, mkfs};
use tidegate_rt::sim::{Config, Outcome, run_with};
use tidegate_rt::{Nanos, clock, thread};

const SIZE: u64 = 64 << 20;

/// Makes, writes, fsyncs, renames and removes files of its own.
fn writer(volume: &Volume, n: u64) -> Result<(), Box<dyn Error>> {
    let path = |file: u64| format!("/{n}/{file}").into_bytes();
    volume.mkdir(format!("/{n}").as_bytes(), 0o755, false)?;
    for i in 0..12 {
        let flags = OpenFlags::CREATE | OpenFlags::WRITE;
        let file = volume.vfs().open_path(&Cred::ROOT, &path(i), flags, 0o644)?;
        file.write_at(0, &vec![(n * 16 + i) as u8; 1 + (clock::entropy() % 300_000) as usize])?;
        match i % 6 {
            1 => file.fsync(false)?,
            2 => volume.rename(&path(i), &path(i - 1))?,
            4 => volume.remove(&path(i - 1), false)?,
            5 if i > 6 => volume.sync()?,
            _ => {}
        }
    }
    Ok(())
}

/// Four writers on a volume with little memory; each request that its device saw.
fn volume() -> Vec<String> {
    let recorder = Arc::new(Recorder::new(Arc::new(MemoryDevice::new(SIZE))));
    let queue = Arc::new(RequestQueue::new(recorder.clone(), QueueLimits::default()));
    mkfs(&queue, &MkfsOptions::default()).unwrap();
    let memory = MemoryLimits { cache: 4 << 20, dirty: 2 << 20, background: 1 << 20, inodes: 64 };
    let options = OpenOptions { memory, ..OpenOptions::default() };
    let volume = Arc::new(Volume::from_queue("simulated", queue.clone(), &options).unwrap());
    let start = |n| {
        let volume = volume.clone();
        thread::spawn(&format!("writer/{n}"), move || writer(&volume, n).unwrap()).unwrap()
    };
    let writers: Vec<_> = (0..4).map(start).collect();
    writers.into_iter().for_each(thread::JoinHandle::join);
    Arc::into_inner(volume).unwrap().unmount().unwrap();
    let found = check(&queue, CheckOptions::default()).unwrap();
    assert_eq!(found.problems, []);
    recorder.take().iter().map(|r| format!("{:?} {:?} {:?}", r.op, r.flags, r.sector)).collect()
}

fn simulate(seed: u64) -> Outcome<Vec<String>> {
    let config = Config { seed, cpus: 3, jitter: 64, quantum: Nanos(0), trace: 1 << 20, ..Config::default() };
    run_with(&config, volume).unwrap_or_else(|deadlock| panic!("seed {seed}: {deadlock}"))
}

#[test]
fn one_seed_one_run() {
    for seed in 1..4 {
        let (a, b) = (simulate(seed), simulate(seed));
        assert!(a.events.len() > 200 && a.switches > 200, "{} {}", a.events.len(), a.switches);
        for (i, (x, y)) in a.events.iter().zip(&b.events).enumerate() {
            assert_eq!(format!("{x:?}"), format!("{y:?}"), "seed {seed}: event {i}");
        }
        assert_eq!((a.events.len(), a.elapsed, a.switches), (b.events.len(), b.elapsed, b.switches));
        assert_eq!(a.value, b.value);
    }
}
