//! stress-ng's file-system stressors. A failure of a stressor counts only if it succeeds on the kernel's
//! ext4.

use crate::posix::{Ext4, no_ext4};
use crate::rig::{Rig, cannot_mount, number};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// The stressors that make, change, lock, map and remove files. Left out are those that need features that
/// FUSE does not have (fiemap, leases, verity) or that work outside the given directory.
const STRESSORS: &str = "access aio aiol chdir chmod chown copy-file dentry dir dirdeep dirmany dup fallocate \
                         fcntl filename flock fpunch fstat getdent handle hdd inode-flags io iomix link locka \
                         lockf lockofd mknod mmap mmapfork mmapmany open readahead rename seek sendfile splice \
                         symlink sync-file touch truncate unlink utime xattr";

/// Size in MiB: so large that no volume runs full.
const SIZE: u64 = 8192;

/// The stressors of `names` that this stress-ng has.
fn known(names: &str) -> Vec<&str> {
    let help = Command::new("stress-ng").arg("--help").output().unwrap();
    let help = String::from_utf8_lossy(&help.stdout).into_owned();
    let has = |name: &str| help.split_whitespace().any(|w| w == format!("--{name}"));
    names.split_whitespace().filter(|n| has(n)).collect()
}

/// Runs a command where no other test's mount is visible: `io` syncs every file system, and fails with those whose
/// device or process fails in other tests. $1 is the mount to keep.
const ALONE: &str = r#"keep=$1; shift
while read -r from at type rest; do
    case "$from $type" in *" fuse"*|/dev/loop*) [ "$at" = "$keep" ] || umount -l "$at";; esac
done < /proc/mounts
exec "$@""#;

/// Runs all of them at once. Returns the stressors that failed, and their output.
fn stress(dir: &Path, names: &[&str], seconds: u64) -> (BTreeSet<String>, String) {
    let work = dir.join("stress");
    std::fs::create_dir(&work).unwrap();
    let each = names.iter().flat_map(|n| [format!("--{n}"), "1".to_string()]);
    let out = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-c", ALONE, "sh"])
        .arg(dir)
        .arg("stress-ng")
        .args(each)
        .args(["--verify", "--timeout", &seconds.to_string(), "--temp-path"])
        .arg(&work)
        // This is less than their default: a gigabyte each.
        .args(["--hdd-bytes", "16M", "--fallocate-bytes", "32M", "--dirdeep-inodes", "2000"])
        .args(["--sync-file-bytes", "16M", "--readahead-bytes", "16M", "--seek-size", "16M"])
        .args(["--copy-file-bytes", "128M", "--iomix-bytes", "16M"])
        .env("LC_ALL", "C")
        .output()
        .unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    let failed = said
        .lines()
        .filter(|l| l.contains("fail:"))
        .filter_map(|l| names.iter().find(|n| l.contains(&format!(" {n}: "))))
        .map(|n| n.to_string())
        .collect();
    // 3 and 4: it lacked a resource, or a stressor does not work here.
    let code = out.status.code();
    assert!(matches!(code, Some(0 | 2 | 3 | 4)), "{code:?}: {said}");
    let _ = std::fs::remove_dir_all(&work);
    (failed, said)
}

#[test]
fn stressors_find_what_ext4_has() {
    if cannot_mount() || tidegate_testing::oracle::skip_or_fail("stress-ng") {
        return;
    }
    let seconds = number("TIDEGATE_STRESS_SECONDS", 15);
    let names = known(STRESSORS);
    println!("{} stressors for {seconds} s", names.len());
    assert!(names.len() > 30, "{names:?}");
    let rig = Rig::new(SIZE, "allow_other,suid,dev,cache=32M");
    let (failed, said) = stress(&rig.dir, &names, seconds);
    let failed: Vec<&str> = failed.iter().map(String::as_str).collect();
    if !failed.is_empty() && !no_ext4() {
        let scratch = tempfile::tempdir().unwrap();
        let ext4 = Ext4::mount_of(scratch.path(), SIZE);
        let (there, _) = stress(&ext4.0, &failed, 5.min(seconds));
        println!("failed: {failed:?}; on ext4: {there:?}");
        let ours: Vec<_> = failed.iter().filter(|f| !there.contains(**f)).collect();
        assert!(ours.is_empty(), "{ours:?} fail here and not on ext4\n{said}");
    }
    rig.finish();
}
