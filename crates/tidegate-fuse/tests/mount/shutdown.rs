//! The shutdown of a volume by FS_IOC_SHUTDOWN, with more or less of it saved, and a full sync.

use crate::rig::{Rig, cannot_mount};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

const FS_IOC_SHUTDOWN: u32 = 0x8004_587d;
const EINVAL: i32 = 22;

/// Calls an ioctl whose argument points to `word`. Returns 0 or the errno. Perl is on every Debian, and needs no unsafe
/// code.
pub fn ioctl(path: &Path, cmd: u32, word: u32) -> i32 {
    let program = "open(F,'<',$ARGV[0]) or exit 255; $w = pack('L',$ARGV[2]); \
                   exit(defined(ioctl(F,$ARGV[1],$w)) ? 0 : $!+0)";
    let mut perl = Command::new("perl");
    perl.args(["-e", program]).arg(path).arg(cmd.to_string()).arg(word.to_string());
    perl.status().unwrap().code().unwrap()
}

/// Makes three files: one is synced, of one only the name is in memory, and of one only the pages. Shuts the volume
/// down in way `how`. Returns whether name and bytes of each are there afterwards.
fn after(how: u32) -> [(bool, bool); 3] {
    let mut rig = Rig::new(256, "");
    let data = vec![6; 300_000];
    let make = |name: &str| {
        let f = File::create(rig.dir.join(name)).unwrap();
        f.write_all_at(&data, 0).unwrap();
        f
    };
    // The first fsync after opening is a checkpoint, which saves all existing content.
    make("synced").sync_all().unwrap();
    make("closed");
    let open = make("open");
    assert_eq!(ioctl(&rig.dir, FS_IOC_SHUTDOWN, 7), EINVAL, "no such way, and nothing stopped");
    std::fs::write(rig.dir.join("still"), "x").unwrap();
    std::fs::remove_file(rig.dir.join("still")).unwrap();
    assert_eq!(ioctl(&rig.dir, FS_IOC_SHUTDOWN, how), 0);
    assert!(std::fs::write(rig.dir.join("late"), "x").is_err(), "it takes changes");
    assert!(std::fs::create_dir(rig.dir.join("d")).is_err());
    drop(open);
    rig.unmount();
    rig.mount("").unwrap();
    let look = |name: &str| {
        let got = std::fs::read(rig.dir.join(name));
        (got.is_ok(), got.is_ok_and(|b| b == data))
    };
    let found = ["synced", "closed", "open"].map(look);
    assert!(!rig.dir.join("late").exists());
    rig.finish();
    found
}

#[test]
fn a_full_sync_before_the_end_keeps_everything() {
    if !cannot_mount() {
        assert_eq!(after(0), [(true, true); 3]);
    }
}

#[test]
fn a_sync_of_metadata_before_the_end_keeps_names() {
    if !cannot_mount() {
        let found = after(1);
        assert_eq!(found[0], (true, true));
        assert!(found[1].0 && found[2].0, "{found:?}");
        // Its pages were never written.
        assert!(!found[2].1, "all was saved");
    }
}

#[test]
fn an_end_without_a_sync_keeps_what_was_fsynced() {
    if !cannot_mount() {
        let found = after(2);
        assert_eq!(found[0], (true, true));
        assert!(!found[1].0 && !found[2].0, "{found:?}: something saved it");
    }
}

#[test]
fn a_full_sync_is_a_call() {
    if cannot_mount() {
        return;
    }
    let mut rig = Rig::new(256, "");
    let f = File::create(rig.dir.join("f")).unwrap();
    f.write_all_at(&[9; 100_000], 0).unwrap();
    std::fs::create_dir(rig.dir.join("d")).unwrap();
    tidegate_fuse::ioctl::full_sync(&rig.dir.join("d")).unwrap();
    assert!(tidegate_fuse::ioctl::full_sync(rig.scratch.path()).is_err(), "no volume of ours");
    rig.kill();
    drop(f);
    rig.mount("").unwrap();
    assert_eq!(std::fs::read(rig.dir.join("f")).unwrap(), [9; 100_000]);
    assert!(rig.dir.join("d").is_dir());
    rig.finish();
}
