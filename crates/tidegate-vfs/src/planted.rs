//! Bugs on purpose, to show that the crash explorer finds them.
//!
//! Each place with a planted bug calls [`Planted::is`]. In builds without debug assertions the answer is no, unless
//! they have the feature `planted-bugs`.

/// A bug that can be planted. A format has those bugs that are possible with its way of committing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlantedBug {
    /// The last block of a commit is written without first flushing the blocks that it commits.
    MissingFlush,
    /// Blocks are used again before the commit that frees them.
    EarlyReuse,
    /// fsync of a new file does not mark its node so that the name is recovered.
    WrongDentryMark,
    /// A freed block of metadata is not revoked: recovery writes the log's copy over the block's new content.
    MissingRevoke,
    /// A file gets its size when its blocks are allocated, before the data is written.
    EarlySize,
    /// The volume says that it needs no recovery before the blocks in the log are written to their places.
    EarlyClean,
}

impl PlantedBug {
    /// Every bug.
    pub const ALL: [PlantedBug; 6] = [
        PlantedBug::MissingFlush,
        PlantedBug::EarlyReuse,
        PlantedBug::WrongDentryMark,
        PlantedBug::MissingRevoke,
        PlantedBug::EarlySize,
        PlantedBug::EarlyClean,
    ];

    /// Its name on a command line.
    pub fn name(self) -> &'static str {
        match self {
            PlantedBug::MissingFlush => "missing-flush",
            PlantedBug::EarlyReuse => "early-reuse",
            PlantedBug::WrongDentryMark => "wrong-dentry-mark",
            PlantedBug::MissingRevoke => "missing-revoke",
            PlantedBug::EarlySize => "early-size",
            PlantedBug::EarlyClean => "early-clean",
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
pub struct Planted(#[cfg(any(debug_assertions, feature = "planted-bugs"))] Option<PlantedBug>);

impl Planted {
    /// Plants `bug`; `None` in builds that cannot.
    #[cfg(any(debug_assertions, feature = "planted-bugs"))]
    pub fn new(bug: PlantedBug) -> Option<Self> {
        Some(Planted(Some(bug)))
    }

    /// Plants `bug`; `None` in builds that cannot.
    #[cfg(not(any(debug_assertions, feature = "planted-bugs")))]
    pub fn new(_: PlantedBug) -> Option<Self> {
        None
    }

    /// Whether `bug` is the planted bug.
    #[cfg(any(debug_assertions, feature = "planted-bugs"))]
    pub fn is(self, bug: PlantedBug) -> bool {
        self.0 == Some(bug)
    }

    /// Whether `bug` is the planted bug.
    #[cfg(not(any(debug_assertions, feature = "planted-bugs")))]
    pub fn is(self, _: PlantedBug) -> bool {
        false
    }
}
