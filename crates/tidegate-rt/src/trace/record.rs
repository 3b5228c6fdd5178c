//! The records of threads: points in time, and spans once they have ended.

use super::{Args, Event, NO_ARGS, Phase};
use crate::clock::Nanos;
use std::cmp::Reverse;

/// The kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Instant,
    Span,
    /// A wait for a lock.
    Contention,
}

impl Kind {
    #[cfg(test)]
    pub const ALL: [Kind; 3] = [Kind::Instant, Kind::Span, Kind::Contention];

    #[inline]
    pub fn is_span(self) -> bool {
        self != Kind::Instant
    }

    /// The number of its events.
    #[inline]
    pub fn events(self) -> usize {
        1 + usize::from(self.is_span())
    }

    fn phases(self) -> (Phase, Phase) {
        match self {
            Kind::Instant => (Phase::Instant, Phase::Instant),
            Kind::Span => (Phase::Begin, Phase::End),
            Kind::Contention => (Phase::ContentionBegin, Phase::ContentionEnd),
        }
    }
}

/// A record of an event or a span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub at: Nanos,
    /// The end of a span, not before `at`. For others, `at`.
    pub until: Nanos,
    /// Its rank among all records, by their ends.
    pub ended: u32,
    pub thread: u32,
    pub name: &'static str,
    pub kind: Kind,
    pub args: Args,
}

impl Record {
    fn begin(&self) -> Event {
        let Record { at, thread, name, args, .. } = *self;
        Event { at, thread, name, phase: self.kind.phases().0, args }
    }

    fn end(&self) -> Event {
        Event {
            at: self.until,
            thread: self.thread,
            name: self.name,
            phase: self.kind.phases().1,
            args: NO_ARGS,
        }
    }
}

/// The events of `records`, in order of time; those of one thread as they happened. A thread's records come
/// in the order in which they ended: a record that ended before a span did, and not before the span began, is
/// within the span.
pub(super) fn in_order(mut records: Vec<Record>) -> Vec<Event> {
    for (n, r) in (0..).zip(&mut records) {
        r.ended = n;
    }
    records.sort_unstable_by_key(|r| (r.thread, r.at, Reverse(r.until), Reverse(r.ended)));
    let mut events = Vec::with_capacity(records.iter().map(|r| r.kind.events()).sum());
    let mut open: Vec<&Record> = Vec::new();
    for r in &records {
        let is_over = |o: &&Record| o.thread != r.thread || o.until < r.at || o.ended < r.ended;
        while let Some(over) = open.pop_if(|o| is_over(o)) {
            events.push(over.end());
        }
        events.push(r.begin());
        if r.kind.is_span() {
            open.push(r);
        }
    }
    events.extend(open.into_iter().rev().map(Record::end));
    drop(records);
    // The sort is stable: events of one time stay in their thread's order.
    events.sort_by_key(|e| e.at);
    events
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(name: &'static str, at: u64, until: u64, thread: u32) -> Record {
        let kind = if name == "point" { Kind::Instant } else { Kind::Span };
        Record { at: Nanos(at), until: Nanos(until), ended: 0, thread, name, kind, args: NO_ARGS }
    }

    #[test]
    fn spans_are_around_what_happened_in_them() {
        // The order in which threads record: the first to end comes first.
        let records = vec![
            record("point", 15, 15, 1),
            record("inner", 10, 20, 1),
            record("next", 20, 30, 1),
            record("middle", 10, 30, 1),
            record("outer", 10, 30, 1),
            record("last", 31, 32, 1),
            record("brief", 40, 40, 1),
            record("point", 40, 40, 1),
            record("around", 40, 40, 1),
            record("other", 12, 31, 2),
        ];
        let found: Vec<_> = in_order(records).iter().map(|e| (e.at.0, e.name, e.phase)).collect();
        use Phase::*;
        let want = [
            (10, "outer", Begin),
            (10, "middle", Begin),
            (10, "inner", Begin),
            (12, "other", Begin),
            (15, "point", Instant),
            (20, "inner", End),
            (20, "next", Begin),
            (30, "next", End),
            (30, "middle", End),
            (30, "outer", End),
            (31, "last", Begin),
            (31, "other", End),
            (32, "last", End),
            (40, "around", Begin),
            (40, "point", Instant),
            (40, "brief", Begin),
            (40, "brief", End),
            (40, "around", End),
        ];
        assert_eq!(found, want);
    }
}
