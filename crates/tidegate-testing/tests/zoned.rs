//! Guests with zoned devices: zones survive a guest unchanged, and the kernel recovers its own volumes.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tidegate_testing::temp::TempDir;
use tidegate_testing::zoned::{self, Condition, Geometry, Image, Machine};

/// A conventional disk and a zoned disk.
fn devices(dir: &TempDir, geometry: Geometry) -> (PathBuf, PathBuf) {
    let (disk, zoned) = (dir.path().join("disk.img"), dir.path().join("zoned.img"));
    std::fs::File::create_new(&disk).unwrap().set_len(64 << 20).unwrap();
    Image::create(&zoned, geometry).unwrap();
    (disk, zoned)
}

/// Makes files, syncs the volume, fsyncs single files, and stops the volume without a checkpoint.
const STOPPED: &str = "mount -t f2fs -o background_gc=off $FIRST $MNT\n\
    $HELPER guest-fill simple $MNT; sync -f $MNT\n\
    cd $MNT; for i in 1 2 3; do head -c ${i}00000 /dev/urandom > new$i; sync new$i; done\n\
    head -c 5000 /dev/urandom > lost\n\
    sha256sum new? > $OUT; f2fs_io shutdown 2 $MNT > /dev/null; cd /; umount $MNT\n";

const RECOVERED: &str = "mount -t f2fs $FIRST $MNT\n\
    cd $MNT; sha256sum -c --quiet $OUT; ls lost 2> /dev/null || echo recovered; cd /; umount $MNT\n";

fn recovers(geometry: Geometry) {
    let dir = TempDir::new("zoned").unwrap();
    let (disk, zoned) = devices(&dir, geometry);
    // A volume is mounted by its first device, which has conventional blocks.
    let (first, format) = match geometry.conventional {
        0 => ("DISK0", "mkfs.f2fs -q -f -m -c $ZONED0 $DISK0\n"),
        _ => ("ZONED0", "mkfs.f2fs -q -f -m $ZONED0\n"),
    };
    let machine = || {
        let machine = Machine::new().disk(&disk).zoned(&zoned).share(dir.path());
        machine.env("OUT", dir.path().join("sums"))
    };
    let run = |script: &str| machine().run(&format!("FIRST=${first}\n{script}")).unwrap().check().unwrap();
    run(&format!("{format}{STOPPED}"));
    let image = Image::open(&zoned).unwrap();
    let written = image.zones.iter().filter(|z| z.data() > 0).count();
    assert!(written > geometry.conventional as usize, "{:?}", image.zones);
    // The next guest gets the zones again, and its report is compared with the list.
    assert_eq!(run(RECOVERED).stdout, "recovered\n");
}

/// A guest takes most of a minute, so only one of the two set-ups is tested, at random.
#[test]
fn the_kernel_recovers_what_it_fsynced() {
    if zoned::skip_or_fail() {
        return;
    }
    let set_ups = [
        Geometry { capacity: 12 << 20, ..Geometry::DEFAULT },
        Geometry { conventional: 4, ..Geometry::DEFAULT },
    ];
    let chosen = std::process::id() as usize % set_ups.len();
    println!("set-up {chosen}");
    recovers(set_ups[chosen]);
}

#[test]
fn a_reset_keeps_zones_and_loses_memory() {
    if zoned::skip_or_fail() {
        return;
    }
    let dir = TempDir::new("zoned").unwrap();
    let (_, zoned) = devices(&dir, Geometry { zones: 4, capacity: 8 << 20, ..Geometry::DEFAULT });
    let before = "echo a > /run/memory\n\
                  dd if=/dev/zero of=$ZONED0 bs=64k count=3 oflag=direct status=none\n\
                  dd if=/dev/zero of=$ZONED0 bs=1M count=8 seek=16 oflag=direct status=none\n\
                  power-cut";
    let after = "[ ! -e /run/memory ]; echo second";
    let output = Machine::new().zoned(&zoned).run_cut(&[before, after]).unwrap().check().unwrap();
    assert_eq!(output.stdout.lines().last(), Some("second"));
    let zones = Image::open(&zoned).unwrap().zones;
    let found: Vec<_> = zones.iter().map(|z| (z.written, z.condition)).collect();
    let (closed, full, empty) = (Condition::Closed, Condition::Full, Condition::Empty);
    let wanted = [(3 << 16, closed), (8 << 20, full), (0, empty), (0, empty)];
    assert!(
        found == wanted || found[0] == (3 << 16, Condition::Open) && found[1..] == wanted[1..],
        "{found:?}"
    );

    let uncut = Machine::new().zoned(&zoned).run_cut(&["true", "true"]).unwrap();
    assert!(uncut.stdout.contains("ended before its power was cut"), "{}", uncut.stdout);
}

#[test]
fn a_guest_without_an_end_is_killed() {
    if zoned::skip_or_fail() {
        return;
    }
    let dir = TempDir::new("zoned").unwrap();
    let (disk, zoned) = devices(&dir, Geometry { zones: 4, ..Geometry::DEFAULT });
    let machine = Machine::new().disk(&disk).zoned(&zoned).timeout(Duration::from_secs(3));
    let error = machine.run("sleep 1000").unwrap_err().to_string();
    assert!(error.contains("out of time"), "{error}");
    assert_eq!(processes_of(&zoned), 0);
    let error = machine.run("true").unwrap_err().to_string();
    assert!(error.contains("zones are unknown"), "{error}");
}

/// The number of processes that have the image among their arguments.
fn processes_of(image: &Path) -> usize {
    let image = image.to_string_lossy().into_owned();
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|p| std::fs::read(p.path().join("cmdline")).ok());
    lines.filter(|l| String::from_utf8_lossy(l).contains(&image)).count()
}
