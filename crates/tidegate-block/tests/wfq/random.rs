//! Many threads send random requests: every request ends once, and reads return what was written.

use crate::device::{SlowDevice, queue};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;
use tidegate_block::file::{self, OpenOptions};
use tidegate_block::{
    Backend, Bio, BioData, BioFlags, Device, IoContext, MemoryDevice, PageBuf, Plug, RequestQueue, Sector,
    Segment, WfqOptions,
};
use tidegate_rt::{clock, thread};

const THREADS: u64 = 8;
const REQUESTS: u64 = 2000;
/// Pages of the device that each thread has for itself.
const SPAN: u64 = 256;

struct Rng(u64);

impl Rng {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

/// The seed from `TIDEGATE_SEED`, else a random one. It is printed, so that a failure can be repeated.
fn seed() -> u64 {
    let s = std::env::var("TIDEGATE_SEED").ok().and_then(|s| s.parse().ok());
    let s = s.unwrap_or_else(clock::entropy) | 1;
    println!("TIDEGATE_SEED={s}");
    s
}

fn context(rng: &mut Rng) -> IoContext {
    let class = [1, 2, 2, 2, 2, 3][rng.below(6) as usize];
    IoContext { group: rng.below(4) as u32, class, level: rng.below(8) as u8 }
}

fn page(v: u8) -> Vec<Segment> {
    vec![Segment::pages(Arc::new(PageBuf::from_slice(&[v; 4096])), 0, 1)]
}

/// One thread's requests on its own pages; returns how many ends it expects.
fn work(q: &RequestQueue, mut rng: Rng, first: u64, ended: &Arc<AtomicUsize>, keeps_data: bool) -> usize {
    let at = |p: u64| Sector((first + p) * 8);
    let count = || {
        let e = ended.clone();
        move |r: Result<(), _>, _: BioData| {
            assert!(r.is_ok());
            e.fetch_add(1, SeqCst);
        }
    };
    let (mut expected, mut plug) = (0, Plug::new(q));
    for i in 0..REQUESTS {
        let _ctx = context(&mut rng).enter();
        let p = rng.below(SPAN / 2);
        match rng.below(10) {
            0 => q.flush().unwrap(),
            1 => {
                let flags = BioFlags::SYNC | BioFlags::PREFLUSH | BioFlags::FUA;
                q.submit(Bio::write(at(p), page(0), flags).on_end(count()));
                expected += 1;
            }
            // The upper half of the span is written only here, one request at a time for each page.
            2 | 3 => {
                let p = SPAN / 2 + p;
                q.submit_wait(Bio::write(at(p), page(i as u8 | 1), BioFlags::SYNC)).unwrap();
                let b = q.read_wait(at(p), 1, BioFlags::empty()).unwrap();
                assert!(!keeps_data || b.iter().all(|x| *x == i as u8 | 1), "page {p}, request {i}");
            }
            4..=6 => {
                plug.add(Bio::write(at(p), page(0), BioFlags::empty()).on_end(count()));
                expected += 1;
            }
            7 => {
                q.submit(Bio::read(at(p), vec![PageBuf::stale(1)], BioFlags::empty()).on_end(count()));
                expected += 1;
            }
            _ => {
                q.submit(Bio::write(at(p), page(0), BioFlags::BACKGROUND).on_end(count()));
                expected += 1;
            }
        }
    }
    drop(plug);
    expected
}

fn run(device: Arc<dyn Device>, options: WfqOptions, keeps_data: bool) {
    let seed = seed();
    let q = queue(device, options, 16);
    (1..4).for_each(|g| q.set_group_weight(g, 10 * g));
    let ended = Arc::new(AtomicUsize::new(0));
    let threads: Vec<_> = (0..THREADS)
        .map(|t| {
            let (q, ended) = (q.clone(), ended.clone());
            let rng = Rng(seed.wrapping_mul(2 * t + 1) | 1);
            thread::spawn("random", move || work(&q, rng, t * SPAN, &ended, keeps_data)).unwrap()
        })
        .collect();
    let expected: usize = threads.into_iter().map(|t| t.join()).sum();
    q.drain();
    // A drain waits for writes alone: reads may still be on their way.
    for _ in 0..PATIENCE {
        if ended.load(SeqCst) == expected {
            break;
        }
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(ended.load(SeqCst), expected);
    let (stats, all) = (q.elevator_stats(), q.stats());
    let served: u64 = stats.iter().map(|s| s.bytes).sum();
    assert_eq!(served, all.read_bytes + all.write_bytes);
    drop(q);
    assert_eq!(ended.load(SeqCst), expected, "none ends twice");
}

/// Options with idle times so short that every case happens often.
fn strict() -> WfqOptions {
    WfqOptions {
        strict_guarantees: true,
        slice_idle: Duration::from_micros(50),
        idle_class_delay: Duration::from_micros(50),
        idle_class_expire: Duration::from_millis(1),
        ..Default::default()
    }
}

fn loose() -> WfqOptions {
    WfqOptions { strict_guarantees: false, ..strict() }
}

const SIZE: u64 = THREADS * SPAN * 4096;
/// Milliseconds after which a request that has not ended counts as lost.
const PATIENCE: usize = 60_000;

#[test]
fn nothing_is_lost_on_a_device_that_completes_inline() {
    run(Arc::new(MemoryDevice::new(SIZE)), loose(), true);
    run(Arc::new(MemoryDevice::new(SIZE)), strict(), true);
}

#[test]
fn nothing_is_lost_on_a_device_with_a_thread() {
    run(SlowDevice::new(Duration::ZERO, true), loose(), false);
    run(SlowDevice::new(Duration::ZERO, true), strict(), false);
}

#[test]
fn nothing_is_lost_on_a_file() {
    let dir = tempfile::tempdir().unwrap();
    for (name, backend) in [("auto", Backend::Auto), ("threads", Backend::Threads)] {
        let o = OpenOptions { backend, create: Some(SIZE), direct: false, ..Default::default() };
        run(file::open(&dir.path().join(name), o).unwrap(), loose(), true);
    }
}
