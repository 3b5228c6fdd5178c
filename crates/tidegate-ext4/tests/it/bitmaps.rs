//! Bitmaps and tables of groups that cannot be read: other groups are used, as on Linux.

use crate::common::volume::{fresh, fsck};
use crate::rig::{mended_by_e2fsck, must_be_clean, scratch, skip};
use std::sync::Arc;
use tidegate_block::{Device, Errno, Fault, Faulty, MemoryDevice, Op, QueueLimits, RequestQueue, Rule};
use tidegate_ext4::{Ext4, Ext4Options};
use tidegate_vfs::*;

const ROOT: &Cred = &Cred::ROOT;
const BLOCK: u64 = 4096;
/// Groups of a volume.
const GROUPS: u64 = 8;

fn open(device: Arc<dyn Device>) -> Arc<Vfs> {
    let queue = Arc::new(RequestQueue::new(device, QueueLimits::default()));
    let bdi = Bdi::new(MemoryLimits::default());
    let fs = Ext4::open(queue, bdi.clone(), Ext4Options::default()).unwrap();
    Vfs::mount(fs, bdi, MountOptions { noatime: true, ..Default::default() }).unwrap()
}

/// The bytes of a device.
fn bytes_of(device: &MemoryDevice) -> Vec<u8> {
    let mut bytes = vec![0; Device::size(device) as usize];
    device.read_at(0, &mut bytes);
    bytes
}

/// A number in the descriptor of a group, of a volume with descriptors of 64 bytes.
fn in_desc(bytes: &[u8], group: u64, at: usize) -> u64 {
    let at = (BLOCK + group * 64) as usize + at;
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()).into()
}

/// Rules that make reads of these blocks fail.
fn fails(blocks: impl IntoIterator<Item = u64>) -> Vec<Rule> {
    let fail = |b: u64| Rule::new(Fault::Fail(Errno::IO)).op(Op::Read).within(b * BLOCK..(b + 1) * BLOCK);
    blocks.into_iter().map(fail).collect()
}

fn write(v: &Arc<Vfs>, name: &[u8], bytes: &[u8]) -> Result<Ino> {
    let inode = v.create(ROOT, &v.root()?, name, 0o644)?;
    let f = v.open(ROOT, &inode, OpenFlags::WRITE)?;
    f.write_at(0, bytes)?;
    f.fsync(false)?;
    Ok(inode.ino)
}

/// The faults that e2fsck corrects; a second check must find none.
fn mended(device: &MemoryDevice) -> String {
    let dir = scratch();
    let image = dir.path().join("m.img");
    std::fs::write(&image, bytes_of(device)).unwrap();
    let said = mended_by_e2fsck(&image);
    must_be_clean(&image);
    said
}

/// Bitmaps of all groups but the last cannot be read: writes and names go to the last, and the free space of
/// the others is not reported. The volume itself counts as sound, unless something could not be freed.
#[test]
fn groups_whose_bitmap_cannot_be_read_are_passed_over() {
    if skip() {
        return;
    }
    for kind in [&["-t", "ext4"][..], &["-t", "ext4", "-O", "^has_journal"]] {
        pass_over_all_but_the_last(kind, false);
        pass_over_all_but_the_last(kind, true);
    }
}

fn pass_over_all_but_the_last(kind: &[&str], frees: bool) {
    // Without checksums each group's bitmaps are written from the start.
    let args = ["-b", "4096", "-g", "1024", "-N", "1024", "-O", "^metadata_csum,^uninit_bg,64bit"];
    let device = fresh(32, &[kind, &args].concat());
    let v = open(device.clone());
    write(&v, b"old", &[6; 50_000]).unwrap();
    v.unmount().unwrap();
    let bytes = bytes_of(&device);
    let faulty = Faulty::new(device.clone(), []);
    let v = open(faulty.clone());
    let all_but_last = |at: usize| fails((0..GROUPS - 1).map(|g| in_desc(&bytes, g, at)));
    let (before, last) = (v.statfs(), in_desc(&bytes, GROUPS - 1, 12) & 0xffff);
    faulty.set(all_but_last(0));
    write(&v, b"blocks", &[7; 300_000]).unwrap_or_else(|e| panic!("{kind:?}: {e}"));
    let after = v.statfs();
    assert!(after.blocks_free < last, "{kind:?}: {} of {} are free", after.blocks_free, before.blocks_free);
    let failed = faulty.failed();
    assert!(failed > 0);
    write(&v, b"more", &[8; 100_000]).unwrap();
    assert_eq!(faulty.failed(), failed, "{kind:?}: it was asked again");
    // The first group's inodes are known by now; directories are spread over the other groups.
    faulty.set(all_but_last(4));
    let dir = v.mkdir(ROOT, &v.root().unwrap(), b"directory", 0o755).unwrap();
    let per_group = before.files / GROUPS;
    assert!(dir.ino.0 > (GROUPS - 1) * per_group, "{kind:?}: inode {}", dir.ino.0);
    assert!(v.statfs().files_free <= before.files_free - 5 * per_group, "{kind:?}");
    if frees {
        // The group's bitmap is read again, and the read fails again.
        faulty.set(all_but_last(0));
        v.unlink(ROOT, &v.root().unwrap(), b"old").unwrap();
    }
    v.sync().unwrap();
    assert_eq!(v.fs().read_only(), None, "{kind:?}");
    faulty.set([]);
    let cut = open(Arc::new(device.copy()));
    let why = cut.fs().read_only().map(|r| r.to_string()).unwrap_or_default();
    assert_eq!(why.contains("an earlier error"), frees, "{kind:?}: after a power cut: {why}");
    v.unmount().unwrap();
    drop(v);
    let noted = bytes_of(&device)[1024 + 0x3a] & 2 != 0;
    assert_eq!(noted, frees, "{kind:?}: an error is noted, or none");
    if frees {
        let said = mended(&device);
        assert!(said.contains("Block bitmap differences") && !said.contains("Inode "), "{kind:?}: {said}");
    } else {
        fsck(&device).unwrap_or_else(|e| panic!("{kind:?}: {e}"));
    }
    let v = open(device);
    for (name, byte, len) in [(&b"blocks"[..], 7, 300_000), (b"more", 8, 100_000)] {
        let inode = v.lookup(&v.root().unwrap(), name).unwrap();
        let mut read = vec![0; len + 1];
        let n = v.open(ROOT, &inode, OpenFlags::READ).unwrap().read_at(0, &mut read).unwrap();
        assert!(n == len && read[..n].iter().all(|b| *b == byte), "{kind:?}");
    }
}

/// If the error has passed when something is freed, nothing stays in use, and the group's blocks are used
/// again.
#[test]
fn a_bitmap_that_can_be_read_again_frees() {
    if skip() {
        return;
    }
    let device =
        fresh(16, &["-t", "ext4", "-b", "4096", "-g", "1024", "-O", "^metadata_csum,^uninit_bg,64bit"]);
    let v = open(device.clone());
    write(&v, b"old", &[6; 50_000]).unwrap();
    v.unmount().unwrap();
    let faulty = Faulty::new(device.clone(), []);
    let v = open(faulty.clone());
    let before = v.statfs();
    faulty.set(fails([in_desc(&bytes_of(&device), 0, 0)]));
    write(&v, b"new", &[7; 4096]).unwrap();
    assert!(v.statfs().blocks_free + 500 < before.blocks_free);
    faulty.set([]);
    v.unlink(ROOT, &v.root().unwrap(), b"old").unwrap();
    v.sync().unwrap();
    assert_eq!(v.statfs().blocks_free, before.blocks_free + 13 - 1);
    v.unmount().unwrap();
    drop(v);
    fsck(&device).unwrap();
}

/// No other group has room: the error names the group that cannot be read.
#[test]
fn a_bitmap_that_cannot_be_read_is_told_where_all_else_is_full() {
    if skip() {
        return;
    }
    let device = fresh(16, &["-t", "ext4", "-b", "4096", "-O", "^metadata_csum,^uninit_bg,64bit"]);
    let bytes = bytes_of(&device);
    let faulty = Faulty::new(device.clone(), []);
    let v = open(faulty.clone());
    faulty.set(fails([in_desc(&bytes, 0, 4)]));
    let e = v.create(ROOT, &v.root().unwrap(), b"none", 0o644).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::NoSpace, "{e}");
    assert!(e.what().contains("run e2fsck"), "{e}");
    assert_eq!(v.fs().read_only(), None);
    v.unmount().unwrap();
}

/// Most of a table was never written, and holds the device's old content. A block of it that cannot be read
/// once is not passed over: everything before an inode in use counts as written.
#[test]
fn tables_that_were_never_written_are_not_taken_for_written() {
    if skip() {
        return;
    }
    for one_group in [false, true] {
        let groups = if one_group { "32768" } else { "1024" };
        let args =
            ["-t", "ext4", "-b", "4096", "-g", groups, "-N", "1024", "-E", "lazy_itable_init=1,nodiscard"];
        let device = fresh(16, &[&args[..], &["-O", "64bit,metadata_csum"]].concat());
        let mut bytes = bytes_of(&device);
        let table = in_desc(&bytes, 0, 8);
        let flags = in_desc(&bytes, 0, 18) & 0xffff;
        assert_eq!(flags & 4, 0, "the table was zeroed");
        // A block has sixteen inodes; eleven of the first are in use.
        let per_group = if one_group { 1024 } else { 256 };
        let rest = ((table + 1) * BLOCK) as usize..((table + per_group / 16) * BLOCK) as usize;
        bytes[rest].fill(0x81);
        let device = Arc::new(MemoryDevice::from_bytes(&bytes));
        let faulty = Faulty::new(device.clone(), []);
        let v = open(faulty.clone());
        faulty.set(fails([table + 1]));
        let make = |n: u64| v.create(ROOT, &v.root().unwrap(), format!("{n}").as_bytes(), 0o644);
        let made: Vec<_> = (0..8).map(|n| make(n).map(|i| i.ino.0)).collect();
        let free = v.statfs().files_free;
        if one_group {
            let first = |n: usize| made[..n].iter().all(|m| m.is_ok());
            assert!(first(5) && !first(6), "{made:?}");
            assert_eq!((made[5].as_ref().unwrap_err().kind(), free), (ErrorKind::Io, 0));
        } else {
            let behind = made[5..].iter().all(|m| m.as_ref().is_ok_and(|ino| *ino > 256));
            assert!(behind, "{made:?}");
            // Only the inodes of the other groups are usable.
            assert_eq!(free, 3 * 256 - 3);
        }
        faulty.set([]);
        v.unmount().unwrap();
        drop(v);
        fsck(&device).unwrap_or_else(|e| panic!("{one_group}: {e}"));
        // When all of the table can be read, allocation goes on from there.
        let v = open(device.clone());
        assert_eq!(v.create(ROOT, &v.root().unwrap(), b"next", 0o644).unwrap().ino.0, 17);
        v.unmount().unwrap();
        drop(v);
        fsck(&device).unwrap_or_else(|e| panic!("{one_group}: {e}"));
    }
}
