//! Power cuts at any moment of simulated runs: recovery gives exactly the transactions up to one, whole and
//! in order, and all acknowledged ones among them.

use crate::cut::Tape;
use crate::engine::{FREE, Notes, SIZE, fresh, fresh_with, open, options, stamped};
use crate::image::{Chance, Seed, VOLUME, seeds};
use crate::writer::Sums;
use std::collections::BTreeSet;
use std::sync::Arc;
use tidegate_block::model::Model;
use tidegate_block::{Bio, BioFlags, MemoryDevice, PageBuf, Preset, QueueLimits, Recorder, RequestQueue};
use tidegate_block::{Errno, Fault, Faulty, Op, Rule, Sector, Segment};
use tidegate_jbd2::{Credits, FsBlock, Handle, Journal, JournalMode, Log, Reserved, Run, Tid, recover};
use tidegate_rt::sim::{Config, run_with};
use tidegate_rt::{LockClass, Mutex, Nanos, thread};
use tidegate_vfs::{Error, Result};

static ACKS: LockClass = LockClass::new("test->acks", 998);

/// Blocks that all threads change; each later block belongs to one thread.
const SHARED: u64 = 40;
const THREADS: u64 = 3;
const OWN: u64 = (VOLUME - SHARED) / THREADS;
/// The number of a block of data.
const DATA: u64 = 1 << 40;

/// A volume's bytes, and the places of its log and of the test's blocks.
#[derive(Clone)]
pub struct Base {
    pub bytes: Vec<u8>,
    pub runs: Vec<Run>,
    pub first: u64,
}

/// The promises of a run.
#[derive(Default)]
struct Said {
    /// Events after which a transaction was acknowledged.
    acks: Vec<(u64, Tid)>,
    /// Events after which a block held data, durably.
    data: Vec<(u64, u64)>,
}

pub struct Ran {
    pub tape: Tape,
    pub notes: Notes,
    said: Said,
}

struct Bed {
    base: Base,
    recorder: Arc<Recorder>,
    queue: Arc<RequestQueue>,
    journal: Journal,
    notes: Notes,
    said: Mutex<Said>,
}

impl Bed {
    fn ack(&self, tid: Tid) -> Result<()> {
        self.journal.wait_commit(tid)?;
        let at = self.recorder.mark();
        self.said.lock().acks.push((at, tid));
        Ok(())
    }

    fn worker(&self, n: u64, chance: &mut Chance) -> Result<()> {
        let mut own: Vec<u64> = (0..OWN).map(|i| self.base.first + SHARED + n * OWN + i).collect();
        let mut reserved = None;
        for _ in 0..14 {
            let blocks = 1 + chance.below(4) as u32;
            let reserve = 2 * u32::from(reserved.is_none() && chance.one_in(4));
            let mut handle = self.journal.start(Credits { blocks, revokes: 1, reserve, kind: 0 })?;
            self.change(&mut handle, blocks - 1, chance)?;
            if chance.one_in(4) && handle.extend(1, 0) {
                self.change(&mut handle, 1, chance)?;
            }
            if chance.one_in(6) {
                handle.restart(Credits { blocks, revokes: 1, reserve: 0, kind: 0 })?;
                self.change(&mut handle, blocks - 1, chance)?;
            }
            let tid = handle.tid();
            let mut freed = None;
            match chance.below(4) {
                0 | 1 => {
                    let at = *chance.0.pick(&own);
                    handle.create(FsBlock(at), |b| self.notes.stamp(tid, at, b))?;
                }
                2 => {
                    let n = chance.below(own.len() as u64) as usize;
                    let at = own[n];
                    handle.forget(FsBlock(at))?;
                    self.notes.free(tid, at);
                    match chance.below(3) {
                        // The block is metadata again, at once or in some later transaction.
                        0 => handle.create(FsBlock(at), |b| self.notes.stamp(tid, at, b))?,
                        1 if own.len() > 2 => freed = Some(own.swap_remove(n)),
                        _ => {}
                    }
                }
                _ => {}
            }
            let late = reserved.take();
            reserved = handle.reserve();
            handle.stop();
            if let Some(late) = late {
                let mut handle = Reserved::start(late)?;
                self.change(&mut handle, 2, chance)?;
            }
            match freed {
                Some(at) => {
                    self.ack(tid)?;
                    self.put_data(at)?;
                }
                _ if chance.one_in(3) => self.ack(tid)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Changes some of the blocks that all threads change.
    fn change(&self, handle: &mut Handle, blocks: u32, chance: &mut Chance) -> Result<()> {
        let tid = handle.tid();
        for _ in 0..blocks {
            let at = self.base.first + chance.below(SHARED);
            handle.write(FsBlock(at), |b| self.notes.stamp(tid, at, b))?;
        }
        Ok(())
    }

    /// Puts data into a freed block, without the journal.
    fn put_data(&self, at: u64) -> Result<()> {
        let buf = Arc::new(PageBuf::from_slice(&stamped(DATA + at)));
        let segment = Segment { buf, offset: 0, len: SIZE as u32 };
        let sector = Sector::from_bytes(at * SIZE as u64);
        let flags = BioFlags::FUA | BioFlags::SYNC;
        self.queue
            .submit_wait(Bio::write(sector, vec![segment], flags))
            .map_err(|e| Error::device(e, "data"))?;
        let event = self.recorder.mark();
        self.said.lock().data.push((event, at));
        Ok(())
    }
}

/// Runs threads on a volume, in a simulated world.
pub fn ran(seed: u64, mode: JournalMode, base: Base) -> Ran {
    ran_on(seed, mode, base, None)
}

/// Runs threads on a volume whose device fails from write `fails` on.
fn ran_on(seed: u64, mode: JournalMode, base: Base, fails: Option<u64>) -> Ran {
    let config = Config { seed, cpus: 2, jitter: 64, quantum: Nanos(0), ..Config::default() };
    let body = move || {
        let model = Model::new(
            if seed.is_multiple_of(3) { Preset::Ufs } else { Preset::Nvme },
            base.bytes.len() as u64,
        );
        model.memory().write_at(0, &base.bytes);
        let rule = |first| Rule::new(Fault::Fail(Errno::IO)).op(Op::Write).which(first..u64::MAX);
        let faulty = Faulty::new(model, fails.map(rule));
        let recorder = Arc::new(Recorder::new(faulty));
        let queue = Arc::new(RequestQueue::new(recorder.clone(), QueueLimits::default()));
        let mut options = options(mode);
        (options.csum_v3, options.bit64) = (seed % 4 != 1, seed % 5 != 1);
        let journal = open(&queue, &base.runs, options);
        let said = Mutex::new(&ACKS, Said::default());
        let bed = Arc::new(Bed { base, recorder, queue, journal, notes: Notes::new(), said });
        let start = |n| {
            let bed = bed.clone();
            thread::spawn("worker", move || bed.worker(n, &mut Chance::new(seed * 100 + n))).unwrap()
        };
        let threads: Vec<_> = (0..THREADS).map(start).collect();
        let ended: Vec<_> = threads.into_iter().map(thread::JoinHandle::join).collect();
        assert!(fails.is_some() || ended.iter().all(Result::is_ok), "{ended:?}");
        let Bed { base, recorder, queue: _queue, journal, notes, said } = Arc::into_inner(bed).unwrap();
        if seed.is_multiple_of(2) {
            let closed = journal.close();
            assert!(fails.is_some() || closed.is_ok(), "{closed:?}");
        } else {
            drop(journal);
        }
        let tape = Tape { base: base.bytes, records: recorder.take(), unit: SIZE };
        Ran { tape, notes, said: said.into_inner() }
    };
    run_with(&config, body).unwrap_or_else(|deadlock| panic!("seed {seed}: {deadlock}")).value
}

/// A volume after our recovery, and the last transaction.
pub fn recovered(image: &[u8], runs: &[Run]) -> (Vec<u8>, Tid) {
    let device = Arc::new(MemoryDevice::from_bytes(image));
    let queue = Arc::new(RequestQueue::new(device.clone(), QueueLimits::default()));
    let log = Arc::new(Log::new(queue.clone(), SIZE as u32, runs.to_vec()).unwrap());
    let replay = recover(log, (image.len() / SIZE) as u64).unwrap();
    assert_eq!(replay.failed_commit(), None);
    replay.write_out(&queue).unwrap();
    let mut after = vec![0; image.len()];
    device.read_at(0, &mut after);
    (after, replay.tids().1.prev())
}

impl Ran {
    /// Compares a recovered volume with the promises before `cut`.
    pub fn judge(&self, cut: u64, volume: &[u8], last: Tid) {
        for (event, tid) in self.said.acks.iter().filter(|(event, _)| *event <= cut) {
            assert!(last.reaches(*tid), "{tid} was acknowledged at {event}, the last there is {last}");
        }
        let block = |at: u64| &volume[at as usize * SIZE..][..SIZE];
        let data: BTreeSet<u64> =
            self.said.data.iter().filter(|(e, _)| *e <= cut).map(|(_, at)| *at).collect();
        for at in &data {
            assert!(block(*at) == stamped(DATA + at), "block {at} held data, and does not");
        }
        for (at, n) in self.notes.until(last).iter().filter(|(_, n)| **n != FREE) {
            let found = block(*at);
            assert!(found == stamped(*n), "block {at} of transaction {last}: {:?}, not {n}", &found[8..16]);
        }
    }
}

/// Commits that were acknowledged before a device began to fail are there afterwards, and every thread gets
/// the error.
#[test]
fn what_a_failing_device_leaves_is_recovered() {
    for seed in seeds(0..40) {
        let _seed = Seed(seed);
        let mode = JournalMode::ALL[(seed / 2 % 2) as usize];
        let (bytes, runs) = fresh(65);
        let base = Base { bytes, runs: runs.clone(), first: 0 };
        let mut chance = Chance::new(seed);
        let ran = ran_on(seed, mode, base, Some(chance.below(60)));
        for _ in 0..10 {
            let image = ran.tape.image(u64::MAX, &mut chance);
            let (volume, last) = recovered(&image, &runs);
            ran.judge(u64::MAX, &volume, last);
        }
    }
}

#[test]
fn a_cut_anywhere_leaves_whole_transactions() {
    for seed in seeds(0..40) {
        let _seed = Seed(seed);
        let mode = JournalMode::ALL[(seed / 2 % 2) as usize];
        // Some logs keep csum v2 or v1's superblock; most get v3.
        let sums = [Sums::None, Sums::V2, Sums::V1][(seed / 4 % 3) as usize];
        let (bytes, runs) = fresh_with(65, sums);
        let base = Base { bytes, runs: runs.clone(), first: 0 };
        let ran = ran(seed, mode, base);
        let mut chance = Chance::new(seed);
        for _ in 0..40 {
            let cut = chance.below(ran.tape.end() + 1);
            let image = ran.tape.image(cut, &mut chance);
            let (volume, last) = recovered(&image, &runs);
            ran.judge(cut, &volume, last);
        }
    }
}
