//! What a making of a volume leaves when it is cut short, and putting that in order.

use crate::image::Claim;
use std::path::PathBuf;
use std::sync::Arc;
use tidegate_block::{Bio, BioFlags, Errno, PageBuf, RequestQueue, Sector, Segment};
use tidegate_rt::{LockClass, Mutex};

/// Held while the volume that is not complete is taken back, and so before all locks of I/O.
static STATE: LockClass = LockClass::new("mkfs->unfinished", 3);

/// Where a superblock keeps the volume's UUID, in each of the first two blocks.
const UUID: usize = 1024 + 108;

/// How far a making is, for a thread that catches signals.
pub struct Unfinished(Mutex<State>);

#[derive(Default)]
struct State {
    shown: String,
    /// What there was before: none, some, some that is gone now.
    before: Before,
    /// A file under another name.
    temporary: Option<PathBuf>,
    /// A volume that can be opened, but lacks part of its content.
    open: Option<Partial>,
    done: bool,
}

/// What was at the path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Before {
    #[default]
    Nothing,
    Kept,
    Gone,
}

/// An empty volume that is being filled where another was.
pub struct Partial {
    /// The way to it.
    pub queue: Arc<RequestQueue>,
    /// Its UUID.
    pub uuid: [u8; 16],
}

impl Partial {
    /// Takes the superblocks away, so that nothing passes for a volume that is not complete. The UUID stays:
    /// the next making with it learns that there are blocks of this one.
    fn spoil(&self) -> Result<(), Errno> {
        for block in 0..2 {
            let mut page = PageBuf::zeroed(1);
            page[UUID..UUID + 16].copy_from_slice(&self.uuid);
            let segment = Segment::pages(Arc::new(page), 0, 1);
            let bio = Bio::write(Sector(block * 8), vec![segment], BioFlags::SYNC | BioFlags::META);
            self.queue.submit_wait(bio)?;
        }
        self.queue.flush()
    }
}

impl Default for Unfinished {
    fn default() -> Self {
        Unfinished(Mutex::new(&STATE, State::default()))
    }
}

impl Unfinished {
    /// A making begins at what `claim` is about, called `shown`.
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

    /// Whether what was there stays until the making ends.
    pub(crate) fn keeps_old(&self) -> bool {
        self.0.lock().before == Before::Kept
    }

    /// It is made anew.
    pub(crate) fn again(&self) {
        let mut s = self.0.lock();
        (s.open, s.temporary) = (None, None);
    }

    /// What is in place can be opened from now on.
    pub(crate) fn filling(&self, open: Partial) {
        self.0.lock().open = Some(open);
    }

    /// Completes it by `last`, unless a signal came first.
    pub(crate) fn finish<T>(&self, last: impl FnOnce() -> crate::Result<T>) -> crate::Result<T> {
        let mut s = self.0.lock();
        let done = last()?;
        *s = State { done: true, ..State::default() };
        Ok(done)
    }

    /// It failed: takes back what can be. What there is to say.
    pub(crate) fn failed(&self) -> Option<String> {
        self.0.lock().take_back()
    }

    /// A signal came: takes back what can be, and calls `end`, which ends the process, with what there is to
    /// say. The making goes on until then: it may still write to what is in place, but not complete it.
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
        let spoiled = self.open.take().map_or(Ok(()), |p| p.spoil());
        let gone = (self.before == Before::Gone).then_some("what was there before is gone");
        match (gone, spoiled) {
            (gone, Ok(())) => gone.map(str::to_string),
            (_, Err(e)) => Some(format!(
                "what is there now is only a part, and taking that back failed: {}",
                std::io::Error::from(e)
            )),
        }
    }
}
