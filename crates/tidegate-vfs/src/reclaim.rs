//! The reclaim clock: which clean pages are dropped when the cache of a volume is over its limit.
//!
//! A mapping has a turn on the clock for every [`TURN`] chunks that it holds, so that a large mapping, such as that of
//! all nodes, loses pages in proportion to the small ones and not all its pages at once. In a turn the mapping's own
//! hand passes over its next chunks: a chunk that was used since the hand last passed it is spared, and the clean pages
//! of others are dropped.

use crate::bdi::Bdi;
use crate::inode::Inode;
use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use tidegate_rt::{LockClass, Mutex};

static CLOCK: LockClass = LockClass::new("bdi->clock", 635);

/// The number of chunks that the hand passes in one turn.
pub(crate) const TURN: u64 = 4;
/// The least number of turns on a clock at which turns of dropped inodes are searched for.
const SWEEP: usize = 1024;

/// The turns to come.
pub(crate) struct Clock(Mutex<Turns>);

struct Turns {
    queue: VecDeque<Weak<Inode>>,
    /// The length of the queue at which turns of dropped inodes are removed: a volume that stays below its limit never
    /// takes a turn from the queue.
    sweep_at: usize,
}

impl Default for Clock {
    fn default() -> Self {
        Clock(Mutex::new(&CLOCK, Turns { queue: VecDeque::new(), sweep_at: SWEEP }))
    }
}

impl Clock {
    pub(crate) fn clear(&self) {
        self.0.lock().queue.clear();
    }

    fn len(&self) -> usize {
        self.0.lock().queue.len()
    }

    fn pop(&self) -> Option<Weak<Inode>> {
        self.0.lock().queue.pop_front()
    }

    fn push(&self, inode: &Arc<Inode>) {
        let mut t = self.0.lock();
        if t.queue.len() >= t.sweep_at {
            t.queue.retain(|w| w.strong_count() > 0);
            t.sweep_at = SWEEP + 2 * t.queue.len();
        }
        t.queue.push_back(Arc::downgrade(inode));
    }
}

impl Bdi {
    /// Notes that a mapping has more pages, so that reclaim finds them. Takes `bdi->clock` when the mapping
    /// needs another turn.
    pub fn cached(&self, inode: &Arc<Inode>) {
        while inode.mapping.turn_wanted() {
            self.clock.push(inode);
        }
    }

    /// Drops clean pages until the cache is within its limit, or no clean page is left.
    pub fn shrink(&self) {
        if self.cached_bytes() <= self.limits().cache {
            return;
        }
        let goal = self.limits().cache / 10 * 9;
        for second_chance in [true, false] {
            let mut left = self.clock.len();
            while left > 0 && self.cached_bytes() > goal {
                left -= 1;
                let Some(weak) = self.clock.pop() else { break };
                let Some(inode) = weak.upgrade() else { continue };
                inode.mapping.reclaim_turn(second_chance);
                if inode.mapping.keeps_turn() {
                    self.clock.push(&inode);
                }
                // Pages may have come that were not noted, or that came between the check and the end of the
                // turn.
                self.cached(&inode);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::chunk::PageRun;
    use crate::slow_fs::{TAKES, mount_with, open};
    use crate::{MemoryLimits, MountOptions, Vfs};
    use tidegate_block::{PAGE_SIZE, PageBuf};
    use tidegate_rt::sim;

    const PAGES: u64 = 1 << 14;

    fn with_cache(f: impl FnOnce(&Arc<Vfs>) + Send + 'static) {
        sim::run(1, 1, move || {
            let cache = PAGES * PAGE_SIZE as u64;
            let limits = MemoryLimits { cache, dirty: cache, background: cache, inodes: 1000 };
            f(&mount_with(limits, MountOptions::default(), TAKES).0);
        });
    }

    fn fill(vfs: &Vfs, inode: &Arc<Inode>, pages: std::ops::Range<u64>) {
        for index in pages {
            let page = PageRun { buf: Arc::new(PageBuf::zeroed(1)), first: 0, pages: 1 };
            inode.mapping.insert_clean(index, &page);
            vfs.bdi().cached(inode);
            vfs.bdi().shrink();
        }
    }

    /// A mapping with most of the pages, such as that of a volume's nodes, is not dropped as a whole.
    #[test]
    fn a_large_mapping_goes_bit_by_bit() {
        with_cache(|vfs| {
            let f = open(vfs, 10);
            fill(vfs, f.inode(), 0..PAGES);
            for more in 0..8 {
                let end = PAGES + (more + 1) * PAGES / 8;
                fill(vfs, f.inode(), end - PAGES / 8..end);
                let kept = f.inode().mapping.nr_pages();
                assert!((PAGES * 85 / 100..=PAGES).contains(&kept), "{kept} of {PAGES}");
                assert!(f.inode().mapping.has(end - 1) && f.inode().mapping.has(end - PAGES / 2));
            }
            assert!(!f.inode().mapping.has(0), "the oldest went");
        });
    }

    /// Turns of dropped inodes do not pile up while the cache is within its limit.
    #[test]
    fn the_clock_forgets_inodes_that_are_gone() {
        with_cache(|vfs| {
            for ino in 10..20_000 {
                let inode = Arc::new(Inode::internal(crate::Ino(ino), vfs.bdi().clone(), 1));
                fill(vfs, &inode, 0..1);
            }
            assert!(vfs.bdi().clock.len() <= 2 * SWEEP, "{} turns", vfs.bdi().clock.len());
        });
    }
}
