//! A user relies on the places of a pinned file's blocks: neither writes nor cleaning move them.

use crate::common::volume::mount_with;
use std::sync::Arc;
use tidegate_block::{Device, MemoryDevice, QueueLimits, RequestQueue, ZoneSpec, ZonedDevice};
use tidegate_f2fs::check::{CheckOptions, check};
use tidegate_f2fs::mkfs::{MkfsOptions, mkfs};
use tidegate_f2fs::raw::Features;
use tidegate_f2fs::{F2fs, F2fsOptions};
use tidegate_vfs::*;

const ROOT: &Cred = &Cred::ROOT;
const RW: OpenFlags = OpenFlags::READ.union(OpenFlags::WRITE);
const PAGE: u64 = 4096;
const PAGES: u64 = 700;
/// Offset of `i_inline` in an inode block, and its bit for a pinned file.
const I_INLINE: u64 = 3;
const PIN_FILE: u8 = 0x40;
/// Offset of the node's and the inode's number in a node block.
const FOOTER: u64 = 4072;

fn queue(device: &Arc<MemoryDevice>) -> Arc<RequestQueue> {
    Arc::new(RequestQueue::new(device.clone(), QueueLimits::default()))
}

fn open(device: &Arc<MemoryDevice>, list: &str) -> (Arc<F2fs>, Arc<Vfs>) {
    let mut options = F2fsOptions::default();
    options.parse(list).unwrap();
    let bdi = Bdi::new(MemoryLimits::default());
    let fs = F2fs::open(queue(device), bdi.clone(), options).unwrap();
    let v = Vfs::mount(fs.clone(), bdi, MountOptions::default()).unwrap();
    (fs, v)
}

fn page(n: u64, version: u64) -> Vec<u8> {
    [n, version, 0x0070_696e_6e65].iter().flat_map(|w| w.to_le_bytes()).cycle().take(PAGE as usize).collect()
}

fn block(device: &MemoryDevice, at: u64) -> Vec<u8> {
    let mut b = vec![0; PAGE as usize];
    device.read_at(at * PAGE, &mut b);
    b
}

fn word(b: &[u8], at: u64) -> u32 {
    u32::from_le_bytes(b[at as usize..][..4].try_into().unwrap())
}

/// The block of each page of the file in a version.
fn places(device: &MemoryDevice, blocks: u64, version: u64) -> Vec<Option<u64>> {
    let mut found = vec![None; PAGES as usize];
    for at in 0..blocks {
        let b = block(device, at);
        let n = u64::from_le_bytes(b[..8].try_into().unwrap());
        if n < PAGES && b == page(n, version) {
            found[n as usize] = Some(at);
        }
    }
    found
}

/// Pins an inode, in each block that holds it.
fn pin(device: &MemoryDevice, blocks: u64, ino: Ino) {
    for at in 0..blocks {
        let b = block(device, at);
        if word(&b, FOOTER) as u64 == ino.0 && word(&b, FOOTER + 4) as u64 == ino.0 {
            device.write_at(at * PAGE + I_INLINE, &[b[I_INLINE as usize] | PIN_FILE]);
        }
    }
}

fn stays(list: &str) {
    let bytes: u64 = 128 << 20;
    let (blocks, device) = (bytes / PAGE, Arc::new(MemoryDevice::new(bytes)));
    mkfs(&queue(&device), &MkfsOptions::default()).unwrap();
    let (_, v) = open(&device, list);
    let file = |v: &Arc<Vfs>, name: &str| v.open_path(ROOT, name.as_bytes(), RW | OpenFlags::CREATE, 0o644);
    let pinned = file(&v, "/pinned").unwrap();
    let ino = pinned.inode().ino;
    // Stale blocks lie between valid ones, so cleaning wants to move the valid ones.
    for n in 0..PAGES {
        pinned.write_at(n * PAGE, &page(n, 1)).unwrap();
        file(&v, &format!("/f{n}")).unwrap().write_at(0, &page(u64::MAX, n)).unwrap();
        v.sync().unwrap();
    }
    drop(pinned);
    v.unmount().unwrap();
    pin(&device, blocks, ino);

    let (fs, v) = open(&device, list);
    let before = places(&device, blocks, 1);
    assert!(before.iter().all(Option::is_some));
    (0..PAGES).for_each(|n| v.unlink(ROOT, &v.root().unwrap(), format!("f{n}").as_bytes()).unwrap());
    v.sync().unwrap();
    for _ in 0..60 {
        if !fs.garbage_collect(true).unwrap() {
            break;
        }
    }
    let f = file(&v, "/pinned").unwrap();
    (0..PAGES).for_each(|n| _ = f.write_at(n * PAGE, &page(n, 2)).unwrap());
    v.sync().unwrap();
    assert_eq!(places(&device, blocks, 2), before, "{list}");
    drop(f);
    v.unmount().unwrap();
    let report = check(&queue(&device), CheckOptions::default()).unwrap();
    assert!(report.is_clean(), "{:#?}", report.problems);
}

#[test]
fn a_pinned_file_stays_adaptive() {
    stays("");
}

#[test]
fn a_pinned_file_stays_lfs() {
    stays("mode=lfs");
}

/// On zones, a pinned file stays in zones that can be written anywhere, and is not written elsewhere.
#[test]
fn a_pinned_file_stays_on_zones() {
    let bytes: u64 = 160 << 20;
    let zone = 4 << 20;
    let spec = ZoneSpec { size: zone, capacity: zone, conventional: 12, max_open: 12, max_active: 12 };
    let (blocks, memory) = (bytes / PAGE, Arc::new(MemoryDevice::new(bytes)));
    let device = Arc::new(ZonedDevice::new(memory.clone(), spec));
    let behind = |d: Arc<dyn Device>| RequestQueue::new(d, QueueLimits::default());
    let options = MkfsOptions { features: Features::BLKZONED, segs_per_sec: 2, ..Default::default() };
    mkfs(&behind(device.clone()), &options).unwrap();
    let mount = |options: &str| {
        let mut o = F2fsOptions::default();
        o.parse(options).unwrap();
        mount_with(device.clone(), MemoryLimits::default(), o, MountOptions::default()).unwrap().1
    };
    let file = |v: &Arc<Vfs>, name: &str| v.open_path(ROOT, name.as_bytes(), RW | OpenFlags::CREATE, 0o644);
    let v = mount("");
    let (pinned, other) = (file(&v, "/pinned").unwrap(), file(&v, "/other").unwrap());
    (0..PAGES).for_each(|n| _ = pinned.write_at(n * PAGE, &page(n, 1)).unwrap());
    v.sync().unwrap();
    // These writes take the log to a zone that is written in order.
    other.write_at(0, &vec![1; 30 << 20]).unwrap();
    v.sync().unwrap();
    other.write_at(0, &page(0, 9)).unwrap();
    v.sync().unwrap();
    let inos = [pinned.inode().ino, other.inode().ino];
    drop((pinned, other));
    v.unmount().unwrap();
    inos.into_iter().for_each(|ino| pin(&memory, blocks, ino));
    let before = places(&memory, blocks, 1);
    let first = spec.conventional as u64 * zone / PAGE;
    assert!(before.iter().all(|at| at.is_some_and(|at| at < first)));
    assert!(places(&memory, blocks, 9)[0].unwrap() >= first);
    for (version, options) in [(2, ""), (3, "writepages=submit_locked")] {
        let v = mount(options);
        let pinned = file(&v, "/pinned").unwrap();
        // Other files are written beside it, and go where the logs are.
        for n in 0..PAGES {
            pinned.write_at(n * PAGE, &page(n, version)).unwrap();
            let name = format!("/f{n}");
            file(&v, &name).unwrap().write_at(0, &vec![2; 5 * PAGE as usize]).unwrap();
        }
        pinned.fsync(false).unwrap();
        let other = file(&v, "/other").unwrap();
        let refused = [
            pinned.write_at(PAGES * PAGE, &page(0, 4)).map(drop),
            pinned.fallocate(FallocateFlags::empty(), PAGES * PAGE, PAGE),
            pinned.fallocate(FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, PAGE),
            pinned.fallocate(FallocateFlags::ZERO_RANGE, 0, PAGE),
            other.write_at(0, &page(0, 4)).map(drop),
        ];
        for r in refused {
            let e = r.unwrap_err();
            assert_eq!(e.kind(), ErrorKind::Unsupported);
            assert!(e.what().starts_with("is pinned"), "{e}");
        }
        pinned.fallocate(FallocateFlags::empty(), 0, PAGES * PAGE).unwrap();
        let mut found = vec![0; PAGE as usize];
        other.read_at(0, &mut found).unwrap();
        assert!(found == page(0, 9));
        drop((pinned, other));
        v.unmount().unwrap();
        assert_eq!(places(&memory, blocks, version), before);
    }
    assert_eq!(device.refused(), 0);
    let report = check(&behind(device), CheckOptions::default()).unwrap();
    assert!(report.is_clean(), "{:#?}", report.problems);
}

/// The blocks with a version of an inode.
fn inode_blocks(device: &MemoryDevice, blocks: u64, ino: u32) -> Vec<u64> {
    let is_inode = |b: &[u8]| word(b, FOOTER) == ino && word(b, FOOTER + 4) == ino && b[0..2] != [0, 0];
    (0..blocks).filter(|at| is_inode(&block(device, *at))).collect()
}

/// Linux pins a file and fsyncs it; after a power cut it is pinned. So it is where the checkpoint has the file, and where
/// it has not.
#[test]
fn recovery_keeps_a_file_pinned() {
    for is_new in [true, false] {
        let device = Arc::new(MemoryDevice::new(64 << 20));
        mkfs(&queue(&device), &MkfsOptions::default()).unwrap();
        let blocks = device.size() / PAGE;
        let (_fs, v) = open(&device, "background_gc=off");
        let make = |path: &[u8]| v.open_path(ROOT, path, RW | OpenFlags::CREATE, 0o644).unwrap();
        // The first fsync makes a checkpoint.
        make(b"/first").fsync(false).unwrap();
        let f = make(b"/f");
        let ino = u32::try_from(f.inode().ino.0).unwrap();
        if !is_new {
            v.sync().unwrap();
        }
        let before = inode_blocks(&device, blocks, ino);
        f.write_at(0, &[7; 5 * PAGE as usize]).unwrap();
        f.fsync(false).unwrap();
        let cut = Arc::new(MemoryDevice::from_bytes(&whole(&device)));
        let fsynced = inode_blocks(&cut, blocks, ino);
        let fsynced: Vec<u64> = fsynced.into_iter().filter(|at| !before.contains(at)).collect();
        assert_eq!(fsynced.len(), 1, "new: {is_new}");
        let mut bytes = block(&cut, fsynced[0]);
        bytes[I_INLINE as usize] |= PIN_FILE;
        cut.write_at(fsynced[0] * PAGE, &bytes);
        let (fs, again) = open(&cut, "background_gc=off");
        assert!(fs.recovered() > 0, "new: {is_new}");
        again.unmount().unwrap();
        let known: Vec<u64> = before.into_iter().chain(fsynced).collect();
        let stored = inode_blocks(&cut, blocks, ino).into_iter().filter(|at| !known.contains(at));
        let pinned: Vec<bool> = stored.map(|at| block(&cut, at)[I_INLINE as usize] & PIN_FILE != 0).collect();
        assert!(!pinned.is_empty() && pinned.iter().all(|p| *p), "new: {is_new}: {pinned:?}");
    }
}

fn whole(device: &MemoryDevice) -> Vec<u8> {
    let mut all = vec![0; device.size() as usize];
    device.read_at(0, &mut all);
    all
}

/// New files take the flags of their directory that Linux hands down.
#[test]
fn flags_are_handed_down() {
    const SYNC: u32 = 0x8;
    const APPEND: u32 = 0x20;
    const NODUMP: u32 = 0x40;
    const NOATIME: u32 = 0x80;
    const DIRSYNC: u32 = 0x1_0000;
    let device = Arc::new(MemoryDevice::new(64 << 20));
    mkfs(&queue(&device), &MkfsOptions::default()).unwrap();
    let (_fs, v) = open(&device, "");
    let dir = v.mkdir(ROOT, &v.root().unwrap(), b"d", 0o755).unwrap();
    let set = |flags| v.setattr(ROOT, &dir, &SetAttr { flags: Some(flags), ..SetAttr::default() }).unwrap();
    set(SYNC | NODUMP | NOATIME | DIRSYNC);
    v.mkdir(ROOT, &dir, b"sub", 0o755).unwrap();
    v.create(ROOT, &dir, b"file", 0o644).unwrap();
    v.symlink(ROOT, &dir, b"link", b"to").unwrap();
    set(APPEND | NODUMP);
    v.create(ROOT, &dir, b"other", 0o644).unwrap();
    drop(dir);
    v.unmount().unwrap();
    let (_fs, v) = open(&device, "");
    let flags = |path: &[u8]| v.resolve(ROOT, path, false).unwrap().attr().flags;
    assert_eq!(flags(b"/d/sub"), SYNC | NODUMP | NOATIME | DIRSYNC);
    assert_eq!(flags(b"/d/file"), SYNC | NODUMP | NOATIME);
    assert_eq!(flags(b"/d/link"), NODUMP | NOATIME);
    assert_eq!(flags(b"/d/other"), NODUMP);
    v.unmount().unwrap();
}
