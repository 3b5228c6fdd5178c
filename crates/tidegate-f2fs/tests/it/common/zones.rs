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
pub fn by_the_kernel(devices: &Devices, dir: &Path, clean: bool, more: &str) -> Manifest {
    const FSCK: &str = "fsck.f2fs -f --dry-run $DEV > /run/fsck || { cat /run/fsck; exit 1; }
        grep -e Fail -e ASSERT -e FIX /run/fsck || true\n";
    let mount = "mount -t f2fs $DEV $MNT; $HELPER manifest $MNT -o $DIR/kernel";
    let before = if clean { FSCK } else { "" };
    let script = format!("{before}{mount}\n{more}\numount $MNT\n{FSCK}");
    let output = devices.machine().share(dir).env("DIR", dir).run(&script).unwrap().check().unwrap();
    assert_eq!(output.stdout, "");
    Manifest::load(&dir.join("kernel")).unwrap()
}
