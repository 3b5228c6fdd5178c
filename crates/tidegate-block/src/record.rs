//! A wrapper that keeps every request it passes on, with its bytes: what a crash explorer replays.

use crate::bio::{BioFlags, Op, Sector};
use crate::{Device, Errno, Request};
use std::sync::Arc;
use tidegate_rt::{LockClass, Mutex};

static CLASS: LockClass = LockClass::new("recorder", 995);

/// One recorded request, in the order of submission.
#[derive(Clone, Debug)]
pub struct Record {
    /// What was done.
    pub op: Op,
    /// With which flags.
    pub flags: BioFlags,
    /// Where.
    pub sector: Sector,
    /// Length in bytes.
    pub bytes: u64,
    /// What was written; empty for other operations.
    pub data: Vec<u8>,
}

/// Passes requests on to another device and keeps all but reads.
pub struct Recorder {
    inner: Arc<dyn Device>,
    log: Mutex<Vec<Record>>,
}

impl Recorder {
    /// A recorder in front of `inner`.
    pub fn new(inner: Arc<dyn Device>) -> Self {
        Recorder { inner, log: Mutex::new(&CLASS, Vec::new()) }
    }

    /// Takes what was recorded so far.
    pub fn take(&self) -> Vec<Record> {
        std::mem::take(&mut *self.log.lock())
    }

    fn keep(&self, rq: &Request) {
        if rq.op == Op::Read {
            return;
        }
        let mut data = Vec::new();
        rq.for_each_source(|s| data.extend_from_slice(s));
        let r = Record { op: rq.op, flags: rq.flags, sector: rq.sector, bytes: rq.bytes, data };
        self.log.lock().push(r);
    }
}

impl Device for Recorder {
    fn name(&self) -> &str {
        self.inner.name()
    }
    fn size(&self) -> u64 {
        self.inner.size()
    }
    fn read_only(&self) -> bool {
        self.inner.read_only()
    }
    fn backend(&self) -> &'static str {
        self.inner.backend()
    }
    fn execute(&self, rq: &mut Request) -> Result<(), Errno> {
        self.keep(rq);
        self.inner.execute(rq)
    }
    fn submit(&self, rq: Request) {
        self.keep(&rq);
        self.inner.submit(rq);
    }
}
