//! System calls on the host kernel's ext4 and on a mounted volume, compared outcome by outcome.

use crate::ops;
use crate::rig::{Rig, cannot_mount};
use std::path::{Path, PathBuf};
use std::process::Command;

/// An ext4 volume of the host's kernel.
pub struct Ext4(pub PathBuf);

impl Ext4 {
    fn mount(scratch: &Path) -> Ext4 {
        Ext4::mount_of(scratch, 64)
    }

    pub fn mount_of(scratch: &Path, mib: u64) -> Ext4 {
        let (image, dir) = (scratch.join("ext4.img"), scratch.join("ext4"));
        std::fs::File::create(&image).unwrap().set_len(mib << 20).unwrap();
        std::fs::create_dir(&dir).unwrap();
        assert!(
            Command::new("mke2fs")
                .args(["-q", "-t", "ext4", "-b", &crate::rig::block().to_string()])
                .arg(&image)
                .status()
                .unwrap()
                .success()
        );
        let mounted = Command::new("mount").args(["-o", "loop,nosuid,nodev"]).args([&image, &dir]).status();
        assert!(mounted.unwrap().success());
        std::fs::remove_dir(dir.join("lost+found")).unwrap();
        Ext4(dir)
    }
}

impl Drop for Ext4 {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

/// Whether a loop mount works here; a container may forbid it.
pub fn no_ext4() -> bool {
    if tidegate_testing::oracle::skip_or_fail("mke2fs") || tidegate_testing::oracle::skip_or_fail("setfacl") {
        return true;
    }
    let ok = Path::new("/dev/loop-control").exists();
    assert!(ok || !tidegate_testing::oracle::in_ci(), "no loop devices");
    if !ok {
        println!("SKIPPED: no loop devices, so no ext4 to compare with");
    }
    !ok
}

fn compare(script: &str) {
    if cannot_mount() || no_ext4() {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let expected = ops::run(&Ext4::mount(scratch.path()).0, script);
    for transport in ["dev", "best"] {
        compare_with(&expected, script, transport);
    }
}

fn compare_with(expected: &[String], script: &str, transport: &str) {
    let rig = Rig::new(256, &format!("allow_other,transport={transport}"));
    let ours = rig.with_empty_root(|dir| ops::run(dir, script));
    let wrong: Vec<String> = expected
        .iter()
        .zip(&ours)
        .filter(|(e, o)| e != o)
        .map(|(e, o)| format!("ext4 {e}\nours {o}"))
        .collect();
    assert!(wrong.is_empty(), "{transport}: {} of {} differ:\n{}", wrong.len(), ours.len(), wrong.join("\n"));
    assert!(ours.len() > 10, "the script ran");
    rig.finish();
}

macro_rules! scripts {
    ($($name:ident)+) => {
        $(#[test]
        fn $name() {
            compare(include_str!(concat!("scripts/", stringify!($name), ".txt")));
        })+
    };
}

scripts!(
    names renames permissions sticky_setgid chown_setid times chattr_times access_times open_files flags_open ranges xattrs acls acls_users
    rights
);
