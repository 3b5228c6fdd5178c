//! The mix of pgioperf: a database's reads, its checkpointer, and its log.
//!
//! Many threads read random blocks of one huge file. One writes random blocks of it and makes them durable
//! each so many. One writes small pieces of a log from front to back and fsyncs after each few. Operations,
//! named as its output has them: `read`, `write` (of the huge file), `commit` (a piece of the log until it
//! is durable), and `checkpoint`, the fsync of the huge file.

use super::{interval_ms, lay_out, millis};
use crate::error::{Error, Result};
use crate::record::Recorder;
use crate::result::RunResult;
use crate::target::{OpenHow, Target};
use crate::workers::{Shared, Workers};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tidegate_block::IoContext;
use tidegate_rt::rng::Rng;
use tidegate_rt::{clock, sim, thread};

/// The workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PgIoPerf {
    /// Threads that read.
    pub readers: u64,
    /// Bytes of the huge file.
    pub file_size: u64,
    /// Bytes of a block of it.
    pub block: u64,
    /// Blocks that the writer writes before it fsyncs; 0 for never.
    pub writes_per_fsync: u64,
    /// The writer waits so long after each block, in microseconds.
    pub write_pause_us: u64,
    /// Bytes of the log, which is then written over from its beginning.
    pub log_size: u64,
    /// Bytes of a piece of the log.
    pub log_block: u64,
    /// Pieces before the log is fsynced.
    pub log_writes_per_fsync: u64,
    /// The log's writer waits so long after each fsync, in microseconds.
    pub log_pause_us: u64,
    /// How long it all runs, in milliseconds.
    pub duration_ms: u64,
    /// Operations of all threads after which it ends before that; 0 for none. Left out, it is 200,000 in simulated
    /// time, which a fast device reaches in less than a second of it and the simulator in less than a minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operations: Option<u64>,
    /// Decides which blocks are read and written.
    pub seed: u64,
    /// Length of an interval of the series, in milliseconds.
    pub interval_ms: u64,
}

impl Default for PgIoPerf {
    fn default() -> Self {
        PgIoPerf {
            readers: 16,
            file_size: 256 << 20,
            block: 8192,
            writes_per_fsync: 4096,
            write_pause_us: 0,
            log_size: 16 << 20,
            log_block: 8192,
            log_writes_per_fsync: 1,
            log_pause_us: 0,
            duration_ms: 10_000,
            operations: None,
            seed: 1,
            interval_ms: interval_ms(),
        }
    }
}

/// The most operations in simulated time, unless told.
const SIMULATED: u64 = 200_000;

/// Counts operations, and stops the run after the last of them.
#[derive(Clone)]
struct Budget {
    done: Arc<AtomicU64>,
    most: u64,
}

impl Budget {
    fn spend(&self, s: &Shared) {
        if self.most > 0 && self.done.fetch_add(1, Relaxed) + 1 == self.most {
            s.stop();
        }
    }

    /// What there is to say of it.
    fn note(&self, took: Duration, whole: Duration) -> Option<String> {
        (self.most > 0 && self.done.load(Relaxed) >= self.most).then(|| {
            format!(
                "pgioperf ended after {} operations, at {:.3} s of {:.3} s: \"operations\" sets how many, 0 for no bound",
                self.most,
                took.as_secs_f64(),
                whole.as_secs_f64()
            )
        })
    }
}

const HUGE: &str = "/pgioperf/data";
const LOG: &str = "/pgioperf/log";

impl PgIoPerf {
    /// Runs it.
    ///
    /// # Errors
    /// See [`super::run`].
    pub fn run(&self, target: &Arc<dyn Target>) -> Result<RunResult> {
        let blocks = self.file_size.checked_div(self.block).unwrap_or(0);
        let pieces = self.log_size.checked_div(self.log_block).unwrap_or(0);
        if blocks == 0 || pieces == 0 || self.log_writes_per_fsync == 0 {
            return Err(Error::spec(
                "pgioperf: a file and a log of at least one block, written at least once",
            ));
        }
        target.mkdir("/pgioperf")?;
        lay_out(&**target, HUGE, self.file_size, 0x5a)?;
        lay_out(&**target, LOG, self.log_size, 0)?;
        target.sync()?;
        let mut workers = Workers::new(target, self.interval_ms);
        let most = self.operations.unwrap_or(if sim::active() { SIMULATED } else { 0 });
        let budget = Budget { done: Arc::default(), most };
        for n in 0..self.readers {
            let (mix, b) = (self.clone(), budget.clone());
            workers.beside(format!("reader-{n}"), IoContext::default(), move |s| mix.read(s, n, blocks, &b));
        }
        let (mix, b) = (self.clone(), budget.clone());
        workers.beside("writer".into(), IoContext::default(), move |s| mix.write(s, blocks, &b));
        let (mix, b) = (self.clone(), budget.clone());
        workers.beside("log".into(), IoContext::default(), move |s| mix.log(s, pieces, &b));
        let whole = millis(self.duration_ms);
        workers.worker("timer".into(), IoContext::default(), move |s| {
            s.sleep(whole);
            Ok(s.recorder())
        });
        let mut result = workers.run("pgioperf", |_, _| Ok(()))?;
        result.notes.extend(budget.note(Duration::from_nanos(result.elapsed_ns), whole));
        Ok(result)
    }

    fn read(&self, s: &Shared, n: u64, blocks: u64, budget: &Budget) -> Result<Recorder> {
        let (mut r, mut rng) = (s.recorder(), Rng::new(self.seed).fork(n + 2));
        let file = s.target.open(HUGE, OpenHow::default())?;
        let mut buf = vec![0; self.block as usize];
        while !s.stopped() {
            let at = rng.below(blocks) * self.block;
            r.time("read", self.block, || file.read_at(at, &mut buf))?;
            budget.spend(s);
        }
        Ok(r)
    }

    fn write(&self, s: &Shared, blocks: u64, budget: &Budget) -> Result<Recorder> {
        let (mut r, mut rng) = (s.recorder(), Rng::new(self.seed).fork(0));
        let file = s.target.open(HUGE, OpenHow::default())?;
        let mut buf = vec![0; self.block as usize];
        let mut written = 0u64;
        while !s.stopped() {
            rng.fill(&mut buf);
            let at = rng.below(blocks) * self.block;
            r.time("write", self.block, || file.write_at(at, &buf))?;
            budget.spend(s);
            written += 1;
            if self.writes_per_fsync > 0 && written.is_multiple_of(self.writes_per_fsync) {
                let begin = clock::now();
                r.time("checkpoint", 0, || file.fsync(false))?;
                r.event("checkpoint", begin, &[("blocks", self.writes_per_fsync)]);
            }
            pause(self.write_pause_us);
        }
        Ok(r)
    }

    fn log(&self, s: &Shared, pieces: u64, budget: &Budget) -> Result<Recorder> {
        let (mut r, mut rng) = (s.recorder(), Rng::new(self.seed).fork(1));
        let file = s.target.open(LOG, OpenHow::default())?;
        let mut buf = vec![0; self.log_block as usize];
        let mut n = 0;
        while !s.stopped() {
            rng.fill(&mut buf);
            let bytes = self.log_block * self.log_writes_per_fsync;
            r.time("commit", bytes, || {
                for _ in 0..self.log_writes_per_fsync {
                    file.write_at(n % pieces * self.log_block, &buf)?;
                    n += 1;
                }
                file.fsync(true)
            })?;
            budget.spend(s);
            pause(self.log_pause_us);
        }
        Ok(r)
    }
}

fn pause(us: u64) {
    if us > 0 {
        thread::sleep(Duration::from_micros(us));
    }
}
