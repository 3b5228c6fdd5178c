//! Threads that make files in directories of their own, in the manner of fs_mark.

use crate::stamp::{PAGE, check, stamp};
use crate::target::{Report, Result, Target, add, cpu_seconds, grown, seconds_since};
use clap::{Args, ValueEnum};
use std::sync::Arc;
use tidegate_rt::{clock, thread};

/// Bytes of one read.
const READ_CHUNK: u64 = 1 << 20;

/// When files are made durable.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Sync {
    /// Each file when it is written, by fsync.
    Each,
    /// All at the end, by one sync.
    End,
    /// Not before they are removed, or all is closed.
    Never,
}

#[derive(Args, Clone)]
pub struct Mark {
    /// Threads, each with a directory.
    #[arg(long, default_value_t = 16)]
    threads: u64,
    /// Files of each thread.
    #[arg(long, default_value_t = 100)]
    files: u64,
    /// Bytes of each file; whole pages.
    #[arg(long, default_value_t = 4096)]
    size: u64,
    /// Bytes of one write, as fs_mark's default; whole pages.
    #[arg(long, default_value_t = 16 << 10)]
    chunk: u64,
    /// Fsync a file after so many writes, too; 0: only as --sync says.
    #[arg(long, default_value_t = 0)]
    fsync_every: u64,
    /// Repetitions, each with files of its own. The last one's stay; others are removed in between, which is
    /// not measured, and all is made durable before the next.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    loops: u64,
    /// When files are made durable.
    #[arg(long, value_enum, default_value = "each")]
    sync: Sync,
    /// Open the target anew afterwards and read all files in turn.
    #[arg(long)]
    pub read_back: bool,
}

fn name(thread: u64, file: u64) -> String {
    format!("/t{thread}/f{file}")
}

impl Mark {
    pub fn run(&self, target: &Arc<dyn Target>) -> Result<Report> {
        if [self.size, self.chunk].iter().any(|n| *n == 0 || !n.is_multiple_of(PAGE as u64)) {
            return Err("--size, --chunk: whole pages of 4096 bytes are needed".into());
        }
        self.prepare(&**target)?;
        let mut sum = Report { cpu_seconds: Some(0.0), ..Report::default() };
        for n in 0..self.loops {
            if n > 0 {
                self.remove(&**target)?;
            }
            target.sync()?;
            let one = self.once(target)?;
            sum.loops.push(one.seconds);
            sum.seconds += one.seconds;
            sum.cpu_seconds = sum.cpu_seconds.zip(one.cpu_seconds).map(|(a, b)| a + b);
            sum.files += one.files;
            sum.bytes += one.bytes;
            sum.fsyncs += one.fsyncs;
            add(&mut sum.counts, &one.counts);
        }
        Ok(Report { fragments: self.fragments(&**target)?, ..sum })
    }

    /// Makes the threads' directories.
    pub fn prepare(&self, target: &dyn Target) -> Result<()> {
        (0..self.threads).try_for_each(|t| target.mkdir(&format!("/t{t}")))
    }

    /// Removes all files.
    pub fn remove(&self, target: &dyn Target) -> Result<()> {
        self.all().try_for_each(|(t, f)| target.unlink(&name(t, f)))
    }

    /// Makes all files once.
    pub fn once(&self, target: &Arc<dyn Target>) -> Result<Report> {
        let (counts, cpu) = (target.counts(), cpu_seconds());
        let seconds = self.measure(target)?;
        let files = self.threads * self.files;
        Ok(Report {
            seconds,
            cpu_seconds: Some(cpu_seconds() - cpu),
            files,
            bytes: files * self.size,
            fsyncs: files * self.fsyncs_of_a_file(),
            counts: grown(&counts, &target.counts()),
            ..Report::default()
        })
    }

    fn fsyncs_of_a_file(&self) -> u64 {
        let within = self.size.div_ceil(self.chunk).checked_div(self.fsync_every).unwrap_or(0);
        within + u64::from(self.sync == Sync::Each)
    }

    /// Makes all files once. Returns the seconds that it took.
    fn measure(&self, target: &Arc<dyn Target>) -> Result<f64> {
        let start = clock::now();
        let one = |t| {
            let (mark, target) = (self.clone(), target.clone());
            thread::spawn(&format!("mark-{t}"), move || mark.write_files(&*target, t))
        };
        let threads: Vec<_> = (0..self.threads).map(one).collect();
        // All threads are waited for, whatever the result of the first.
        let ends: Vec<Result<()>> =
            threads.into_iter().map(|t| t.map_or_else(|e| Err(e.into()), |t| t.join())).collect();
        ends.into_iter().collect::<Result<()>>()?;
        if self.sync == Sync::End {
            target.sync()?;
        }
        Ok(seconds_since(start))
    }

    fn write_files(&self, target: &dyn Target, t: u64) -> Result<()> {
        let mut chunk = vec![t as u8; self.chunk.min(self.size) as usize];
        for f in 0..self.files {
            let file = target.open(&name(t, f), true)?;
            let (mut at, mut writes) = (0, 0u64);
            while at < self.size {
                let part = &mut chunk[..self.chunk.min(self.size - at) as usize];
                for (i, page) in part.chunks_exact_mut(PAGE).enumerate() {
                    stamp(page, t << 32 | f, at + (i * PAGE) as u64);
                }
                file.write_at(at, part)?;
                at += part.len() as u64;
                writes += 1;
                if self.fsync_every > 0 && writes.is_multiple_of(self.fsync_every) {
                    file.fsync()?;
                }
            }
            if self.sync == Sync::Each {
                file.fsync()?;
            }
        }
        Ok(())
    }

    fn all(&self) -> impl Iterator<Item = (u64, u64)> {
        (0..self.threads).flat_map(|t| (0..self.files).map(move |f| (t, f)))
    }

    /// The number of pieces of all files.
    fn fragments(&self, target: &dyn Target) -> Result<Option<u64>> {
        let mut sum = 0;
        for (t, f) in self.all() {
            match target.fragments(&name(t, f))? {
                Some(n) => sum += n,
                None => return Ok(None),
            }
        }
        Ok(Some(sum))
    }

    /// Reads all files, one after the other. Returns how long that took.
    pub fn read(&self, target: &dyn Target) -> Result<f64> {
        let mut buf = vec![0; READ_CHUNK.min(self.size) as usize];
        let start = clock::now();
        for (t, f) in self.all() {
            let file = target.open(&name(t, f), false)?;
            let mut at = 0;
            while at < self.size {
                let part = &mut buf[..READ_CHUNK.min(self.size - at) as usize];
                file.read_at(at, part)?;
                for (i, page) in part.chunks_exact(PAGE).enumerate() {
                    check(page, t << 32 | f, at + (i * PAGE) as u64, &name(t, f))?;
                }
                at += part.len() as u64;
            }
        }
        Ok(seconds_since(start))
    }
}
