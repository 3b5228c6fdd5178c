//! Why operations in simulated worlds were slow, where the causes are known.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;
use tidegate::observe::why::{Cause, Operation, Report, explain};
use tidegate::observe::{Recording, Wanted};
use tidegate::vfs::{Cred, MemoryLimits, OpenFlags};
use tidegate::{OpenOptions, Volume};
use tidegate_block::{Model, Preset, RequestQueue};
use tidegate_f2fs::mkfs::{MkfsOptions, mkfs};
use tidegate_rt::rng::Rng;
use tidegate_rt::sim::{Config, charge, run_with};
use tidegate_rt::trace::SpanPoint;
use tidegate_rt::{LockClass, Mutex, Nanos, thread};

const MS: u64 = 1_000_000;

/// A recording belongs to the process, so the tests take turns. The lock is held around whole simulated
/// worlds, so it is in none of them.
#[allow(clippy::disallowed_types)]
static TURN: Mutex<()> = Mutex::new(&TURNS, ());
static TURNS: LockClass = LockClass::new("why->turn", 1);

static FSYNC: SpanPoint<1> = SpanPoint::timed("vfs_fsync_range", ["ino"]);
static LOCK: LockClass = LockClass::new("why->lock", 50);

fn simulate<T: Send + 'static>(
    seed: u64,
    cpus: usize,
    over: u64,
    body: impl FnOnce() -> T + Send + 'static,
) -> (T, Report) {
    println!("seed {seed}");
    let config = Config { seed, cpus, quantum: Nanos(0), ..Config::default() };
    let watched = move || {
        let wanted = Wanted { events: Some(1 << 18), causes: true, ..Wanted::default() };
        let recording = Recording::start(wanted).expect("one at a time");
        let value = body();
        let observed = recording.finish();
        assert_eq!(observed.recorded.dropped, 0);
        (value, explain(&observed, over, 10))
    };
    run_with(&config, watched).unwrap_or_else(|deadlock| panic!("seed {seed}: {deadlock}")).value
}

/// An fsync computes, waits for a lock, waits for a busy processor, and sleeps for a while.
#[test]
fn what_is_known_is_found() {
    let _turn = TURN.lock();
    for seed in 1..20 {
        let mut rng = Rng::new(seed);
        let mut ms = || 5 + rng.below(50);
        let (runs, held, busy, sleeps) = (ms(), ms(), ms(), ms());
        let body = move || {
            let lock = Arc::new(Mutex::new(&LOCK, ()));
            let mine = lock.clone();
            let holder = move || {
                let _held = mine.lock();
                thread::sleep(Duration::from_millis(held));
            };
            let holder = thread::spawn("holder", holder).unwrap();
            // The sleep lets the holder take the lock first.
            thread::sleep(Duration::from_micros(10));
            {
                let _span = FSYNC.enter([7]);
                drop(lock.lock());
                // Another thread has the only processor when this thread is ready to run.
                let other = thread::spawn("other", move || charge(Nanos(busy * MS))).unwrap();
                thread::sleep(Duration::from_micros(10));
                charge(Nanos(runs * MS));
                thread::sleep(Duration::from_millis(sleeps));
                other.join();
            }
            holder.join();
        };
        let ((), report) = simulate(seed, 1, 0, body);
        let slow = &report.kinds[0].slowest[0];
        let of = |cause| slow.parts.iter().filter(|p| p.cause == cause).map(|p| p.ns).sum::<u64>();
        let is = |found: u64, want: u64, what: &str| {
            let near = found.abs_diff(want * MS) < MS / 2;
            assert!(near, "seed {seed}: {what} is {found} ns, not {want} ms, in {:#?}", slow.parts);
        };
        assert_eq!((report.kinds[0].count, slow.ino), (1, Some(7)));
        is(of(Cause::Running), runs, "running");
        is(of(Cause::Lock), held, "the lock");
        // The first thread has the processor for a slice, and the fsync waits for the other thread at the
        // end.
        let waiting = of(Cause::Processor);
        assert!(waiting <= busy * MS + MS, "seed {seed}: {:#?}", slow.parts);
        assert!(waiting + MS > busy.min(runs) * MS / 2, "seed {seed}: {:#?}", slow.parts);
        is(of(Cause::Pause), sleeps, "the pause");
        let sum: u64 = slow.parts.iter().map(|p| p.ns).sum();
        assert!(sum.abs_diff(slow.ns) < 100, "seed {seed}: {:#?}", slow.parts);
        let lock = slow.parts.iter().find(|p| p.cause == Cause::Lock).unwrap();
        assert!(lock.what.contains("why->lock, which holder"), "seed {seed}: {}", lock.what);
        // Only the wait for the end of the other thread has no known cause.
        let unknown = of(Cause::Unknown);
        assert!(unknown <= busy * MS, "seed {seed}: {:#?}", slow.parts);
    }
}

/// Writes files, fsyncs them and their directory, and syncs.
fn writer(volume: &Volume, n: u64) -> Result<(), Box<dyn Error>> {
    let path = |file: u64| format!("/{n}/{file}").into_bytes();
    volume.mkdir(format!("/{n}").as_bytes(), 0o755, false)?;
    for i in 0..20 {
        let flags = OpenFlags::CREATE | OpenFlags::WRITE;
        let file = volume.vfs().open_path(&Cred::ROOT, &path(i % 7), flags, 0o644)?;
        file.write_at(0, &vec![n as u8; 4096 << ((i + n) % 9)])?;
        match i % 4 {
            1 => volume
                .vfs()
                .open_path(&Cred::ROOT, format!("/{n}").as_bytes(), OpenFlags::READ, 0)?
                .fsync(false)?,
            3 if i > 12 => volume.sync()?,
            _ => file.fsync(false)?,
        }
    }
    Ok(())
}

/// Runs six writers on a simulated device, after `make` has made a volume there. Returns their slowest
/// operations.
fn slowest_of(seed: u64, preset: Preset, words: &'static str, make: fn(&Arc<RequestQueue>)) -> Report {
    let body = move || {
        let spec = preset.spec();
        let device = Model::with_spec("device", spec, 256 << 20);
        let queue = Arc::new(RequestQueue::new(device, spec.queue_limits()));
        make(&queue);
        let memory = MemoryLimits { cache: 4 << 20, dirty: 2 << 20, background: 1 << 20, inodes: 64 };
        let mut options = OpenOptions { memory, ..OpenOptions::default() };
        options.parse(words).unwrap();
        let volume = Arc::new(Volume::from_queue("simulated", queue.clone(), &options).unwrap());
        let start = |n| {
            let volume = volume.clone();
            thread::spawn(&format!("writer/{n}"), move || writer(&volume, n).unwrap()).unwrap()
        };
        let writers: Vec<_> = (0..6).map(start).collect();
        writers.into_iter().for_each(thread::JoinHandle::join);
        Arc::into_inner(volume).unwrap().unmount().unwrap();
    };
    simulate(seed, 2, 0, body).1
}

/// Asserts that nearly all of the time of each slow operation of these kinds has a name, and that there are enough of
/// each kind. Returns the least share that has a name.
fn assert_explained(report: &Report, what: &str, least: &[(Operation, usize)]) -> f64 {
    let mut share = 1.0_f64;
    for (operation, least) in least {
        let k = report.kinds.iter().find(|k| k.operation == *operation).unwrap();
        let slowest = k.slowest.len();
        assert!(k.count >= *least && slowest >= 6, "{what}: {} of {operation:?}, {slowest}", k.count);
        for s in &k.slowest {
            let sum: u64 = s.parts.iter().map(|p| p.ns).sum();
            assert!(sum.abs_diff(s.ns) <= s.ns / 1000 + 10, "{what}: {sum} of {s:#?}");
            assert!(s.named >= 0.95, "{what}: {s:#?}");
            share = share.min(s.named);
        }
    }
    assert!(!report.advice.is_empty(), "{what}");
    share
}

/// The least share of a slow operation's time that has a name on F2FS.
fn f2fs_is_explained(seed: u64, preset: Preset) -> f64 {
    let make = |queue: &Arc<RequestQueue>| _ = mkfs(queue, &MkfsOptions::default()).unwrap();
    let report = slowest_of(seed, preset, "", make);
    let least = [(Operation::Fsync, 60), (Operation::Sync, 6), (Operation::Checkpoint, 10)];
    let share = assert_explained(&report, &format!("seed {seed} on {preset:?}"), &least);
    let checkpoints = &report.kinds[2].slowest;
    let asked = checkpoints.iter().filter(|s| !s.asked_by.is_empty()).count();
    assert!(asked * 2 >= checkpoints.len(), "seed {seed}: {checkpoints:#?}");
    share
}

/// The least share of a slow operation's time that has a name on ext4, with each kind of journal.
fn ext4_is_explained(seed: u64, preset: Preset, words: &'static str) -> f64 {
    use tidegate_ext4::mkfs::{JournalSize, MkfsOptions, mkfs};
    let make = |queue: &Arc<RequestQueue>| {
        // The journal is so short that commits also wait for checkpoints.
        let journal = JournalSize::Bytes(4 << 20);
        mkfs(queue, &MkfsOptions { journal, ..MkfsOptions::default() }).unwrap();
    };
    let report = slowest_of(seed, preset, words, make);
    let least = [(Operation::Fsync, 60), (Operation::Sync, 6), (Operation::Commit, 10)];
    assert_explained(&report, &format!("{words}, seed {seed} on {preset:?}"), &least)
}

const JOURNALS: [&str; 5] =
    ["journal=pipelined", "journal=jbd2", "nomap_first=on,journal=jbd2", "nomap_first=off", "data=writeback"];

/// The seeds include cases in which a holder of an inner lock, or a row of short holds, keeps other threads
/// waiting.
#[test]
fn each_slow_operation_of_a_volume_is_explained() {
    let _turn = TURN.lock();
    let seeds =
        [(1, Preset::Hdd), (31, Preset::Hdd), (10, Preset::Nvme), (25, Preset::Nvme), (39, Preset::Nvme)];
    for (seed, preset) in seeds {
        f2fs_is_explained(seed, preset);
    }
}

#[test]
fn each_slow_operation_of_an_ext4_volume_is_explained() {
    let _turn = TURN.lock();
    for (n, words) in JOURNALS.into_iter().enumerate() {
        for preset in [Preset::Hdd, Preset::Nvme] {
            ext4_is_explained(n as u64 + 1, preset, words);
        }
    }
    // The flusher waits for a map that is held by a thread that waits for the device.
    ext4_is_explained(10, Preset::Nvme, "nomap_first=on,journal=jbd2");
    ext4_is_explained(18, Preset::Nvme, "journal=jbd2");
}

/// Runs many seeds, and prints the least share of each kind of volume.
#[test]
#[ignore = "a minute of simulated volumes"]
fn each_slow_operation_is_explained_whatever_the_seed() {
    let _turn = TURN.lock();
    let seeds = std::env::var("TIDEGATE_SEEDS").map_or(10, |n| n.parse().expect("a number"));
    let print = |what: &str, mut shares: Vec<f64>| {
        shares.sort_by(f64::total_cmp);
        println!(
            "{what}: least named {:.4}, median {:.4} of {}",
            shares[0],
            shares[shares.len() / 2],
            shares.len()
        );
    };
    for preset in [Preset::Hdd, Preset::Nvme] {
        print(
            &format!("f2fs on {preset:?}"),
            (1..=seeds).map(|seed| f2fs_is_explained(seed, preset)).collect(),
        );
        for words in JOURNALS {
            let shares = (1..=seeds).map(|seed| ext4_is_explained(seed, preset, words)).collect();
            print(&format!("ext4 {words} on {preset:?}"), shares);
        }
    }
}
