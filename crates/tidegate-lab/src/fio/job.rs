//! One section of a job file.

use super::units::{boolean, both, size, time};
use std::collections::BTreeMap;
use std::time::Duration;

/// The order of reads and writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pattern {
    /// It reads.
    pub reads: bool,
    /// It writes.
    pub writes: bool,
    /// In random order.
    pub random: bool,
}

impl Pattern {
    /// Random reads and writes.
    pub const RANDRW: Pattern = Pattern { reads: true, writes: true, random: true };

    fn named(name: &str) -> Option<Pattern> {
        let (random, kind) = match name.strip_prefix("rand") {
            Some(kind) => (true, kind),
            None => (false, name),
        };
        let (reads, writes) = match kind {
            "read" => (true, false),
            "write" => (false, true),
            "rw" => (true, true),
            "readwrite" if !random => (true, true),
            _ => return None,
        };
        Some(Pattern { reads, writes, random })
    }
}

/// One section; defaults are fio's.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// Its name.
    pub name: String,
    /// `rw`
    pub pattern: Pattern,
    /// `bs`: of reads, of writes.
    pub bs: [u64; 2],
    /// `size`: bytes that each thread moves.
    pub size: u64,
    /// `numjobs`: threads.
    pub numjobs: u64,
    /// `fsync`: after this many writes; 0 for never.
    pub fsync: u64,
    /// `fdatasync`: after this many writes; 0 for never.
    pub fdatasync: u64,
    /// `end_fsync`
    pub end_fsync: bool,
    /// `direct`
    pub direct: bool,
    /// `runtime`
    pub runtime: Option<Duration>,
    /// `time_based`
    pub time_based: bool,
    /// `rwmixread`: percent.
    pub mix_read: u64,
    /// `randseed`
    pub seed: u64,
    /// `filename`, split at colons; empty for names made from the job's.
    pub filename: Vec<String>,
    /// `directory`
    pub directory: String,
    /// `nrfiles`
    pub nrfiles: u64,
    /// `loops`: number of passes over the size.
    pub loops: u64,
    /// `filesize`; 0 for the thread's size split evenly.
    pub filesize: u64,
    /// `iodepth`, of which only 1 is supported.
    pub iodepth: u64,
    /// `rate_iops`: of reads, of writes; 0 for no bound.
    pub rate_iops: [u64; 2],
    /// `thinktime`: pause after each block.
    pub thinktime: Duration,
    /// `stonewall`: begins only when the earlier jobs have ended.
    pub stonewall: bool,
    /// `group_reporting`
    pub group_reporting: bool,
    /// The section's options, as they are written.
    pub options: BTreeMap<String, String>,
}

impl Default for Job {
    fn default() -> Self {
        Job {
            name: String::new(),
            pattern: Pattern { reads: true, ..Pattern::default() },
            bs: [4096; 2],
            size: 0,
            numjobs: 1,
            fsync: 0,
            fdatasync: 0,
            end_fsync: false,
            direct: false,
            runtime: None,
            time_based: false,
            mix_read: 50,
            seed: 1,
            filename: Vec::new(),
            directory: String::new(),
            nrfiles: 1,
            loops: 1,
            filesize: 0,
            iodepth: 1,
            rate_iops: [0; 2],
            thinktime: Duration::ZERO,
            stonewall: false,
            group_reporting: false,
            options: BTreeMap::new(),
        }
    }
}

/// I/O engines with one operation at a time, as here.
const SYNC_ENGINES: [&str; 5] = ["sync", "psync", "vsync", "pvsync", "pvsync2"];

/// Keys without effect here: jobs are threads, and random numbers repeat for a seed.
const NOTHING_HERE: [&str; 6] =
    ["thread", "randrepeat", "description", "scramble_buffers", "gtod_reduce", "fallocate"];
/// Unsupported keys without which a job still serves its purpose.
const NOT_DONE: [&str; 6] =
    ["invalidate", "norandommap", "refill_buffers", "ramp_time", "log_avg_msec", "exitall"];

impl Job {
    /// Applies one key. Returns a note when the key is not applied literally.
    pub(super) fn set(&mut self, key: &str, value: &str) -> Result<Option<String>, String> {
        let bad = || format!("{key}={value} cannot be read");
        let number = || value.parse::<u64>().map_err(|_| bad());
        let bytes = || size(value).ok_or_else(bad);
        let flag = || boolean(value).ok_or_else(bad);
        match key {
            "rw" | "readwrite" => {
                self.pattern = Pattern::named(value).ok_or_else(|| {
                    format!("{key}={value}: there are read, write, randread, randwrite, rw and randrw")
                })?
            }
            "bs" | "blocksize" => self.bs = both(value, size).ok_or_else(bad)?,
            "size" => self.size = bytes()?,
            "numjobs" => self.numjobs = number()?,
            "ioengine" if SYNC_ENGINES.contains(&value) => {}
            "ioengine" => return Ok(Some(format!("ioengine={value} is done as psync, one at a time"))),
            "fsync" => self.fsync = number()?,
            "fdatasync" => self.fdatasync = number()?,
            "end_fsync" => self.end_fsync = flag()?,
            "direct" => self.direct = flag()?,
            "buffered" => self.direct = !flag()?,
            "loops" => self.loops = number()?,
            "runtime" => self.runtime = Some(time(value, 1_000_000).ok_or_else(bad)?),
            "time_based" => self.time_based = flag()?,
            "rwmixread" => self.mix_read = number().ok().filter(|n| *n <= 100).ok_or_else(bad)?,
            "rwmixwrite" => self.mix_read = 100 - number().ok().filter(|n| *n <= 100).ok_or_else(bad)?,
            "randseed" => self.seed = number()?,
            "filename" => self.filename = value.split(':').map(String::from).collect(),
            "directory" => self.directory = value.to_string(),
            "nrfiles" => self.nrfiles = number()?,
            "filesize" => self.filesize = bytes()?,
            "iodepth" => {
                self.iodepth = number()?;
                let note = format!("iodepth={value} is done one at a time; numjobs makes more");
                return Ok((self.iodepth > 1).then_some(note));
            }
            "rate_iops" => self.rate_iops = both(value, |v| v.parse().ok()).ok_or_else(bad)?,
            "thinktime" => self.thinktime = time(value, 1).ok_or_else(bad)?,
            "stonewall" | "wait_for_previous" => self.stonewall = flag()?,
            "group_reporting" => self.group_reporting = flag()?,
            k if NOTHING_HERE.contains(&k) => {}
            k if NOT_DONE.contains(&k) => return Ok(Some(format!("{key} is not done"))),
            _ => return Err(format!("the key {key} is not known")),
        }
        Ok(None)
    }

    /// Whether the job can be run; returns a note when a part of it has no effect.
    pub(super) fn check(&self) -> Result<Option<String>, String> {
        let job = &self.name;
        if self.bs.contains(&0) {
            return Err(format!("[{job}] bs must not be 0"));
        }
        if self.time_based && self.runtime.is_none() {
            return Err(format!("[{job}] is time_based without a runtime"));
        }
        if [self.numjobs, self.nrfiles, self.loops].contains(&0) {
            return Err(format!("[{job}] numjobs, nrfiles and loops must not be 0"));
        }
        if self.total() == 0 && self.filesize == 0 {
            return Err(format!("[{job}] needs a size, or a filesize"));
        }
        if self.file_bytes() < self.bs[0].max(self.bs[1]) {
            return Err(format!("[{job}] has files smaller than a block"));
        }
        Ok(None)
    }

    /// Files of one thread.
    pub fn files(&self) -> u64 {
        if self.filename.is_empty() { self.nrfiles } else { self.filename.len() as u64 }
    }

    /// Bytes of each file.
    pub fn file_bytes(&self) -> u64 {
        if self.filesize > 0 { self.filesize } else { self.size / self.files().max(1) }
    }

    /// Bytes that one thread moves, unless it goes by time.
    pub fn total(&self) -> u64 {
        let once = if self.size > 0 { self.size } else { self.filesize.saturating_mul(self.files()) };
        once.saturating_mul(self.loops)
    }

    /// The paths of thread `n`'s files.
    pub fn paths(&self, n: u64) -> Vec<String> {
        let dir = self.directory.trim_matches('/');
        let dir = if dir.is_empty() { String::new() } else { format!("/{dir}") };
        if !self.filename.is_empty() {
            return self.filename.iter().map(|f| format!("{dir}/{}", f.trim_start_matches('/'))).collect();
        }
        (0..self.nrfiles).map(|f| format!("{dir}/{}.{n}.{f}", self.name)).collect()
    }
}
