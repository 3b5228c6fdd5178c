//! A wrapper that keeps every request that it passes on, with its bytes: a crash explorer replays the
//! requests.
//!
//! Submissions and completions are events on one clock, so that a reader of the record knows which
//! writes were complete when a flush began.

use crate::bio::{BioFlags, Op, Sector};
use crate::{Device, DeviceInfo, Errno, Request, Zone};
use std::sync::Arc;
use tidegate_rt::{LockClass, Mutex};

static CLASS: LockClass = LockClass::new("recorder", 995);

/// One recorded request, in the order of submission.
#[derive(Clone, Debug)]
pub struct Record {
    /// The operation.
    pub op: Op,
    /// The flags.
    pub flags: BioFlags,
    /// Where the range begins.
    pub sector: Sector,
    /// Length in bytes.
    pub bytes: u64,
    /// The bytes that were written; empty for other operations.
    pub data: Vec<u8>,
    /// The number of the event of its submission.
    pub submitted: u64,
    /// The number of the event of its completion. `None` while the request is in flight, and when it failed.
    pub completed: Option<u64>,
}

#[derive(Default)]
struct Log {
    /// The number of events so far.
    clock: u64,
    /// Records taken out already.
    taken: usize,
    records: Vec<Record>,
}

impl Log {
    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock - 1
    }

    fn submit(&mut self, rq: &Request) -> Option<usize> {
        if rq.op == Op::Read {
            return None;
        }
        let mut data = Vec::new();
        rq.for_each_source(|s| data.extend_from_slice(s));
        let (submitted, completed) = (self.tick(), None);
        let (op, flags, sector, bytes) = (rq.op, rq.flags, rq.sector, rq.bytes);
        self.records.push(Record { op, flags, sector, bytes, data, submitted, completed });
        Some(self.taken + self.records.len() - 1)
    }

    fn complete(&mut self, id: usize) {
        let at = self.tick();
        if let Some(r) = id.checked_sub(self.taken).and_then(|i| self.records.get_mut(i)) {
            r.completed = Some(at);
        }
    }
}

/// Passes requests on to another device and keeps all but reads.
pub struct Recorder {
    inner: Arc<dyn Device>,
    log: Arc<Mutex<Log>>,
}

impl Recorder {
    /// A recorder in front of `inner`.
    pub fn new(inner: Arc<dyn Device>) -> Self {
        Recorder { inner, log: Arc::new(Mutex::new(&CLASS, Log::default())) }
    }

    /// Takes the records so far. Requests in flight stay marked as in flight.
    pub fn take(&self) -> Vec<Record> {
        let mut log = self.log.lock();
        log.taken += log.records.len();
        std::mem::take(&mut log.records)
    }

    /// Adds an event of the caller, between those of the device. Returns the number of events so far.
    pub fn mark(&self) -> u64 {
        let mut log = self.log.lock();
        log.tick();
        log.clock
    }

    /// The number of events so far: the next submission or completion gets this number.
    pub fn position(&self) -> u64 {
        self.log.lock().clock
    }
}

impl Device for Recorder {
    fn info(&self) -> DeviceInfo<'_> {
        self.inner.info()
    }

    fn report_zones(&self) -> Result<Vec<Zone>, Errno> {
        self.inner.report_zones()
    }

    fn report_zone(&self, pos: u64) -> Result<Option<Zone>, Errno> {
        self.inner.report_zone(pos)
    }

    fn is_quick(&self, rq: &Request) -> bool {
        self.inner.is_quick(rq)
    }
    fn execute(&self, rq: &mut Request) -> Result<(), Errno> {
        let id = self.log.lock().submit(rq);
        self.inner.execute(rq)?;
        if let Some(id) = id {
            self.log.lock().complete(id);
        }
        Ok(())
    }
    fn submit(&self, mut rq: Request) {
        let id = self.log.lock().submit(&rq);
        // The first bio ends first. So when a thread submits after it is told of the end, its submission also
        // comes after the completion in the record.
        if let (Some(id), Some(first)) = (id, rq.bios.first_mut()) {
            let (log, end) = (self.log.clone(), first.end_io.take());
            first.end_io = Some(Box::new(move |r, data| {
                if r.is_ok() {
                    log.lock().complete(id);
                }
                if let Some(f) = end {
                    f(r, data);
                }
            }));
        }
        self.inner.submit(rq);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Bio, MemoryDevice, PageBuf, QueueLimits, RequestQueue, Segment};

    #[test]
    fn submissions_and_completions_are_in_order() {
        let recorder = Arc::new(Recorder::new(Arc::new(MemoryDevice::new(1 << 20))));
        let queue = RequestQueue::new(recorder.clone(), QueueLimits::default());
        let page = Segment::pages(Arc::new(PageBuf::zeroed(1)), 0, 1);
        queue.submit(Bio::write(Sector(8), vec![page.clone()], BioFlags::empty()));
        queue.submit_wait(Bio::write(Sector(16), vec![page], BioFlags::FUA)).unwrap();
        assert_eq!(recorder.position(), 4);
        queue.flush().unwrap();
        let events: Vec<_> = recorder.take().iter().map(|r| (r.op, r.submitted, r.completed)).collect();
        let write = |at| (Op::Write, at, Some(at + 1));
        assert_eq!(events, [write(0), write(2), (Op::Flush, 4, Some(5))]);
        assert!(recorder.take().is_empty());
        assert_eq!((recorder.position(), recorder.mark(), recorder.position()), (6, 7, 7));
    }
}
