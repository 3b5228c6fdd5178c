//! The sums of the counts of several threads.

use super::slots::{Count, End, Place, Slots, Times, Waits};
use super::{CallPoint, Span};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

fn count_at(places: &mut Vec<Place>, more: Place) {
    match places.iter_mut().find(|p| p.is(&more)) {
        Some(p) => p.count += more.count,
        None => places.push(more),
    }
}

/// The most frequent places at that end, at most `most`. Places of equal count are in order of name, since
/// threads end in any order.
pub(super) fn most_frequent<'a>(
    places: impl Iterator<Item = &'a Place>,
    end: End,
    most: usize,
) -> Vec<CallPoint> {
    let mut all = Vec::new();
    places.filter(|p| p.end == end).for_each(|p| count_at(&mut all, *p));
    let point = |p: &Place| CallPoint { file: p.at.file(), line: p.at.line(), count: p.count };
    let mut points: Vec<CallPoint> = all.iter().map(point).collect();
    points.sort_by_key(|p| (std::cmp::Reverse(p.count), p.file, p.line));
    points.truncate(most);
    points
}

/// Counts of several threads.
#[derive(Clone, Debug, Default)]
pub(super) struct Sum {
    pub taken: u64,
    always: u64,
    /// Number and total time of timed holds, by [`Timed`].
    holds: [(u64, u64); 3],
    min: Option<u64>,
    max: u64,
    /// Times waited, without the mean.
    wait: Span,
    pub waits: u64,
    pub bounces: u64,
    pub places: Vec<Place>,
}

impl Sum {
    pub(super) fn add(&mut self, slots: &Slots, class: usize) {
        let used = class < slots.used.load(Relaxed);
        if let Some((count, times)) = slots.counts.get(class).zip(slots.times.get(class)).filter(|_| used) {
            self.add_class(count, times);
            self.add_waits(&slots.waits[class]);
            let places = slots.places.lock();
            places.iter().filter(|p| p.0 == class).for_each(|p| count_at(&mut self.places, p.1));
        }
    }

    fn add_waits(&mut self, waits: &Waits) {
        let get = |a: &AtomicU64| a.load(Relaxed);
        let n = get(&waits.n);
        if n > 0 {
            let least = if self.waits == 0 { u64::MAX } else { self.wait.min };
            self.wait.min = least.min(get(&waits.min));
            self.wait.max = self.wait.max.max(get(&waits.max));
            self.wait.total += get(&waits.total);
            self.waits += n;
            self.bounces += get(&waits.bounces);
        }
    }

    /// Times waited.
    pub fn waited(&self) -> Span {
        Span { avg: self.wait.total.checked_div(self.waits).unwrap_or(0), ..self.wait }
    }

    fn add_class(&mut self, count: &Count, times: &Times) {
        let get = |a: &AtomicU64| a.load(Relaxed);
        self.taken += count.taken();
        self.always += get(&times.always);
        let mut any = false;
        for (sum, holds) in self.holds.iter_mut().zip(&times.holds) {
            any |= get(&holds.n) > 0;
            *sum = (sum.0 + get(&holds.n), sum.1 + get(&holds.total));
        }
        if any {
            let min = get(&times.min);
            self.min = Some(self.min.map_or(min, |m| m.min(min)));
            self.max = self.max.max(get(&times.max));
        }
    }

    /// Times held. Drawn holds stand for the others; where there are none, each thread's first does.
    pub fn span(&self) -> Span {
        let [always, drawn, first] = self.holds;
        let (n, of) = if drawn.0 > 0 { drawn } else { first };
        let others = u128::from(self.taken.saturating_sub(self.always));
        let total =
            always.1 + first.1 + (u128::from(of) * others).checked_div(u128::from(n)).unwrap_or(0) as u64;
        let avg = total.checked_div(self.taken).unwrap_or(0);
        Span { min: self.min.unwrap_or(0), max: self.max, total, avg }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lockstat::slots::Holds;

    fn add(sum: &mut Sum, taken: u64, always: u64, holds: [(u64, u64); 3]) {
        let holds = holds.map(|(n, total)| Holds { n: n.into(), total: total.into() });
        let times = Times { always: always.into(), holds, max: 9.into(), ..Times::default() };
        let count = Count::default();
        count.set(taken, 9);
        sum.add_class(&count, &times);
    }

    #[test]
    fn drawn_holds_stand_for_those_that_were_not() {
        let mut sum = Sum::default();
        // A long hold that is always timed does not stand for others.
        add(&mut sum, 101, 1, [(1, 5000), (10, 50), (0, 0)]);
        assert_eq!(sum.span().total, 5000 + 100 * 5);
        add(&mut sum, 50, 50, [(50, 100), (0, 0), (0, 0)]);
        assert_eq!((sum.taken, sum.span().total), (151, 5000 + 100 + 100 * 5));
        assert_eq!(sum.span().avg, 5600 / 151);
        assert_eq!(Sum::default().span().total, 0);
    }

    #[test]
    fn the_first_stands_for_others_while_none_was_drawn() {
        let mut sum = Sum::default();
        add(&mut sum, 21, 2, [(1, 50_000), (0, 0), (1, 10)]);
        assert_eq!(sum.span().total, 50_000 + 10 + 19 * 10);
    }
}
