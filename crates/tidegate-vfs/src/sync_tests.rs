//! The effect of each position of `sync_wait=`, and its time. Each of these tests fails when one of the
//! positions is changed.

use super::*;
use crate::inode::Inode;
use crate::slow_fs::{MS, TAKES, Takes, What, dirty, mount, open};
use std::cell::Cell;
use std::sync::Arc;
use tidegate_rt::{Nanos, clock, sim, thread};

const FILES: std::ops::Range<u64> = 10..16;

/// Runs a volume with dirty files in a simulated world, for several seeds.
fn each_seed(position: SyncWait, takes: Takes, f: impl Fn(Bed) + Copy + Send + 'static) {
    for seed in 0..4 {
        println!("seed {seed}, {}", position.word());
        sim::run(seed, 3, move || {
            let (vfs, device) = mount(position, takes);
            let files = FILES.map(|ino| dirty(&vfs, ino, 4)).collect();
            f(Bed { vfs, device, files });
        });
    }
}

struct Bed {
    vfs: Arc<Vfs>,
    device: Arc<crate::slow_fs::SlowDevice>,
    files: Vec<Arc<Inode>>,
}

impl Bed {
    fn dirty(&self) -> u64 {
        self.files.iter().map(|i| i.mapping.nr_dirty()).sum()
    }

    fn writeback(&self) -> u64 {
        self.files.iter().map(|i| i.mapping.nr_writeback()).sum()
    }

    /// The times of the events that `which` picks.
    fn times(&self, which: impl Fn(What) -> bool) -> Vec<Nanos> {
        self.device.log().into_iter().filter(|e| which(e.1)).map(|e| e.0).collect()
    }
}

fn is_end(w: What) -> bool {
    matches!(w, What::Ended { .. })
}

fn is_waiting_pass(w: What) -> bool {
    matches!(w, What::Write { sync_all: true, .. })
}

/// When a sync returns, pages that were dirty before it are written, whichever thread waited for them.
#[test]
fn a_sync_returns_when_everything_is_written() {
    for position in SyncWait::ALL {
        for skips in [false, true] {
            each_seed(*position, Takes { skips, ..TAKES }, |bed| {
                let began = clock::now();
                bed.vfs.sync().unwrap();
                assert_eq!((bed.dirty(), bed.writeback()), (0, 0));
                assert_eq!(bed.times(is_end).len(), bed.files.len());
                assert!(clock::now().since(began).duration() >= TAKES.write);
            });
        }
    }
}

/// With `flusher`, a file is submitted when the previous file is written. The other positions submit all files first.
#[test]
fn only_the_flusher_waits_for_a_file_before_the_next() {
    let takes = Takes { skips: true, ..TAKES };
    for (position, waits) in [(SyncWait::Flusher, true), (SyncWait::Caller, false), (SyncWait::Epoch, false)]
    {
        each_seed(position, takes, move |bed| {
            bed.vfs.sync().unwrap();
            let (passes, ends) = (bed.times(is_waiting_pass), bed.times(is_end));
            assert_eq!((passes.len(), ends.len()), (bed.files.len(), bed.files.len()));
            let in_turn = passes[1..].iter().zip(&ends).all(|(pass, end)| pass >= end);
            let all_first = passes.iter().max() < ends.iter().min();
            assert_eq!((in_turn, all_first), (waits, !waits), "{:?}", bed.device.log());
        });
    }
}

/// The syncing thread waits for the pages that passes have submitted, and writes nothing: pages that were dirtied since
/// are left to the next pass.
#[test]
fn a_sync_waits_for_inodes_and_writes_none() {
    for position in [SyncWait::Flusher, SyncWait::Caller] {
        each_seed(position, TAKES, |bed| {
            let before = bed.dirty();
            bed.vfs.wait_sb_inodes();
            assert_eq!((bed.dirty(), bed.writeback()), (before, 0));
            assert!(bed.device.log().is_empty(), "{:?}", bed.device.log());
        });
    }
}

/// A sync in Linux begins with a pass of WB_SYNC_NONE; the position `epoch` needs none.
#[test]
fn syncs_begin_with_a_pass_that_waits_for_nothing() {
    for position in SyncWait::ALL {
        each_seed(*position, TAKES, |bed| {
            bed.vfs.sync().unwrap();
            let first = bed.device.log()[0].1;
            let waits = matches!(first, What::Write { sync_all: true, .. });
            assert_eq!(waits, bed.vfs.sync_wait() == SyncWait::Epoch, "{first:?}");
        });
    }
}

/// A sync also writes pages that come back unwritten while it waits.
#[test]
fn what_is_given_back_is_written_once_more() {
    for position in SyncWait::ALL {
        each_seed(*position, TAKES, |bed| {
            bed.device.wrong.given_back.store(2, SeqCst);
            bed.vfs.sync().unwrap();
            assert_eq!((bed.dirty(), bed.writeback()), (0, 0));
            assert_eq!(bed.times(is_end).len(), bed.files.len() + 2);
        });
    }
}

/// A sync also writes pages that the device did not take, and pages that could not be submitted. A sync that cannot
/// write them fails.
#[test]
fn a_failure_is_tried_again_and_told() {
    for position in SyncWait::ALL {
        each_seed(*position, TAKES, |bed| {
            bed.device.wrong.failed.store(1, SeqCst);
            bed.vfs.sync().unwrap();
            assert_eq!(bed.dirty(), 0);
        });
        each_seed(*position, TAKES, |bed| {
            bed.device.wrong.failed.store(1000, SeqCst);
            assert_eq!(bed.vfs.sync().unwrap_err().kind(), ErrorKind::Io);
        });
        each_seed(*position, TAKES, |bed| {
            bed.device.wrong.refused.store(1, SeqCst);
            bed.vfs.sync().unwrap();
            assert_eq!((bed.dirty(), bed.writeback()), (0, 0));
        });
        each_seed(*position, TAKES, |bed| {
            bed.device.wrong.refused.store(1000, SeqCst);
            assert_eq!(bed.vfs.sync().unwrap_err().kind(), ErrorKind::NoSpace);
            bed.device.wrong.refused.store(0, SeqCst);
        });
    }
}

/// `epoch` waits for the pages of its epoch, and not for pages that another thread dirties and submits meanwhile.
#[test]
fn an_epoch_is_over_before_what_came_after_it() {
    each_seed(SyncWait::Epoch, TAKES, |bed| {
        let vfs = bed.vfs.clone();
        let began = clock::now();
        let files: Vec<_> = (1..20).map(|n| open(&vfs, FILES.end + n)).collect();
        let later = thread::spawn("later", move || {
            for f in &files {
                thread::sleep(3 * MS);
                f.write_at(0, &[1; 4096]).unwrap();
                let mut wbc = crate::WritebackControl::sync();
                vfs.fs().writepages(f.inode(), &mut wbc).unwrap();
            }
        });
        thread::sleep(MS);
        bed.vfs.sync().unwrap();
        assert_eq!((bed.dirty(), bed.writeback()), (0, 0));
        let took = clock::now().since(began).duration();
        assert!(took < MS + TAKES.write + MS, "{took:?}");
        later.unwrap().join();
    });
}

/// Syncs that come during a pass share the next pass.
#[test]
fn epochs_are_shared() {
    each_seed(SyncWait::Epoch, TAKES, |bed| {
        let syncer = |n: u32| {
            let vfs = bed.vfs.clone();
            let body = move || {
                thread::sleep(MS * n / 4);
                let mine = dirty(&vfs, 100 + u64::from(n), 1);
                vfs.sync().unwrap();
                assert_eq!((mine.mapping.nr_dirty(), mine.mapping.nr_writeback()), (0, 0));
            };
            thread::spawn("syncer", body).unwrap()
        };
        let began = clock::now();
        let all: Vec<_> = (0..12).map(syncer).collect();
        all.into_iter().for_each(thread::JoinHandle::join);
        let took = clock::now().since(began).duration();
        assert!(took < 3 * TAKES.write, "12 syncs took {took:?}");
    });
}

/// A page that is counted while its epoch is being closed belongs to the next epoch: the sync that closed the
/// epoch has already looked, and the sync that closes the next epoch finds the page.
#[test]
fn who_enters_looks_at_the_epoch_once_more() {
    let epochs = Epochs::default();
    let looks = Cell::new(0);
    let current = || {
        looks.set(looks.get() + 1);
        let now = epochs.current.load(SeqCst);
        if looks.get() == 1 {
            let closed = epochs.close();
            assert!(epochs.is_drained(closed));
        }
        now
    };
    let parity = epochs.enter_in(current, 3, 2);
    assert!(epochs.is_drained(1 - parity), "counted in an epoch that somebody has waited for");
    assert_eq!(epochs.close(), parity, "not counted in the epoch that is current");
    assert_eq!((epochs.dirty[parity].load(SeqCst), epochs.writeback[parity].load(SeqCst)), (3, 2));
}
