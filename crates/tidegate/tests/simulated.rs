//! A whole volume in the simulated world: its writers, flusher and checkpoint thread in an order that a seed
//! chooses, and in the same order again with the same seed.

use std::error::Error;
use std::sync::Arc;
use tidegate::vfs::{Cred, MemoryLimits, OpenFlags, SyncWait};
use tidegate::{OpenOptions, Volume, VolumeSwitches};
use tidegate_block::{MemoryDevice, QueueLimits, Recorder, RequestQueue};
use tidegate_f2fs::check::{CheckOptions, check};
use tidegate_f2fs::mkfs::{MkfsOptions, mkfs};
use tidegate_rt::sim::{Config, Outcome, run, run_with};
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

/// Runs four writers on a volume with little memory. Returns each request that its device saw.
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

/// Whichever thread waits, a sync of a volume that takes no more changes ends with an error, and so does
/// unmounting.
#[test]
fn a_sync_of_a_stopped_volume_ends() {
    for sync_wait in SyncWait::ALL {
        run(7, 2, move || {
            let queue =
                Arc::new(RequestQueue::new(Arc::new(MemoryDevice::new(SIZE)), QueueLimits::default()));
            mkfs(&queue, &MkfsOptions::default()).unwrap();
            let options = OpenOptions {
                switches: VolumeSwitches { sync_wait: *sync_wait, ..VolumeSwitches::default() },
                ..OpenOptions::default()
            };
            let volume = Volume::from_queue("simulated", queue, &options).unwrap();
            let flags = OpenFlags::CREATE | OpenFlags::WRITE;
            let file = volume.vfs().open_path(&Cred::ROOT, b"/a", flags, 0o644).unwrap();
            file.write_at(0, &[1; 10_000]).unwrap();
            volume.sync().unwrap();
            file.write_at(0, &[2; 10_000]).unwrap();
            volume.vfs().fs().shutdown();
            for _ in 0..3 {
                assert!(volume.sync().is_err(), "{sync_wait:?}");
            }
            drop(file);
            assert!(volume.unmount().is_err(), "{sync_wait:?}");
        });
    }
}

/// Pages are written while other threads sync: whichever thread waits, pages that were written before a sync
/// are on the device after it.
#[test]
fn a_sync_keeps_its_promise_beside_writers() {
    for (seed, sync_wait) in (0..8).flat_map(|seed| SyncWait::ALL.iter().map(move |w| (seed, *w))) {
        let config = Config { seed, cpus: 3, jitter: 32, quantum: Nanos(0), ..Config::default() };
        let body = move || {
            let queue =
                Arc::new(RequestQueue::new(Arc::new(MemoryDevice::new(SIZE)), QueueLimits::default()));
            mkfs(&queue, &MkfsOptions::default()).unwrap();
            let options = OpenOptions {
                switches: VolumeSwitches { sync_wait, ..VolumeSwitches::default() },
                ..OpenOptions::default()
            };
            let volume = Arc::new(Volume::from_queue("simulated", queue, &options).unwrap());
            let start = |n: u64| {
                let volume = volume.clone();
                let body = move || {
                    let flags = OpenFlags::CREATE | OpenFlags::WRITE;
                    let path = format!("/{n}").into_bytes();
                    let file = volume.vfs().open_path(&Cred::ROOT, &path, flags, 0o644).unwrap();
                    for i in 0..10 {
                        file.write_at(i * 5_000, &[n as u8; 9_000]).unwrap();
                        if i % 3 == n % 3 {
                            volume.sync().unwrap();
                            let mapping = &file.inode().mapping;
                            assert_eq!((mapping.nr_dirty(), mapping.nr_writeback()), (0, 0), "{sync_wait:?}");
                        }
                    }
                };
                thread::spawn(&format!("writer/{n}"), body).unwrap()
            };
            let writers: Vec<_> = (0..4).map(start).collect();
            writers.into_iter().for_each(thread::JoinHandle::join);
            Arc::into_inner(volume).unwrap().unmount().unwrap();
        };
        run_with(&config, body).unwrap_or_else(|deadlock| panic!("seed {seed}, {sync_wait:?}: {deadlock}"));
    }
}

/// The switch is set by the options of opening and by remounting, and not by a remount with other options.
#[test]
fn wbt_is_turned_by_options() {
    let queue = Arc::new(RequestQueue::new(Arc::new(MemoryDevice::new(SIZE)), QueueLimits::default()));
    mkfs(&queue, &MkfsOptions::default()).unwrap();
    let mut options = OpenOptions::default();
    options.parse("nowbt").unwrap();
    let volume = Volume::from_queue("wbt", queue.clone(), &options).unwrap();
    let after = |remounts: &str| {
        volume.remount(remounts).unwrap();
        queue.wbt()
    };
    assert!(!after("sync_wait=caller"));
    assert!(after("wbt,sync_wait=epoch"));
    assert!(!after("nowbt"));
    volume.unmount().unwrap();
}
