//! Looking into the engine while it works: lock statistics, trace events, call trees, and how they are shown.
//!
//! | module | holds |
//! |---|---|
//! | `recording` | [`Recording`]: from a beginning to an end, for the whole process |
//! | [`lockstat`] | lock statistics with the columns of `/proc/lock_stat` |
//! | [`bios`] | what was sent in which order, and what was split |
//! | [`text`] | events shaped as the kernel's `trace_pipe` |
//! | [`chrome`] | events as JSON for Perfetto and Chrome |
//! | [`graph`] | what lies below one function in folded stacks |
//! | [`profile`] | call trees shaped as `perf report` shows them, and folded stacks |
//! | [`why`] | why the slowest operations were slow |
//! | `words` | what numbers of events mean |
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
    /// As `trace_pipe`.
    Text,
    /// For Perfetto and Chrome.
    Chrome,
}

impl TraceForm {
    /// The form of a file of this name: `.json` is for Perfetto, anything else text.
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
    /// As `perf report` shows it.
    Tree,
    /// A line for each stack, as flame graphs are made of.
    Folded,
}

impl ProfileForm {
    /// The form of a file of this name: `.folded` stacks, anything else a tree.
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
