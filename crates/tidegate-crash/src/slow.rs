//! A device with a thread of its own that answers requests one by one, in any order.

use std::sync::Arc;
use std::time::Duration;
use tidegate_block::{Device, DeviceInfo, Errno, Op, Request, Zone};
use tidegate_rt::rng::Rng;
use tidegate_rt::{Condvar, LockClass, Mutex, thread};

static CLASS: LockClass = LockClass::new("crash_slow", 993);

struct State {
    rng: Rng,
    pending: Vec<Request>,
    stop: bool,
}

struct Shared {
    inner: Arc<dyn Device>,
    state: Mutex<State>,
    work: Condvar,
}

/// A device that answers in any order. A request takes effect when it is answered.
pub struct Slow {
    shared: Arc<Shared>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Slow {
    /// A device in front of `inner`.
    pub fn new(inner: Arc<dyn Device>, rng: Rng) -> Slow {
        let state = State { rng, pending: Vec::new(), stop: false };
        let shared = Arc::new(Shared { inner, state: Mutex::new(&CLASS, state), work: Condvar::new() });
        let s = shared.clone();
        Slow { shared, thread: thread::spawn("tg-crash-io", move || s.answer()).ok() }
    }
}

impl Shared {
    fn answer(&self) {
        let mut s = self.state.lock();
        loop {
            if s.pending.is_empty() {
                if s.stop {
                    return;
                }
                self.work.wait(&mut s);
                continue;
            }
            if s.rng.one_in(3) {
                // Meanwhile, more requests may come and be answered first.
                let time = Duration::from_micros(s.rng.below(100));
                drop(s);
                thread::sleep(time);
                s = self.state.lock();
            }
            let n = s.pending.len() as u64;
            let which = s.rng.below(n) as usize;
            let rq = s.pending.remove(which);
            drop(s);
            self.finish(rq);
            s = self.state.lock();
        }
    }

    fn finish(&self, mut rq: Request) {
        let r = self.inner.execute(&mut rq);
        rq.complete(r);
    }
}

impl Device for Slow {
    fn info(&self) -> DeviceInfo<'_> {
        self.shared.inner.info()
    }

    fn report_zones(&self) -> Result<Vec<Zone>, Errno> {
        self.shared.inner.report_zones()
    }

    fn report_zone(&self, pos: u64) -> Result<Option<Zone>, Errno> {
        self.shared.inner.report_zone(pos)
    }

    fn execute(&self, rq: &mut Request) -> Result<(), Errno> {
        self.shared.inner.execute(rq)
    }
    fn submit(&self, rq: Request) {
        if self.thread.is_none() || rq.op == Op::Read {
            return self.shared.finish(rq);
        }
        self.shared.state.lock().pending.push(rq);
        self.shared.work.notify_one();
    }
}

impl Drop for Slow {
    fn drop(&mut self) {
        self.shared.state.lock().stop = true;
        self.shared.work.notify_one();
        if let Some(t) = self.thread.take() {
            t.join();
        }
    }
}
