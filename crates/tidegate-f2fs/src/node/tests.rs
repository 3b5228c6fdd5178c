//! Nodes on their way to a device that is busy keep nobody else waiting.

use crate::testing::{Open, new_volume_behind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;
use tidegate_block::{Device, DeviceInfo, Errno, MemoryDevice, Op, QueueLimits, Request};
use tidegate_rt::{LockClass, Mutex, thread};
use tidegate_vfs::{Cred, OpenFlags, VolumeOps, WritebackControl};

static HELD: LockClass = LockClass::new("test->held", 998);

/// A device that keeps writes back until it is let go.
struct Hold {
    below: MemoryDevice,
    holds: AtomicBool,
    held: Mutex<Vec<Request>>,
}

impl Hold {
    fn let_go(&self) {
        self.holds.store(false, SeqCst);
        let held = std::mem::take(&mut *self.held.lock());
        held.into_iter().for_each(|rq| self.below.submit(rq));
    }
}

impl Device for Hold {
    fn info(&self) -> DeviceInfo<'_> {
        DeviceInfo { name: "hold", size: self.below.size(), read_only: false, backend: "memory" }
    }

    fn execute(&self, rq: &mut Request) -> Result<(), Errno> {
        self.below.execute(rq)
    }

    fn submit(&self, rq: Request) {
        if rq.op == Op::Write && self.holds.load(SeqCst) {
            self.held.lock().push(rq);
        } else {
            self.below.submit(rq);
        }
    }
}

/// A volume behind a queue of two requests, with more dirty nodes than these take.
fn crowded() -> (Arc<Hold>, Open) {
    let below = MemoryDevice::new(64 << 20);
    let device = Arc::new(Hold { below, holds: false.into(), held: Mutex::new(&HELD, Vec::new()) });
    let limits = QueueLimits { nr_requests: 2, max_bytes: 64 << 10, ..QueueLimits::default() };
    let open = new_volume_behind(device.clone(), limits);
    let top = open.vfs.root().unwrap();
    for n in 0..100 {
        drop(open.vfs.create(&Cred::ROOT, &top, format!("f{n}").as_bytes(), 0o644).unwrap());
    }
    device.holds.store(true, SeqCst);
    (device, open)
}

fn until(what: impl Fn() -> bool) {
    while !what() {
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn no_lock_is_held_while_nodes_wait_for_a_congested_queue() {
    let (device, open) = crowded();
    let fs = open.fs.clone();
    let flusher = thread::spawn("flusher", move || {
        fs.write_nodes(&mut WritebackControl::background(u64::MAX)).unwrap();
    });
    until(|| open.fs.queue.stats().congested > 0);
    assert!(open.fs.cp_rwsem.try_write().is_some(), "a checkpoint may begin");
    assert!(open.fs.node_write.try_lock().is_some(), "an fsync may write nodes");
    device.let_go();
    flusher.unwrap().join();
    open.vfs.unmount().unwrap();
}

#[test]
fn no_lock_is_held_while_an_fsync_waits_for_a_node_on_its_way() {
    let (device, open) = crowded();
    let how = OpenFlags::READ | OpenFlags::WRITE;
    device.let_go();
    let f = Arc::new(open.vfs.open_path(&Cred::ROOT, b"/f1", how, 0).unwrap());
    open.fs.commit(true).unwrap();
    f.write_at(0, &[1; 8192]).unwrap();
    device.holds.store(true, SeqCst);
    let node = f.inode().ino.0;
    open.fs.write_nodes(&mut WritebackControl::background(u64::MAX)).unwrap();
    open.fs.write_io.submit_all(crate::file::write_io::Sender::Queue);
    assert!(open.fs.node_inode.mapping.is_writeback(node));
    f.write_at(8192, &[2; 4096]).unwrap();
    let (again, ended) = (f.clone(), Arc::new(AtomicBool::new(false)));
    let tell = ended.clone();
    let fsync = thread::spawn("fsync", move || {
        again.fsync(false).unwrap();
        tell.store(true, SeqCst);
    });
    // Its data is held back first; then it looks at the node.
    until(|| device.held.lock().len() >= 2);
    let data: Vec<Request> = device.held.lock().drain(1..).collect();
    data.into_iter().for_each(|rq| device.below.submit(rq));
    for _ in 0..50 {
        thread::sleep(Duration::from_millis(1));
        assert!(!ended.load(SeqCst), "the node is on its way yet");
    }
    assert!(open.fs.cp_rwsem.try_write().is_some() && open.fs.node_write.try_lock().is_some());
    device.let_go();
    fsync.unwrap().join();
    open.vfs.unmount().unwrap();
}
