//! The choice of the next request.

use std::time::Duration;
use tidegate_rt::Nanos;

/// How a request queue orders requests.
#[derive(Clone, Copy, Debug, Default)]
pub enum Elevator {
    /// Requests go to the device in the order in which they come.
    #[default]
    None,
    /// Priority classes, and weighted fair queueing by I/O group and level within a class.
    Wfq(WfqOptions),
}

/// The owners of the queues of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Queues {
    /// Each I/O group has a queue, and in a group each level has one.
    #[default]
    Groups,
    /// As in BFQ and CFQ without cgroups: synchronous requests are in a queue of the thread that submits
    /// them. Asynchronous requests of any thread are in one queue for each level. The level of a thread gives
    /// its weight (8 − level), as `ioprio` does in BFQ. So a thousand asynchronous writes have no larger
    /// share than one thread that reads.
    Processes,
}

/// Options of [`Elevator::Wfq`].
#[derive(Clone, Copy, Debug)]
pub struct WfqOptions {
    /// The most requests at the device at a time, at least 1. With fewer, the elevator decides more and the
    /// device less.
    pub depth: usize,
    /// One request is at the device at a time, and the device idles whenever the queue in service has nothing to send,
    /// be the queue synchronous or not. The shares then hold whatever submitters do, at the cost of throughput. It is
    /// BFQ's tunable of this name (`Documentation/block/bfq-iosched.rst`).
    pub strict_guarantees: bool,
    /// The queues that share the device: those of I/O groups and levels, or those of threads.
    pub queues: Queues,
    /// The bytes that a queue in service may send before another queue is chosen. Only synchronous queues stay in
    /// service; with `strict_guarantees` all do.
    pub max_budget: u64,
    /// The longest time for which such a queue stays in service.
    pub timeout_sync: Duration,
    /// How long the device is kept idle for the next request of the queue in service. Without `strict_guarantees` this
    /// is done only for a synchronous queue, where the weights of the busy groups differ and the requests of the queue
    /// have been coming that soon. Zero: never.
    pub slice_idle: Duration,
    /// How long the other classes must have been without requests before the idle class is served.
    pub idle_class_delay: Duration,
    /// The longest time that the idle class waits for one request to be served.
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

/// The work of an elevator for one class of one group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ElevatorStats {
    /// The I/O group. With [`Queues::Processes`]: 1 for synchronous requests, 0 for the others.
    pub group: u32,
    /// Priority class: 1 real-time, 2 best-effort, 3 idle.
    pub class: u8,
    /// The group's weight now.
    pub weight: u32,
    /// Requests sent to the device.
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The time that they waited in the elevator, all together.
    pub wait_total: Nanos,
    /// The longest of these waits.
    pub wait_max: Nanos,
    /// How often the device was kept idle for the next request.
    pub idled: u64,
}
