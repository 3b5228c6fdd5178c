//! Start-time fair queueing: a priority class, its groups, and the levels of each group.
//!
//! Each flow has the virtual time at which its next request starts. The flow with the least time is served
//! first, and its time advances by the cost of the request divided by the weight of the flow. A flow that had
//! nothing to send starts at the virtual time of the class: it neither saves credit nor pays for its service
//! while other flows had no requests.

use crate::bio::Op;
use crate::{ElevatorStats, IoContext, PAGE_SIZE, Request};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use tidegate_rt::{Nanos, WaitQueue};

pub(super) const IDLE: usize = 2;
pub(super) const LEVELS: usize = 8;
pub(super) const DEFAULT_WEIGHT: u32 = 100;
/// The default level of threads.
const DEFAULT_LEVEL: u32 = 4;
/// The highest cost of a command that moves no data, however long its range.
const RANGE_COST_MAX: u64 = 1 << 20;

/// The queue in which a request waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key {
    /// 0 real-time, 1 best-effort, 2 idle.
    pub class: usize,
    pub group: u32,
    pub level: usize,
}

impl Key {
    /// The queue of `ctx`. Class 0 means no class, which is best-effort.
    pub fn of(ctx: IoContext) -> Key {
        let class = match ctx.class {
            1 => 0,
            0 | 2 => 1,
            _ => IDLE,
        };
        Key { class, group: ctx.group, level: (ctx.level as usize).min(LEVELS - 1) }
    }

    /// The queue of a thread, with [`crate::Queues::Processes`]. Queues of asynchronous requests, one for
    /// each level, have numbers below [`LEVELS`], and queues of threads have numbers above.
    pub fn of_thread(ctx: IoContext, thread: u32, sync: bool) -> Key {
        let key = Key::of(ctx);
        let queue =
            if sync { thread.wrapping_add(1).wrapping_mul(LEVELS as u32).max(LEVELS as u32) } else { 0 };
        Key { group: queue + key.level as u32, ..key }
    }

    /// Whether the queue is a thread's, with [`crate::Queues::Processes`].
    pub fn is_of_thread(self) -> bool {
        self.group >= LEVELS as u32
    }

    /// The weight of the queue, with [`crate::Queues::Processes`].
    pub fn level_weight(self) -> u32 {
        (LEVELS - self.level) as u32 * DEFAULT_WEIGHT / DEFAULT_LEVEL
    }
}

/// A thread that waits until its request may go to the device.
#[derive(Default)]
pub(super) struct Ticket {
    granted: AtomicBool,
    wake: WaitQueue,
}

impl Ticket {
    pub fn grant(&self) {
        self.granted.store(true, SeqCst);
        self.wake.wake_all();
    }

    pub fn wait(&self) {
        self.wake.wait_until(|| self.granted.load(SeqCst));
    }
}

/// The action when it is a request's turn.
pub(super) enum Job {
    /// The request is submitted to the device.
    Send(Request),
    /// The waiting thread executes its request.
    Grant(Arc<Ticket>),
}

/// A request that waits.
pub(super) struct Entry {
    pub job: Job,
    op: Op,
    bytes: u64,
    /// The submitter waits for the request.
    pub sync: bool,
    pub since: Nanos,
}

impl Entry {
    pub fn grant(ticket: Arc<Ticket>, rq: &Request, since: Nanos) -> Self {
        Entry { job: Job::Grant(ticket), op: rq.op, bytes: rq.bytes, sync: true, since }
    }

    pub fn send(rq: Request, sync: bool, since: Nanos) -> Self {
        Entry { op: rq.op, bytes: rq.bytes, job: Job::Send(rq), sync, since }
    }

    /// Appends `rq` if it continues this request; else gives it back.
    pub fn append(&mut self, rq: Request, max_bytes: u64, max_segments: usize) -> Result<(), Request> {
        match &mut self.job {
            Job::Send(to) => to.append(rq, max_bytes, max_segments)?,
            Job::Grant(_) => return Err(rq),
        }
        if let Job::Send(to) = &self.job {
            self.bytes = to.bytes;
        }
        Ok(())
    }

    /// The cost of the request in the share of its flow, in bytes.
    pub fn cost(&self) -> u64 {
        let least = PAGE_SIZE as u64;
        match self.op {
            Op::Read | Op::Write => self.bytes.max(least),
            _ => self.bytes.clamp(least, RANGE_COST_MAX),
        }
    }
}

/// The virtual time of `cost` for a flow of `weight`.
fn virtual_time(cost: u64, weight: u64) -> u64 {
    cost.saturating_mul(1 << 10) / weight
}

/// The requests of one level of one group, in order of submission.
#[derive(Default)]
pub(super) struct Level {
    pub queue: VecDeque<Entry>,
    pub start: u64,
    pub inflight: usize,
    pub last_end: Nanos,
    /// Mean time from the end of its last request to the next.
    pub think: Nanos,
    /// The device was kept idle for the next request of this level.
    pub idled: bool,
}

/// One group in one class.
pub(super) struct Node {
    pub group: u32,
    pub weight: u32,
    pub start: u64,
    pub vtime: u64,
    pub pending: usize,
    pub inflight: usize,
    pub levels: [Level; LEVELS],
    pub stats: ElevatorStats,
}

impl Node {
    fn new(group: u32, class: usize, weight: u32) -> Self {
        let stats = ElevatorStats { group, class: class as u8 + 1, ..Default::default() };
        Node { group, weight, start: 0, vtime: 0, pending: 0, inflight: 0, levels: Default::default(), stats }
    }

    /// The level to be served next.
    pub fn first(&self) -> Option<usize> {
        let waiting = self.levels.iter().enumerate().filter(|(_, l)| !l.queue.is_empty());
        waiting.min_by_key(|(i, l)| (l.start, *i)).map(|(i, _)| i)
    }
}

/// One priority class.
#[derive(Default)]
pub(super) struct Class {
    pub vtime: u64,
    pub pending: usize,
    pub inflight: usize,
    pub nodes: BTreeMap<u32, Node>,
}

impl Class {
    /// The group to be served next, and its level.
    pub fn first(&self) -> Option<(&Node, usize)> {
        let waiting = self.nodes.values().filter(|n| n.pending > 0);
        let node = waiting.min_by_key(|n| (n.start, n.group))?;
        node.first().map(|level| (node, level))
    }

    /// The group's place in the class, made when missing.
    pub fn node(&mut self, key: Key, weight: u32) -> &mut Node {
        self.nodes.entry(key.group).or_insert_with(|| Node::new(key.group, key.class, weight))
    }

    /// Puts `e` at the end of its queue. A flow that was empty starts at the present virtual time.
    pub fn push(&mut self, key: Key, e: Entry, weight: u32) {
        let vtime = self.vtime;
        self.pending += 1;
        let n = self.node(key, weight);
        if n.pending == 0 {
            n.start = n.start.max(vtime);
        }
        n.pending += 1;
        let l = &mut n.levels[key.level];
        if l.queue.is_empty() {
            l.start = l.start.max(n.vtime);
        }
        l.queue.push_back(e);
    }

    /// Takes the first request of a queue and charges its flow for it. Virtual time advances only if it was
    /// the turn of the queue by its share: service out of turn leaves other flows their credit.
    pub fn pop(&mut self, key: Key, now: Nanos, in_turn: bool) -> Option<Entry> {
        let n = self.nodes.get_mut(&key.group)?;
        let l = &mut n.levels[key.level];
        let e = l.queue.pop_front()?;
        self.pending -= 1;
        self.inflight += 1;
        if in_turn {
            self.vtime = self.vtime.max(n.start);
            n.vtime = n.vtime.max(l.start);
        }
        n.pending -= 1;
        n.inflight += 1;
        n.start += virtual_time(e.cost(), n.weight as u64);
        l.start += virtual_time(e.cost(), (LEVELS - key.level) as u64);
        l.inflight += 1;
        let waited = now.since(e.since);
        n.stats.requests += 1;
        n.stats.bytes += e.bytes;
        n.stats.wait_total.0 += waited.0;
        n.stats.wait_max = n.stats.wait_max.max(waited);
        Some(e)
    }
}
