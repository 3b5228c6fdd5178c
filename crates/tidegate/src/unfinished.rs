//! The remains of a new volume when its making is cut short, and their removal.

use crate::image::Claim;
use std::path::PathBuf;
use tidegate_rt::{LockClass, Mutex};

/// This lock is held while an incomplete volume is removed, so it comes before all locks of I/O.
static STATE: LockClass = LockClass::new("mkfs->unfinished", 3);

/// The state of a making, for a thread that catches signals.
pub struct Unfinished(Mutex<State>);

#[derive(Default)]
struct State {
    shown: String,
    /// The state before: no volume, a volume, or a volume that is lost now.
    before: Before,
    /// The temporary name of the new file.
    temporary: Option<PathBuf>,
    done: bool,
}

/// The file that was at the path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Before {
    #[default]
    Nothing,
    Kept,
    Gone,
}

impl Default for Unfinished {
    fn default() -> Self {
        Unfinished(Mutex::new(&STATE, State::default()))
    }
}

impl Unfinished {
    /// Begins the making of a volume at the path of `claim`, called `shown`.
    pub(crate) fn begin(&self, shown: &str, claim: &Claim) {
        let before = if claim.holds_something() { Before::Kept } else { Before::Nothing };
        *self.0.lock() = State { shown: shown.to_string(), before, ..State::default() };
    }

    /// Notes that the volume is made in a new file.
    pub(crate) fn beside(&self, temporary: Option<PathBuf>) {
        self.0.lock().temporary = temporary;
    }

    /// Notes that the volume is made in the existing file, which `open` empties unless it fails.
    pub(crate) fn in_place<T>(&self, open: impl FnOnce() -> crate::Result<T>) -> crate::Result<T> {
        let mut s = self.0.lock();
        let opened = open()?;
        if s.before == Before::Kept {
            s.before = Before::Gone;
        }
        Ok(opened)
    }

    /// Whether the old file stays until the making ends.
    pub(crate) fn keeps_old(&self) -> bool {
        self.0.lock().before == Before::Kept
    }

    /// Notes that the volume is made again.
    pub(crate) fn again(&self) {
        self.0.lock().temporary = None;
    }

    /// Completes the volume by `last`, unless a signal came first.
    pub(crate) fn finish<T>(&self, last: impl FnOnce() -> crate::Result<T>) -> crate::Result<T> {
        let mut s = self.0.lock();
        let done = last()?;
        *s = State { done: true, ..State::default() };
        Ok(done)
    }

    /// Removes what can be removed after a failure. Returns the message.
    pub(crate) fn failed(&self) -> Option<String> {
        self.0.lock().take_back()
    }

    /// Removes what can be removed after a signal, and calls `end`, which ends the process, with the message.
    /// The making goes on until then: it may still write in place, but cannot complete the volume.
    pub fn interrupted(&self, end: impl FnOnce(Option<String>)) {
        let mut s = self.0.lock();
        if s.done || s.shown.is_empty() {
            return end(None);
        }
        let before = s.before;
        let left = s.take_back();
        let said = left.unwrap_or_else(|| match before {
            Before::Nothing => "no image was made".into(),
            _ => "the image that was there is as it was".into(),
        });
        end(Some(format!("{}: interrupted; {said}", s.shown)));
    }
}

impl State {
    fn take_back(&mut self) -> Option<String> {
        if let Some(path) = self.temporary.take() {
            let _ = std::fs::remove_file(path);
        }
        (self.before == Before::Gone).then(|| "what was there before is gone".to_string())
    }
}
