//! The program in a guest with real zoned devices, beside the kernel.

use std::path::Path;
use std::time::Duration;
use tidegate_testing::temp::TempDir;
use tidegate_testing::zoned::{self, Devices, Geometry};

/// Time for a guest, on a slow machine.
const PATIENCE: Duration = Duration::from_secs(500);

/// The program makes a volume on the guest's devices and fills it; the kernel mounts it, writes and leaves it; the
/// program reads, checks, and writes on.
const SCRIPT: &str = r#"
T="$PROGRAM --quiet"
$T mkfs --force --zoned $OTHER $DEV
head -c 3000000 /dev/urandom > /run/a
for n in 1 2 3 4 5 6 7 8; do $T cp /run/a $DEV:/ours$n; done
$T rm $DEV:/ours3
$T info $DEV | grep -e zones -e devices
$PROGRAM check $DEV | sed 's/;.*//'
mount -t f2fs $DEV $MNT
cmp /run/a $MNT/ours8
cp /run/a $MNT/theirs; rm $MNT/ours1; sync -f $MNT; umount $MNT
$PROGRAM check $DEV | sed 's/;.*//'
$T cp $DEV:/theirs /run/b
cmp /run/a /run/b
$T cp /run/a $DEV:/again
fsck.f2fs -f --dry-run $DEV > /run/fsck || { cat /run/fsck; exit 1; }
grep -e Fail -e ASSERT -e FIX /run/fsck || true
mount -t f2fs $DEV $MNT
cmp /run/a $MNT/again
umount $MNT
"#;

fn judge(geometry: Geometry, other: &str, info: &str) {
    if zoned::skip_or_fail() {
        return;
    }
    let dir = TempDir::new("program").unwrap();
    let program = dir.path().join("tidegate");
    std::fs::copy(Path::new(env!("CARGO_BIN_EXE_tidegate")), &program).unwrap();
    let devices = Devices::create(dir.path(), geometry).unwrap();
    let machine = devices.machine().timeout(PATIENCE).share(dir.path());
    let out = machine.env("PROGRAM", &program).env("OTHER", other).run(&format!("set -e\n{SCRIPT}")).unwrap();
    let lines: Vec<String> = out.check().unwrap().stdout.lines().map(str::to_owned).collect();
    let [first, clean @ ..] = &lines[..] else { panic!("no output") };
    assert!(first.contains(info), "{lines:?}");
    let clean: Vec<_> = clean.iter().filter(|l| !l.contains("  zones  ")).collect();
    assert_eq!(clean.len(), 2, "{lines:?}");
    assert!(clean.iter().all(|l| l.ends_with("clean")), "{lines:?}");
}

/// A disk for the metadata, and QEMU's zoned NVMe namespace.
#[test]
fn a_volume_on_a_disk_and_a_zoned_namespace() {
    let geometry = Geometry { zones: 48, zone_size: 8 << 20, capacity: 8 << 20, ..Geometry::DEFAULT };
    judge(geometry, "-c /dev/nvme0n1", "/dev/vda (64 MiB), /dev/nvme0n1 (384 MiB)");
}

/// null_blk with conventional zones.
#[test]
fn a_volume_on_one_device_with_conventional_zones() {
    let geometry =
        Geometry { conventional: 8, zones: 64, zone_size: 4 << 20, capacity: 4 << 20, ..Geometry::DEFAULT };
    judge(geometry, "", "on zones written in order");
}
