//! Volumes on zones: every write is at a write pointer, whatever the operations.

use crate::common::volume::mount_with;
use crate::common::zoned::{Bed, MIB, ROOT, content, file, spec};
use std::sync::Arc;
use tidegate_block::{
    Device, Errno, Fault, Faulty, Linear, MemoryDevice, Op, QueueLimits, Request, RequestQueue, Rule,
    ZoneSpec, ZonedDevice,
};
use tidegate_f2fs::check::{CheckOptions, check};
use tidegate_f2fs::mkfs::{DevicePart, MkfsOptions, mkfs};
use tidegate_f2fs::raw::Features;
use tidegate_f2fs::{F2fs, F2fsOptions};
use tidegate_rt::rng::Rng;
use tidegate_vfs::*;

#[test]
fn files_come_and_go_on_zones() {
    for (capacity, options) in [
        (4 * MIB, ""),
        (3 * MIB + 512 * 1024, ""),
        (4 * MIB, "writepages=submit_locked"),
        (4 * MIB, "warm_streams=4,stream_policy=srr"),
    ] {
        let bed = Bed::new(ZoneSpec { max_active: 10, ..spec(capacity) }, 160);
        let (fs, v) = bed.mount(options);
        let mut held: Vec<Option<u64>> = vec![None; 12];
        let mut rng = Rng::new(7);
        for n in 0..160u64 {
            let i = rng.below(held.len() as u64) as usize;
            let name = format!("/f{i}");
            match held[i] {
                Some(_) if rng.one_in(3) => {
                    v.unlink(ROOT, &v.root().unwrap(), &name.as_bytes()[1..]).unwrap();
                    held[i] = None;
                }
                _ => {
                    let f = file(&v, &name);
                    f.truncate(0).unwrap();
                    f.write_at(0, &content(n, 2 << 20)).unwrap();
                    if rng.one_in(3) {
                        f.fsync(false).unwrap();
                    }
                    held[i] = Some(n);
                }
            }
            if rng.one_in(10) {
                v.sync().unwrap();
            }
        }
        let check = |v: &Arc<Vfs>| {
            for (i, n) in held.iter().enumerate() {
                let Some(n) = n else { continue };
                let mut bytes = vec![0; 2 << 20];
                assert_eq!(file(v, &format!("/f{i}")).read_at(0, &mut bytes).unwrap(), bytes.len());
                assert!(bytes == content(*n, 2 << 20), "file {i}, {options:?}");
            }
        };
        check(&v);
        let stats = fs.stats();
        assert!(stats.discarded_bytes > 0);
        v.unmount().unwrap();
        // Neither the device nor the queue before it had to refuse a write.
        assert_eq!((bed.device.refused(), fs.queue_stats().zone_refused), (0, 0), "{options:?}");
        drop((fs, v));
        if capacity == 4 * MIB {
            bed.fsck();
        }
        let (_, v) = bed.mount("");
        check(&v);
        v.unmount().unwrap();
        assert_eq!(bed.device.refused(), 0);
        assert!(bed.device.report_zones().unwrap().iter().any(|z| z.state.is_active()));
    }
}

/// There are as few active zones as possible, and all logs go from one zone to the next.
#[test]
fn no_more_zones_are_begun_than_the_device_takes() {
    let bed = Bed::new(ZoneSpec { max_open: 7, max_active: 7, ..spec(4 * MIB) }, 320);
    let (fs, v) = bed.mount("warm_streams=4");
    let theirs = |t: u64| {
        let v = v.clone();
        tidegate_rt::thread::spawn("writer", move || {
            for n in 0..12 {
                let f = file(&v, &format!("/f{t}-{}", n % 3));
                f.write_at(0, &content(t * 100 + n, 5 << 20)).unwrap();
                f.fsync(false).unwrap();
            }
        })
    };
    let threads: Vec<_> = (0..4).map(|t| theirs(t).unwrap()).collect();
    threads.into_iter().for_each(|t| t.join());
    v.unmount().unwrap();
    assert_eq!((bed.device.refused(), fs.queue_stats().zone_refused), (0, 0));
}

fn attempt(device: Arc<dyn Device>, features: Features) -> std::result::Result<(), String> {
    let queue = RequestQueue::new(device, QueueLimits::default());
    let options = MkfsOptions { features, ..Default::default() };
    mkfs(&queue, &options).map(drop).map_err(|e| e.to_string())
}

fn open(device: Arc<dyn Device>) -> tidegate_vfs::Result<Arc<F2fs>> {
    let queue = Arc::new(RequestQueue::new(device, QueueLimits::default()));
    F2fs::open(queue, Bdi::new(MemoryLimits::default()), F2fsOptions::default())
}

#[test]
fn what_does_not_fit_zones_is_refused() {
    let zoned = |spec| Arc::new(ZonedDevice::new(Arc::new(MemoryDevice::new(160 * MIB)), spec));
    let e = attempt(zoned(spec(4 * MIB)), Features::empty()).unwrap_err();
    assert!(e.contains("make a volume with the feature blkzoned (--zoned)"), "{e}");
    let few = ZoneSpec { conventional: 2, ..spec(4 * MIB) };
    let e = attempt(zoned(few), Features::BLKZONED).unwrap_err();
    assert!(e.contains("the first 8 MiB can be written anywhere, metadata takes 20 MiB"), "{e}");
    let e = attempt(zoned(ZoneSpec { size: 3 * MIB, capacity: 3 * MIB, ..few }), Features::BLKZONED);
    assert!(e.unwrap_err().contains("zones of 3 MiB"));
    let six = ZoneSpec { max_open: 6, max_active: 6, ..spec(4 * MIB) };
    let e = attempt(zoned(six), Features::BLKZONED).unwrap_err();
    assert!(e.contains("6 of the device's zones can be partly written at a time, a volume takes 7"), "{e}");
    let e = open(Arc::new(ZonedDevice::new(Bed::new(spec(4 * MIB), 160).memory, six))).err().unwrap();
    assert_eq!(e.what(), "6 can be partly written at a time, a volume takes 7");
    // A volume without the zoned feature, on a device with zones.
    let memory = Arc::new(MemoryDevice::new(160 * MIB));
    attempt(memory.clone(), Features::empty()).unwrap();
    let e = open(Arc::new(ZonedDevice::new(memory, spec(4 * MIB)))).err().unwrap();
    assert_eq!(e.what(), "a volume without blkzoned on zones that are written in order");
    let bed = Bed::new(spec(4 * MIB), 160);
    let other = ZoneSpec { size: 8 * MIB, capacity: 8 * MIB, conventional: 4, ..spec(0) };
    let e = open(Arc::new(ZonedDevice::new(bed.memory.clone(), other))).err().unwrap();
    assert_eq!(e.what(), "sections of 4194304 bytes on zones of 8388608");
}

/// Metadata is on a device without zones, whose length is no multiple of a zone; the rest is on zones.
#[test]
fn a_volume_lies_on_two_devices() {
    let sizes = [29 * MIB, 128 * MIB];
    let plain = Arc::new(MemoryDevice::new(sizes[0]));
    let none = ZoneSpec { conventional: 0, ..spec(4 * MIB) };
    let zones = Arc::new(ZonedDevice::new(Arc::new(MemoryDevice::new(sizes[1])), none));
    let parts: Vec<(Arc<dyn Device>, u64)> = vec![(plain.clone(), sizes[0]), (zones.clone(), sizes[1])];
    let device = Arc::new(Linear::new(parts).unwrap());
    let queue = RequestQueue::new(device.clone(), QueueLimits::default());
    let devices = ["/dev/vda", "/dev/nvme0n1"].into_iter().zip(sizes);
    let devices = devices.map(|(path, bytes)| DevicePart { path: path.into(), bytes }).collect();
    let options = MkfsOptions { features: Features::BLKZONED, devices, ..Default::default() };
    let layout = mkfs(&queue, &options).unwrap().layout;
    assert_eq!((sizes[0] - u64::from(layout.main.0) * 4096) % (4 * MIB), 0);
    drop(queue);
    let e = open(plain).err().unwrap();
    assert_eq!(e.what(), "a volume over 2 devices, opened without all of them");
    let mount = || {
        let (limits, mount) = (MemoryLimits::default(), MountOptions::default());
        mount_with(device.clone(), limits, F2fsOptions::default(), mount).unwrap().1
    };
    let v = mount();
    for n in 0..8 {
        file(&v, &format!("/f{}", n % 4)).write_at(0, &content(n, 6 << 20)).unwrap();
        v.sync().unwrap();
    }
    v.unmount().unwrap();
    let v = mount();
    let mut bytes = vec![0; 6 << 20];
    file(&v, "/f3").read_at(0, &mut bytes).unwrap();
    assert!(bytes == content(7, 6 << 20));
    v.unmount().unwrap();
    assert_eq!(zones.refused(), 0);
    let queue = RequestQueue::new(device, QueueLimits::default());
    let report = check(&queue, CheckOptions::default()).unwrap();
    assert!(report.is_clean(), "{:?}", report.problems);
}

#[test]
fn data_whose_zone_fails_goes_to_another() {
    let bed = Bed::new(ZoneSpec { max_active: 10, ..spec(4 * MIB) }, 160);
    let faulty = Faulty::new(bed.device.clone(), []);
    let (limits, mount) = (MemoryLimits::default(), MountOptions::default());
    let (fs, v) = mount_with(faulty.clone(), limits, F2fsOptions::default(), mount).unwrap();
    let f = file(&v, "/f");
    f.write_at(0, &content(1, 1 << 20)).unwrap();
    f.fsync(false).unwrap();
    let data = |rq: &Request| rq.bytes >= 65536 && rq.sector.bytes() >= 32 * MIB;
    faulty.set([Rule::new(Fault::Fail(Errno::IO)).op(Op::Write).when(data).which(0..1)]);
    f.write_at(0, &content(2, 3 << 20)).unwrap();
    assert!(f.fsync(false).is_err());
    assert!(faulty.failed() > 0);
    f.fsync(false).unwrap();
    v.sync().unwrap();
    v.unmount().unwrap();
    drop((f, fs, v));
    assert_eq!(bed.device.refused(), 0);
    let (_, v) = bed.mount("");
    let mut bytes = vec![0; 3 << 20];
    file(&v, "/f").read_at(0, &mut bytes).unwrap();
    assert!(bytes == content(2, 3 << 20));
    v.unmount().unwrap();
    bed.fsck();
}

/// The feature is set in an image, which has no zones: it is written in order all the same, and repaired.
#[test]
fn an_image_of_a_zoned_volume_is_only_appended_to() {
    let memory = Arc::new(MemoryDevice::new(128 * MIB));
    let queue = RequestQueue::new(memory.clone(), QueueLimits::default());
    let options = MkfsOptions { features: Features::BLKZONED, segs_per_sec: 2, ..Default::default() };
    mkfs(&queue, &options).unwrap();
    let (limits, mount) = (MemoryLimits::default(), MountOptions::default());
    let (fs, v) = mount_with(memory.clone(), limits, F2fsOptions::default(), mount).unwrap();
    let f = file(&v, "/f");
    for n in 0..200 {
        f.write_at(n % 4 * 4096, &content(n, 4096)).unwrap();
        f.fsync(true).unwrap();
    }
    assert_eq!(fs.stats().own["in_place_blocks"], 0);
    let zones = fs.info().unwrap().zones.unwrap();
    assert_eq!((zones.sequential, zones.capacity), (0, 1024));
    v.unmount().unwrap();
    if !tidegate_testing::oracle::skip_or_fail("fsck.f2fs") {
        crate::common::volume::fsck(&memory).unwrap();
    }
}
