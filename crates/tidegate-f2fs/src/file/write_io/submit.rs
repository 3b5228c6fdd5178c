//! Submission of growing bios, and the waits for bios that were sent.

use super::growing::{Growing, LastBio, Placed, Then};
use super::{Sender, WriteIo};
use crate::format::units::BlockAddr;
use crate::segment::log::{Log, LogId};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, OnceLock};
use tidegate_block::{BioFlags, Errno, Segment};
use tidegate_rt::{WaitQueue, device_wait, trace::SpanPoint};
use tidegate_vfs::Inode;
use tidegate_vfs::mapping::AddressSpace;

/// The submission at the end of a pass of the bio that it holds back.
static SUBMIT_MERGED: SpanPoint<1> = SpanPoint::new("f2fs_submit_merged_write", ["log"]);
static WAIT_ON_NODES: SpanPoint<0> = SpanPoint::timed("f2fs_wait_on_node_pages_writeback", []);

/// The growing bios to send, and the thread that carries out the last of them.
pub(crate) enum Grown<'a> {
    /// Every growing bio.
    All(Sender),
    /// Every growing bio, also one that another thread begins at this moment. A bio is counted with its log
    /// locked, so a bio that comes to a log after the call is also counted after it.
    Begun,
    /// The bios with pages of a mapping; bios of other logs are left alone.
    Of(&'a AddressSpace, Sender),
    /// The bio of a log.
    Log(LogId, Sender),
    /// The bio of a log at the end of a pass over an inode, as Linux sends it: with the bio locked, whichever
    /// inode's pages are in it.
    Locked(LogId, &'a Arc<Inode>),
    /// The bio that a pass over a file has held back.
    Last(Option<LastBio>, Sender),
}

impl WriteIo {
    /// Sends bios. Waits only for room in the queue.
    pub(crate) fn submit(&self, which: Grown<'_>) {
        match which {
            Grown::All(sender) => self.submit_logs(self.growing.load(SeqCst), sender),
            Grown::Of(mapping, sender) => self.submit_logs(mapping.gathered().load(SeqCst), sender),
            Grown::Begun => {
                for log in LogId::of_bits(self.used.load(SeqCst)) {
                    if let Some(g) = self.take_locked(log) {
                        self.send(log, g, Sender::Queue);
                    }
                }
            }
            Grown::Log(log, sender) => {
                if let Some(g) = self.take(log) {
                    self.send(log, g, sender);
                }
            }
            Grown::Locked(log, inode) => self.submit_locked(log, inode),
            Grown::Last(last, sender) => self.submit_last(last, sender),
        }
    }

    fn submit_locked(&self, log: LogId, inode: &Arc<Inode>) {
        let _span = SUBMIT_MERGED.enter([log.kind as u64]);
        let mut g = self.logs[log.slot()].lock();
        if g.blocks > 0 {
            // The bio may hold pages of another inode, whose pass still adds to it or is about to send it.
            self.stats.sent_early(g.is_of_another(inode));
            self.stats.stream_sent(log);
            self.send(log, self.take_grown(&mut g, log), Sender::Queue);
        }
    }

    fn submit_last(&self, last: Option<LastBio>, sender: Sender) {
        if let Some(LastBio(log, g)) = last {
            let _span = SUBMIT_MERGED.enter([log.kind as u64]);
            self.stats.stream_sent(log);
            self.send(log, g, sender);
        }
    }

    /// Sends the growing bios of a set of logs, the last of them by `sender`.
    fn submit_logs(&self, logs: u64, sender: Sender) {
        let mut last = None;
        for log in LogId::of_bits(logs) {
            let Some(g) = self.take(log) else { continue };
            // Only a bio that the caller will carry out is held back: the caller must not wait for a
            // congested queue before its next step.
            let now = match sender {
                Sender::Caller => last.replace(LastBio(log, g)),
                Sender::Queue => Some(LastBio(log, g)),
            };
            if let Some(LastBio(log, g)) = now {
                self.stats.stream_sent(log);
                self.send(log, g, Sender::Queue);
            }
        }
        self.submit_last(last, sender);
    }

    /// Waits for bios that were begun before the call, while other threads begin more. For a checkpoint
    /// before it freezes operations; only one thread may wait here at a time.
    pub(crate) fn wait_begun(&self) {
        device_wait::check();
        let half = self.done.in_flight.turn();
        self.submit(Grown::Begun);
        self.done.in_flight.ended.wait_until(|| self.done.in_flight.is_over(half));
    }

    /// Waits for the bios that Linux's checkpoint waits for. For callers that keep other threads from placing
    /// pages.
    pub(crate) fn wait_cp_data(&self) {
        device_wait::check();
        self.sent.wait_until(|| self.placing_cp_data.load(SeqCst) == 0);
        self.submit(Grown::Begun);
        self.done.in_flight.ended.wait_until(|| !self.done.in_flight.has_cp_data());
    }

    fn take(&self, log: LogId) -> Option<Growing> {
        // A thread that added blocks to the log before this call has set the bit.
        if self.growing.load(SeqCst) & log.bit() == 0 {
            return None;
        }
        self.take_locked(log)
    }

    /// Takes the growing bio of a log, under the log's lock.
    fn take_locked(&self, log: LogId) -> Option<Growing> {
        let mut growing = self.logs[log.slot()].lock();
        (growing.blocks > 0).then(|| self.take_grown(&mut growing, log))
    }

    /// Sends every growing bio and waits until the queue has every bio that any thread has begun. For callers
    /// that keep other threads from placing pages.
    pub(crate) fn wait_sent(&self) {
        device_wait::check();
        // The order matters: a block that has a place may still join a growing bio.
        self.sent.wait_until(|| self.placing.load(SeqCst) == 0);
        self.submit(Grown::All(Sender::Queue));
        self.unsent.none.wait_until(|| self.unsent.is_none());
    }

    /// Sends the growing bio of the warm-node log and waits until every block added to this log before the
    /// call is written.
    pub(crate) fn wait_chain(&self) {
        device_wait::check();
        let end = self.done.chain.next.load(SeqCst);
        self.submit(Grown::Log(Log::WarmNode.into(), Sender::Caller));
        let written = || self.done.chain.open.lock().first().is_none_or(|s| *s >= end);
        if !written() {
            let _span = WAIT_ON_NODES.enter([]);
            self.done.shorter.wait_until(written);
        }
    }

    /// Adds one block that belongs to no page, sends it and waits for it.
    pub(crate) fn write_and_wait(&self, log: LogId, blk: BlockAddr, segment: Segment) -> Result<(), Errno> {
        let Some(order) = &self.order else { return Err(Errno::INVAL) };
        let ended = Arc::new((OnceLock::new(), WaitQueue::new()));
        let of_bio = ended.clone();
        let then: Then = Box::new(move |r| {
            let _ = of_bio.0.set(r);
            of_bio.1.wake_all();
        });
        let placed = Placed { blk, segments: vec![segment], pages: None, then: Some(then) };
        let mut full = self.full_bios();
        self.add_in_order(order, log, placed, BioFlags::SYNC, &mut full);
        drop(full);
        self.submit(Grown::Log(log, Sender::Queue));
        ended.1.wait_until(|| ended.0.get().is_some());
        ended.0.get().copied().unwrap_or(Err(Errno::IO))
    }
}
