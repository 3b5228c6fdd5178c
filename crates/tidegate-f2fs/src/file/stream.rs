//! The stream that a file's data goes to.

use crate::inode::fi;
use crate::segment::log::LogId;
use crate::volume::options::StreamPolicy;
use crate::volume::sbi::F2fs;
use std::sync::atomic::Ordering::Relaxed;
use tidegate_vfs::Inode;

impl F2fs {
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
        };
        LogId { kind, stream }
    }
}
