//! Runs of pages on their way that make a file longer, in the order in which they were sent.
//!
//! The table says that a file is as long as the data of all runs up to the first that is not on the device
//! yet. A power cut so shows no size ahead of its data, and a page that is written later holds nothing up.

use std::collections::VecDeque;

/// Where a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Run {
    OnWay,
    /// On the device: the file is as long as this, in bytes.
    Arrived(u64),
    /// Its pages are dirty still, or are no part of the file any more.
    Lost,
}

/// The runs of one file.
#[derive(Debug, Default)]
pub(crate) struct Sent {
    runs: VecDeque<Run>,
    /// The number of the first of them.
    first: u64,
}

impl Sent {
    /// Adds a run, which is on its way; its number.
    pub(crate) fn send(&mut self) -> u64 {
        self.runs.push_back(Run::OnWay);
        self.first + self.runs.len() as u64 - 1
    }

    fn set(&mut self, number: u64, to: Run) {
        let slot = number.checked_sub(self.first).and_then(|n| self.runs.get_mut(n as usize));
        if let Some(run) = slot {
            *run = to;
        }
    }

    /// A run is on the device, and the file `size` bytes long with it.
    pub(crate) fn arrived(&mut self, number: u64, size: u64) {
        self.set(number, Run::Arrived(size));
    }

    /// A run did not get there.
    pub(crate) fn lost(&mut self, number: u64) {
        self.set(number, Run::Lost);
    }

    /// The size with all runs that are through, up to the first that is on its way, and the number of that one.
    pub(crate) fn due(&self) -> (u64, u64) {
        let through = self.runs.iter().take_while(|r| **r != Run::OnWay).map(Run::size);
        through.fold((0, self.first), |(size, number), run| (run.max(size), number + 1))
    }

    /// The table says what the runs before number `end` made due. Two threads may have seen the same: a run
    /// that one has forgotten is no matter of the other's.
    pub(crate) fn forget(&mut self, end: u64) {
        let n = end.saturating_sub(self.first);
        self.runs.drain(..(n as usize).min(self.runs.len()));
        self.first += n;
    }

    /// The size with all that is on the device, whatever is missing before it.
    pub(crate) fn farthest(&self) -> u64 {
        self.runs.iter().map(Run::size).max().unwrap_or(0)
    }

    /// The file is no longer than this, and its runs behind that have ended.
    pub(crate) fn cut(&mut self, size: u64) {
        for run in &mut self.runs {
            if let Run::Arrived(end) = run {
                *end = size.min(*end);
            }
        }
    }

    /// Whether no run is on its way.
    pub(crate) fn is_settled(&self) -> bool {
        self.runs.iter().all(|r| *r != Run::OnWay)
    }
}

impl Run {
    fn size(&self) -> u64 {
        match self {
            Run::Arrived(size) => *size,
            Run::OnWay | Run::Lost => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_waits_for_those_sent_before_it() {
        let mut sent = Sent::default();
        let runs: Vec<u64> = (0..4).map(|_| sent.send()).collect();
        sent.arrived(runs[2], 300);
        assert_eq!((sent.due(), sent.farthest()), ((0, 0), 300));
        sent.arrived(runs[0], 100);
        assert_eq!(sent.due(), (100, 1));
        sent.lost(runs[1]);
        sent.forget(1);
        assert_eq!(sent.due(), (300, 3));
        // By two threads that both saw that.
        sent.forget(3);
        sent.forget(3);
        // Those that are forgotten are no others.
        sent.arrived(runs[0], 999);
        assert_eq!((sent.due(), sent.is_settled()), ((0, 3), false));
        sent.arrived(runs[3], 400);
        sent.cut(350);
        assert_eq!(sent.due(), (350, 4));
        sent.forget(1);
        assert_eq!(sent.due(), (350, 4));
        sent.forget(4);
        assert!(sent.is_settled());
        assert_eq!(sent.send(), 4);
    }
}
