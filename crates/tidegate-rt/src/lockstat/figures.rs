//! Figures and places that are told of a class of locks.

/// One class's figures.
#[derive(Clone, Debug, Default)]
pub struct LockStat {
    /// The class's name.
    pub class: &'static str,
    /// Of those who took a lock alone.
    pub alone: Figures,
    /// Of those who shared one.
    pub shared: Figures,
    /// Where waiting threads were about to take the lock, the most frequent place first.
    pub waiting: Vec<CallPoint>,
    /// Where it had been taken last by then: the holder that was in the way.
    pub holding: Vec<CallPoint>,
}

impl LockStat {
    /// Of all who took a lock.
    pub fn all(&self) -> Figures {
        self.alone.and(&self.shared)
    }
}

/// Figures of one way to take locks of a class; times in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    /// Acquisitions that had to wait.
    pub contentions: u64,
    /// Time waited in contended acquisitions.
    pub wait: Span,
    /// All acquisitions.
    pub acquisitions: u64,
    /// Time held.
    pub hold: Span,
    /// Contended acquisitions by another thread than the last contended one.
    pub con_bounces: u64,
    /// Acquisitions by another thread than the last one.
    pub acq_bounces: u64,
}

impl Figures {
    fn and(&self, other: &Figures) -> Figures {
        Figures {
            contentions: self.contentions + other.contentions,
            wait: self.wait.and(&other.wait, (self.contentions, other.contentions)),
            acquisitions: self.acquisitions + other.acquisitions,
            hold: self.hold.and(&other.hold, (self.acquisitions, other.acquisitions)),
            con_bounces: self.con_bounces + other.con_bounces,
            acq_bounces: self.acq_bounces + other.acq_bounces,
        }
    }
}

/// A place in the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallPoint {
    /// Its file, as the compiler was told it.
    pub file: &'static str,
    /// The line, from 1.
    pub line: u32,
    /// How often it was there.
    pub count: u64,
}

/// Minimum, maximum and total of a time, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Span {
    /// Shortest; 0 when nothing was counted.
    pub min: u64,
    /// Longest.
    pub max: u64,
    /// Sum.
    pub total: u64,
    /// Mean; 0 when nothing was counted.
    pub avg: u64,
}

impl Span {
    /// Both, of so many times each.
    fn and(&self, other: &Span, (mine, others): (u64, u64)) -> Span {
        // Not by how many there are: a lock that is held still is counted and has no time yet.
        let min = match (self.max, other.max) {
            (_, 0) => self.min,
            (0, _) => other.min,
            _ => self.min.min(other.min),
        };
        let total = self.total + other.total;
        let avg = total.checked_div(mine + others).unwrap_or(0);
        Span { min, max: self.max.max(other.max), total, avg }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_is_held_still_has_no_least_time() {
        let span = |min, max, total| Span { min, max, total, avg: total };
        let alone = Figures { acquisitions: 1, hold: span(30, 30, 30), ..Figures::default() };
        let shared = Figures { acquisitions: 1, ..Figures::default() };
        for all in [alone.and(&shared), shared.and(&alone)] {
            assert_eq!((all.acquisitions, all.hold.min, all.hold.max), (2, 30, 30));
        }
        let shorter = Figures { acquisitions: 1, hold: span(20, 20, 20), ..Figures::default() };
        assert_eq!(alone.and(&shorter).hold.min, 20);
    }
}
