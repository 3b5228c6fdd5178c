//! A wrapper whose requests fail, end short or end late, as rules say.

use crate::bio::{BioData, BioFlags, Op, Segment};
use crate::{Bio, Device, DeviceInfo, Errno, Request, SECTOR_SIZE, Zone};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;
use tidegate_rt::{Condvar, LockClass, Mutex, Nanos, clock, thread};

static RULES: LockClass = LockClass::new("faulty->rules", 993);
static LATE: LockClass = LockClass::new("faulty->late", 994);

/// The fate of a request that a rule applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It fails, and nothing of it is done.
    Fail(Errno),
    /// So many of its first bytes are done, in whole sectors, and then it fails. The rest of the memory of a
    /// read has undefined content.
    Short(u64, Errno),
    /// It is done and ends after this time. Requests that come later may be done before it.
    Late(Duration),
    /// As `Late`, after a time that differs from request to request and is at most this.
    Shuffled(Duration),
}

type Test = Box<dyn Fn(&Request) -> bool + Send + Sync>;

/// A fault, and the requests that meet it.
pub struct Rule {
    fault: Fault,
    tests: Vec<Test>,
    /// The requests that it is for, by number among those that pass the tests.
    which: Range<u64>,
    per_mille: u64,
    seed: u64,
    seen: AtomicU64,
}

impl Rule {
    /// A rule by which every request meets `fault`, unless the other functions narrow it.
    pub fn new(fault: Fault) -> Self {
        let (tests, which, seen) = (Vec::new(), 0..u64::MAX, AtomicU64::new(0));
        Rule { fault, tests, which, per_mille: 1000, seed: 0, seen }
    }

    /// Narrows the rule to requests for which `test` returns true. It is called in the submitting thread with
    /// no lock of the device held.
    pub fn when(mut self, test: impl Fn(&Request) -> bool + Send + Sync + 'static) -> Self {
        self.tests.push(Box::new(test));
        self
    }

    /// Narrows the rule to requests of the operation `op`.
    pub fn op(self, op: Op) -> Self {
        self.when(move |rq| rq.op == op)
    }

    /// Narrows the rule to requests that touch a byte in `range`.
    pub fn within(self, range: Range<u64>) -> Self {
        self.when(move |rq| rq.sector.bytes() < range.end && rq.end().bytes() > range.start)
    }

    /// Narrows the rule to these of the requests that pass all tests, counted from 0.
    pub fn which(mut self, which: Range<u64>) -> Self {
        self.which = which;
        self
    }

    /// Narrows the rule to about `per_mille` of a thousand of these. Which ones depends only on `seed` and on
    /// their number. The seed also decides how late [`Fault::Shuffled`] makes each.
    pub fn chance(mut self, per_mille: u64, seed: u64) -> Self {
        (self.per_mille, self.seed) = (per_mille, seed);
        self
    }

    /// The fault of `rq`, if it has one.
    fn judge(&self, rq: &Request) -> Option<Fault> {
        if !self.tests.iter().all(|t| t(rq)) {
            return None;
        }
        let n = self.seen.fetch_add(1, SeqCst);
        let chance = mix(self.seed.wrapping_add(n.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        if !self.which.contains(&n) || chance % 1000 >= self.per_mille {
            return None;
        }
        Some(match self.fault {
            Fault::Shuffled(most) => {
                let nanos = (most.as_nanos() as u64).max(1);
                Fault::Late(Duration::from_nanos(mix(chance) % nanos))
            }
            fault => fault,
        })
    }
}

/// Spreads the bits of `x` (SplitMix64's finalizer).
fn mix(mut x: u64) -> u64 {
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

/// Requests that are done later, by time, and whether the device goes away.
#[derive(Default)]
struct Waiting {
    by_due: BTreeMap<(Nanos, u64), Request>,
    number: u64,
    over: bool,
}

#[derive(Default)]
struct Later(Option<Arc<(Mutex<Waiting>, Condvar)>>, Option<thread::JoinHandle<()>>);

/// A device whose requests fail by rules. The rules can be exchanged at any time.
pub struct Faulty {
    inner: Arc<dyn Device>,
    rules: Mutex<Arc<Vec<Rule>>>,
    later: Mutex<Later>,
    failed: AtomicU64,
    late: AtomicU64,
    overlaps: AtomicU64,
}

impl Faulty {
    /// A device in front of `inner`. The first rule that applies to a request decides.
    pub fn new(inner: Arc<dyn Device>, rules: impl IntoIterator<Item = Rule>) -> Arc<Self> {
        Arc::new(Faulty {
            inner,
            rules: Mutex::new(&RULES, Arc::new(rules.into_iter().collect())),
            later: Mutex::new(&LATE, Later::default()),
            failed: AtomicU64::new(0),
            late: AtomicU64::new(0),
            overlaps: AtomicU64::new(0),
        })
    }

    /// Replaces the rules. Without rules, requests meet no fault from now on. Requests that are late already
    /// stay late.
    pub fn set(&self, rules: impl IntoIterator<Item = Rule>) {
        *self.rules.lock() = Arc::new(rules.into_iter().collect());
    }

    /// The number of requests that failed by a rule, short ones included.
    pub fn failed(&self) -> u64 {
        self.failed.load(SeqCst)
    }

    /// The number of requests that were made late.
    pub fn late(&self) -> u64 {
        self.late.load(SeqCst)
    }

    /// The number of writes that came while an earlier write of the same bytes was late and not done yet. It is
    /// undefined which of the two a device keeps, so a file system never sends both.
    pub fn overlaps(&self) -> u64 {
        self.overlaps.load(SeqCst)
    }

    /// Counts a write of bytes that are still being written.
    fn watch(&self, rq: &Request) {
        let Some(shared) = self.later.lock().0.clone().filter(|_| rq.op == Op::Write) else { return };
        let meets = |o: &&Request| o.op == Op::Write && o.sector < rq.end() && rq.sector < o.end();
        let met = shared.0.lock().by_due.values().filter(meets).count();
        self.overlaps.fetch_add(met as u64, SeqCst);
    }

    fn judge(&self, rq: &Request) -> Option<Fault> {
        self.watch(rq);
        let rules = self.rules.lock().clone();
        let fault = rules.iter().find_map(|r| r.judge(rq))?;
        let count = if matches!(fault, Fault::Late(_)) { &self.late } else { &self.failed };
        count.fetch_add(1, SeqCst);
        Some(fault)
    }

    fn execute_with(&self, rq: &mut Request, fault: Option<Fault>) -> Result<(), Errno> {
        match fault {
            None => self.inner.execute(rq),
            Some(Fault::Fail(e)) => Err(e),
            Some(Fault::Short(bytes, e)) => {
                self.begin(rq, bytes / SECTOR_SIZE * SECTOR_SIZE)?;
                Err(e)
            }
            Some(Fault::Late(d) | Fault::Shuffled(d)) => {
                thread::sleep(d);
                self.inner.execute(rq)
            }
        }
    }

    /// Executes the first `bytes` bytes of a request.
    fn begin(&self, rq: &mut Request, bytes: u64) -> Result<(), Errno> {
        match rq.op {
            Op::Read => {
                self.inner.execute(rq)?;
                let mut at = 0;
                rq.for_each_target(|t| {
                    let good = bytes.saturating_sub(at).min(t.len() as u64);
                    at += t.len() as u64;
                    t[good as usize..].fill(0xdb);
                });
                Ok(())
            }
            Op::Write => {
                let bio = Bio::write(rq.sector, first_segments(rq, bytes), rq.flags - BioFlags::FUA);
                if bio.data.is_empty() { Ok(()) } else { self.inner.execute(&mut Request::new(bio)) }
            }
            _ => Ok(()),
        }
    }

    /// Keeps `rq` until `d` has passed. Without a thread for late requests, `rq` is done now.
    fn keep(&self, rq: Request, d: Duration) {
        let mut later = self.later.lock();
        if later.0.is_none() {
            let shared = Arc::new((Mutex::new(&LATE, Waiting::default()), Condvar::new()));
            let (of_thread, inner) = (shared.clone(), self.inner.clone());
            later.1 = thread::spawn("tg-late", move || run(&of_thread, &*inner)).ok();
            later.0 = later.1.is_some().then_some(shared);
        }
        let Some(shared) = later.0.clone() else { return self.inner.submit(rq) };
        drop(later);
        let mut w = shared.0.lock();
        w.number += 1;
        let key = (clock::now() + d, w.number);
        w.by_due.insert(key, rq);
        drop(w);
        shared.1.notify_one();
    }
}

/// The parts of what a request writes that hold its first `bytes` bytes.
fn first_segments(rq: &Request, bytes: u64) -> Vec<Segment> {
    let mut left = bytes;
    let mut out = Vec::new();
    for bio in &rq.bios {
        if let BioData::Write(segments) = &bio.data {
            for s in segments {
                let len = left.min(s.len as u64) as u32;
                left -= len as u64;
                out.extend((len > 0).then(|| Segment { len, ..s.clone() }));
            }
        }
    }
    out
}

/// Executes the requests that are due, and all others once the device goes away.
fn run((waiting, changed): &(Mutex<Waiting>, Condvar), inner: &dyn Device) {
    let mut w = waiting.lock();
    loop {
        let now = clock::now();
        match w.by_due.first_key_value().map(|(k, _)| k.0) {
            None if w.over => return,
            None => changed.wait(&mut w),
            Some(due) if due.0 > now.0 && !w.over => {
                changed.wait_for(&mut w, Duration::from_nanos(due.0 - now.0));
            }
            Some(_) => {
                let Some((_, rq)) = w.by_due.pop_first() else { continue };
                drop(w);
                inner.submit(rq);
                w = waiting.lock();
            }
        }
    }
}

impl Device for Faulty {
    fn info(&self) -> DeviceInfo<'_> {
        self.inner.info()
    }

    fn report_zones(&self) -> Result<Vec<Zone>, Errno> {
        self.inner.report_zones()
    }

    fn report_zone(&self, pos: u64) -> Result<Option<Zone>, Errno> {
        self.inner.report_zone(pos)
    }

    fn execute(&self, rq: &mut Request) -> Result<(), Errno> {
        let fault = self.judge(rq);
        self.execute_with(rq, fault)
    }
    fn submit(&self, mut rq: Request) {
        match self.judge(&rq) {
            None => self.inner.submit(rq),
            Some(Fault::Late(d)) => self.keep(rq, d),
            fault => {
                let r = self.execute_with(&mut rq, fault);
                rq.complete(r);
            }
        }
    }
}

impl Drop for Faulty {
    fn drop(&mut self) {
        let later = std::mem::take(self.later.get_mut());
        if let Some(shared) = later.0 {
            shared.0.lock().over = true;
            shared.1.notify_one();
        }
        if let Some(t) = later.1 {
            t.join();
        }
    }
}

#[cfg(test)]
#[path = "faulty_tests.rs"]
mod tests;
