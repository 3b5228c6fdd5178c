//! The threads of a run, and the measurements of the run.

use crate::commit_log::CommitLog;
use crate::cpu::CpuTime;
use crate::error::{Error, Result};
use crate::record::Recorder;
use crate::result::{Event, RunResult};
use crate::target::{Counts, Target};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;
use tidegate_block::IoContext;
use tidegate_rt::{Condvar, LockClass, Mutex, Nanos, WaitQueue, clock, lockstat, thread};

static SAMPLER: LockClass = LockClass::new("lab->sampler", 10);

/// The state that the threads of a run share.
#[derive(Clone)]
pub struct Shared {
    /// The target that they work on.
    pub target: Arc<dyn Target>,
    /// Start of the measured part.
    pub start: Nanos,
    interval_ns: u64,
    stop: Arc<AtomicBool>,
    meeting: Arc<Meeting>,
}

/// The barrier at which threads wait for each other.
#[derive(Default)]
struct Meeting {
    arrived: AtomicU64,
    queue: WaitQueue,
}

impl Shared {
    /// A recorder for one thread.
    pub fn recorder(&self) -> Recorder {
        Recorder::new(self.start, self.interval_ns)
    }

    /// Whether the thread must end: threads without an end of their own when the others have ended, all
    /// threads after an error.
    pub fn stopped(&self) -> bool {
        self.stop.load(SeqCst)
    }

    /// Tells threads without an end of their own to end.
    pub fn stop(&self) {
        self.stop.store(true, SeqCst);
        self.meeting.queue.wake_all();
    }

    /// Waits until `n` threads are here, or until the end. All of them call this equally often.
    pub fn barrier(&self, n: u64) {
        let m = &self.meeting;
        let turn = (m.arrived.fetch_add(1, SeqCst) / n + 1) * n;
        m.queue.wake_all();
        m.queue.wait_until(|| m.arrived.load(SeqCst) >= turn || self.stopped());
    }

    /// Time since the measured part began.
    pub fn elapsed(&self) -> Duration {
        clock::now().since(self.start).duration()
    }

    /// Sleeps for `d`, or until the end.
    pub fn sleep(&self, d: Duration) {
        self.meeting.queue.wait_timeout(d, || self.stopped());
    }
}

type Body = Box<dyn FnOnce(&Shared) -> Result<Recorder> + Send>;
type Handle = thread::JoinHandle<Result<Recorder>>;

/// A run that is prepared, then runs, then ends.
pub struct Workers {
    shared: Shared,
    /// The threads whose end is the run's end.
    workers: Vec<(String, IoContext, Body)>,
    /// Threads that work until the others have ended.
    beside: Vec<(String, IoContext, Body)>,
}

impl Workers {
    /// A run without threads, on `target`; throughput is kept for intervals of `interval_ms`.
    pub fn new(target: &Arc<dyn Target>, interval_ms: u64) -> Self {
        let shared = Shared {
            target: target.clone(),
            start: Nanos(0),
            interval_ns: interval_ms.max(1) * 1_000_000,
            stop: Arc::default(),
            meeting: Arc::default(),
        };
        Workers { shared, workers: Vec::new(), beside: Vec::new() }
    }

    /// Adds a thread; the run waits for its end.
    pub fn worker(
        &mut self,
        name: String,
        ctx: IoContext,
        body: impl FnOnce(&Shared) -> Result<Recorder> + Send + 'static,
    ) {
        self.workers.push((name, ctx, Box::new(body)));
    }

    /// Adds a thread that works until the workers have ended.
    pub fn beside(
        &mut self,
        name: String,
        ctx: IoContext,
        body: impl FnOnce(&Shared) -> Result<Recorder> + Send + 'static,
    ) {
        self.beside.push((name, ctx, Box::new(body)));
    }

    /// Starts all threads, waits for them, then runs `finish` as part of the run.
    ///
    /// # Errors
    /// The first error of a thread, in the order in which they were added; all threads are waited for.
    pub fn run(
        mut self,
        workload: &str,
        finish: impl FnOnce(&Shared, &mut Recorder) -> Result<()>,
    ) -> Result<RunResult> {
        let target = self.shared.target.clone();
        if lockstat::enabled() {
            lockstat::reset();
        }
        let (before, cpu) = (target.counts(), CpuTime::of_all());
        self.shared.start = clock::now();
        let sampler = Sampler::start(&self.shared, before.clone())?;
        let mut all = self.shared.recorder();
        let workers = begin_all(&self.shared, self.workers);
        let beside = begin_all(&self.shared, self.beside);
        let worked: Vec<_> = workers.into_iter().map(end).collect();
        let finished = finish(&self.shared, &mut all);
        let elapsed_ns = clock::now().since(self.shared.start).0;
        let cpu = CpuTime::of_all().zip(cpu).map(|(now, before)| now.since(before));
        self.shared.stop();
        let besides: Vec<_> = beside.into_iter().map(end).collect();
        let (counters, runs) = sampler.stop();
        for r in worked.into_iter().chain(besides) {
            all.merge(r?);
        }
        finished?;
        let notes = runs.note().into_iter().collect();
        runs.record(&mut all);
        let (ops, mut series, mut events) = all.report();
        events.extend(commits(&counters, series.interval_ns));
        events.sort();
        series.counters = counters;
        Ok(RunResult {
            workload: workload.to_string(),
            target: target.describe(),
            elapsed_ns,
            cpu,
            ops,
            series,
            events,
            counters: grown(&before, &target.counts()),
            commits: target.commits(),
            locks: target.locks(),
            notes,
        })
    }
}

/// Starts all threads. If one cannot be started, the others end and do not wait for it.
fn begin_all(shared: &Shared, all: Vec<(String, IoContext, Body)>) -> Vec<Result<Handle>> {
    let mut begun = Vec::with_capacity(all.len());
    for one in all {
        if shared.stopped() {
            break;
        }
        let thread = begin(shared, one);
        if thread.is_err() {
            shared.stop();
        }
        begun.push(thread);
    }
    begun
}

fn begin(shared: &Shared, (name, ctx, body): (String, IoContext, Body)) -> Result<Handle> {
    let shared = shared.clone();
    let run = move || {
        shared.target.enter_group(ctx.group);
        let _io = ctx.enter();
        let r = body(&shared);
        if r.is_err() {
            shared.stop();
        }
        r
    };
    thread::spawn(&name, run).map_err(Error::Thread)
}

fn end(thread: Result<Handle>) -> Result<Recorder> {
    thread?.join()
}

/// The growth of each counter that grew.
pub fn grown(before: &Counts, after: &Counts) -> Counts {
    let grew = |(k, v): (&String, &u64)| {
        let by = v.saturating_sub(before.get(k).copied().unwrap_or(0));
        (by > 0).then(|| (k.clone(), by))
    };
    after.iter().filter_map(grew).collect()
}

/// The intervals in which the file system made commits.
fn commits(counters: &BTreeMap<String, Vec<u64>>, interval_ns: u64) -> Vec<Event> {
    let samples = counters.get("fs.commits").map_or(&[][..], |v| v);
    let event = |(i, n): (usize, &u64)| {
        let values = BTreeMap::from([("count".to_string(), *n)]);
        let (at_ns, name) = (i as u64 * interval_ns, "fs_commits".to_string());
        (*n > 0).then_some(Event { at_ns, took_ns: interval_ns, name, values })
    };
    samples.iter().enumerate().filter_map(event).collect()
}

/// Reads the target's counters at the end of every interval.
struct Sampler {
    over: Arc<(Mutex<bool>, Condvar)>,
    thread: thread::JoinHandle<(Vec<Counts>, CommitLog)>,
}

impl Sampler {
    fn start(shared: &Shared, mut before: Counts) -> Result<Self> {
        let over = Arc::new((Mutex::new(&SAMPLER, false), Condvar::new()));
        let (of_thread, shared) = (over.clone(), shared.clone());
        let mut runs = CommitLog::new(&*shared.target);
        let run = move || {
            let mut samples = Vec::new();
            loop {
                let next = (samples.len() as u64 + 1) * shared.interval_ns;
                let ended = wait(&of_thread, &shared, Duration::from_nanos(next));
                let now = shared.target.counts();
                samples.push(grown(&before, &now));
                before = now;
                runs.look(&*shared.target);
                if ended {
                    return (samples, runs);
                }
            }
        };
        let thread = thread::spawn("lab-sampler", run).map_err(Error::Thread)?;
        Ok(Sampler { over, thread })
    }

    /// The growth of each counter in each interval, and the commits.
    fn stop(self) -> (BTreeMap<String, Vec<u64>>, CommitLog) {
        *self.over.0.lock() = true;
        self.over.1.notify_all();
        let (samples, runs) = self.thread.join();
        let mut series: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        for (i, sample) in samples.iter().enumerate() {
            for (name, by) in sample {
                series.entry(name.clone()).or_insert_with(|| vec![0; samples.len()])[i] = *by;
            }
        }
        (series, runs)
    }
}

/// Waits until `at` after the start; true if the run ended before.
fn wait(over: &(Mutex<bool>, Condvar), shared: &Shared, at: Duration) -> bool {
    let mut ended = over.0.lock();
    while !*ended {
        let left = at.saturating_sub(shared.elapsed());
        if left.is_zero() {
            return false;
        }
        over.1.wait_for(&mut ended, left);
    }
    true
}
