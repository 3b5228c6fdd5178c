//! Asynchronous I/O by worker threads that call pread and pwrite.

use crate::file::{FileIo, is_aligned};
use crate::{Device, DeviceInfo, Errno, Request, Zone};
use std::collections::VecDeque;
use std::sync::Arc;
use tidegate_rt::{Condvar, LockClass, Mutex, thread};

static CLASS: LockClass = LockClass::new("io_workers", 980);
const WORKERS: usize = 4;

struct Shared {
    io: FileIo,
    queue: Mutex<(VecDeque<Request>, bool)>,
    work: Condvar,
}

/// A file served by worker threads.
pub struct ThreadDevice {
    shared: Arc<Shared>,
    workers: Vec<thread::JoinHandle<()>>,
}

impl ThreadDevice {
    /// Starts the workers. Without workers (the system refuses threads), the submitting thread executes its
    /// requests.
    pub fn new(io: FileIo) -> Self {
        let shared = Arc::new(Shared {
            io,
            queue: Mutex::new(&CLASS, (VecDeque::new(), false)),
            work: Condvar::new(),
        });
        let workers = (0..WORKERS)
            .filter_map(|i| {
                let s = shared.clone();
                thread::spawn(&format!("tg-io/{i}"), move || s.run()).ok()
            })
            .collect();
        ThreadDevice { shared, workers }
    }
}

impl Shared {
    fn run(&self) {
        loop {
            let mut q = self.queue.lock();
            let mut rq = loop {
                if let Some(rq) = q.0.pop_front() {
                    break rq;
                }
                if q.1 {
                    return;
                }
                self.work.wait(&mut q);
            };
            drop(q);
            // When two writes go to one page of the host, and one of them around the page cache, the other
            // would undo it.
            let r = match is_aligned(&rq) {
                true => self.io.execute_direct(&mut rq),
                false => self.io.execute(&mut rq),
            };
            rq.complete(r);
        }
    }
}

impl Device for ThreadDevice {
    fn info(&self) -> DeviceInfo<'_> {
        self.shared.io.info("threads")
    }

    fn report_zones(&self) -> Result<Vec<Zone>, Errno> {
        self.shared.io.report_zones()
    }

    fn report_zone(&self, pos: u64) -> Result<Option<Zone>, Errno> {
        self.shared.io.report_zone(pos)
    }

    fn is_quick(&self, rq: &Request) -> bool {
        self.shared.io.is_quick(rq)
    }
    fn execute(&self, rq: &mut Request) -> Result<(), Errno> {
        self.shared.io.execute(rq)
    }
    fn submit(&self, mut rq: Request) {
        if self.workers.is_empty() {
            let r = self.execute(&mut rq);
            return rq.complete(r);
        }
        self.shared.queue.lock().0.push_back(rq);
        self.shared.work.notify_one();
    }
}

impl Drop for ThreadDevice {
    fn drop(&mut self) {
        self.shared.queue.lock().1 = true;
        self.shared.work.notify_all();
        self.workers.drain(..).for_each(|w| w.join());
    }
}
