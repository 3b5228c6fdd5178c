//! Devices behind the first that are not the volume's, or not in its order; zones with less content than they
//! should have.

use crate::common::image::Image;
use crate::common::volume::mount_with;
use crate::common::zoned::{self, Bed, MIB, ROOT, content, file};
use std::sync::Arc;
use tidegate_block::zones::Zones;
use tidegate_block::{
    Device, Linear, MemoryDevice, QueueLimits, RequestQueue, ZoneSpec, ZoneState, ZonedDevice,
};
use tidegate_f2fs::F2fsOptions;
use tidegate_f2fs::check::{CheckOptions, check};
use tidegate_f2fs::mkfs::{DevicePart, MkfsOptions, mkfs};
use tidegate_f2fs::raw::Features;
use tidegate_f2fs::repair::{RepairOptions, repair};
use tidegate_vfs::*;

const OTHER: u64 = 64 * MIB;

type Parts = Vec<(Arc<dyn Device>, u64)>;

fn together(parts: &Parts, order: [usize; 3]) -> Arc<Linear> {
    Arc::new(Linear::new(order.iter().map(|n| parts[*n].clone()).collect()).unwrap())
}

fn opened(device: Arc<dyn Device>, options: &str) -> Result<Arc<Vfs>> {
    let mut o = F2fsOptions::default();
    o.parse(options).unwrap();
    mount_with(device, MemoryLimits::default(), o, MountOptions::default()).map(|o| o.1)
}

/// A volume whose nodes and data lie on two devices of one size behind the first, which has all metadata.
fn filled(parts: &Parts, features: Features) {
    let devices = parts.iter().zip(["a", "b", "c"]);
    let devices = devices.map(|(p, path)| DevicePart { path: path.into(), bytes: p.1 }).collect();
    let options = MkfsOptions { features, devices, ..Default::default() };
    let whole = together(parts, [0, 1, 2]);
    let layout = mkfs(&RequestQueue::new(whole.clone(), QueueLimits::default()), &options).unwrap().layout;
    assert_eq!(u64::from(layout.main.0) * 4096, parts[0].1);
    let v = opened(whole, "").unwrap();
    for n in 0..12 {
        file(&v, &format!("/f{n}")).write_at(0, &content(n, 4 << 20)).unwrap();
        v.sync().unwrap();
    }
    v.unmount().unwrap();
}

#[test]
fn zones_of_devices_in_another_order_are_not_reset() {
    let zoned = || {
        let spec = ZoneSpec { conventional: 0, max_active: 12, max_open: 12, ..zoned::spec(4 * MIB) };
        Arc::new(ZonedDevice::new(Arc::new(MemoryDevice::new(OTHER)), spec))
    };
    let (one, two) = (zoned(), zoned());
    let parts: Parts =
        vec![(Arc::new(MemoryDevice::new(20 * MIB)), 20 * MIB), (one.clone(), OTHER), (two.clone(), OTHER)];
    filled(&parts, Features::BLKZONED);
    let before = [&one, &two].map(|d| d.report_zones().unwrap());
    assert!(before.iter().all(|zones| zones.iter().any(|z| z.state == ZoneState::Full)));
    let swapped = together(&parts, [0, 2, 1]);
    let said = "device number 2 of the volume, which lists it as \"b\", is another one: none of 8 nodes is in its place";
    for options in ["", "ro", "disable_roll_forward"] {
        let e = opened(swapped.clone(), options).err().unwrap();
        assert_eq!((e.kind(), e.what().starts_with(said)), (ErrorKind::InvalidArgument, true), "{e}");
    }
    let queue = Arc::new(RequestQueue::new(swapped, QueueLimits::default()));
    assert!(check(&queue, CheckOptions::default()).unwrap_err().what().starts_with(said));
    let e = repair(&queue, RepairOptions::default(), &mut |_| {}).unwrap_err();
    assert!(e.what().starts_with(said), "{e}");
    assert_eq!([&one, &two].map(|d| d.report_zones().unwrap()), before);
    let v = opened(together(&parts, [0, 1, 2]), "").unwrap();
    let mut bytes = vec![0; 4 << 20];
    file(&v, "/f7").read_at(0, &mut bytes).unwrap();
    assert!(bytes == content(7, 4 << 20));
    v.unmount().unwrap();
}

#[test]
fn devices_without_zones_in_another_order_are_refused() {
    let memory = |bytes| -> (Arc<dyn Device>, u64) { (Arc::new(MemoryDevice::new(bytes)), bytes) };
    let parts = vec![memory(16 * MIB), memory(OTHER), memory(OTHER)];
    filled(&parts, Features::empty());
    let e = opened(together(&parts, [0, 2, 1]), "").err().unwrap();
    assert!(e.what().starts_with("device number 2 of the volume"), "{e}");
    opened(together(&parts, [0, 1, 2]), "").unwrap().unmount().unwrap();
}

/// The zones over a copy of the bytes; `pointer` gives each zone's write pointer.
fn copy(bed: &Bed, pointer: impl Fn(usize, &tidegate_block::Zone) -> u64) -> Arc<ZonedDevice> {
    let memory = Image::of(&bed.memory).device();
    let mut zones = Zones::new(spec(), memory.size());
    for (n, z) in bed.device.report_zones().unwrap().iter().enumerate().filter(|z| z.1.is_sequential()) {
        zones.set_pointer(n, pointer(n, z));
    }
    Arc::new(ZonedDevice::with_zones(memory, zones))
}

fn spec() -> ZoneSpec {
    ZoneSpec { conventional: 5, max_active: 10, max_open: 10, ..zoned::spec(4 * MIB) }
}

fn used() -> Bed {
    let bed = Bed::new(spec(), 160);
    let (_, v) = bed.mount("");
    (0..10).for_each(|n| _ = file(&v, &format!("/f{n}")).write_at(0, &content(n, 2 << 20)).unwrap());
    v.unmount().unwrap();
    bed
}

/// Zones in which the checkpoint has content have changed: nothing is written before a user has looked.
#[test]
fn a_volume_with_blocks_behind_write_pointers_opens_read_only() {
    let bed = used();
    let full = |z: &tidegate_block::Zone| z.state == ZoneState::Full;
    let which = bed.device.report_zones().unwrap().iter().rposition(full).unwrap();
    let device = copy(&bed, |n, z| if n == which { z.pointer - MIB } else { z.pointer });
    let before = device.report_zones().unwrap();
    let v = opened(device.clone(), "").unwrap();
    let block = (before[which].pointer) / 4096;
    let why = format!("block {block} is in use, and lies behind its zone's write pointer: check tells more");
    assert_eq!(v.fs().read_only(), Some(ReadOnly::Zones(why)));
    v.unmount().unwrap();
    assert_eq!((device.report_zones().unwrap(), device.refused()), (before, 0));
}

/// A power cut has left part of a block, on a device with smaller blocks, in zones that logs are in and in a
/// free zone.
#[test]
fn a_zone_that_ends_within_a_block_is_left() {
    let bed = used();
    let zones = bed.device.report_zones().unwrap();
    let torn = |n: usize| {
        let z = &zones[n];
        z.state.is_active()
            || z.state == ZoneState::Empty && zones[..n].iter().all(|z| z.state != ZoneState::Empty)
    };
    for only in [None, Some(zones.iter().position(|z| z.state.is_active()).unwrap())] {
        let device = copy(&bed, |n, z| z.pointer + if only.map_or(torn(n), |o| n == o) { 512 } else { 0 });
        let v = opened(device.clone(), "").unwrap();
        assert_eq!(v.fs().read_only(), None);
        for n in 5..15 {
            let f = file(&v, &format!("/f{n}"));
            f.write_at(0, &content(n + 1, 3 << 20)).unwrap();
            f.fsync(false).unwrap();
        }
        v.unmount().unwrap();
        assert_eq!(device.refused(), 0);
        let queue = RequestQueue::new(device.clone(), QueueLimits::default());
        let report = check(&queue, CheckOptions::default()).unwrap();
        assert!(report.is_clean(), "{:?}", report.problems);
        let v = opened(device, "").unwrap();
        let mut bytes = vec![0; 3 << 20];
        v.open_path(ROOT, b"/f14", OpenFlags::READ, 0).unwrap().read_at(0, &mut bytes).unwrap();
        assert!(bytes == content(15, 3 << 20));
        v.unmount().unwrap();
    }
}
