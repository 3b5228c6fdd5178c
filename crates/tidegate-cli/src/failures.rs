//! Commands that do several things, and go on when one of them fails.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use tidegate::Error;
use tidegate::error::{path_bytes, printable, show};
use tidegate::export::Failed;

/// What failed so far.
#[derive(Clone, Default)]
pub struct Failures(Arc<AtomicU64>);

impl Failures {
    /// Tells of an error, now, and what can be done about it; `image` is the one it may be about.
    pub fn add(&self, e: Error, image: &Path) {
        self.0.fetch_add(1, Relaxed);
        eprintln!("tidegate: {}", printable(&with_cure(e, image).to_string()));
    }

    /// The way to tell of errors of reading `image`.
    pub fn of(&self, image: &Path) -> Failed {
        let (failures, image) = (self.clone(), image.to_path_buf());
        Arc::new(move |e| failures.add(e, &image))
    }

    /// How the command ends.
    pub fn status(&self) -> ExitCode {
        if self.0.load(Relaxed) == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

fn with_cure(e: Error, image: &Path) -> Error {
    if !e.is_damaged() {
        return e;
    }
    e.and(format_args!("run `tidegate check --repair {}`", show(path_bytes(image))))
}
