//! Free blocks that are not available: promised to pages, or reserved for the superuser.

use crate::rig::{mke2fs, must_be_clean, scratch, skip};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tidegate_block::{Device, DeviceInfo, Errno, MemoryDevice, Op, QueueLimits, Request, RequestQueue};
use tidegate_ext4::{Ext4, Ext4Options};
use tidegate_rt::{Nanos, sim, thread};
use tidegate_vfs::*;

const ROOT: &Cred = &Cred::ROOT;
const MIB: u64 = 1 << 20;

/// A device with slow reads: all threads that need blocks wait while a bitmap is read.
struct Slow(Arc<MemoryDevice>);

impl Device for Slow {
    fn info(&self) -> DeviceInfo<'_> {
        self.0.info()
    }
    fn execute(&self, rq: &mut Request) -> std::result::Result<(), Errno> {
        if rq.op == Op::Read {
            thread::sleep(Duration::from_millis(1));
        }
        self.0.execute(rq)
    }
}

/// Mounts a volume whose pages are written only by an fsync.
fn open(bytes: &[u8]) -> (Arc<MemoryDevice>, Arc<Vfs>) {
    let device = Arc::new(MemoryDevice::from_bytes(bytes));
    let queue = Arc::new(RequestQueue::new(Arc::new(Slow(device.clone())), QueueLimits::default()));
    let limits = MemoryLimits { cache: 100 * MIB, dirty: 60 * MIB, background: 50 * MIB, inodes: 8192 };
    let bdi = Bdi::new(limits);
    let fs = Ext4::open(queue, bdi.clone(), Ext4Options::default()).unwrap();
    let how = MountOptions { no_periodic_writeback: true, ..Default::default() };
    (device, Vfs::mount(fs, bdi, how).unwrap())
}

fn contents(device: &MemoryDevice) -> Vec<u8> {
    let mut all = vec![0; Device::size(device) as usize];
    device.read_at(0, &mut all);
    all
}

fn make(v: &Arc<Vfs>, name: &str) -> File {
    let inode = v.create(ROOT, &v.root().unwrap(), name.as_bytes(), 0o644).unwrap();
    v.open(ROOT, &inode, OpenFlags::READ | OpenFlags::WRITE).unwrap()
}

fn judge(image: &Path, left: &[u8]) {
    std::fs::write(image, left).unwrap();
    must_be_clean(image);
}

/// Threads that preallocate blocks do not take blocks promised to dirty pages, however many threads search at
/// once.
#[test]
fn what_is_promised_is_taken_by_nobody() {
    if skip() {
        return;
    }
    let dir = scratch();
    let image = dir.path().join("a.img");
    mke2fs(&image, &["-t", "ext4", "-b", "4096", "-m", "0"], "64M");
    let bytes = Arc::new(std::fs::read(&image).unwrap());
    for seed in 0..6 {
        let bytes = bytes.clone();
        let left = sim::run(seed, 2, move || {
            let (device, v) = open(&bytes);
            let dirty = make(&v, "dirty");
            for n in 0..20 {
                dirty.write_at(n * MIB, &vec![n as u8 + 1; MIB as usize]).unwrap();
            }
            let take = |n: u32| {
                let f = make(&v, &format!("ahead-{n}"));
                let take = move || f.fallocate(FallocateFlags::empty(), 0, 12 * MIB).is_ok();
                thread::spawn(&format!("taker-{n}"), take).unwrap()
            };
            let takers: Vec<_> = (0..6).map(take).collect();
            let took = takers.into_iter().map(|t| t.join()).filter(|took| *took).count();
            println!("{seed}: {took} took all they wanted");
            dirty.fsync(false).expect("its space was promised");
            drop(dirty);
            v.unmount().unwrap();
            drop(v);
            contents(&device)
        });
        judge(&image, &left);
    }
}

/// Neither data nor preallocation takes the blocks reserved for the superuser.
#[test]
fn blocks_ahead_leave_the_reserve() {
    if skip() {
        return;
    }
    let dir = scratch();
    let image = dir.path().join("a.img");
    mke2fs(&image, &["-t", "ext4", "-m", "20"], "64M");
    let (device, v) = open(&std::fs::read(&image).unwrap());
    let (f, before) = (make(&v, "ahead"), v.fs().statfs());
    let kept = before.blocks_free - before.blocks_available;
    assert!(kept * u64::from(before.block_size) > 12 * MIB, "{before:?}");
    assert_eq!(f.fallocate(FallocateFlags::empty(), 0, 64 * MIB).unwrap_err().kind(), ErrorKind::NoSpace);
    let after = v.fs().statfs();
    assert!(after.blocks_free + 8 >= kept, "{after:?}");
    assert!(after.blocks_available < 8, "all else was given: {after:?}");
    // Directories can be made all the same.
    for n in 0..20 {
        v.mkdir(ROOT, &v.root().unwrap(), format!("d{n}").as_bytes(), 0o755).unwrap();
    }
    drop(f);
    v.unmount().unwrap();
    drop(v);
    judge(&image, &contents(&device));
}

/// A way to need a block: the first argument counts the calls.
type Need = fn(&Arc<Vfs>, &File, u64) -> Result<()>;

/// A pass takes promised blocks and takes the promise back later. Nothing that needs a block in between is refused.
#[test]
fn nothing_is_refused_while_promises_count_twice() {
    if skip() {
        return;
    }
    let dir = scratch();
    let image = dir.path().join("a.img");
    mke2fs(&image, &["-t", "ext4", "-b", "1024", "-m", "0"], "8M");
    let bytes = Arc::new(std::fs::read(&image).unwrap());
    let write: Need = |_, f, n| f.write_at(n << 10, &[3; 1024]).map(drop);
    let preallocate: Need = |_, f, n| f.fallocate(FallocateFlags::empty(), n << 10, 1024);
    let make_directory: Need = |v, _, n| {
        let name = format!("d{n}");
        v.mkdir(ROOT, &v.root().unwrap(), name.as_bytes(), 0o755).map(drop)
    };
    for (what, need) in [("write", write), ("preallocate", preallocate), ("make", make_directory)] {
        for seed in 0..30 {
            let left = need_beside_a_pass(bytes.clone(), seed, need);
            judge(&image, &left.unwrap_or_else(|e| panic!("{what}, seed {seed}: {e}")).value);
        }
    }
}

/// Needs a hundred blocks beside a pass over a thousand promised blocks, on a volume with some hundreds of blocks that
/// are left; returns the volume.
fn need_beside_a_pass(
    bytes: Arc<Vec<u8>>,
    seed: u64,
    need: Need,
) -> std::result::Result<sim::Outcome<Vec<u8>>, sim::Deadlock> {
    let config = sim::Config { seed, quantum: Nanos(0), jitter: 4, ..sim::Config::default() };
    sim::run_with(&config, move || {
        let (device, v) = open(&bytes);
        let [a, b, c] = ["a", "b", "c"].map(|name| make(&v, name));
        let left = || v.statfs().blocks_available;
        a.write_at(0, &vec![1; 1000 << 10]).unwrap();
        let most = left() * 4 / 5 - 300;
        (0..most).for_each(|n| {
            b.write_at(n << 10, &[2; 1024]).unwrap();
        });
        assert!((200..1000).contains(&left()), "{} blocks are left", left());
        let (vfs, inode) = (v.clone(), a.inode().clone());
        let pass = thread::spawn("pass", move || {
            vfs.fs().writepages(&inode, &mut WritebackControl::background(u64::MAX)).unwrap();
        });
        (0..100).for_each(|n| need(&v, &c, n).unwrap_or_else(|e| panic!("block {n}: {e}")));
        pass.unwrap().join();
        drop((a, b, c));
        v.unmount().unwrap();
        contents(&device)
    })
}

/// A write to a file with a block map is taken only where its blocks of numbers have room, too. Here each block needs one
/// of its own; one behind the other, they need hardly any.
#[test]
fn block_maps_have_room() {
    if skip() {
        return;
    }
    for (block, size) in [(1024, "8M"), (4096, "48M")] {
        let dir = scratch();
        let image = dir.path().join("a.img");
        mke2fs(&image, &["-t", "ext3", "-b", &block.to_string(), "-m", "0"], size);
        let (device, v) = open(&std::fs::read(&image).unwrap());
        let f = make(&v, "map");
        let fill = |step: u64| {
            let (free, mut n) = (v.statfs().blocks_free, 0);
            loop {
                match f.write_at(n * step, &vec![n as u8; block as usize]) {
                    Ok(_) => n += 1,
                    Err(e) => break assert_eq!(e.kind(), ErrorKind::NoSpace),
                }
            }
            f.fsync(false).expect("its space was promised");
            println!("{block}: {n} blocks, {step} bytes apart, of {free}");
            (n, free)
        };
        let span = block / 4 * block;
        let (n, free) = fill(span);
        assert!(n * 2 > free * 19 / 20, "{n} blocks of {free}");
        f.truncate(0).unwrap();
        v.sync().unwrap();
        let (n, free) = fill(block);
        assert!(n > free * 98 / 100, "{n} blocks of {free}");
        let mut bytes = vec![0; block as usize];
        for at in [0, 100, n - 1] {
            f.read_at(at * block, &mut bytes).unwrap();
            assert!(bytes.iter().all(|b| *b == at as u8));
        }
        drop(f);
        v.unmount().unwrap();
        drop(v);
        judge(&image, &contents(&device));
    }
}

/// Files whose extents just fit in their inodes need a node each when they get one more.
#[test]
fn full_inodes_have_room_for_a_node() {
    if skip() {
        return;
    }
    let dir = scratch();
    let image = dir.path().join("a.img");
    mke2fs(&image, &["-t", "ext4", "-b", "1024", "-m", "0", "-N", "1200"], "8M");
    let (device, v) = open(&std::fs::read(&image).unwrap());
    let files: Vec<File> = (0..1000).map(|n| make(&v, &format!("f{n}"))).collect();
    for f in &files {
        for n in 0..4 {
            f.write_at(n * 4096, &[7; 1024]).unwrap();
        }
    }
    v.sync().unwrap();
    let rest = make(&v, "rest");
    let ballast = v.statfs().blocks_available - 1400;
    rest.write_at(0, &vec![1; (ballast << 10) as usize]).unwrap();
    v.sync().unwrap();
    let taken = |f: &&File| f.write_at(4 * 4096, &[9; 1024]).is_ok();
    let taken: Vec<&File> = files.iter().filter(taken).collect();
    println!("{} writes of {} were taken", taken.len(), files.len());
    assert!((400..1000).contains(&taken.len()));
    taken.iter().for_each(|f| f.fsync(false).expect("its space was promised"));
    drop((files, rest));
    v.unmount().unwrap();
    drop(v);
    judge(&image, &contents(&device));
}

/// A directory that grows takes its blocks of numbers from what nobody was promised.
#[test]
fn a_growing_directory_leaves_what_is_promised() {
    if skip() {
        return;
    }
    let dir = scratch();
    let image = dir.path().join("a.img");
    mke2fs(&image, &["-t", "ext3", "-b", "1024", "-m", "0", "-N", "2000"], "8M");
    let bytes = std::fs::read(&image).unwrap();
    // So many blocks are left when the directory needs its first block of numbers, or the first two of the next level.
    for (left, blocks) in (0..4).flat_map(|left| [(left, 12), (left, 12 + 256)]) {
        let (device, v) = open(&bytes);
        let at = v.mkdir(ROOT, &v.root().unwrap(), b"d", 0o755).unwrap();
        let first = v.create(ROOT, &at, b"first", 0o644).unwrap();
        let name = |n: u64| format!("{n:0240}");
        let mut n = 0;
        while at.attr().size < blocks << 10 {
            v.link(ROOT, &first, &at, name(n).as_bytes()).unwrap();
            n += 1;
        }
        v.sync().unwrap();
        let f = make(&v, "f");
        // A write here needs one block of its own and none of numbers.
        let free = v.statfs().blocks_available;
        let mut at_block = 0;
        while v.statfs().blocks_available > left {
            // Blocks far apart at first: each needs a block of numbers.
            let far = v.statfs().blocks_available >= left + 4;
            let place = if far { 12 + 256 * (1 + at_block) } else { at_block % 12 };
            at_block += 1;
            if f.write_at(place << 10, &[5; 1024]).is_err() {
                break;
            }
        }
        println!(
            "{left}, {blocks}: {at_block} writes on {free} blocks, {} left",
            v.statfs().blocks_available
        );
        let grew = (0..200).take_while(|m| v.link(ROOT, &first, &at, name(n + m).as_bytes()).is_ok()).count();
        println!("{grew} names more");
        f.fsync(false).expect("its space was promised");
        drop((f, first, at));
        v.unmount().unwrap();
        drop(v);
        judge(&image, &contents(&device));
    }
}

/// Blocks that were allocated behind the end of a file stay when it gets longer, and go when it is cut to its size.
#[test]
fn a_longer_file_keeps_what_was_allocated_ahead() {
    if skip() {
        return;
    }
    let dir = scratch();
    let image = dir.path().join("a.img");
    mke2fs(&image, &["-t", "ext4", "-b", "1024"], "64M");
    let (device, v) = open(&std::fs::read(&image).unwrap());
    let f = make(&v, "f");
    f.fallocate(FallocateFlags::KEEP_SIZE, 0, MIB).unwrap();
    let blocks = |wanted| assert_eq!(f.inode().attr().blocks, wanted);
    blocks(2048);
    f.truncate(5000).unwrap();
    blocks(2048);
    f.write_at(0, &[1; 100]).unwrap();
    f.truncate(MIB / 2).unwrap();
    v.sync().unwrap();
    blocks(2048);
    let mut bytes = vec![1; 6000];
    f.read_at(100, &mut bytes).unwrap();
    assert!(bytes.iter().all(|b| *b == 0));
    f.truncate(MIB / 2).unwrap();
    blocks(1024);
    f.truncate(0).unwrap();
    blocks(0);
    drop(f);
    v.unmount().unwrap();
    drop(v);
    judge(&image, &contents(&device));
}

/// Programs take a file without blocks for a hole.
#[test]
fn promised_blocks_are_among_those_that_stat_shows() {
    if skip() {
        return;
    }
    let dir = scratch();
    let image = dir.path().join("volume");
    for kind in ["ext4", "ext2"] {
        mke2fs(&image, &["-t", kind, "-b", "1024"], "32M");
        let (_, v) = open(&std::fs::read(&image).unwrap());
        let file = make(&v, "file");
        let sectors = || v.fs().sectors(file.inode());
        file.write_at(5000, &[7; 300_000]).unwrap();
        let promised = sectors();
        assert_eq!(
            (file.inode().attr().blocks, promised),
            (0, 2 * (305_000_u64.div_ceil(1024) - 4)),
            "{kind}"
        );
        file.fsync(false).unwrap();
        assert_eq!(sectors(), file.inode().attr().blocks, "{kind}");
        assert!(sectors() >= promised, "{kind}");
        file.write_at(0, &[7; 1024]).unwrap();
        let more = sectors();
        assert!(more > file.inode().attr().blocks);
        file.truncate(0).unwrap();
        assert_eq!(sectors(), 0, "{kind}");
    }
}
