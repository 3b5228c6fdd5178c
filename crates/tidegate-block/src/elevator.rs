//! The choice of the next request.

use std::time::Duration;
use tidegate_rt::Nanos;

/// How a request queue orders requests.
#[derive(Clone, Copy, Debug, Default)]
pub enum Elevator {
    /// Requests go to the device as they come.
    #[default]
    None,
    /// Priority classes, and weighted fair queueing by I/O group and level within a class.
    Wfq(WfqOptions),
}

/// The owner of a queue of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Queues {
    /// Each I/O group's, and in a group each level's.
    #[default]
    Groups,
    /// As BFQ and CFQ have them without cgroups: requests that a thread waits for, in a queue of the thread
    /// that submits them; all others in one queue for each level, from any thread. A thread's level is its
    /// weight (8 − level), as `ioprio` is in BFQ. So a thousand asynchronous writes have no larger share than
    /// one thread that reads.
    Processes,
}

/// Options of [`Elevator::Wfq`].
#[derive(Clone, Copy, Debug)]
pub struct WfqOptions {
    /// Requests at the device at a time, at least 1. The smaller, the more the elevator decides and the
    /// less the device.
    pub depth: usize,
    /// One request at the device at a time, and idling whenever the queue in service has nothing to send, be it
    /// synchronous or not: the shares hold whatever submitters do, and throughput pays. As BFQ's tunable of this
    /// name (`Documentation/block/bfq-iosched.rst`).
    pub strict_guarantees: bool,
    /// The queues that share: those of I/O groups and levels, or those of threads.
    pub queues: Queues,
    /// Bytes that a queue is served before others are looked at, as long as it sends: a synchronous one, or with
    /// `strict_guarantees` any.
    pub max_budget: u64,
    /// Time for which it is served at most, in the same way.
    pub timeout_sync: Duration,
    /// How long the device is kept idle for the next request of the queue in service. Without
    /// `strict_guarantees` only for a synchronous one, where the busy groups' weights differ and its requests have
    /// been coming that soon. Zero: never.
    pub slice_idle: Duration,
    /// How long the other classes must have had nothing to do before the idle class is served.
    pub idle_class_delay: Duration,
    /// How long the idle class waits at most for one request to be served.
    pub idle_class_expire: Duration,
}

impl Default for WfqOptions {
    fn default() -> Self {
        WfqOptions {
            depth: 4,
            strict_guarantees: false,
            queues: Queues::Groups,
            max_budget: 8 << 20,
            timeout_sync: Duration::from_millis(125),
            slice_idle: Duration::from_millis(8),
            idle_class_delay: Duration::from_millis(2),
            idle_class_expire: Duration::from_millis(250),
        }
    }
}

/// An elevator's work for one class of one group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ElevatorStats {
    /// The I/O group. With [`Queues::Processes`] 1 for all that somebody waits for, 0 for the rest.
    pub group: u32,
    /// Priority class: 1 real-time, 2 best-effort, 3 idle.
    pub class: u8,
    /// The group's weight now.
    pub weight: u32,
    /// Requests sent to the device.
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Time they waited in the elevator, together.
    pub wait_total: Nanos,
    /// The longest of these waits.
    pub wait_max: Nanos,
    /// Times the device was kept idle for the next request.
    pub idled: u64,
}
