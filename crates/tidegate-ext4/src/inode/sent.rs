//! Runs of pages on their way that may make a file longer, in the order in which they were sent.
//!
//! The table says that a file is as long as the data of all runs up to the first that is not on the device
//! yet. A power cut so shows no size ahead of its data, and a page that is written later holds nothing up. A
//! run that overtakes another is held until then: a block that is marked written lies within the table's size.

use std::collections::{BTreeMap, BTreeSet};

/// The runs of one file, of which those on the device that wait for others are kept as `T`.
#[derive(Debug)]
pub(crate) struct Sent<T> {
    /// The number of the next run.
    next: u64,
    /// Runs that have not ended.
    on_way: BTreeSet<u64>,
    /// Some of these, which wait for earlier ones.
    held: BTreeMap<u64, T>,
}

impl<T> Default for Sent<T> {
    fn default() -> Self {
        Sent { next: 0, on_way: BTreeSet::new(), held: BTreeMap::new() }
    }
}

impl<T> Sent<T> {
    /// Adds a run, which is on its way; its number.
    pub(crate) fn send(&mut self) -> u64 {
        self.next += 1;
        self.on_way.insert(self.next);
        self.next
    }

    /// The first run that has not ended and is none of these, whose numbers are in order.
    pub(crate) fn first_but(&self, these: &[u64]) -> Option<u64> {
        self.on_way.iter().copied().find(|n| these.binary_search(n).is_err())
    }

    /// Keeps a run until those before it have ended.
    pub(crate) fn hold(&mut self, number: u64, run: T) {
        self.held.insert(number, run);
    }

    /// A run is marked, or did not get there. Returns the held runs that no other one is before now.
    pub(crate) fn end(&mut self, number: u64) -> Vec<T> {
        self.on_way.remove(&number);
        if self.held.is_empty() {
            return Vec::new();
        }
        self.on_way.iter().map_while(|n| self.held.remove(n)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_held_until_those_sent_before_it_have_ended() {
        let mut sent = Sent::default();
        let runs: Vec<u64> = (0..5).map(|_| sent.send()).collect();
        assert_eq!(sent.first_but(&[]), Some(runs[0]));
        assert_eq!(sent.first_but(&runs[..2]), Some(runs[2]));
        assert_eq!(sent.first_but(&runs), None);
        for n in [4, 1, 2] {
            sent.hold(runs[n], n);
        }
        assert_eq!(sent.end(runs[0]), [1, 2]);
        // Until these have ended, others wait.
        assert_eq!(sent.first_but(&[]), Some(runs[1]));
        assert_eq!((sent.end(runs[1]), sent.end(runs[2])), (vec![], vec![]));
        assert_eq!(sent.end(runs[3]), [4]);
        assert!(sent.end(runs[4]).is_empty());
        assert!(sent.send() > runs[4]);
    }
}
