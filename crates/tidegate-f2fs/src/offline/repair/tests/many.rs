//! More nameless files than one directory of a repair has room for.

use crate::format::units::Nid;
use crate::offline::check::{CheckOptions, check};
use crate::offline::repair::{Outcome, RepairOptions, repair};
use crate::testing::new_volume_behind;
use std::sync::Arc;
use tidegate_block::{MemoryDevice, QueueLimits, RequestQueue};
use tidegate_vfs::Cred;

const FILES: usize = 70_000;

#[test]
fn more_files_than_lost_found_holds_all_get_a_name() {
    let device = Arc::new(MemoryDevice::new(1 << 30));
    let open = new_volume_behind(device.clone(), QueueLimits::default());
    let vfs = &open.vfs;
    let dir = vfs.mkdir(&Cred::ROOT, &vfs.root().unwrap(), b"dir", 0o755).unwrap();
    for n in 0..FILES {
        vfs.create(&Cred::ROOT, &dir, format!("{n}").as_bytes(), 0o644).unwrap();
    }
    let nid = Nid(dir.ino.0 as u32);
    drop(dir);
    vfs.sync().unwrap();
    let at = open.fs.nat.lookup(&open.fs.meta, nid).unwrap().addr;
    vfs.unmount().unwrap();
    drop(open);
    device.write_at(at.sector().bytes(), &[0; 4096]);

    let queue = Arc::new(RequestQueue::new(device, QueueLimits::default()));
    let mut named = 0;
    let report = repair(&queue, RepairOptions::default(), &mut |c| named += usize::from(c.from == "no name"));
    let report = report.unwrap();
    assert_eq!((report.outcome, named), (Outcome::Corrected, FILES), "{:?}", report.notes);
    assert!(check(&queue, CheckOptions::default()).unwrap().problems.is_empty());
}
