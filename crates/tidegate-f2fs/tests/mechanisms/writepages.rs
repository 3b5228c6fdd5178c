//! `writepages=`: the threads that place and send pages beside each other.

use crate::bed::{ALONE, Bed, PAGE, each_jittered};
use std::sync::Arc;
use tidegate_rt::{lockstat, thread};
use tidegate_vfs::VolumeOps;

const WRITERS: u64 = 6;
const FILES: u64 = 3;
const PAGES: usize = 40;

/// The result of a run of writers, each of which fsyncs its files.
#[derive(Debug, Default)]
struct Came {
    /// Bios that ended because another file's pages came between.
    split: u64,
    /// Pieces of all files.
    pieces: u64,
    /// Times that `sbi->writepages` was taken.
    locks: u64,
}

fn write(bed: &Arc<Bed>) -> (u64, u64) {
    let writer = |w: u64| {
        let bed = bed.clone();
        let body = move || {
            for n in 0..FILES {
                let f = bed.open(&format!("/{w}-{n}"));
                f.write_at(0, &[w as u8; PAGES * PAGE]).unwrap();
                f.fsync(false).unwrap();
            }
        };
        thread::spawn("writer", body).unwrap()
    };
    (0..WRITERS).map(writer).collect::<Vec<_>>().into_iter().for_each(thread::JoinHandle::join);
    let files = (0..WRITERS).flat_map(|w| (0..FILES).map(move |n| format!("/{w}-{n}")));
    let pieces = files.map(|path| {
        let f = bed.open(&path);
        let mut got = vec![0; PAGES * PAGE];
        assert_eq!(f.read_at(0, &mut got).unwrap(), got.len());
        assert!(got.iter().all(|b| *b == path.as_bytes()[1] - b'0'), "{path}");
        bed.fs.fragments_of(f.inode()).unwrap()
    });
    (bed.fs.stats().split_bios, pieces.sum())
}

/// The sum of the results of several seeds.
fn all(options: &'static str) -> Came {
    let _alone = ALONE.lock();
    let counts = lockstat::collect();
    lockstat::reset();
    let each = each_jittered(0..8, 8, options, write);
    let locks = lockstat::snapshot().into_iter().find(|l| l.class == "sbi->writepages");
    drop(counts);
    let (split, pieces) = each.iter().fold((0, 0), |sum, c| (sum.0 + c.0, sum.1 + c.1));
    let came = Came { split, pieces, locks: locks.map_or(0, |l| l.all().acquisitions) };
    println!("{options}: {came:?}");
    came
}

#[test]
fn each_position_keeps_together_what_it_says() {
    let files = 8 * WRITERS * FILES;
    let unlocked = all("writepages=unlocked,min_seq_blocks=0");
    let locked = all("writepages=locked,min_seq_blocks=0");
    let submit_locked = all("writepages=submit_locked,min_seq_blocks=0");
    let extent = all("writepages=extent,min_seq_blocks=0");
    // In one position any thread's pages may join any bio; in the other, pages are placed in turn and the
    // last bio is sent after the turn.
    assert!(unlocked.split > locked.split && locked.split > 0, "{unlocked:?} {locked:?}");
    // The bio is sent inside the lock: no other thread's page comes between.
    assert_eq!(submit_locked.split, 0, "{submit_locked:?}");
    // Each extent has bios of its own.
    assert_eq!(extent.split, 0, "{extent:?}");
    assert_eq!([unlocked.locks, extent.locks], [0, 0]);
    assert_eq!([locked.locks, submit_locked.locks], [files; 2]);
    // A file lies in one piece, or in two where a segment ends; without lock and extents it lies in many.
    for c in [&locked, &submit_locked, &extent] {
        assert!(c.pieces < files + files / 4, "{c:?}");
    }
    assert!(unlocked.pieces > 2 * files, "{unlocked:?}");
}

/// The number of times that writers had to wait for `sbi->writepages`. Each writer has a file of its own, in
/// a stream of its own.
fn waited(options: &'static str) -> u64 {
    let _alone = ALONE.lock();
    let counts = lockstat::collect();
    lockstat::reset();
    each_jittered(0..8, 8, options, |bed| {
        let writer = |w: u64| {
            let bed = bed.clone();
            let body = move || {
                let f = bed.open(&format!("/{w}"));
                for n in 0..4 {
                    f.write_at((n * PAGES * PAGE) as u64, &[w as u8; PAGES * PAGE]).unwrap();
                    f.fsync(false).unwrap();
                }
            };
            thread::spawn("writer", body).unwrap()
        };
        (0..4).map(writer).collect::<Vec<_>>().into_iter().for_each(thread::JoinHandle::join);
        let streams = bed.fs.info().unwrap().streams.len();
        assert_eq!(streams, if options.contains("warm") { 3 } else { 0 });
    });
    let lock = lockstat::snapshot().into_iter().find(|l| l.class == "sbi->writepages").unwrap();
    drop(counts);
    println!("{options}: {lock:?}");
    assert_eq!(lock.all().acquisitions, 8 * 4 * 4);
    lock.all().contentions
}

#[test]
fn a_stream_that_a_file_is_pinned_to_has_a_lock() {
    assert!(waited("writepages=submit_locked,min_seq_blocks=0") > 0);
    assert_eq!(waited("writepages=submit_locked,min_seq_blocks=0,warm_streams=4,stream_policy=spf"), 0);
    assert_eq!(waited("writepages=locked,min_seq_blocks=0,warm_streams=4,stream_policy=spf"), 0);
    // Not where all streams are sent together; and with round robin no writer has a stream of its own.
    let all = "writepages=submit_locked,min_seq_blocks=0,warm_streams=4,stream_policy=spf,stream_flush=all";
    assert!(waited(all) > 0);
    assert!(waited("writepages=submit_locked,min_seq_blocks=0,warm_streams=4,stream_policy=srr") > 0);
}

/// Small files that a thread waits for take no turn unless all must (since Linux 4.19).
#[test]
fn small_files_take_no_turn() {
    assert_eq!(all("writepages=submit_locked").locks, 0);
    assert_eq!(all("writepages=submit_locked,min_seq_blocks=40").locks, 8 * WRITERS * FILES);
    assert_eq!(all("writepages=submit_locked,min_seq_blocks=41").locks, 0);
}
