//! The smallest volumes: their logs take most segments, so free segments are always short.

use crate::common::volume;
use std::sync::Arc;
use tidegate_block::{MemoryDevice, QueueLimits, RequestQueue};
use tidegate_f2fs::mkfs::{MkfsOptions, mkfs};
use tidegate_f2fs::options::AllocMode;
use tidegate_f2fs::{F2fs, F2fsOptions};
use tidegate_rt::rng::Rng;
use tidegate_vfs::*;

const ROOT: &Cred = &Cred::ROOT;
const RW: OpenFlags = OpenFlags::READ.union(OpenFlags::WRITE);

/// Cleaning that gains nothing must not be repeated for each fsync and each pass of write-back: it costs
/// checkpoints, which write more than the files do.
#[test]
fn cleaning_that_gains_nothing_is_left() {
    if tidegate_testing::oracle::skip_or_fail("fsck.f2fs") {
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
        let checkpoints = after.commits - before.commits;
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

/// Recovery begins new segments and leaves few blocks in many segments. Where no hole may be filled, cleaning
/// has to make room again: nodes can move where data cannot.
#[test]
fn power_cuts_do_not_use_all_segments_up() {
    for seed in 0..60 {
        let mut rng = Rng::new(seed);
        let mut device = Arc::new(MemoryDevice::new(40 << 20));
        mkfs(&queue(&device), &MkfsOptions::default()).unwrap();
        for _ in 0..4 {
            let v = open_lfs(&device);
            for _ in 0..1 + rng.below(12) {
                some_change(&v, &mut rng).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
            }
            device = Arc::new(device.copy());
            // Opened and closed, the volume recovers everything fsynced and writes it.
            open_lfs(&device).unmount().unwrap_or_else(|e| panic!("seed {seed}: unmount: {e}"));
        }
        volume::fsck(&device).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    }
}

fn queue(device: &Arc<MemoryDevice>) -> Arc<RequestQueue> {
    Arc::new(RequestQueue::new(device.clone(), QueueLimits::default()))
}

fn open_lfs(device: &Arc<MemoryDevice>) -> Arc<Vfs> {
    let bdi = Bdi::new(MemoryLimits::default());
    let options = F2fsOptions { mode: AllocMode::Lfs, ..F2fsOptions::default() };
    let options_of_mount = MountOptions { no_periodic_writeback: true, ..Default::default() };
    Vfs::mount(F2fs::open(queue(device), bdi.clone(), options).unwrap(), bdi, options_of_mount).unwrap()
}

/// Changes hot, warm and cold files, and directories.
fn some_change(v: &Arc<Vfs>, rng: &mut Rng) -> Result<()> {
    let names: [&[u8]; 4] = [b"/a", b"/hot.db", b"/film.mp4", b"/b"];
    let name = names[rng.below(4) as usize];
    let file = v.open_path(ROOT, name, RW | OpenFlags::CREATE, 0o644)?;
    match rng.below(6) {
        0 => v.sync(),
        1 => {
            let dir = format!("d{}", rng.below(u64::MAX));
            v.mkdir(ROOT, &v.root()?, dir.as_bytes(), 0o755).map(drop)
        }
        2 => file.truncate(rng.below(3) * 4096),
        _ => {
            file.write_at(rng.below(16) * 4096, &vec![1; 1 + rng.below(20_000) as usize])?;
            file.fsync(false)
        }
    }
}
