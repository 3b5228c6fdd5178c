//! Reads that nobody waits for yet: which pages they will bring.
//!
//! A page that is being read ahead is not in the mapping. Whoever wants it waits here instead of reading it
//! twice; whoever is about to change it waits, so that what was read cannot come after the change.

use super::AddressSpace;
use crate::inode::Inode;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use tidegate_rt::{LockClass, Mutex, WaitQueue};

static AHEAD: LockClass = LockClass::new("mapping->readahead", 702);

/// The reads of a mapping that are under way.
pub(super) struct Reads {
    ranges: Mutex<Vec<Range<u64>>>,
    /// How many, to be looked at without the lock.
    count: AtomicUsize,
    ended: WaitQueue,
}

impl Default for Reads {
    fn default() -> Self {
        Reads { ranges: Mutex::new(&AHEAD, Vec::new()), count: AtomicUsize::new(0), ended: WaitQueue::new() }
    }
}

impl Reads {
    fn overlap(&self, pages: &Range<u64>) -> bool {
        self.ranges.lock().iter().any(|r| r.start < pages.end && pages.start < r.end)
    }
}

/// A read ahead that is under way; over when dropped.
pub struct ReadAhead {
    inode: Arc<Inode>,
    pages: Range<u64>,
}

impl ReadAhead {
    /// Says that `pages` of `inode` are going to be read, unless some of them already are.
    pub(crate) fn begin(inode: &Arc<Inode>, pages: Range<u64>) -> Option<Self> {
        let reads = &inode.mapping.ahead;
        let mut ranges = reads.ranges.lock();
        if pages.is_empty() || ranges.iter().any(|r| r.start < pages.end && pages.start < r.end) {
            return None;
        }
        ranges.push(pages.clone());
        reads.count.fetch_add(1, SeqCst);
        Some(ReadAhead { inode: inode.clone(), pages })
    }

    /// Whose pages they are.
    pub(crate) fn inode(&self) -> &Arc<Inode> {
        &self.inode
    }
}

impl Drop for ReadAhead {
    fn drop(&mut self) {
        let reads = &self.inode.mapping.ahead;
        {
            let mut ranges = reads.ranges.lock();
            if let Some(i) = ranges.iter().position(|r| *r == self.pages) {
                ranges.swap_remove(i);
            }
        }
        reads.count.fetch_sub(1, SeqCst);
        reads.ended.wake_all();
    }
}

impl AddressSpace {
    /// Waits until no page of the range is being read ahead; whether there was one.
    pub fn wait_ahead(&self, start: u64, end: u64) -> bool {
        if self.ahead.count.load(SeqCst) == 0 || !self.ahead.overlap(&(start..end)) {
            return false;
        }
        self.ahead.ended.wait_until(|| !self.ahead.overlap(&(start..end)));
        true
    }
}
