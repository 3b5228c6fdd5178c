//! The thread that cleans in the background, and discards or resets segments that checkpoints freed.

use crate::volume::options::BackgroundGc;
use crate::volume::sbi::F2fs;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tidegate_rt::{clock, thread};
use tidegate_vfs::Result;

/// The sleep between two rounds, which depends on the state of the volume.
const MIN_SLEEP: Duration = Duration::from_secs(30);
const MAX_SLEEP: Duration = Duration::from_secs(60);
const NO_GC_SLEEP: Duration = Duration::from_secs(300);
const URGENT_SLEEP: Duration = Duration::from_millis(500);
/// The volume counts as idle after this time without a bio.
const IDLE: Duration = Duration::from_millis(200);

/// Discards begin after this time without a bio, as with the kernel's `discard_idle_interval`.
const DISCARD_IDLE: Duration = Duration::from_secs(5);

impl F2fs {
    /// Starts the thread, unless the volume is read-only or its bytes must not depend on the clock. Where the
    /// system gives no thread, only writers clean.
    pub(crate) fn start_gc_thread(&self) {
        let Some(owner) = self.gc.owner.get().cloned() else { return };
        if self.gc.deterministic || self.why_read_only().is_some() {
            return;
        }
        let mut t = self.gc.thread.lock();
        t.running = thread::spawn("tg-f2fs-gc", move || run(&owner)).ok();
    }

    /// Sleeps for `d`; resets zones or discards meanwhile when it is time for that. False when the thread is
    /// to end.
    fn gc_sleep(&self, d: Duration) -> bool {
        let until = clock::now() + d;
        let mut seen = (self.bios(), clock::now());
        let mut t = self.gc.thread.lock();
        loop {
            if t.stop {
                return false;
            }
            if std::mem::take(&mut t.has_zones) {
                drop(t);
                self.reset_zones();
                t = self.gc.thread.lock();
                continue;
            }
            let (now, bios) = (clock::now(), self.bios());
            if bios != seen.0 {
                seen = (bios, now);
            }
            let mut left = until.since(now).duration();
            if t.has_discards {
                let wait = if self.switches.discard_io_aware() { DISCARD_IDLE } else { Duration::ZERO };
                let quiet = now.since(seen.1).duration();
                if quiet >= wait {
                    t.has_discards = false;
                    drop(t);
                    let all = self.discard_until_busy();
                    t = self.gc.thread.lock();
                    t.has_discards |= !all;
                    seen.1 = clock::now();
                    continue;
                }
                left = left.min(wait - quiet);
            }
            if until <= now {
                return true;
            }
            self.gc.wake.wait_for(&mut t, left);
        }
    }

    /// Discards until all is done, or until other bios need the device, where that matters; true if all is
    /// done.
    fn discard_until_busy(&self) -> bool {
        let before = self.bios();
        while self.discard_some() {
            if self.switches.discard_io_aware() && self.bios() != before {
                return false;
            }
        }
        true
    }

    /// Bios for reads and writes since the volume was opened.
    fn bios(&self) -> u64 {
        let s = self.queue.stats();
        s.read_bios + s.write_bios
    }

    /// Whether no bio went to the device for a moment; `None` when the thread is to end.
    fn is_idle(&self) -> Option<bool> {
        let before = self.bios();
        self.gc_sleep(IDLE).then(|| self.bios() == before)
    }

    /// One round of the thread; returns the sleep after it.
    fn background_gc(&self, sleep: Duration) -> Result<Option<Duration>> {
        let how = self.switches.background_gc();
        // The checkpoint after cleaning cannot be written until failed pages are.
        let failing = !self.write_io.failed_pages.is_empty();
        if how == BackgroundGc::Off || failing || self.why_read_only().is_some() {
            return Ok(Some(MAX_SLEEP));
        }
        let urgent = self.is_short(super::AHEAD);
        if !urgent {
            match self.is_idle() {
                None => return Ok(None),
                Some(false) => return Ok(Some((sleep + MIN_SLEEP).min(MAX_SLEEP))),
                Some(true) => {}
            }
        }
        let found = self.garbage_collect(urgent || how == BackgroundGc::Sync)?;
        Ok(Some(match found {
            false => NO_GC_SLEEP,
            true if urgent => URGENT_SLEEP,
            true => MIN_SLEEP,
        }))
    }
}

fn run(owner: &Weak<F2fs>) {
    let mut sleep = MIN_SLEEP;
    // The mount that started the thread holds the volume until it has joined the thread.
    let Some(fs): Option<Arc<F2fs>> = owner.upgrade() else { return };
    while fs.gc_sleep(sleep) {
        sleep = match fs.background_gc(sleep) {
            Ok(None) => return,
            Ok(Some(next)) => next,
            Err(_) => MAX_SLEEP,
        };
    }
}
