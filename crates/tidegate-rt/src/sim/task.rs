//! A task's thread: whose turn it is, and its debt of CPU time.

use super::sched::Sim;
use super::state::{Key, Mode, Reason, TaskId};
use std::cell::{Cell, RefCell};
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::time::Duration;

/// Simulated tasks of the process: while there are none, nobody looks further.
static TASKS: AtomicUsize = AtomicUsize::new(0);

thread_local!(static CURRENT: RefCell<Option<Task>> = const { RefCell::new(None) });

/// Lets one thread sleep until another passes on to it.
#[derive(Default)]
pub(crate) struct Baton {
    mine: parking_lot::Mutex<bool>,
    passed: parking_lot::Condvar,
}

impl Baton {
    pub fn pass(&self) {
        *self.mine.lock() = true;
        self.passed.notify_one();
    }

    pub fn wait(&self) {
        let mut mine = self.mine.lock();
        while !std::mem::take(&mut *mine) {
            self.passed.wait(&mut mine);
        }
    }
}

/// The calling thread, as a task.
pub(crate) struct Task {
    sim: Arc<Sim>,
    id: TaskId,
    /// Nanoseconds charged and not paid for.
    debt: Cell<u64>,
    /// All that was ever charged.
    ran: Cell<u64>,
}

impl Task {
    pub fn sim(&self) -> &Arc<Sim> {
        &self.sim
    }

    pub fn id(&self) -> TaskId {
        self.id
    }

    pub fn charge(&self, time: u64) {
        self.debt.set(self.debt.get() + time);
        self.ran.set(self.ran.get() + time);
    }

    /// Nanoseconds that it was charged or spun since it began.
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

    /// Pays what is owed; whether that was anything, so that others may have moved.
    pub fn settle(&self) -> bool {
        let debt = self.debt.take();
        if debt > 0 {
            self.sim.pay(self.id, debt);
        }
        debt > 0
    }

    /// Pays what is owed, if enough has come together.
    pub fn pay(&self) {
        if self.debt.get() >= self.sim.quantum {
            self.settle();
        }
    }

    /// Comes to where it may meet others.
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

/// Whether the calling thread is.
#[inline]
pub(crate) fn is_simulated() -> bool {
    with(|_| ()).is_some()
}

/// Does something with the calling task, if the thread is one.
#[inline]
pub(crate) fn with<R>(f: impl FnOnce(&Task) -> R) -> Option<R> {
    if any() { look(f) } else { None }
}

/// Apart from the code that asks, which is everywhere.
#[cold]
#[inline(never)]
fn look<R>(f: impl FnOnce(&Task) -> R) -> Option<R> {
    CURRENT.try_with(|c| c.borrow().as_ref().map(f)).ok().flatten()
}

/// Ends the task, by a panic as well.
struct Exit;

impl Drop for Exit {
    fn drop(&mut self) {
        let task = CURRENT.with(|c| c.borrow_mut().take());
        if let Some(t) = task {
            t.settle();
            TASKS.fetch_sub(1, SeqCst);
            t.sim.exit(t.id);
        }
    }
}

/// A thread for a new task of `sim`, which moves when its turn comes.
pub(crate) fn start<T: Send + 'static>(
    sim: &Arc<Sim>,
    name: &str,
    f: impl FnOnce() -> T + Send + 'static,
) -> std::io::Result<Joined<T>> {
    let baton = Arc::new(Baton::default());
    let (told, tell) = std::sync::mpsc::channel::<TaskId>();
    let (mine, world) = (baton.clone(), sim.clone());
    let body = move || {
        // Nobody tells a task that could not be added.
        let id = tell.recv().ok()?;
        mine.wait();
        CURRENT
            .with(|c| *c.borrow_mut() = Some(Task { sim: world, id, debt: Cell::new(0), ran: Cell::new(0) }));
        let _exit = Exit;
        Some(f())
    };
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(body)?;
    TASKS.fetch_add(1, SeqCst);
    let id = sim.add(name, baton);
    let _ = told.send(id);
    Ok(Joined { sim: sim.clone(), id, thread })
}

/// A task to wait for.
pub(crate) struct Joined<T> {
    sim: Arc<Sim>,
    id: TaskId,
    thread: std::thread::JoinHandle<Option<T>>,
}

impl<T> Joined<T> {
    /// Waits in virtual time for the task's end, then for its thread's.
    #[track_caller]
    pub fn join(self) -> std::thread::Result<T> {
        let at = Location::caller();
        with(|t| {
            t.settle();
            let key = Key::End(self.id);
            while !self.sim.is_done(self.id) {
                let ticket = self.sim.enroll(t.id, key, Mode::Exclusive, false);
                self.sim.sleep(t.id, (key, ticket), None, Reason::Join, at);
            }
        });
        self.thread.join().map(|v| v.expect("a task that was added"))
    }

    pub fn is_finished(&self) -> bool {
        self.sim.is_done(self.id)
    }
}
