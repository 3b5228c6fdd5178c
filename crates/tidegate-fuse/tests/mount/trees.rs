//! Trees are copied in and out by rsync and tar, with all attributes that they know, and compared by our own
//! walk and by rsync.

use crate::programs::sh;
use crate::rig::{Rig, cannot_mount};
use std::path::{Path, PathBuf};
use tidegate_testing::manifest::{Options, compare, walk};

/// Archive mode, with hard links, ACLs, extended attributes, and numbers for owners; holes stay holes.
/// Without the negative window it takes times within one second as equal.
const RSYNC: &str = "rsync -aHAXS --numeric-ids --modify-window=-1";
const TAR: &str = "tar --xattrs --xattrs-include='*' --acls --sparse --numeric-owner";

fn same(want: &Path, got: &Path) {
    let diff = compare(&walk(want).unwrap(), &walk(got).unwrap(), &Options::default());
    assert!(diff.is_empty(), "{} and {}:\n{}", want.display(), got.display(), diff.join("\n"));
    // rsync's own comparison, content included.
    let (want, got) = (want.display(), got.display());
    let changes = sh(Path::new("/"), &format!("{RSYNC} -c --delete -n -i {want}/ {got}/"));
    assert!(changes.is_empty(), "rsync would change\n{changes}");
}

fn there_and_back(src: &Path, mib: u64) {
    let mut rig = Rig::new(mib, "suid,dev,cache=32M");
    let at = rig.scratch.path().to_path_buf();
    let from = src.display();
    sh(&at, &format!("{RSYNC} {from}/ mnt/rsynced"));
    sh(&at, &format!("mkdir mnt/untarred; {TAR} -cf - -C {from} . | {TAR} -xpf - -C mnt/untarred"));
    let (rsynced, untarred) = (rig.dir.join("rsynced"), rig.dir.join("untarred"));
    same(src, &rsynced);
    assert!(rig.unmount());
    rig.mount("suid,dev,cache=32M").unwrap();
    same(src, &rsynced);
    same(src, &untarred);
    sh(&at, &format!("mkdir untarred; {TAR} -cf - -C mnt/rsynced . | {TAR} -xpf - -C untarred"));
    sh(&at, &format!("{RSYNC} mnt/untarred/ rsynced"));
    same(src, &at.join("untarred"));
    same(src, &at.join("rsynced"));
    rig.finish();
}

fn ready() -> bool {
    !cannot_mount() && !tidegate_testing::oracle::skip_or_fail("rsync")
}

#[test]
fn every_corner_of_a_tree() {
    if !ready() {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let src = scratch.path().join("src");
    std::fs::create_dir(&src).unwrap();
    tidegate_testing::fill::fill(tidegate_testing::fill::Kind::Varied, &src).unwrap();
    // A tar keeps no sockets.
    sh(&src, "find . -type s -delete");
    sh(
        &src,
        "mkdir more; cd more; truncate -s 20M holes; printf x | dd of=holes bs=1 seek=9000000 conv=notrunc 2>&1; cp holes h2; \
         for i in $(seq 40); do ln holes link$i; done; setfattr -n user.many -v \"$(seq 900)\" holes; \
         setfacl -m u:1234:rwx,g:99:r,d:u:5:r . ; setcap cap_net_raw+ep h2 2>/dev/null || true",
    );
    there_and_back(&src, 512);
}

/// A tree of the machine is copied.
#[test]
fn a_tree_of_the_machine() {
    if !ready() {
        return;
    }
    let src = PathBuf::from(std::env::var("TIDEGATE_TREE").unwrap_or("/usr/include/linux".to_string()));
    if !src.is_dir() {
        println!("SKIPPED: no {}", src.display());
        return;
    }
    let kib: u64 = sh(&src, "du -sk .").split_whitespace().next().unwrap().parse().unwrap();
    there_and_back(&src, 256 + kib / 300);
}
