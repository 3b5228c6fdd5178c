//! Runs of pages on their way that may make a file longer, in the order in which they were sent.
//!
//! The file's size in the table covers the data of all runs up to the first that is not on the device yet. So
//! a power cut shows no size ahead of its data, and a page that is written later delays nothing. A run that
//! overtakes an earlier one is held until the earlier one has ended: a block that is marked written must lie
//! within the table's size.

use std::collections::BTreeMap;

/// The runs of one file. Runs that are on the device but wait for others are kept as `T`.
#[derive(Debug)]
pub(crate) struct Sent<T> {
    /// The number of the next run.
    next: u64,
    /// Runs that have not ended, and the byte of the file to which each reaches.
    on_way: BTreeMap<u64, u64>,
    /// The byte to which they reach.
    reach: u64,
    /// The runs among them that wait for earlier ones.
    held: BTreeMap<u64, T>,
}

impl<T> Default for Sent<T> {
    fn default() -> Self {
        Sent { next: 0, on_way: BTreeMap::new(), reach: 0, held: BTreeMap::new() }
    }
}

impl<T> Sent<T> {
    /// Adds a run, which is on its way and reaches to byte `end` of the file; returns its number.
    pub(crate) fn send(&mut self, end: u64) -> u64 {
        self.next += 1;
        self.on_way.insert(self.next, end);
        self.reach = self.reach.max(end);
        self.next
    }

    /// Notes that only the part of a run up to byte `end` was sent.
    pub(crate) fn shorten(&mut self, number: u64, end: u64) {
        let before = self.on_way.insert(number, end);
        self.reaches_less(before);
    }

    /// Called when a run that reached to byte `before` reaches less far, or has ended.
    fn reaches_less(&mut self, before: Option<u64>) {
        // A pass goes on to the end of a file, so the last of its runs reaches farthest, and few are left when it ends.
        if before == Some(self.reach) {
            self.reach = self.on_way.values().copied().max().unwrap_or(0);
        }
    }

    /// The byte to which the runs on their way reach; 0 without any.
    pub(crate) fn end_of_all(&self) -> u64 {
        self.reach
    }

    /// The first run that has not ended and is not among `these`, whose numbers are in order.
    pub(crate) fn first_but(&self, these: &[u64]) -> Option<u64> {
        self.on_way.keys().copied().find(|n| these.binary_search(n).is_err())
    }

    /// Keeps a run until the runs before it have ended.
    pub(crate) fn hold(&mut self, number: u64, run: T) {
        self.held.insert(number, run);
    }

    /// Ends a run: it is marked, or did not reach the device. Returns the held runs that have no other run
    /// before them now.
    pub(crate) fn end(&mut self, number: u64) -> Vec<T> {
        let before = self.on_way.remove(&number);
        self.reaches_less(before);
        if self.held.is_empty() {
            return Vec::new();
        }
        self.on_way.keys().map_while(|n| self.held.remove(n)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_held_until_those_sent_before_it_have_ended() {
        let mut sent = Sent::default();
        let runs: Vec<u64> = (0..5).map(|n| sent.send(100 * n)).collect();
        assert_eq!(sent.first_but(&[]), Some(runs[0]));
        assert_eq!(sent.first_but(&runs[..2]), Some(runs[2]));
        assert_eq!(sent.first_but(&runs), None);
        for n in [4, 1, 2] {
            sent.hold(runs[n], n);
        }
        assert_eq!(sent.end(runs[0]), [1, 2]);
        // Until these runs have ended, others wait.
        assert_eq!(sent.first_but(&[]), Some(runs[1]));
        assert_eq!((sent.end(runs[1]), sent.end(runs[2])), (vec![], vec![]));
        assert_eq!(sent.end_of_all(), 400);
        assert_eq!(sent.end(runs[3]), [4]);
        sent.shorten(runs[4], 350);
        assert_eq!(sent.end_of_all(), 350);
        assert!(sent.end(runs[4]).is_empty());
        assert_eq!(sent.end_of_all(), 0);
        assert!(sent.send(7) > runs[4]);
    }
}
