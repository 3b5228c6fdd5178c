//! Bugs on purpose, to show that the crash explorer finds such.
//!
//! Each place that has one asks `Planted::is`, which says no in builds without the feature `planted-bugs`.

/// A bug that can be planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlantedBug {
    /// The checkpoint's tail block is written without flushing what it vouches for.
    MissingFlush,
    /// A segment that became empty since the last checkpoint is used again before the next.
    EarlyReuse,
    /// fsync of a new file does not mark its inode as one whose name is to be recovered.
    WrongDentryMark,
}

impl PlantedBug {
    /// Every bug.
    pub const ALL: [PlantedBug; 3] =
        [PlantedBug::MissingFlush, PlantedBug::EarlyReuse, PlantedBug::WrongDentryMark];

    /// Its name on a command line.
    pub fn name(self) -> &'static str {
        match self {
            PlantedBug::MissingFlush => "missing-flush",
            PlantedBug::EarlyReuse => "early-reuse",
            PlantedBug::WrongDentryMark => "wrong-dentry-mark",
        }
    }
}

impl std::str::FromStr for PlantedBug {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|bug| bug.name() == name);
        found.ok_or_else(|| format!("it must be one of {}", Self::ALL.map(Self::name).join(", ")))
    }
}

/// The bug that is planted in an engine; by default none.
#[derive(Clone, Copy, Debug, Default)]
pub struct Planted(#[cfg(feature = "planted-bugs")] Option<PlantedBug>);

impl Planted {
    /// Plants `bug`; `None` in builds that cannot.
    #[cfg(feature = "planted-bugs")]
    pub fn new(bug: PlantedBug) -> Option<Self> {
        Some(Planted(Some(bug)))
    }

    /// Plants `bug`; `None` in builds that cannot.
    #[cfg(not(feature = "planted-bugs"))]
    pub fn new(_: PlantedBug) -> Option<Self> {
        None
    }

    #[cfg(feature = "planted-bugs")]
    pub(crate) fn is(self, bug: PlantedBug) -> bool {
        self.0 == Some(bug)
    }

    #[cfg(not(feature = "planted-bugs"))]
    pub(crate) fn is(self, _: PlantedBug) -> bool {
        false
    }
}
