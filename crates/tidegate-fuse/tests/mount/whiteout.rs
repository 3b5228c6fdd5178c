//! Renames that leave a whiteout, and the union mount that needs them.

use crate::programs::sh;
use crate::rig::{Rig, cannot_mount};
use rustix::fs::{CWD, FileType, RenameFlags, renameat_with};
use std::path::Path;
use std::process::Command;

struct Union<'a>(&'a Path);

impl Drop for Union<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

/// Whether `path` is a whiteout.
fn is_whiteout(path: &Path) -> bool {
    rustix::fs::lstat(path)
        .is_ok_and(|s| FileType::from_raw_mode(s.st_mode).is_char_device() && s.st_rdev == 0)
}

#[test]
fn a_whiteout_is_part_of_the_rename() {
    if cannot_mount() {
        return;
    }
    let mut rig = Rig::new(256, "");
    let (d, e) = (rig.dir.join("d"), rig.dir.join("e"));
    std::fs::create_dir(&d).unwrap();
    std::fs::create_dir(&e).unwrap();
    // So many names that the directories no longer fit in their inodes.
    for i in 0..300 {
        std::fs::write(d.join(format!("f{i}")), format!("{i}")).unwrap();
    }
    std::fs::write(e.join("f7"), "replaced").unwrap();
    std::fs::create_dir(d.join("sub")).unwrap();
    // The data does not belong to the renames: ext4 does not write it when another file is fsynced.
    tidegate_fuse::ioctl::full_sync(&rig.dir).unwrap();
    for name in (0..300).step_by(7).map(|i| format!("f{i}")).chain(["sub".to_string()]) {
        renameat_with(CWD, d.join(&name), CWD, e.join(&name), RenameFlags::WHITEOUT).unwrap();
        assert!(is_whiteout(&d.join(&name)), "{name}");
    }
    std::fs::File::open(e.join("f7")).unwrap().sync_all().unwrap();
    let check = || {
        for i in 0..300 {
            let name = format!("f{i}");
            let at = if i % 7 == 0 { &e } else { &d };
            assert_eq!(std::fs::read_to_string(at.join(&name)).unwrap(), i.to_string());
            assert_eq!(is_whiteout(&d.join(&name)), i % 7 == 0, "{name}");
        }
        assert!(is_whiteout(&d.join("sub")) && e.join("sub").is_dir());
    };
    check();
    rig.kill();
    rig.mount("").unwrap();
    check();
    std::fs::remove_dir_all(&d).unwrap();
    rig.finish();
}

#[test]
fn a_union_mount_finds_what_it_needs() {
    if cannot_mount() {
        return;
    }
    let rig = Rig::new(256, "suid,dev");
    let at = rig.scratch.path();
    sh(
        at,
        "mkdir -p lower/dir/deep union mnt/upper mnt/work; echo one > lower/one; echo two > lower/dir/two",
    );
    sh(at, "echo three > lower/dir/deep/three; cp -r lower lower2");
    let lower = format!("lowerdir={0}/lower,upperdir={0}/mnt/upper,workdir={0}/mnt/work", at.display());
    let mounted = Command::new("mount")
        .args(["-t", "overlay", "overlay", "-o", &lower])
        .arg(at.join("union"))
        .output()
        .unwrap();
    if !mounted.status.success() {
        assert!(!tidegate_testing::oracle::in_ci(), "overlay: {}", String::from_utf8_lossy(&mounted.stderr));
        println!("SKIPPED: no overlay: {}", String::from_utf8_lossy(&mounted.stderr));
        return;
    }
    let union = at.join("union");
    let guard = Union(&union);
    let work = "mv one moved; echo more >> dir/two; rm dir/deep/three; mv dir/two .; rmdir dir/deep; mkdir dir/deep; \
                echo four > dir/deep/four; ln two link; chmod 600 two; find . | sort; cat moved two dir/deep/four";
    assert_eq!(sh(&union, work), sh(&at.join("lower2"), work));
    assert!(is_whiteout(&rig.dir.join("upper/one")));
    drop(guard);
    sh(at, "umount union 2>/dev/null || true");
    rig.finish();
}
