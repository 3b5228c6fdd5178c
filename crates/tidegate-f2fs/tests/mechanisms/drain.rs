//! Checkpoints beside threads that leave bios growing. A checkpoint waits for bios without polling: the end
//! of the last one wakes it. A wait that never ends is a deadlock, which ends the run with a report.

use crate::bed::{ALONE, Bed, PAGE, ROOT, each_jittered};
use std::sync::Arc;
use tidegate_rt::{clock, thread};
use tidegate_vfs::WritebackControl;

const SEEDS: std::ops::Range<u64> = 0..25;
/// Threads of each kind, and the number of their operations.
const THREADS: u64 = 2;
const ROUNDS: u64 = 6;

/// Dirties pages here and there and places them; the bios grow and are not sent.
fn place(bed: &Bed, n: u64) {
    let f = bed.open(&format!("/placed-{n}"));
    for round in 0..ROUNDS {
        let at = (clock::entropy() % 64) * PAGE as u64;
        f.write_at(at, &vec![round as u8; PAGE << (round % 3)]).unwrap();
        bed.vfs.fs().writepages(f.inode(), &mut WritebackControl::background(u64::MAX)).unwrap();
        // Every checkpoint waits for a directory's block.
        let name = format!("{n}-{round}");
        bed.vfs.create(ROOT, &bed.vfs.root().unwrap(), name.as_bytes(), 0o644).unwrap();
    }
}

fn fsync(bed: &Bed, n: u64) {
    let f = bed.open(&format!("/synced-{n}"));
    for round in 0..ROUNDS {
        f.write_at(round * PAGE as u64, &[1; PAGE]).unwrap();
        f.fsync(round % 2 == 0).unwrap();
    }
}

fn checkpoint(bed: &Bed, _: u64) {
    (0..ROUNDS).for_each(|_| bed.fs.write_checkpoint(true).unwrap());
}

#[test]
fn what_a_checkpoint_waits_for_is_sent() {
    let _alone = ALONE.lock();
    for options in [
        "checkpoint_data=wait,writepages=unlocked",
        "checkpoint_data=linux,writepages=unlocked",
        "checkpoint_data=linux,writepages=extent",
        "checkpoint_data=wait,writepages=submit_locked,min_seq_blocks=0",
    ] {
        each_jittered(SEEDS, 16, options, |bed: &Arc<Bed>| {
            let works: [fn(&Bed, u64); 3] = [place, fsync, checkpoint];
            let threads: Vec<_> = (0..THREADS)
                .flat_map(|n| works.map(|work| (n, work)))
                .map(|(n, work)| {
                    let bed = bed.clone();
                    thread::spawn("works", move || work(&bed, n)).unwrap()
                })
                .collect();
            // Some bios are on their way when a checkpoint begins.
            bed.late(|rq| rq.bytes < 16 * PAGE as u64);
            threads.into_iter().for_each(thread::JoinHandle::join);
            // The last checkpoint sends the bios that were left growing.
            bed.fs.write_checkpoint(true).unwrap();
            bed.device.set([]);
            bed.vfs.unmount().unwrap();
        });
    }
}
