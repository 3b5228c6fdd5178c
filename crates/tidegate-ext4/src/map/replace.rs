//! Files that replace others (`auto_da_alloc`). Some programs write a new file and give it the old one's
//! name, or truncate a file to nothing and write it anew, and never call fsync. They expect to find the old
//! or the new content after a power cut.

use crate::inode::own;
use crate::volume::sbi::Ext4;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use tidegate_vfs::{FileType, Inode, WritebackControl};

impl Ext4 {
    /// Called before a file takes the name of another: its data is on the device before the change of names
    /// can be. The caller holds the file's `i_rwsem`. The file's next fsync reports a failure, as in Linux.
    pub(crate) fn write_what_replaces(&self, inode: &Arc<Inode>) {
        if self.is_delayed(inode) && self.write_data(inode, &mut WritebackControl::sync()).is_ok() {
            inode.mapping.wait_writeback(0, u64::MAX);
        }
    }

    /// Called when a file is closed that was truncated to nothing: sends the data written since, which
    /// otherwise would wait for the flusher.
    pub(crate) fn write_what_was_emptied(&self, inode: &Arc<Inode>) {
        if inode.file_type == FileType::Regular
            && own(inode).emptied.swap(false, Relaxed)
            && self.is_delayed(inode)
        {
            let _ = self.write_data(inode, &mut WritebackControl::background(u64::MAX));
        }
    }

    /// Whether a file has data that a power cut would lose now, and the switch is on.
    fn is_delayed(&self, inode: &Inode) -> bool {
        let on_its_way = || inode.mapping.nr_writeback() > 0;
        let placed_ahead = || own(inode).ahead.load(Relaxed) && inode.mapping.nr_dirty() > 0;
        self.switches.auto_da_alloc()
            && inode.file_type == FileType::Regular
            && (own(inode).delayed.lock().touches(0..u64::MAX) || on_its_way() || placed_ahead())
            && self.check_writable().is_ok()
    }
}
