//! The stream that a file's data goes to, its lock, and what is sent of it.

use crate::format::raw::BLOCKS_PER_SEG;
use crate::format::units::BlockAddr;
use crate::inode::fi;
use crate::segment::log::{Log, LogId};
use crate::volume::options::{StreamFlush, StreamPolicy};
use crate::volume::sbi::F2fs;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use tidegate_rt::Mutex;
use tidegate_vfs::Inode;

impl F2fs {
    /// The stream that an inode's data goes to, where the policy pins it to one of several.
    fn pinned_stream(&self, inode: &Inode) -> Option<LogId> {
        let pins = self.switches.stream_policy() != StreamPolicy::RoundRobin;
        (pins && self.streams(self.data_log(inode)) > 1).then(|| self.stream_for(inode))
    }

    /// The lock that keeps an inode's placing and sending together: where it is pinned to a stream, that stream's.
    /// Round robin leaves none of its own, and has the volume's, as one log has.
    pub(crate) fn writepages_of(&self, inode: &Inode) -> &Mutex<()> {
        match self.switches.stream_flush() {
            StreamFlush::All => &self.writepages,
            StreamFlush::Inode => {
                self.pinned_stream(inode).map_or(&self.writepages, |s| &self.stream_writepages[s.slot()])
            }
        }
    }

    /// Sends the growing bios that an inode's data may be in, as Linux does it at the end of a pass. With one log that is
    /// the log's, whosever pages are in it.
    pub(crate) fn send_streams_within(&self, inode: &Arc<Inode>) {
        let kind = self.data_log(inode);
        let all = (0..self.streams(kind)).map(|stream| LogId { kind, stream }.bit()).sum();
        let every = self.streams(kind) == 1 || self.switches.stream_flush() == StreamFlush::All;
        let logs = if every { all } else { inode.mapping.gathered().load(SeqCst) };
        LogId::of_bits(logs).for_each(|log| self.write_io.submit_within(log, inode));
    }

    /// The stream for the next run of blocks of an inode's data.
    pub(crate) fn stream_for(&self, inode: &Inode) -> LogId {
        let kind = self.data_log(inode);
        let n = self.streams(kind);
        if n == 1 {
            return kind.into();
        }
        let next = || (self.next_stream.fetch_add(1, Relaxed) % u32::from(n)) as u8;
        let stream = match self.switches.stream_policy() {
            StreamPolicy::RoundRobin => next(),
            StreamPolicy::PerFile => fi(inode).pinned_stream(next) % n,
            StreamPolicy::Auto => {
                self.affinity.stream_of(kind, n, &fi(inode).writer, |end| self.is_followed(kind, end))
            }
        };
        LogId { kind, stream }
    }

    /// Whether the first log of a kind would not go on at `end`, though the segment before it has room behind.
    fn is_followed(&self, kind: Log, end: BlockAddr) -> bool {
        let c = self.cursegs.lock(kind);
        let fills_segment = (end.0 - self.sb.main_blkaddr).is_multiple_of(BLOCKS_PER_SEG);
        !c.ssr && !fills_segment && self.sit.segment_start(c.segno).plus(c.next_blkoff as u32) != end
    }
}
