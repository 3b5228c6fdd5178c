//! The state of a simulated world: tasks, their waits, and events to come.

use super::report::Deadlock;
use super::task::Body;
use crate::class::LockClass;
use crate::rng::Rng;
use crate::trace::Event as TraceEvent;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::panic::Location;
use tidegate_sys::coroutine::Stack;

/// The number of a task, in the order of starting.
pub(super) type TaskId = usize;

/// The object at which a task waits. Addresses are only compared for equality, so they do not influence the
/// order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    /// A lock, condition variable or queue at this address.
    At(usize),
    /// The end of a task.
    End(TaskId),
    /// Only time.
    Time,
}

/// A map of keys, which is never iterated. Keys come from the program itself, so no attacker makes them
/// collide.
pub(super) type ByKey<V> = HashMap<Key, V, BuildHasherDefault<KeyHasher>>;

/// Mixes the two numbers in a key, as `rustc-hash` does.
#[derive(Default)]
pub(super) struct KeyHasher(u64);

impl KeyHasher {
    fn add(&mut self, n: u64) {
        self.0 = (self.0.rotate_left(5) ^ n).wrapping_mul(0x517C_C1B7_2722_0A95);
    }
}

impl Hasher for KeyHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|b| self.add(u64::from(*b)));
    }

    fn write_usize(&mut self, n: usize) {
        self.add(n as u64);
    }

    fn write_isize(&mut self, n: isize) {
        self.add(n as u64);
    }

    /// Maps use the highest and the lowest bits, and the lowest mix little.
    fn finish(&self) -> u64 {
        self.0.rotate_left(26)
    }
}

/// The number of one wait. It is never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket(pub(super) u64);

/// Which other waiters may go on together with a waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Exclusive,
    Shared,
}

pub(super) struct Waiter {
    pub task: TaskId,
    pub ticket: Ticket,
    pub mode: Mode,
}

/// A task that wants a lock, with the time since when.
pub(super) struct Wanting {
    pub task: TaskId,
    pub mode: Mode,
    pub since: u64,
    /// The task was woken, but another task had taken the lock.
    pub failed: bool,
}

/// The name of a wait in a report.
#[derive(Clone, Copy)]
pub(crate) enum Reason {
    Lock(&'static LockClass),
    Condvar,
    WaitQueue,
    Sleep,
    Join,
}

/// A wait, as shown in a report.
#[derive(Clone, Copy)]
pub(super) struct Blocked {
    pub ticket: Ticket,
    pub key: Key,
    pub reason: Reason,
    pub at: &'static Location<'static>,
}

/// The scheduler's state of a task.
pub(super) struct TaskState {
    pub name: String,
    /// Its work, until it begins.
    pub body: Option<Body>,
    pub blocked: Option<Blocked>,
    /// Waits that ended before the task went to sleep for them.
    pub woken: Vec<Ticket>,
    pub timed_out: bool,
    /// The task has a CPU: it moves, pays or spins.
    pub on_cpu: bool,
    /// Since when it spins for the lock at which it is blocked.
    pub spins: Option<u64>,
    /// How long it has spun for locks since it began.
    pub spun: u64,
    /// CPU time since it got its CPU.
    pub used: u64,
    /// When it became ready.
    pub ready_since: u64,
    /// How long it was ready and had no CPU.
    pub delayed: u64,
    pub held: Vec<(Key, &'static LockClass)>,
    pub done: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    /// A task has paid its time on its CPU.
    Paid(TaskId),
    /// A woken task becomes ready.
    Ready(TaskId),
    /// The time of a wait is over.
    Timeout(TaskId, u64),
    /// A task has spun for a time slice.
    SpinOver(TaskId, u64),
}

/// The time; a number from the seed, for events of one instant; the order of scheduling; the event.
pub(super) type Due = Reverse<(u64, u64, u64, Event)>;

pub(super) struct State {
    pub now: u64,
    pub rng: Rng,
    pub events: BinaryHeap<Due>,
    pub numbered: u64,
    pub ready: Vec<TaskId>,
    /// The number of CPUs with a task: the one that moves, those that pay and those that spin.
    pub busy: usize,
    pub live: usize,
    pub tasks: Vec<TaskState>,
    pub waiting: ByKey<VecDeque<Waiter>>,
    /// Tasks that have slept for a lock and do not have it yet, awake or not.
    pub wanting: ByKey<Vec<Wanting>>,
    pub switches: u64,
    /// CPU time that all tasks have used, in nanoseconds.
    pub cpu_time: u64,
    pub trace: VecDeque<TraceEvent>,
    /// The stacks of tasks that have ended.
    pub stacks: Vec<Stack>,
    pub ended: Option<Result<(), Deadlock>>,
}

impl State {
    /// A world at its beginning.
    pub fn new(seed: u64) -> State {
        State {
            now: 1,
            rng: Rng::new(seed),
            events: BinaryHeap::new(),
            numbered: 0,
            ready: Vec::new(),
            busy: 0,
            live: 0,
            tasks: Vec::new(),
            waiting: ByKey::default(),
            wanting: ByKey::default(),
            switches: 0,
            cpu_time: 0,
            trace: VecDeque::new(),
            stacks: Vec::new(),
            ended: None,
        }
    }

    /// A new task, ready to move.
    pub fn add(&mut self, name: &str, body: Body) -> TaskId {
        let id = self.tasks.len();
        self.tasks.push(TaskState {
            name: name.to_owned(),
            body: Some(body),
            blocked: None,
            woken: Vec::new(),
            timed_out: false,
            on_cpu: false,
            spins: None,
            spun: 0,
            used: 0,
            ready_since: 0,
            delayed: 0,
            held: Vec::new(),
            done: false,
        });
        self.live += 1;
        self.get_ready(id);
        id
    }

    /// Gives a CPU to the task `id`, which was ready.
    pub fn get_cpu(&mut self, id: TaskId) {
        self.busy += 1;
        let task = &mut self.tasks[id];
        task.on_cpu = true;
        task.used = 0;
        task.delayed += self.now - task.ready_since;
    }

    /// Takes the CPU from the task `id`. Tasks that spin for its locks sleep from now on.
    pub fn leave_cpu(&mut self, id: TaskId) {
        self.busy -= 1;
        self.tasks[id].on_cpu = false;
        for at in 0..self.tasks[id].held.len() {
            let key = self.tasks[id].held[at].0;
            let spin = |w: &&Waiter| self.tasks[w.task].spins.is_some();
            let spinning: Vec<TaskId> =
                self.waiting.get(&key).into_iter().flatten().filter(spin).map(|w| w.task).collect();
            spinning.into_iter().for_each(|task| self.sleep_on(task));
        }
    }

    /// Lets a spinning task sleep from now on.
    pub fn sleep_on(&mut self, id: TaskId) {
        if self.end_spin(id) {
            self.leave_cpu(id);
        }
    }

    /// Counts the time that a task has spun as used. Returns whether it was spinning.
    pub fn end_spin(&mut self, id: TaskId) -> bool {
        let Some(since) = self.tasks[id].spins.take() else { return false };
        let spun = self.now - since;
        self.tasks[id].used += spun;
        self.tasks[id].spun += spun;
        self.cpu_time += spun;
        true
    }

    /// Whether the lock at `key` has holders, and all of them are on a CPU.
    pub fn holders_run(&self, key: Key) -> bool {
        let mut holders = self.tasks.iter().filter(|t| t.held.iter().any(|(k, _)| *k == key)).peekable();
        holders.peek().is_some() && holders.all(|t| t.on_cpu)
    }

    pub fn get_ready(&mut self, id: TaskId) {
        self.tasks[id].ready_since = self.now;
        self.ready.push(id);
    }

    pub fn schedule(&mut self, at: u64, event: Event) {
        let tie = self.rng.bits();
        self.numbered += 1;
        self.events.push(Reverse((at, tie, self.numbered, event)));
    }

    pub fn first(&mut self, key: Key) -> Option<Waiter> {
        let list = self.waiting.get_mut(&key)?;
        let waiter = list.pop_front();
        if list.is_empty() {
            self.waiting.remove(&key);
        }
        waiter
    }

    /// Takes off the list the first task that spins at `key`, if it may get the lock before the first waiter, which
    /// sleeps. A waiter is overtaken in this way only once (`MUTEX_FLAG_HANDOFF`, `RWSEM_FLAG_HANDOFF`).
    pub fn overtaking(&mut self, key: Key) -> Option<Waiter> {
        let list = self.waiting.get_mut(&key)?;
        let spins = |w: &Waiter| self.tasks[w.task].spins.is_some();
        let at = list.iter().position(spins).filter(|at| *at > 0)?;
        let first = list.front()?.task;
        let failed = |w: &Wanting| w.task == first && w.failed;
        if self.wanting.get(&key).is_some_and(|w| w.iter().any(failed)) { None } else { list.remove(at) }
    }

    /// Whether the task that waits with `ticket` for the lock at `key` may spin: it wants the lock exclusive,
    /// as with Linux's mutexes and semaphores, and all holders are on a CPU.
    pub fn may_spin(&self, key: Key, ticket: Ticket) -> bool {
        let of = |w: &&Waiter| w.ticket == ticket;
        let mode = self.waiting.get(&key).and_then(|l| l.iter().find(of)).map(|w| w.mode);
        mode == Some(Mode::Exclusive) && self.holders_run(key)
    }

    pub fn strike(&mut self, key: Key, ticket: Ticket) {
        if let Some(list) = self.waiting.get_mut(&key) {
            list.retain(|w| w.ticket != ticket);
            if list.is_empty() {
                self.waiting.remove(&key);
            }
        }
    }

    /// Ends a wait whose time is over. Returns whether the task was still waiting, so that it becomes ready.
    pub fn time_out(&mut self, id: TaskId, ticket: Ticket) -> bool {
        let task = &mut self.tasks[id];
        let Some(blocked) = task.blocked.take_if(|b| b.ticket == ticket) else { return false };
        task.timed_out = true;
        self.strike(blocked.key, ticket);
        true
    }
}
