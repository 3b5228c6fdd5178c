//! A volume of ours on zones whose devices take no request from some moment on: the kernel recovers it, and
//! so do we.

use super::engine::Tree;
use super::kills;
use crate::common::zones::{by_the_kernel, mount};
use std::sync::Arc;
use tidegate_block::{Errno, Fault, Faulty, Op, QueueLimits, RequestQueue, Rule};
use tidegate_f2fs::mkfs::{DevicePart, MkfsOptions, mkfs};
use tidegate_f2fs::raw::Features;
use tidegate_rt::{LockClass, Mutex, thread};
use tidegate_testing::power::{Promises, Worker, plan};
use tidegate_testing::temp::TempDir;
use tidegate_testing::zoned::{self, Devices, Geometry};

static HEARD: LockClass = LockClass::new("test->heard", 5);

const WORKERS: u32 = 3;

/// 1 GiB in zones of 8 MiB.
const FULL: Geometry = Geometry { zones: 128, zone_size: 8 << 20, capacity: 8 << 20, ..Geometry::DEFAULT };

/// Cuts that are tried until the kernel recovers one without the fault that [`by_the_kernel`] describes.
const TRIES: usize = 4;

const CASES: [(Geometry, &str); 4] = [
    (Geometry { capacity: 7 << 20, ..FULL }, ""),
    (Geometry { conventional: 8, ..FULL }, "fsync_mode=strict"),
    (Geometry { max_open: 14, max_active: 14, ..FULL }, "warm_streams=4,stream_policy=srr"),
    (Geometry::DEFAULT, "writepages=submit_locked"),
];

/// Formats devices with our mkfs.
fn format(devices: &Devices) {
    let opened = devices.open().unwrap();
    let named = devices.named().unwrap();
    let part = |(path, bytes): &(&str, u64)| DevicePart { path: (*path).into(), bytes: *bytes };
    let parts = if named.len() > 1 { named.iter().map(part).collect() } else { Vec::new() };
    let options = MkfsOptions { features: Features::BLKZONED, devices: parts, ..Default::default() };
    mkfs(&RequestQueue::new(opened.device.clone(), QueueLimits::default()), &options).unwrap();
    assert_eq!(opened.zoned.refused(), 0);
    opened.save().unwrap();
}

/// Lets workers write until the device takes no request any more; returns the promises they got.
fn write_until_cut(device: Arc<Faulty>, list: &str, seed: u64) -> Promises {
    let heard = Arc::new(Mutex::new(&HEARD, Promises::new(seed, WORKERS, 1)));
    let v = mount(device.clone(), list);
    let threads: Vec<_> = (0..WORKERS)
        .map(|id| {
            let (mut store, heard) = (Tree::new(v.clone(), &format!("w{id}")), heard.clone());
            let device = device.clone();
            let work = move || {
                store.make_top();
                let mut say = |line: &str| heard.lock().hear(line).is_ok();
                let end = plan::run(&mut Worker::new(seed, id), id, &mut store, &mut say);
                assert!(device.failed() > 0, "{end:?}, and the device takes requests");
            };
            thread::spawn("writer", work).unwrap()
        })
        .collect();
    threads.into_iter().for_each(|t| t.join());
    let _ = v.unmount();
    heard.lock().clone()
}

#[test]
fn what_we_promised_on_zones_is_recovered_by_the_kernel_and_by_us() {
    if zoned::skip_or_fail() {
        return;
    }
    let (n, mut rng) = kills("zones cut");
    let first = rng.below(CASES.len() as u64) as usize;
    // Each cut takes two guests, and a guest a good part of a minute.
    for i in 0..n.div_ceil(4) as usize {
        let (geometry, list) = CASES[(first + i) % CASES.len()];
        let judged = (0..TRIES).any(|_| cut_and_judge(geometry, list, rng.bits(), 300 + rng.below(3000)));
        assert!(judged, "the kernel destroyed data in {TRIES} of {TRIES} recoveries");
    }
}

/// Whether the kernel recovered the volume, and so was a judge of it. We are one in any case.
fn cut_and_judge(geometry: Geometry, list: &str, seed: u64, writes: u64) -> bool {
    let dir = TempDir::new("zoned").unwrap();
    let devices = Devices::create(dir.path(), geometry).unwrap();
    format(&devices);
    let opened = devices.open().unwrap();
    let cut = Rule::new(Fault::Fail(Errno::IO)).when(|rq| rq.op != Op::Read).which(writes..u64::MAX);
    let promises = write_until_cut(Faulty::new(opened.device.clone(), [cut]), list, seed);
    assert_eq!(opened.zoned.refused(), 0);
    opened.save().unwrap();
    drop(opened);
    let what = format!("{geometry:?}, {list:?}, seed {seed}, {writes} writes, {} promises", promises.len());
    println!("{what}");
    assert!(promises.len() > 10, "{what}");

    let copy = dir.path().join("copy");
    std::fs::create_dir(&copy).unwrap();
    let of_kernel = devices.copy_to(&copy).unwrap();
    std::fs::write(dir.path().join("promises"), promises.to_text()).unwrap();
    const VERIFY: &str = "$HELPER guest-power-verify $DIR/promises $MNT";
    let judged = by_the_kernel(&of_kernel, dir.path(), false, VERIFY).is_some();

    for list in ["ro", "", ""] {
        let opened = devices.open().unwrap();
        let v = mount(opened.device.clone(), list);
        let broken = promises.broken(&mut Tree::new(v.clone(), "")).unwrap();
        assert!(broken.is_empty(), "{what}, by us, {list:?}: {broken:#?}");
        v.unmount().unwrap();
        drop(v);
        opened.save().unwrap();
    }
    assert!(by_the_kernel(&devices, dir.path(), true, VERIFY).is_some(), "{what}, recovered by us");
    judged
}
