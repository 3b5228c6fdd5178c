//! Simulated CPUs, events in virtual time, and the next task.

use super::config::{Config, Costs};
use super::report::{self, Deadlock};
use super::state::{Blocked, Event, Key, Mode, Reason, State, TaskId, Ticket, Waiter, Wanting};
use super::task::Body;
use crate::class::LockClass;
use crate::clock::Nanos;
use crate::trace::Event as TraceEvent;
use std::cell::{Cell, RefCell, RefMut};
use std::cmp::Reverse;
use std::collections::VecDeque;
use std::io;
use std::panic::Location;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tidegate_sys::coroutine::{self, Stack};

/// The virtual time within which a run must end, in nanoseconds: a day. Otherwise a task that only waits, while other
/// tasks set timers again and again, would never be found.
const LIMIT: u64 = 86_400_000_000_000;

/// How long other tasks may take a lock before a waiter, in nanoseconds: `parking_lot` hands a lock over
/// every 0.5 ms in the mean (its documentation, "eventual fairness"). Otherwise a task in a loop shorter than
/// a wake-up would keep others from a lock for ever.
const FAIR: u64 = 500_000;

/// One simulated world. Its number distinguishes it from others of the process.
pub(crate) struct Sim {
    number: u64,
    cpus: usize,
    costs: Costs,
    slice: u64,
    spin: bool,
    pub(super) quantum: u64,
    pub(super) jitter: u32,
    epoch: Cell<i64>,
    keep: usize,
    /// A copy of [`State::now`].
    clock: Cell<u64>,
    /// The state. It is not borrowed while another task moves.
    state: RefCell<State>,
    /// The task that moves next, for [`Sim::next_task`].
    next: Cell<Option<TaskId>>,
}

impl Sim {
    pub fn new(config: &Config) -> Rc<Sim> {
        static NUMBERED: AtomicU64 = AtomicU64::new(0);
        Rc::new(Sim {
            number: NUMBERED.fetch_add(1, Relaxed),
            cpus: config.cpus.max(1),
            costs: config.costs,
            slice: config.slice.0,
            spin: config.spin,
            quantum: config.quantum.0,
            jitter: config.jitter,
            epoch: Cell::new(config.epoch),
            keep: config.trace,
            clock: Cell::new(1),
            state: RefCell::new(State::new(config.seed)),
            next: Cell::new(None),
        })
    }

    pub fn number(&self) -> u64 {
        self.number
    }

    pub fn costs(&self) -> &Costs {
        &self.costs
    }

    pub fn cpus(&self) -> usize {
        self.cpus
    }

    pub fn epoch(&self) -> i64 {
        self.epoch.get()
    }

    pub fn set_wall_clock(&self, by: i64) {
        self.epoch.set(self.epoch.get().wrapping_add(by));
    }

    pub fn slice(&self) -> u64 {
        self.slice
    }

    pub fn now(&self) -> u64 {
        self.clock.get()
    }

    pub fn random(&self) -> u64 {
        self.state.borrow_mut().rng.bits()
    }

    /// A new task, ready to move.
    pub fn add(&self, name: &str, body: Body) -> TaskId {
        self.state.borrow_mut().add(name, body)
    }

    /// The name and the work of a task that has not begun.
    pub fn begins(&self, task: TaskId) -> Option<(String, Body)> {
        let task = &mut self.state.borrow_mut().tasks[task];
        task.body.take().map(|body| (task.name.clone(), body))
    }

    /// Chooses the first task. Called from outside the world.
    pub fn begin(&self) {
        let next = self.next(&mut self.state.borrow_mut());
        self.next.set(next);
    }

    /// The next task. `None` at the end of the run.
    pub fn next_task(&self) -> Option<TaskId> {
        self.next.get()
    }

    /// How the run has ended, once no task moves.
    pub fn end(&self) -> Result<(), Deadlock> {
        self.state.borrow_mut().ended.take().unwrap_or(Ok(()))
    }

    /// A stack of `size` bytes for a task: that of an ended task, or a new one.
    pub fn stack(&self, size: usize) -> io::Result<Stack> {
        let used = self.state.borrow_mut().stacks.pop();
        used.map_or_else(|| Stack::map(size).map_err(io::Error::from), Ok)
    }

    /// Keeps the stack of a task that has ended.
    pub fn keep_stack(&self, stack: Stack) {
        self.state.borrow_mut().stacks.push(stack);
    }

    pub fn results(&self) -> (Nanos, u64, Vec<TraceEvent>) {
        let mut s = self.state.borrow_mut();
        (Nanos(s.now - 1), s.switches, std::mem::take(&mut s.trace).into())
    }

    pub fn records(&self) -> bool {
        self.keep > 0
    }

    pub fn record(&self, event: TraceEvent) {
        if self.keep == 0 {
            return;
        }
        let mut s = self.state.borrow_mut();
        if s.trace.len() == self.keep {
            s.trace.pop_front();
        }
        s.trace.push_back(event);
    }

    /// CPU time that all tasks have used, in nanoseconds.
    pub fn cpu_time(&self) -> u64 {
        self.state.borrow_mut().cpu_time
    }

    /// How long the task `me` has spun for locks.
    pub fn spun(&self, me: TaskId) -> u64 {
        self.state.borrow_mut().tasks[me].spun
    }

    /// How long the task `me` has waited for a CPU.
    pub fn delayed(&self, me: TaskId) -> u64 {
        self.state.borrow_mut().tasks[me].delayed
    }

    /// Lets the task `me` hold its CPU for `time`.
    pub fn pay(&self, me: TaskId, time: u64) {
        let mut s = self.state.borrow_mut();
        s.tasks[me].used += time;
        s.cpu_time += time;
        let until = s.now + time;
        let over = s.tasks[me].used >= self.slice;
        let others_first = s.events.peek().is_some_and(|Reverse((at, ..))| *at <= until);
        let others_now = !s.ready.is_empty() && (s.busy < self.cpus || over);
        if !others_first && !others_now {
            self.set_now(&mut s, until);
            return;
        }
        s.schedule(until, Event::Paid(me));
        self.give_way(s, me);
    }

    /// Puts `me` on the list of waiters at `key`. The task still moves.
    pub fn enroll(&self, me: TaskId, key: Key, mode: Mode, first: bool) -> Ticket {
        let mut s = self.state.borrow_mut();
        s.numbered += 1;
        let ticket = Ticket(s.numbered);
        if first && let Some(list) = s.wanting.get_mut(&key) {
            list.iter_mut().filter(|w| w.task == me).for_each(|w| w.failed = true);
        }
        if key != Key::Time {
            let list = s.waiting.entry(key).or_default();
            let waiter = Waiter { task: me, ticket, mode };
            if first { list.push_front(waiter) } else { list.push_back(waiter) }
        }
        ticket
    }

    /// Takes `me` off the list again.
    pub fn withdraw(&self, me: TaskId, key: Key, ticket: Ticket) {
        let mut s = self.state.borrow_mut();
        s.tasks[me].woken.retain(|t| *t != ticket);
        s.strike(key, ticket);
    }

    /// Sleeps, or spins for a lock, until `ticket` is woken or `limit` is over. Returns whether it was woken.
    pub fn sleep(
        &self,
        me: TaskId,
        (key, ticket): (Key, Ticket),
        limit: Option<Duration>,
        reason: Reason,
        at: &'static Location<'static>,
    ) -> bool {
        let mut s = self.state.borrow_mut();
        let task = &mut s.tasks[me];
        if let Some(i) = task.woken.iter().position(|t| *t == ticket) {
            task.woken.swap_remove(i);
            return true;
        }
        task.blocked = Some(Blocked { ticket, key, reason, at });
        task.timed_out = false;
        if let Some(limit) = limit {
            let due = s.now.saturating_add(u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX));
            s.schedule(due, Event::Timeout(me, ticket.0));
        }
        if matches!(reason, Reason::Lock(_)) && self.spin && s.may_spin(key, ticket) {
            let left = self.slice.saturating_sub(s.tasks[me].used).max(1);
            s.tasks[me].spins = Some(s.now);
            let due = s.now + left;
            s.schedule(due, Event::SpinOver(me, ticket.0));
        } else {
            s.leave_cpu(me);
        }
        self.give_way(s, me);
        !self.state.borrow_mut().tasks[me].timed_out
    }

    /// Wakes at most `most` waiters at `key`, in order. Returns how many slept.
    pub fn wake(&self, key: Key, most: usize) -> u64 {
        let mut s = self.state.borrow_mut();
        let mut slept = 0;
        for _ in 0..most {
            let Some(waiter) = s.first(key) else { break };
            slept += u64::from(self.wake_one(&mut s, waiter));
        }
        slept
    }

    /// Called when the lock at `key` is free again. Wakes the first task that wants it, and with a reader
    /// also the readers right behind. A spinning task sees that the lock is free before a sleeping task is
    /// awake. Returns how many of them slept.
    pub fn released(&self, me: TaskId, key: Key) -> u64 {
        let mut s = self.state.borrow_mut();
        let held = &mut s.tasks[me].held;
        if let Some(i) = held.iter().rposition(|(k, _)| *k == key) {
            held.remove(i);
        }
        if s.waiting.is_empty() || !s.waiting.contains_key(&key) {
            return 0;
        }
        // Only the last of several shared holders releases the lock.
        if s.tasks.iter().any(|t| t.held.iter().any(|(k, _)| *k == key)) {
            return 0;
        }
        if let Some(spinner) = s.overtaking(key) {
            self.wake_one(&mut s, spinner);
        }
        let mut slept = 0;
        while let Some(waiter) = s.first(key) {
            let mode = waiter.mode;
            slept += u64::from(self.wake_one(&mut s, waiter));
            let next = s.waiting.get(&key).and_then(VecDeque::front).map(|w| w.mode);
            if (mode, next) != (Mode::Shared, Some(Mode::Shared)) {
                break;
            }
        }
        slept
    }

    pub fn acquired(&self, me: TaskId, key: Key, class: &'static LockClass) {
        self.state.borrow_mut().tasks[me].held.push((key, class));
    }

    /// Whether a task that comes to take the lock at `key` must wait behind others, though the lock may be
    /// free. A reader waits behind a writer. A task of any kind waits behind one that was woken for the lock
    /// in vain or has wanted it for [`FAIR`], unless both are readers.
    pub fn goes_behind(&self, key: Key, mode: Mode) -> bool {
        let s = self.state.borrow();
        if s.wanting.is_empty() {
            return false;
        }
        let first = |w: &Wanting| {
            let together = (mode, w.mode) == (Mode::Shared, Mode::Shared);
            (mode, w.mode) == (Mode::Shared, Mode::Exclusive)
                || !together && (w.failed || s.now.saturating_sub(w.since) >= FAIR)
        };
        s.wanting.get(&key).is_some_and(|w| w.iter().any(first))
    }

    /// Whether a task has slept or spun for the lock at `key` and does not have it yet.
    pub fn is_wanted(&self, key: Key) -> bool {
        self.state.borrow().wanting.contains_key(&key)
    }

    /// Notes that `me` wants the lock at `key` from now on.
    pub fn want(&self, me: TaskId, key: Key, mode: Mode) {
        let mut s = self.state.borrow_mut();
        let since = s.now;
        s.wanting.entry(key).or_default().push(Wanting { task: me, mode, since, failed: false });
    }

    /// Notes that `me` has got the lock at `key`.
    pub fn got(&self, me: TaskId, key: Key) {
        let mut s = self.state.borrow_mut();
        if let Some(list) = s.wanting.get_mut(&key) {
            list.retain(|w| w.task != me);
            if list.is_empty() {
                s.wanting.remove(&key);
            }
        }
    }

    /// Whether a task of this world has the lock at `key`.
    pub fn is_held(&self, key: Key) -> bool {
        self.state.borrow_mut().tasks.iter().any(|t| t.held.iter().any(|(k, _)| *k == key))
    }

    pub fn is_done(&self, task: TaskId) -> bool {
        self.state.borrow_mut().tasks[task].done
    }

    /// Ends a task, and passes on to the next.
    pub fn exit(&self, me: TaskId) {
        let mut s = self.state.borrow_mut();
        s.tasks[me].done = true;
        s.leave_cpu(me);
        s.live -= 1;
        while let Some(waiter) = s.first(Key::End(me)) {
            self.wake_one(&mut s, waiter);
        }
        let next = self.next(&mut s);
        self.next.set(next);
    }

    /// Lets a waiter go on. Returns whether it slept.
    fn wake_one(&self, s: &mut State, waiter: Waiter) -> bool {
        let task = &mut s.tasks[waiter.task];
        if task.blocked.is_some_and(|b| b.ticket == waiter.ticket) {
            task.blocked = None;
            let slept = !s.end_spin(waiter.task);
            let (due, event) = match slept {
                true => (s.now + self.costs.wake_up.0, Event::Ready(waiter.task)),
                false => (s.now + self.costs.lock.0, Event::Paid(waiter.task)),
            };
            s.schedule(due, event);
            slept
        } else {
            task.woken.push(waiter.ticket);
            false
        }
    }

    /// Passes on to the next task, and returns when `me` is the next.
    fn give_way(&self, mut s: RefMut<'_, State>, me: TaskId) {
        let next = self.next(&mut s);
        if next == Some(me) {
            return;
        }
        s.switches += 1;
        drop(s);
        self.next.set(next);
        coroutine::suspend();
    }

    /// Advances the time to the next move and returns its task. Without one, the run has ended.
    fn next(&self, s: &mut State) -> Option<TaskId> {
        loop {
            if !s.ready.is_empty() && s.busy < self.cpus {
                let i = s.rng.below(s.ready.len() as u64) as usize;
                let id = s.ready.swap_remove(i);
                s.get_cpu(id);
                s.cpu_time += self.costs.switch.0;
                let due = s.now + self.costs.switch.0;
                s.schedule(due, Event::Paid(id));
                continue;
            }
            let Some(Reverse((at, _, _, event))) = s.events.pop().filter(|_| s.now < LIMIT) else {
                s.ended = Some(if s.live == 0 { Ok(()) } else { Err(report::of(s)) });
                return None;
            };
            match event {
                Event::Paid(id) => {
                    self.set_now(s, at);
                    if s.tasks[id].used < self.slice || s.ready.is_empty() {
                        return Some(id);
                    }
                    s.leave_cpu(id);
                    s.get_ready(id);
                }
                Event::Ready(id) => {
                    self.set_now(s, at);
                    s.get_ready(id);
                }
                // Spinning is bounded, so that two tasks that spin for each other's locks are found.
                Event::SpinOver(id, ticket) => {
                    let same = |b: Blocked| b.ticket == Ticket(ticket);
                    if s.tasks[id].spins.is_some() && s.tasks[id].blocked.is_some_and(same) {
                        self.set_now(s, at);
                        s.sleep_on(id);
                    }
                }
                Event::Timeout(id, ticket) => {
                    if s.time_out(id, Ticket(ticket)) {
                        self.set_now(s, at);
                        s.get_ready(id);
                    }
                }
            }
        }
    }

    fn set_now(&self, s: &mut State, now: u64) {
        s.now = now;
        self.clock.set(now);
    }
}
