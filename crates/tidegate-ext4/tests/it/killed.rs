//! A kernel that is killed at work: we read the content of its journal as e2fsck replays it, and the volume
//! goes on.

use crate::rig::*;
use std::path::Path;
use std::time::Duration;
use tidegate_testing::manifest::Options;
use tidegate_testing::oracle::skip_or_fail;
use tidegate_testing::tree::assert_same_but;
use tidegate_testing::uml;
use tidegate_uml::programs::KERNEL;
use tidegate_vfs::{Cred, FileSystem, OpenFlags};

/// Endless changes of all kinds, with a line now and then.
const WORK: &str = r#"
    mount -t ext4 -o commit=1,$OPTIONS $DEV $MNT; cd $MNT
    mkdir a b c; n=0
    while :; do
        n=$((n + 1))
        mkdir a/$n; echo $n > a/$n/file; ln a/$n/file b/link-$n; ln -s target-$n b/symlink-$n
        dd if=/dev/urandom of=c/data-$n bs=1000 count=$((n % 40 + 1)) 2>/dev/null
        [ $((n % 3)) = 0 ] && mv a/$n/file c/moved-$n && rmdir a/$n
        [ $((n % 4)) = 0 ] && rm -f c/data-$((n - 2))
        [ $((n % 7)) = 0 ] && sync c/data-$n
        [ $((n % 10)) = 0 ] && echo "round $n"
    done
"#;

fn copy(from: &Path, to: &Path) {
    let args = ["--sparse=always", from.to_str().unwrap(), to.to_str().unwrap()];
    must("cp", &args);
}

fn kill_and_compare(name: &str, args: &[&str], options: &str, rounds: usize) {
    let dir = tidegate_testing::temp::TempDir::new("ext4-killed").unwrap();
    let image = dir.path().join(format!("{name}.img"));
    mke2fs(&image, args, "48M");
    let guest = uml::guest(&image).timeout(Duration::from_secs(100)).env("OPTIONS", options);
    let mut running = guest.spawn(WORK).unwrap();
    let mut done = 0;
    while done < rounds {
        let line = running.next_line().unwrap().expect("the guest goes on");
        done += usize::from(line.starts_with("round"));
    }
    running.kill().unwrap();

    let replayed = dir.path().join("replayed.img");
    copy(&image, &replayed);
    let before = std::fs::read(&image).unwrap();
    let (v, fs) = open_with(&image, Default::default()).unwrap();
    let ours = tidegate_testing::tree::describe(&v).unwrap();
    assert!(fs.read_only().is_some());
    v.unmount().unwrap();
    drop((v, fs));
    assert!(std::fs::read(&image).unwrap() == before, "{name}: reading changed the image");

    // Status 1 means that errors were corrected, which the replay counts as.
    let (_, said) = run("e2fsck", &["-E", "journal_only", "-y", replayed.to_str().unwrap()]);
    assert!(said.contains("recovering journal"), "{name}: its journal was empty: {said}");
    let theirs = describe_by_kernel(&replayed).unwrap_or_else(|| panic!("{name}: {said}"));
    assert!(theirs.entries.len() > 20, "{name}: {} entries", theirs.entries.len());
    assert_same_but(name, &theirs, &ours, &Options::default());

    // Recovered on the device, the volume goes on where the kernel stopped.
    let v = crate::changed::open_to_write(&image);
    let found = tidegate_testing::tree::describe(&v).unwrap();
    assert_same_but(name, &theirs, &found, &Options::default());
    let inode = v.create(&Cred::ROOT, &v.root().unwrap(), b"later", 0o644).unwrap();
    v.open(&Cred::ROOT, &inode, OpenFlags::WRITE).unwrap().write_at(0, &[7; 100_000]).unwrap();
    v.unmount().unwrap();
    drop(v);
    must_be_clean(&image);
    let after = describe_by_kernel(&image).unwrap();
    assert_eq!(after.entries.len(), theirs.entries.len() + 1, "{name}");
}

fn lacking() -> bool {
    skip() || skip_or_fail(KERNEL)
}

#[test]
fn a_killed_kernels_journal_is_read_as_e2fsck_replays_it() {
    if lacking() {
        return;
    }
    kill_and_compare("debian", &["-t", "ext4"], "data=ordered", 9);
    kill_and_compare("4k-no-csum", &["-t", "ext4", "-b", "4096", "-O", "^metadata_csum"], "data=ordered", 6);
}

#[test]
fn data_in_a_killed_kernels_journal_is_read_too() {
    if lacking() {
        return;
    }
    kill_and_compare("journaled", &["-t", "ext4", "-b", "1024"], "data=journal", 7);
    kill_and_compare("ext3", &["-t", "ext3", "-b", "1024"], "data=journal", 5);
}
