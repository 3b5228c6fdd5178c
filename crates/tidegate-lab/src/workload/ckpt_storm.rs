//! Checkpoints from several weighted groups: each thread touches one file and fsyncs its directory, over and
//! over, which needs a checkpoint each time. A sequential writer fills the queue beside them. Optionally
//! there are threads that read a file at random, and threads that make and remove files without making them
//! durable.
//!
//! Operations: `touch+fsync`, and for each of the first eight groups separately `touch+fsync g1` to `g8`;
//! `stream` for the writer; `read`; `create` and `unlink`. The run ends when every group with a number of
//! times has reached it.

use super::{group_ctx, interval_ms, lay_out, millis, new_file};
use crate::error::{Error, Result};
use crate::record::Recorder;
use crate::result::RunResult;
use crate::target::{OpenHow, Target};
use crate::workers::{Shared, Workers};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use tidegate_block::IoContext;
use tidegate_rt::rng::Rng;
use tidegate_rt::{clock, thread};

/// Threads that share a weight.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StormGroup {
    /// Its number, from 1.
    pub group: u32,
    /// Its share, 1 to 1000.
    pub weight: u32,
    /// Threads.
    pub threads: u64,
    /// Number of times of each thread; 0 for as often as possible until the others have ended, at least once.
    pub times: u64,
}

impl Default for StormGroup {
    fn default() -> Self {
        StormGroup { group: 1, weight: 100, threads: 1, times: 1000 }
    }
}

/// The workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CkptStorm {
    /// The groups.
    pub groups: Vec<StormGroup>,
    /// Pause after each fsync of threads with a number of times, in milliseconds.
    pub touch_pause_ms: u64,
    /// The group of the sequential writer; 0 for no writer.
    pub stream_group: u32,
    /// Bytes of its file, which is written once before and then over and over during the run.
    pub stream_size: u64,
    /// Bytes of its writes.
    pub stream_block: u64,
    /// Pause after each write, in microseconds. Without a pause, the writer goes as fast as it can.
    pub stream_pause_us: u64,
    /// Threads that read at random offsets, without a pause.
    pub readers: u64,
    /// Bytes of their file, which is not in memory at the start; they read 4 KiB at a time.
    pub read_size: u64,
    /// Threads that make a file and remove it again, each in a directory of its own.
    pub creators: u64,
    /// Pause of such a thread after each file, in microseconds.
    pub create_pause_us: u64,
    /// Seed of the readers' offsets; by default the run's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Length of an interval of the series, in milliseconds.
    pub interval_ms: u64,
}

impl Default for CkptStorm {
    /// As published with `checkpoint_merge`: 1000 times in a group of weight 100, beside a group of weight
    /// 20.
    fn default() -> Self {
        let background = StormGroup { group: 2, weight: 20, threads: 1, times: 0 };
        CkptStorm {
            groups: vec![StormGroup::default(), background],
            touch_pause_ms: 0,
            stream_group: 1,
            stream_size: 128 << 20,
            stream_block: 128 << 10,
            stream_pause_us: 0,
            readers: 0,
            read_size: 256 << 20,
            creators: 0,
            create_pause_us: 1000,
            seed: None,
            interval_ms: interval_ms(),
        }
    }
}

const OF_GROUP: [&str; 8] = [
    "touch+fsync g1",
    "touch+fsync g2",
    "touch+fsync g3",
    "touch+fsync g4",
    "touch+fsync g5",
    "touch+fsync g6",
    "touch+fsync g7",
    "touch+fsync g8",
];

const STREAM: &str = "/storm/stream";
const DATA: &str = "/storm/data";
/// Bytes of a read.
const READ: u64 = 4096;

fn dir(group: u32, thread: u64) -> String {
    format!("/storm/g{group}t{thread}")
}

impl CkptStorm {
    /// Runs it.
    ///
    /// # Errors
    /// As [`super::run`].
    pub fn run(&self, target: &Arc<dyn Target>) -> Result<RunResult> {
        if !self.groups.iter().any(|g| g.times > 0 && g.threads > 0) {
            return Err(Error::spec("ckpt_storm: no group has a number of times, so it would never end"));
        }
        if self.stream_group > 0 && (self.stream_block == 0 || self.stream_size < self.stream_block) {
            return Err(Error::spec("ckpt_storm: stream_size must be at least one stream_block"));
        }
        if self.readers > 0 && self.read_size < READ {
            return Err(Error::spec("ckpt_storm: read_size must be at least 4096"));
        }
        let mut notes = Vec::new();
        let mut workers = Workers::new(target, self.interval_ms);
        for g in &self.groups {
            if !target.set_group_weight(g.group, g.weight) {
                notes.push(format!("group {} has no weight here: put the process into a cgroup", g.group));
            }
            for t in 0..g.threads {
                target.mkdir(&dir(g.group, t))?;
                let (name, ctx, of) = (format!("storm-g{}t{t}", g.group), group_ctx(g.group), g.clone());
                let pause = millis(self.touch_pause_ms);
                let body = move |s: &Shared| touch(s, &of, t, pause);
                if g.times > 0 { workers.worker(name, ctx, body) } else { workers.beside(name, ctx, body) }
            }
        }
        notes.extend(self.others(target, &mut workers)?);
        target.sync()?;
        if self.stream_group > 0 {
            self.fill(target)?;
            let storm = self.clone();
            workers.beside("stream".into(), group_ctx(self.stream_group), move |s| storm.stream(s));
        }
        let mut result = workers.run("ckpt_storm", |_, _| Ok(()))?;
        result.notes.extend(notes);
        Ok(result)
    }

    /// Adds the threads that read and the threads that make files; returns a note for the report.
    fn others(&self, target: &Arc<dyn Target>, workers: &mut Workers) -> Result<Option<String>> {
        for n in 0..self.creators {
            target.mkdir(&creators_dir(n))?;
            let pause = Duration::from_micros(self.create_pause_us);
            workers.beside(format!("creator-{n}"), IoContext::default(), move |s| create(s, n, pause));
        }
        if self.readers == 0 {
            return Ok(None);
        }
        lay_out(&**target, DATA, self.read_size, 0x5a)?;
        target.sync()?;
        let cold = target.drop_pages(DATA)?;
        for n in 0..self.readers {
            let storm = self.clone();
            workers.beside(format!("reader-{n}"), IoContext::default(), move |s| storm.read(s, n));
        }
        Ok((!cold).then(|| "pages of the read file stay in memory here: it began with warm caches".into()))
    }

    /// Writes the stream's file once without a sync: the storm begins beside a writer that is under way.
    fn fill(&self, target: &Arc<dyn Target>) -> Result<()> {
        let _io = group_ctx(self.stream_group).enter();
        let file = new_file(&**target, STREAM)?;
        let data = vec![0x5a; self.stream_block as usize];
        (0..self.stream_size / self.stream_block)
            .try_for_each(|n| file.write_at(n * self.stream_block, &data))
    }

    fn read(&self, s: &Shared, n: u64) -> Result<Recorder> {
        let (mut r, mut rng) = (s.recorder(), Rng::new(self.seed.unwrap_or(1)).fork(n));
        let file = s.target.open(DATA, OpenHow::default())?;
        let mut buf = vec![0; READ as usize];
        loop {
            let at = rng.below(self.read_size / READ) * READ;
            r.time("read", READ, || file.read_at(at, &mut buf))?;
            if s.stopped() {
                return Ok(r);
            }
        }
    }

    fn stream(&self, s: &Shared) -> Result<Recorder> {
        let mut r = s.recorder();
        let file = s.target.open(STREAM, OpenHow::default())?;
        let data = vec![0x5a; self.stream_block as usize];
        let mut at = 0;
        // The stream writes once in any case: a storm may be over before its stream has begun.
        loop {
            r.time("stream", self.stream_block, || file.write_at(at, &data))?;
            at += self.stream_block;
            if at + self.stream_block > self.stream_size {
                at = 0;
            }
            if s.stopped() {
                return Ok(r);
            }
            if self.stream_pause_us > 0 {
                thread::sleep(Duration::from_micros(self.stream_pause_us));
            }
        }
    }
}

fn creators_dir(n: u64) -> String {
    format!("/storm/c{n}")
}

/// Makes a file and removes it, over and over, at least once.
fn create(s: &Shared, n: u64, pause: Duration) -> Result<Recorder> {
    let mut r = s.recorder();
    let file = format!("{}/file", creators_dir(n));
    loop {
        r.time("create", 0, || s.target.touch(&file))?;
        r.time("unlink", 0, || s.target.unlink(&file))?;
        if s.stopped() {
            return Ok(r);
        }
        thread::sleep(pause);
    }
}

/// Touches a file and fsyncs its directory.
fn touch(s: &Shared, g: &StormGroup, t: u64, pause: Duration) -> Result<Recorder> {
    let mut r = s.recorder();
    let dir = dir(g.group, t);
    let handle = s.target.open_dir(&dir)?;
    let file = format!("{dir}/file");
    let mut n = 0;
    while if g.times > 0 { n < g.times && !s.stopped() } else { n == 0 || !s.stopped() } {
        let begin = clock::now();
        s.target.touch(&file)?;
        handle.fsync(false)?;
        let end = clock::now();
        r.add("touch+fsync", 0, begin, end);
        if let Some(op) = OF_GROUP.get((g.group as usize).wrapping_sub(1)) {
            r.add(op, 0, begin, end);
        }
        n += 1;
        if g.times > 0 && !pause.is_zero() {
            s.sleep(pause);
        }
    }
    Ok(r)
}
