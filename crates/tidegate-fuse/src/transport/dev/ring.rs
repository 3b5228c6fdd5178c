//! Requests by io_uring: a queue for each CPU, and for each queue threads that stay on its CPU.
//!
//! A request is served on the CPU from which it came, so that no thread on another CPU has to be woken. A
//! thread answers and waits for the next request in one call. A request that moves much data goes to any CPU:
//! the client has the previous data to work on meanwhile. Each thread has one entry of its queue, so no
//! request waits behind a long one while a thread is idle. The kernel gives a request to the thread that
//! became idle last.

use super::dispatch::{Answer, Maker, Offload, Outcome, volume_of};
use super::has_ended;
use super::requests;
use super::wire::{Head, Reader};
use crate::mount::unmount_own;
use crate::transport::MAX_IO;
use crate::transport::cpu_awake::CpuAwake;
use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use tidegate_rt::{Condvar, LockClass, Mutex, thread};
use tidegate_sys::fuse_ring::FuseRing;

static WORKERS: LockClass = LockClass::new("fuse->workers", 1);

/// The most CPUs. The kernel needs an entry in the queue of each possible CPU. With more CPUs, threads and buffers cost
/// more than they bring.
const MAX_CPUS: usize = 64;
/// The least number of threads of a queue: a thread must be free while others wait for the device. With many
/// CPUs, fewer are enough.
const MIN_THREADS: usize = 2;
const MIN_THREADS_FEW: usize = 4;
const FEW_CPUS: usize = 8;

/// The state of the mount.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Threads are getting ready.
    Gathering,
    /// The kernel's first message was answered.
    Serving,
    /// The mount is served in another way.
    Dismissed,
}

struct State {
    stage: Stage,
    ready: usize,
    failed: bool,
    threads: Vec<thread::JoinHandle<io::Result<()>>>,
}

/// The threads of one queue.
#[derive(Default)]
struct Queue {
    /// The number of threads that take requests.
    threads: AtomicUsize,
    /// Of them, the number that wait for other requests to be served.
    waiting: AtomicUsize,
}

/// All threads of a mount.
pub(super) struct Workers {
    maker: Maker,
    awake: Option<Arc<CpuAwake>>,
    fuse: Arc<OwnedFd>,
    mountpoint: PathBuf,
    queues: Vec<Queue>,
    state: Mutex<State>,
    changed: Condvar,
}

/// The queue to which a thread belongs.
pub(super) struct Post {
    workers: Arc<Workers>,
    cpu: usize,
}

impl Post {
    /// Does `work`, which waits for other requests, and makes sure that another thread serves them.
    pub(super) fn while_others_serve(&self, work: impl FnOnce() -> Outcome) -> Outcome {
        let Some(queue) = self.workers.queues.get(self.cpu) else { return work() };
        let waiting = queue.waiting.fetch_add(1, SeqCst) + 1;
        let outcome = match waiting < queue.threads.load(SeqCst) || self.relieve(queue) {
            true => work(),
            false => Err(Errno::NOMEM),
        };
        queue.waiting.fetch_sub(1, SeqCst);
        outcome
    }

    /// Has another thread join the queue, and waits until it takes requests. False if it does not.
    fn relieve(&self, queue: &Queue) -> bool {
        let before = queue.threads.load(SeqCst);
        if self.workers.add(self.cpu).is_err() {
            return false;
        }
        let mut state = self.workers.state.lock();
        while queue.threads.load(SeqCst) == before && !state.failed {
            self.workers.changed.wait(&mut state);
        }
        if state.failed {
            return false;
        }
        drop(state);
        // The kernel gives a new entry no request that already waits: only a thread that answers a request
        // gets those. So this thread makes a request from this CPU.
        let mut here = CpuSet::new();
        here.set(self.cpu);
        let _ = sched_setaffinity(None, &here);
        let _ = rustix::fs::statvfs(&self.workers.mountpoint);
        true
    }

    /// Notes that the entry takes requests now, or never will.
    fn joined(&self, ok: bool) {
        let mut state = self.workers.state.lock();
        state.failed |= !ok;
        if let Some(queue) = self.workers.queues.get(self.cpu) {
            queue.threads.fetch_add(ok as usize, SeqCst);
        }
        self.workers.changed.notify_all();
    }

    fn serve(self) -> io::Result<()> {
        let workers = self.workers.clone();
        let mut place = Place::new(self.cpu);
        let ring = FuseRing::new(workers.fuse.clone(), self.cpu as u16, MAX_IO as usize);
        let mut state = workers.state.lock();
        state.ready += 1;
        state.failed |= ring.is_err();
        workers.changed.notify_all();
        while state.stage == Stage::Gathering {
            workers.changed.wait(&mut state);
        }
        let stage = state.stage;
        drop(state);
        match (stage, ring) {
            (Stage::Serving, Ok(ring)) => {
                let served = self.answer_all(ring, &mut place);
                if served.is_err() {
                    // Without this thread the kernel would wait for ever.
                    let _ = unmount_own(&workers.mountpoint, true, false);
                }
                Ok(served?)
            }
            (Stage::Serving, Err(e)) => Err(e.into()),
            _ => Ok(()),
        }
    }

    fn answer_all(self, mut ring: FuseRing, place: &mut Place) -> Result<(), Errno> {
        let registered = ring.register();
        self.joined(registered.is_ok());
        match registered {
            // The kernel has already unmounted.
            Err(e) if e == Errno::NOTCONN || has_ended(e) => return Ok(()),
            r => r?,
        }
        let (maker, awake) = (self.workers.maker.clone(), self.workers.awake.clone());
        let mut worker = maker(Offload::Here(self));
        let mut more = ring.wait()?;
        while more {
            if let Some(awake) = &awake {
                awake.request();
            }
            let m = ring.message()?;
            let mut span = None;
            let outcome = match Head::parse(&mut Reader(m.head)) {
                Ok(h) => {
                    span = Some(requests::begin(&h));
                    place.choose(volume_of(&h, m.fixed, m.len));
                    worker.outcome(&h, m.fixed, m.payload, m.len)
                }
                Err(e) => Err(e),
            };
            let (error, len) = match outcome {
                Ok(Answer::Buffer(n)) => (0, n),
                Ok(Answer::Bytes(w)) => match m.payload.get_mut(..w.0.len()) {
                    Some(to) => {
                        to.copy_from_slice(&w.0);
                        (0, w.0.len())
                    }
                    None => (-Errno::RANGE.raw_os_error(), 0),
                },
                Ok(Answer::Nothing) => (0, 0),
                Err(e) => (-e.raw_os_error(), 0),
            };
            // The answer and the wait for the next request are one call, so the span ends here.
            drop(span);
            more = ring.answer(error, len)?;
        }
        Ok(())
    }
}

/// The CPU on which a thread runs.
struct Place {
    here: CpuSet,
    anywhere: Option<CpuSet>,
    roams: bool,
    /// Small requests since the last large one.
    small: u32,
}

impl Place {
    /// Requests of at least so many bytes are better served on another CPU.
    const LARGE: usize = 64 << 10;
    /// The number of small requests after which a thread returns to its CPU.
    const BACK: u32 = 4;

    fn new(cpu: usize) -> Self {
        let mut here = CpuSet::new();
        here.set(cpu);
        let anywhere = sched_getaffinity(None).ok();
        // No request comes from a CPU that is offline.
        let _ = sched_setaffinity(None, &here);
        Place { here, anywhere, roams: false, small: 0 }
    }

    /// Chooses the CPU for a request that moves so many bytes.
    fn choose(&mut self, bytes: usize) {
        self.small = if bytes >= Self::LARGE { 0 } else { self.small.saturating_add(1) };
        let roams = self.small == 0 || self.roams && self.small < Self::BACK;
        if roams != self.roams
            && let Some(anywhere) = &self.anywhere
        {
            let _ = sched_setaffinity(None, if roams { anywhere } else { &self.here });
            self.roams = roams;
        }
    }
}

impl Workers {
    /// Prepares the threads that serve by io_uring. `None` where that is not possible. The kernel's first
    /// message is to be answered next.
    pub(super) fn gather(
        maker: &Maker,
        awake: &Option<Arc<CpuAwake>>,
        fuse: &Arc<OwnedFd>,
        mountpoint: &Path,
        threads: usize,
    ) -> Option<Arc<Workers>> {
        let cpus = possible_cpus().filter(|n| *n <= MAX_CPUS)?;
        let state = State { stage: Stage::Gathering, ready: 0, failed: false, threads: Vec::new() };
        let workers = Arc::new(Workers {
            maker: maker.clone(),
            awake: awake.clone(),
            fuse: fuse.clone(),
            mountpoint: mountpoint.to_path_buf(),
            queues: (0..cpus).map(|_| Queue::default()).collect(),
            state: Mutex::new(&WORKERS, state),
            changed: Condvar::new(),
        });
        let least = if cpus <= FEW_CPUS { MIN_THREADS_FEW } else { MIN_THREADS };
        let each = threads.div_ceil(cpus).max(least);
        let started = (0..cpus * each).all(|i| workers.add(i % cpus).is_ok());
        let mut state = workers.state.lock();
        while state.ready < state.threads.len() {
            workers.changed.wait(&mut state);
        }
        if started && !state.failed {
            drop(state);
            return Some(workers);
        }
        drop(state);
        workers.turn(Stage::Dismissed);
        None
    }

    fn add(self: &Arc<Self>, cpu: usize) -> io::Result<()> {
        let post = Post { workers: self.clone(), cpu };
        let mut state = self.state.lock();
        let name = format!("tg-fuse-{cpu}-{}", state.threads.len());
        state.threads.push(thread::spawn(&name, move || post.serve())?);
        Ok(())
    }

    fn turn(&self, stage: Stage) {
        self.state.lock().stage = stage;
        self.changed.notify_all();
    }

    /// Lets the threads take requests from now on.
    pub(super) fn start(&self) {
        self.turn(Stage::Serving);
    }

    /// Waits until the kernel has unmounted.
    ///
    /// # Errors
    /// The error of a thread that could not go on.
    pub(super) fn end(&self) -> io::Result<()> {
        let mut served = Ok(());
        loop {
            let Some(thread) = self.state.lock().threads.pop() else { return served };
            served = served.and(thread.join());
        }
    }
}

/// The number of possible CPUs.
fn possible_cpus() -> Option<usize> {
    count(&std::fs::read_to_string("/sys/devices/system/cpu/possible").ok()?)
}

/// The number of CPUs in the kernel's list, such as `0-7`, which ends with the last CPU.
fn count(list: &str) -> Option<usize> {
    let last = list.trim().rsplit([',', '-']).next()?;
    last.parse::<usize>().ok().map(|n| n + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_cpu_counts() {
        let counts = ["0\n", "0-7\n", "0-3,8-11\n", "0,2", "", "none"].map(count);
        assert_eq!(counts, [Some(1), Some(8), Some(12), Some(3), None, None]);
    }

    #[test]
    fn large_requests_roam_and_small_ones_come_back() {
        let cpu = (0..CpuSet::MAX_CPU).find(|c| sched_getaffinity(None).unwrap().is_set(*c)).unwrap();
        let all = sched_getaffinity(None).unwrap();
        let mut place = Place::new(cpu);
        let now = || sched_getaffinity(None).unwrap();
        assert!(now() == place.here);
        place.choose(Place::LARGE);
        assert!(now() == all);
        for _ in 1..Place::BACK {
            place.choose(0);
            assert!(now() == all);
        }
        place.choose(0);
        assert!(now() == place.here);
        sched_setaffinity(None, &all).unwrap();
    }
}
