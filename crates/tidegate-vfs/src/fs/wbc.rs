//! The control of a write-back pass.

use tidegate_block::BioFlags;

/// The control of a write-back pass. The names are those of the kernel's `writeback_control`.
#[derive(Clone, Debug)]
pub struct WritebackControl {
    /// A thread waits for all pages (`WB_SYNC_ALL`): the pass also waits for pages that are still under
    /// write-back.
    pub sync_all: bool,
    /// The bios are synchronous (`REQ_SYNC`): a thread waits for them, in this pass or after it.
    pub req_sync: bool,
    /// For fsync (`Some(false)`) or fdatasync (`Some(true)`) of this inode.
    pub fsync: Option<bool>,
    /// Pages left to write. A pass that is not `sync_all` ends when none are left.
    pub nr_to_write: u64,
    /// First page of the range.
    pub start: u64,
    /// First page past the range.
    pub end: u64,
    /// Other inodes follow in this pass. Bios of this inode may be kept to go with theirs, until a thread
    /// waits for them or the pass ends ([`Bdi::set_submit_pending`](crate::Bdi::set_submit_pending)).
    pub more_follow: bool,
    /// Pages written by this pass.
    pub written: u64,
}

impl WritebackControl {
    /// A pass over all pages, that a thread waits for.
    pub fn sync() -> Self {
        WritebackControl {
            sync_all: true,
            req_sync: true,
            fsync: None,
            nr_to_write: u64::MAX,
            start: 0,
            end: u64::MAX,
            more_follow: false,
            written: 0,
        }
    }

    /// A pass of at most `pages` pages, that no thread waits for.
    pub fn background(pages: u64) -> Self {
        WritebackControl { sync_all: false, req_sync: false, nr_to_write: pages, ..Self::sync() }
    }

    /// A pass over all pages that does not wait, before a pass that does.
    pub fn ahead_of_sync() -> Self {
        WritebackControl { sync_all: false, ..Self::sync() }
    }

    /// The flags of the bios of the pass (`wbc_to_write_flags`).
    pub fn to_write_flags(&self) -> BioFlags {
        if self.req_sync { BioFlags::SYNC } else { BioFlags::BACKGROUND }
    }
}
