//! One volume on zones, two file systems: a real kernel with zoned devices and ours.

use crate::common::tree::{assert_same, describe};
use std::sync::Arc;
use std::time::Duration;
use tidegate_block::{Device, QueueLimits, RequestQueue};
use tidegate_f2fs::check::{CheckOptions, check};
use tidegate_f2fs::mkfs::{DevicePart, MkfsOptions, mkfs};
use tidegate_f2fs::raw::Features;
use tidegate_f2fs::{F2fs, F2fsOptions};
use tidegate_testing::manifest::{Manifest, Options};
use tidegate_testing::power::Promises;
use tidegate_testing::temp::TempDir;
use tidegate_testing::tree::assert_same_but;
use tidegate_testing::zoned::{self, Devices, Geometry, golden};
use tidegate_vfs::*;

const ROOT: &Cred = &Cred::ROOT;
const RW: OpenFlags = OpenFlags::READ.union(OpenFlags::WRITE);
/// Time for a guest, on a slow machine.
const PATIENCE: Duration = Duration::from_secs(300);

fn mount(device: &Arc<dyn Device>) -> Arc<Vfs> {
    let queue = Arc::new(RequestQueue::new(device.clone(), QueueLimits::default()));
    let bdi = Bdi::new(MemoryLimits::default());
    let fs = F2fs::open(queue, bdi.clone(), F2fsOptions::default()).unwrap();
    let v = Vfs::mount(fs, bdi, MountOptions { noatime: true, ..Default::default() }).unwrap();
    assert_eq!(v.fs().read_only(), None);
    v
}

fn assert_checked(device: &Arc<dyn Device>) {
    let queue = RequestQueue::new(device.clone(), QueueLimits::default());
    let report = check(&queue, CheckOptions::default()).unwrap();
    assert!(report.is_clean(), "{:?}", report.problems);
}

/// Opens a copy of the kernel's volume, and changes it; returns what was found, and the copy.
fn taken_over(name: &str) -> Option<(Manifest, Devices, TempDir, golden::Volume)> {
    if zoned::skip_or_fail() {
        return None;
    }
    let volume = golden::ensure(name).unwrap();
    let dir = TempDir::new("zoned").unwrap();
    let devices = volume.devices.copy_to(dir.path()).unwrap();
    let opened = devices.open().unwrap();
    let v = mount(&opened.device);
    let found = describe(&v);
    for n in 0..6 {
        fill(&v, n);
    }
    v.unmount().unwrap();
    drop(v);
    assert_checked(&opened.device);
    assert_eq!(opened.zoned.refused(), 0);
    opened.save().unwrap();
    Some((found, devices, dir, volume))
}

fn fill(v: &Arc<Vfs>, n: u8) {
    let f = v.open_path(ROOT, format!("/ours{n}").as_bytes(), RW | OpenFlags::CREATE, 0o644).unwrap();
    f.write_at(0, &vec![b'a' + n; 3 << 20]).unwrap();
    if n.is_multiple_of(2) {
        f.fsync(false).unwrap();
    }
}

/// The kernel mounts the volume, finds our files whole, and does not complain.
const KERNEL_READS: &str = "mount -t f2fs $DEV $MNT
    for n in 0:a 1:b 2:c 3:d 4:e 5:f; do
      [ $(tr -d ${n#*:} < $MNT/ours${n%:*} | wc -c) = 0 ] && [ $(wc -c < $MNT/ours${n%:*}) = 3145728 ]
    done
    head -c 1000000 /dev/zero > $MNT/kernels; sync -f $MNT; umount $MNT
    fsck.f2fs -f --dry-run $DEV > /run/fsck || { cat /run/fsck; exit 1; }
    echo kept\n";

fn kernel_reads(devices: &Devices) {
    let out = devices.machine().timeout(PATIENCE).run(&format!("set -e\n{KERNEL_READS}")).unwrap();
    assert_eq!(out.check().unwrap().stdout.lines().last(), Some("kept"));
}

/// One of the names, at random: a guest takes a good part of a minute.
fn one_of(names: [&'static str; 3]) -> &'static str {
    let chosen = names[std::process::id() as usize % names.len()];
    println!("read by a guest: {chosen}");
    chosen
}

#[test]
fn what_the_kernel_left_clean() {
    let names = ["zoned-clean", "zoned-capacity-clean", "zoned-conventional-clean"];
    let read = one_of(names);
    for name in names {
        let Some((found, devices, _dir, volume)) = taken_over(name) else { return };
        assert_same(name, &Manifest::load(volume.manifest.as_deref().unwrap()).unwrap(), &found);
        if name == read {
            kernel_reads(&devices);
        }
    }
}

#[test]
fn what_the_kernel_fsynced() {
    let names = ["zoned-fsynced", "zoned-capacity-fsynced", "zoned-conventional-fsynced"];
    let read = one_of(names);
    for name in names {
        let Some((found, devices, _dir, volume)) = taken_over(name) else { return };
        let mut kernel = Manifest::load(volume.recovered.as_deref().unwrap()).unwrap();
        // For the directory whose names were recovered, the kernel gives the time of recovery; we give the
        // time when the names were made.
        let top = |m: &Manifest| m.entries.iter().position(|e| e.path == ".").unwrap();
        let (k, o) = (top(&kernel), top(&found));
        kernel.entries[k].mtime = found.entries[o].mtime;
        assert_same_but(name, &kernel, &found, &Options::default());
        if name == read {
            kernel_reads(&devices);
        }
    }
}

#[test]
fn what_a_reset_of_the_kernel_left() {
    let Some((_, devices, dir, volume)) = taken_over("zoned-capacity-cut") else { return };
    let promises = std::fs::read_to_string(volume.promises.unwrap()).unwrap();
    assert!(Promises::parse(&promises).is_ok());
    let path = dir.path().join("promises");
    std::fs::write(&path, &promises).unwrap();
    let script =
        "mount -t f2fs $DEV $MNT; $HELPER guest-power-verify $PROMISES $MNT; umount $MNT; echo kept\n";
    let machine = devices.machine().timeout(PATIENCE).share(dir.path()).env("PROMISES", &path);
    let out = machine.run(&format!("set -e\n{script}")).unwrap();
    assert_eq!(out.check().unwrap().stdout.lines().last(), Some("kept"));
}

/// We make a volume, write to it and unmount or abandon it; the kernel takes it from there.
fn kernel_takes_over(geometry: Geometry, crash: bool) {
    if zoned::skip_or_fail() {
        return;
    }
    let dir = TempDir::new("zoned").unwrap();
    let devices = Devices::create(dir.path(), geometry).unwrap();
    let opened = devices.open().unwrap();
    let queue = RequestQueue::new(opened.device.clone(), QueueLimits::default());
    let named = devices.named().unwrap();
    let parts = named.iter().map(|(path, bytes)| DevicePart { path: path.to_string(), bytes: *bytes });
    let devs = if named.len() > 1 { parts.collect() } else { Vec::new() };
    let options = MkfsOptions { features: Features::BLKZONED, devices: devs, ..Default::default() };
    mkfs(&queue, &options).unwrap();
    drop(queue);
    let v = mount(&opened.device);
    for n in 0..6 {
        fill(&v, n);
        if n == 2 {
            v.sync().unwrap();
        }
    }
    for n in 0..6 {
        let f = v.open_path(ROOT, format!("/ours{n}").as_bytes(), RW, 0).unwrap();
        f.fsync(false).unwrap();
    }
    if !crash {
        v.unmount().unwrap();
        assert_checked(&opened.device);
    }
    assert_eq!(opened.zoned.refused(), 0);
    opened.save().unwrap();
    // Without our unmount, the writes are there, but no checkpoint has them. The volume keeps its own
    // devices.
    let copy = TempDir::new("zoned").unwrap();
    let devices = devices.copy_to(copy.path()).unwrap();
    if crash {
        std::mem::forget(v);
    }
    kernel_reads(&devices);
    let opened = devices.open().unwrap();
    assert_checked(&opened.device);
    let v = mount(&opened.device);
    let f = v.open_path(ROOT, b"/kernels", OpenFlags::READ, 0).unwrap();
    assert_eq!(f.size(), 1_000_000);
    drop(f);
    v.unmount().unwrap();
}

#[test]
fn the_kernel_mounts_what_we_made_and_left() {
    kernel_takes_over(
        Geometry { zones: 64, zone_size: 8 << 20, capacity: 8 << 20, ..Geometry::DEFAULT },
        false,
    );
    let part = Geometry { zones: 64, zone_size: 8 << 20, capacity: 7 << 20, ..Geometry::DEFAULT };
    kernel_takes_over(part, false);
}

#[test]
fn the_kernel_recovers_what_we_fsynced() {
    let part = Geometry { zones: 64, zone_size: 8 << 20, capacity: 7 << 20, ..Geometry::DEFAULT };
    kernel_takes_over(part, true);
    let one =
        Geometry { zones: 64, zone_size: 8 << 20, capacity: 8 << 20, conventional: 8, ..Geometry::DEFAULT };
    kernel_takes_over(one, true);
}
