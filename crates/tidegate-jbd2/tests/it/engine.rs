//! Journals in use: the changes of handles are there afterwards, in any order of threads.

use crate::image::{Chance, VOLUME};
use crate::writer::{MAGIC, Shape, Sums, Writer};
use std::collections::BTreeMap;
use std::sync::Arc;
use tidegate_block::{Faulty, MemoryDevice, QueueLimits, Recorder, RequestQueue};
use tidegate_jbd2::{Credits, FsBlock, Journal, JournalMode, JournalOptions, Log, Run, Tid, recover};
use tidegate_rt::{LockClass, Mutex, thread};

static NOTES: LockClass = LockClass::new("test->notes", 999);

pub const SIZE: usize = 1024;

/// A volume with a clean log of `len` blocks behind it.
pub fn fresh(len: u32) -> (Vec<u8>, Vec<Run>) {
    fresh_with(len, Sums::None)
}

/// A volume with a clean log whose superblock has checksums.
pub fn fresh_with(len: u32, sums: Sums) -> (Vec<u8>, Vec<Run>) {
    let shape = Shape { block_size: SIZE, len, wide: false, sums, start: 0, tid: 40, uuids: false };
    let mut bytes = vec![0; VOLUME as usize * SIZE];
    bytes.extend(Writer::new(shape).log(&[], 0));
    (bytes, vec![Run { first: FsBlock(VOLUME), len }])
}

/// The bytes for a number; some look like the journal's own blocks.
pub fn stamped(n: u64) -> Vec<u8> {
    let mut b: Vec<u8> = n.to_le_bytes().into_iter().cycle().take(SIZE).collect();
    if n.is_multiple_of(5) {
        b[..4].copy_from_slice(&MAGIC.to_be_bytes());
    }
    b
}

/// The number of a block that is freed.
pub const FREE: u64 = 0;

/// The writes, in order: transaction, block, number.
#[derive(Clone)]
pub struct Notes(Arc<Mutex<Vec<(Tid, u64, u64)>>>);

impl Notes {
    pub fn new() -> Notes {
        Notes(Arc::new(Mutex::new(&NOTES, Vec::new())))
    }

    /// Fills a block with the next number.
    pub fn stamp(&self, tid: Tid, block: u64, bytes: &mut [u8]) {
        let mut notes = self.0.lock();
        let n = notes.len() as u64 + 1;
        bytes.copy_from_slice(&stamped(n));
        notes.push((tid, block, n));
    }

    /// Notes that a block is freed.
    pub fn free(&self, tid: Tid, block: u64) {
        self.0.lock().push((tid, block, FREE));
    }

    /// The volume's content if `tid` is the last transaction.
    pub fn until(&self, tid: Tid) -> BTreeMap<u64, u64> {
        let notes = self.0.lock();
        notes.iter().filter(|(t, ..)| tid.reaches(*t)).map(|(_, block, n)| (*block, *n)).collect()
    }
}

pub fn options(mode: JournalMode) -> JournalOptions {
    JournalOptions { mode, cache_bytes: 64 << 10, ..JournalOptions::default() }
}

pub fn open(queue: &Arc<RequestQueue>, runs: &[Run], options: JournalOptions) -> Journal {
    let log = Arc::new(Log::new(queue.clone(), SIZE as u32, runs.to_vec()).unwrap());
    let blocks = queue.device().size() / SIZE as u64;
    Journal::open(log, queue.clone(), blocks, options).unwrap()
}

/// A volume in memory, and its content.
struct Bed {
    device: Arc<MemoryDevice>,
    queue: Arc<RequestQueue>,
    runs: Vec<Run>,
    notes: Notes,
}

impl Bed {
    fn new(len: u32) -> Bed {
        let (bytes, runs) = fresh(len);
        let device = Arc::new(MemoryDevice::from_bytes(&bytes));
        let queue = Arc::new(RequestQueue::new(device.clone(), QueueLimits::default()));
        Bed { device, queue, runs, notes: Notes::new() }
    }

    fn open(&self, mode: JournalMode) -> Journal {
        open(&self.queue, &self.runs, options(mode))
    }

    /// Asserts that the volume has the content of the notes.
    fn assert_holds(&self, tid: Tid) {
        for (at, n) in self.notes.until(tid) {
            let mut b = vec![0; SIZE];
            self.device.read_at(at * SIZE as u64, &mut b);
            assert!(b == stamped(n), "block {at}");
        }
    }

    fn is_clean(&self) -> bool {
        let log = Arc::new(Log::new(self.queue.clone(), SIZE as u32, self.runs.clone()).unwrap());
        recover(log, VOLUME).unwrap().is_clean()
    }
}

/// Threads write through a small log, which they fill many times.
fn crowd(mode: JournalMode) {
    let bed = Bed::new(65);
    let journal = Arc::new(bed.open(mode));
    let start = |n: u64| {
        let (journal, notes) = (journal.clone(), bed.notes.clone());
        thread::spawn("crowd", move || {
            let mut chance = Chance::new(n);
            for _ in 0..150 {
                let blocks = 1 + chance.below(5) as u32;
                let mut handle = journal.start(Credits::blocks(blocks)).unwrap();
                for _ in 0..blocks {
                    let (at, tid) = (chance.below(VOLUME), handle.tid());
                    handle.write(FsBlock(at), |b| notes.stamp(tid, at, b)).unwrap();
                }
                let tid = handle.stop();
                if chance.one_in(4) {
                    journal.wait_commit(tid).unwrap();
                    assert!(journal.committed().reaches(tid));
                }
            }
        })
        .unwrap()
    };
    let threads: Vec<_> = (0..4).map(start).collect();
    threads.into_iter().for_each(thread::JoinHandle::join);
    let last = journal.tid();
    journal.commit().unwrap();
    let stats = journal.stats();
    assert!(stats.transactions > 10 && u64::from(stats.sums.handles) == 600, "{stats:?}");
    assert!(journal.info().contains("handles per transaction"), "{}", journal.info());
    Arc::into_inner(journal).unwrap().close().unwrap();
    bed.assert_holds(last);
    assert!(bed.is_clean());
}

#[test]
fn threads_share_transactions_in_a_small_log() {
    JournalMode::ALL.iter().for_each(|mode| crowd(*mode));
}

/// The next journal goes on where the last ended, also if that was dropped.
#[test]
fn a_journal_follows_a_journal() {
    let bed = Bed::new(65);
    let mut last = Tid(0);
    for round in 0..6u64 {
        let journal = bed.open(*JournalMode::ALL.get(round as usize % 2).unwrap());
        let tid = journal.tid();
        assert!(round == 0 || tid.is_after(last), "{tid} after {last}");
        for at in 0..VOLUME / 2 {
            let mut handle = journal.start(Credits::blocks(1)).unwrap();
            let tid = handle.tid();
            handle
                .write(FsBlock(at * 2 % (VOLUME - round)), |b| {
                    bed.notes.stamp(tid, at * 2 % (VOLUME - round), b)
                })
                .unwrap();
        }
        journal.commit().unwrap();
        last = journal.committed();
        if round % 3 == 2 {
            journal.close().unwrap();
            assert!(bed.is_clean());
            bed.assert_holds(last);
        }
    }
}

/// A handle that asks for too many credits, one that uses more than it asked for, and one that gets more.
#[test]
fn credits_are_held_to() {
    let bed = Bed::new(129);
    let journal = bed.open(JournalMode::Pipelined);
    assert!(journal.start(Credits::blocks(33)).is_err());
    let mut handle = journal.start(Credits { blocks: 1, revokes: 1, reserve: 4, kind: 0 }).unwrap();
    handle.write(FsBlock(1), |b| b[0] = 1).unwrap();
    handle.write(FsBlock(1), |b| b[0] = 2).unwrap();
    let e = handle.write(FsBlock(2), |_| unreachable!()).unwrap_err().to_string();
    assert!(e.contains("no credit left to change block 2"), "{e}");
    assert!(handle.extend(2, 0) && handle.credits() == 2);
    handle.create(FsBlock(2), |b| b.fill(7)).unwrap();
    handle.forget(FsBlock(2)).unwrap();
    assert!(handle.forget(FsBlock(3)).is_err());
    assert!(!handle.extend(100, 0));
    let first = handle.tid();
    // The reserved part comes after its transaction has ended.
    let reserved = handle.reserve().unwrap();
    handle.restart(Credits::blocks(2)).unwrap();
    handle.write(FsBlock(4), |b| b[0] = 4).unwrap();
    drop(handle);
    journal.wait_commit(first).unwrap();
    let mut late = reserved.start().unwrap();
    assert!(late.tid().is_after(first) && late.credits() == 4);
    late.write(FsBlock(5), |b| b[0] = 5).unwrap();
    drop(late);
    journal.close().unwrap();
    let mut b = vec![0; 6 * SIZE];
    bed.device.read_at(0, &mut b);
    assert_eq!([1, 2, 4, 5].map(|n| b[n * SIZE]), [2, 0, 4, 5]);
}

/// A device that fails aborts the journal: it refuses changes and gives the reason.
#[test]
fn a_failing_log_aborts_the_journal() {
    use tidegate_block::{Errno, Fault, Op, Rule};
    for mode in JournalMode::ALL {
        let (bytes, runs) = fresh(65);
        let faulty = Faulty::new(Arc::new(MemoryDevice::from_bytes(&bytes)), []);
        let queue = Arc::new(RequestQueue::new(faulty.clone(), QueueLimits::default()));
        let journal = open(&queue, &runs, options(*mode));
        let mut handle = journal.start(Credits::blocks(1)).unwrap();
        handle.write(FsBlock(1), |b| b[0] = 1).unwrap();
        let (told, hears) = tidegate_rt::channel::bounded(8);
        handle.on_commit(move |r| drop(told.send(r.is_err(), 1)));
        let tid = handle.stop();
        faulty.set([Rule::new(Fault::Fail(Errno::IO)).op(Op::Write)]);
        let e = journal.wait_commit(tid).unwrap_err();
        assert_eq!((e.errno(), hears.recv()), (Some(Errno::IO), Some(true)), "{e}");
        let e = journal.start(Credits::blocks(1)).err().unwrap().to_string();
        assert!(e.contains("the journal was aborted"), "{e}");
        assert!(journal.aborted().is_some() && journal.close().is_err());
    }
}

/// Bodies of two transactions are in flight together; no record is sent before its body is durable.
#[test]
fn records_come_behind_their_bodies() {
    use tidegate_block::{BioFlags, Op, Record};
    let (bytes, runs) = fresh(257);
    let recorder = Arc::new(Recorder::new(Arc::new(MemoryDevice::from_bytes(&bytes))));
    let queue = Arc::new(RequestQueue::new(recorder.clone(), QueueLimits::default()));
    let journal = open(&queue, &runs, options(JournalMode::Pipelined));
    for at in 0..20 {
        let mut handle = journal.start(Credits::blocks(1)).unwrap();
        handle.write(FsBlock(at), |b| b[0] = 1).unwrap();
        let tid = handle.stop();
        journal.start_commit(tid);
        if at % 5 == 0 {
            journal.wait_commit(tid).unwrap();
        }
    }
    journal.close().unwrap();
    let records = recorder.take();
    let kind = |data: &[u8]| (data.len() >= 12 && data[..4] == MAGIC.to_be_bytes()).then(|| data[7]);
    let flushes: Vec<_> = records.iter().filter(|r| r.op == Op::Flush).collect();
    let mut bodies = Vec::new();
    let mut seen = 0;
    for r in records.iter().filter(|r| r.op == Op::Write) {
        match kind(&r.data) {
            Some(1) => bodies.push((r.data[8..12].to_vec(), r.completed.unwrap())),
            Some(2) => {
                seen += 1;
                let there = bodies.iter().find(|(tid, _)| *tid == r.data[8..12]).unwrap().1;
                let serves = |f: &&&Record| f.submitted > there && f.completed.unwrap() < r.submitted;
                let own = r.flags.contains(BioFlags::PREFLUSH) && r.submitted > there;
                assert!(own || flushes.iter().any(|f| serves(&f)), "a record before its body");
            }
            _ => {}
        }
    }
    assert!(seen > 1);
}
