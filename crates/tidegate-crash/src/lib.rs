//! The crash explorer: runs of operations, every state a power cut could leave of them, and the recovery of
//! each.
//!
//! It does: make runs from seeds, record what they write, choose states by the rules of a device with a
//! volatile cache, recover each with this engine, and hold the tree against what fsync and sync promised.
//! It does not: look inside the engine, or rely on more than was promised.
//!
//! | module | holds |
//! |---|---|
//! | [`ops`], [`generate`], [`stamp`] | operations, runs of operations, bytes that identify their origin |
//! | [`plan`] | the meaning of a seed: a profile, a volume, mount options, the behaviour of the device |
//! | [`base`], [`age`] | volumes that runs begin with: empty ones, and full and fragmented ones |
//! | [`run`], [`late`] | doing a run on a recorded device, which may answer late |
//! | [`crowd`], [`slow`] | several threads at once, on a device with a thread of its own |
//! | [`model`], [`history`] | the expected tree after each operation |
//! | [`tape`], [`state`] | what was written, and what a power cut leaves of that |
//! | [`zones`] | the states of devices with zones: a beginning of each zone |
//! | [`recover`], [`walk`] | opening a state; the recovered tree |
//! | [`judge`] | the promises |
//! | [`explore`](mod@explore), [`shrink`] | many runs on all processors; a failure made short |
#![forbid(unsafe_code)]

pub mod age;
pub mod base;
pub mod crowd;
pub mod explore;
pub mod generate;
pub mod history;
pub mod judge;
pub mod late;
pub mod model;
pub mod ops;
pub mod plan;
pub mod recover;
pub mod run;
pub mod shrink;
pub mod slow;
pub mod stamp;
pub mod state;
pub mod tape;
#[cfg(test)]
mod tests;
pub mod walk;
pub mod zones;

pub use explore::{Failure, Limits, Progress, Report, explore, replay};

use std::sync::Arc;
use tidegate::OpenOptions;
use tidegate::planted::Planted;
use tidegate_block::Overlay;

/// A promise that was broken.
#[derive(Clone, Debug)]
pub struct Fault {
    /// The name of the promise, see [`judge`]; `run` when an operation failed before any power cut.
    pub promise: &'static str,
    /// A description of the break in one line.
    pub text: String,
}

impl Fault {
    pub(crate) fn new(promise: &'static str, text: impl Into<String>) -> Self {
        Fault { promise, text: text.into() }
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.promise, self.text)
    }
}

/// Another judge of an image; its error is the faults that it finds.
pub type Reference = Arc<dyn Fn(&Overlay) -> Result<(), String> + Send + Sync>;

/// Another program that recovers an image; returns the recovered image, or the error.
pub type Stranger = Arc<dyn Fn(&Overlay) -> Result<Vec<u8>, String> + Send + Sync>;

/// The settings that all runs share.
#[derive(Clone, Default)]
pub struct Settings {
    /// The reference checker.
    pub reference: Option<Reference>,
    /// Other programs, by their names, which recover the states that the reference checker sees.
    pub strangers: Vec<(&'static str, Stranger)>,
    /// The volumes that runs begin with.
    pub bases: Arc<base::Bases>,
    /// A bug of the engine that does the runs. Recovery is done by an engine without the bug.
    pub planted: Planted,
}

impl Settings {
    /// The options with which a run opens its volume.
    fn writer(&self) -> OpenOptions {
        let mut options = sound();
        options.format.plant(self.planted);
        options
    }
}

/// The options with which everything else opens a volume.
fn sound() -> OpenOptions {
    OpenOptions { fixed_time: Some(base::TIME), ..Default::default() }
}
