//! Threads that work at the same time, in simulated time: readers beside a writer, a writer beside a
//! checkpoint, a checkpoint beside a congested queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;
use tidegate::vfs::{Cred, FallocateFlags, File, MemoryLimits, OpenFlags};
use tidegate::{OpenOptions, Volume};
use tidegate_block::model::{Spec, disk::DiskSpec, preset::Medium};
use tidegate_block::{Fault, Faulty, Model, Op, Preset, RequestQueue, Rule};
use tidegate_f2fs::check::{CheckOptions, check};
use tidegate_f2fs::mkfs::{MkfsOptions, mkfs};
use tidegate_rt::sim::{Config, run_with};
use tidegate_rt::{Nanos, clock, rng::Rng, thread};

/// A desktop's disk with almost no cache of its own: submitted requests stay in flight.
fn disk() -> Spec {
    let Spec { medium: Medium::Disk(disk), .. } = Preset::Hdd.spec() else { unreachable!() };
    Spec { medium: Medium::Disk(DiskSpec { cache: 64 << 10, ..disk }), ..Preset::Hdd.spec() }
}

const LATE: Duration = Duration::from_secs(1);
const HALF_LATE: u64 = 500_000_000;
const LATE_DATA: u8 = 0xda;
const PAGE: usize = 4096;
const SMALL: MemoryLimits =
    MemoryLimits { cache: 512 << 10, dirty: 256 << 10, background: 64 << 10, inodes: 64 };

fn queue(spec: Spec, late: Option<Rule>) -> Arc<RequestQueue> {
    let device = Faulty::new(Model::with_spec("device", spec, 256 << 20), late);
    let queue = Arc::new(RequestQueue::new(device, spec.queue_limits()));
    mkfs(&queue, &MkfsOptions::default()).unwrap();
    queue
}

fn volume(queue: &Arc<RequestQueue>, memory: MemoryLimits, options: &str) -> Arc<Volume> {
    let mut open = OpenOptions { memory, ..OpenOptions::default() };
    open.parse(options).unwrap();
    Arc::new(Volume::from_queue("simulated", queue.clone(), &open).unwrap())
}

fn file(volume: &Volume, path: &[u8]) -> File {
    let flags = OpenFlags::CREATE | OpenFlags::WRITE | OpenFlags::READ;
    volume.vfs().open_path(&Cred::ROOT, path, flags, 0o644).unwrap()
}

fn simulate<T: Send + 'static>(seed: u64, jitter: u32, body: impl FnOnce() -> T + Send + 'static) -> T {
    let config = Config { seed, cpus: 3, jitter, quantum: Nanos(0), ..Config::default() };
    run_with(&config, body).unwrap_or_else(|deadlock| panic!("seed {seed}: {deadlock}")).value
}

/// The content that one page of the file may have while a writer changes it, in numbers of the writer's
/// operations.
#[derive(Default)]
struct Page {
    /// The last operation that ended.
    ended: AtomicU64,
    /// The last operation that began and fills the page.
    filled: AtomicU64,
    /// The last operation that began and leaves zeros, or removes the page.
    cleared: AtomicU64,
}

struct Pages(Vec<Page>);

impl Pages {
    /// Checks a page that was read when operations up to `ended` had ended before.
    fn check(&self, index: usize, bytes: &[u8], ended: u64, seed: u64) {
        let words: Vec<u64> =
            bytes.chunks_exact(8).map(|w| u64::from_le_bytes(w.try_into().unwrap())).collect();
        assert!(words.iter().all(|w| *w == words[0]), "seed {seed}: page {index} is of two writes");
        let (page, op) = (words[0] >> 32, words[0] & 0xffff_ffff);
        let of = &self.0[index];
        if op == 0 {
            assert!(of.cleared.load(SeqCst) >= ended, "seed {seed}: page {index} lost write {ended}");
        } else {
            assert_eq!(page, index as u64, "seed {seed}: another page's bytes");
            assert!(
                (ended..=of.filled.load(SeqCst)).contains(&op),
                "seed {seed}: page {index} has write {op} after {ended}"
            );
        }
    }
}

/// Writes, truncates or punches, in whole pages.
fn change(f: &File, pages: &Pages, rng: &mut Rng, op: u64) {
    let n = pages.0.len();
    let first = rng.below(n as u64) as usize;
    let last = (first + 1 + rng.below(12) as usize).min(n);
    let (range, clears) = match rng.below(10) {
        0 => (first..n, true),
        1 | 2 => (first..last, true),
        _ => (first..last, false),
    };
    for p in &pages.0[range.clone()] {
        if clears { &p.cleared } else { &p.filled }.store(op, SeqCst);
    }
    if !clears {
        // A gap before the write reads as zeros.
        let size = f.size() as usize / PAGE;
        pages.0[size.min(first)..first].iter().for_each(|p| p.cleared.store(op, SeqCst));
        let bytes: Vec<u8> =
            range.clone().flat_map(|p| ((p as u64) << 32 | op).to_le_bytes().repeat(PAGE / 8)).collect();
        f.write_at((first * PAGE) as u64, &bytes).unwrap();
    } else if range.end == n {
        f.truncate((first * PAGE) as u64).unwrap();
    } else {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        f.fallocate(flags, (first * PAGE) as u64, ((last - first) * PAGE) as u64).unwrap();
    }
    pages.0[range].iter().for_each(|p| p.ended.store(op, SeqCst));
}

fn read_one(f: &File, pages: &Pages, rng: &mut Rng, seed: u64) {
    let index = rng.below(pages.0.len() as u64) as usize;
    let count = 1 + rng.below(4) as usize;
    let ended: Vec<u64> = pages.0[index..].iter().take(count).map(|p| p.ended.load(SeqCst)).collect();
    let mut bytes = vec![0; ended.len() * PAGE];
    let n = f.read_at((index * PAGE) as u64, &mut bytes).unwrap();
    assert!(n.is_multiple_of(PAGE), "seed {seed}: the file is whole pages long, not {n}");
    for (i, page) in bytes[..n].chunks(PAGE).enumerate() {
        pages.check(index + i, page, ended[i], seed);
    }
}

/// No reader sees a page that is older than a write that had ended, or a mix of two writes, or the data of another
/// file. And old data that was read meanwhile does not replace written data in memory.
#[test]
fn readers_beside_a_writer_see_its_pages_whole() {
    for seed in 0..60 {
        simulate(seed, 64, move || {
            // Reads take long enough for a page to be written, to reach the device and to leave memory
            // meanwhile.
            let late = Rule::new(Fault::Shuffled(Duration::from_millis(10))).op(Op::Read);
            let queue = queue(Preset::Ufs.spec(), Some(late));
            let volume = volume(&queue, SMALL, "background_gc=off");
            let f = Arc::new(file(&volume, b"/f"));
            let pages = Arc::new(Pages((0..160).map(|_| Page::default()).collect()));
            let over = Arc::new(AtomicBool::new(false));
            let reader = |n: u64| {
                let (f, pages, over) = (f.clone(), pages.clone(), over.clone());
                let body = move || {
                    let mut rng = Rng::new(seed).fork(n);
                    while !over.load(SeqCst) {
                        read_one(&f, &pages, &mut rng, seed);
                        // A read past the end takes no time, so the thread sleeps.
                        thread::sleep(Duration::from_micros(rng.below(40)));
                    }
                };
                thread::spawn(&format!("reader/{n}"), body).unwrap()
            };
            let readers: Vec<_> = (1..5).map(reader).collect();
            let mut rng = Rng::new(seed);
            for op in 1..150 {
                change(&f, &pages, &mut rng, op);
                if op % 40 == 0 {
                    f.fsync(false).unwrap();
                }
            }
            over.store(true, SeqCst);
            readers.into_iter().for_each(thread::JoinHandle::join);
            for _ in 0..200 {
                read_one(&f, &pages, &mut rng, seed);
            }
            drop(f);
            Arc::into_inner(volume).unwrap().unmount().unwrap();
            assert_eq!(check(&queue, CheckOptions::default()).unwrap().problems, [], "seed {seed}");
        });
    }
}

/// A read that reaches the device does not keep other threads from writing to the file.
#[test]
fn a_writer_does_not_wait_for_readers_of_other_pages() {
    let (reading, writes) = simulate(1, 0, || {
        let queue = queue(disk(), None);
        let volume = volume(&queue, MemoryLimits::default(), "");
        let f = Arc::new(file(&volume, b"/f"));
        f.write_at(0, &vec![1; 1024 * PAGE]).unwrap();
        volume.sync().unwrap();
        f.forget_pages(0, u64::MAX);
        let over = Arc::new(AtomicBool::new(false));
        let reads = Arc::new(AtomicU64::new(0));
        let reader = {
            let (f, over, reads) = (f.clone(), over.clone(), reads.clone());
            let body = move || {
                let mut rng = Rng::new(1);
                while !over.load(SeqCst) {
                    let page = 512 + rng.below(512);
                    f.read_at(page * PAGE as u64, &mut [0; PAGE]).unwrap();
                    reads.fetch_add(1, SeqCst);
                }
            };
            thread::spawn("reader", body).unwrap()
        };
        let start = clock::now();
        let mut writes = 0;
        while clock::now().since(start) < Nanos(1_000_000_000) {
            f.write_at(writes % 512 * PAGE as u64, &[2; PAGE]).unwrap();
            thread::sleep(Duration::from_millis(1));
            writes += 1;
        }
        over.store(true, SeqCst);
        reader.join();
        (reads.load(SeqCst), writes)
    });
    assert!(reading > 20 && writes > 900, "{reading} reads, {writes} writes in a second");
}

/// Writes to pages that have their places go on while checkpoints are written one after the other.
#[test]
fn an_overwrite_does_not_wait_for_a_checkpoint() {
    let (checkpoints, writes) = simulate(2, 0, || {
        let queue = queue(disk(), None);
        let volume = volume(&queue, MemoryLimits::default(), "");
        let f = file(&volume, b"/f");
        f.write_at(0, &vec![1; 256 * PAGE]).unwrap();
        volume.sync().unwrap();
        let over = Arc::new(AtomicBool::new(false));
        let syncer = {
            let (volume, over) = (volume.clone(), over.clone());
            let body = move || {
                let mut checkpoints = 0;
                while !over.load(SeqCst) {
                    let name = format!("/{checkpoints}").into_bytes();
                    volume.mkdir(&name, 0o755, false).unwrap();
                    volume.vfs().fs().sync_fs().unwrap();
                    checkpoints += 1;
                }
                checkpoints
            };
            thread::spawn("syncer", body).unwrap()
        };
        let start = clock::now();
        let mut writes = 0;
        while clock::now().since(start) < Nanos(1_000_000_000) {
            f.write_at(writes % 256 * PAGE as u64, &[2; PAGE]).unwrap();
            thread::sleep(Duration::from_millis(1));
            writes += 1;
        }
        over.store(true, SeqCst);
        (syncer.join(), writes)
    });
    assert!(checkpoints > 5 && writes > 900, "{checkpoints} checkpoints, {writes} writes in a second");
}

/// A checkpoint beside pages of a file for which the device takes a second. Returns the pages left when it has ended,
/// the time that operations were frozen, and the time of the checkpoint.
fn checkpoint_beside_late_pages(options: &'static str) -> (u64, Nanos, Nanos) {
    simulate(3, 0, move || {
        let late = Rule::new(Fault::Late(LATE)).op(Op::Write).when(|rq| {
            let mut is_data = false;
            rq.for_each_source(|bytes| is_data |= bytes[..8] == [LATE_DATA; 8]);
            is_data
        });
        let queue = queue(Preset::Nvme.spec(), Some(late));
        let volume = volume(&queue, MemoryLimits::default(), options);
        let f = file(&volume, b"/f");
        f.write_at(0, &vec![LATE_DATA; 64 * PAGE]).unwrap();
        let syncer = {
            let volume = volume.clone();
            thread::spawn("syncer", move || volume.sync().unwrap()).unwrap()
        };
        while f.inode().mapping.nr_writeback() < 64 {
            thread::sleep(Duration::from_millis(1));
        }
        volume.mkdir(b"/d", 0o755, false).unwrap();
        volume.vfs().fs().sync_fs().unwrap();
        let left = f.inode().mapping.nr_writeback();
        let steps = volume.commit_stats().steps;
        let of = |name| Nanos(steps.iter().find(|s| s.name == name).unwrap().max_ns);
        let times = (of("frozen in all"), of("checkpoint in all"));
        syncer.join();
        (left, times.0, times.1)
    })
}

/// A checkpoint that refers to data waits for it before it freezes operations, not under the freeze.
#[test]
fn a_checkpoint_waits_for_data_before_the_freeze() {
    let (left, frozen, whole) = checkpoint_beside_late_pages("");
    assert_eq!(left, 0, "a checkpoint refers to pages that are not on the device");
    assert!(frozen.0 < HALF_LATE && whole.0 > HALF_LATE, "frozen for {frozen:?} of {whole:?}");
}

/// As in Linux, a checkpoint leaves file data in flight.
#[test]
fn a_checkpoint_as_linux_has_it_leaves_data_in_flight() {
    let (left, _, whole) = checkpoint_beside_late_pages("checkpoint_data=linux");
    assert!(left == 64 && whole.0 < HALF_LATE, "{left} pages left, {whole:?}");
}

/// A thread that waits for the device to find free node ids does not keep other threads from the NAT.
#[test]
fn a_look_for_free_node_ids_stops_no_fsync() {
    let (longest, waited) = simulate(4, 0, || {
        let nat = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
        let late = Rule::new(Fault::Late(LATE)).op(Op::Read).when({
            let nat = nat.clone();
            move |rq| (nat[0].load(SeqCst)..nat[1].load(SeqCst)).contains(&rq.sector.bytes())
        });
        let queue = queue(Preset::Nvme.spec(), Some(late));
        let volume = volume(&queue, MemoryLimits::of_machine(1 << 30), "background_gc=off");
        let f = file(&volume, b"/f");
        let areas = volume.info().unwrap().areas();
        let area = areas.iter().position(|a| a.0.eq_ignore_ascii_case("nat")).unwrap();
        for (bound, at) in nat.iter().zip([areas[area].1, areas[area + 1].1]) {
            bound.store(at * PAGE as u64, SeqCst);
        }
        let over = Arc::new(AtomicBool::new(false));
        let maker = {
            let (volume, over) = (volume.clone(), over.clone());
            let body = move || {
                let (mut made, mut waited) = (0, false);
                while !waited {
                    let start = clock::now();
                    file(&volume, format!("/{made}").as_bytes());
                    made += 1;
                    waited = clock::now().since(start).0 > HALF_LATE;
                }
                over.store(true, SeqCst);
                waited
            };
            thread::spawn("maker", body).unwrap()
        };
        let mut longest = Nanos(0);
        while !over.load(SeqCst) {
            f.write_at(0, &[1; PAGE]).unwrap();
            let start = clock::now();
            f.fsync(false).unwrap();
            longest = longest.max(clock::now().since(start));
        }
        (longest, maker.join())
    });
    assert!(waited && longest.0 < HALF_LATE / 4, "an fsync took {longest:?}");
}
