//! Readers that read ahead beside a writer, with so little memory that every page is read again: a thread
//! finds the page that it wrote, whatever reads were under way. Also nodes that are read together with one,
//! and nodes that are dropped.

use crate::util;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;
use tidegate_block::{Fault, Faulty, Op, QueueLimits, RequestQueue, Rule, file};
use tidegate_f2fs::{F2fs, F2fsOptions};
use tidegate_rt::thread;
use tidegate_vfs::*;
use util::{fsck, make_image};

const PAGE: usize = 4096;
const PAGES: u64 = 128;
const ROUNDS: u64 = 1000;

fn page(index: u64, version: u64) -> Vec<u8> {
    [index, version].iter().flat_map(|n| n.to_le_bytes()).cycle().take(PAGE).collect()
}

fn mount(path: &Path, limits: MemoryLimits) -> (Arc<Vfs>, Arc<Faulty>) {
    let device = Faulty::new(file::open(path, Default::default()).unwrap(), []);
    let queue = Arc::new(RequestQueue::new(device.clone(), QueueLimits::default()));
    (mount_on(queue, limits), device)
}

fn mount_on(queue: Arc<RequestQueue>, limits: MemoryLimits) -> Arc<Vfs> {
    let bdi = Bdi::new(limits);
    // An overwritten page goes to another place: a read of its old place would bring back its old content.
    let mut options = F2fsOptions::default();
    options.parse("mode=lfs").unwrap();
    let fs = F2fs::open(queue, bdi.clone(), options).unwrap();
    Vfs::mount(fs, bdi, MountOptions::default()).unwrap()
}

fn open(v: &Arc<Vfs>, flags: OpenFlags) -> File {
    v.open_path(&Cred::ROOT, b"/f", flags, 0o644).unwrap()
}

/// Reads the file from front to back again and again; each page must be whole and belong to its place.
fn read_all(v: &Arc<Vfs>, stop: &AtomicBool) {
    let f = open(v, OpenFlags::READ);
    let mut buf = vec![0; 4 * PAGE];
    while !stop.load(SeqCst) {
        let mut at = 0;
        loop {
            let n = f.read_at(at, &mut buf).unwrap();
            for (i, got) in buf[..n / PAGE * PAGE].chunks(PAGE).enumerate() {
                let index = at / PAGE as u64 + i as u64;
                let version = u64::from_le_bytes(got[8..16].try_into().unwrap());
                assert!(got == page(index, version) || got.iter().all(|b| *b == 0), "page {index}");
            }
            if n < buf.len() {
                break;
            }
            at += n as u64;
        }
    }
}

#[test]
fn what_was_read_ahead_never_comes_after_what_was_written() {
    let seed = std::env::var("TIDEGATE_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(1u64);
    println!("TIDEGATE_SEED={seed}");
    let dir = tempfile::tempdir().unwrap();
    let path = make_image(dir.path(), 64 << 20, "");
    let tight = MemoryLimits { cache: 64 << 10, dirty: 16 << 10, background: 4 << 10, inodes: 64 };
    let (v, device) = mount(&path, tight);
    let late = Rule::new(Fault::Shuffled(Duration::from_millis(5))).op(Op::Read).chance(500, seed);
    device.set([late.when(|rq| rq.bytes > PAGE as u64)]);
    let f = open(&v, OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE);
    let mut versions = vec![1; PAGES as usize];
    for i in 0..PAGES {
        f.write_at(i * PAGE as u64, &page(i, 1)).unwrap();
    }
    let stop = Arc::new(AtomicBool::new(false));
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let (v, stop) = (v.clone(), stop.clone());
            thread::spawn("reader", move || read_all(&v, &stop)).unwrap()
        })
        .collect();
    let (mut random, mut got, mut last) = (seed, vec![0; PAGE], [0; 12]);
    let mut below = |n: u64| {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (random >> 33) % n
    };
    for round in 2..ROUNDS {
        let i = below(PAGES);
        let at = i * PAGE as u64;
        match below(40) {
            0 | 3..8 => f.fsync(false).unwrap(),
            1 => {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                f.fallocate(flags, at, PAGE as u64).unwrap();
                versions[i as usize] = 0;
            }
            2 => {
                f.truncate(at).unwrap();
                f.truncate(PAGES * PAGE as u64).unwrap();
                versions[i as usize..].fill(0);
            }
            _ => {
                f.write_at(at, &page(i, round)).unwrap();
                versions[i as usize] = round;
            }
        }
        // The page was written last, so a late read would have replaced it just now.
        last[round as usize % last.len()] = i;
        let i = last[below(last.len() as u64) as usize];
        f.read_at(i * PAGE as u64, &mut got).unwrap();
        let want = if versions[i as usize] == 0 { vec![0; PAGE] } else { page(i, versions[i as usize]) };
        assert!(got == want, "round {round}, page {i}: not version {}", versions[i as usize]);
    }
    stop.store(true, SeqCst);
    readers.into_iter().for_each(|r| r.join());
    drop(f);
    v.unmount().unwrap();
    drop(v);
    fsck(&path);
}

#[test]
fn a_late_read_does_not_bring_back_what_was_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let path = make_image(dir.path(), 64 << 20, "");
    let (v, device) = mount(&path, MemoryLimits::default());
    let f = open(&v, OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE);
    for i in 0..PAGES {
        f.write_at(i * PAGE as u64, &page(i, 1)).unwrap();
    }
    f.fsync(false).unwrap();
    f.inode().mapping.reclaim(false);
    // The reader waits for the first read; the second is read-ahead.
    let late = Duration::from_millis(300);
    device.set([Rule::new(Fault::Late(late)).op(Op::Read).which(1..2)]);
    let mut got = vec![0; PAGE];
    f.read_at(0, &mut got).unwrap();
    let ahead = (1..PAGES).find(|i| !f.inode().mapping.has(*i)).unwrap();
    f.write_at(ahead * PAGE as u64, &page(ahead, 2)).unwrap();
    f.fsync(false).unwrap();
    f.inode().mapping.reclaim(false);
    thread::sleep(2 * late);
    assert_eq!(device.late(), 1, "the window that was read ahead");
    f.read_at(ahead * PAGE as u64, &mut got).unwrap();
    assert!(got == page(ahead, 2));
    drop(f);
    v.unmount().unwrap();
}

/// Nodes that were made together are read together, whichever of them is wanted first.
#[test]
fn a_node_brings_those_around_it() {
    const FILES: u64 = 1024;
    let dir = tempfile::tempdir().unwrap();
    let path = make_image(dir.path(), 64 << 20, "");
    let name = |i: u64| format!("/f{i:04}").into_bytes();
    let (v, _) = mount(&path, MemoryLimits::default());
    for i in 0..FILES {
        v.open_path(&Cred::ROOT, &name(i), OpenFlags::CREATE, 0o644).unwrap();
    }
    v.unmount().unwrap();
    drop(v);
    for backwards in [false, true] {
        let device = file::open(&path, Default::default()).unwrap();
        let queue = Arc::new(RequestQueue::new(device, QueueLimits::default()));
        let v = mount_on(queue.clone(), MemoryLimits::default());
        let root = v.root().unwrap();
        v.readdir(&root, 0, &mut |_| true).unwrap();
        let before = queue.stats();
        for i in 0..FILES {
            let i = if backwards { FILES - 1 - i } else { i };
            let inode = v.resolve(&Cred::ROOT, &name(i), false).unwrap();
            assert_eq!(inode.attr().mode & 0o777, 0o644);
        }
        let (reads, bytes) =
            (queue.stats().read_bios - before.read_bios, queue.stats().read_bytes - before.read_bytes);
        assert!(reads < FILES / 8, "backwards {backwards}: {reads} reads for {FILES} nodes");
        assert!(bytes < 2 * FILES * PAGE as u64, "backwards {backwards}: {bytes} bytes");
        v.unmount().unwrap();
    }
}

#[test]
fn only_clean_pages_that_lie_in_the_range_whole_are_forgotten() {
    let dir = tempfile::tempdir().unwrap();
    let path = make_image(dir.path(), 64 << 20, "");
    let (v, _) = mount(&path, MemoryLimits::default());
    let f = open(&v, OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE);
    for i in 0..8 {
        f.write_at(i * PAGE as u64, &page(i, 1)).unwrap();
    }
    let cached = || (0..8).filter(|i| f.inode().mapping.has(*i)).collect::<Vec<_>>();
    f.forget_pages(0, 8 * PAGE as u64);
    assert_eq!(cached(), (0..8).collect::<Vec<_>>(), "dirty pages stay");
    f.fsync(false).unwrap();
    f.write_at(3 * PAGE as u64, &page(3, 2)).unwrap();
    f.forget_pages(1, 6 * PAGE as u64 + 1);
    assert_eq!(cached(), [0, 3, 6, 7]);
    f.forget_pages(7 * PAGE as u64, u64::MAX);
    assert_eq!(cached(), [0, 3, 6]);
    let mut got = vec![0; PAGE];
    for i in 0..8 {
        f.read_at(i * PAGE as u64, &mut got).unwrap();
        assert!(got == page(i, if i == 3 { 2 } else { 1 }), "page {i}");
    }
    drop(f);
    v.unmount().unwrap();
}
