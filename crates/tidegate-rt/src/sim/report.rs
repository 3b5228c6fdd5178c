//! The report of a deadlock, with the facts that are needed to repair it.

use super::state::{Key, Reason, State, TaskState};
use std::fmt::Write;

/// Tasks are left that can never go on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Deadlock {
    /// A line for each such task: what it waits for and where, the holder of that, and its own locks.
    pub tasks: Vec<String>,
}

impl std::fmt::Display for Deadlock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "deadlock in the simulated world: {} tasks wait for ever", self.tasks.len())?;
        self.tasks.iter().try_for_each(|t| write!(f, "\n  {t}"))
    }
}

impl std::error::Error for Deadlock {}

/// The report of the tasks that are left.
pub(super) fn of(s: &State) -> Deadlock {
    Deadlock { tasks: s.tasks.iter().filter(|t| !t.done).map(|t| line(s, t)).collect() }
}

fn line(s: &State, task: &TaskState) -> String {
    let mut line = task.name.clone();
    if let Some(b) = task.blocked {
        let what = match (b.reason, b.key) {
            (Reason::Lock(class), key) => format!("{}{}", class.name(), holders(s, key)),
            (Reason::Condvar, _) => "a condition variable".to_owned(),
            (Reason::WaitQueue, _) => "a condition".to_owned(),
            (Reason::Join, Key::End(id)) => format!("the end of {}", s.tasks[id].name),
            (Reason::Sleep | Reason::Join, _) => "its time".to_owned(),
        };
        let _ = write!(line, " waits for {what} at {}:{}", b.at.file(), b.at.line());
    }
    let held: Vec<_> = task.held.iter().map(|(_, class)| class.name()).collect();
    if !held.is_empty() {
        let _ = write!(line, "; holds {}", held.join(", "));
    }
    line
}

fn holders(s: &State, key: Key) -> String {
    let has = |t: &&TaskState| t.held.iter().any(|(k, _)| *k == key);
    let names: Vec<_> = s.tasks.iter().filter(has).map(|t| t.name.as_str()).collect();
    if names.is_empty() { String::new() } else { format!(" (held by {})", names.join(", ")) }
}
