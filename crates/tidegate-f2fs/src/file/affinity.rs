//! Streams for files that are written beside each other (`stream_policy=auto`).
//!
//! A file begins in the first log of its kind, as with one log. Once the next of its blocks would not follow the last there,
//! since others' came between, it is given the stream with the fewest files and keeps that, so that a file which is written
//! alone, and small files one after the other, open none. A file that put nothing there from one checkpoint to the next
//! gives it up, and the checkpoint closes a stream without files.

use crate::format::raw::NR_CURSEG_DATA_TYPE;
use crate::format::units::BlockAddr;
use crate::segment::log::{Log, LogId, MAX_STREAMS};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use tidegate_rt::{LockClass, Mutex};

static STREAMMAP: LockClass = LockClass::new("sbi->streammap_lock", 490);

/// Files by streams, for each kind of data.
pub(crate) struct Affinity {
    /// Checkpoints made since the volume was opened, and one more.
    epoch: AtomicU32,
    kinds: [Mutex<Load>; NR_CURSEG_DATA_TYPE],
}

/// Files that wrote to each stream.
#[derive(Default)]
struct Load {
    epoch: u32,
    /// Since the last checkpoint.
    now: [u32; MAX_STREAMS],
    /// From the one before to that.
    before: [u32; MAX_STREAMS],
}

/// What is known of a file as it is written.
#[derive(Default)]
pub(crate) struct Writer {
    /// Epoch of its last run, and below it one more than its stream; 0 in the latter without one.
    given: AtomicU64,
    /// Epoch of its last run, and below it the block behind that.
    end: AtomicU64,
}

impl Default for Affinity {
    fn default() -> Self {
        let kinds = std::array::from_fn(|_| Mutex::new(&STREAMMAP, Load::default()));
        Affinity { epoch: AtomicU32::new(1), kinds }
    }
}

impl Affinity {
    /// The stream of a file, one of `n` of a kind. `beside` says whether others' blocks came behind its last, which is at the
    /// given address; asked of those alone that have no stream.
    pub(crate) fn stream_of(&self, kind: Log, n: u8, w: &Writer, beside: impl Fn(BlockAddr) -> bool) -> u8 {
        let epoch = self.epoch.load(SeqCst);
        let given = unpack(w.given.load(Relaxed));
        let keeps = given.1 > 0 && given.1 <= u32::from(n) && given.0 + 1 >= epoch;
        if keeps && given.0 == epoch {
            return given.1 as u8 - 1;
        }
        if !keeps {
            let (at, end) = unpack(w.end.load(Relaxed));
            if at == 0 || at + 1 < epoch || !beside(BlockAddr(end)) {
                return 0;
            }
        }
        let mut load = self.kinds[kind as usize].lock();
        load.turn(epoch);
        let stream = if keeps { given.1 as u8 - 1 } else { load.fewest(n) };
        load.now[usize::from(stream)] += 1;
        w.given.store(pack(epoch, u32::from(stream) + 1), Relaxed);
        stream
    }

    /// A file's last run ends at `end`.
    pub(crate) fn placed(&self, w: &Writer, end: BlockAddr) {
        w.end.store(pack(self.epoch.load(SeqCst), end.0), Relaxed);
    }

    /// Whether no file wrote to a stream since the last checkpoint.
    pub(crate) fn is_idle(&self, log: LogId) -> bool {
        let mut load = self.kinds[log.kind as usize].lock();
        load.turn(self.epoch.load(SeqCst));
        load.now[usize::from(log.stream)] == 0
    }

    /// A checkpoint is made.
    pub(crate) fn checkpointed(&self) {
        self.epoch.fetch_add(1, SeqCst);
    }
}

impl Load {
    /// Turns to another epoch.
    fn turn(&mut self, epoch: u32) {
        if self.epoch != epoch {
            let now = std::mem::take(&mut self.now);
            self.before = if self.epoch + 1 == epoch { now } else { Default::default() };
            self.epoch = epoch;
        }
    }

    /// The stream with the fewest files; of several the first, but stream 0 last: new files begin there.
    fn fewest(&self, n: u8) -> u8 {
        let files = |s: &u8| self.now[usize::from(*s)].max(self.before[usize::from(*s)]);
        (1..n).chain([0]).min_by_key(files).unwrap_or(0)
    }
}

fn pack(epoch: u32, low: u32) -> u64 {
    u64::from(epoch) << 32 | u64::from(low)
}

fn unpack(packed: u64) -> (u32, u32) {
    ((packed >> 32) as u32, packed as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: Log = Log::WarmData;

    /// Files that have written once, at any place.
    fn files(a: &Affinity, n: usize) -> Vec<Writer> {
        let w: Vec<Writer> = (0..n).map(|_| Writer::default()).collect();
        w.iter().for_each(|w| a.placed(w, BlockAddr(7)));
        w
    }

    #[test]
    fn files_share_streams_evenly_and_give_up_those_they_leave() {
        let a = Affinity::default();
        let all = files(&a, 7);
        let streams = |files: &[Writer]| -> Vec<u8> {
            files.iter().map(|w| a.stream_of(KIND, 3, w, |end| end == BlockAddr(7))).collect()
        };
        assert_eq!(a.stream_of(KIND, 3, &Writer::default(), |_| true), 0);
        assert_eq!(streams(&all), [1, 2, 0, 1, 2, 0, 1]);
        assert_eq!(streams(&all), [1, 2, 0, 1, 2, 0, 1]);
        a.checkpointed();
        // Those of 1 are left alone; with the others there are as many again.
        assert_eq!(streams(&all[1..3]), [2, 0]);
        assert!(a.is_idle(LogId { kind: KIND, stream: 1 }));
        assert!(!a.is_idle(LogId { kind: KIND, stream: 2 }));
        a.checkpointed();
        assert_eq!(streams(&all[1..3]), [2, 0]);
        let more = files(&a, 1);
        assert_eq!(streams(&more), [1]);
        // What it had is another's by now; it begins anew, where nobody comes between.
        assert_eq!(a.stream_of(KIND, 3, &all[0], |_| true), 0);
    }

    #[test]
    fn a_file_that_is_followed_by_its_own_blocks_has_no_stream() {
        let a = Affinity::default();
        let w = &files(&a, 1)[0];
        assert_eq!(a.stream_of(KIND, 3, w, |_| false), 0);
        assert!(a.is_idle(LogId { kind: KIND, stream: 0 }));
        // Nor has one whose blocks were followed long ago.
        a.checkpointed();
        a.checkpointed();
        assert_eq!(a.stream_of(KIND, 3, w, |_| true), 0);
        a.placed(w, BlockAddr(7));
        assert_eq!(a.stream_of(KIND, 3, w, |_| true), 1);
    }
}
