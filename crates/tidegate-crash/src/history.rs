//! The value of something after each operation.

/// A value and its changes, each with the number of operations done by then.
#[derive(Clone, Debug)]
pub struct History<T>(Vec<(usize, T)>);

impl<T: Default + Clone + PartialEq> Default for History<T> {
    fn default() -> Self {
        History(vec![(0, T::default())])
    }
}

impl<T: Default + Clone + PartialEq> History<T> {
    /// Records that the value became `v` in state `at`, which is not before the last change.
    pub fn set(&mut self, at: usize, v: T) {
        match self.0.last_mut() {
            Some(last) if last.0 == at => last.1 = v,
            Some(last) if last.1 == v => {}
            _ => self.0.push((at, v)),
        }
    }

    /// A history with the current value only.
    pub fn settled(self) -> Self {
        History(self.0.into_iter().next_back().map(|last| (0, last.1)).into_iter().collect())
    }

    /// The current value.
    pub fn now(&self) -> &T {
        &self.0[self.0.len() - 1].1
    }

    /// Records that the value became `v` in state `at`, and that it was `on_the_way` during that operation.
    pub fn set_through(&mut self, at: usize, on_the_way: T, v: T) {
        self.set(at, on_the_way);
        if *self.now() != v {
            self.0.push((at, v));
        }
    }

    /// The changes after state `from` up to state `to`, newest first: the state, the old value, the new
    /// value.
    pub fn changes(&self, from: usize, to: usize) -> impl Iterator<Item = (usize, &T, &T)> {
        let pairs = self.0.windows(2).map(|w| (w[1].0, &w[0].1, &w[1].1));
        pairs.rev().filter(move |c| c.0 > from && c.0 <= to)
    }

    /// The value in a state.
    pub fn at(&self, state: usize) -> &T {
        &self.0[self.0.partition_point(|c| c.0 <= state) - 1].1
    }

    /// Every value it had from state `from` to state `to`, newest first.
    pub fn between(&self, from: usize, to: usize) -> impl Iterator<Item = &T> {
        let newest = self.0.partition_point(|c| c.0 <= to);
        let oldest = self.0.partition_point(|c| c.0 <= from).saturating_sub(1);
        self.0[oldest..newest].iter().rev().map(|c| &c.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_begins_with_the_value_then_valid() {
        let mut h = History::default();
        h.set(2, 'a');
        h.set(5, 'b');
        let all = |from, to| h.between(from, to).copied().collect::<String>();
        assert_eq!(all(0, 1), "\0");
        assert_eq!(all(0, 2), "a\0");
        assert_eq!(all(3, 4), "a");
        assert_eq!(all(4, 9), "ba");
        assert_eq!(all(5, 5), "b");
        assert_eq!(h.changes(2, 9).collect::<Vec<_>>(), [(5, &'a', &'b')]);
        h.set_through(7, 'c', 'd');
        let all = |from, to| h.between(from, to).copied().collect::<String>();
        assert_eq!(all(5, 6), "b");
        assert_eq!(all(5, 7), "dcb");
        assert_eq!(all(7, 9), "d");
    }
}
