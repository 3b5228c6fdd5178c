//! A volume's write-back state: dirty inodes, memory thresholds, throttling.

use crate::error::{Error, ErrorKind, Result};
use crate::inode::Inode;
use crate::mapping::AddressSpace;
use crate::observe::WbStats;
use crate::reclaim::Clock;
use crate::sync::Epochs;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tidegate_block::PAGE_SIZE;
use tidegate_rt::{Condvar, LockClass, Mutex, Nanos, WaitQueue, clock, device_wait, trace::SpanPoint};

static BALANCE: SpanPoint<1> = SpanPoint::new("balance_dirty_pages", ["dirty"]);

static LIST_LOCK: LockClass = LockClass::new("wb->list_lock", 640);

/// How much memory a volume may use, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct MemoryLimits {
    /// Cached pages, clean and dirty.
    pub cache: u64,
    /// Bytes of dirty and write-back pages above which writers wait.
    pub dirty: u64,
    /// Bytes of dirty pages above which the flusher starts by itself.
    pub background: u64,
    /// Inodes in memory (a number, not bytes).
    pub inodes: usize,
}

impl Default for MemoryLimits {
    // Small files have a node for each page: a pass of the flusher needs as much memory for nodes as is dirty.
    fn default() -> Self {
        MemoryLimits { cache: 64 << 20, dirty: 24 << 20, background: 16 << 20, inodes: 8192 }
    }
}

impl MemoryLimits {
    /// The limits for a machine with so many bytes of memory, as Linux computes them from `dirty_ratio` (20)
    /// and `dirty_background_ratio` (10). All of the memory counts as dirtyable.
    pub const fn of_machine(memory: u64) -> Self {
        MemoryLimits {
            cache: memory,
            dirty: memory / 5,
            background: memory / 10,
            // The number for which an inode, its name and one page fit in memory.
            inodes: (memory / 8192) as usize,
        }
    }

    /// Limits with a cache of so many bytes, and with the dirty limits in the same proportion to it as now.
    pub fn with_cache(self, cache: u64) -> Self {
        let part = |of: u64| (u128::from(cache) * u128::from(of) / u128::from(self.cache.max(1))) as u64;
        MemoryLimits { cache, dirty: part(self.dirty), background: part(self.background), ..self }
    }
}

/// The interval at which the flusher looks at dirty inodes, and how old they must be to be written.
pub(crate) const DIRTY_WRITEBACK_INTERVAL: Duration = Duration::from_secs(5);
/// Failed passes after which a writer no longer waits.
const VAIN_PASSES: u64 = 3;
const DIRTY_EXPIRE_INTERVAL: Duration = Duration::from_secs(30);

/// A request to the flusher.
pub(crate) enum Work {
    /// Write at most `pages` pages that were dirtied before `before`, as WB_SYNC_NONE: inodes take turns.
    Start { pages: u64, before: Nanos },
    /// Write everything dirtied before now, as WB_SYNC_ALL. With `wait`, wait for the pages of each inode
    /// before the next.
    Sync { wait: bool, done: Arc<Completion> },
}

/// The result of a request. It is set once, and any number of threads may wait for it.
#[derive(Default)]
pub(crate) struct Completion {
    result: OnceLock<Result<()>>,
    queue: WaitQueue,
}

impl Completion {
    pub(crate) fn complete(&self, result: Result<()>) {
        let _ = self.result.set(result);
        self.queue.wake_all();
    }
    pub(crate) fn wait(&self) -> Result<()> {
        self.queue.wait_until(|| self.result.get().is_some());
        self.result.get().cloned().unwrap_or(Ok(()))
    }
}

#[derive(Default)]
pub(crate) struct Lists {
    /// Dirty inodes, oldest first.
    pub(crate) b_dirty: VecDeque<Arc<Inode>>,
    /// Inodes to be written in this pass.
    pub(crate) b_io: VecDeque<Arc<Inode>>,
    /// Inodes that were not finished in this pass.
    pub(crate) b_more_io: VecDeque<Arc<Inode>>,
    /// The volume is gone: no inode is listed any more.
    pub forgotten: bool,
    pub(crate) work: VecDeque<Work>,
    pub(crate) shutdown: bool,
}

/// Submits bios whose pages have a place: those of a mapping, or all. The flag says whether the caller then
/// waits for them.
type SubmitPending = dyn Fn(Option<&AddressSpace>, bool) + Send + Sync;

/// The write-back state of one volume.
pub struct Bdi {
    limits: MemoryLimits,
    pub(crate) nr_pages: AtomicU64,
    pub(crate) nr_dirty: AtomicU64,
    pub(crate) nr_writeback: AtomicU64,
    pub(crate) epochs: Epochs,
    pub(crate) lists: Mutex<Lists>,
    pub(crate) flusher: Condvar,
    /// Threads that wait over the dirty limit after they changed names or attributes.
    throttled: WaitQueue,
    /// Threads that wait over the dirty limit to write data.
    writers: WaitQueue,
    /// A whole pass could write nothing: a wait for it would never end.
    pub(crate) stuck: AtomicBool,
    /// The number of pages whose write failed, each counted as often as it failed.
    nr_failed: AtomicU64,
    /// The value of `nr_failed` when the flusher last looked.
    seen_failed: AtomicU64,
    /// The number of consecutive passes that failed, at least in part.
    failing: AtomicU32,
    /// The number of all passes that failed.
    failed_passes: AtomicU64,
    /// Submits bios that a file system has gathered.
    submit_pending: OnceLock<Box<SubmitPending>>,
    /// How often pages of any mapping joined bios that were not submitted.
    joins: AtomicU64,
    /// Figures that nothing depends on.
    pub(crate) stats: WbStats,
    pub(crate) clock: Clock,
}

impl Bdi {
    /// Write-back state with nothing dirty.
    pub fn new(limits: MemoryLimits) -> Arc<Self> {
        Arc::new(Bdi {
            limits,
            nr_pages: AtomicU64::new(0),
            nr_dirty: AtomicU64::new(0),
            nr_writeback: AtomicU64::new(0),
            epochs: Epochs::default(),
            lists: Mutex::new(&LIST_LOCK, Lists::default()),
            flusher: Condvar::new(),
            throttled: WaitQueue::new(),
            writers: WaitQueue::new(),
            stuck: AtomicBool::new(false),
            nr_failed: AtomicU64::new(0),
            seen_failed: AtomicU64::new(0),
            failing: AtomicU32::new(0),
            failed_passes: AtomicU64::new(0),
            submit_pending: OnceLock::new(),
            joins: AtomicU64::new(0),
            stats: WbStats::default(),
            clock: Clock::default(),
        })
    }

    /// Sets the function with which a file system submits the bios that it gathers. The function is called
    /// before a thread waits for write-back, with no lock of the page cache held. It gets the mapping whose
    /// pages the thread waits for, or none for all mappings, and `true` if the calling thread is the one that
    /// then waits.
    pub fn set_submit_pending(&self, f: impl Fn(Option<&AddressSpace>, bool) + Send + Sync + 'static) {
        let _ = self.submit_pending.set(Box::new(f));
    }

    /// Drops every inode on the lists: the volume goes away.
    pub(crate) fn forget(&self) {
        let mut l = self.lists.lock();
        let (dirty, io) = (std::mem::take(&mut l.b_dirty), std::mem::take(&mut l.b_io));
        let more = std::mem::take(&mut l.b_more_io);
        l.forgotten = true;
        drop(l);
        drop((dirty, io, more));
        self.clock.clear();
    }

    /// Submits gathered bios.
    pub fn submit_pending(&self) {
        if let Some(f) = self.submit_pending.get() {
            f(None, false);
        }
    }

    /// Submits gathered bios of one mapping, or of all if none is named, for a caller that then waits for
    /// them.
    pub(crate) fn submit_pending_here(&self, of: Option<&AddressSpace>) {
        if let Some(f) = self.submit_pending.get() {
            f(of, true);
        }
    }

    /// Submits gathered bios, of a mapping if one is named, and waits until `done`; ends of I/O wake `ended`.
    /// A page is under write-back before it joins a bio, and the thread that adds it may then have to wait
    /// for the calling thread. So bios with pages that join later ([`AddressSpace::joined`]) are submitted
    /// here, too.
    #[track_caller]
    pub(crate) fn wait_sending(&self, of: Option<&AddressSpace>, ended: &WaitQueue, done: impl Fn() -> bool) {
        device_wait::check();
        let joins = || of.map_or(&self.joins, |m| &m.joins).load(SeqCst);
        while !done() {
            let sent = joins();
            self.submit_pending_here(of);
            ended.wait_until(|| done() || joins() != sent);
        }
    }

    /// Notes that pages of some mapping joined bios that are not submitted.
    pub(crate) fn joined(&self) {
        self.joins.fetch_add(1, SeqCst);
        self.epochs.drained.wake_all();
    }

    /// The memory limits.
    pub fn limits(&self) -> &MemoryLimits {
        &self.limits
    }

    /// Dirty bytes.
    pub fn dirty_bytes(&self) -> u64 {
        self.nr_dirty.load(Relaxed) * PAGE_SIZE as u64
    }

    /// Bytes under write-back.
    pub fn writeback_bytes(&self) -> u64 {
        self.nr_writeback.load(Relaxed) * PAGE_SIZE as u64
    }

    /// Cached bytes.
    pub fn cached_bytes(&self) -> u64 {
        self.nr_pages.load(Relaxed) * PAGE_SIZE as u64
    }

    /// Puts an inode with dirty pages on the list, and its mapping on the reclaim clock. Takes
    /// `wb->list_lock` only when the inode is not listed yet.
    pub fn mark_dirty(&self, inode: &Arc<Inode>) {
        self.cached(inode);
        if !inode.listed.swap(true, SeqCst) {
            inode.dirtied_when.store(clock::now().0, Relaxed);
            let mut l = self.lists.lock();
            // A list from which no thread takes inodes any more would keep the inode in memory for ever.
            if !l.forgotten {
                l.b_dirty.push_back(inode.clone());
            }
        }
    }

    fn over(&self, limit: u64) -> bool {
        self.dirty_bytes() + self.writeback_bytes() > limit
    }

    /// Whether the flusher should write without being asked.
    pub(crate) fn over_background(&self) -> bool {
        self.dirty_bytes() > self.limits.background
    }

    /// Whether a pass in the background has done enough: it ends an eighth below the threshold, so that it
    /// writes many small files together and not each as it comes.
    pub(crate) fn well_below_background(&self) -> bool {
        self.dirty_bytes() <= self.limits.background - self.limits.background / 8
    }

    /// Called by threads that dirtied pages, with no lock held. Starts the flusher above the background
    /// threshold, waits above the dirty limit, and reclaims clean pages above the cache limit. When pages
    /// cannot be written, the wait ends; [`Bdi::admit`] then refuses more.
    pub fn balance_dirty_pages(&self) {
        self.balance(|| self.wait_for_room(&self.throttled, || self.limits.dirty));
    }

    /// As [`Bdi::balance_dirty_pages`], for threads that wrote data: they wait as [`Bdi::admit`] does.
    pub fn balance_written_pages(&self) {
        self.balance(|| self.admit());
    }

    fn balance(&self, wait: impl FnOnce() -> Result<()>) {
        if self.over_background() {
            self.flusher.notify_one();
        }
        // An error is ignored, as this change is already made: the next one is refused.
        let _ = wait();
        self.shrink();
    }

    /// Called by threads that are about to dirty pages, with no lock held. Waits while too many are dirty.
    ///
    /// # Errors
    /// `Io` when passes of the flusher fail meanwhile: memory would fill with pages that cannot be written.
    pub fn admit(&self) -> Result<()> {
        self.wait_for_room(&self.writers, || self.writers_limit())
    }

    /// Waits in `queue` until dirty pages and write-back are within `limit`.
    fn wait_for_room(&self, queue: &WaitQueue, limit: impl Fn() -> u64) -> Result<()> {
        if self.over(self.limits.dirty) {
            let failed = self.failed_passes.load(SeqCst);
            let _span = BALANCE.enter([self.dirty_bytes()]);
            // Where writes fail, a pass that could write nothing is no reason to admit more.
            let stuck = || self.stuck.load(SeqCst) && !self.is_failing();
            let free = || !self.over(limit()) || stuck();
            while !queue.wait_timeout(Duration::from_millis(100), free) {
                // Threads of the other queue, or pages that cannot be written, may keep the sum above `limit` for ever.
                if !self.over(self.limits.dirty) {
                    break;
                }
                if self.failed_passes.load(SeqCst) - failed >= VAIN_PASSES {
                    let what = "too much is in memory that could not be written";
                    return Err(Error::new(ErrorKind::Io, what));
                }
                self.flusher.notify_one();
            }
        }
        Ok(())
    }

    /// The number of bytes at which waiting writers go on. For a single writer it is the dirty limit. If several
    /// writers went on there, each end of I/O would wake all of them for one write each. So several writers wait until
    /// the sum is an eighth of the way down to `background`.
    fn writers_limit(&self) -> u64 {
        let MemoryLimits { dirty, background, .. } = self.limits;
        let several = self.writers.waiters() > 1;
        dirty - if several { dirty.saturating_sub(background) / 8 } else { 0 }
    }

    pub(crate) fn write_failed(&self, pages: u64) {
        self.nr_failed.fetch_add(pages, SeqCst);
    }

    /// Called by the flusher after a pass. Returns how many consecutive passes, this one included, have
    /// failed.
    pub(crate) fn judge_pass(&self) -> u32 {
        let now = self.nr_failed.load(SeqCst);
        if self.seen_failed.swap(now, SeqCst) == now {
            self.failing.store(0, SeqCst);
            return 0;
        }
        self.failed_passes.fetch_add(1, SeqCst);
        self.failing.fetch_add(1, SeqCst) + 1
    }

    /// Whether the flusher's last pass failed.
    pub(crate) fn is_failing(&self) -> bool {
        self.failing.load(SeqCst) > 0
    }

    pub(crate) fn writeback_ended(&self) {
        if !self.over(self.limits.dirty) {
            self.throttled.wake_all();
        }
        if !self.over(self.writers_limit()) {
            self.writers.wake_all();
        }
    }

    /// Whether an inode has been dirty for longer than the expiry.
    pub(crate) fn is_old(&self, inode: &Inode) -> bool {
        dirtied_before(inode, expired())
    }

    /// Takes the inodes for a pass: those that were not finished, and those dirtied before `before`. Returns
    /// their mean number of dirty pages: at least one inode has that many. The file system's own inodes do
    /// not count: they are few, have more pages than any file, and nodes that are written before the data
    /// that changes them again are written twice.
    pub(crate) fn queue_io(&self, before: Nanos) -> u64 {
        let mut l = self.lists.lock();
        let more = std::mem::take(&mut l.b_more_io);
        l.b_io.extend(more);
        while let Some(i) = l.b_dirty.front() {
            if !dirtied_before(i, before) {
                break;
            }
            let i = l.b_dirty.pop_front();
            l.b_io.extend(i);
        }
        l.b_io.make_contiguous().sort_by_key(|i| i.internal);
        let of_files = l.b_io.iter().take_while(|i| !i.internal).map(|i| i.mapping.nr_dirty());
        let (most, sum, n) = of_files.fold((0, 0, 0), |(m, s, n), d| (d.max(m), s + d, n + 1));
        most.min(sum / n.max(1))
    }
}

/// The time before which all pages that are dirty now were dirtied.
pub(crate) fn until_now() -> Nanos {
    Nanos(clock::now().0 + 1)
}

/// Pages that were dirtied before this time have been dirty for at least the expiry.
pub(crate) fn expired() -> Nanos {
    Nanos(until_now().0.saturating_sub(DIRTY_EXPIRE_INTERVAL.as_nanos() as u64))
}

fn dirtied_before(inode: &Inode, before: Nanos) -> bool {
    inode.dirtied_when.load(Relaxed) < before.0
}

#[cfg(test)]
#[path = "bdi_tests.rs"]
mod pinned;
