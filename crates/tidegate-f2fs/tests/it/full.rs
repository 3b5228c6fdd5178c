//! A volume filled to the last block: writers get errors, nothing is lost, deletion works.

use crate::util;
use tidegate_vfs::*;
use util::{fsck, make_image, mount};

const ROOT: &Cred = &Cred::ROOT;

fn read_all(v: &std::sync::Arc<Vfs>, path: &str) -> Vec<u8> {
    let f = v.open_path(ROOT, path.as_bytes(), OpenFlags::READ, 0).unwrap();
    let mut b = vec![0; f.size() as usize];
    assert_eq!(f.read_at(0, &mut b).unwrap(), b.len());
    b
}

/// A reservation goes from node to node. If it ends at the second node, it must leave the first node and the
/// inode's count of blocks as they are on the volume.
#[test]
fn a_reservation_cut_short_leaves_a_good_inode() {
    /// Pages that an inode with inline attributes addresses itself.
    const OWN: u64 = 873;
    if tidegate_testing::oracle::skip_or_fail("mkfs.f2fs") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = make_image(dir.path(), 60 << 20, "");
    let v = mount(&path);
    let open = |name: &[u8]| v.open_path(ROOT, name, OpenFlags::WRITE | OpenFlags::CREATE, 0o644).unwrap();
    let (cut, filler) = (open(b"/cut"), open(b"/filler"));
    cut.write_at(0, &[1; 5000]).unwrap();
    let free = || v.statfs().blocks_available;
    while free() > 1 {
        let len = if free() > 600 { 1 << 20 } else { 4096 };
        filler.write_at(filler.size(), &vec![2; len]).unwrap();
    }
    assert_eq!(free(), 1);
    let err = cut.write_at((OWN - 1) * 4096, &[3; 8192]).unwrap_err();
    assert_eq!(err.kind(), ErrorKind::NoSpace);
    drop((cut, filler));
    v.unmount().unwrap();
    drop(v);
    fsck(&path);
}

#[test]
fn filling_overwriting_and_emptying() {
    if tidegate_testing::oracle::skip_or_fail("mkfs.f2fs") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = make_image(dir.path(), 100 << 20, "");
    let v = mount(&path);
    let mut written = 0;
    let piece = vec![3u8; 300_000];
    let err = loop {
        let name = format!("/f{written}");
        let f = match v.open_path(ROOT, name.as_bytes(), OpenFlags::WRITE | OpenFlags::CREATE, 0o644) {
            Ok(f) => f,
            Err(e) => break e,
        };
        if let Err(e) = f.write_at(0, &piece) {
            break e;
        }
        f.fsync(false).unwrap();
        written += 1;
    };
    assert_eq!(err.kind(), ErrorKind::NoSpace, "{err}");
    assert!(written > 100, "{written}");
    // Random overwrites of a full volume need no new space, so every one must succeed.
    let mut seed = 7u64;
    for _ in 0..3000 {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1);
        let n = (seed >> 33) % written;
        let at = (seed >> 20) % 70 * 4096;
        let f = v.open_path(ROOT, format!("/f{n}").as_bytes(), OpenFlags::WRITE, 0).unwrap();
        f.write_at(at, &[n as u8; 4096]).unwrap();
        if seed >> 60 == 0 {
            f.fsync(false).unwrap();
        }
    }
    v.sync().unwrap();
    for n in 0..written {
        let b = read_all(&v, &format!("/f{n}"));
        assert!(b.iter().all(|&x| x == 3 || x == n as u8), "f{n}");
    }
    v.unmount().unwrap();
    drop(v);
    fsck(&path);

    let v = mount(&path);
    let top = v.root().unwrap();
    for n in 0..written {
        v.unlink(ROOT, &top, format!("f{n}").as_bytes()).unwrap();
    }
    let f = v.open_path(ROOT, b"/again", OpenFlags::WRITE | OpenFlags::CREATE, 0o644).unwrap();
    for i in 0..30 {
        f.write_at(i << 20, &vec![9; 1 << 20]).unwrap();
    }
    f.fsync(false).unwrap();
    drop(f);
    v.unmount().unwrap();
    drop(v);
    fsck(&path);
}

/// Nodes made for pages that then find no room belong to the file all the same, also in the next checkpoint.
#[test]
fn what_a_failed_write_leaves_is_counted() {
    if tidegate_testing::oracle::skip_or_fail("mkfs.f2fs") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = make_image(dir.path(), 100 << 20, "");
    let v = mount(&path);
    let open = |p: &[u8]| v.open_path(ROOT, p, OpenFlags::WRITE | OpenFlags::CREATE, 0o644).unwrap();
    let (far, filler) = (open(b"/far"), open(b"/filler"));
    far.write_at(0, &[1; 8192]).unwrap();
    let mut pages = 256;
    while pages > 0 {
        match filler.write_at(filler.size(), &vec![2; pages * 4096]) {
            Ok(_) => {}
            Err(e) if e.kind() == ErrorKind::NoSpace => pages /= 2,
            Err(e) => panic!("{e}"),
        }
    }
    // There is room for one or both nodes on the way to the page, and at last for the page.
    for room in 1..4 {
        filler.truncate(filler.size() - 4096).unwrap();
        v.sync().unwrap();
        let r = far.write_at(4096 * (3000 + 1018 * 1018 * room), &[1; 4096]);
        v.sync().unwrap();
        let copy = dir.path().join("copy.img");
        tidegate_testing::golden::sparse_copy(&path, &copy).unwrap();
        fsck(&copy);
        assert_eq!(r.err().map(|e| e.kind()), Some(ErrorKind::NoSpace));
    }
    drop((far, filler));
    v.unmount().unwrap();
    drop(v);
    fsck(&path);
}

/// A file that could not have its whole request does not hold the rest of the space.
#[test]
fn a_write_that_finds_no_room_takes_none() {
    if tidegate_testing::oracle::skip_or_fail("mkfs.f2fs") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = make_image(dir.path(), 60 << 20, "");
    let v = mount(&path);
    let open = |p: &[u8]| v.open_path(ROOT, p, OpenFlags::WRITE | OpenFlags::CREATE, 0o644).unwrap();
    let (large, small, filler) = (open(b"/large"), open(b"/small"), open(b"/filler"));
    // The pages that follow need no new nodes: the inodes exist, and one more node.
    large.write_at(0, &[1; 5000]).unwrap();
    large.write_at(1000 * 4096, &[1; 4096]).unwrap();
    small.write_at(0, &[1; 5000]).unwrap();
    let free = || v.statfs().blocks_available;
    while free() > 80 {
        let len = if free() > 600 { 1 << 20 } else { 4096 };
        filler.write_at(filler.size(), &vec![2; len]).unwrap();
    }
    let (left, blocks) = (free(), large.inode().attr().blocks);
    // A page in the middle of the failing range is reserved already, and stays so.
    large.fallocate(FallocateFlags::KEEP_SIZE, 865 * 4096, 4096).unwrap();
    // There is room for the pages of the inode, but not for the rest.
    let failed = [
        large.write_at(860 * 4096, &[3; 140 * 4096]).map(drop),
        large.fallocate(FallocateFlags::KEEP_SIZE, 860 * 4096, 140 * 4096),
    ];
    for r in failed {
        assert_eq!(r.err().map(|e| e.kind()), Some(ErrorKind::NoSpace));
    }
    assert_eq!((free(), large.size()), (left - 1, 1001 * 4096));
    assert_eq!(large.inode().attr().blocks, blocks + 8);
    small.write_at(8192, &vec![4; (left as usize - 1) * 4096]).unwrap();
    large.write_at(865 * 4096, &[5; 4096]).unwrap();
    assert_eq!(free(), 0);
    drop((large, small, filler));
    v.unmount().unwrap();
    drop(v);
    fsck(&path);
}
