//! A task: the current task, its debt of CPU time, its end.

use super::sched::Sim;
use super::state::{Key, Mode, Reason, TaskId};
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tidegate_sys::coroutine::Stack;

/// The number of simulated tasks of the process. While it is 0, no thread looks for its task.
static TASKS: AtomicUsize = AtomicUsize::new(0);

thread_local!(
    /// The task that moves on this thread.
    static CURRENT: RefCell<Option<Rc<Task>>> = const { RefCell::new(None) }
);

/// The work of a task that has not begun, and the stack for it.
pub(crate) struct Body {
    pub stack: Stack,
    pub work: Box<dyn FnOnce() + Send>,
}

/// The caller, as a task.
pub(crate) struct Task {
    sim: Rc<Sim>,
    id: TaskId,
    name: String,
    /// Nanoseconds charged and not paid yet.
    debt: Cell<u64>,
    /// All nanoseconds that were ever charged.
    ran: Cell<u64>,
    /// Its value of each [`Local`](crate::thread::Local), by number.
    own: RefCell<Vec<Option<Rc<dyn Any>>>>,
}

impl Task {
    pub fn new(sim: Rc<Sim>, id: TaskId, name: String) -> Task {
        let (debt, ran, own) = (Cell::new(0), Cell::new(0), RefCell::new(Vec::new()));
        Task { sim, id, name, debt, ran, own }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its value of the local `number`, which is made if it has none.
    pub fn own<T: 'static>(&self, number: usize, initial: fn() -> T) -> Rc<T> {
        let own = self.own.borrow().get(number).cloned().flatten();
        match own.map(Rc::downcast) {
            Some(Ok(own)) => own,
            _ => self.make_own(number, initial),
        }
    }

    /// Makes a value. That may need other locals.
    #[cold]
    fn make_own<T: 'static>(&self, number: usize, initial: fn() -> T) -> Rc<T> {
        let made = Rc::new(initial());
        let mut own = self.own.borrow_mut();
        if own.len() <= number {
            own.resize(number + 1, None);
        }
        own[number] = Some(made.clone());
        made
    }

    pub fn sim(&self) -> &Rc<Sim> {
        &self.sim
    }

    pub fn id(&self) -> TaskId {
        self.id
    }

    pub fn charge(&self, time: u64) {
        self.debt.set(self.debt.get() + time);
        self.ran.set(self.ran.get() + time);
    }

    /// Nanoseconds that it was charged or has spun since it began.
    pub fn ran(&self) -> u64 {
        self.ran.get() + self.sim.spun(self.id)
    }

    /// Nanoseconds that it waited for a CPU since it began.
    pub fn delayed(&self) -> u64 {
        self.sim.delayed(self.id)
    }

    /// Nanoseconds on the virtual clock.
    pub fn now(&self) -> u64 {
        self.sim.now() + self.debt.get()
    }

    /// Pays the debt. Returns whether there was any, so that other tasks may have moved.
    pub fn settle(&self) -> bool {
        let debt = self.debt.take();
        if debt > 0 {
            self.sim.pay(self.id, debt);
        }
        debt > 0
    }

    /// Pays the debt, if it is large enough.
    pub fn pay(&self) {
        if self.debt.get() >= self.sim.quantum {
            self.settle();
        }
    }

    /// Called where the task may meet others.
    pub fn meet(&self) {
        self.pay();
        if self.sim.jitter > 0 && self.sim.random().is_multiple_of(u64::from(self.sim.jitter)) {
            let pause = self.sim.random() % self.sim.slice().max(1);
            self.pause(Duration::from_nanos(pause));
        }
    }

    /// Sleeps.
    #[track_caller]
    pub fn pause(&self, time: Duration) {
        self.settle();
        let ticket = self.sim.enroll(self.id, Key::Time, Mode::Exclusive, false);
        self.sim.sleep(self.id, (Key::Time, ticket), Some(time), Reason::Sleep, Location::caller());
    }
}

/// Whether any thread is a task of a simulated world.
#[inline]
pub(crate) fn any() -> bool {
    TASKS.load(Relaxed) > 0
}

/// Whether the calling thread is a task of a simulated world.
#[inline]
pub(crate) fn is_simulated() -> bool {
    with(|_| ()).is_some()
}

/// Calls `f` with the calling task, if the thread is one.
#[inline]
pub(crate) fn with<R>(f: impl FnOnce(&Task) -> R) -> Option<R> {
    if any() { look(f) } else { None }
}

/// Out of line, since the calling code is everywhere.
#[cold]
#[inline(never)]
fn look<R>(f: impl FnOnce(&Task) -> R) -> Option<R> {
    // The task is cloned, as other tasks become current before `f` returns.
    let current = CURRENT.try_with(|c| c.borrow().clone()).ok().flatten()?;
    Some(f(&current))
}

/// Makes a task, or none, the current one of the thread. Returns the previous one.
pub(super) fn make_current(task: Option<Rc<Task>>) -> Option<Rc<Task>> {
    CURRENT.with(|c| c.replace(task))
}

/// Ends the calling task.
pub(super) fn end() {
    with(|t| {
        t.settle();
        TASKS.fetch_sub(1, SeqCst);
        t.sim.exit(t.id);
    });
}

/// The stack size of a task in bytes: as many as the standard library gives a thread.
fn stack_size() -> usize {
    static SIZE: OnceLock<usize> = OnceLock::new();
    *SIZE.get_or_init(|| {
        let told = std::env::var("RUST_MIN_STACK").ok().and_then(|n| n.parse().ok());
        told.unwrap_or(2 << 20)
    })
}

/// Starts a new task of `sim`, which moves when it is its turn.
pub(crate) fn start<T: Send + 'static>(
    sim: &Rc<Sim>,
    name: &str,
    f: impl FnOnce() -> T + Send + 'static,
) -> std::io::Result<Joined<T>> {
    let stack = sim.stack(stack_size())?;
    let ended = Arc::new(Ended::default());
    let theirs = ended.clone();
    let work = move || theirs.tell(catch_unwind(AssertUnwindSafe(f)));
    TASKS.fetch_add(1, SeqCst);
    let id = sim.add(name, Body { stack, work: Box::new(work) });
    Ok(Joined { world: sim.number(), id, ended })
}

/// The end of a task's work.
struct Ended<T> {
    result: parking_lot::Mutex<Option<std::thread::Result<T>>>,
    told: parking_lot::Condvar,
}

impl<T> Default for Ended<T> {
    fn default() -> Self {
        Ended { result: parking_lot::Mutex::new(None), told: parking_lot::Condvar::new() }
    }
}

impl<T> Ended<T> {
    fn tell(&self, result: std::thread::Result<T>) {
        *self.result.lock() = Some(result);
        self.told.notify_all();
    }

    /// Waits in real time, for threads outside the task's world.
    fn wait(&self) -> std::thread::Result<T> {
        let mut result = self.result.lock();
        loop {
            match result.take() {
                Some(result) => return result,
                None => self.told.wait(&mut result),
            }
        }
    }
}

/// A task to wait for.
pub(crate) struct Joined<T> {
    world: u64,
    id: TaskId,
    ended: Arc<Ended<T>>,
}

impl<T> Joined<T> {
    /// Waits for the task's end. A task of the same world waits in virtual time.
    #[track_caller]
    pub fn join(self) -> std::thread::Result<T> {
        let at = Location::caller();
        with(|t| {
            t.settle();
            let key = Key::End(self.id);
            while self.is_of(t) && !t.sim.is_done(self.id) {
                let ticket = t.sim.enroll(t.id, key, Mode::Exclusive, false);
                t.sim.sleep(t.id, (key, ticket), None, Reason::Join, at);
            }
        });
        self.ended.wait()
    }

    /// The result of its work, if the work has ended.
    pub fn result(&self) -> Option<std::thread::Result<T>> {
        self.ended.result.lock().take()
    }

    pub fn is_finished(&self) -> bool {
        let here = with(|t| self.is_of(t).then(|| t.sim.is_done(self.id))).flatten();
        here.unwrap_or_else(|| self.ended.result.lock().is_some())
    }

    /// Whether the task is of the same world as `t`.
    fn is_of(&self, t: &Task) -> bool {
        t.sim.number() == self.world
    }
}
