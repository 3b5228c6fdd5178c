//! Recovers one state and judges the result.

use crate::crowd::judge_all;
use crate::judge::{Promises, judge};
use crate::late::{Late, Pace};
use crate::run::Recording;
use crate::state::{Amount, State, states};
use crate::tape::Tape;
use crate::walk::{Tree, walk};
use crate::zones::{OnZones, Zoned};
use crate::{Fault, Reference, Settings, sound};
use std::sync::Arc;
use tidegate::offline::{CheckOptions, check};
use tidegate::{OpenOptions, Volume};
use tidegate_block::{Blocks, Device, Overlay, QueueLimits, Recorder, RequestQueue};
use tidegate_rt::rng::Rng;

/// How closely a state is examined.
#[derive(Clone, Copy, Debug, Default)]
pub struct Depth {
    /// The recovery is cut short, too, in ways chosen by this seed.
    pub again: Option<u64>,
    /// The reference checker judges the state, too.
    pub reference: bool,
    /// Power fails again after the recovery, and the recovery is repeated.
    pub twice: bool,
    /// Recovery uses the mount options of the run, not the defaults.
    pub same_options: bool,
}

/// The number of cuts during one recovery.
const AGAIN: Amount = Amount { boundaries: 2, prefixes: 3, subsets: 6 };

/// Recovers the volume from a state of a run and judges it.
///
/// # Errors
/// The promise that is broken.
pub fn inspect(run: &Recording, state: &State, depth: Depth, settings: &Settings) -> Result<(), Fault> {
    let promises = Promises::at(run, state.cut);
    inspect_with(&|tree| judge(tree, &run.model, &promises), run, state, depth, settings)
}

/// Recovers and judges the volume of several threads' recordings of one tape.
///
/// # Errors
/// The promise that is broken.
pub fn inspect_all(
    runs: &[Recording],
    state: &State,
    depth: Depth,
    settings: &Settings,
) -> Result<(), Fault> {
    let Some(run) = runs.first() else { return Ok(()) };
    inspect_with(&|tree| judge_all(tree, runs, state.cut), run, state, depth, settings)
}

fn inspect_with(
    keeps: &dyn Fn(&Tree) -> Result<(), Fault>,
    run: &Recording,
    state: &State,
    depth: Depth,
    settings: &Settings,
) -> Result<(), Fault> {
    let mut options = sound();
    if depth.same_options {
        run.manner.switches.set(&mut options);
    }
    let how = How { keeps, options, reference: settings.reference.as_ref() };
    for (name, stranger) in settings.strangers.iter().filter(|_| depth.reference) {
        let bytes =
            stranger(&state.image(&run.tape)).map_err(|e| Fault::new("P8", format!("{name}: {e}")))?;
        how.keeps_all(name, &bytes, &run.tape.blocks)?;
    }
    how.recover(&run.tape.blocks, state.medium(&run.tape), depth)
}

/// How states are recovered.
struct How<'a> {
    /// Whether a tree keeps the promises.
    keeps: &'a dyn Fn(&Tree) -> Result<(), Fault>,
    options: OpenOptions,
    reference: Option<&'a Reference>,
}

impl How<'_> {
    /// Compares a volume that the program `name` recovered with the promises.
    fn keeps_all(&self, name: &str, bytes: &[u8], like: &Blocks) -> Result<(), Fault> {
        let mut blocks = Blocks::of_size(like.block_size());
        let count = (bytes.len() / like.block_size()) as u32;
        let first = blocks.push(bytes);
        let device = Overlay::new(Arc::new(blocks), (first..first + count).collect());
        let volume = self.open(&(Arc::new(device) as Arc<dyn Device>))?;
        (self.keeps)(&walk(&volume)?)
            .map_err(|e| Fault::new("P8", format!("recovered by {name}: {}: {}", e.promise, e.text)))
    }

    fn recover(
        &self,
        blocks: &Arc<Blocks>,
        (table, zones): (Vec<u32>, OnZones),
        depth: Depth,
    ) -> Result<(), Fault> {
        let before = Arc::new(table);
        let device = Arc::new(Overlay::new(blocks.clone(), before.to_vec()));
        let zoned = Zoned::new(device.clone(), &zones);
        let mut rng = Rng::new(depth.again.unwrap_or(0));
        let pace = if depth.again.is_some() { Pace::any(&mut rng) } else { Pace::AtOnce };
        let (late, _polling) = Late::attach(zoned.device(), pace);
        let recorder = Arc::new(Recorder::new(late));
        let top: Arc<dyn Device> = if depth.again.is_some() { recorder.clone() } else { zoned.device() };
        let mut volume = self.open(&top)?;
        let tree = walk(&volume)?;
        (self.keeps)(&tree)?;
        if depth.twice {
            zoned.check(volume.queue())?;
            drop(volume);
            volume = self.open(&top)?;
            same(&tree, &walk(&volume)?, "recovered a second time")?;
        }
        let queue = volume.queue().clone();
        volume.unmount().map_err(|e| Fault::new("P0", format!("unmount: {e}")))?;
        zoned.check(&queue)?;
        checked(zoned.device())?;
        // fsck.f2fs cannot read a zone's capacity from an image, and counts free segments differently.
        let alike = zones.as_ref().is_none_or(|z| z.spec.capacity == z.spec.size);
        if let Some(f) = self.reference.filter(|_| depth.reference && alike) {
            f(&device).map_err(|e| Fault::new("P7", e))?;
        }
        if depth.again.is_none() {
            return Ok(());
        }
        let clean = self.open(&top)?;
        same(&tree, &walk(&clean)?, "after a clean unmount")?;
        zoned.check(clean.queue())?;
        drop(clean);
        let tape = Tape::new(blocks, &before, recorder.take()).on(&zones);
        for s in states(&tape, &mut rng, AGAIN, 0, u64::MAX) {
            self.recover(&tape.blocks, s.medium(&tape), Depth::default())
                .map_err(|e| Fault { text: format!("recovery cut at event {}: {}", s.cut, e.text), ..e })?;
        }
        Ok(())
    }

    fn open(&self, device: &Arc<dyn Device>) -> Result<Volume, Fault> {
        let queue = Arc::new(RequestQueue::new(device.clone(), QueueLimits::default()));
        let fail = |e| Fault::new("P0", format!("opening: {e}"));
        let volume = Volume::from_queue("volume", queue, &self.options).map_err(fail)?;
        volume.check_writable().map_err(fail)?;
        Ok(volume)
    }
}

fn same(a: &Tree, b: &Tree, when: &str) -> Result<(), Fault> {
    if a == b {
        return Ok(());
    }
    let all: std::collections::BTreeSet<_> = a.keys().chain(b.keys()).collect();
    let differ: Vec<_> = all.into_iter().filter(|id| a.get(id) != b.get(id)).collect();
    Err(Fault::new("P6", format!("{when}, other objects: {differ:?}")))
}

fn checked(device: Arc<dyn Device>) -> Result<(), Fault> {
    let queue = Arc::new(RequestQueue::new(device, QueueLimits::default()));
    let report = check("volume", &queue, CheckOptions { max_problems: 3, progress: None })
        .map_err(|e| Fault::new("P6", format!("check: {e}")))?;
    match report.problems.first() {
        None => Ok(()),
        Some(first) => {
            let text = format!("check: {}: {} ({} problems)", first.rule, first.text, report.total_problems);
            Err(Fault::new("P6", text))
        }
    }
}
