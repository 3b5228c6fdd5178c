//! The stream of a file's data, the lock of a stream, and the bios that a pass sends at its end.

use crate::file::write_io::Grown;
use crate::format::raw::BLOCKS_PER_SEG;
use crate::format::units::BlockAddr;
use crate::inode::fi;
use crate::segment::log::{Log, LogId};
use crate::volume::options::{StreamFlush, StreamPolicy};
use crate::volume::sbi::F2fs;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicU32,
    Ordering::{Relaxed, SeqCst},
};
use tidegate_rt::Mutex;
use tidegate_vfs::{Error, ErrorKind, Inode, Result};

/// The streams that a program has chosen for a file, and the one that is written now.
#[derive(Default)]
pub(crate) struct ChosenStreams {
    /// A bit for each chosen stream; 0 when none is chosen.
    bits: AtomicU32,
    /// In the lowest byte the stream that is written now; above it, the number of pages that this stream got
    /// since the file came to it.
    at: AtomicU32,
}

impl ChosenStreams {
    /// The chosen streams, a bit for each.
    pub(crate) fn get(&self) -> u32 {
        self.bits.load(Relaxed)
    }

    /// The chosen streams among the first `n`; stream 0 if there is none.
    fn of_first(&self, n: u8) -> u32 {
        match self.get() & ((1 << n) - 1) {
            0 => 1,
            bits => bits,
        }
    }

    /// The only chosen stream among the first `n`; `None` if several are chosen.
    fn only(&self, n: u8) -> Option<u8> {
        let bits = self.of_first(n);
        bits.is_power_of_two().then_some(bits.trailing_zeros() as u8)
    }

    /// The chosen stream, among the first `n`, for `pages` more pages. The next stream follows once this one
    /// got a segment's worth.
    pub(crate) fn next(&self, n: u8, pages: usize) -> u8 {
        let bits = self.of_first(n);
        let at = self.at.load(Relaxed);
        let (stream, got) = (at as u8, at >> 8);
        let is_chosen = |s: u8| bits >> s & 1 == 1;
        let (stream, got) = match stream < n && is_chosen(stream) && got < BLOCKS_PER_SEG {
            true => (stream, got),
            false => ((1..=n).map(|i| (stream % n + i) % n).find(|s| is_chosen(*s)).unwrap_or(0), 0),
        };
        let got = (got + pages as u32).min(BLOCKS_PER_SEG);
        self.at.store(got << 8 | u32::from(stream), Relaxed);
        stream
    }
}

impl F2fs {
    /// Sends a file's data to these streams of its kind, where the policy leaves the choice to programs.
    ///
    /// # Errors
    /// `InvalidArgument` for a stream that does not exist.
    pub(crate) fn choose_streams_of(&self, inode: &Inode, streams: u32) -> Result<()> {
        let kind = self.data_log(inode);
        let n = self.streams(kind);
        if streams >> n != 0 {
            let what = format!("streams {streams:#x}, and data of its kind has {n}");
            return Err(Error::new(ErrorKind::InvalidArgument, what).in_inode(inode.ino));
        }
        fi(inode).chosen.bits.store(streams, Relaxed);
        Ok(())
    }

    /// The stream that a pass over an inode puts all its data into, where the policy has one stream for the
    /// file. The first log of the kind takes the place of a stream that cannot be opened now.
    pub(crate) fn stream_of_pass(&self, inode: &Inode) -> Option<LogId> {
        let kind = self.data_log(inode);
        let n = self.streams(kind);
        if n == 1 {
            return Some(kind.into());
        }
        let refused = |stream| self.cursegs.is_refused(LogId { kind, stream });
        let stream = match self.switches.stream_policy() {
            StreamPolicy::RoundRobin => return None,
            StreamPolicy::Chosen => fi(inode).chosen.only(n)?,
            StreamPolicy::PerFile => fi(inode).pin_stream(|| self.next_stream(n)) % n,
            StreamPolicy::Auto => {
                let beside = |end| self.is_followed(kind, end);
                self.affinity.choose(kind, n, &fi(inode).writer, beside, refused)
            }
        };
        Some(LogId { kind, stream: if refused(stream) { 0 } else { stream } })
    }

    /// The next stream in turn, of `n`.
    pub(crate) fn next_stream(&self, n: u8) -> u8 {
        (self.next_stream.fetch_add(1, Relaxed) % u32::from(n)) as u8
    }

    /// The lock that keeps placing and sending of a pass together: the lock of the pass's stream where there
    /// are several streams, else the volume's.
    pub(crate) fn writepages_of(&self, inode: &Inode, stream: Option<LogId>) -> &Mutex<()> {
        let several = self.streams(self.data_log(inode)) > 1;
        match (self.switches.stream_flush(), stream) {
            (StreamFlush::Inode, Some(s)) if several => &self.stream_writepages[s.slot()],
            _ => &self.writepages,
        }
    }

    /// Sends the growing bios that may hold an inode's data, as Linux does at the end of a pass. With one log
    /// that is the log's bio, whichever inode's pages are in it.
    pub(crate) fn send_streams_within(&self, inode: &Arc<Inode>) {
        let kind = self.data_log(inode);
        let all = (0..self.streams(kind)).map(|stream| LogId { kind, stream }.bit()).sum();
        let every = self.streams(kind) == 1 || self.switches.stream_flush() == StreamFlush::All;
        let logs = inode.mapping.gathered().load(SeqCst) | if every { all } else { 0 };
        LogId::of_bits(logs).for_each(|log| self.write_io.submit(Grown::Locked(log, inode)));
    }

    /// Whether the first log of a kind would not go on at `end`, though the segment before `end` is not full.
    fn is_followed(&self, kind: Log, end: BlockAddr) -> bool {
        let c = self.cursegs.lock(kind);
        let fills_segment = (end.0 - self.sb.main_blkaddr).is_multiple_of(BLOCKS_PER_SEG);
        !c.ssr && !fills_segment && self.sit.segment_start(c.segno).plus(c.next_blkoff as u32) != end
    }
}

#[cfg(test)]
mod tests;
