//! How a pass of write-back is to go.

use tidegate_block::BioFlags;

/// How a write-back pass is to go; names as the kernel's `writeback_control`.
#[derive(Clone, Debug)]
pub struct WritebackControl {
    /// Somebody waits for all of it (`WB_SYNC_ALL`): pages still under write-back are waited for.
    pub sync_all: bool,
    /// Its bios are synchronous (`REQ_SYNC`): somebody waits for them, if not in this pass then after it.
    pub req_sync: bool,
    /// For fsync (`Some(false)`) or fdatasync (`Some(true)`) of this inode.
    pub fsync: Option<bool>,
    /// Pages left to write; a pass that is not `sync_all` ends when it is used up.
    pub nr_to_write: u64,
    /// First page of the range.
    pub start: u64,
    /// First page past the range.
    pub end: u64,
    /// Other inodes follow in this pass: bios of this one may be kept to go with theirs, until somebody waits
    /// for them or the pass ends ([`Bdi::set_submit_pending`](crate::Bdi::set_submit_pending)).
    pub more_follow: bool,
    /// Pages written by this pass.
    pub written: u64,
}

impl WritebackControl {
    /// A pass over everything that somebody waits for.
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

    /// A pass of at most `pages` pages that nobody waits for.
    pub fn background(pages: u64) -> Self {
        WritebackControl { sync_all: false, req_sync: false, nr_to_write: pages, ..Self::sync() }
    }

    /// A pass over everything that does not wait, before one that does.
    pub fn ahead_of_sync() -> Self {
        WritebackControl { sync_all: false, ..Self::sync() }
    }

    /// The marks of its bios (`wbc_to_write_flags`).
    pub fn to_write_flags(&self) -> BioFlags {
        if self.req_sync { BioFlags::SYNC } else { BioFlags::BACKGROUND }
    }
}
