//! Growing bios that are sent as they are, and the waits for what was sent.

use super::growing::{Growing, LastBio};
use super::{Sender, WriteIo};
use crate::segment::log::{Log, LogId};
use std::sync::atomic::Ordering::SeqCst;
use tidegate_rt::{device_wait, trace::SpanPoint};
use tidegate_vfs::mapping::AddressSpace;

static WAIT_ON_NODES: SpanPoint<0> = SpanPoint::timed("f2fs_wait_on_node_pages_writeback", []);

impl WriteIo {
    /// Waits for bios that were begun before the call, beside others that are begun meanwhile. For a checkpoint
    /// before it freezes operations; one at a time.
    pub(crate) fn wait_begun(&self) {
        device_wait::check();
        let half = self.done.in_flight.turn();
        self.send_begun();
        self.done.in_flight.ended.wait_until(|| self.done.in_flight.is_over(half));
    }

    /// Waits for what Linux's checkpoint waits for. For callers that keep others from placing pages.
    pub(crate) fn wait_cp_data(&self) {
        device_wait::check();
        self.sent.wait_until(|| self.placing_cp_data.load(SeqCst) == 0);
        self.send_begun();
        self.done.in_flight.ended.wait_until(|| !self.done.in_flight.has_cp_data());
    }

    /// Sends every growing bio, also one that another thread begins at this moment: a bio is counted with its log
    /// locked, so one that comes to a log after this call is counted after it, too.
    fn send_begun(&self) {
        for log in LogId::of_bits(self.used.load(SeqCst)) {
            if let Some(g) = self.take_locked(log) {
                self.send(log, g, Sender::Queue);
            }
        }
    }

    /// Sends every growing bio, the last of them by `sender`.
    pub(crate) fn submit_all(&self, sender: Sender) {
        self.submit(self.growing.load(SeqCst), sender);
    }

    /// Sends the growing bios that have pages of a mapping, and leaves those of other logs alone.
    pub(crate) fn submit_of(&self, mapping: &AddressSpace, sender: Sender) {
        self.submit(mapping.gathered().load(SeqCst), sender);
    }

    /// Sends the growing bios of a set of logs, the last of them by `sender`.
    fn submit(&self, logs: u64, sender: Sender) {
        let mut last = None;
        for log in LogId::of_bits(logs) {
            let Some(g) = self.take(log) else { continue };
            // A bio is held back for the caller alone: the caller must not wait for a congested queue before
            // its next step.
            let now = match sender {
                Sender::Caller => last.replace(LastBio(log, g)),
                Sender::Queue => Some(LastBio(log, g)),
            };
            if let Some(LastBio(log, g)) = now {
                self.stats.stream_sent(log);
                self.send(log, g, Sender::Queue);
            }
        }
        self.send_last(last, sender);
    }

    /// Sends every growing bio and waits until the queue has all that anybody had taken to send. For callers
    /// that keep others from placing pages.
    pub(crate) fn send_all(&self) {
        device_wait::check();
        // In this order: a block that has a place may join a growing bio yet.
        self.sent.wait_until(|| self.placing.load(SeqCst) == 0);
        self.submit_all(Sender::Queue);
        self.unsent.none.wait_until(|| self.unsent.is_none());
    }

    /// Sends the growing bio of a log.
    pub(super) fn submit_log(&self, log: LogId) {
        if let Some(g) = self.take(log) {
            self.send(log, g, Sender::Queue);
        }
    }

    fn take(&self, log: LogId) -> Option<Growing> {
        // A thread that added something to it before this call has set the bit.
        if self.growing.load(SeqCst) & log.bit() == 0 {
            return None;
        }
        self.take_locked(log)
    }

    /// The growing bio of a log, looked for under the log's lock.
    fn take_locked(&self, log: LogId) -> Option<Growing> {
        let mut growing = self.logs[log.slot()].lock();
        (growing.blocks > 0).then(|| self.take_grown(&mut growing, log))
    }

    /// Sends what grows in the warm-node log and waits until every block added to it before the call is
    /// written.
    pub(crate) fn sync_chain(&self) {
        device_wait::check();
        let end = self.done.chain.next.load(SeqCst);
        if let Some(g) = self.take(Log::WarmNode.into()) {
            self.send(Log::WarmNode.into(), g, Sender::Caller);
        }
        let written = || self.done.chain.open.lock().first().is_none_or(|s| *s >= end);
        if !written() {
            let _span = WAIT_ON_NODES.enter([]);
            self.done.shorter.wait_until(written);
        }
    }
}
