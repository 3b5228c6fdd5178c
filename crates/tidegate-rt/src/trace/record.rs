//! What threads record: points in time, and spans once they have ended.

use super::{Args, Event, NO_ARGS, Phase};
use crate::clock::Nanos;
use std::cmp::Reverse;

/// What a record is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Instant,
    Span,
    /// A wait for a lock.
    Contention,
}

impl Kind {
    pub const ALL: [Kind; 3] = [Kind::Instant, Kind::Span, Kind::Contention];

    pub fn is_span(self) -> bool {
        self != Kind::Instant
    }

    /// Events that it makes.
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

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub at: Nanos,
    /// The end of a span; `at` otherwise.
    pub until: Nanos,
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

/// The events of `records`, in order of time, those of one thread as they happened. A thread's records come in the
/// order in which they ended: of two spans with the same times, the later is around the other.
pub(super) fn in_order(records: Vec<Record>) -> Vec<Event> {
    let mut records: Vec<(usize, Record)> = records.into_iter().enumerate().collect();
    records.sort_unstable_by_key(|(n, r)| (r.thread, r.at, Reverse(r.until), Reverse(*n)));
    let mut events = Vec::with_capacity(2 * records.len());
    let mut open: Vec<&Record> = Vec::new();
    for (_, r) in &records {
        while let Some(over) = open.pop_if(|o| o.thread != r.thread || o.until <= r.at) {
            events.push(over.end());
        }
        events.push(r.begin());
        if r.kind.is_span() {
            open.push(r);
        }
    }
    events.extend(open.into_iter().rev().map(Record::end));
    // Stable: what happened at one time stays in its thread's order.
    events.sort_by_key(|e| e.at);
    events
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(name: &'static str, at: u64, until: u64, thread: u32) -> Record {
        let kind = if at == until { Kind::Instant } else { Kind::Span };
        Record { at: Nanos(at), until: Nanos(until), thread, name, kind, args: NO_ARGS }
    }

    #[test]
    fn spans_are_around_what_happened_in_them() {
        // As threads record them: what ends first comes first.
        let records = vec![
            record("point", 15, 15, 1),
            record("inner", 10, 20, 1),
            record("next", 20, 30, 1),
            record("middle", 10, 30, 1),
            record("outer", 10, 30, 1),
            record("last", 31, 32, 1),
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
        ];
        assert_eq!(found, want);
    }
}
