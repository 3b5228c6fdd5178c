//! Observation of the engine while it works: lock statistics, trace events, call trees, and their forms.
//!
//! | module | holds |
//! |---|---|
//! | `recording` | [`Recording`]: of the whole process, from a beginning to an end |
//! | [`lockstat`] | lock statistics with the columns of `/proc/lock_stat` |
//! | [`bios`] | bios in the order of sending, and which of them were split |
//! | [`text`] | events shaped as the kernel's `trace_pipe` |
//! | [`chrome`] | events as JSON for Perfetto and Chrome |
//! | [`graph`] | the calls below one function in folded stacks |
//! | [`profile`] | call trees shaped as `perf report` shows them, and folded stacks |
//! | [`why`] | why the slowest operations were slow |
//! | `words` | the meaning of events' numbers |
//!
//! Times are those of the runtime's clock: real, or virtual in a simulated world.

pub mod bios;
pub mod chrome;
pub mod graph;
pub mod lockstat;
pub mod profile;
mod recording;
pub mod text;
pub mod why;
mod words;

pub use recording::{Observed, Recording, Wanted};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;

/// Forms of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TraceForm {
    /// Text as in `trace_pipe`.
    Text,
    /// JSON for Perfetto and Chrome.
    Chrome,
}

impl TraceForm {
    /// The form for a file of this name: `.json` is for Perfetto, any other name is text.
    pub fn of(file: &Path) -> Self {
        if file.extension().is_some_and(|e| e == "json") { TraceForm::Chrome } else { TraceForm::Text }
    }

    /// Writes the events of `observed`.
    ///
    /// # Errors
    /// Those of writing.
    pub fn write(self, observed: &Observed, to: &mut impl io::Write) -> io::Result<()> {
        match self {
            TraceForm::Text => text::write(observed, to),
            TraceForm::Chrome => chrome::write(observed, to),
        }
    }
}

/// Forms of a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProfileForm {
    /// A tree as in `perf report`.
    Tree,
    /// A line for each stack, as input for flame graphs.
    Folded,
}

impl ProfileForm {
    /// The form for a file of this name: `.folded` is for stacks, any other name is a tree.
    pub fn of(file: &Path) -> Self {
        if file.extension().is_some_and(|e| e == "folded") { ProfileForm::Folded } else { ProfileForm::Tree }
    }

    /// Writes the call trees of `observed`.
    ///
    /// # Errors
    /// Those of writing.
    pub fn write(self, observed: &Observed, to: &mut impl io::Write) -> io::Result<()> {
        match self {
            ProfileForm::Tree => profile::write_tree(observed, to),
            ProfileForm::Folded => profile::write_folded(observed, to),
        }
    }
}
