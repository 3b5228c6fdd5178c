//! The request queue without an elevator, in a simulated world: which threads wait for room, and which bios go out as
//! one request.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;
use tidegate_block::*;
use tidegate_rt::{LockClass, Mutex, clock, sim, thread};

const MS: Duration = Duration::from_millis(1);
/// The time of each request.
const TAKES: Duration = Duration::from_millis(100);
const LIMITS: QueueLimits = QueueLimits {
    nr_requests: 4,
    max_inflight_bytes: 64 << 10,
    max_bytes: 32 << 10,
    max_segments: 8,
    wbt: None,
};

static SEEN: LockClass = LockClass::new("test->seen", 975);

type Seen = Arc<Mutex<Vec<(u64, u64)>>>;

/// Runs `f` with a queue, and with a list of the requests that reached the device: sectors and bytes.
fn each_seed(f: impl Fn(Arc<RequestQueue>, Seen) + Copy + Send + 'static) {
    for seed in 0..4 {
        println!("seed {seed}");
        sim::run(seed, 3, move || {
            let seen: Seen = Arc::new(Mutex::new(&SEEN, Vec::new()));
            let note = seen.clone();
            let late = Rule::new(Fault::Late(TAKES)).when(move |rq| {
                note.lock().push((rq.sector.0, rq.bytes));
                true
            });
            let device = Faulty::new(Arc::new(MemoryDevice::new(16 << 20)), [late]);
            f(Arc::new(RequestQueue::new(device, LIMITS)), seen);
        });
    }
}

fn write(page: u64, pages: usize) -> Bio {
    let segment = Segment::pages(Arc::new(PageBuf::zeroed(pages)), 0, pages);
    Bio::write(Sector(page * 8), vec![segment], BioFlags::empty())
}

fn took(f: impl FnOnce()) -> Duration {
    let from = clock::now();
    f();
    clock::now().since(from).duration()
}

#[test]
fn submitters_wait_while_there_are_too_many_requests() {
    each_seed(|q, _| {
        assert!(took(|| (0..4).for_each(|i| q.submit(write(i * 10, 1)))) < MS);
        assert_eq!((q.in_flight(), q.stats().congested), (4, 0));
        let fifth = took(|| q.submit(write(100, 1)));
        assert!(fifth > TAKES - 2 * MS, "{fifth:?}");
        assert_eq!(q.stats().congested, 1);
    });
}

#[test]
fn submitters_wait_while_there_are_too_many_bytes() {
    each_seed(|q, _| {
        assert!(took(|| (0..2).for_each(|i| q.submit(write(i * 10, 8)))) < MS);
        let third = took(|| q.submit(write(100, 1)));
        assert!(third > TAKES - 2 * MS, "{third:?}");
    });
}

/// A request that is larger than all that may be in flight goes alone.
#[test]
fn no_request_is_too_large() {
    each_seed(|q, _| {
        assert!(took(|| q.submit(write(0, 100))) < MS);
        let next = took(|| q.submit(write(200, 100)));
        assert!(next > TAKES - 2 * MS, "{next:?}");
    });
}

#[test]
fn who_drains_waits_for_changes_and_for_no_read() {
    each_seed(|q, _| {
        q.submit(Bio::read(Sector(0), vec![PageBuf::stale(1)], BioFlags::empty()));
        let reads = took(|| q.drain());
        assert!(reads < MS, "{reads:?}");
        thread::sleep(TAKES / 2);
        q.submit(write(0, 1));
        let writes = took(|| q.drain());
        assert!(writes > TAKES - MS, "{writes:?}");
    });
}

#[test]
fn a_queue_goes_when_its_requests_have_ended() {
    each_seed(|q, _| {
        q.submit(write(0, 1));
        let gone = took(|| drop(Arc::into_inner(q)));
        assert!(gone > TAKES - MS, "{gone:?}");
    });
}

/// A bio that continues a gathered request joins it, up to the largest request; the rest goes in order of address.
#[test]
fn a_plug_merges_and_sorts() {
    each_seed(|q, seen| {
        let mut plug = Plug::new(&q);
        for page in [100, 101, 50, 102, 51, 7] {
            plug.add(write(page, 1));
        }
        assert!(seen.lock().is_empty(), "a plug holds back");
        drop(plug);
        assert_eq!(*seen.lock(), [(7 * 8, 4096), (50 * 8, 2 * 4096), (100 * 8, 3 * 4096)]);
        q.drain();
        seen.lock().clear();
        let mut plug = Plug::new(&q);
        (0..9).for_each(|page| plug.add(write(page, 1)));
        drop(plug);
        assert_eq!(*seen.lock(), [(0, 8 * 4096), (64, 4096)], "32 KiB at most");
        assert_eq!((q.stats().write_bios, q.stats().write_requests), (15, 5));
    });
}

/// A device that tells which requests its own thread executes, and which the calling thread.
struct TwoWays {
    inner: MemoryDevice,
    quick: bool,
    seen: Seen,
}

/// Told in place of the bytes of a request that the calling thread executes.
const HERE: u64 = 0;

impl Device for TwoWays {
    fn info(&self) -> DeviceInfo<'_> {
        self.inner.info()
    }
    fn execute(&self, rq: &mut Request) -> Result<(), Errno> {
        self.seen.lock().push((rq.sector.0, HERE));
        self.inner.execute(rq)
    }
    fn submit(&self, rq: Request) {
        self.seen.lock().push((rq.sector.0, rq.bytes));
        self.inner.submit(rq);
    }
    fn is_quick(&self, _: &Request) -> bool {
        self.quick
    }
}

/// A thread that waits for all of a plug executes the last request itself, after the others, where the device
/// is quick.
#[test]
fn a_plug_that_is_awaited_has_its_last_request_done_by_who_waits() {
    for (quick, last) in [(true, HERE), (false, 4096)] {
        let seen: Seen = Arc::new(Mutex::new(&SEEN, Vec::new()));
        let device = TwoWays { inner: MemoryDevice::new(16 << 20), quick, seen: seen.clone() };
        let q = Arc::new(RequestQueue::new(Arc::new(device), LIMITS));
        let ended = Arc::new(AtomicU64::new(0));
        let bio = |page| {
            let ended = ended.clone();
            write(page, 1).on_end(move |r, _| {
                r.unwrap();
                ended.fetch_add(1, SeqCst);
            })
        };
        let mut plug = Plug::new(&q);
        [100, 7, 50, 8].map(bio).into_iter().for_each(|bio| plug.add(bio));
        plug.send_here();
        assert_eq!(*seen.lock(), [(7 * 8, 8192), (50 * 8, 4096), (100 * 8, last)]);
        assert_eq!((ended.load(SeqCst), q.stats().write_bios, q.stats().write_requests), (4, 4, 3));
        plug.send_here();
        drop(plug);
        assert_eq!(seen.lock().len(), 3, "nothing is left");
        // A bio in a shared plug is not one that the thread waits for.
        let shared = SharedPlug::new(q.clone());
        let joins = |_| ();
        let mut plug = Plug::new(&q).behind(&shared, &joins);
        plug.add(bio(200));
        plug.send_here();
        assert_eq!(seen.lock().len(), 3, "it joins the shared plug");
        drop(plug);
        shared.send();
        q.drain();
        assert_eq!((seen.lock()[3..].to_vec(), ended.load(SeqCst)), (vec![(200 * 8, 4096)], 5));
    }
}

/// Requests of several passes join. A load is sent when it is full, and when a thread asks for one of its
/// requests.
#[test]
fn a_shared_plug_joins_requests_of_many_passes() {
    each_seed(|q, seen| {
        let shared = SharedPlug::new(q.clone());
        let joined = AtomicU64::new(0);
        let pass = |page| {
            Plug::new(&q).behind(&shared, &|load| joined.store(load, SeqCst)).add(write(page, 1));
            joined.load(SeqCst)
        };
        let first = pass(100);
        assert_eq!([50, 101, 7, 51].map(pass), [first; 4]);
        shared.send_with(first - 1);
        shared.send_with(first + 1);
        assert!(seen.lock().is_empty(), "nobody waits for it");
        shared.send_with(first);
        assert_eq!(*seen.lock(), [(7 * 8, 4096), (50 * 8, 2 * 4096), (100 * 8, 2 * 4096)]);
        shared.send_with(first);
        assert_eq!(seen.lock().len(), 3, "it is sent");
        let loads: Vec<u64> = (0..33).map(|n| pass(n * 10)).collect();
        assert_eq!((loads[0], loads[31], loads[32]), (first + 1, first + 1, first + 2));
        assert_eq!(seen.lock().len(), 3 + 32, "there were enough");
        drop(shared);
        assert_eq!(seen.lock().len(), 3 + 33);
    });
}

/// A long request is not kept back when the next one does not continue it.
#[test]
fn a_shared_plug_sends_what_is_long() {
    let q = Arc::new(RequestQueue::new(Arc::new(MemoryDevice::new(16 << 20)), QueueLimits::default()));
    let shared = SharedPlug::new(q.clone());
    let pass = |page, pages| Plug::new(&q).behind(&shared, &|_| ()).add(write(page, pages));
    pass(0, 20);
    pass(20, 12);
    pass(32, 1);
    assert_eq!(q.stats().write_requests, 0, "they continue each other");
    pass(100, 1);
    assert_eq!(q.stats().write_requests, 1);
    shared.send();
    assert_eq!((q.stats().write_requests, q.stats().write_bios), (2, 4));
}

/// One megabyte of requests may be in flight; while a thread waits for a request, 8 pages of write-back.
fn each_seed_throttled(f: impl Fn(Arc<RequestQueue>) + Copy + Send + 'static) {
    for seed in 0..4 {
        println!("seed {seed}");
        sim::run(seed, 3, move || {
            let late = Rule::new(Fault::Late(TAKES));
            let device = Faulty::new(Arc::new(MemoryDevice::new(16 << 20)), [late]);
            let wbt = Some(Wbt { requests: 3, bytes: 8 * 4096 });
            let limits = QueueLimits { nr_requests: 64, max_inflight_bytes: 1 << 20, wbt, ..LIMITS };
            f(Arc::new(RequestQueue::new(device, limits)));
        });
    }
}

fn sync(page: u64) -> Bio {
    let mut bio = write(page, 1);
    bio.flags = BioFlags::SYNC;
    bio
}

/// Submits a synchronous request behind `pages` pages of write-back.
fn sync_behind(q: &RequestQueue, pages: usize) {
    q.submit(write(900, pages));
    q.submit(sync(1000));
}

#[test]
fn write_back_has_the_whole_queue_while_nobody_waits() {
    each_seed_throttled(|q| {
        assert!(took(|| (0..20).for_each(|i| q.submit(write(i * 10, 8)))) < MS);
    });
}

#[test]
fn write_back_has_the_whole_queue_where_little_is_before_a_request_that_somebody_waits_for() {
    each_seed_throttled(|q| {
        sync_behind(&q, 4);
        assert!(took(|| (0..10).for_each(|i| q.submit(write(i * 10, 8)))) < MS);
    });
}

#[test]
fn write_back_makes_no_way_for_the_requests_of_the_thread_that_does_it() {
    each_seed_throttled(|q| {
        let flusher = thread::spawn("flusher", move || {
            wbt::writes_back();
            sync_behind(&q, 8);
            assert!(took(|| (0..10).for_each(|i| q.submit(write(i * 10, 8)))) < MS);
        });
        flusher.unwrap().join();
    });
}

/// In an fsync of a large file, the thread's own requests are in front of each other. A thread that sends little again
/// counts again.
#[test]
fn write_back_makes_no_way_for_a_thread_that_sends_much_itself() {
    each_seed_throttled(|q| {
        let large = |i: u64| {
            let mut bio = write(i * 10, 8);
            bio.flags = BioFlags::SYNC;
            bio
        };
        (0..20).for_each(|i| q.submit(large(i)));
        sync_behind(&q, 8);
        assert!(took(|| (0..10).for_each(|i| q.submit(write(i * 10, 8)))) < MS);
        q.drain();
        // The last wait is too long ago to count.
        thread::sleep(101 * MS);
        sync_behind(&q, 8);
        assert!(took(|| q.submit(write(500, 8))) > TAKES - 2 * MS);
    });
}

#[test]
fn little_write_back_is_on_its_way_while_somebody_waits() {
    each_seed_throttled(|q| {
        // By bytes, and by requests.
        for (pages, fit) in [(4, 1), (1, 2)] {
            sync_behind(&q, 5);
            assert!(took(|| (0..fit).for_each(|i| q.submit(write(i * 10, pages)))) < MS);
            let next = took(|| q.submit(write(500, pages)));
            assert!(next > TAKES - 2 * MS, "{next:?}");
            q.drain();
        }
    });
}

#[test]
fn write_back_in_the_queue_is_in_the_way_of_nothing_that_somebody_waits_for() {
    each_seed_throttled(|q| {
        sync_behind(&q, 5);
        q.submit(write(0, 4));
        let waits = q.clone();
        let flusher = thread::spawn("flusher", move || waits.submit(write(500, 4))).unwrap();
        assert!(took(|| (0..10).for_each(|i| q.submit(sync(i * 10 + 2000)))) < MS);
        flusher.join();
    });
}

/// The time counts from the end of a request that a thread waits for, not from its beginning.
#[test]
fn write_back_has_the_whole_queue_again_a_while_after_the_last_wait() {
    each_seed_throttled(|q| {
        let later = q.clone();
        let flusher = thread::spawn("flusher", move || {
            later.submit(write(900, 5));
            thread::sleep(TAKES / 2);
            later.submit(write(800, 5));
        });
        thread::sleep(MS);
        q.submit_wait(sync(1000)).unwrap();
        flusher.unwrap().join();
        let soon = took(|| (0..3).for_each(|i| q.submit(write(i * 10, 4))));
        assert!(soon > TAKES / 2 - 4 * MS, "{soon:?}");
        q.drain();
        q.set_wbt(false);
        assert!(took(|| (0..10).for_each(|i| q.submit(write(i * 10, 8)))) < MS);
        q.drain();
        q.set_wbt(true);
        thread::sleep(TAKES + MS);
        assert!(took(|| (0..10).for_each(|i| q.submit(write(i * 10, 8)))) < MS);
    });
}

#[test]
fn what_is_larger_than_the_bound_of_write_back_goes_alone() {
    each_seed_throttled(|q| {
        sync_behind(&q, 5);
        assert!(took(|| q.submit(write(0, 32))) < MS);
        let next = took(|| q.submit(write(100, 32)));
        assert!(next > TAKES - 2 * MS, "{next:?}");
    });
}

#[test]
fn write_back_that_a_thread_waits_for_by_now_has_the_whole_queue() {
    each_seed_throttled(|q| {
        sync_behind(&q, 8);
        let shared = SharedPlug::new(q.clone());
        let joined = AtomicU64::new(0);
        let note = |load| joined.store(load, SeqCst);
        (1..20).for_each(|i| Plug::new(&q).behind(&shared, &note).add(write(i * 10, 1)));
        assert!(took(|| shared.send_with(joined.load(SeqCst))) < MS);
        let mut meta = write(500, 1);
        meta.flags = BioFlags::META;
        assert!(took(|| q.submit(meta)) < MS);
        assert!(took(|| q.submit(write(600, 1))) > TAKES - 2 * MS);
    });
}

/// Short requests that come between do not keep a long one out.
#[test]
fn long_write_back_goes_as_soon_as_there_is_any_room() {
    each_seed_throttled(|q| {
        q.submit(sync(1000));
        q.submit(write(0, 1));
        assert!(took(|| q.submit(write(10, 32))) < MS);
    });
}
