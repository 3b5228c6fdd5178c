//! Recordings of one run of each position, and their receiver.

use crate::error::Result;
use tidegate::observe::{Observed, ProfileForm, Recording, Wanted};
use tidegate_rt::Nanos;

/// A receiver of reports about runs.
pub trait Observer {
    /// Called when a run has ended, with its name.
    fn ran(&self, what: &str);

    /// The recordings to make of one more run of each position. Call trees of runs on models are recorded
    /// anyway.
    fn wants(&self) -> Wanted {
        Wanted::default()
    }

    /// Takes the recordings of the drawn run of a position, if any were asked for.
    ///
    /// # Errors
    /// Those of keeping it; the experiment ends with them.
    fn saw(&self, _run: &Looked<'_>, _observed: &Observed) -> Result<()> {
        Ok(())
    }
}

/// A function is an observer without recordings.
impl<F: Fn(&str)> Observer for F {
    fn ran(&self, what: &str) {
        self(what);
    }
}

/// The position of a recorded run.
#[derive(Clone, Copy, Debug)]
pub struct Looked<'a> {
    /// The experiment's name.
    pub experiment: &'a str,
    /// The number of its setting, from 1.
    pub number: usize,
    /// The name of that setting.
    pub setting: &'a str,
    /// The position.
    pub position: &'a str,
}

impl Looked<'_> {
    /// A name for its files: `m3.1.sync_wait=caller`.
    pub fn file_name(&self) -> String {
        let plain = |c: char| if c.is_ascii_alphanumeric() || "=._-".contains(c) { c } else { '-' };
        let position: String = self.position.chars().map(plain).collect();
        format!("{}.{}.{position}", self.experiment, self.number)
    }
}

/// The result of a run, and its recording.
pub(super) type Watched<R> = (R, Option<Observed>);

/// Runs `f`, which returns its duration if time was virtual, and makes the wanted recordings. A recording
/// that other code in this process has under way is left alone.
pub(super) fn watch<R>(wanted: Wanted, f: impl FnOnce() -> Result<(R, Option<Nanos>)>) -> Result<Watched<R>> {
    let recording = if wanted.anything() { Recording::start(wanted) } else { None };
    let done = f();
    let observed = recording.map(Recording::finish);
    let (result, virtual_time) = done?;
    let in_its_time = |o: Observed| match virtual_time {
        Some(until) => Observed { since: Nanos(0), until, ..o },
        None => o,
    };
    Ok((result, observed.map(in_its_time)))
}

/// The call trees as folded stacks.
pub(super) fn folded(observed: &Observed) -> String {
    let mut text = Vec::new();
    // A write to memory cannot fail.
    let _ = ProfileForm::Folded.write(observed, &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_make_names_of_files() {
        let run = Looked { experiment: "compare", number: 1, setting: "", position: "dir:/mnt/a b" };
        assert_eq!(run.file_name(), "compare.1.dir--mnt-a-b");
        let run = Looked { experiment: "m3", number: 2, position: "sync_wait=caller", ..run };
        assert_eq!(run.file_name(), "m3.2.sync_wait=caller");
    }
}
