//! The smallest volumes: their logs take most segments, so that free ones are always short.

#[path = "common/volume.rs"]
#[allow(dead_code, clippy::disallowed_types)] // shared with other tests, which use more of it
mod volume;

use std::sync::Arc;
use tidegate_block::{MemoryDevice, QueueLimits, RequestQueue};
use tidegate_f2fs::mkfs::{MkfsOptions, mkfs};
use tidegate_f2fs::{F2fs, F2fsOptions};
use tidegate_vfs::*;

const ROOT: &Cred = &Cred::ROOT;
const RW: OpenFlags = OpenFlags::READ.union(OpenFlags::WRITE);

/// Cleaning that gains nothing must not be tried again for each fsync and each pass of write-back: it costs
/// checkpoints, and more is written for them than for the files.
#[test]
fn cleaning_that_gains_nothing_is_left() {
    if xtask::oracle::skip_or_fail("fsck.f2fs") {
        return;
    }
    for mib in [40, 42, 44, 48, 64] {
        let device = Arc::new(MemoryDevice::new(mib << 20));
        let queue = Arc::new(RequestQueue::new(device.clone(), QueueLimits::default()));
        mkfs(&queue, &MkfsOptions::default()).unwrap();
        let bdi = Bdi::new(MemoryLimits::default());
        let fs = F2fs::open(queue, bdi.clone(), F2fsOptions::default()).unwrap();
        let v = Vfs::mount(fs.clone(), bdi, MountOptions::default()).unwrap();
        let file = |name: String| v.open_path(ROOT, name.as_bytes(), RW | OpenFlags::CREATE, 0o644).unwrap();
        let mut files = 0;
        while v.statfs().blocks_available > 300 && files < 500 {
            file(format!("/f{files}")).write_at(0, &[files as u8; 5000]).unwrap();
            files += 1;
        }
        v.sync().unwrap();
        let (before, rewritten) = (fs.stats(), 300);
        for i in 0..rewritten {
            let f = file(format!("/f{}", i * 7 % files));
            f.write_at(0, &[i as u8; 4096]).unwrap();
            f.fsync(false).unwrap();
        }
        let after = fs.stats();
        let checkpoints = after.checkpoints - before.checkpoints;
        assert!(checkpoints < rewritten / 5, "{mib} MiB: {checkpoints} checkpoints");
        for i in 0..files {
            let mut bytes = [0; 5000];
            assert_eq!(file(format!("/f{i}")).read_at(0, &mut bytes).unwrap(), bytes.len());
            assert_eq!(bytes[4999], i as u8);
        }
        v.unmount().unwrap();
        volume::fsck(&device).unwrap();
    }
}
