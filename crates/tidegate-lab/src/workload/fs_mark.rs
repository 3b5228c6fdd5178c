//! Threads that make files in directories of their own, in the manner of fs_mark.
//!
//! Operations: `create`, `write`, `fsync`, `close` as in fs_mark, and `file`, which is everything for one
//! file. The end of a loop is an event `loop` with its files and its files per second. A sync beside the
//! threads is an event `sync` with its caller's processor time ([`USER_NS`], [`SYS_NS`]). The write of a
//! piece of a log beside the threads, until it is durable, is a `commit`.

use super::{interval_ms, millis, new_file};
use crate::cpu::CpuTime;
use crate::error::{Error, Result};
use crate::record::Recorder;
use crate::result::RunResult;
use crate::target::{OpenHow, Target};
use crate::workers::{Shared, Workers};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use tidegate_block::IoContext;
use tidegate_rt::{Nanos, clock};

/// Value of an event `sync`: the caller's nanoseconds in the program, if known.
pub const USER_NS: &str = "user_ns";
/// Value of an event `sync`: the caller's nanoseconds in the kernel, as [`CpuTime::sys_ns`].
pub const SYS_NS: &str = "sys_ns";

/// The time when files are made durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SyncMode {
    /// Never.
    None,
    /// Each file after it is written, by fsync (`-S 1`).
    #[default]
    Each,
    /// All files of a thread after they are written, in order, by fsync.
    Post,
    /// All files of a thread after they are written, from the last to the first, by fsync.
    PostReverse,
    /// All files at the end of a loop, by one sync(2).
    Sync,
}

/// The workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FsMark {
    /// Threads, each with a directory (`-t`).
    pub threads: u64,
    /// Files of each thread in each loop (`-n`).
    pub files: u64,
    /// Bytes of each file (`-s`).
    pub size: u64,
    /// Bytes of each write (`-w`).
    pub write_size: u64,
    /// The time when files are made durable (`-S`).
    pub sync: SyncMode,
    /// Loops (`-L`); each makes new files.
    pub loops: u64,
    /// Milliseconds between sync(2)s beside the threads; 0 for none.
    pub sync_every_ms: u64,
    /// Number of syncs that then begin at once.
    pub syncers: u64,
    /// Further threads that write a piece of a log and fsync it, over and over.
    pub logs: u64,
    /// Files offered per second by all threads together; 0 for as many as possible.
    pub rate: u64,
    /// Length of an interval of the series, in milliseconds.
    pub interval_ms: u64,
}

impl Default for FsMark {
    fn default() -> Self {
        FsMark {
            threads: 1,
            files: 1000,
            size: 51_200,
            write_size: 16 << 10,
            sync: SyncMode::Each,
            loops: 1,
            sync_every_ms: 0,
            syncers: 1,
            logs: 0,
            rate: 0,
            interval_ms: interval_ms(),
        }
    }
}

fn dir(thread: u64) -> String {
    format!("/fs_mark/t{thread}")
}

impl FsMark {
    /// Runs it.
    ///
    /// # Errors
    /// As [`super::run`].
    pub fn run(&self, target: &Arc<dyn Target>) -> Result<RunResult> {
        if [self.threads, self.files, self.loops, self.write_size].contains(&0) {
            return Err(Error::spec("fs_mark: threads, files, loops and write_size must not be 0"));
        }
        (0..self.threads).try_for_each(|t| target.mkdir(&dir(t)))?;
        target.sync()?;
        let mut workers = Workers::new(target, self.interval_ms);
        for t in 0..self.threads {
            let mark = self.clone();
            workers.worker(format!("fs_mark-{t}"), IoContext::default(), move |s| mark.thread(s, t));
        }
        if self.sync_every_ms > 0 {
            let every = millis(self.sync_every_ms);
            for n in 0..self.syncers.max(1) {
                workers.beside(format!("sync-{n}"), IoContext::default(), move |s| sync_each(s, every));
            }
        }
        for n in 0..self.logs {
            workers.beside(format!("log-{n}"), IoContext::default(), move |s| log(s, n));
        }
        workers.run("fs_mark", |_, _| Ok(()))
    }

    fn thread(&self, s: &Shared, t: u64) -> Result<Recorder> {
        let mut r = s.recorder();
        for l in 0..self.loops {
            s.barrier(self.threads);
            let begin = clock::now();
            self.files(s, t, l, &mut r)?;
            s.barrier(self.threads);
            if s.stopped() {
                break;
            }
            if t == 0 {
                if self.sync == SyncMode::Sync {
                    sync(s, &mut r)?;
                }
                let files = self.threads * self.files;
                let ns = clock::now().since(begin).0.max(1);
                let per_second = (u128::from(files) * 1_000_000_000 / u128::from(ns)) as u64;
                r.event("loop", begin, &[("files", files), ("files_per_second", per_second)]);
            }
        }
        Ok(r)
    }

    /// One thread's files of one loop.
    fn files(&self, s: &Shared, t: u64, l: u64, r: &mut Recorder) -> Result<()> {
        let chunk = vec![t as u8; self.write_size.min(self.size) as usize];
        let path = |f: u64| format!("{}/l{l}f{f}", dir(t));
        let start = clock::now();
        for f in (0..self.files).take_while(|_| !s.stopped()) {
            self.wait_for_turn(s, f, start);
            let begin = clock::now();
            let file = r.time("create", 0, || new_file(&*s.target, &path(f)))?;
            let mut at = 0;
            while at < self.size {
                let part = &chunk[..self.write_size.min(self.size - at) as usize];
                r.time("write", part.len() as u64, || file.write_at(at, part))?;
                at += part.len() as u64;
            }
            if self.sync == SyncMode::Each {
                r.time("fsync", 0, || file.fsync(false))?;
            }
            let close = clock::now();
            drop(file);
            r.add("close", 0, close, clock::now());
            r.add("file", self.size, begin, clock::now());
        }
        let mut post: Vec<u64> = match self.sync {
            SyncMode::Post | SyncMode::PostReverse => (0..self.files).collect(),
            _ => Vec::new(),
        };
        if self.sync == SyncMode::PostReverse {
            post.reverse();
        }
        for f in post.into_iter().take_while(|_| !s.stopped()) {
            let file = s.target.open(&path(f), OpenHow::default())?;
            r.time("fsync", 0, || file.fsync(false))?;
        }
        Ok(())
    }
}

impl FsMark {
    /// Waits until a thread's file number `f` is due.
    fn wait_for_turn(&self, s: &Shared, f: u64, start: Nanos) {
        if self.rate == 0 {
            return;
        }
        let due = Duration::from_nanos(f * self.threads * 1_000_000_000 / self.rate);
        let left = due.saturating_sub(clock::now().since(start).duration());
        if !left.is_zero() {
            s.sleep(left);
        }
    }
}

/// Bytes of a piece of a log, and of the log, which is overwritten from its start then.
const PIECE: u64 = 4 << 10;
const LOG: u64 = 1 << 20;
/// Pause between two pieces.
const PAUSE: Duration = Duration::from_millis(1);

/// Commits pieces of a log.
fn log(s: &Shared, n: u64) -> Result<Recorder> {
    let mut r = s.recorder();
    let file = new_file(&*s.target, &format!("{}/log{n}", dir(0)))?;
    let piece = vec![n as u8; PIECE as usize];
    let mut at = 0;
    loop {
        r.time("commit", PIECE, || file.write_at(at, &piece).and_then(|()| file.fsync(true)))?;
        at = (at + PIECE) % LOG;
        s.sleep(PAUSE);
        if s.stopped() {
            return Ok(r);
        }
    }
}

/// Calls sync(2) and records it as an event, with the caller's processor time, and as an operation.
pub(super) fn sync(s: &Shared, r: &mut Recorder) -> Result<()> {
    let (begin, before) = (clock::now(), CpuTime::of_thread());
    r.time("sync", 0, || s.target.sync())?;
    let cpu = CpuTime::of_thread().zip(before).map(|(now, before)| now.since(before));
    let user = cpu.and_then(|c| c.user_ns).map(|ns| (USER_NS, ns));
    let values: Vec<(&str, u64)> = user.into_iter().chain(cpu.map(|c| (SYS_NS, c.sys_ns))).collect();
    r.event("sync", begin, &values);
    Ok(())
}

/// Calls sync(2) over and over, with `every` between the calls.
pub(super) fn sync_each(s: &Shared, every: std::time::Duration) -> Result<Recorder> {
    let mut r = s.recorder();
    s.sleep(every);
    while !s.stopped() {
        sync(s, &mut r)?;
        s.sleep(every);
    }
    Ok(r)
}
