//! The thread on which a world runs. The tasks are coroutines on it, and it switches from one to the next.

use super::report::Deadlock;
use super::sched::Sim;
use super::state::TaskId;
use super::task::{self, Body, Task};
use std::rc::Rc;
use tidegate_sys::coroutine::Coroutine;

/// A task that has begun and has not ended.
struct Begun {
    task: Rc<Task>,
    coroutine: Coroutine,
}

/// Runs tasks until none can move.
pub(super) fn run(sim: &Rc<Sim>) -> Result<(), Deadlock> {
    let mut tasks: Vec<Option<Begun>> = Vec::new();
    sim.begin();
    while let Some(id) = sim.next_task() {
        if tasks.len() <= id {
            tasks.resize_with(id + 1, || None);
        }
        let place = &mut tasks[id];
        let Some(moving) = place.take().or_else(|| begin(sim, id)) else { break };
        *place = go_on(moving, sim);
    }
    sim.end()
}

fn begin(sim: &Rc<Sim>, id: TaskId) -> Option<Begun> {
    let (name, Body { stack, work }) = sim.begins(id)?;
    let body = || {
        work();
        task::end();
    };
    let coroutine = Coroutine::new(&name, stack, body);
    Some(Begun { task: Rc::new(Task::new(sim.clone(), id, name)), coroutine })
}

/// The task that was current before. It becomes current again when this is dropped, also in a panic.
struct Outer(Option<Rc<Task>>);

impl Drop for Outer {
    fn drop(&mut self) {
        task::make_current(self.0.take());
    }
}

/// Runs a task until it passes on. Returns the task if it has not ended.
fn go_on(mut moving: Begun, sim: &Sim) -> Option<Begun> {
    // The caller may be a task of another world, or code that a task of this world runs.
    let outer = Outer(task::make_current(Some(moving.task.clone())));
    let ended = moving.coroutine.resume();
    drop(outer);
    if !ended {
        return Some(moving);
    }
    if let Some(stack) = moving.coroutine.into_stack() {
        sim.keep_stack(stack);
    }
    None
}
