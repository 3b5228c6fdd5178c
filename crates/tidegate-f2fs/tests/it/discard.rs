//! The time when freed segments are discarded, in simulated time.

use std::sync::Arc;
use std::time::Duration;
use tidegate_block::{MemoryDevice, QueueLimits, RequestQueue};
use tidegate_f2fs::mkfs::{MkfsOptions, mkfs};
use tidegate_f2fs::{F2fs, F2fsOptions};
use tidegate_rt::{sim, thread};
use tidegate_vfs::*;

const ROOT: &Cred = &Cred::ROOT;
const RW: OpenFlags = OpenFlags::READ.union(OpenFlags::WRITE);

/// Bytes discarded: during half a minute with an fsync every second, and in the quarter of a minute after it.
fn discarded(options: &'static str) -> (u64, u64) {
    sim::run(1, 2, move || {
        let queue =
            Arc::new(RequestQueue::new(Arc::new(MemoryDevice::new(128 << 20)), QueueLimits::default()));
        mkfs(&queue, &MkfsOptions::default()).unwrap();
        let mut o = F2fsOptions::default();
        o.parse(options).unwrap();
        let bdi = Bdi::new(MemoryLimits::default());
        let fs = F2fs::open(queue, bdi.clone(), o).unwrap();
        let v = Vfs::mount(fs.clone(), bdi, MountOptions::default()).unwrap();
        let file = |name: &str| v.open_path(ROOT, name.as_bytes(), RW | OpenFlags::CREATE, 0o644).unwrap();
        file("/gone").write_at(0, &vec![7; 16 << 20]).unwrap();
        v.sync().unwrap();
        v.unlink(ROOT, &v.root().unwrap(), b"gone").unwrap();
        v.sync().unwrap();
        let busy = file("/busy");
        for i in 0..30 {
            busy.write_at(0, &[i; 4096]).unwrap();
            busy.fsync(false).unwrap();
            thread::sleep(Duration::from_secs(1));
        }
        let while_busy = fs.stats().discarded_bytes;
        thread::sleep(Duration::from_secs(15));
        let after = fs.stats().discarded_bytes - while_busy;
        drop(busy);
        v.unmount().unwrap();
        (while_busy, after)
    })
}

#[test]
fn discards_wait_until_the_device_is_idle() {
    let (while_busy, after) = discarded("");
    assert_eq!(while_busy, 0);
    assert!(after >= 8 << 20, "{after}");
    let (while_busy, _) = discarded("nodiscard_io_aware");
    assert!(while_busy >= 8 << 20, "{while_busy}");
    assert_eq!(discarded("nodiscard"), (0, 0));
}
