//! Decides which request is next, and when the device is better kept idle. It knows no device, lock or clock.

use super::flow::{Class, DEFAULT_WEIGHT, Entry, IDLE, Job, Key, Level, Node};
use crate::{ElevatorStats, IoContext, QueueLimits, Queues, Request, WfqOptions};
use std::collections::BTreeMap;
use std::time::Duration;
use tidegate_rt::Nanos;

/// A deadline that never comes.
pub(super) const NEVER: Nanos = Nanos(u64::MAX);

/// The next action.
pub(super) enum Next {
    /// Send this request. It counts as at the device until [`Sched::complete`].
    Job(Key, Job),
    /// Do nothing before this time, unless requests come or end.
    Wait(Nanos),
}

/// All waiting requests, and the rules that decide among them.
pub(super) struct Sched {
    options: WfqOptions,
    classes: [Class; 3],
    weights: BTreeMap<u32, u32>,
    inflight: usize,
    /// The queue in service, which is served before others: a synchronous queue, or with strict guarantees
    /// any queue.
    service: Option<Service>,
    /// Since when the idle class has waited for one of its requests to be served.
    idle_since: Nanos,
    /// When a request of a class other than idle ended last.
    busy_end: Nanos,
    /// No more requests will come.
    closing: bool,
    /// Figures of threads whose queues are gone.
    gone: BTreeMap<(u32, u8), ElevatorStats>,
}

/// The number of queues of threads in a class above which empty queues are dropped: a volume sees any number of
/// threads.
const MANY: usize = 256;

/// The service that a queue got since it is in service.
struct Service {
    key: Key,
    bytes: u64,
    since: Nanos,
}

/// The decision about the queue in service.
enum Turn {
    /// Its next request is sent.
    Serve(Key),
    /// The device is kept idle for its next request, until this time.
    Idle(Nanos),
    Over,
}

fn after(t: Nanos, d: Duration) -> Nanos {
    Nanos(t.0.saturating_add(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)))
}

impl Sched {
    pub fn new(mut options: WfqOptions) -> Self {
        options.depth = if options.strict_guarantees { 1 } else { options.depth.max(1) };
        Sched {
            options,
            classes: Default::default(),
            weights: BTreeMap::new(),
            inflight: 0,
            service: None,
            idle_since: Nanos(0),
            busy_end: Nanos(0),
            closing: false,
            gone: BTreeMap::new(),
        }
    }

    /// The queue of a request.
    pub fn key(&self, ctx: IoContext, thread: u32, sync: bool) -> Key {
        match self.options.queues {
            Queues::Groups => Key::of(ctx),
            Queues::Processes => Key::of_thread(ctx, thread, sync),
        }
    }

    /// Whether queues belong to threads, which come and go.
    pub fn by_process(&self) -> bool {
        self.options.queues == Queues::Processes
    }

    /// From now on the device is never kept idle: pending requests go as soon as it has room.
    pub fn close(&mut self) {
        self.closing = true;
    }

    pub fn set_weight(&mut self, group: u32, weight: u32) {
        let weight = weight.clamp(1, 1000);
        self.weights.insert(group, weight);
        for n in self.classes.iter_mut().filter_map(|c| c.nodes.get_mut(&group)) {
            n.weight = weight;
        }
    }

    /// Whether a request waits that the device has room for.
    pub fn could_send(&self) -> bool {
        self.inflight < self.options.depth && self.classes.iter().any(|c| c.pending > 0)
    }

    /// Merges `rq` into a pending request of its queue that it continues; else gives it back.
    pub fn merge(&mut self, key: Key, mut rq: Request, limits: &QueueLimits) -> Result<(), Request> {
        let Some(n) = self.classes[key.class].nodes.get_mut(&key.group) else { return Err(rq) };
        for e in n.levels[key.level].queue.iter_mut().rev() {
            match e.append(rq, limits.max_bytes, limits.max_segments) {
                Ok(()) => return Ok(()),
                Err(r) => rq = r,
            }
        }
        Err(rq)
    }

    pub fn insert(&mut self, key: Key, e: Entry) {
        let weight = match self.options.queues {
            Queues::Groups => self.weights.get(&key.group).copied().unwrap_or(DEFAULT_WEIGHT),
            Queues::Processes => key.level_weight(),
        };
        let now = e.since;
        if key.class == IDLE && self.classes[IDLE].pending == 0 {
            self.idle_since = now;
        }
        let most = after(Nanos(0), self.options.slice_idle).0.saturating_mul(2);
        let l = &mut self.classes[key.class].node(key, weight).levels[key.level];
        if l.queue.is_empty() && l.inflight == 0 && l.last_end != Nanos(0) {
            let took = now.since(l.last_end).0.min(most);
            l.think = Nanos((l.think.0.saturating_mul(7).saturating_add(took)) / 8);
        }
        l.idled = false;
        self.classes[key.class].push(key, e, weight);
    }

    /// Takes off a request that [`Sched::next`] returned.
    pub fn complete(&mut self, key: Key, now: Nanos) {
        self.inflight -= 1;
        let c = &mut self.classes[key.class];
        c.inflight -= 1;
        if let Some(n) = c.nodes.get_mut(&key.group) {
            n.inflight -= 1;
            n.levels[key.level].inflight -= 1;
            n.levels[key.level].last_end = now;
        }
        if key.class != IDLE {
            self.busy_end = now;
        }
        if self.by_process() && self.classes[key.class].nodes.len() > MANY {
            self.drop_silent(key.class);
        }
    }

    /// Drops the empty queues of a class. Service that they got ahead of their share, a few requests, is
    /// forgotten.
    fn drop_silent(&mut self, class: usize) {
        let c = &mut self.classes[class];
        let gone = &mut self.gone;
        c.nodes.retain(|_, n| {
            let silent = n.pending + n.inflight == 0;
            if silent {
                add(gone, n);
            }
            !silent
        });
    }

    /// The next action at `now`.
    pub fn next(&mut self, now: Nanos) -> Next {
        if self.inflight >= self.options.depth {
            return Next::Wait(NEVER);
        }
        let (expire, turn) = self.idle_class_due();
        let starved = expire <= now;
        let first = |i: usize| {
            let (n, level) = self.classes[i].first()?;
            Some(Key { class: i, group: n.group, level })
        };
        let best = match starved {
            true => first(IDLE),
            false => first(0).or_else(|| first(1)).or_else(|| first(IDLE).filter(|_| turn <= now)),
        };
        let Some(best) = best else { return Next::Wait(turn) };
        match self.turn(best, now) {
            Turn::Serve(key) if !starved => self.take(key, now),
            Turn::Idle(until) if !starved => Next::Wait(until.min(expire)),
            _ => {
                self.service = None;
                self.take(best, now)
            }
        }
    }

    fn take(&mut self, key: Key, now: Nanos) -> Next {
        let in_turn = self.service.is_none();
        let Some(e) = self.classes[key.class].pop(key, now, in_turn) else { return Next::Wait(NEVER) };
        self.inflight += 1;
        if key.class == IDLE {
            self.idle_since = now;
        }
        let service = self.service.take().unwrap_or(Service { key, bytes: 0, since: now });
        let served = Service { bytes: service.bytes + e.cost(), ..service };
        // As in BFQ, strict guarantees are checked before anything else, also before the kind of the queue.
        let gets_turns = self.options.strict_guarantees || (e.sync && key.class != IDLE);
        self.service = gets_turns.then_some(served);
        Next::Job(key, e.job)
    }

    /// When the idle class has waited too long, and when it may be served if no other class has requests.
    fn idle_class_due(&self) -> (Nanos, Nanos) {
        if self.classes[IDLE].pending == 0 {
            return (NEVER, NEVER);
        }
        let expire = after(self.idle_since, self.options.idle_class_expire);
        let others_busy = self.classes[..IDLE].iter().any(|c| c.pending + c.inflight > 0);
        match (others_busy, self.closing) {
            (true, _) => (expire, expire),
            (false, true) => (expire, Nanos(0)),
            (false, false) => (expire, expire.min(after(self.busy_end, self.options.idle_class_delay))),
        }
    }

    /// Decides about the queue in service if `best` would be the next by its share. The queue stays in
    /// service until it has used its budget or its time, or has nothing to send and is not worth waiting for.
    /// Service is accounted once the queue has a request again: only then can shares decide which queue is
    /// next.
    fn turn(&mut self, best: Key, now: Nanos) -> Turn {
        let Some(s) = &self.service else { return Turn::Over };
        let (key, options) = (s.key, &self.options);
        let spent = s.bytes >= options.max_budget || now >= after(s.since, options.timeout_sync);
        let Some((_, l)) = self.place(key).filter(|_| best.class >= key.class) else { return Turn::Over };
        if !l.queue.is_empty() {
            return if spent { Turn::Over } else { Turn::Serve(key) };
        }
        let until = if l.inflight > 0 { NEVER } else { after(l.last_end, options.slice_idle) };
        if self.closing || until <= now || !self.worth_waiting_for(key, best) {
            return Turn::Over;
        }
        let node = self.classes[key.class].nodes.get_mut(&key.group);
        if let Some(n) = node.filter(|_| until != NEVER) {
            n.stats.idled += !std::mem::replace(&mut n.levels[key.level].idled, true) as u64;
        }
        Turn::Idle(until)
    }

    fn worth_waiting_for(&self, key: Key, best: Key) -> bool {
        let slice = after(Nanos(0), self.options.slice_idle);
        let soon = |l: &Level| l.think <= slice;
        slice > Nanos(0)
            && (self.options.strict_guarantees
                || (self.place(key).is_some_and(|(_, l)| soon(l))
                    && self.weights_differ(key)
                    && self.goes_before(key, best)))
    }

    fn place(&self, key: Key) -> Option<(&Node, &Level)> {
        let n = self.classes[key.class].nodes.get(&key.group)?;
        Some((n, &n.levels[key.level]))
    }

    /// Whether a request that came for the empty queue `key` now would be served before `best`.
    fn goes_before(&self, key: Key, best: Key) -> bool {
        let (Some((node, level)), Some((best_node, best_level))) = (self.place(key), self.place(best)) else {
            return false;
        };
        if key.class != best.class {
            key.class < best.class
        } else if key.group != best.group {
            let start =
                if node.pending == 0 { node.start.max(self.classes[key.class].vtime) } else { node.start };
            start < best_node.start
        } else {
            level.start.max(node.vtime) < best_level.start
        }
    }

    /// Whether the groups that do I/O, including that of `key`, differ in weight.
    fn weights_differ(&self, key: Key) -> bool {
        let mut busy = self
            .classes
            .iter()
            .flat_map(|c| c.nodes.values())
            .filter(|n| n.pending + n.inflight > 0 || n.group == key.group)
            .map(|n| n.weight);
        let first = busy.next();
        busy.any(|w| Some(w) != first)
    }

    /// The work of the elevator for each group and class, in order of group.
    pub fn stats(&self) -> Vec<ElevatorStats> {
        let nodes = self.classes.iter().flat_map(|c| c.nodes.values());
        if self.by_process() {
            let mut sums = self.gone.clone();
            nodes.for_each(|n| add(&mut sums, n));
            return sums.into_values().collect();
        }
        let mut all: Vec<_> = nodes.map(|n| ElevatorStats { weight: n.weight, ..n.stats }).collect();
        all.sort_by_key(|s| (s.group, s.class));
        all
    }
}

/// Adds the figures of a queue to the sum of all queues of threads, or of all others.
fn add(sums: &mut BTreeMap<(u32, u8), ElevatorStats>, n: &Node) {
    let group = u32::from(Key { class: 0, group: n.group, level: 0 }.is_of_thread());
    let of = &n.stats;
    let sum = sums.entry((group, of.class)).or_insert(ElevatorStats {
        group,
        class: of.class,
        weight: DEFAULT_WEIGHT,
        ..Default::default()
    });
    sum.requests += of.requests;
    sum.bytes += of.bytes;
    sum.wait_total.0 += of.wait_total.0;
    sum.wait_max = sum.wait_max.max(of.wait_max);
    sum.idled += of.idled;
}

#[cfg(test)]
#[path = "sched_tests.rs"]
mod tests;
