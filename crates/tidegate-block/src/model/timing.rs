//! When commands are done: a state machine over virtual time, with no clock of its own.
//!
//! The caller gives the time. Equal commands at equal times are done at equal times. So a model runs with the
//! real clock, with a simulated one, and in tests with none.

use super::disk::Array;
use super::flash::Flash;
use super::preset::{Medium as MediumSpec, Spec};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use tidegate_rt::Nanos;

/// The kind of a command, as far as its time depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Device to memory.
    Read,
    /// Memory to device.
    Write,
    /// All acknowledged writes become durable.
    Flush,
    /// Nothing is moved.
    Discard,
    /// A zone is reset. The length is the number of bytes that were written to it.
    Reset,
    /// A zone is finished. The length is the number of bytes that were not written to it.
    Finish,
}

/// One command.
#[derive(Clone, Copy, Debug)]
pub struct Command {
    /// The kind of command.
    pub kind: Kind,
    /// First byte.
    pub pos: u64,
    /// Length in bytes.
    pub len: u64,
    /// A flush goes before the command.
    pub preflush: bool,
    /// The command is durable when it is done.
    pub fua: bool,
}

impl Command {
    /// A command with no flags.
    pub fn new(kind: Kind, pos: u64, len: u64) -> Self {
        Command { kind, pos, len, preflush: false, fua: false }
    }
}

/// Commands that are done, by time. Commands of one time are in order of number.
pub(super) type Done = BTreeSet<(Nanos, u64)>;

enum Medium {
    Flash(Flash),
    Disk(Array),
}

/// The times at which a device's commands are done.
pub struct Timing {
    depth: usize,
    active: usize,
    most: usize,
    waiting: VecDeque<(u64, Command)>,
    /// Commands that follow once the flush before them is done.
    after_flush: BTreeMap<u64, Command>,
    medium: Medium,
    done: Done,
    finished: VecDeque<(Nanos, u64)>,
}

impl Timing {
    /// An idle device of `size` bytes.
    pub fn new(spec: &Spec, size: u64) -> Self {
        let medium = match &spec.medium {
            MediumSpec::Flash(f) => Medium::Flash(Flash::new(*f, spec.depth)),
            MediumSpec::Disk(d) => Medium::Disk(Array::new(*d, size)),
        };
        Timing {
            depth: spec.depth.max(1),
            active: 0,
            most: 0,
            waiting: VecDeque::new(),
            after_flush: BTreeMap::new(),
            medium,
            done: Done::new(),
            finished: VecDeque::new(),
        }
    }

    /// Takes a command at `now`. Times never go back, and no two commands share an `id`.
    pub fn submit(&mut self, now: Nanos, id: u64, command: Command) {
        self.advance(now);
        self.waiting.push_back((id, command));
        self.admit(now);
    }

    /// The time of the next event; `None` when the device is idle.
    pub fn next(&self) -> Option<Nanos> {
        let internal = match &self.medium {
            Medium::Flash(_) => None,
            Medium::Disk(d) => d.next(),
        };
        let done = self.done.first().map(|(t, _)| *t);
        internal.into_iter().chain(done).min()
    }

    /// Lets time pass up to `now`.
    pub fn advance(&mut self, now: Nanos) {
        while let Some(at) = self.next().filter(|t| *t <= now) {
            if let Medium::Disk(d) = &mut self.medium {
                d.step(at, &mut self.done);
            }
            while let Some((t, id)) = self.done.first().copied().filter(|(t, _)| *t <= at) {
                self.done.pop_first();
                match self.after_flush.remove(&id) {
                    Some(command) => self.start(t, id, command),
                    None => {
                        self.active -= 1;
                        self.finished.push_back((t, id));
                    }
                }
            }
            self.admit(at);
        }
    }

    /// The next command that is done, and its time. Commands come in order of time.
    pub fn pop(&mut self) -> Option<(Nanos, u64)> {
        self.finished.pop_front()
    }

    /// When `command` is done, for a device that takes any number at once and never reorders.
    pub fn at_once(&mut self, now: Nanos, command: Command) -> Option<Nanos> {
        match &mut self.medium {
            Medium::Flash(f) if self.depth == usize::MAX => Some(f.serve(now, command)),
            _ => None,
        }
    }

    /// The number of commands that the device has now, and the most it ever had, including those that wait
    /// for a place in its queue.
    pub fn queued(&self) -> (usize, usize) {
        (self.active + self.waiting.len(), self.most)
    }

    fn admit(&mut self, at: Nanos) {
        self.most = self.most.max(self.active + self.waiting.len());
        while self.active < self.depth
            && let Some((id, command)) = self.waiting.pop_front()
        {
            self.active += 1;
            self.start(at, id, command);
        }
    }

    fn start(&mut self, at: Nanos, id: u64, mut command: Command) {
        if command.preflush && command.kind != Kind::Flush {
            command.preflush = false;
            self.after_flush.insert(id, command);
            command = Command::new(Kind::Flush, 0, 0);
        }
        match &mut self.medium {
            Medium::Flash(f) => {
                let end = f.serve(at, command);
                self.done.insert((end, id));
            }
            Medium::Disk(d) => d.start(at, id, command, &mut self.done),
        }
    }
}

/// `at` plus `ns`.
pub(super) fn later(at: Nanos, ns: u64) -> Nanos {
    Nanos(at.0 + ns)
}

/// How long `bytes` take at `rate` bytes a second, in nanoseconds; no time at all at rate 0.
pub(super) fn transfer(bytes: u64, rate: u64) -> u64 {
    if rate == 0 { 0 } else { (u128::from(bytes) * 1_000_000_000 / u128::from(rate)) as u64 }
}
