//! Files as they must be, in units of 256 bytes: each unit has the number of the operation that wrote it.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::fill::Rng;

/// Bytes in a unit. All content is written, truncated and compared in units.
pub const UNIT: usize = 256;

/// A single change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Make a directory unless it exists.
    MakeDir(String),
    /// Make an empty file, which does not exist yet.
    Create(String),
    /// Write `units` from `unit` on.
    Write {
        /// The file.
        name: String,
        /// First unit.
        unit: usize,
        /// Units written.
        units: usize,
        /// The number that distinguishes these bytes from all others.
        stamp: u32,
    },
    /// Set the size, in units.
    Truncate(String, usize),
    /// Punch a hole: its first unit, and its number of units.
    Punch(String, usize, usize),
    /// Set the attribute, or remove it.
    Xattr(String, Option<Vec<u8>>),
    /// Set the permissions.
    Chmod(String, u32),
    /// Remove a name if it exists.
    Unlink(String),
    /// Rename the file; an existing file of the second name is replaced.
    Rename(String, String),
    /// Give the file of the first name the second name, too.
    Link(String, String),
    /// fsync; with `true`, fdatasync.
    Sync(String, bool),
}

/// The attribute that [`Step::Xattr`] sets.
pub const XATTR: &str = "user.promise";

/// The bytes of a unit; stamp 0 stands for a hole.
pub fn content(key: u64, stamp: u32, unit: usize) -> [u8; UNIT] {
    let mut out = [0; UNIT];
    if stamp != 0 {
        Rng::new(key ^ (u64::from(stamp) << 32) ^ unit as u64).fill(&mut out);
    }
    out
}

/// A file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FileState {
    /// The stamp of each unit; the number of units is the size.
    pub units: Arc<Vec<u32>>,
    /// Permissions.
    pub mode: u32,
    /// The attribute.
    pub xattr: Option<Vec<u8>>,
}

/// The meaning of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slot {
    /// There is no file.
    Absent,
    /// A file after a failed operation: its content may be anything.
    Unknown,
    /// The number of the file.
    File(usize),
}

/// A worker's files.
#[derive(Debug, Clone, Default)]
pub struct Model {
    names: BTreeMap<String, Slot>,
    files: BTreeMap<usize, FileState>,
    next: usize,
}

impl Model {
    /// The slot of a name.
    pub fn slot(&self, name: &str) -> Slot {
        self.names.get(name).copied().unwrap_or(Slot::Absent)
    }

    /// The file of a name.
    pub fn file(&self, name: &str) -> Option<&FileState> {
        match self.slot(name) {
            Slot::File(id) => self.files.get(&id),
            _ => None,
        }
    }

    /// Every name that there ever was.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.keys().map(String::as_str)
    }

    /// Sets the names in `steps`, and the other names of their files, to unknown.
    pub fn forget(&mut self, steps: &[Step]) {
        let named: Vec<&str> = steps.iter().flat_map(Step::names).collect();
        let hit: Vec<Slot> = named.iter().map(|n| self.slot(n)).collect();
        for name in named {
            self.names.insert(name.to_owned(), Slot::Unknown);
        }
        for slot in self.names.values_mut() {
            if matches!(slot, Slot::File(_)) && hit.contains(slot) {
                *slot = Slot::Unknown;
            }
        }
    }

    /// Does a step.
    ///
    /// # Panics
    /// The step is about a file that does not exist: the plan is wrong.
    pub fn apply(&mut self, step: &Step) {
        match step {
            Step::MakeDir(_) | Step::Sync(..) => {}
            Step::Create(name) => {
                let id = self.next;
                self.next += 1;
                self.files.insert(id, FileState { mode: 0o644, ..Default::default() });
                self.names.insert(name.clone(), Slot::File(id));
            }
            Step::Write { name, unit, units, stamp } => {
                let u = Arc::make_mut(&mut self.must(name).units);
                u.resize(u.len().max(unit + units), 0);
                u[*unit..unit + units].fill(*stamp);
            }
            Step::Truncate(name, units) => Arc::make_mut(&mut self.must(name).units).resize(*units, 0),
            Step::Punch(name, unit, units) => {
                let u = Arc::make_mut(&mut self.must(name).units);
                let end = u.len().min(unit + units);
                if *unit < end {
                    u[*unit..end].fill(0);
                }
            }
            Step::Xattr(name, value) => self.must(name).xattr = value.clone(),
            Step::Chmod(name, mode) => self.must(name).mode = *mode,
            Step::Unlink(name) => self.remove(name),
            Step::Rename(from, to) => {
                let slot = self.slot(from);
                self.remove(to);
                self.names.insert(to.clone(), slot);
                self.names.insert(from.clone(), Slot::Absent);
            }
            Step::Link(from, to) => {
                let slot = self.slot(from);
                self.names.insert(to.clone(), slot);
            }
        }
    }

    fn must(&mut self, name: &str) -> &mut FileState {
        let Slot::File(id) = self.slot(name) else { panic!("{name} is no file") };
        self.files.get_mut(&id).expect("a name without a file")
    }

    fn remove(&mut self, name: &str) {
        let was = self.names.insert(name.to_owned(), Slot::Absent);
        if let Some(Slot::File(id)) = was
            && !self.names.values().any(|s| *s == Slot::File(id))
        {
            self.files.remove(&id);
        }
    }
}

impl Step {
    /// The names of files in it.
    pub fn names(&self) -> Vec<&str> {
        match self {
            Step::MakeDir(_) => vec![],
            Step::Rename(a, b) | Step::Link(a, b) => vec![a, b],
            Step::Create(n)
            | Step::Write { name: n, .. }
            | Step::Truncate(n, _)
            | Step::Punch(n, ..)
            | Step::Xattr(n, _)
            | Step::Chmod(n, _)
            | Step::Unlink(n)
            | Step::Sync(n, _) => vec![n],
        }
    }
}
