//! A recording of the process's work, from a beginning to an end.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use tidegate_rt::lockstat::{self, Collecting, LockStat};
use tidegate_rt::trace::{self, Recorded};
use tidegate_rt::{Nanos, clock};

/// Rings and trees belong to the process, so there is one recording at a time.
static UNDER_WAY: AtomicBool = AtomicBool::new(false);

/// The parts of a recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Lock statistics.
    pub locks: bool,
    /// Events: the number of last events that are kept of each thread.
    pub events: Option<usize>,
    /// Call trees.
    pub calls: bool,
    /// Also events that say why threads waited: long holds of locks, processor time of operations.
    pub causes: bool,
}

impl Wanted {
    /// Whether there is anything to record.
    pub fn anything(&self) -> bool {
        self.locks || self.events.is_some() || self.calls
    }
}

/// A running recording. Dropping it discards the records.
pub struct Recording {
    wanted: Wanted,
    since: Nanos,
    collecting: Option<Collecting>,
}

/// The result of a recording.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// The parts that were asked for.
    pub wanted: Wanted,
    /// When it began, by [`clock::stamp`], like the times of events.
    pub since: Nanos,
    /// When it ended.
    pub until: Nanos,
    /// Events and call trees.
    pub recorded: Recorded,
    /// Locks, in descending order of waiting time.
    pub locks: Vec<LockStat>,
    /// Major and minor number of the device, as events show it.
    pub device: (u32, u32),
}

impl Recording {
    /// Begins a recording. `None` while another recording of this process is running.
    pub fn start(wanted: Wanted) -> Option<Recording> {
        if UNDER_WAY.swap(true, SeqCst) {
            return None;
        }
        drop(trace::take());
        // Holds are timed only for observers of locks.
        let collecting = (wanted.locks || wanted.causes).then(lockstat::collect);
        trace::enable_causes(wanted.causes);
        trace::enable(wanted.events);
        trace::enable_calls(wanted.calls);
        Some(Recording { wanted, since: clock::stamp(), collecting })
    }

    /// Ends the recording, and returns the records.
    pub fn finish(mut self) -> Observed {
        stop();
        let locks = if self.wanted.locks { lockstat::snapshot() } else { Vec::new() };
        drop(self.collecting.take());
        Observed {
            wanted: self.wanted,
            since: self.since,
            until: clock::stamp(),
            recorded: trace::take(),
            locks,
            device: (0, 0),
        }
    }
}

fn stop() {
    trace::enable(None);
    trace::enable_calls(false);
    trace::enable_causes(false);
}

impl Drop for Recording {
    fn drop(&mut self) {
        stop();
        drop(trace::take());
        UNDER_WAY.store(false, SeqCst);
    }
}
