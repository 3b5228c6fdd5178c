//! The target of a workload, and its report.

use serde::Serialize;
use std::collections::BTreeMap;

pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Counters by name. They only grow.
pub type Counts = BTreeMap<&'static str, u64>;

/// A volume with files, driven by the library or the kernel.
pub trait Target: Send + Sync {
    fn mkdir(&self, path: &str) -> Result<()>;
    /// Opens a file for reading and writing. With `create`, it is a new file.
    fn open(&self, path: &str, create: bool) -> Result<Box<dyn OpenFile>>;
    /// Removes the only name of a file.
    fn unlink(&self, path: &str) -> Result<()>;
    /// Makes everything durable.
    fn sync(&self) -> Result<()>;
    /// Bytes that may still be written.
    fn available(&self) -> Result<u64>;
    /// Counts of I/O since the target was opened or made, and other counts of the file system.
    fn counts(&self) -> Counts;
    /// The number of pieces in which a file's data lies, where that is known.
    fn fragments(&self, path: &str) -> Result<Option<u64>>;
    /// Unmounts a volume that was opened.
    fn close(&self) -> Result<()>;
}

pub trait OpenFile {
    fn size(&self) -> Result<u64>;
    fn write_at(&self, pos: u64, data: &[u8]) -> Result<()>;
    /// Fills `to`; a shorter file is an error.
    fn read_at(&self, pos: u64, to: &mut [u8]) -> Result<()>;
    fn fsync(&self) -> Result<()>;
}

/// The cost of a workload.
#[derive(Serialize, Default)]
pub struct Report {
    /// Seconds of the measured part.
    pub seconds: f64,
    /// The seconds of each repetition. Each has an equal number of files.
    pub loops: Vec<f64>,
    /// Seconds of all CPUs in the measured part, where they were measured.
    pub cpu_seconds: Option<f64>,
    pub files: u64,
    /// Bytes that the workload wrote in that part.
    pub bytes: u64,
    /// Calls of fsync in that part.
    pub fsyncs: u64,
    /// The growth of the counters in that part.
    pub counts: Counts,
    /// Pieces of all files afterwards.
    pub fragments: Option<u64>,
    /// Seconds to read all files after opening the volume anew.
    pub read_seconds: Option<f64>,
}

/// Adds the growth of counters.
pub fn add(sum: &mut Counts, more: &Counts) {
    more.iter().for_each(|(k, v)| *sum.entry(*k).or_default() += v);
}

/// The growth of each counter.
pub fn grown(before: &Counts, after: &Counts) -> Counts {
    after.iter().map(|(k, v)| (*k, v.saturating_sub(before.get(k).copied().unwrap_or(0)))).collect()
}

/// Seconds of all CPUs that this process took until now.
pub fn cpu_seconds() -> f64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    t.tv_sec as f64 + t.tv_nsec as f64 / 1e9
}

pub fn seconds_since(start: tidegate_rt::Nanos) -> f64 {
    tidegate_rt::clock::now().since(start).duration().as_secs_f64()
}
