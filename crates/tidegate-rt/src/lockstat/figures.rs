//! The figures and places that are reported for a class of locks.

/// One class's figures.
#[derive(Clone, Debug, Default)]
pub struct LockStat {
    /// The class's name.
    pub class: &'static str,
    /// The figures of exclusive acquisitions.
    pub alone: Figures,
    /// The figures of shared acquisitions.
    pub shared: Figures,
    /// The places where waiting threads were about to take the lock, the most frequent first.
    pub waiting: Vec<CallPoint>,
    /// The places where the lock had been taken: those of the holders that the threads waited for.
    pub holding: Vec<CallPoint>,
}

impl LockStat {
    /// The figures of all acquisitions.
    pub fn all(&self) -> Figures {
        self.alone.and(&self.shared)
    }
}

/// Figures of one way to take locks of a class. Times are in nanoseconds.
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
    /// Its file, in the spelling of the compiler.
    pub file: &'static str,
    /// The line, from 1.
    pub line: u32,
    /// How often the place was counted.
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
    /// The sum of two, of so many times each.
    fn and(&self, other: &Span, (mine, others): (u64, u64)) -> Span {
        // The counts do not decide: a lock that is still held is counted and has no time yet.
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
