//! The differences between the positions of `journal=`, and the steps of a commit, in simulated worlds.

use crate::engine::{SIZE, fresh, open, options};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;
use tidegate_block::model::Model;
use tidegate_block::{BioFlags, MemoryDevice, Op, Preset, QueueLimits, Record, Recorder, RequestQueue};
use tidegate_jbd2::{
    BufferState, CommitHooks, Credits, FsBlock, Journal, JournalMode, JournalOptions, Log, Run, recover,
};
use tidegate_rt::{sim, thread};

/// A journal on a disk with slow commits.
fn on_disk(mode: JournalMode) -> (Arc<Journal>, Arc<Recorder>, Arc<RequestQueue>) {
    let (bytes, runs) = fresh(257);
    let model = Model::new(Preset::Hdd, bytes.len() as u64);
    model.memory().write_at(0, &bytes);
    let recorder = Arc::new(Recorder::new(model));
    let queue = Arc::new(RequestQueue::new(recorder.clone(), QueueLimits::default()));
    (Arc::new(open(&queue, &runs, options(mode))), recorder, queue)
}

fn change(journal: &Journal, at: u64, byte: u8) -> tidegate_jbd2::Tid {
    let mut handle = journal.start(Credits::blocks(1)).unwrap();
    handle.write(FsBlock(at), |b| b[0] = byte).unwrap();
    handle.stop()
}

/// While a body is on its way, `jbd2` does not change its block before it has arrived; `pipelined` copies the
/// block.
#[test]
fn a_block_on_its_way_is_copied_or_waited_for() {
    for (mode, waits) in [(JournalMode::Jbd2, true), (JournalMode::Pipelined, false)] {
        let (copies, behind) = sim::run(1, 2, move || {
            let (journal, recorder, _queue) = on_disk(mode);
            let first = change(&journal, 1, 1);
            journal.start_commit(first);
            while journal.cache().state(FsBlock(1)) != Some(BufferState::Committing(first)) {
                thread::sleep(Duration::from_micros(20));
            }
            change(&journal, 1, 2);
            let seen = recorder.position();
            journal.commit().unwrap();
            let records = recorder.take();
            let body = records.iter().find(|r| r.data.len() >= 2 * SIZE).unwrap();
            let behind = body.completed.unwrap() < seen;
            let copies = journal.cache().stats().copies;
            Arc::into_inner(journal).unwrap().close().unwrap();
            (copies, behind)
        });
        assert_eq!((behind, copies > 0), (waits, true), "{mode:?}");
    }
}

/// Each body is sent before the record before it is durable, or behind it. No body is sent while two records are
/// missing: an fsync waits for one record of others. Records are in order.
#[test]
fn bodies_overlap_with_records_or_follow_them() {
    for (mode, overlaps) in [(JournalMode::Jbd2, false), (JournalMode::Pipelined, true)] {
        let found = sim::run(2, 2, move || {
            let (journal, recorder, _queue) = on_disk(mode);
            let tids = [1, 2, 3].map(|n| {
                let tid = change(&journal, n, n as u8);
                journal.start_commit(tid);
                while n < 3 && journal.tid() == tid {
                    thread::sleep(Duration::from_micros(20));
                }
                tid
            });
            journal.wait_commit(tids[2]).unwrap();
            let records = recorder.take();
            let is = |kind: u8, tid: u32| {
                let found = records.iter().find(|r| {
                    r.data.get(4..12)
                        == Some(&[0, 0, 0, kind].into_iter().chain(tid.to_be_bytes()).collect::<Vec<_>>()[..])
                });
                found.unwrap_or_else(|| panic!("no block of kind {kind} of {tid}"))
            };
            let of = |kind: u8| tids.map(|tid| is(kind, tid.0));
            let (bodies, commits) = (of(1), of(2));
            let durable = commits.map(|r| match mode {
                _ if r.flags.contains(BioFlags::FUA) => r.completed.unwrap(),
                JournalMode::Jbd2 => panic!("{mode:?} without FUA"),
                JournalMode::Pipelined => {
                    let behind = |f: &&Record| f.op == Op::Flush && r.completed.unwrap() < f.submitted;
                    records.iter().find(behind).expect("a flush makes it durable").completed.unwrap()
                }
            });
            assert!((1..3).all(|n| durable[n - 1] < commits[n].submitted), "records out of order");
            Arc::into_inner(journal).unwrap().close().unwrap();
            assert!(durable[0] < bodies[2].submitted, "three at once");
            [1, 2].map(|n| bodies[n].submitted < durable[n - 1])
        });
        assert_eq!(found, [overlaps; 2], "{mode:?}");
    }
}

/// Recovery would take a record with an earlier time than the one before for the rest of an older log.
#[test]
fn the_time_in_records_does_not_go_back_with_the_clock() {
    let times = sim::run(1, 2, || {
        let (journal, recorder, _queue) = on_disk(JournalMode::Pipelined);
        for (at, by) in [(1, 0), (2, -86_400), (3, 172_800)] {
            sim::set_wall_clock(by);
            let tid = change(&journal, at, 1);
            journal.start_commit(tid);
            journal.wait_commit(tid).unwrap();
        }
        Arc::into_inner(journal).unwrap().close().unwrap();
        let records = recorder.take();
        let record =
            |r: &&tidegate_block::Record| r.data.get(..8) == Some(&[0xc0, 0x3b, 0x39, 0x98, 0, 0, 0, 2]);
        let seconds = |r: &tidegate_block::Record| u64::from_be_bytes(r.data[48..56].try_into().unwrap());
        records.iter().filter(record).map(seconds).collect::<Vec<_>>()
    });
    let [first, second, third] = times[..] else { panic!("{times:?}") };
    assert_eq!((second - first, third - first), (0, 86_400));
}

/// A transaction that no thread asks for is committed when it is old enough.
#[test]
fn an_old_transaction_is_committed() {
    for mode in JournalMode::ALL {
        sim::run(3, 2, || {
            let (journal, ..) = on_disk(*mode);
            let tid = change(&journal, 1, 1);
            thread::sleep(Duration::from_secs(4));
            assert!(!journal.committed().reaches(tid));
            thread::sleep(Duration::from_secs(2));
            assert!(journal.committed().reaches(tid));
            assert_eq!(journal.stats().requested, 0);
        });
    }
}

/// With `jbd2`, threads that sync in turns share commits; a thread that syncs alone does not wait for others.
#[test]
fn syncs_are_batched() {
    let run = |threads: u64| {
        sim::run(4, 4, move || {
            let (journal, ..) = on_disk(JournalMode::Jbd2);
            let start = |n: u64| {
                let journal = journal.clone();
                thread::spawn("syncer", move || {
                    for i in 0..10 {
                        let mut handle = journal.start(Credits::blocks(1)).unwrap();
                        handle.write(FsBlock(n * 10 + i), |b| b[0] = 1).unwrap();
                        handle.set_sync();
                        let tid = handle.stop();
                        journal.wait_commit(tid).unwrap();
                    }
                })
                .unwrap()
            };
            let all: Vec<_> = (0..threads).map(start).collect();
            all.into_iter().for_each(thread::JoinHandle::join);
            journal.stats().transactions
        })
    };
    assert_eq!(run(1), 10);
    assert!(run(4) <= 20, "{}", run(4));
}

/// Handles that ask for many credits and use few share a transaction: with `pipelined` they wait for each
/// other, with `jbd2` for a commit.
#[test]
fn credits_that_come_back_need_no_commit() {
    let run = |mode| {
        sim::run(5, 4, move || {
            let (journal, ..) = on_disk(mode);
            let start = |n: u64| {
                let journal = journal.clone();
                thread::spawn("crowd", move || {
                    for _ in 0..20 {
                        let mut handle = journal.start(Credits::blocks(30)).unwrap();
                        handle.write(FsBlock(n), |b| b[0] += 1).unwrap();
                        thread::sleep(Duration::from_micros(10));
                    }
                })
                .unwrap()
            };
            let all: Vec<_> = (0..4).map(start).collect();
            all.into_iter().for_each(thread::JoinHandle::join);
            journal.commit().unwrap();
            journal.stats().transactions
        })
    };
    let (pipelined, jbd2) = (run(JournalMode::Pipelined), run(JournalMode::Jbd2));
    assert!(pipelined == 1 && jbd2 > 1, "{pipelined} {jbd2}");
}

/// Counts the announcements of a wait.
#[derive(Default)]
struct Waits(AtomicUsize);
impl CommitHooks for Waits {
    fn before_wait(&self) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// Credits come back little by little; a thread that waits for more announces each wait.
#[test]
fn each_wait_is_told_of() {
    let waits = sim::run(6, 2, move || {
        let (bytes, runs) = fresh(257);
        let queue =
            Arc::new(RequestQueue::new(Arc::new(MemoryDevice::from_bytes(&bytes)), QueueLimits::default()));
        let hooks = Arc::new(Waits::default());
        let options = JournalOptions { hooks: hooks.clone(), ..options(JournalMode::Pipelined) };
        let journal = Arc::new(open(&queue, &runs, options));
        let held: Vec<_> = (0..3).map(|_| journal.start(Credits::blocks(18)).unwrap()).collect();
        let late = {
            let journal = journal.clone();
            thread::spawn("late", move || journal.start(Credits::blocks(40)).map(drop).unwrap()).unwrap()
        };
        for handle in held {
            thread::sleep(Duration::from_micros(50));
            drop(handle);
        }
        late.join();
        hooks.0.load(SeqCst)
    });
    assert_eq!(waits, 2);
}

/// A commit is seen step by step, in the kernel's words.
#[test]
fn a_commit_is_traced() {
    let config = sim::Config { trace: 1 << 14, ..sim::Config::default() };
    let ran = sim::run_with(&config, || {
        let (journal, ..) = on_disk(JournalMode::Pipelined);
        let tid = change(&journal, 1, 1);
        journal.wait_commit(tid).unwrap();
        journal.close().unwrap();
    });
    let events = ran.unwrap_or_else(|deadlock| panic!("{deadlock}")).events;
    let mut names = events.iter().map(|e| e.name);
    for name in [
        "jbd2_handle_start",
        "jbd2_handle_stats",
        "jbd2_log_wait_commit",
        "jbd2_start_commit",
        "jbd2_commit_locking",
        "jbd2_commit_flushing",
        "jbd2_commit_logging",
        "journal_submit_commit_record",
        "jbd2_run_stats",
        "jbd2_end_commit",
        "jbd2_log_do_checkpoint",
        "jbd2_checkpoint_stats",
        "jbd2_update_log_tail",
    ] {
        assert!(names.any(|n| n == name), "no {name} where it belongs");
    }
}

/// The log is on a device of its own: the volume's data is durable before a record is.
#[test]
fn a_journal_lies_on_a_device_of_its_own() {
    let (bytes, _) = fresh(65);
    let volume_len = bytes.len() - 65 * SIZE;
    for mode in JournalMode::ALL {
        let queue = |bytes: &[u8]| {
            let recorder = Arc::new(Recorder::new(Arc::new(MemoryDevice::from_bytes(bytes))));
            (Arc::new(RequestQueue::new(recorder.clone(), QueueLimits::default())), recorder)
        };
        let (volume, seen) = queue(&bytes[..volume_len]);
        let (device, _) = queue(&bytes[volume_len..]);
        let log = || {
            let runs = [Run { first: FsBlock(0), len: 65 }];
            Arc::new(Log::new(device.clone(), SIZE as u32, runs).unwrap())
        };
        let blocks = (volume_len / SIZE) as u64;
        let journal = Journal::open(log(), volume.clone(), blocks, options(*mode)).unwrap();
        for at in 0..40 {
            change(&journal, at, at as u8 + 1);
            journal.commit().unwrap();
        }
        let commits = journal.stats().transactions;
        let flushes = seen.take().iter().filter(|r| r.op == tidegate_block::Op::Flush).count() as u64;
        assert!(commits == 40 && flushes >= commits, "{commits} commits, {flushes} flushes");
        drop(journal);
        let replay = recover(log(), blocks).unwrap();
        assert!(!replay.is_clean());
        replay.write_out(&volume).unwrap();
        for at in 0..40u64 {
            let journal = Journal::open(log(), volume.clone(), blocks, options(*mode)).unwrap();
            assert_eq!(journal.get(FsBlock(at)).unwrap()[0], at as u8 + 1);
        }
    }
}

/// After a flush, the log is clean, and in use again with the next commit. An old error is reported and
/// cleared.
#[test]
fn a_flushed_journal_is_clean_and_goes_on() {
    let (mut bytes, runs) = fresh(65);
    let at = bytes.len() - 65 * SIZE;
    bytes[at + 0x20..at + 0x24].copy_from_slice(&(-5i32).to_be_bytes());
    let queue =
        Arc::new(RequestQueue::new(Arc::new(MemoryDevice::from_bytes(&bytes)), QueueLimits::default()));
    let look = || {
        let log = Arc::new(Log::new(queue.clone(), SIZE as u32, runs.clone()).unwrap());
        recover(log, 64).unwrap()
    };
    let journal = open(&queue, &runs, options(JournalMode::Pipelined));
    assert_eq!(journal.errno(), -5);
    journal.clear_errno().unwrap();
    change(&journal, 3, 9);
    journal.commit().unwrap();
    assert_eq!((look().is_clean(), look().errno(), journal.pinned_bytes()), (false, 0, SIZE));
    assert!(journal.flush().unwrap());
    assert_eq!((look().is_clean(), journal.pinned_bytes()), (true, 0));
    let tid = change(&journal, 3, 10);
    journal.wait_commit(tid).unwrap();
    let replay = look();
    assert_eq!((replay.is_clean(), replay.tids().1), (false, tid.next()));
    assert_eq!(journal.history().len(), 2);
    journal.close().unwrap();
    let e = journal.start(Credits::blocks(1)).err().unwrap().to_string();
    assert!(e.contains("the journal was closed"), "{e}");
}
