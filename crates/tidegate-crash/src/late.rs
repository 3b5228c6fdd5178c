//! A device that answers late, and not in the order of the requests.

use std::rc::Rc;
use std::sync::Arc;
use tidegate_block::{Device, DeviceInfo, Errno, Op, Request, Zone};
use tidegate_rt::rng::Rng;
use tidegate_rt::wait::{Polling, poll_with};
use tidegate_rt::{LockClass, Mutex, thread};

static CLASS: LockClass = LockClass::new("crash_late", 992);

/// When requests are answered.
#[derive(Clone, Copy, Debug, Default)]
pub enum Pace {
    /// Before the submitting thread goes on.
    #[default]
    AtOnce,
    /// When a thread waits for a request, or at random when another request comes, by this seed.
    Late(u64),
}

impl Pace {
    /// A random pace.
    pub fn any(rng: &mut Rng) -> Pace {
        if rng.one_in(3) { Pace::AtOnce } else { Pace::Late(rng.bits()) }
    }
}

/// Selects the request that is answered next.
#[derive(Clone, Copy)]
enum Order {
    Oldest,
    Newest,
    Any,
}

struct State {
    rng: Rng,
    order: Order,
    /// One new request in this many has an older request answered; with 0, requests are answered only while a
    /// thread waits.
    often: u64,
    pending: Vec<Request>,
}

impl State {
    fn take(&mut self) -> Option<Request> {
        let n = self.pending.len();
        if n == 0 {
            return None;
        }
        let which = match self.order {
            Order::Oldest => 0,
            Order::Newest => n - 1,
            Order::Any => self.rng.below(n as u64) as usize,
        };
        Some(self.pending.remove(which))
    }
}

/// A device that answers late. A request takes effect when it is answered.
pub struct Late {
    inner: Arc<dyn Device>,
    /// The one thread that polls. Requests of other threads are answered at once.
    thread: u32,
    state: Mutex<State>,
}

impl Late {
    /// Puts a device in front of `inner` for the calling thread. The thread gets its answers as long as the
    /// second value lives.
    pub fn attach(inner: Arc<dyn Device>, pace: Pace) -> (Arc<dyn Device>, Option<Polling>) {
        let Pace::Late(seed) = pace else { return (inner, None) };
        let mut rng = Rng::new(seed);
        let order = *rng.pick(&[Order::Oldest, Order::Newest, Order::Any, Order::Any]);
        let often = *rng.pick(&[0, 0, 2, 5]);
        let state = State { rng, order, often, pending: Vec::new() };
        let late = Arc::new(Late { inner, thread: thread::id(), state: Mutex::new(&CLASS, state) });
        let polled = late.clone();
        (late, Some(poll_with(Rc::new(move || polled.answer()))))
    }

    /// Answers one request; returns false when there is none.
    fn answer(&self) -> bool {
        let next = self.state.lock().take();
        next.map(|rq| self.finish(rq)).is_some()
    }

    fn finish(&self, mut rq: Request) {
        let r = self.inner.execute(&mut rq);
        rq.complete(r);
    }

    fn perhaps_answer(&self) {
        loop {
            let mut s = self.state.lock();
            if s.often == 0 || s.pending.is_empty() {
                return;
            }
            let often = s.often;
            if !s.rng.one_in(often) {
                return;
            }
            drop(s);
            self.answer();
        }
    }
}

impl Device for Late {
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
        if thread::id() == self.thread {
            self.perhaps_answer();
        }
        self.inner.execute(rq)
    }
    fn submit(&self, rq: Request) {
        if thread::id() != self.thread || rq.op == Op::Read {
            return self.finish(rq);
        }
        self.state.lock().pending.push(rq);
        self.perhaps_answer();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_block::{Bio, BioFlags, MemoryDevice, PageBuf, QueueLimits, Recorder, RequestQueue};
    use tidegate_block::{Sector, Segment};

    /// The times of each submission and completion, for one seed.
    fn events(seed: u64) -> Vec<(u64, u64)> {
        let (late, polling) = Late::attach(Arc::new(MemoryDevice::new(1 << 20)), Pace::Late(seed));
        let recorder = Arc::new(Recorder::new(late));
        let queue = RequestQueue::new(recorder.clone(), QueueLimits::default());
        for n in 0..8 {
            let page = Segment::pages(Arc::new(PageBuf::zeroed(1)), 0, 1);
            queue.submit(Bio::write(Sector(16 * n), vec![page], BioFlags::empty()));
        }
        queue.drain();
        drop(polling);
        recorder.take().iter().map(|r| (r.submitted, r.completed.unwrap_or(u64::MAX))).collect()
    }

    #[test]
    fn requests_overlap_and_end_in_any_order_that_the_seed_says() {
        assert_eq!(events(3), events(3));
        let all: Vec<_> = (0..40).map(events).collect();
        assert!(all.iter().flatten().all(|e| e.1 < u64::MAX));
        let overlap = |v: &Vec<(u64, u64)>| v.windows(2).any(|w| w[1].0 < w[0].1);
        let swapped = |v: &Vec<(u64, u64)>| v.windows(2).any(|w| w[1].1 < w[0].1);
        assert!(all.iter().any(overlap) && all.iter().any(swapped));
    }
}
