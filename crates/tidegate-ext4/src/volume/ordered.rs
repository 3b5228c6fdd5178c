//! Data that has to be on the device before the transaction commits that gives it a place (`data=ordered`).
//!
//! A pass that gives pages places says so while its handle is open, and no commit of that transaction goes on before the
//! pages are on the device: a power cut leads to no block that holds what another file left there.

use std::collections::BTreeMap;
use std::sync::Arc;
use tidegate_jbd2::{CommitHooks, Tid};
use tidegate_rt::{LockClass, Mutex, WaitQueue};
use tidegate_vfs::Result;

static ORDERED: LockClass = LockClass::new("ext4->ordered", 598);

/// Runs of pages on their way, by transaction.
pub(crate) struct Ordered {
    runs: Mutex<BTreeMap<u32, usize>>,
    ended: WaitQueue,
}

/// A run of pages; on the device when it is dropped.
pub(crate) struct OnWay {
    of: Arc<Ordered>,
    tid: Tid,
}

impl Ordered {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Ordered { runs: Mutex::new(&ORDERED, BTreeMap::new()), ended: WaitQueue::new() })
    }

    /// A run gets its place in `tid`, whose handle the caller has. What follows needs no handle.
    pub(crate) fn begin(self: &Arc<Self>, tid: Tid) -> OnWay {
        *self.runs.lock().entry(tid.0).or_default() += 1;
        OnWay { of: self.clone(), tid }
    }
}

impl Drop for OnWay {
    fn drop(&mut self) {
        let mut runs = self.of.runs.lock();
        let left = runs.get_mut(&self.tid.0).map_or(0, |n| {
            *n -= 1;
            *n
        });
        if left == 0 {
            runs.remove(&self.tid.0);
            drop(runs);
            self.of.ended.wake_all();
        }
    }
}

impl CommitHooks for Ordered {
    fn flush_data(&self, tid: Tid) -> Result<()> {
        self.ended.wait_until(|| !self.runs.lock().contains_key(&tid.0));
        Ok(())
    }
}
