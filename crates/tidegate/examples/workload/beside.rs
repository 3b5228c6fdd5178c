//! Threads append and fsync, or read at random, while another thread writes without end.

use crate::stamp::PAGE;
use crate::target::{OpenFile, Report, Result, Target, grown, seconds_since};
use clap::{Args, ValueEnum};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tidegate_rt::{Histogram, clock, thread};

/// Bytes of one write of the stream.
const CHUNK: usize = 1 << 20;
/// The pause after each random write, as in pgioperf: readers then meet the same number of writes on every file system.
const PAUSE: Duration = Duration::from_micros(200);

/// The work of the threads.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum What {
    /// Each appends a page to its file and makes it durable, beside a stream of large writes.
    Append,
    /// Each reads pages of one file at random, beside a thread that writes pages of it at random.
    Read,
}

#[derive(Args, Clone)]
pub struct Beside {
    /// The work of the threads.
    #[arg(value_enum)]
    what: What,
    /// Threads that are measured.
    #[arg(long, default_value_t = 4)]
    threads: u64,
    /// How long.
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// Bytes of the large file: the stream begins again at its end.
    #[arg(long, default_value_t = 256 << 20)]
    size: u64,
}

const LARGE: &str = "/large";

impl Beside {
    /// Runs until the time is up.
    ///
    /// # Errors
    /// The first error of any thread.
    pub fn run(&self, target: &Arc<dyn Target>) -> Result<Report> {
        self.prepare(&**target)?;
        let (before, start) = (target.counts(), clock::now());
        let (over, done) = (Arc::new(AtomicBool::new(false)), Arc::new(Histogram::default()));
        let beside = Arc::new(AtomicU64::new(0));
        let spawn = |name: String, f: Box<dyn FnOnce() -> Result<()> + Send>| thread::spawn(&name, f);
        let writer = {
            let (job, target, over, beside) = (self.clone(), target.clone(), over.clone(), beside.clone());
            spawn("stream".into(), Box::new(move || job.write(&*target, &over, &beside)))?
        };
        let one = |t: u64| {
            let (job, target, over, done) = (self.clone(), target.clone(), over.clone(), done.clone());
            spawn(format!("beside-{t}"), Box::new(move || job.measure(&*target, t, &over, &done)))
        };
        let threads: Vec<_> = (0..self.threads).map(one).collect();
        thread::sleep(Duration::from_secs_f64(self.seconds));
        over.store(true, Relaxed);
        let seconds = seconds_since(start);
        // All threads are waited for, whatever the result of the first.
        let ends: Vec<Result<()>> = threads
            .into_iter()
            .map(|t| t.map_or_else(|e| Err(e.into()), |t| t.join()))
            .chain([writer.join()])
            .collect();
        ends.into_iter().collect::<Result<()>>()?;
        let times = done.read();
        let mut counts = grown(&before, &target.counts());
        counts.insert("p50_us", times.percentile(50.0));
        counts.insert("p99_us", times.percentile(99.0));
        counts.insert("max_us", times.max);
        counts.insert("beside_bytes", beside.load(Relaxed));
        let n = times.count;
        let fsyncs = if self.what == What::Append { n } else { 0 };
        Ok(Report { seconds, fsyncs, bytes: n * PAGE as u64, counts, ..Report::default() })
    }

    /// Allocates the blocks of the large file, and makes everything durable.
    fn prepare(&self, target: &dyn Target) -> Result<()> {
        if self.size < CHUNK as u64 {
            return Err("--size: a mebibyte at least".into());
        }
        let file = target.open(LARGE, true)?;
        let chunk = vec![1; CHUNK];
        for at in (0..self.size / CHUNK as u64).map(|n| n * CHUNK as u64) {
            file.write_at(at, &chunk)?;
        }
        file.fsync()?;
        target.sync()
    }

    /// Writes until `over`, and counts the bytes.
    fn write(&self, target: &dyn Target, over: &AtomicBool, bytes: &AtomicU64) -> Result<()> {
        let file = target.open(LARGE, false)?;
        let (len, mut random) = if self.what == What::Append { (CHUNK, None) } else { (PAGE, Some(7)) };
        let (data, places) = (vec![2; len], self.size / len as u64);
        let mut n = 0;
        while !over.load(Relaxed) {
            let at = random.as_mut().map_or(n % places, |seed| next(seed) % places);
            file.write_at(at * len as u64, &data)?;
            bytes.fetch_add(len as u64, Relaxed);
            if random.is_some() {
                thread::sleep(PAUSE);
            }
            n += 1;
        }
        Ok(())
    }

    fn measure(&self, target: &dyn Target, t: u64, over: &AtomicBool, done: &Histogram) -> Result<()> {
        let file = match self.what {
            What::Append => target.open(&format!("/log{t}"), true)?,
            What::Read => target.open(LARGE, false)?,
        };
        let (mut page, mut seed, mut n) = (vec![3; PAGE], t + 1, 0);
        while !over.load(Relaxed) {
            let start = clock::now();
            self.once(&*file, &mut page, &mut seed, n)?;
            done.record((seconds_since(start) * 1e6) as u64);
            n += 1;
        }
        Ok(())
    }

    fn once(&self, file: &dyn OpenFile, page: &mut [u8], seed: &mut u64, n: u64) -> Result<()> {
        match self.what {
            What::Append => {
                file.write_at(n * PAGE as u64, page)?;
                file.fsync()
            }
            What::Read => file.read_at(next(seed) % (self.size / PAGE as u64) * PAGE as u64, page),
        }
    }
}

/// The next of a sequence of random numbers.
fn next(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *seed >> 20
}
