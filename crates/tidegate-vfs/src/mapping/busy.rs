//! Pages that are being read in, and pages that are being changed. In Linux, the page lock does this work.
//!
//! Readers hold no `i_rwsem`. A page that is being read in is not in the mapping yet. Another reader of the
//! page waits here. A writer that is about to change the page also waits, so that the read cannot be inserted
//! after the change. A reader of a page that is being changed waits, too, and then finds the page in memory.
//!
//! ```text
//!   reader   begin ── device ── insert ─┤ over
//!   writer          begin ╌╌╌waits╌╌╌╌╌╌┼── reserve, change in memory ──┤ over
//!   reader                                begin ╌╌╌╌╌╌╌╌waits╌╌╌╌╌╌╌╌╌╌╌┼── finds it cached
//! ```
//!
//! Truncation and punching exclude page-ins altogether: they hold `invalidate_lock` exclusive, and page-ins begin with
//! it held shared.

use super::AddressSpace;
use crate::inode::Inode;
use std::ops::Range;
use std::sync::Arc;
use tidegate_rt::{LockClass, Mutex, WaitQueue};

static BUSY: LockClass = LockClass::new("mapping->busy_pages", 702);

/// The busy pages of a mapping.
pub(super) struct BusyPages {
    state: Mutex<State>,
    /// Woken when a page is no longer busy.
    freed: WaitQueue,
}

#[derive(Default)]
struct State {
    reads: Vec<Range<u64>>,
    /// The pages that are being changed. There is at most one range: a thread that changes pages holds
    /// `i_rwsem` exclusive.
    change: Option<Range<u64>>,
}

impl State {
    fn all(&self) -> impl Iterator<Item = &Range<u64>> {
        self.reads.iter().chain(&self.change)
    }
}

impl Default for BusyPages {
    fn default() -> Self {
        BusyPages { state: Mutex::new(&BUSY, State::default()), freed: WaitQueue::new() }
    }
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

/// Pages that are being read in, until this is dropped.
pub struct PageIn {
    inode: Arc<Inode>,
    pages: Range<u64>,
}

impl PageIn {
    /// Marks `pages` of `inode` as being read in, up to the first busy one. `None` when the first page is busy. The
    /// caller holds `invalidate_lock` shared.
    pub(crate) fn begin(inode: &Arc<Inode>, mut pages: Range<u64>) -> Option<Self> {
        let mut state = inode.mapping.busy.state.lock();
        let next = state.all().filter(|b| overlap(b, &pages)).map(|b| b.start).min();
        pages.end = next.unwrap_or(pages.end);
        if pages.is_empty() {
            return None;
        }
        state.reads.push(pages.clone());
        drop(state);
        Some(PageIn { inode: inode.clone(), pages })
    }

    /// The inode of the pages.
    pub(crate) fn inode(&self) -> &Arc<Inode> {
        &self.inode
    }

    /// The number of pages.
    pub(crate) fn len(&self) -> u64 {
        self.pages.end - self.pages.start
    }
}

impl Drop for PageIn {
    fn drop(&mut self) {
        let busy = &self.inode.mapping.busy;
        let mut state = busy.state.lock();
        if let Some(i) = state.reads.iter().position(|r| *r == self.pages) {
            state.reads.swap_remove(i);
        }
        drop(state);
        busy.freed.wake_all();
    }
}

/// Pages that are being changed, until this is dropped.
pub(crate) struct Change<'a>(&'a BusyPages);

impl Drop for Change<'_> {
    fn drop(&mut self) {
        self.0.state.lock().change = None;
        self.0.freed.wake_all();
    }
}

impl AddressSpace {
    /// Marks `pages` as being changed, and waits for those that are being read in. No page-in of them begins until the
    /// result is dropped. The caller holds `i_rwsem` exclusive.
    pub(crate) fn begin_change(&self, pages: Range<u64>) -> Change<'_> {
        let being_read = |s: &State| s.reads.iter().any(|r| overlap(r, &pages));
        let mut state = self.busy.state.lock();
        debug_assert!(state.change.is_none(), "one changes pages at a time");
        state.change = Some(pages.clone());
        let wait = being_read(&state);
        drop(state);
        let change = Change(&self.busy);
        if wait {
            self.busy.freed.wait_until(|| !being_read(&self.busy.state.lock()));
        }
        change
    }

    /// Waits until page `index` is neither being read in nor being changed. The caller has marked no page as busy, and
    /// does not hold `invalidate_lock`.
    pub(crate) fn wait_not_busy(&self, index: u64) {
        let page = index..index + 1;
        self.busy.freed.wait_until(|| !self.busy.state.lock().all().any(|b| overlap(b, &page)));
    }

    /// Waits until no page of the range is being read in. The caller excludes new page-ins.
    pub(super) fn wait_page_ins(&self, pages: Range<u64>) {
        let being_read = || self.busy.state.lock().reads.iter().any(|r| overlap(r, &pages));
        if being_read() {
            self.busy.freed.wait_until(|| !being_read());
        }
    }
}
