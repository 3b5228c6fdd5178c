//! Several threads at once, each in a directory of its own, with all threads of the volume.
//!
//! The seed chooses the order of the operations, in the simulated world. Each thread does its own operations
//! in order, and no other thread changes its files, so its tree is judged as if the thread were alone. A sync
//! by one thread is a promise to all.

use crate::base::Base;
use crate::generate::{Profile, generate};
use crate::judge::{Promises, judge};
use crate::late::Pace;
use crate::model::{Id, Model, ROOT};
use crate::ops::{CrashOp, Step};
use crate::run::{Machine, Manner, Recording, SHORT_OF_MEMORY, Switches, ended, open, simulate};
use crate::slow::Slow;
use crate::tape::Tape;
use crate::walk::Tree;
use crate::zones::Zoned;
use crate::{Fault, Settings};
use std::sync::Arc;
use tidegate::volume::Volume;
use tidegate_block::{Overlay, QueueLimits, Recorder, RequestQueue};
use tidegate_rt::rng::Rng;
use tidegate_rt::thread;
use tidegate_vfs::{Cred, FileType, NewInode};

/// The most threads of a run.
const MOST: u32 = 3;
/// The numbers of the threads' directories start here.
const FIRST_DIR: Id = 1 << 20;
/// The objects of a thread are numbered from this many times the thread's number on.
const SERIALS: u32 = 10_000;

fn name(n: u32) -> String {
    format!("t{n}")
}

/// Makes the directories on a fresh volume.
pub(super) fn prepare(volume: &Volume) -> tidegate_vfs::Result<()> {
    let (vfs, root) = (volume.vfs(), volume.vfs().root()?);
    for n in 0..MOST {
        let new = NewInode { uid: FIRST_DIR + n, ..vfs.new_inode(&Cred::ROOT, FileType::Directory, 0o755) };
        vfs.make(&Cred::ROOT, &root, name(n).as_bytes(), &new)?;
    }
    vfs.sync()
}

/// The operations of each thread.
pub fn plans(rng: &mut Rng) -> Vec<Vec<Step>> {
    let threads = 2 + rng.below(MOST as u64 - 1) as u32;
    let plan = |n: u32| {
        let profile = *rng.pick(&[Profile::Names, Profile::Names, Profile::Mixed]);
        let count = *rng.pick(&[10, 20, 40]);
        let mut steps = generate(rng, count, profile, Model::default());
        steps.iter_mut().for_each(|s| s.serial += n * SERIALS);
        steps
    };
    (0..threads).map(plan).collect()
}

/// Does the operations of all threads at once. Returns one recording per thread; they share one tape.
///
/// # Errors
/// An operation that could be done failed.
pub fn record(
    base: &Base,
    plans: Vec<Vec<Step>>,
    switches: Switches,
    settings: &Settings,
    mut rng: Rng,
) -> Result<Vec<Recording>, Fault> {
    let (base, settings) = (base.clone(), settings.clone());
    simulate(rng.bits(), move || record_here(&base, plans, switches, &settings, rng))
}

fn record_here(
    base: &Base,
    plans: Vec<Vec<Step>>,
    switches: Switches,
    settings: &Settings,
    rng: Rng,
) -> Result<Vec<Recording>, Fault> {
    let zoned = Zoned::new(Arc::new(Overlay::new(base.blocks.clone(), base.table.to_vec())), &base.zones);
    let device = zoned.device();
    let pressure = rng.fork(1).one_in(2);
    let recorder = Arc::new(Recorder::new(Arc::new(Slow::new(device, rng))));
    let queue = Arc::new(RequestQueue::new(recorder.clone(), QueueLimits::default()));
    let mut options = settings.writer();
    options.fixed_time = None;
    switches.set(&mut options);
    if pressure {
        options.memory = SHORT_OF_MEMORY;
    }
    let volume = open(queue, &options).map_err(|e| Fault::new("run", format!("the volume: {e}")))?;
    let manner = Manner { pressure, switches, pace: Pace::AtOnce, ..Manner::default() };
    let threads = plans.into_iter().enumerate().map(|(n, steps)| {
        let machine = Machine::below(&volume, Model::default(), &format!("/{}", name(n as u32)));
        let recorder = recorder.clone();
        thread::spawn(
            &format!("tg-crash/{n}"),
            move || // An event for each beginning and end: an operation without I/O has a position, too.
            machine.run(&steps, &|| recorder.mark(), manner),
        )
        .map_err(|e| Fault::new("run", format!("starting a thread: {e}")))
    });
    let threads: Vec<_> = threads.collect::<Result<_, _>>()?;
    let mut runs = threads.into_iter().map(|t| t.join()).collect::<Result<Vec<_>, _>>()?;
    let end = recorder.position();
    let tape = Arc::new(Tape::new(&base.blocks, &base.table, recorder.take()).on(&base.zones));
    zoned.check(volume.queue())?;
    ended(volume);
    let syncs: Vec<Vec<(u64, u64)>> = runs.iter().map(syncs).collect();
    for (n, run) in runs.iter_mut().enumerate() {
        let others = syncs.iter().enumerate().filter(|s| s.0 != n);
        run.others = others.flat_map(|s| s.1.iter().copied()).collect();
        (run.tape, run.end) = (tape.clone(), end);
    }
    Ok(runs)
}

fn syncs(run: &Recording) -> Vec<(u64, u64)> {
    let steps = run.steps.iter().zip(&run.spans);
    steps.filter(|s| s.0.op == CrashOp::Sync && s.1.1 < u64::MAX).map(|s| *s.1).collect()
}

/// Compares the tree with the promises to each thread when power failed before event `cut`.
///
/// # Errors
/// The first promise that is broken.
pub fn judge_all(tree: &Tree, runs: &[Recording], cut: u64) -> Result<(), Fault> {
    for id in tree.keys().filter(|id| **id != ROOT && !(FIRST_DIR..FIRST_DIR + MOST).contains(*id)) {
        if (id / SERIALS) as usize >= runs.len() {
            return Err(Fault::new("P4", format!("object {id} was never made")));
        }
    }
    for (n, run) in runs.iter().enumerate() {
        judge(&view(tree, n as u32)?, &run.model, &Promises::at(run, cut))
            .map_err(|f| Fault { text: format!("thread {n}: {}", f.text), ..f })?;
    }
    Ok(())
}

/// The part of a tree that thread `n` sees: the thread's directory is the root.
fn view(tree: &Tree, n: u32) -> Result<Tree, Fault> {
    let dir = FIRST_DIR + n;
    let mut all = Tree::new();
    for (id, found) in tree.iter().filter(|(id, _)| **id == dir || (**id != ROOT && **id / SERIALS == n)) {
        let mut found = found.clone();
        if *id == dir {
            found.names.clear();
            all.insert(ROOT, found);
            continue;
        }
        let names = std::mem::take(&mut found.names).into_iter();
        found.names = names.map(|(d, name)| (if d == dir { ROOT } else { d }, name)).collect();
        all.insert(*id, found);
    }
    match all.contains_key(&ROOT) {
        true => Ok(all),
        false => Err(Fault::new("P1", format!("the directory {} is gone", name(n)))),
    }
}

/// The operations of all threads in the order of their beginning, up to a cut, each with the events of its
/// beginning and end.
pub fn describe(runs: &[Recording], cut: u64) -> String {
    let all = runs.iter().enumerate().flat_map(|(n, run)| {
        run.steps.iter().zip(&run.spans).map(move |(step, span)| (span.0, span.1, n, step))
    });
    let mut all: Vec<_> = all.filter(|s| s.0 <= cut).collect();
    all.sort_by_key(|s| s.0);
    let line = |(from, to, n, step): &(u64, u64, usize, &Step)| match *to {
        u64::MAX => format!("\n  {from:5}..      thread {n} {step}"),
        _ => format!("\n  {from:5}..{to:<5} thread {n} {step}"),
    };
    all.iter().map(line).collect()
}
