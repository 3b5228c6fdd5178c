//! Volumes on zones, mounted by us and judged by the kernel.

use crate::common::volume::mount_with;
use std::path::Path;
use std::sync::Arc;
use tidegate_block::Device;
use tidegate_f2fs::F2fsOptions;
use tidegate_testing::manifest::Manifest;
use tidegate_testing::zoned::Devices;
use tidegate_vfs::{MemoryLimits, MountOptions, Vfs};

/// Mounts the volume on a device, with these options.
pub fn mount(device: Arc<dyn Device>, list: &str) -> Arc<Vfs> {
    let mut o = F2fsOptions::default();
    o.parse(list).unwrap();
    let mount = MountOptions { noatime: true, ..Default::default() };
    mount_with(device, MemoryLimits::default(), o, mount).unwrap().1
}

/// Lets the kernel and its checker judge a volume, and runs `more` in the guest while it is mounted; returns
/// what the kernel finds in the volume. `dir` is a directory that the guest may write to, as `$DIR`. The
/// checker gets a volume that is not `clean` only when the kernel has recovered it: in dry runs it complains
/// of each log whose zone was written to behind the last checkpoint.
///
/// `None` where the kernel destroys data while it recovers the volume. On volumes of several devices, Linux
/// 6.1 gives a log a section that is free in the checkpoint but was written since, finds its zone not empty,
/// and then resets another zone: it subtracts the device's first block twice.
pub fn by_the_kernel(devices: &Devices, dir: &Path, clean: bool, more: &str) -> Option<Manifest> {
    const FSCK: &str = "fsck.f2fs -f --dry-run $DEV > /run/fsck || { cat /run/fsck; exit 1; }
        grep -e Fail -e ASSERT -e FIX /run/fsck || true\n";
    const ASTRAY: &str = "if [ \"$ZONED0\" != $DEV ] && dmesg | grep -q 'Reset the zone: curseg'; then
        umount $MNT; echo astray; exit 0\nfi\n";
    let before = if clean { FSCK } else { "" };
    let mount = format!("mount -t f2fs $DEV $MNT\n{ASTRAY}$HELPER manifest $MNT -o $DIR/kernel");
    let script = format!("{before}{mount}\n{more}\numount $MNT\n{FSCK}");
    let output = devices.machine().share(dir).env("DIR", dir).run(&script).unwrap().check().unwrap();
    if output.stdout == "astray\n" {
        return None;
    }
    assert_eq!(output.stdout, "");
    Some(Manifest::load(&dir.join("kernel")).unwrap())
}
