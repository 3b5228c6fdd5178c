//! Runs of jobs: files are laid out, there is one thread for each of a job's `numjobs`, and stonewalls divide
//! the jobs into waves.

use super::job::Job;
use super::offsets::Offsets;
use super::parse::JobFile;
use crate::error::Result;
use crate::record::Recorder;
use crate::result::{OpStats, RunResult};
use crate::target::{OpenHow, Target, TargetFile};
use crate::workers::{Shared, Workers};
use crate::workload::lay_out;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tidegate_block::IoContext;
use tidegate_rt::rng::Rng;
use tidegate_rt::{LockClass, Mutex, clock, thread};

static ENDED: LockClass = LockClass::new("lab->jobs", 11);
/// An alignment that O_DIRECT accepts everywhere.
const ALIGN: usize = 4096;
const INTERVAL_MS: u64 = 100;

/// The result of one thread of a job, or of a group with `group_reporting`.
#[derive(Clone, Debug, Default)]
pub struct JobOutcome {
    /// The job's name; for a group, the first job's.
    pub name: String,
    /// Its group: the jobs between two stonewalls.
    pub group: usize,
    /// The section's options.
    pub options: BTreeMap<String, String>,
    /// Reads.
    pub read: OpStats,
    /// Writes.
    pub write: OpStats,
    /// fsync and fdatasync.
    pub sync: OpStats,
    /// From its start to its end, in nanoseconds; for a group, the longest.
    pub runtime_ns: u64,
}

/// The result of a job file.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The options of `[global]`.
    pub global: BTreeMap<String, String>,
    /// Each thread, or each group.
    pub jobs: Vec<JobOutcome>,
    /// All other measurements, for each wave.
    pub waves: Vec<RunResult>,
    /// Deviations from the request, with reasons.
    pub notes: Vec<String>,
}

type Ended = Arc<Mutex<BTreeMap<usize, (Recorder, u64)>>>;

/// Runs the jobs of a file: those before a stonewall at once, later ones when those have ended.
///
/// # Errors
/// The first one of the target.
pub fn run(file: &JobFile, target: &Arc<dyn Target>) -> Result<Outcome> {
    let mut outcome =
        Outcome { global: file.global.clone(), notes: file.notes.clone(), ..Outcome::default() };
    if !target.can_go_direct() && file.jobs.iter().any(|j| j.direct) {
        let note = "direct=1 is not done on a volume that Tidegate opens: all goes through its page cache";
        outcome.notes.push(note.into());
    }
    let mut waves: Vec<Vec<&Job>> = Vec::new();
    for job in &file.jobs {
        match waves.last_mut() {
            Some(wave) if !job.stonewall => wave.push(job),
            _ => waves.push(vec![job]),
        }
    }
    for (group, wave) in waves.iter().enumerate() {
        for job in wave {
            prepare(job, &**target)?;
        }
        target.sync()?;
        run_wave(group, wave, target, &mut outcome)?;
    }
    Ok(outcome)
}

/// Makes the directory of a job, and the files that it reads.
fn prepare(job: &Job, target: &dyn Target) -> Result<()> {
    if !job.directory.trim_matches('/').is_empty() {
        target.mkdir(&format!("/{}", job.directory.trim_matches('/')))?;
    }
    if job.pattern.reads {
        for n in 0..job.numjobs {
            job.paths(n).iter().try_for_each(|p| lay_out(target, p, job.file_bytes(), 0x5a))?;
        }
    }
    Ok(())
}

fn run_wave(group: usize, wave: &[&Job], target: &Arc<dyn Target>, outcome: &mut Outcome) -> Result<()> {
    let ended: Ended = Arc::new(Mutex::new(&ENDED, BTreeMap::new()));
    let mut workers = Workers::new(target, INTERVAL_MS);
    let mut threads = Vec::new();
    for job in wave {
        for n in 0..job.numjobs {
            let index = threads.len();
            threads.push(*job);
            let (worker, ended) = (Worker { job: (*job).clone(), n, index }, ended.clone());
            workers.worker(format!("{}-{n}", job.name), IoContext::default(), move |s| {
                let begin = clock::now();
                let r = worker.run(s)?;
                let ns = clock::now().since(begin).0;
                ended.lock().insert(index, (r.clone(), ns));
                Ok(r)
            });
        }
    }
    outcome.waves.push(workers.run("fio", |_, _| Ok(()))?);
    let mut grouped: Option<(&Job, Recorder, u64)> = None;
    let ended = std::mem::take(&mut *ended.lock());
    for (index, (r, ns)) in ended {
        let job = threads[index];
        match &mut grouped {
            Some((_, all, longest)) if job.group_reporting => {
                all.merge(r);
                *longest = (*longest).max(ns);
            }
            _ => {
                outcome.jobs.extend(grouped.take().map(|g| one(group, g)));
                grouped = Some((job, r, ns));
            }
        }
    }
    outcome.jobs.extend(grouped.map(|g| one(group, g)));
    Ok(())
}

fn one(group: usize, (job, r, runtime_ns): (&Job, Recorder, u64)) -> JobOutcome {
    let (mut ops, ..) = r.report();
    let mut of = |name| ops.remove(name).unwrap_or_default();
    let (read, write, sync) = (of("read"), of("write"), of("sync"));
    let (name, options) = (job.name.clone(), job.options.clone());
    JobOutcome { name, group, options, read, write, sync, runtime_ns }
}

/// One thread of a job.
struct Worker {
    job: Job,
    n: u64,
    index: usize,
}

/// A file of a worker, and its next blocks to read and to write.
struct Open {
    file: Box<dyn TargetFile>,
    next: [Offsets; 2],
}

impl Worker {
    fn run(&self, s: &Shared) -> Result<Recorder> {
        let (job, mut r) = (&self.job, s.recorder());
        let mut rng = Rng::new(job.seed).fork(self.index as u64);
        let mut files = self.open(s, &mut rng)?;
        let mut memory = Memory::new(job.bs[0].max(job.bs[1]) as usize, &mut rng);
        let begin = clock::now();
        let (mut moved, mut count, mut turn) = (0, [0u64; 2], 0);
        loop {
            let over = job.runtime.is_some_and(|t| clock::now().since(begin).duration() >= t);
            if over || s.stopped() || (!job.time_based && moved >= job.total()) {
                break;
            }
            let write = match (job.pattern.reads, job.pattern.writes) {
                (true, true) => rng.below(100) >= job.mix_read,
                (_, writes) => writes,
            };
            let way = write as usize;
            self.pace(begin, way, count[way]);
            let file = &mut files[turn];
            turn = (turn + 1) % job.files() as usize;
            let len = job.bs[way];
            let at = file.next[way].next() * len;
            let data = memory.part(len as usize);
            match write {
                true => r.time("write", len, || file.file.write_at(at, data))?,
                false => r.time("read", len, || file.file.read_at(at, data).map(drop))?,
            }
            moved += len;
            count[way] += 1;
            if write {
                self.make_durable(&mut r, &files, turn, count[1])?;
            }
            if !job.thinktime.is_zero() {
                thread::sleep(job.thinktime);
            }
        }
        if job.end_fsync && job.pattern.writes {
            files.iter().try_for_each(|f| r.time("sync", 0, || f.file.fsync(false)))?;
        }
        Ok(r)
    }

    fn open(&self, s: &Shared, rng: &mut Rng) -> Result<Vec<Open>> {
        let job = &self.job;
        let how = OpenHow { create: true, truncate: false, direct: job.direct };
        let open = |path: &String| {
            let file = s.target.open(path, how)?;
            let next = job.bs.map(|bs| {
                let seed = rng.bits();
                Offsets::new(job.file_bytes(), bs, job.pattern.random, Rng::new(seed))
            });
            Ok(Open { file, next })
        };
        job.paths(self.n).iter().map(open).collect()
    }

    /// Waits until the job's rate allows the next operation.
    fn pace(&self, begin: tidegate_rt::Nanos, way: usize, done: u64) {
        let rate = self.job.rate_iops[way];
        if rate > 0 {
            let due = Duration::from_nanos((u128::from(done) * 1_000_000_000 / u128::from(rate)) as u64);
            let left = due.saturating_sub(clock::now().since(begin).duration());
            if !left.is_zero() {
                thread::sleep(left);
            }
        }
    }

    /// Does the fsync that is due after a number of writes, on the file that was written.
    fn make_durable(&self, r: &mut Recorder, files: &[Open], turn: usize, writes: u64) -> Result<()> {
        let written = (turn + files.len() - 1) % files.len();
        for (every, datasync) in [(self.job.fsync, false), (self.job.fdatasync, true)] {
            if every > 0 && writes.is_multiple_of(every) {
                r.time("sync", 0, || files[written].file.fsync(datasync))?;
            }
        }
        Ok(())
    }
}

/// Memory that O_DIRECT accepts.
struct Memory {
    bytes: Vec<u8>,
    first: usize,
}

impl Memory {
    fn new(len: usize, rng: &mut Rng) -> Self {
        let mut bytes = vec![0; len + ALIGN];
        let first = bytes.as_ptr().align_offset(ALIGN);
        rng.fill(&mut bytes[first..first + len]);
        Memory { bytes, first }
    }

    fn part(&mut self, len: usize) -> &mut [u8] {
        &mut self.bytes[self.first..self.first + len]
    }
}
