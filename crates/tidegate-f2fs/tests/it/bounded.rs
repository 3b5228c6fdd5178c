//! Operations over thousands of nodes on a nearly full volume: each dirties only so many nodes at a time that
//! the next checkpoint has room for them.

use crate::common::volume;
use std::sync::Arc;
use tidegate_block::{MemoryDevice, QueueLimits, RequestQueue};
use tidegate_f2fs::F2fsOptions;
use tidegate_f2fs::check::{CheckOptions, check};
use tidegate_f2fs::options::AllocMode;
use tidegate_vfs::*;
use volume::{fsck, mount_with, template};

const ROOT: &Cred = &Cred::ROOT;
const PAGE: u64 = 4096;
/// Pages of a direct node, and of an indirect one.
const DNODE: u64 = 1018;
/// Direct nodes of the sparse file, a block in each.
const NODES: u64 = 14000;
const SIZE: u64 = NODES * DNODE * PAGE;

const PUNCH: FallocateFlags = FallocateFlags::PUNCH_HOLE.union(FallocateFlags::KEEP_SIZE);

/// A volume with a sparse file that has as many nodes as possible, and another file in the rest.
struct Full {
    vfs: Arc<Vfs>,
    device: Arc<MemoryDevice>,
}

fn mount(device: &Arc<MemoryDevice>, mode: AllocMode) -> Arc<Vfs> {
    let options = F2fsOptions { mode, ..Default::default() };
    // Nothing is written before it is asked for, and then everything at once.
    let limits = MemoryLimits { cache: 1 << 30, dirty: 1 << 29, background: 1 << 29, ..Default::default() };
    let mount = MountOptions { no_periodic_writeback: true, ..Default::default() };
    mount_with(device.clone(), limits, options, mount).unwrap().1
}

fn assert_clean(device: &Arc<MemoryDevice>) {
    let queue = RequestQueue::new(device.clone(), QueueLimits::default());
    let report = check(&queue, CheckOptions::default()).unwrap();
    assert!(report.is_clean(), "{:?}", report.problems);
    fsck(device).unwrap();
}

impl Full {
    /// A full volume with `spare` blocks left.
    fn new(mode: AllocMode, spare: u64) -> Option<Full> {
        if tidegate_testing::oracle::skip_or_fail("mkfs.f2fs") {
            return None;
        }
        let full = Full::empty(mode);
        let sparse = full.open("/sparse");
        for n in 0..NODES {
            sparse.write_at(at(n), &page(n)).unwrap();
            // Nodes lie among data, and nodes of one file lie among nodes of others.
            if n % 50 == 0 {
                full.open(&format!("/small{n}")).write_at(0, &page(n)).unwrap();
            }
            if n % 100 == 0 {
                full.vfs.sync().unwrap();
            }
        }
        sparse.truncate(SIZE).unwrap();
        full.fill(spare);
        Some(full)
    }

    fn empty(mode: AllocMode) -> Full {
        let device = template(200, "").device();
        Full { vfs: mount(&device, mode), device }
    }

    fn fill(&self, spare: u64) {
        let filler = self.open("/filler");
        let free = || self.vfs.statfs().blocks_available;
        while free() > spare + 2 {
            let pages = (free() - spare - 2).min(256);
            filler.write_at(filler.size(), &vec![2; (pages * PAGE) as usize]).unwrap();
        }
        self.vfs.sync().unwrap();
    }

    fn open(&self, path: &str) -> File {
        let flags = OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE;
        self.vfs.open_path(ROOT, path.as_bytes(), flags, 0o644).unwrap()
    }

    /// The content of block `n` of the sparse file.
    fn read(&self, f: &File, n: u64) -> Vec<u8> {
        let mut b = vec![0xff; PAGE as usize];
        let got = f.read_at(at(n), &mut b).unwrap();
        b.truncate(got);
        b
    }

    fn small_files_are_as_they_were(&self) {
        for n in (0..NODES).step_by(50) {
            let f = self.open(&format!("/small{n}"));
            assert!(self.read(&f, 0)[..8] == page(n)[..8], "/small{n}");
        }
        let filler = self.open("/filler");
        let mut b = vec![0; 1 << 20];
        for i in 0..filler.size().div_ceil(1 << 20) {
            let got = filler.read_at(i << 20, &mut b).unwrap();
            assert!(b[..got].iter().all(|x| *x == 2));
        }
    }

    /// Asserts that the other files are unchanged and the volume is good, also after it is mounted again.
    fn judge(self) {
        self.small_files_are_as_they_were();
        self.vfs.sync().unwrap();
        self.vfs.unmount().unwrap();
        assert_clean(&self.device);
        let again = Full { vfs: mount(&self.device, AllocMode::default()), device: self.device };
        again.small_files_are_as_they_were();
        again.vfs.unmount().unwrap();
    }
}

/// The position of block `n`: somewhere in the `n`-th direct node.
fn at(n: u64) -> u64 {
    (n * DNODE + n * 7 % 100) * PAGE
}

fn page(n: u64) -> Vec<u8> {
    (n + 1).to_le_bytes().repeat(512)
}

const MODES: [AllocMode; 2] = [AllocMode::Adaptive, AllocMode::Lfs];

#[test]
fn punching_all() {
    for mode in MODES {
        let Some(full) = Full::new(mode, 0) else { return };
        let f = full.open("/sparse");
        let before = full.vfs.statfs().blocks_free;
        f.fallocate(PUNCH, 0, SIZE).unwrap();
        assert_eq!(full.vfs.statfs().blocks_free - before, NODES);
        assert_eq!(f.size(), SIZE);
        assert!((0..NODES).step_by(97).all(|n| full.read(&f, n).iter().all(|b| *b == 0)));
        f.fsync(false).unwrap();
        drop(f);
        full.judge();
    }
}

#[test]
fn truncating_in_the_middle_and_removing() {
    for mode in MODES {
        let Some(full) = Full::new(mode, 0) else { return };
        let f = full.open("/sparse");
        let before = full.vfs.statfs().blocks_free;
        let half = at(NODES / 2) + 1;
        f.truncate(half).unwrap();
        // Each gave back a block and a node; indirect nodes were freed, too.
        let gone = full.vfs.statfs().blocks_free - before;
        let (least, indirect) = (2 * (NODES / 2 - 1), NODES / 1018);
        assert!(gone >= least && gone <= least + indirect, "{gone}");
        assert_eq!(f.size(), half);
        assert!((0..NODES / 2).step_by(97).all(|n| full.read(&f, n) == page(n)));
        assert_eq!(full.read(&f, NODES / 2), page(NODES / 2)[..1]);
        f.fsync(false).unwrap();
        f.truncate(SIZE).unwrap();
        assert!(full.read(&f, NODES / 2)[1..].iter().all(|b| *b == 0));
        assert!((NODES / 2 + 1..NODES).step_by(97).all(|n| full.read(&f, n).iter().all(|b| *b == 0)));
        drop(f);
        full.vfs.unlink(ROOT, &full.vfs.root().unwrap(), b"sparse").unwrap();
        assert!(full.vfs.statfs().blocks_free >= before + 2 * NODES - 8);
        full.judge();
    }
}

/// Every page is booked: no overwrite may fail, whichever nodes it changes.
#[test]
fn overwriting_all() {
    for mode in MODES {
        let Some(full) = Full::new(mode, 0) else { return };
        let f = full.open("/sparse");
        for n in 0..NODES {
            f.write_at(at(n), &page(n + 7)).unwrap();
        }
        full.vfs.sync().unwrap();
        assert!((0..NODES).step_by(97).all(|n| full.read(&f, n) == page(n + 7)));
        drop(f);
        full.judge();
    }
}

/// All free space goes to a range with thousands of nodes before it and a few behind.
#[test]
fn allocating_all_that_is_left() {
    for mode in MODES {
        let Some(full) = Full::new(mode, 3000) else { return };
        let f = full.open("/sparse");
        // The range covers three nodes, each of which has one block already.
        let (start, pages) = ((NODES - 4) * DNODE, 2 * DNODE + 500);
        f.fallocate(FallocateFlags::empty(), start * PAGE, pages * PAGE).unwrap();
        let e = f.fallocate(FallocateFlags::empty(), 0, 10 * DNODE * PAGE).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::NoSpace);
        assert_eq!(full.read(&f, NODES - 4), page(NODES - 4));
        f.fallocate(FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE, start * PAGE, pages * PAGE)
            .unwrap();
        assert!(full.read(&f, NODES - 4).iter().all(|b| *b == 0));
        f.fallocate(PUNCH, 0, SIZE).unwrap();
        f.fallocate(FallocateFlags::KEEP_SIZE, SIZE, 1000 * PAGE).unwrap();
        drop(f);
        full.judge();
    }
}

/// One change of attributes makes one node dirty; thousands of dirty nodes must not wait for a checkpoint
/// that has no room for all.
#[test]
fn changing_attributes_of_all_files() {
    if tidegate_testing::oracle::skip_or_fail("mkfs.f2fs") {
        return;
    }
    for mode in MODES {
        let full = Full::empty(mode);
        for n in 0..NODES {
            full.open(&format!("/small{n}")).write_at(0, &page(n)).unwrap();
        }
        full.fill(0);
        let inode = |n: u64| full.vfs.resolve(ROOT, format!("/small{n}").as_bytes(), true).unwrap();
        for n in 0..NODES {
            let none = XattrFlags::empty();
            full.vfs.setxattr(ROOT, &inode(n), b"user.n", Some(&n.to_le_bytes()), none).unwrap();
        }
        full.vfs.sync().unwrap();
        // The reads change the times of access.
        let before = inode(NODES - 1).attr().atime;
        for n in 0..NODES {
            full.read(&full.open(&format!("/small{n}")), 0);
        }
        assert_ne!(inode(NODES - 1).attr().atime, before);
        full.vfs.sync().unwrap();
        for n in (0..NODES).step_by(97) {
            assert_eq!(full.vfs.getxattr(ROOT, &inode(n), b"user.n").unwrap(), n.to_le_bytes());
        }
        full.judge();
    }
}

/// Pages of thousands of nodes get places in one pass, most of them in holes of segments in use. That takes
/// no free segment, yet it makes all those nodes dirty.
#[test]
fn writing_into_holes() {
    if tidegate_testing::oracle::skip_or_fail("mkfs.f2fs") {
        return;
    }
    for mode in MODES {
        let full = Full::empty(mode);
        let (sparse, holes) = (full.open("/sparse"), full.open("/holes"));
        holes.write_at(0, &vec![3; 12000 * PAGE as usize]).unwrap();
        full.vfs.sync().unwrap();
        for n in (0..12000).filter(|n| n % 4 != 0) {
            holes.fallocate(PUNCH, n * PAGE, PAGE).unwrap();
        }
        full.vfs.sync().unwrap();
        for n in 0..NODES {
            sparse.fallocate(FallocateFlags::empty(), at(n), PAGE).unwrap();
        }
        full.vfs.sync().unwrap();
        for n in 0..NODES {
            sparse.write_at(at(n), &page(n)).unwrap();
        }
        sparse.fsync(false).unwrap();
        full.vfs.sync().unwrap();
        assert!((0..NODES).step_by(97).all(|n| full.read(&sparse, n) == page(n)));
        let mut b = vec![0; PAGE as usize];
        for n in (0..12000).step_by(12) {
            holes.read_at(n * PAGE, &mut b).unwrap();
            assert!(b.iter().all(|x| *x == 3));
        }
        drop((sparse, holes));
        full.vfs.unmount().unwrap();
        assert_clean(&full.device);
    }
}
