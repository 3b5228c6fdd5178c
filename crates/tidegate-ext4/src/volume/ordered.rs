//! Data that must be on the device before the commit of the transaction that gives it a place
//! (`data=ordered`).
//!
//! A pass that gives pages places announces them while its handle is open. The transaction's commit does not
//! go on before the pages are on the device, so after a power cut no file has a block with another file's old
//! content. If the pages do not arrive, the commit fails, and the journal is aborted; Linux has unwritten
//! extents until then and goes on.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use tidegate_block::SharedPlug;
use tidegate_jbd2::{CommitHooks, Tid};
use tidegate_rt::{LockClass, Mutex, WaitQueue};
use tidegate_vfs::{Error, ErrorKind, Result};

static ORDERED: LockClass = LockClass::new("ext4->ordered", 598);

/// Runs of pages that one transaction gave places.
#[derive(Default)]
struct Runs {
    on_way: usize,
    /// A run did not reach the device.
    lost: bool,
}

/// Runs of pages on their way, by transaction.
pub(crate) struct Ordered {
    runs: Mutex<BTreeMap<u32, Runs>>,
    ended: WaitQueue,
    /// A plug that may hold some of the runs.
    plug: Arc<SharedPlug>,
    /// Number of times that runs joined the plug.
    joins: AtomicU64,
}

/// A run of pages. When it is dropped, it is on the device or lost.
pub(crate) struct OnWay {
    of: Arc<Ordered>,
    tid: Tid,
    arrived: AtomicBool,
}

impl OnWay {
    /// Notes that the whole run is on the device.
    pub(crate) fn arrived(&self) {
        self.arrived.store(true, Relaxed);
    }
}

impl Ordered {
    pub(super) fn new(plug: Arc<SharedPlug>) -> Arc<Self> {
        let runs = Mutex::new(&ORDERED, BTreeMap::new());
        Arc::new(Ordered { runs, ended: WaitQueue::new(), plug, joins: AtomicU64::new(0) })
    }

    /// Notes that runs joined the plug: a commit that waits for them sends it.
    pub(crate) fn joined(&self) {
        self.joins.fetch_add(1, SeqCst);
        self.ended.wake_all();
    }

    /// Notes that a run gets its place in `tid`, whose handle the caller has. The rest needs no handle.
    pub(crate) fn begin(self: &Arc<Self>, tid: Tid) -> OnWay {
        self.runs.lock().entry(tid.0).or_default().on_way += 1;
        OnWay { of: self.clone(), tid, arrived: AtomicBool::new(false) }
    }
}

impl Drop for OnWay {
    fn drop(&mut self) {
        let mut all = self.of.runs.lock();
        let runs = all.entry(self.tid.0).or_default();
        runs.on_way = runs.on_way.saturating_sub(1);
        runs.lost |= !*self.arrived.get_mut();
        if runs.on_way > 0 {
            return;
        }
        if !runs.lost {
            all.remove(&self.tid.0);
        }
        drop(all);
        self.of.ended.wake_all();
    }
}

impl CommitHooks for Ordered {
    fn before_wait(&self) {
        // Bios in the plug hold credits that are kept for their end.
        self.plug.send_awaited();
    }

    fn flush_data(&self, tid: Tid) -> Result<()> {
        let ended = || self.runs.lock().get(&tid.0).is_none_or(|r| r.on_way == 0);
        while !ended() {
            let sent = self.joins.load(SeqCst);
            self.plug.send_awaited();
            // A run that has its place may join the plug later.
            self.ended.wait_until(|| ended() || self.joins.load(SeqCst) != sent);
        }
        match self.runs.lock().remove(&tid.0) {
            Some(_) => Err(Error::new(
                ErrorKind::Io,
                format!("file data that transaction {tid} gives places did not get to the device"),
            )),
            None => Ok(()),
        }
    }
}
