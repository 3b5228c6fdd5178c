//! pgioperf, as in mmtests: a database's reads, its checkpointer, and its log.
//!
//! Many threads read blocks at random offsets of one huge file. One thread writes blocks at random offsets of
//! it, and makes them durable after each `writes_per_fsync` blocks. Offsets are bytes, not multiples of a
//! block: a write changes parts of pages, which are read first. One thread writes a log from front to back,
//! and calls fdatasync once in each `log_writes_per_fsync` pieces. Both files were written and made durable
//! before, and are not in memory. Operations: `read`, `write` (of the huge file), `checkpoint`, the fsync of
//! the huge file, `wal`, the write of a piece of the log, `fdatasync` of the log, and `commit`, as the
//! program counts it: fdatasync together with the piece before it. The file system's own commits are
//! [`JBD2_COMMIT`](crate::commit_log::JBD2_COMMIT).
//!
//! The program has 48 GiB of data, twice the memory of its author's machine, 1 GiB of log, and 100,000 writes
//! before an fsync. The defaults have a 96th of each, for 256 MiB of memory. `unaligned = false`, no pauses,
//! and an fsync after each piece of the log make a mix with less of everything between I/O.

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
    /// Blocks begin at any byte; otherwise at multiples of their size.
    pub unaligned: bool,
    /// The files are not in memory at the start.
    pub cold: bool,
    /// Number of blocks that the writer writes before it fsyncs; 0 for never.
    pub writes_per_fsync: u64,
    /// Pause of the writer after each block, in microseconds.
    pub write_pause_us: u64,
    /// Bytes of the log, which is then overwritten from its start.
    pub log_size: u64,
    /// Bytes of a piece of the log.
    pub log_block: u64,
    /// Of this many pieces, the first is followed by fdatasync.
    pub log_writes_per_fsync: u64,
    /// Pause of the log's writer after each piece, in microseconds.
    pub log_pause_us: u64,
    /// Duration of the run, in milliseconds.
    pub duration_ms: u64,
    /// Operations of all threads after which the run ends earlier; 0 for no limit. The default is 200,000 in
    /// simulated time, which a fast device reaches in less than a second of that time and the simulator in
    /// less than a minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operations: Option<u64>,
    /// Seed of the offsets; by default the run's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Length of an interval of the series, in milliseconds.
    pub interval_ms: u64,
}

impl Default for PgIoPerf {
    fn default() -> Self {
        PgIoPerf {
            readers: 16,
            file_size: DATA / SCALE,
            block: BLOCK,
            unaligned: true,
            cold: true,
            writes_per_fsync: WRITES_PER_FSYNC / SCALE,
            write_pause_us: 200,
            log_size: WAL / SCALE / BLOCK * BLOCK,
            log_block: BLOCK,
            log_writes_per_fsync: 5,
            log_pause_us: 1000,
            duration_ms: 10_000,
            operations: None,
            seed: None,
            interval_ms: interval_ms(),
        }
    }
}

/// Bytes that the program reads and writes at once.
const BLOCK: u64 = 8192;
/// Bytes of its data, twice the memory of its author's machine, and of its log.
const DATA: u64 = 48 << 30;
const WAL: u64 = 1 << 30;
/// Number of blocks that it writes before it fsyncs.
const WRITES_PER_FSYNC: u64 = 100_000;
/// The fraction of all these for which a volume in memory has room.
const SCALE: u64 = 96;

/// Default limit of operations in simulated time.
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

    /// The note for the report.
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
    /// As [`super::run`].
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
        let cold = !self.cold || (target.drop_pages(HUGE)? && target.drop_pages(LOG)?);
        let mut workers = Workers::new(target, self.interval_ms);
        let most = self.operations.unwrap_or(if sim::active() { SIMULATED } else { 0 });
        let budget = Budget { done: Arc::default(), most };
        for n in 0..self.readers {
            let (mix, b) = (self.clone(), budget.clone());
            workers.beside(format!("reader-{n}"), IoContext::default(), move |s| mix.read(s, n, &b));
        }
        let (mix, b) = (self.clone(), budget.clone());
        workers.beside("writer".into(), IoContext::default(), move |s| mix.write(s, &b));
        let (mix, b) = (self.clone(), budget.clone());
        workers.beside("log".into(), IoContext::default(), move |s| mix.log(s, pieces, &b));
        let whole = millis(self.duration_ms);
        workers.worker("timer".into(), IoContext::default(), move |s| {
            s.sleep(whole);
            Ok(s.recorder())
        });
        let mut result = workers.run("pgioperf", |_, _| Ok(()))?;
        if !cold {
            result.notes.push("pages of the files stay in memory here: it began with warm caches".into());
        }
        result.notes.extend(budget.note(Duration::from_nanos(result.elapsed_ns), whole));
        Ok(result)
    }

    /// The next offset of a block in the huge file.
    fn place(&self, rng: &mut Rng) -> u64 {
        match self.unaligned {
            true => rng.below(self.file_size - self.block + 1),
            false => rng.below(self.file_size / self.block) * self.block,
        }
    }

    fn read(&self, s: &Shared, n: u64, budget: &Budget) -> Result<Recorder> {
        let (mut r, mut rng) = (s.recorder(), Rng::new(self.seed.unwrap_or(1)).fork(n + 2));
        let file = s.target.open(HUGE, OpenHow::default())?;
        let mut buf = vec![0; self.block as usize];
        while !s.stopped() {
            let at = self.place(&mut rng);
            r.time("read", self.block, || file.read_at(at, &mut buf))?;
            budget.spend(s);
        }
        Ok(r)
    }

    fn write(&self, s: &Shared, budget: &Budget) -> Result<Recorder> {
        let (mut r, mut rng) = (s.recorder(), Rng::new(self.seed.unwrap_or(1)).fork(0));
        let file = s.target.open(HUGE, OpenHow::default())?;
        let mut buf = vec![0; self.block as usize];
        let mut written = 0u64;
        while !s.stopped() {
            rng.fill(&mut buf);
            let at = self.place(&mut rng);
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
        let (mut r, mut rng) = (s.recorder(), Rng::new(self.seed.unwrap_or(1)).fork(1));
        let file = s.target.open(LOG, OpenHow::default())?;
        let mut buf = vec![0; self.log_block as usize];
        let mut n = 0;
        while !s.stopped() {
            rng.fill(&mut buf);
            let begin = clock::now();
            r.time("wal", self.log_block, || file.write_at(n % pieces * self.log_block, &buf))?;
            if n.is_multiple_of(self.log_writes_per_fsync) {
                r.time("fdatasync", 0, || file.fsync(true))?;
                r.add("commit", self.log_block, begin, clock::now());
            }
            n += 1;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::TargetFile;
    use tidegate_rt::{LockClass, Mutex, Nanos};

    static CALLS: LockClass = LockClass::new("test->calls", 11);

    /// One call: the operation, the file, the offset, the number of bytes, and the time.
    type Call = (&'static str, &'static str, u64, usize, Nanos);

    /// Files that take everything at once, and record their calls.
    #[derive(Clone)]
    struct Watched(Arc<Mutex<Vec<Call>>>, &'static str);

    impl Watched {
        fn add(&self, what: &'static str, at: u64, len: usize) {
            self.0.lock().push((self.1, what, at, len, clock::now()));
            // The pause stands for the device's time.
            thread::sleep(Duration::from_micros(100));
        }
    }

    impl Target for Watched {
        fn describe(&self) -> String {
            "watched".into()
        }
        fn mkdir(&self, _: &str) -> Result<()> {
            Ok(())
        }
        fn open(&self, path: &str, _: OpenHow) -> Result<Box<dyn TargetFile>> {
            Ok(Box::new(Watched(self.0.clone(), if path == LOG { LOG } else { HUGE })))
        }
        fn open_dir(&self, path: &str) -> Result<Box<dyn TargetFile>> {
            self.open(path, OpenHow::default())
        }
        fn touch(&self, _: &str) -> Result<()> {
            Ok(())
        }
        fn unlink(&self, _: &str) -> Result<()> {
            Ok(())
        }
        fn exists(&self, _: &str) -> Result<bool> {
            Ok(true)
        }
        fn remove_tree(&self, _: &str) -> Result<()> {
            Ok(())
        }
        fn sync(&self) -> Result<()> {
            self.0.lock().clear();
            Ok(())
        }
    }

    impl TargetFile for Watched {
        fn size(&self) -> Result<u64> {
            Ok(0)
        }
        fn write_at(&self, pos: u64, data: &[u8]) -> Result<()> {
            self.add("write", pos, data.len());
            Ok(())
        }
        fn read_at(&self, pos: u64, to: &mut [u8]) -> Result<usize> {
            self.add("read", pos, to.len());
            Ok(to.len())
        }
        fn fsync(&self, datasync: bool) -> Result<()> {
            self.add(if datasync { "fdatasync" } else { "fsync" }, 0, 0);
            Ok(())
        }
        fn truncate(&self, _: u64) -> Result<()> {
            Ok(())
        }
    }

    /// The calls of a mix in 200 ms, after its files are made.
    fn calls(mix: PgIoPerf) -> (Vec<Call>, RunResult) {
        sim::run(1, 4, move || {
            let watched = Watched(Arc::new(Mutex::new(&CALLS, Vec::new())), "");
            let target: Arc<dyn Target> = Arc::new(watched.clone());
            let result = PgIoPerf { duration_ms: 200, ..mix }.run(&target).unwrap();
            let calls = watched.0.lock().clone();
            (calls, result)
        })
    }

    fn of<'a>(calls: &'a [Call], file: &'a str, what: &'a str) -> impl Iterator<Item = &'a Call> {
        calls.iter().filter(move |c| c.0 == file && c.1 == what)
    }

    #[test]
    fn it_does_what_the_program_does() {
        println!("seed 1");
        let small = PgIoPerf { readers: 3, file_size: 1 << 20, writes_per_fsync: 50, ..PgIoPerf::default() };
        let (calls, result) = calls(small);
        // The log: from front to back, 1 ms after each piece, fdatasync after the first of five.
        let wal: Vec<&Call> = calls.iter().filter(|c| c.0 == LOG).collect();
        let pieces: Vec<&&Call> = wal.iter().filter(|c| c.1 == "write").collect();
        assert!(pieces.len() > 100, "{}", pieces.len());
        assert!(pieces.iter().enumerate().all(|(i, c)| (c.2, c.3) == (i as u64 * 8192, 8192)));
        assert!(pieces.windows(2).all(|w| w[1].4.since(w[0].4) >= Nanos(1_000_000)));
        let synced: Vec<bool> =
            wal.windows(2).filter(|w| w[0].1 == "write").map(|w| w[1].1 == "fdatasync").collect();
        assert!(synced.iter().enumerate().all(|(i, s)| *s == (i % 5 == 0)), "{synced:?}");
        // The huge file: any byte, 200 microseconds after each write, an fsync after each fifty.
        let writes: Vec<&Call> = of(&calls, HUGE, "write").collect();
        assert!(writes.windows(2).all(|w| w[1].4.since(w[0].4) >= Nanos(200_000)));
        assert_eq!(of(&calls, HUGE, "fsync").count(), writes.len() / 50);
        for what in ["read", "write"] {
            let odd = of(&calls, HUGE, what).filter(|c| !c.2.is_multiple_of(4096)).count();
            let all = of(&calls, HUGE, what).count();
            assert!(all > 100 && odd * 10 > all * 9, "{what}: {odd} of {all}");
            assert!(of(&calls, HUGE, what).all(|c| c.2 + c.3 as u64 <= 1 << 20));
        }
        let n = |op: &str| result.ops[op].latency.count;
        assert!(n("commit") == n("fdatasync") && n("wal").div_ceil(5) == n("commit"));
        assert!(result.notes[0].contains("warm caches"), "{:?}", result.notes);
    }

    #[test]
    fn the_mix_without_pauses_is_a_matter_of_parameters() {
        println!("seed 1");
        let old = PgIoPerf {
            readers: 1,
            file_size: 1 << 20,
            log_size: 1 << 20,
            unaligned: false,
            cold: false,
            write_pause_us: 0,
            log_writes_per_fsync: 1,
            log_pause_us: 0,
            ..PgIoPerf::default()
        };
        let (calls, result) = calls(old);
        assert!(result.notes.is_empty());
        assert!(calls.iter().all(|c| c.2.is_multiple_of(8192)));
        assert_eq!(result.ops["wal"].latency.count, result.ops["commit"].latency.count);
        let wal: Vec<&Call> = of(&calls, LOG, "write").collect();
        assert!(wal.windows(2).all(|w| w[1].4.since(w[0].4) < Nanos(400_000)));
    }

    #[test]
    fn the_defaults_are_one_scale_of_the_program() {
        let d = PgIoPerf::default();
        assert_eq!((d.file_size, d.log_size, d.writes_per_fsync), (512 << 20, 1365 * 8192, 1041));
    }
}
