//! Sequential writers, one file each, with periodic syncs.
//!
//! Operations: `write`, `fsync`, `sync`; a sync is an event as well. `read`, if files are read back: after
//! the measured part, from the device.

use super::fs_mark::{sync, sync_each};
use super::{interval_ms, millis, new_file};
use crate::error::{Error, Result};
use crate::record::Recorder;
use crate::result::{OpStats, RunResult};
use crate::target::{OpenHow, Target};
use crate::workers::{Shared, Workers};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use tidegate_block::IoContext;

/// The files that are made durable now and then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Periodic {
    /// No files, except for one sync at the end.
    #[default]
    None,
    /// A writer's file, by the writer, after each this many bytes.
    FsyncEvery(u64),
    /// Everything, by a thread of its own, each this many milliseconds.
    SyncEveryMs(u64),
}

/// Files made before, so that the volume is nearly full of files that were written at once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Before {
    /// Number of files, each written by a thread of its own, with an fsync after as many bytes as later.
    pub files: u64,
    /// Bytes of each.
    pub size: u64,
    /// Number of them that are removed again: the second, the fourth, and so on, then the first ones.
    pub removed: u64,
}

/// The workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Streams {
    /// Writers.
    pub writers: u64,
    /// Bytes that each writes.
    pub size: u64,
    /// Bytes of a write.
    pub block: u64,
    /// Number of concurrent writes and fsyncs of one file.
    pub depth: u64,
    /// Files that are there before.
    pub before: Before,
    /// Files are read back at the end, in pieces of this many bytes, by a thread each; 0: they are not read
    /// back.
    pub read_back: u64,
    /// The files that are made durable during the run; at the end, everything is.
    pub periodic: Periodic,
    /// Length of an interval of the series, in milliseconds.
    pub interval_ms: u64,
}

impl Default for Streams {
    fn default() -> Self {
        Streams {
            writers: 9,
            size: 16 << 20,
            block: 128 << 10,
            depth: 1,
            before: Before::default(),
            read_back: 0,
            periodic: Periodic::None,
            interval_ms: interval_ms(),
        }
    }
}

impl Streams {
    /// Runs it.
    ///
    /// # Errors
    /// As [`super::run`].
    pub fn run(&self, target: &Arc<dyn Target>) -> Result<RunResult> {
        let period = match self.periodic {
            Periodic::FsyncEvery(n) | Periodic::SyncEveryMs(n) => n,
            Periodic::None => 1,
        };
        if [self.writers, self.block, self.depth, period].contains(&0) {
            return Err(Error::spec("streams: writers, block, depth and the period must not be 0"));
        }
        target.mkdir("/streams")?;
        self.fill(target)?;
        target.sync()?;
        let mut workers = Workers::new(target, self.interval_ms);
        for n in 0..self.writers {
            self.write_by(&mut workers, format!("/streams/s{n}"), n, self.size);
        }
        if let Periodic::SyncEveryMs(ms) = self.periodic {
            workers.beside("sync".into(), IoContext::default(), move |s| sync_each(s, millis(ms)));
        }
        let mut result = workers.run("streams", sync)?;
        if self.read_back > 0 {
            result.ops.extend(self.read_all(target)?);
        }
        Ok(result)
    }

    /// Writes the files that are made before, and removes some.
    fn fill(&self, target: &Arc<dyn Target>) -> Result<()> {
        let b = &self.before;
        if b.files == 0 {
            return Ok(());
        }
        let mut workers = Workers::new(target, self.interval_ms);
        (0..b.files).for_each(|n| self.write_by(&mut workers, format!("/streams/before{n}"), n, b.size));
        workers.run("fill", sync)?;
        let every_other = (1..b.files).step_by(2).chain((0..b.files).step_by(2));
        every_other.take(b.removed as usize).try_for_each(|n| target.unlink(&format!("/streams/before{n}")))
    }

    /// Adds the threads that write a file.
    fn write_by(&self, workers: &mut Workers, path: String, n: u64, size: u64) {
        let next = Arc::new(AtomicU64::new(0));
        for way in 0..self.depth {
            let (spec, path, next) = (self.clone(), path.clone(), next.clone());
            let name = format!("stream-{n}.{way}");
            workers.worker(name, IoContext::default(), move |s| spec.write(s, &path, (n, size), &next));
        }
    }

    /// Writes the blocks of a file of `size` bytes that no other thread takes from `next`.
    fn write(&self, s: &Shared, path: &str, (n, size): (u64, u64), next: &AtomicU64) -> Result<Recorder> {
        let mut r = s.recorder();
        let file = match self.depth {
            1 => new_file(&*s.target, path)?,
            // No thread may truncate another's writes.
            _ => s.target.open(path, OpenHow { create: true, ..OpenHow::default() })?,
        };
        let data = vec![n as u8; self.block as usize];
        while !s.stopped() {
            let at = next.fetch_add(self.block, SeqCst);
            if at >= size {
                break;
            }
            let part = &data[..self.block.min(size - at) as usize];
            r.time("write", part.len() as u64, || file.write_at(at, part))?;
            let end = at + part.len() as u64;
            if matches!(self.periodic, Periodic::FsyncEvery(every) if end / every > at / every) {
                r.time("fsync", 0, || file.fsync(false))?;
            }
        }
        Ok(r)
    }

    /// Reads all files from the device, each by a thread of its own.
    fn read_all(&self, target: &Arc<dyn Target>) -> Result<BTreeMap<String, OpStats>> {
        let mut workers = Workers::new(target, self.interval_ms);
        for n in 0..self.writers {
            let path = format!("/streams/s{n}");
            target.drop_pages(&path)?;
            let piece = self.read_back;
            workers.worker(format!("read-{n}"), IoContext::default(), move |s| {
                let mut r = s.recorder();
                let file = s.target.open(&path, OpenHow::default())?;
                let mut data = vec![0; piece as usize];
                for at in (0..file.size()?).step_by(piece as usize) {
                    r.time("read", piece, || file.read_at(at, &mut data))?;
                }
                Ok(r)
            });
        }
        Ok(workers.run("read back", |_, _| Ok(()))?.ops)
    }
}
