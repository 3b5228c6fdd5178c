//! The remains of a new volume when its making is cut short, and putting that in order.

use crate::image::Claim;
use std::path::PathBuf;
use tidegate_rt::{LockClass, Mutex};

/// Held while the volume that is not complete is taken back, and so before all locks of I/O.
static STATE: LockClass = LockClass::new("mkfs->unfinished", 3);

/// How far a making is, for a thread that catches signals.
pub struct Unfinished(Mutex<State>);

#[derive(Default)]
struct State {
    shown: String,
    /// The state before: no volume, one, one that is gone now.
    before: Before,
    /// A file under another name.
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
    /// The making of a volume begins at the path of `claim`, called `shown`.
    pub(crate) fn begin(&self, shown: &str, claim: &Claim) {
        let before = if claim.holds_something() { Before::Kept } else { Before::Nothing };
        *self.0.lock() = State { shown: shown.to_string(), before, ..State::default() };
    }

    /// It is made in a file of its own.
    pub(crate) fn beside(&self, temporary: Option<PathBuf>) {
        self.0.lock().temporary = temporary;
    }

    /// It is made where something was, which `open` empties unless it fails.
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

    /// It is made anew.
    pub(crate) fn again(&self) {
        self.0.lock().temporary = None;
    }

    /// Completes it by `last`, unless a signal came first.
    pub(crate) fn finish<T>(&self, last: impl FnOnce() -> crate::Result<T>) -> crate::Result<T> {
        let mut s = self.0.lock();
        let done = last()?;
        *s = State { done: true, ..State::default() };
        Ok(done)
    }

    /// It failed: takes back all that can be. The message.
    pub(crate) fn failed(&self) -> Option<String> {
        self.0.lock().take_back()
    }

    /// A signal came: takes back what can be, and calls `end`, which ends the process, with what there is to
    /// say. The making goes on until then: it may still write in place, but not complete it.
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
