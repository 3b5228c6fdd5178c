//! Checkpoints beside data in flight and beside operations.

use crate::bed::{Bed, LATE, MS, PAGE, ROOT, beside, each_seed, took};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;
use tidegate_block::{BioFlags, Request};
use tidegate_rt::thread;
use tidegate_vfs::File;

const SEEDS: std::ops::Range<u64> = 0..3;
const LEN: usize = 64 * PAGE;

/// Whether a request writes file data: no other write in this test is as long.
fn is_data(rq: &Request) -> bool {
    rq.bytes >= LEN as u64
}

/// A file whose data is on its way to a slow device.
fn in_flight(bed: &Bed) -> File {
    let f = bed.open("/f");
    f.write_at(0, &[7; LEN]).unwrap();
    bed.late(is_data);
    bed.send(&f);
    assert!(f.inode().mapping.nr_writeback() > 0);
    f
}

fn create(bed: &Bed, name: &[u8]) -> Duration {
    took(|| {
        bed.vfs.create(ROOT, &bed.vfs.root().unwrap(), name, 0o644).unwrap();
    })
}

#[test]
fn a_checkpoint_waits_for_data_unless_it_is_to_be_as_linux_has_it() {
    let checkpoint = |bed: &Arc<Bed>| {
        let _file = in_flight(bed);
        took(|| bed.fs.write_checkpoint(true).unwrap())
    };
    for t in each_seed(SEEDS, "checkpoint_data=wait", checkpoint) {
        assert!(t >= LATE - MS, "{t:?}");
    }
    for t in each_seed(SEEDS, "checkpoint_data=linux", checkpoint) {
        assert!(t < LATE / 2, "{t:?}");
    }
}

/// Operations go on while a checkpoint waits for data that was in flight before.
#[test]
fn nobody_stands_still_while_a_checkpoint_waits_for_data() {
    for options in ["checkpoint_data=wait,checkpoint_merge", "checkpoint_data=wait,nocheckpoint_merge"] {
        each_seed(SEEDS, options, |bed| {
            let _file = in_flight(bed);
            let checkpoint = beside(bed, |b| b.fs.write_checkpoint(true).unwrap());
            let created = create(bed, b"beside");
            assert!(created < LATE / 4, "creating a file took {created:?}");
            let t = checkpoint.join();
            assert!(t >= LATE - MS, "the checkpoint took {t:?}");
        });
    }
}

/// A checkpoint also waits for data that gets its place while it waits.
#[test]
fn no_checkpoint_refers_to_data_that_is_not_there() {
    each_seed(SEEDS, "checkpoint_data=wait", |bed| {
        let f = in_flight(bed);
        let checkpoint = beside(bed, |b| b.fs.write_checkpoint(true).unwrap());
        // This data is late by as much, so it arrives after the data that the checkpoint waits for first.
        let g = bed.open("/g");
        g.write_at(0, &[8; LEN]).unwrap();
        bed.send(&g);
        checkpoint.join();
        let cut = bed.after_cut();
        for (f, path, byte) in [(&f, "/f", 7), (&g, "/g", 8)] {
            let flags = tidegate_vfs::OpenFlags::READ;
            let there = cut.open_path(ROOT, path.as_bytes(), flags, 0).unwrap();
            let mut got = vec![0; LEN];
            let n = there.read_at(0, &mut got).unwrap();
            assert!(n == LEN && got.iter().all(|b| *b == byte), "{path}: {n} bytes of {}", f.size());
        }
    });
}

/// Linux's checkpoint waits for blocks of directories, too.
#[test]
fn every_checkpoint_waits_for_directories() {
    for options in ["checkpoint_data=wait", "checkpoint_data=linux"] {
        each_seed(SEEDS, options, |bed| {
            let dir = bed.vfs.mkdir(ROOT, &bed.vfs.root().unwrap(), b"d", 0o755).unwrap();
            for n in 0..400 {
                bed.vfs.create(ROOT, &dir, format!("a-name-of-a-file-{n}").as_bytes(), 0o644).unwrap();
            }
            let names = |s: &[u8]| s.windows(14).any(|w| w == b"a-name-of-a-fi");
            bed.late(move |rq| {
                let mut found = false;
                rq.for_each_source(|s| found |= names(s));
                found
            });
            let t = took(|| bed.fs.write_checkpoint(true).unwrap());
            assert!(t >= LATE - MS, "{t:?}");
            assert_eq!(bed.after_cut().entries(&dir_after(&bed.after_cut())).unwrap().len(), 400);
        });
    }
}

fn dir_after(vfs: &Arc<tidegate_vfs::Vfs>) -> Arc<tidegate_vfs::Inode> {
    vfs.resolve(ROOT, b"/d", true).unwrap()
}

/// A volume whose operations are frozen: the checkpoint's pack is slow.
fn frozen(bed: &Arc<Bed>) -> thread::JoinHandle<Duration> {
    let packs = bed.packs();
    bed.late(move |rq| packs.contains(&rq.sector.bytes()));
    beside(bed, |b| b.fs.write_checkpoint(true).unwrap())
}

#[test]
fn who_overwrites_does_not_wait_for_a_checkpoint() {
    each_seed(SEEDS, "", |bed| {
        let f = bed.open("/f");
        f.write_at(0, &[7; LEN]).unwrap();
        bed.fs.write_checkpoint(true).unwrap();
        let checkpoint = frozen(bed);
        let overwrote = took(|| assert!(f.write_at(5 * PAGE as u64, &[9; PAGE]).is_ok()));
        assert!(overwrote < LATE / 4, "overwriting a page took {overwrote:?}");
        let appended = took(|| assert!(f.write_at(LEN as u64, &[9; PAGE]).is_ok()));
        assert!(appended > LATE / 4, "appending one took {appended:?}");
        assert!(checkpoint.join() > LATE);
    });
}

/// The next checkpoint, or an fsync of the file, stores times that were not stored with a write.
#[test]
fn times_of_overwrites_are_stored_by_checkpoints_and_fsyncs() {
    for fsync in [false, true] {
        each_seed(SEEDS, "", move |bed| {
            let f = bed.open("/f");
            f.write_at(0, &[7; LEN]).unwrap();
            bed.fs.write_checkpoint(true).unwrap();
            let old = f.inode().attr().mtime;
            thread::sleep(Duration::from_secs(5));
            f.write_at(0, &[8; PAGE]).unwrap();
            let new = f.inode().attr().mtime;
            assert!(new.secs >= old.secs + 5);
            let stored = |bed: &Bed| bed.after_cut().resolve(ROOT, b"/f", true).unwrap().attr().mtime;
            assert_eq!(stored(bed), old);
            // Nothing else has changed: that is enough for a checkpoint that is not forced.
            if fsync {
                f.fsync(false).unwrap()
            } else {
                bed.fs.write_checkpoint(false).unwrap()
            }
            assert_eq!(stored(bed), new);
        });
    }
}

/// When the most inodes are noted, they are stored without a checkpoint.
#[test]
fn what_is_noted_of_inodes_is_bounded() {
    each_seed(0..1, "", |bed| {
        let files: Vec<File> = (0..600).map(|n| bed.open(&format!("/{n}"))).collect();
        files.iter().for_each(|f| assert!(f.write_at(0, &[1; 2 * PAGE]).is_ok()));
        bed.vfs.sync().unwrap();
        let before = bed.vfs.bdi().dirty_bytes();
        files[..500].iter().for_each(|f| assert!(f.write_at(0, &[2; PAGE]).is_ok()));
        let few = bed.vfs.bdi().dirty_bytes() - before;
        assert_eq!(few, 500 * PAGE as u64, "pages of data alone");
        files[500..].iter().for_each(|f| assert!(f.write_at(0, &[2; PAGE]).is_ok()));
        let many = bed.vfs.bdi().dirty_bytes() - before;
        assert!(many > 1000 * PAGE as u64, "{} dirty pages", many / PAGE as u64);
    });
}

/// Everything that a pack vouches for is durable before its tail is written, and then the tail is durable.
#[test]
fn the_tail_of_a_pack_flushes_before_and_after() {
    each_seed(0..1, "", |bed| {
        let (packs, tails) = (bed.packs(), Arc::new(AtomicU64::new(0)));
        let seen = tails.clone();
        bed.late(move |rq| {
            let tail =
                packs.contains(&rq.sector.bytes()) && rq.flags.contains(BioFlags::PREFLUSH | BioFlags::FUA);
            seen.fetch_add(u64::from(tail), SeqCst);
            false
        });
        for n in 1..4 {
            bed.fs.write_checkpoint(true).unwrap();
            assert_eq!(tails.load(SeqCst), n);
        }
    });
}
