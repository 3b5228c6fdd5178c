//! Sequential writers, one file each, with periodic syncs.
//!
//! Operations: `write`, `fsync`, `sync`; a sync is an event as well.

use super::fs_mark::{sync, sync_each};
use super::{interval_ms, millis, new_file};
use crate::error::{Error, Result};
use crate::record::Recorder;
use crate::result::RunResult;
use crate::target::Target;
use crate::workers::{Shared, Workers};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use tidegate_block::IoContext;

/// The files that are made durable now and then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Periodic {
    /// Nothing, but for one sync at the end.
    #[default]
    None,
    /// A writer's file, by the writer, each so many bytes.
    FsyncEvery(u64),
    /// Everything, by a thread of its own, each so many milliseconds.
    SyncEveryMs(u64),
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
    /// The files that are made durable meanwhile; at the end, everything is.
    pub periodic: Periodic,
    /// Length of an interval of the series, in milliseconds.
    pub interval_ms: u64,
}

impl Default for Streams {
    fn default() -> Self {
        let periodic = Periodic::None;
        Streams { writers: 9, size: 16 << 20, block: 128 << 10, periodic, interval_ms: interval_ms() }
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
        if self.writers == 0 || self.block == 0 || period == 0 {
            return Err(Error::spec("streams: writers, block and the period must not be 0"));
        }
        target.mkdir("/streams")?;
        target.sync()?;
        let mut workers = Workers::new(target, self.interval_ms);
        for n in 0..self.writers {
            let spec = self.clone();
            workers.worker(format!("stream-{n}"), IoContext::default(), move |s| spec.write(s, n));
        }
        if let Periodic::SyncEveryMs(ms) = self.periodic {
            workers.beside("sync".into(), IoContext::default(), move |s| sync_each(s, millis(ms)));
        }
        workers.run("streams", sync)
    }

    fn write(&self, s: &Shared, n: u64) -> Result<Recorder> {
        let mut r = s.recorder();
        let file = new_file(&*s.target, &format!("/streams/s{n}"))?;
        let data = vec![n as u8; self.block as usize];
        let (mut at, mut synced) = (0, 0);
        while at < self.size && !s.stopped() {
            let part = &data[..self.block.min(self.size - at) as usize];
            r.time("write", part.len() as u64, || file.write_at(at, part))?;
            at += part.len() as u64;
            if matches!(self.periodic, Periodic::FsyncEvery(every) if at - synced >= every) {
                r.time("fsync", 0, || file.fsync(false))?;
                synced = at;
            }
        }
        Ok(r)
    }
}
