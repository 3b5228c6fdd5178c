//! Random work on volumes of many kinds, with unmounts and power cuts in between. e2fsck and Linux judge each
//! resulting state, and a model in memory has its expected content.
//!
//! `TIDEGATE_SOAK` sets the duration in seconds; `TIDEGATE_SEED` selects the first round.

mod draw;
mod full;
mod judge;
mod work;

use crate::rig::*;
use draw::Draw;
use judge::{judge_cut, judge_unmounted};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tidegate_block::{BioFlags, MemoryDevice, Op, QueueLimits, Record, Recorder, RequestQueue};
use tidegate_ext4::{Ext4, Ext4Options};
use tidegate_testing::fill::Rng;
use tidegate_testing::temp::TempDir;
use tidegate_vfs::{
    Bdi, Cred, ErrorKind, FallocateFlags, File, FileType, Inode, MemoryLimits, MountOptions, OpenFlags,
    RenameFlags, SetAttr, Vfs, XattrFlags,
};

const ROOT: &Cred = &Cred::ROOT;
/// An inode of the model.
#[derive(Clone, PartialEq)]
struct Thing {
    kind: FileType,
    data: Vec<u8>,
    mode: u32,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// The promise of a sync: the event at which it was durable, and the event before which no later change
/// began.
struct Promise {
    since: u64,
    until: Option<u64>,
    paths: BTreeMap<String, usize>,
    things: BTreeMap<usize, Thing>,
    /// The file of the promise; none for all files.
    file: Option<String>,
}

struct Soak {
    v: Arc<Vfs>,
    device: Arc<Recorder>,
    /// The device's content at the start of its record.
    base: Vec<u8>,
    records: Vec<Record>,
    rng: Rng,
    unit: u64,
    journal: bool,
    workers: Vec<Worker>,
}

/// A thread's part of a volume, and the model of that part.
struct Worker {
    v: Arc<Vfs>,
    device: Arc<Recorder>,
    rng: Rng,
    unit: u64,
    /// The worker's directory; empty for the root.
    root: String,
    /// Paths and their inodes.
    paths: BTreeMap<String, usize>,
    things: BTreeMap<usize, Thing>,
    next: usize,
    promises: Vec<Promise>,
    /// Names changed since the last sync that are durable for certain only with the next: an fsync promises
    /// only the file's own name.
    moved: Vec<String>,
    /// Number of changes for which there was no room.
    full: u64,
}

fn mount(device: Arc<Recorder>, how: &str) -> Arc<Vfs> {
    let queue = Arc::new(RequestQueue::new(device, QueueLimits::default()));
    let bdi = Bdi::new(MemoryLimits::default());
    let mut options = Ext4Options::default();
    for word in how.split(',').filter(|w| !w.is_empty()) {
        assert!(options.set(word).unwrap(), "{word}");
    }
    let fs = Ext4::open(queue, bdi.clone(), options).unwrap();
    let v = Vfs::mount(fs, bdi, MountOptions { noatime: true, ..Default::default() }).unwrap();
    assert_eq!(v.fs().read_only(), None, "it came up read-only");
    v
}

impl Soak {
    fn new(bytes: Vec<u8>, rng: Rng, unit: u64, journal: bool, how: &str, threads: u64) -> Soak {
        let device = Arc::new(Recorder::new(Arc::new(MemoryDevice::from_bytes(&bytes))));
        let v = mount(device.clone(), how);
        let (records, workers) = Default::default();
        let mut s = Soak { v, device, base: bytes, records, rng, unit, journal, workers };
        for n in 0..threads {
            let root = if threads == 1 { String::new() } else { format!("/t{n}") };
            if threads > 1 {
                s.v.mkdir(ROOT, &s.v.root().unwrap(), &root.as_bytes()[1..], 0o755).unwrap();
            }
            let rng = Rng::new(s.rng.below(u64::MAX));
            s.workers.push(Worker::new(&s, rng, root));
        }
        // The sync makes the directories themselves durable.
        s.v.sync().unwrap();
        s
    }

    /// Goes on with these bytes as the volume.
    fn remount(&mut self, bytes: Vec<u8>, how: &str) {
        self.base = bytes;
        self.device = Arc::new(Recorder::new(Arc::new(MemoryDevice::from_bytes(&self.base))));
        self.records.clear();
        self.v = mount(self.device.clone(), how);
        for w in &mut self.workers {
            (w.promises, w.moved) = Default::default();
            (w.v, w.device) = (self.v.clone(), self.device.clone());
        }
    }

    /// Runs `steps` steps of each worker, at the same time.
    fn work(&mut self, steps: u64) {
        if let [one] = &mut self.workers[..] {
            return (0..steps).for_each(|_| one.step());
        }
        std::thread::scope(|s| {
            for w in &mut self.workers {
                s.spawn(move || (0..steps).for_each(|_| w.step()));
            }
        });
    }

    /// The device's content after a power cut at event `cut`: everything flushed by then, and some of the
    /// rest.
    fn after_cut(&mut self, cut: u64) -> Vec<u8> {
        let mut now = self.device.take();
        self.records.append(&mut now);
        let flushes = |r: &Record| r.op == Op::Flush || r.flags.contains(BioFlags::PREFLUSH);
        let before = |at: Option<u64>| at.is_some_and(|at| at < cut);
        // A write on its way has arrived as a whole, by sectors, or not at all; its preceding flush comes
        // first.
        let kept: Vec<u64> = self.records.iter().map(|_| self.rng.below(3)).collect();
        let records = || self.records.iter().zip(&kept).filter(|(r, _)| r.submitted < cut);
        let has_flushed = |r: &Record, kept: u64| flushes(r) && (before(r.completed) || kept > 0);
        let flushed: Option<u64> =
            records().filter(|(r, kept)| has_flushed(r, **kept)).map(|(r, _)| r.submitted).max();
        let mut bytes = self.base.clone();
        let mut rng = Rng::new(self.rng.below(u64::MAX));
        for (r, kept) in records().filter(|(r, _)| r.op == Op::Write) {
            let fua = r.flags.contains(BioFlags::FUA) && before(r.completed);
            let flushed = r.completed.is_some_and(|c| flushed.is_some_and(|f| c < f));
            let at = (r.sector.0 * 512) as usize;
            if fua || flushed {
                bytes[at..at + r.data.len()].copy_from_slice(&r.data);
                continue;
            }
            for (n, sector) in r.data.chunks(512).enumerate() {
                if *kept == 2 || *kept == 1 && rng.below(2) == 0 {
                    bytes[at + n * 512..at + n * 512 + sector.len()].copy_from_slice(sector);
                }
            }
        }
        bytes
    }
}

/// The result of a round.
enum Round {
    /// The volume was judged this many times.
    Judged(u64, Draw),
    /// The volume could not be made, for this reason.
    Passed(String),
}

/// One round: a volume, work, unmounts and power cuts. A bad state is left at `bad.img`.
fn round(dir: &Path, seed: u64, until: Instant) -> Result<Round, String> {
    let (image, bad) = (dir.join("soak.img"), dir.join("bad.img"));
    for old in [&image, &bad] {
        let _ = std::fs::remove_file(old);
    }
    let mut rng = Rng::new(seed);
    let draw = Draw::new(&mut rng);
    let what = format!("seed {seed} {draw}");
    println!("{what}");
    let words: Vec<&str> = draw.args.iter().map(String::as_str).collect();
    let (made, said) =
        run("mke2fs", &[&["-q", "-F"], &words[..], &[image.to_str().unwrap(), draw.size]].concat());
    if !made {
        return Ok(Round::Passed(format!("{what}: not made: {}", said.trim().replace('\n', "; "))));
    }
    if Mounted::new(&image, "ro").is_none() {
        return Ok(Round::Passed(format!("{what}: not mounted by Linux")));
    }
    let bytes = std::fs::read(&image).unwrap();
    let rng = Rng::new(rng.below(u64::MAX));
    let mut s = Soak::new(bytes, rng, draw.block, draw.journal, draw.how, draw.threads);
    let mut judged = 0;
    // The first pass ignores the time limit: a round must judge something.
    while judged == 0 || judged < 4 && Instant::now() < until {
        if draw.full {
            s.workers[0].fill();
        }
        let steps = 30 + s.rng.below(250);
        s.work(steps / draw.threads.min(2));
        // A power cut comes somewhere in the work since the last unmount; the volume itself goes on without
        // it.
        if s.journal {
            for _ in 0..2 {
                let first = s.workers.iter().filter_map(|w| w.promises.first()).map(|p| p.since).min();
                let (from, to) = (first.unwrap_or(1), s.device.position());
                let cut = from + s.rng.below(to - from + 1);
                let state = s.after_cut(cut);
                std::fs::write(&image, &state).unwrap();
                judge_cut(&s, &image, cut).map_err(|e| {
                    std::fs::write(&bad, &state).unwrap();
                    format!("{what}: cut at {cut} of {to}: {e}")
                })?;
            }
        }
        s.v.unmount().map_err(|e| format!("{what}: unmount: {e}"))?;
        let mut bytes = s.base.clone();
        s.records.append(&mut s.device.take());
        for r in s.records.iter().filter(|r| r.op == Op::Write) {
            let at = (r.sector.0 * 512) as usize;
            bytes[at..at + r.data.len()].copy_from_slice(&r.data);
        }
        std::fs::write(&image, &bytes).unwrap();
        judge_unmounted(&s, &image).map_err(|e| {
            std::fs::write(&bad, &bytes).unwrap();
            format!("{what}: unmounted: {e}")
        })?;
        // The next pass goes on with the volume that Linux left.
        s.remount(std::fs::read(&image).unwrap(), draw.how);
        for w in &s.workers {
            for (path, id) in w.paths.iter().filter(|(_, id)| w.things[*id].kind == FileType::Regular) {
                let mut bytes = vec![0; w.things[id].data.len() + 1];
                let n = w.file(path).read_at(0, &mut bytes).unwrap();
                if bytes[..n] != w.things[id].data {
                    std::fs::write(&bad, &s.base).unwrap();
                    return Err(format!("{what}: {path} reads otherwise here"));
                }
            }
        }
        judged += 1;
    }
    let no_room: u64 = s.workers.iter().map(|w| w.full).sum();
    println!("  {judged} times judged, {no_room} changes found no room");
    Ok(Round::Judged(judged, draw))
}

#[test]
fn volumes_of_many_kinds_outlive_work_by_chance() {
    if skip() {
        return;
    }
    let seconds = std::env::var("TIDEGATE_SOAK").map_or(8, |s| s.parse().expect("TIDEGATE_SOAK is a number"));
    // The images are in memory: each state is written, mounted and judged several times.
    let memory = Path::new("/dev/shm");
    let dir = if memory.is_dir() { TempDir::new_in(memory, "soak").unwrap() } else { scratch() };
    let begin = seed();
    let until = Instant::now() + Duration::from_secs(seconds);
    let (mut drawn, mut passed, mut bad) = (Vec::new(), Vec::new(), Vec::new());
    let mut times = 0;
    for n in 0.. {
        if bad.len() == 5 || !drawn.is_empty() && Instant::now() > until {
            break;
        }
        match round(dir.path(), begin.wrapping_add(n), until) {
            Ok(Round::Judged(n, draw)) => {
                times += n;
                drawn.push(draw);
            }
            Ok(Round::Passed(why)) => passed.push(why),
            Err(e) => {
                if let Some(keep) = std::env::var_os("TIDEGATE_KEEP") {
                    let _ = std::fs::copy(dir.path().join("bad.img"), keep);
                }
                println!("{e}");
                bad.push(e);
            }
        }
        assert!(passed.len() < 50 || !drawn.is_empty(), "no volume is to be had: {passed:#?}");
    }
    let of = |is: &dyn Fn(&Draw) -> bool| drawn.iter().filter(|d| is(d)).count();
    println!(
        "{} rounds, {times} times judged: {} with inodes of 128 bytes, {} full, {} of several threads; {} not to be had",
        drawn.len(),
        of(&|d| d.args.iter().any(|a| a == "128")),
        of(&|d| d.full),
        of(&|d| d.threads > 1),
        passed.len()
    );
    passed.iter().for_each(|why| println!("{why}"));
    assert!(bad.is_empty(), "{}", bad.join("\n\n"));
}
