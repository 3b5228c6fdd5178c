//! A device with a fixed service time that remembers whose requests it served, and can be stopped.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tidegate_block::{
    Device, DeviceInfo, Elevator, Errno, IoContext, Op, QueueLimits, Request, RequestQueue, WfqOptions,
};
use tidegate_rt::{Condvar, LockClass, Mutex, thread};

static CLASS: LockClass = LockClass::new("test_device", 980);

/// The requests that the device has begun to serve, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Served {
    pub ctx: IoContext,
    pub op: Op,
    pub bytes: u64,
    pub bios: usize,
}

struct State {
    queue: VecDeque<Request>,
    served: Vec<Served>,
    /// The number of requests in the device now, and the most there were.
    now: usize,
    most: usize,
    open: bool,
    stop: bool,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    service: Duration,
}

/// One thread serves `submit`; `execute` works in the caller.
pub struct SlowDevice {
    shared: Arc<Shared>,
    worker: Option<thread::JoinHandle<()>>,
}

impl Shared {
    /// Begins a request as soon as the device is open.
    fn begin(&self, rq: &Request) {
        let mut st = self.state.lock();
        while !st.open {
            self.changed.wait(&mut st);
        }
        let served = Served { ctx: rq.bios[0].ctx, op: rq.op, bytes: rq.bytes, bios: rq.bios.len() };
        st.served.push(served);
        drop(st);
        if !self.service.is_zero() {
            thread::sleep(self.service);
        }
    }

    fn run(&self) {
        let mut st = self.state.lock();
        while !st.stop {
            let Some(rq) = st.queue.pop_front() else {
                self.changed.wait(&mut st);
                continue;
            };
            drop(st);
            self.begin(&rq);
            self.state.lock().now -= 1;
            rq.complete(Ok(()));
            st = self.state.lock();
        }
    }
}

impl SlowDevice {
    pub fn new(service: Duration, open: bool) -> Arc<Self> {
        let state = State { queue: VecDeque::new(), served: Vec::new(), now: 0, most: 0, open, stop: false };
        let shared = Arc::new(Shared { state: Mutex::new(&CLASS, state), changed: Condvar::new(), service });
        let s = shared.clone();
        let worker = thread::spawn("slow-device", move || s.run()).unwrap();
        Arc::new(SlowDevice { shared, worker: Some(worker) })
    }

    /// Lets requests proceed.
    pub fn open(&self) {
        self.shared.state.lock().open = true;
        self.shared.changed.notify_all();
    }

    pub fn served(&self) -> Vec<Served> {
        self.shared.state.lock().served.clone()
    }

    /// The most requests that were at the device at a time.
    pub fn most(&self) -> usize {
        self.shared.state.lock().most
    }

    fn arrive(&self) -> tidegate_rt::MutexGuard<'_, State> {
        let mut st = self.shared.state.lock();
        st.now += 1;
        st.most = st.most.max(st.now);
        st
    }
}

impl Device for SlowDevice {
    fn info(&self) -> DeviceInfo<'_> {
        DeviceInfo { name: "slow", size: 1 << 40, read_only: false, backend: "test", zones: None }
    }

    fn execute(&self, rq: &mut Request) -> Result<(), Errno> {
        drop(self.arrive());
        self.shared.begin(rq);
        self.shared.state.lock().now -= 1;
        Ok(())
    }
    fn submit(&self, rq: Request) {
        self.arrive().queue.push_back(rq);
        self.shared.changed.notify_all();
    }
}

impl Drop for SlowDevice {
    fn drop(&mut self) {
        self.shared.state.lock().stop = true;
        self.shared.changed.notify_all();
        if let Some(w) = self.worker.take() {
            w.join();
        }
    }
}

/// A queue with the elevator in front of `device`, `nr_requests` for each group.
pub fn queue(device: Arc<dyn Device>, options: WfqOptions, nr_requests: usize) -> Arc<RequestQueue> {
    let limits = QueueLimits { nr_requests, max_inflight_bytes: 1 << 30, ..Default::default() };
    Arc::new(RequestQueue::with_elevator(device, limits, Elevator::Wfq(options)))
}
