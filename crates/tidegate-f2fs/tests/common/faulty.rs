//! A device in memory whose requests fail when a rule says so.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use tidegate_block::{Device, Errno, MemoryDevice, Op, Request};

/// Asked once for each request; the request it says yes to fails and is not done.
type Rule = Box<dyn Fn(Op) -> bool + Send + Sync>;

/// The device and how many of its requests failed.
pub struct Faulty {
    inner: Arc<MemoryDevice>,
    rule: Rule,
    failed: AtomicU64,
}

impl Faulty {
    pub fn new(inner: Arc<MemoryDevice>, rule: impl Fn(Op) -> bool + Send + Sync + 'static) -> Arc<Faulty> {
        Arc::new(Faulty { inner, rule: Box::new(rule), failed: AtomicU64::new(0) })
    }

    /// Requests that failed so far.
    pub fn failed(&self) -> u64 {
        self.failed.load(Relaxed)
    }
}

impl Device for Faulty {
    fn name(&self) -> &str {
        "faulty"
    }
    fn size(&self) -> u64 {
        self.inner.size()
    }
    fn read_only(&self) -> bool {
        false
    }
    fn backend(&self) -> &'static str {
        "memory"
    }
    fn execute(&self, rq: &mut Request) -> Result<(), Errno> {
        if (self.rule)(rq.op) {
            self.failed.fetch_add(1, Relaxed);
            return Err(Errno::IO);
        }
        self.inner.execute(rq)
    }
}
