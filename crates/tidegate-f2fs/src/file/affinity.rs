//! Streams for files that are written beside each other (`stream_policy=auto`).
//!
//! A file begins in the first log of its kind, as with one log. Once blocks of other files lie behind the
//! file's last block there, the file goes to the stream with the fewest files and keeps that stream. So a
//! file that is written alone opens no stream, and neither do small files that are written one after the
//! other. One writer that turns from file to file counts as several: it leaves files beside each other. A
//! file that put nothing into its stream from one checkpoint to the next gives the stream up. The stream
//! stays open for the next file that wants one, as the rest of its segment would be lost; when free segments
//! are short, all streams are closed.

use crate::format::raw::NR_CURSEG_DATA_TYPE;
use crate::format::units::BlockAddr;
use crate::segment::log::{Log, MAX_STREAMS};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use tidegate_rt::{LockClass, Mutex, MutexGuard};

static STREAMMAP: LockClass = LockClass::new("sbi->streammap_lock", 490);

/// The number of files in each stream, for each kind of data.
pub(crate) struct Affinity {
    /// One more than the checkpoints made since the volume was opened.
    epoch: AtomicU32,
    kinds: [Mutex<Load>; NR_CURSEG_DATA_TYPE],
}

/// The number of files that wrote to each stream.
#[derive(Default)]
struct Load {
    epoch: u32,
    /// Files that wrote since the last checkpoint.
    now: [u32; MAX_STREAMS],
    /// Files that wrote between the checkpoint before that and the last one.
    before: [u32; MAX_STREAMS],
}

/// A file's stream and the end of the file's last blocks, each with an epoch.
#[derive(Default)]
pub(crate) struct Writer {
    /// Epoch of the file's last run in its stream; in the lower half one more than the stream, 0 without a
    /// stream. A file has one kind as long as it is in memory.
    given: AtomicU64,
    /// Epoch of the file's last run; in the lower half the block behind that run.
    end: AtomicU64,
}

impl Default for Affinity {
    fn default() -> Self {
        let kinds = std::array::from_fn(|_| Mutex::new(&STREAMMAP, Load::default()));
        Affinity { epoch: AtomicU32::new(1), kinds }
    }
}

impl Affinity {
    /// The stream of a file, one of the first `n` of a kind. The file keeps the stream as long as it puts
    /// something there. `beside` says whether blocks of other files came behind the file's last block, which
    /// ends at the given address; it is called only for files without a stream. `refused` says which streams
    /// cannot be opened.
    pub(crate) fn choose(
        &self,
        kind: Log,
        n: u8,
        w: &Writer,
        beside: impl Fn(BlockAddr) -> bool,
        refused: impl Fn(u8) -> bool,
    ) -> u8 {
        let epoch = self.epoch.load(SeqCst);
        if let Some(stream) = w.keeps(epoch).filter(|s| *s < n) {
            return stream;
        }
        if !w.goes_on(epoch).is_some_and(beside) {
            return 0;
        }
        // The file is counted at once: files that ask at the same time get different streams.
        let mut load = self.load(kind);
        // Another pass over the same file may have asked before.
        if let Some(stream) = w.keeps(load.epoch).filter(|s| *s < n) {
            return stream;
        }
        let Some(stream) = load.fewest(n, refused) else { return 0 };
        load.now[usize::from(stream)] += 1;
        w.given.store(pack(load.epoch, u32::from(stream) + 1), Relaxed);
        stream
    }

    /// Notes that a file's next blocks lie in a stream, up to `end`. If that is the file's own stream, the
    /// file keeps it.
    pub(crate) fn placed(&self, kind: Log, w: &Writer, stream: u8, end: BlockAddr) {
        let epoch = self.epoch.load(SeqCst);
        w.end.store(pack(epoch, end.0), Relaxed);
        let given = pack(epoch, u32::from(stream) + 1);
        if w.keeps(epoch) == Some(stream) && w.given.swap(given, Relaxed) != given {
            self.load(kind).now[usize::from(stream)] += 1;
        }
    }

    /// Begins a new epoch: a checkpoint was made.
    pub(crate) fn checkpointed(&self) {
        self.epoch.fetch_add(1, SeqCst);
    }

    /// The numbers of files of a kind, in the current epoch.
    fn load(&self, kind: Log) -> MutexGuard<'_, Load> {
        let mut load = self.kinds[kind as usize].lock();
        load.turn(self.epoch.load(SeqCst));
        load
    }
}

impl Writer {
    /// The stream that the file still has.
    fn keeps(&self, epoch: u32) -> Option<u8> {
        let (at, stream) = unpack(self.given.load(Relaxed));
        (stream > 0 && at + 1 >= epoch).then(|| stream as u8 - 1)
    }

    /// The end of the file's last blocks, unless they are old.
    fn goes_on(&self, epoch: u32) -> Option<BlockAddr> {
        let (at, end) = unpack(self.end.load(Relaxed));
        (at > 0 && at + 1 >= epoch).then_some(BlockAddr(end))
    }
}

impl Load {
    /// Moves the numbers on to a later epoch.
    fn turn(&mut self, epoch: u32) {
        if self.epoch < epoch {
            let now = std::mem::take(&mut self.now);
            self.before = if self.epoch + 1 == epoch { now } else { Default::default() };
            self.epoch = epoch;
        }
    }

    /// The stream with the fewest files; the first of several, but stream 0 last, since new files begin
    /// there. `None` when all other streams are refused.
    fn fewest(&self, n: u8, refused: impl Fn(u8) -> bool) -> Option<u8> {
        let files = |s: &u8| self.now[usize::from(*s)].max(self.before[usize::from(*s)]);
        let extra = (1..n).filter(|s| !refused(*s)).min_by_key(files)?;
        [extra, 0].into_iter().min_by_key(files)
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

    const N: u8 = 3;

    /// Files that have written once, all at the same place.
    fn files(a: &Affinity, n: usize) -> Vec<Writer> {
        let w: Vec<Writer> = (0..n).map(|_| Writer::default()).collect();
        w.iter().for_each(|w| a.placed(KIND, w, 0, BlockAddr(7)));
        w
    }

    /// The stream of a file's next block, when blocks of other files lie behind its last one.
    fn next(a: &Affinity, w: &Writer) -> u8 {
        let stream = a.choose(KIND, N, w, |end| end >= BlockAddr(7), |_| false);
        a.placed(KIND, w, stream, BlockAddr(11));
        stream
    }

    #[test]
    fn files_share_streams_evenly_and_give_up_those_they_leave() {
        let a = Affinity::default();
        let all = files(&a, 7);
        let streams = |files: &[Writer]| -> Vec<u8> { files.iter().map(|w| next(&a, w)).collect() };
        assert_eq!(a.choose(KIND, N, &Writer::default(), |_| true, |_| false), 0);
        assert_eq!(streams(&all), [1, 2, 0, 1, 2, 0, 1]);
        assert_eq!(streams(&all), [1, 2, 0, 1, 2, 0, 1]);
        a.checkpointed();
        // The files of stream 1 write no more; as many others come to the other streams.
        assert_eq!(streams(&all[1..3]), [2, 0]);
        a.checkpointed();
        assert_eq!(streams(&all[1..3]), [2, 0]);
        let more = files(&a, 1);
        assert_eq!(streams(&more), [1]);
        // Another file has its stream by now; the file starts again in the first stream, as a file without a
        // stream.
        assert_eq!(a.choose(KIND, N, &all[0], |_| true, |_| false), 0);
    }

    #[test]
    fn files_that_ask_at_the_same_time_have_different_streams() {
        let a = Affinity::default();
        let all = files(&a, 3);
        let asked: Vec<u8> = all.iter().map(|w| a.choose(KIND, N, w, |_| true, |_| false)).collect();
        assert_eq!(asked, [1, 2, 0]);
    }

    #[test]
    fn a_file_that_writes_in_place_gives_its_stream_up() {
        let a = Affinity::default();
        let w = &files(&a, 1)[0];
        let ask = || a.choose(KIND, N, w, |_| true, |_| false);
        assert_eq!([ask(), ask()], [1, 1]);
        a.checkpointed();
        assert_eq!(ask(), 1);
        a.checkpointed();
        assert_eq!([ask(), ask()], [0, 0]);
    }

    #[test]
    fn a_stream_that_is_refused_is_nobodys() {
        let a = Affinity::default();
        let all = files(&a, 2);
        assert_eq!(a.choose(KIND, N, &all[0], |_| true, |s| s == 1), 2);
        assert_eq!(a.choose(KIND, N, &all[1], |_| true, |_| true), 0);
        // The stream is passed over only while it is refused, and files that have a stream keep it meanwhile.
        a.placed(KIND, &all[0], 0, BlockAddr(9));
        assert_eq!(a.choose(KIND, N, &all[0], |_| true, |_| false), 2);
        assert_eq!(a.choose(KIND, N, &all[1], |_| true, |_| false), 1);
    }

    /// A file gets no stream by writing either, even if blocks of other files came between: it must ask.
    #[test]
    fn a_file_without_a_stream_is_given_none_by_writing() {
        let a = Affinity::default();
        let w = &files(&a, 1)[0];
        a.placed(KIND, w, 0, BlockAddr(20));
        assert_eq!(w.keeps(1), None);
        assert_eq!(next(&a, w), 1);
    }

    #[test]
    fn a_file_that_is_followed_by_its_own_blocks_has_no_stream() {
        let a = Affinity::default();
        let w = &files(&a, 1)[0];
        assert_eq!(a.choose(KIND, N, w, |_| false, |_| false), 0);
        a.placed(KIND, w, 0, BlockAddr(8));
        assert_eq!(w.keeps(1), None);
        // A file whose last blocks are old gets no stream either.
        a.checkpointed();
        a.checkpointed();
        assert_eq!(a.choose(KIND, N, w, |_| true, |_| false), 0);
    }

    #[test]
    fn an_epoch_that_is_over_does_not_come_back() {
        let mut load = Load::default();
        load.turn(2);
        load.now[1] = 3;
        load.turn(1);
        assert_eq!(load.now[1], 3);
        load.turn(3);
        assert_eq!((load.now[1], load.before[1]), (0, 3));
    }
}
