//! The four positions of `writepages=`: in whatever order writers place and send their pages, the bytes are
//! right, the volume is clean, and an extent is never split.

use crate::bed::ALONE;
use crate::volume::{fsck, template};
use std::sync::Arc;
use tidegate_f2fs::options::WritePages;
use tidegate_f2fs::{F2fs, F2fsOptions};
use tidegate_rt::{lockstat, thread};
use tidegate_vfs::*;

const ROOT: &Cred = &Cred::ROOT;
const WRITERS: usize = 8;
const FILES: usize = 6;
const LEN: usize = 512 << 10;

fn bytes(seed: usize) -> Vec<u8> {
    (0..LEN).map(|i| (i * 7 + i / 4096 * 13 + seed * 101) as u8).collect()
}

/// Runs the writers; returns the number of times that the lock was taken, the pieces of all files, and the
/// volume's statistics.
fn run(position: WritePages, min_seq_blocks: u64) -> (u64, u64, VolumeStats) {
    let device = template(256, "").device();
    let queue = tidegate_block::RequestQueue::new(device.clone(), Default::default());
    let bdi = Bdi::new(MemoryLimits::default());
    let options = F2fsOptions { writepages: position, min_seq_blocks, ..Default::default() };
    let fs = F2fs::open(Arc::new(queue), bdi.clone(), options).unwrap();
    let mount = MountOptions { no_periodic_writeback: true, ..Default::default() };
    let vfs = Vfs::mount(fs.clone(), bdi, mount).unwrap();
    let _alone = ALONE.lock();
    let counts = lockstat::collect();
    lockstat::reset();
    let writer = |w: usize| {
        let vfs = vfs.clone();
        let body = move || {
            for n in 0..FILES {
                let path = format!("/{w}-{n}");
                let flags = OpenFlags::WRITE | OpenFlags::CREATE;
                let f = vfs.open_path(ROOT, path.as_bytes(), flags, 0o644).unwrap();
                f.write_at(0, &bytes(w * FILES + n)).unwrap();
                f.fsync(false).unwrap();
            }
        };
        thread::spawn("writer", body).unwrap()
    };
    (0..WRITERS).map(writer).collect::<Vec<_>>().into_iter().for_each(|t| t.join());
    let locks = lockstat::snapshot().into_iter().find(|l| l.class == "sbi->writepages");
    drop(counts);
    let mut pieces = 0;
    for i in 0..WRITERS * FILES {
        let path = format!("/{}-{}", i / FILES, i % FILES);
        let f = vfs.open_path(ROOT, path.as_bytes(), OpenFlags::READ, 0).unwrap();
        let mut got = vec![0; LEN];
        assert_eq!(f.read_at(0, &mut got).unwrap(), LEN);
        assert!(got == bytes(i), "{position:?}: {path}");
        pieces += fs.fragments_of(&vfs.resolve(ROOT, path.as_bytes(), true).unwrap()).unwrap();
    }
    let stats = fs.stats();
    vfs.unmount().unwrap();
    fsck(&device).unwrap();
    (locks.map_or(0, |l| l.all().acquisitions), pieces, stats)
}

#[test]
fn every_position_writes_the_same_files() {
    if ["mkfs.f2fs", "fsck.f2fs"].iter().any(|o| tidegate_testing::oracle::skip_or_fail(o)) {
        return;
    }
    let (small, all) = (F2fsOptions::default().min_seq_blocks, 0);
    for (position, min_seq_blocks) in WritePages::ALL.iter().flat_map(|p| [(p, small), (p, all)]) {
        let (locks, pieces, s) = run(*position, min_seq_blocks);
        let mean = s.data.blocks * 4 / s.data.bios;
        println!(
            "{:14} {locks:3} locks, {pieces:4} pieces, {} data bios of {mean} KiB, {} split",
            position.word(),
            s.data.bios,
            s.split_bios
        );
        // Each file is small, and its writer waits for it: such writers take no turn unless all must.
        let asked =
            matches!(position, WritePages::Locked | WritePages::SubmitLocked) && min_seq_blocks == all;
        assert_eq!(locks, if asked { (WRITERS * FILES) as u64 } else { 0 }, "{position:?} {min_seq_blocks}");
        if asked || *position == WritePages::Extent {
            // A file lies in one piece, or in two where its log came to the end of a segment and the next
            // segment is elsewhere.
            let segments = (WRITERS * FILES * LEN) as u64 / (2 << 20);
            assert!(pieces <= (WRITERS * FILES) as u64 + segments + 6, "{pieces} pieces");
        }
    }
}
