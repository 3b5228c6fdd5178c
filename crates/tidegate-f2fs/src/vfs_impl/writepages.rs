//! Write-out of an inode's dirty pages: passes over them, and cleaning where there is no room.

use crate::volume::sbi::F2fs;
use std::sync::Arc;
use tidegate_rt::trace::SpanPoint;
use tidegate_vfs::{ErrorKind, Inode, Result, WritebackControl};

static WRITEPAGES: SpanPoint<3> = SpanPoint::new("f2fs_writepages", ["ino", "dirty", "sync"]);

/// An fsync with at most this many dirty pages is soon done with writing.
const SOON: u64 = 16;
/// Times that cleaning is tried for a pass that makes no progress.
const ROOM_TRIES: u32 = 4;

impl F2fs {
    /// Writes an inode's dirty pages out; does not wait for them. The caller holds no lock.
    ///
    /// # Errors
    /// `NoSpace` when no segment has room even after cleaning; the pages stay dirty.
    pub(crate) fn write_data(&self, inode: &Arc<Inode>, wbc: &mut WritebackControl) -> Result<()> {
        if wbc.sync_all {
            inode.mapping.tag_towrite(wbc.start, wbc.end);
        }
        let _span = WRITEPAGES.enter([inode.ino.0, inode.mapping.nr_dirty(), wbc.sync_all as u64]);
        // If this fsync has more to write, other fsyncs should not wait for it with their flush.
        let soon = wbc.fsync.is_some() && inode.mapping.nr_dirty() <= SOON;
        let _coming = soon.then(|| self.flushes.approach());
        let mut tries = ROOM_TRIES;
        loop {
            let before = wbc.written;
            let r = self.write_data_in_turn(inode, wbc);
            match r {
                Err(e) if e.kind() == ErrorKind::NoSpace && tries > 0 => {
                    tries = if wbc.written > before { ROOM_TRIES } else { tries - 1 };
                    self.make_room_now()?;
                    if wbc.sync_all {
                        inode.mapping.tag_towrite(wbc.start, wbc.end);
                    }
                }
                Err(e) if e.kind() == ErrorKind::NoSpace => {
                    inode.mapping.record_error(ErrorKind::NoSpace);
                    return Err(e);
                }
                r => return r,
            }
        }
    }
}
