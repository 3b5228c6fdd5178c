//! Nearly full volumes: everything that fsync left to roll-forward is recovered, whatever was freed or
//! unbooked since the checkpoint.

use crate::common::mounted::Mounted;
use tidegate_vfs::*;

const PAGE: u64 = 4096;

fn lacking() -> bool {
    ["mkfs.f2fs", "fsck.f2fs"].iter().any(|o| tidegate_testing::oracle::skip_or_fail(o))
}

fn new(mib: u64) -> Mounted {
    Mounted::new(mib, "", "background_gc=off")
}

fn free_pages(v: &Mounted) -> u64 {
    v.vfs.statfs().blocks_available
}

/// Judges the volume after a crash, with `look`, and as it is.
fn finish(v: Mounted, look: impl FnOnce(&Mounted)) {
    let up = v.after_crash();
    look(&up);
    up.finish();
    v.finish();
}

#[test]
fn blocks_freed_since_the_checkpoint_are_no_room_for_roll_forward() {
    if lacking() {
        return;
    }
    let v = new(100);
    let most = v.file("/most");
    // The pages are only reserved, so that no segment becomes free when they go: a checkpoint might be made
    // for that.
    let pages = free_pages(&v) * 49 / 50;
    most.fallocate(FallocateFlags::empty(), 0, pages * PAGE).unwrap();
    v.vfs.sync().unwrap();
    drop(most);
    v.unlink("most");
    let before = v.fs.stats().commits;
    let small = v.file("/small");
    small.write_at(0, &[5; 4 * PAGE as usize]).unwrap();
    small.fsync(false).unwrap();
    assert_eq!(v.fs.stats().commits, before, "there is room for that one beside the other");
    drop(small);
    let new = v.file("/new");
    new.write_at(0, &vec![6; 5 << 20]).unwrap();
    new.fsync(false).unwrap();
    drop(new);
    finish(v, |up| {
        let mut page = [0; PAGE as usize];
        for (path, byte) in [("/small", 5), ("/new", 6)] {
            assert_eq!(up.file(path).read_at(2 * PAGE, &mut page).unwrap(), page.len(), "{path}");
            assert!(page.iter().all(|b| *b == byte), "{path}");
        }
        assert_eq!(up.file("/new").size(), 5 << 20);
    });
}

#[test]
fn reservations_in_the_chain_are_counted_together() {
    if lacking() {
        return;
    }
    let v = new(100);
    let pages = free_pages(&v) * 3 / 5;
    let before = v.fs.stats().commits;
    let a = v.file("/a");
    a.fallocate(FallocateFlags::empty(), 0, pages * PAGE).unwrap();
    a.fsync(false).unwrap();
    assert_eq!(v.fs.stats().commits, before, "there is room");
    drop(a);
    v.unlink("a");
    let b = v.file("/b");
    b.fallocate(FallocateFlags::empty(), 0, pages * PAGE).unwrap();
    b.fsync(false).unwrap();
    let blocks = b.inode().attr().blocks;
    drop(b);
    finish(v, |up| assert_eq!(up.file("/b").inode().attr().blocks, blocks));
}
