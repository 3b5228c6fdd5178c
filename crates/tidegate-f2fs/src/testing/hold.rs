//! A volume on a device that is busy as long as a test wants.

use super::{Open, new_volume_behind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;
use tidegate_block::{Device, DeviceInfo, Errno, MemoryDevice, Op, QueueLimits, Request};
use tidegate_rt::{LockClass, Mutex, thread};

static HELD: LockClass = LockClass::new("test->held", 998);

/// A device that holds writes until [`Hold::let_go`].
pub(crate) struct Hold {
    pub below: MemoryDevice,
    pub holds: AtomicBool,
    pub held: Mutex<Vec<Request>>,
}

impl Hold {
    /// Carries out the held writes, and holds none any more.
    pub(crate) fn let_go(&self) {
        let held = {
            let mut held = self.held.lock();
            self.holds.store(false, SeqCst);
            std::mem::take(&mut *held)
        };
        held.into_iter().for_each(|rq| self.below.submit(rq));
    }
}

impl Device for Hold {
    fn info(&self) -> DeviceInfo<'_> {
        DeviceInfo { name: "hold", size: self.below.size(), read_only: false, backend: "memory", zones: None }
    }

    fn execute(&self, rq: &mut Request) -> Result<(), Errno> {
        self.below.execute(rq)
    }

    fn submit(&self, rq: Request) {
        let mut held = self.held.lock();
        if rq.op == Op::Write && self.holds.load(SeqCst) {
            held.push(rq);
        } else {
            drop(held);
            self.below.submit(rq);
        }
    }
}

/// A new volume on such a device, behind a queue of two requests.
pub(crate) fn held_volume() -> (Arc<Hold>, Open) {
    let below = MemoryDevice::new(64 << 20);
    let device = Arc::new(Hold { below, holds: false.into(), held: Mutex::new(&HELD, Vec::new()) });
    let limits = QueueLimits { nr_requests: 2, max_bytes: 64 << 10, ..QueueLimits::default() };
    let open = new_volume_behind(device.clone(), limits);
    (device, open)
}

/// A wait that is long enough for everything that can go on without the device.
pub(crate) fn a_while() {
    thread::sleep(Duration::from_millis(50));
}

/// Asserts that no lock is held that checkpoints and fsyncs of other files want.
pub(crate) fn nothing_is_held(open: &Open) {
    assert!(open.fs.cp_rwsem.try_write().is_some(), "a checkpoint may begin");
    assert!(open.fs.node_write.try_lock().is_some(), "an fsync may write nodes");
}
