//! The flusher thread writes dirty inodes when they are old, when too much is dirty, and when asked.

use crate::bdi::{Bdi, Completion, DIRTY_WRITEBACK_INTERVAL, Work, expired, until_now};
use crate::error::Result;
use crate::fs::{FileSystem, WritebackControl};
use crate::inode::Inode;
use crate::observe::Pass;
use crate::sync::SyncWait;
use crate::types::FileType;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;
use tidegate_rt::{
    Nanos, clock, thread,
    trace::{EventPoint, SpanPoint},
};

static WAIT_FOR_COMPLETION: SpanPoint<0> = SpanPoint::timed("wb_wait_for_completion", []);
static WB_SYNC: SpanPoint<1> = SpanPoint::new("wb_sync", ["wait"]);
static WB_START: SpanPoint<1> = SpanPoint::new("wb_start", ["pages"]);
static WB_BACKGROUND: SpanPoint<1> = SpanPoint::new("wb_background", ["dirty"]);
static WRITEBACK_START: EventPoint<2> = EventPoint::new("writeback_start", ["reason", "dirty"]);
static WRITEBACK_WRITTEN: EventPoint<1> = EventPoint::new("writeback_written", ["pages"]);
static SINGLE_INODE: SpanPoint<2> = SpanPoint::new("writeback_single_inode", ["ino", "dirty"]);
static FDATAWAIT: SpanPoint<1> = SpanPoint::timed("filemap_fdatawait", ["ino"]);

/// The number of pages of one inode that are written before the next inode's turn, in a pass that no thread
/// waits for.
const MAX_WRITEBACK_PAGES: u64 = 4096;
/// The number of pages of one inode that are written after a failure. It is small because each try takes new
/// places on the volume, and the number of places is limited.
const PROBE_PAGES: u64 = 16;
/// The first pause between two tries after a failure.
const MIN_PAUSE: Duration = Duration::from_millis(20);

/// The reason for a pass.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reason {
    /// A thread asks for everything, and will ask again to wait for it.
    Start { before: Nanos },
    /// A thread asks for everything.
    Sync { wait: bool },
    /// Too much is dirty.
    Background,
    /// Some dirty pages are old.
    Age,
}

impl From<Reason> for Pass {
    fn from(why: Reason) -> Pass {
        match why {
            Reason::Start { .. } | Reason::Sync { .. } => Pass::Sync,
            Reason::Background => Pass::Background,
            Reason::Age => Pass::Periodic,
        }
    }
}

/// A running flusher.
pub(crate) struct Flusher {
    bdi: Arc<Bdi>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Flusher {
    pub(crate) fn start(fs: Arc<dyn FileSystem>, bdi: Arc<Bdi>, periodic: bool) -> std::io::Result<Self> {
        let b = bdi.clone();
        let thread = thread::spawn("tg-flusher", move || run(&*fs, &b, periodic))?;
        Ok(Flusher { bdi, thread: Some(thread) })
    }

    /// Has all dirty pages written, and returns when they are submitted; for the position `flusher`, when they are
    /// written. As in Linux, a pass of WB_SYNC_NONE goes first, in which inodes take turns, so that the pass of
    /// WB_SYNC_ALL finds little to do. The position `epoch` does without that pass: its one pass submits everything and
    /// waits for nothing.
    ///
    /// # Errors
    /// The first error of submitting. All pages were tried.
    pub(crate) fn sync(&self, how: SyncWait) -> Result<()> {
        let done = Arc::new(Completion::default());
        let work = Work::Sync { wait: how == SyncWait::Flusher, done: done.clone() };
        let start = Work::Start { pages: self.bdi.nr_dirty.load(SeqCst), before: until_now() };
        let mut l = self.bdi.lists.lock();
        if how != SyncWait::Epoch {
            l.work.push_back(start);
        }
        l.work.push_back(work);
        drop(l);
        self.bdi.flusher.notify_one();
        let _span = WAIT_FOR_COMPLETION.enter([]);
        done.wait()
    }
}

impl Drop for Flusher {
    fn drop(&mut self) {
        self.bdi.lists.lock().shutdown = true;
        self.bdi.flusher.notify_all();
        if let Some(t) = self.thread.take() {
            t.join();
        }
    }
}

fn run(fs: &dyn FileSystem, bdi: &Arc<Bdi>, periodic: bool) {
    tidegate_block::wbt::writes_back();
    let mut due = clock::now() + DIRTY_WRITEBACK_INTERVAL;
    loop {
        let mut l = bdi.lists.lock();
        while l.work.is_empty() && !l.shutdown && !bdi.over_background() {
            let left = due.since(clock::now());
            if left == Nanos::default() {
                break;
            }
            bdi.flusher.wait_for(&mut l, left.duration());
        }
        let work = l.work.pop_front();
        let shutdown = l.shutdown;
        drop(l);
        match work {
            Some(Work::Start { pages, before }) => start(fs, bdi, pages, before),
            Some(Work::Sync { wait, done }) => {
                let _span = WB_SYNC.enter([wait as u64]);
                let (_, result) = pass(fs, bdi, Reason::Sync { wait }, u64::MAX);
                bdi.judge_pass();
                done.complete(result);
            }
            None if shutdown => return,
            None => {
                // The work of each interval is done also beside a writer that never stops, and so before the rest.
                let now = clock::now();
                if now >= due {
                    due = now + DIRTY_WRITEBACK_INTERVAL;
                    if periodic {
                        let _ = pass(fs, bdi, Reason::Age, u64::MAX);
                        bdi.judge_pass();
                        fs.periodic();
                    }
                }
                if bdi.over_background() {
                    background(fs, bdi, due);
                }
            }
        }
    }
}

/// Writes pages that were dirty when a sync began, as far as possible without waiting. An inode that is
/// dirtied again and again does not prolong the pass: it ends after as many pages as were dirty.
fn start(fs: &dyn FileSystem, bdi: &Arc<Bdi>, mut pages: u64, before: Nanos) {
    let _span = WB_START.enter([pages]);
    while pages > 0 {
        let (wrote, _) = pass(fs, bdi, Reason::Start { before }, pages);
        pages = pages.saturating_sub(wrote);
        // Pages that could not be written are left to the pass that a thread waits for.
        if bdi.judge_pass() > 0 || wrote == 0 {
            break;
        }
    }
}

/// Writes until the dirty pages are below the background threshold, or until the work of the interval is due: a writer
/// that is faster than the device can keep more dirty for ever.
fn background(fs: &dyn FileSystem, bdi: &Arc<Bdi>, due: Nanos) {
    let _span = WB_BACKGROUND.enter([bdi.dirty_bytes()]);
    while bdi.over_background() && bdi.lists.lock().work.is_empty() {
        let (wrote, _) = pass(fs, bdi, Reason::Background, u64::MAX);
        bdi.stuck.store(wrote == 0, SeqCst);
        let failed = bdi.judge_pass();
        if wrote == 0 || failed > 0 {
            // No page could be written (a full or failing device): try again, but not in a tight loop.
            pause(bdi, MIN_PAUSE * 2u32.pow(failed.clamp(1, 6) - 1));
            break;
        }
        // One pass is made in any case: the work of the interval may itself take as long.
        if clock::now() >= due {
            break;
        }
    }
}

/// Waits for `time`, unless there is a request.
fn pause(bdi: &Bdi, time: Duration) {
    let end = clock::now() + time;
    bdi.stats.waiting();
    let mut l = bdi.lists.lock();
    while l.work.is_empty() && !l.shutdown {
        let left = end.since(clock::now());
        if left == Nanos::default() {
            break;
        }
        bdi.flusher.wait_for(&mut l, left.duration());
    }
    drop(l);
    bdi.stats.idle();
}

/// One turn over the dirty inodes, of at most about `most` pages. Returns the number of pages written, and the first
/// error of submitting. In the background it ends as soon as little enough is dirty: an inode that was not reached then
/// has more to write next time, in one piece.
fn pass(fs: &dyn FileSystem, bdi: &Arc<Bdi>, why: Reason, most: u64) -> (u64, Result<()>) {
    let mean = bdi.queue_io(match why {
        Reason::Start { before } => before,
        Reason::Sync { .. } | Reason::Background => until_now(),
        Reason::Age => expired(),
    });
    // In the background, an inode with fewer dirty pages than the others is left to grow, unless writes are
    // failing: streams that are written at the same time should not be cut into small pieces.
    let few = if why == Reason::Background && !bdi.is_failing() { mean } else { 0 };
    let (mut written, mut result) = (0, Ok(()));
    bdi.stats.pass(why.into());
    WRITEBACK_START.record([Pass::from(why) as u64, bdi.dirty_bytes()]);
    loop {
        let Some(inode) = bdi.lists.lock().b_io.pop_front() else { break };
        if (1..few).contains(&inode.mapping.nr_dirty()) && !bdi.is_old(&inode) {
            bdi.lists.lock().b_more_io.push_back(inode);
            continue;
        }
        let (n, r) = writeback_single_inode(fs, bdi, &inode, why);
        written += n;
        result = result.and(r);
        let enough = match why {
            Reason::Start { .. } => written >= most,
            Reason::Sync { .. } => false,
            Reason::Background => bdi.well_below_background(),
            Reason::Age => bdi.lists.lock().shutdown,
        };
        if enough {
            break;
        }
    }
    bdi.submit_pending();
    bdi.stats.idle();
    WRITEBACK_WRITTEN.record([written]);
    (written, result)
}

/// Writes one inode of a pass. Returns the number of pages written, and the result of submitting them.
fn writeback_single_inode(
    fs: &dyn FileSystem,
    bdi: &Arc<Bdi>,
    inode: &Arc<Inode>,
    why: Reason,
) -> (u64, Result<()>) {
    // The inode leaves the list first: a page that is dirtied from here on puts it back.
    inode.listed.store(false, SeqCst);
    // An fsync has already written the pages. Inodes of other kinds still go to the file system, which may
    // have work to do after the last page.
    if inode.file_type == FileType::Regular && !inode.internal && inode.mapping.is_idle() {
        return (0, Ok(()));
    }
    bdi.stats.at(inode.ino);
    let _span = SINGLE_INODE.enter([inode.ino.0, inode.mapping.nr_dirty()]);
    let most = if bdi.is_failing() { PROBE_PAGES } else { MAX_WRITEBACK_PAGES };
    let mut wbc = match why {
        Reason::Sync { .. } => WritebackControl::sync(),
        Reason::Start { .. } | Reason::Background | Reason::Age => WritebackControl::background(most),
    };
    wbc.more_follow = true;
    let submitted = fs.writepages(inode, &mut wbc);
    if why == (Reason::Sync { wait: true }) {
        let _span = FDATAWAIT.enter([inode.ino.0]);
        inode.mapping.wait_writeback(0, u64::MAX);
    }
    if submitted.is_err() {
        // The pages are dirty again, which may have listed the inode, and the mapping has the error, for fsync.
        if !inode.listed.swap(true, SeqCst) {
            bdi.lists.lock().b_dirty.push_back(inode.clone());
        }
        return (wbc.written, submitted);
    }
    if inode.mapping.nr_dirty() > 0 && !inode.listed.swap(true, SeqCst) {
        bdi.lists.lock().b_more_io.push_back(inode.clone());
    }
    (wbc.written, Ok(()))
}
