//! When the flusher writes dirty pages by itself, which writers wait for that, and the bounds of memory.

use super::*;
use crate::slow_fs::{MS, SlowDevice, TAKES, What, dirty, mount_with, open};
use crate::{MountOptions, Vfs};
use tidegate_rt::{sim, thread};

const PAGE: u64 = PAGE_SIZE as u64;
const LIMITS: MemoryLimits =
    MemoryLimits { cache: 256 * PAGE, dirty: 64 * PAGE, background: 32 * PAGE, inodes: 1000 };

fn each_seed(periodic: bool, f: impl Fn(Arc<Vfs>, Arc<SlowDevice>) + Copy + Send + 'static) {
    for seed in 0..4 {
        println!("seed {seed}");
        sim::run(seed, 3, move || {
            let options =
                MountOptions { noatime: true, no_periodic_writeback: !periodic, ..MountOptions::default() };
            let (vfs, device) = mount_with(LIMITS, options, TAKES);
            f(vfs, device);
        });
    }
}

/// A thread that dirties pages waits above the limit. Pages under write-back count.
#[test]
fn writers_wait_while_too_much_is_dirty() {
    each_seed(false, |vfs, _| {
        let bdi = vfs.bdi();
        let from = clock::now();
        for ino in 10..60 {
            dirty(&vfs, ino, 8);
            let most = bdi.dirty_bytes() + bdi.writeback_bytes();
            assert!(most <= LIMITS.dirty + 8 * PAGE, "{} pages", most / PAGE);
        }
        // The device takes a fixed time for the pages that it gets at once, and 400 pages go through it.
        assert!(clock::now().since(from).duration() > 3 * TAKES.write);
    });
}

/// Several writers wait until the sum is below the limit by some margin, so that they do not wake each other for one
/// page. If the sum stays within that margin, they go on all the same, without an error.
#[test]
fn writers_go_on_though_others_stay_below_the_limit() {
    each_seed(false, |vfs, _| {
        let bdi = vfs.bdi().clone();
        let set = |bytes: u64| bdi.nr_writeback.store(bytes / PAGE, SeqCst);
        set(LIMITS.dirty + PAGE);
        let writer = || {
            let vfs = vfs.clone();
            thread::spawn("writer", move || vfs.bdi().admit()).unwrap()
        };
        let writers = [writer(), writer()];
        thread::sleep(MS);
        assert_eq!(bdi.writers.waiters(), 2);
        set(LIMITS.dirty - PAGE);
        bdi.writeback_ended();
        assert_eq!(bdi.writers.waiters(), 2, "an eighth less than the limit lets them go on at once");
        for _ in 0..VAIN_PASSES {
            bdi.write_failed(1);
            bdi.judge_pass();
        }
        assert!(writers.into_iter().all(|w| w.join().is_ok()));
        set(0);
    });
}

#[test]
fn nothing_is_written_below_the_background_threshold() {
    each_seed(false, |vfs, device| {
        (10..14).for_each(|ino| drop(dirty(&vfs, ino, 8)));
        thread::sleep(100 * DIRTY_WRITEBACK_INTERVAL);
        assert_eq!((vfs.bdi().dirty_bytes(), device.log().len()), (32 * PAGE, 0));
        let from = clock::now();
        dirty(&vfs, 14, 1);
        assert!(clock::now().since(from).duration() < MS, "nobody waits below the limit");
        thread::sleep(TAKES.write * 5);
        assert!(vfs.bdi().dirty_bytes() <= LIMITS.background, "{} pages", vfs.bdi().dirty_bytes() / PAGE);
    });
}

/// A pass in the background writes many small files at a time: it goes on until the sum is an eighth below
/// the threshold.
#[test]
fn the_background_does_not_stop_at_its_threshold() {
    each_seed(false, |vfs, _| {
        (10..43).for_each(|ino| drop(dirty(&vfs, ino, 1)));
        thread::sleep(TAKES.write * 10);
        assert_eq!(vfs.bdi().dirty_bytes(), 28 * PAGE);
    });
}

/// In the background, files with fewer dirty pages than the others are left to grow.
#[test]
fn the_background_takes_the_largest_first() {
    each_seed(false, |vfs, device| {
        (10..20).for_each(|ino| drop(dirty(&vfs, ino, 1)));
        dirty(&vfs, 30, 16);
        dirty(&vfs, 31, 16);
        thread::sleep(TAKES.write * 5);
        let written: Vec<u64> = device
            .log()
            .iter()
            .filter_map(|e| match e.1 {
                What::Write { ino, .. } => Some(ino),
                _ => None,
            })
            .collect();
        assert!(!written.is_empty() && written.iter().all(|ino| *ino >= 30), "{written:?}");
    });
}

/// Pages that have been dirty for 30 s are written by the next pass of the flusher, 5 s later at most.
#[test]
fn old_pages_are_written() {
    each_seed(true, |vfs, device| {
        dirty(&vfs, 10, 1);
        thread::sleep(DIRTY_EXPIRE_INTERVAL - 100 * MS);
        assert!(device.log().iter().all(|e| e.1 == What::Periodic));
        thread::sleep(DIRTY_WRITEBACK_INTERVAL + 200 * MS + TAKES.write);
        assert_eq!((vfs.bdi().dirty_bytes(), vfs.bdi().writeback_bytes()), (0, 0));
        assert_eq!(clock::now().0 / 1_000_000_000, 35);
    });
}

/// The work of each interval is done though a writer wakes the flusher all the time.
#[test]
fn a_steady_writer_does_not_hold_up_periodic_work() {
    each_seed(true, |vfs, device| {
        for n in 0..120 {
            dirty(&vfs, 10 + n % 40, 8);
            thread::sleep(1000 * MS);
        }
        let times: Vec<u64> = device.log().iter().filter(|e| e.1 == What::Periodic).map(|e| e.0.0).collect();
        let seconds = 1_000_000_000;
        assert!((22..=25).contains(&times.len()), "{times:?}");
        assert!(times.windows(2).all(|w| w[1] - w[0] < 7 * seconds), "{times:?}");
    });
}

/// An inode that cannot be written is on the lists once, however often that is tried.
#[test]
fn a_pass_that_fails_lists_an_inode_once() {
    each_seed(false, |vfs, device| {
        device.wrong.misplaced.store(1000, SeqCst);
        let inode = dirty(&vfs, 10, 8);
        for _ in 0..6 {
            let before = device.wrong.misplaced.load(SeqCst);
            let _ = vfs.sync();
            assert!(device.wrong.misplaced.load(SeqCst) < before);
            let l = vfs.bdi().lists.lock();
            let listed = l.b_dirty.iter().chain(&l.b_io).chain(&l.b_more_io);
            assert_eq!(listed.filter(|i| i.ino == inode.ino).count(), 1);
        }
        device.wrong.misplaced.store(0, SeqCst);
        let _ = vfs.sync();
        assert_eq!(vfs.bdi().dirty_bytes(), 0);
    });
}

/// Clean pages are dropped when there are too many, first those that were not used again.
#[test]
fn what_is_cached_is_bounded() {
    each_seed(false, |vfs, _| {
        let read = |ino| {
            let mut page = [0; 16 * PAGE_SIZE];
            open(&vfs, ino).read_at(0, &mut page).unwrap();
        };
        for ino in 100..200 {
            read(ino);
            assert!(vfs.bdi().cached_bytes() <= LIMITS.cache + 16 * PAGE);
        }
        assert!(vfs.bdi().cached_bytes() >= LIMITS.cache / 2);
    });
}

/// Many pages that are written once do not push out a page that is used all the time, such as that of a
/// directory.
#[test]
fn pages_written_once_go_before_those_in_use() {
    each_seed(false, |vfs, _| {
        let used = open(&vfs, 50);
        let mut page = [0; PAGE_SIZE];
        used.read_at(0, &mut page).unwrap();
        for ino in 100..200 {
            used.read_at(0, &mut page).unwrap();
            dirty(&vfs, ino, 16);
            vfs.sync().unwrap();
            assert!(used.inode().mapping.nr_pages() > 0, "dropped beside file {ino}");
        }
        assert!(vfs.bdi().cached_bytes() < 100 * 16 * PAGE, "some went");
    });
}
