//! The elevator `wfq`: holds requests back and sends them in the order that [`sched`] decides.
//!
//! The thread that submits or completes a request sends the requests that are due (`pump`), with no lock
//! held. A thread that completes requests inside a device's `submit` leaves the rest to the `pump` further up
//! its stack, so a device that completes inline costs no stack. One service thread watches deadlines, sends
//! requests whose submission may block a completing thread, and sends the rest of a long queue.
//!
//! Lock owned: `wfq->lock` 960. Caller: the request queue.

mod flow;
mod sched;

use crate::bio::{BioFlags, Op};
use crate::busy::Busy;
use crate::inflight::{InFlight, Place};
use crate::traced::Traced;
use crate::{Device, ElevatorStats, QueueLimits, Request, WfqOptions};
use flow::{Entry, Job, Key, Ticket};
use sched::{NEVER, Next, Sched};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tidegate_rt::{Condvar, LockClass, Mutex, MutexGuard, Nanos, clock, thread};

static CLASS: LockClass = LockClass::new("wfq->lock", 960);
/// The number of requests that a thread sends before it leaves the rest to the service thread. With a device
/// that works in the submitting thread, one submitter would else do the I/O of all others.
const QUOTA: usize = 16;

/// A group's requests in the queue and at the device, and the threads that wait for room.
#[derive(Default)]
struct Group {
    requests: usize,
    bytes: u64,
    room: Arc<Condvar>,
}

struct State {
    sched: Sched,
    groups: BTreeMap<u32, Group>,
    /// The threads that are sending now.
    pumps: Vec<u32>,
    /// Requests that are due, and are left to the service thread.
    deferred: VecDeque<(Key, Request)>,
    /// The time at which the service thread is to look again.
    deadline: Nanos,
    /// The time until which the service thread sleeps.
    armed: Nanos,
    /// The service thread is asked to send.
    kick: bool,
    stop: bool,
    /// Whether there is a service thread.
    served: bool,
}

struct Shared {
    device: Arc<dyn Device>,
    limits: QueueLimits,
    inflight: Arc<InFlight>,
    state: Mutex<State>,
    service: Condvar,
}

type Guard<'a> = MutexGuard<'a, State>;

/// The thread that sends requests.
#[derive(Clone, Copy)]
enum By<'a> {
    Submitter,
    /// A submitter whose request has this ticket.
    Waiter(&'a Arc<Ticket>),
    Completion,
    Service,
}

/// The elevator of one queue.
pub(crate) struct Wfq {
    shared: Arc<Shared>,
    thread: Option<thread::JoinHandle<()>>,
}

/// The place of a request at the device. The next request is sent when this is dropped.
pub(crate) struct Slot<'a> {
    shared: &'a Arc<Shared>,
    key: Key,
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        self.shared.complete(self.key, None);
    }
}

impl Wfq {
    /// A new elevator. Without a service thread (the system refuses one), there are no deadlines: the device
    /// is never kept idle.
    pub fn new(
        device: Arc<dyn Device>,
        limits: QueueLimits,
        mut options: WfqOptions,
        inflight: Arc<InFlight>,
    ) -> Self {
        let state = State {
            sched: Sched::new(options),
            groups: BTreeMap::new(),
            pumps: Vec::new(),
            deferred: VecDeque::new(),
            deadline: NEVER,
            armed: NEVER,
            kick: false,
            stop: false,
            served: true,
        };
        let (state, service) = (Mutex::new(&CLASS, state), Condvar::new());
        let shared = Arc::new(Shared { device, limits, inflight, state, service });
        let s = shared.clone();
        let thread = thread::spawn("tg-wfq", move || s.serve()).ok();
        if thread.is_none() {
            (options.slice_idle, options.idle_class_delay) = (Duration::ZERO, Duration::ZERO);
            let mut st = shared.state.lock();
            (st.sched, st.served) = (Sched::new(options), false);
        }
        Wfq { shared, thread }
    }

    /// Queues `rq`, waiting while its queue is full, and sends requests that are due. Returns whether `rq` was merged
    /// into a pending request.
    pub fn submit(&self, rq: Request, busy: &Busy) -> bool {
        let s = &self.shared;
        let (bytes, sync) = (rq.bytes, rq.is_sync());
        let (mut rq, mut waits) = (rq, None);
        s.inflight.enter_freely();
        let mut st = s.state.lock();
        let key = st.sched.key(rq.ctx(), thread::id(), sync);
        loop {
            let g = st.groups.entry(key.group).or_default();
            let (requests, room) = (g.requests, g.room.clone());
            if requests == 0 || g.bytes + bytes <= s.limits.max_inflight_bytes {
                match st.sched.merge(key, rq, &s.limits) {
                    Ok(()) => {
                        st.groups.entry(key.group).or_default().bytes += bytes;
                        drop(st);
                        s.inflight.leave(&Place::NONE);
                        return true;
                    }
                    Err(r) => rq = r,
                }
                if requests == 0 || requests < s.limits.nr_requests {
                    break;
                }
            }
            waits.get_or_insert_with(|| busy.congested());
            room.wait(&mut st);
        }
        drop(waits);
        let g = st.groups.entry(key.group).or_default();
        g.requests += 1;
        g.bytes += bytes;
        st.sched.insert(key, Entry::send(rq, sync, clock::now()));
        drop(s.pump(st, By::Submitter));
        false
    }

    /// Waits until it is the turn of `rq`, which the caller then executes. Takes no room in the queue of the
    /// group: the waiting thread is the bound.
    pub fn enter(&self, rq: &Request) -> Slot<'_> {
        let s = &self.shared;
        let ticket = Arc::new(Ticket::default());
        let mut st = s.state.lock();
        let key = st.sched.key(rq.ctx(), thread::id(), true);
        st.sched.insert(key, Entry::grant(ticket.clone(), rq, clock::now()));
        drop(s.pump(st, By::Waiter(&ticket)));
        ticket.wait();
        Slot { shared: s, key }
    }

    pub fn set_group_weight(&self, group: u32, weight: u32) {
        let mut st = self.shared.state.lock();
        st.sched.set_weight(group, weight);
        drop(self.shared.pump(st, By::Submitter));
    }

    pub fn stats(&self) -> Vec<ElevatorStats> {
        self.shared.state.lock().sched.stats()
    }

    /// Sends pending requests without waiting for more.
    pub fn close(&self) {
        let mut st = self.shared.state.lock();
        st.sched.close();
        drop(self.shared.pump(st, By::Submitter));
    }
}

impl Drop for Wfq {
    fn drop(&mut self) {
        self.shared.state.lock().stop = true;
        self.shared.service.notify_one();
        if let Some(t) = self.thread.take() {
            t.join();
        }
    }
}

/// Whether an asynchronous device may still block the thread that submits `rq`.
fn may_block(rq: &Request) -> bool {
    !matches!(rq.op, Op::Read | Op::Write) || rq.flags.intersects(BioFlags::PREFLUSH | BioFlags::FUA)
}

impl Shared {
    /// Sends requests that are due, unless this thread does so already further up its stack.
    fn pump<'a>(self: &'a Arc<Self>, mut st: Guard<'a>, by: By) -> Guard<'a> {
        let me = thread::id();
        if st.pumps.contains(&me) {
            return st;
        }
        st.pumps.push(me);
        let mut sent = 0;
        while let Some((key, job)) = self.next(&mut st, by) {
            match job {
                Job::Grant(ticket) => {
                    ticket.grant();
                    if matches!(by, By::Waiter(own) if Arc::ptr_eq(own, &ticket)) {
                        if st.served && st.sched.could_send() {
                            self.kick(&mut st);
                        }
                        if st.served {
                            break;
                        }
                    }
                }
                Job::Send(rq) if matches!(by, By::Completion) && st.served && may_block(&rq) => {
                    st.deferred.push_back((key, rq));
                    self.kick(&mut st);
                }
                Job::Send(rq) => {
                    drop(st);
                    self.send(key, rq);
                    st = self.state.lock();
                    sent += 1;
                }
            }
            if sent >= QUOTA && st.served && !matches!(by, By::Service) {
                self.kick(&mut st);
                break;
            }
        }
        st.pumps.retain(|t| *t != me);
        st
    }

    /// The request to send now. If there is none, makes sure that the service thread looks again in time.
    fn next(&self, st: &mut State, by: By) -> Option<(Key, Job)> {
        if matches!(by, By::Service)
            && let Some((key, rq)) = st.deferred.pop_front()
        {
            return Some((key, Job::Send(rq)));
        }
        match st.sched.next(clock::now()) {
            Next::Job(key, job) => Some((key, job)),
            Next::Wait(until) => {
                st.deadline = until;
                if until < st.armed {
                    self.service.notify_one();
                }
                None
            }
        }
    }

    fn kick(&self, st: &mut State) {
        st.kick = true;
        self.service.notify_one();
    }

    fn send(self: &Arc<Self>, key: Key, mut rq: Request) {
        Traced::watch(&mut rq);
        let (shared, inflight, bytes) = (self.clone(), self.inflight.clone(), rq.bytes);
        rq.after_end(move || {
            shared.complete(key, Some(bytes));
            // Dropped before the queue may go: the last reference to a device must not be dropped in a thread
            // of that device.
            drop(shared);
            inflight.leave(&Place::NONE);
        });
        self.device.submit(rq);
    }

    /// Takes a request off and sends requests that are due. `bytes` is the room that it took in the queue of
    /// its group.
    fn complete(self: &Arc<Self>, key: Key, bytes: Option<u64>) {
        let mut st = self.state.lock();
        st.sched.complete(key, clock::now());
        if let (Some(bytes), Some(g)) = (bytes, st.groups.get_mut(&key.group)) {
            g.requests -= 1;
            g.bytes -= bytes;
            g.room.notify_all();
            if g.requests == 0 && st.sched.by_process() {
                st.groups.remove(&key.group);
            }
        }
        drop(self.pump(st, By::Completion));
    }

    /// The service thread.
    fn serve(self: &Arc<Self>) {
        let mut st = self.state.lock();
        while !st.stop {
            let now = clock::now();
            if std::mem::take(&mut st.kick) || st.deadline <= now {
                st.deadline = NEVER;
                st = self.pump(st, By::Service);
                continue;
            }
            st.armed = st.deadline;
            match st.deadline {
                NEVER => self.service.wait(&mut st),
                t => {
                    self.service.wait_for(&mut st, t.since(now).duration());
                }
            }
            // The thread is awake: it looks at the deadline before it sleeps again.
            st.armed = Nanos(0);
        }
    }
}
