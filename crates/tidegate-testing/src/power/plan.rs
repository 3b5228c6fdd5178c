//! The steps of a worker: a series of operations that follows from its seed.

use super::model::{Model, Slot, Step};
use crate::fill::Rng;

/// Units in a page.
const PAGE: usize = 16;
/// Names that are created and removed.
const NAMES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "large", "huge"];
/// With more files than this, some are removed first.
const CROWDED: usize = 14;

/// Why a step failed.
#[derive(Debug)]
pub enum Failure {
    /// The volume is full.
    NoSpace,
    /// Any other error, in words.
    Other(String),
}

/// Where steps are done.
pub trait Store {
    /// Does a step; `key` goes into [`super::content`].
    fn run(&mut self, key: u64, step: &Step) -> Result<(), Failure>;
}

/// Some steps; the last one makes them durable.
#[derive(Debug, Clone)]
pub struct Op {
    /// The name of the operation, for readers of the output.
    pub label: &'static str,
    /// The steps.
    pub steps: Vec<Step>,
}

/// Makes operations one after the other.
#[derive(Debug, Clone)]
pub struct Worker {
    /// Distinguishes the worker's content from that of other workers.
    pub key: u64,
    /// The tree after all operations so far.
    pub model: Model,
    /// The number of operations so far.
    pub done: u32,
    rng: Rng,
}

impl Worker {
    /// Worker number `id` of a run.
    pub fn new(seed: u64, id: u32) -> Self {
        let mut rng = Rng::new(seed.wrapping_mul(31).wrapping_add(u64::from(id)));
        Worker { key: rng.bits(), model: Model::default(), done: 0, rng }
    }

    /// The next operation. It counts once [`Worker::done`] or [`Worker::failed`] is called with it.
    pub fn next_op(&mut self) -> Op {
        let stamp = self.done + 1;
        let files: Vec<String> =
            self.model.names().filter(|n| self.model.file(n).is_some()).map(str::to_owned).collect();
        let pick = |rng: &mut Rng, n: usize| rng.below(n as u64) as usize;
        if files.len() > CROWDED {
            let name = files[pick(&mut self.rng, files.len())].clone();
            return Op { label: "remove", steps: vec![Step::Unlink(name)] };
        }
        if files.is_empty() || self.rng.below(10) < 3 {
            let name = NAMES[pick(&mut self.rng, NAMES.len())];
            if self.model.slot(name) == Slot::Absent && self.rng.below(5) == 0 {
                let dir = format!("dir-{stamp}");
                let mut op = self.create(&format!("{dir}/x"), stamp);
                op.steps.insert(0, Step::MakeDir(dir));
                return op;
            }
            return match self.model.slot(name) {
                Slot::Absent => self.create(name, stamp),
                _ => self.recreate(name, stamp),
            };
        }
        let name = files[pick(&mut self.rng, files.len())].clone();
        self.change(&name, &files, stamp)
    }

    /// Records that an operation succeeded.
    pub fn done(&mut self, op: &Op) {
        op.steps.iter().for_each(|s| self.model.apply(s));
        self.done += 1;
    }

    /// Records that an operation failed at some step.
    pub fn failed(&mut self, op: &Op) {
        self.model.forget(&op.steps);
        self.done += 1;
    }

    fn change(&mut self, name: &str, files: &[String], stamp: u32) -> Op {
        let name = name.to_owned();
        let len = self.model.file(&name).map_or(0, |f| f.units.len());
        let sync = Step::Sync(name.clone(), false);
        match self.rng.below(20) {
            0..=4 if len > 0 => self.overwrite(name, len, stamp),
            5..=7 => {
                let most = if self.rng.below(3) == 0 { 400 } else { 12 };
                let units = 1 + self.rng.below(most) as usize;
                let write = Step::Write { name, unit: len, units, stamp };
                Op { label: "append", steps: vec![write, sync] }
            }
            8 | 9 if len > 0 => self.cut(name, len, stamp),
            10 | 11 if len > 0 => {
                let unit = self.rng.below(len as u64) as usize;
                let most = (len - unit).min(if self.rng.below(4) == 0 { len } else { 40 * PAGE });
                let units = 1 + self.rng.below(most as u64) as usize;
                Op { label: "punch", steps: vec![Step::Punch(name, unit, units), sync] }
            }
            12 | 13 => {
                let value = match self.rng.below(4) {
                    0 => None,
                    1 => Some(self.rng.bytes(2000)),
                    _ => Some(self.rng.bytes(20)),
                };
                Op { label: "xattr", steps: vec![Step::Xattr(name, value), sync] }
            }
            14 => {
                let mode = 0o600 | self.rng.below(0o100) as u32;
                Op { label: "chmod", steps: vec![Step::Chmod(name, mode), sync] }
            }
            15 | 16 => {
                let to = NAMES[self.rng.below(NAMES.len() as u64) as usize].to_owned();
                if self.model.slot(&to) == self.model.slot(&name) {
                    return self.recreate(&name, stamp);
                }
                let steps = vec![Step::Rename(name, to.clone()), Step::Sync(to, false)];
                Op { label: "rename", steps }
            }
            17 => {
                let to = format!("link-{stamp}");
                Op { label: "link", steps: vec![Step::Link(name, to), sync] }
            }
            18 if files.len() > 5 => {
                // The removed file is not synced, but another file is.
                let other = files.iter().find(|f| **f != name && self.differ(f, &name));
                let steps = other.map(|o| Step::Sync(o.clone(), false));
                Op { label: "remove", steps: [Step::Unlink(name)].into_iter().chain(steps).collect() }
            }
            _ => self.recreate(&name, stamp),
        }
    }

    fn differ(&self, a: &str, b: &str) -> bool {
        self.model.slot(a) != self.model.slot(b)
    }

    fn overwrite(&mut self, name: String, len: usize, stamp: u32) -> Op {
        let mut steps = Vec::new();
        for _ in 0..1 + self.rng.below(6) {
            let unit = self.rng.below(len as u64) as usize;
            let units = 1 + self.rng.below((len - unit).min(5 * PAGE) as u64) as usize;
            steps.push(Step::Write { name: name.clone(), unit, units, stamp });
        }
        steps.push(Step::Sync(name, true));
        Op { label: "overwrite", steps }
    }

    /// Makes the file shorter, longer again, and writes something behind that.
    fn cut(&mut self, name: String, len: usize, stamp: u32) -> Op {
        let down = self.rng.below(len as u64) as usize;
        let mut steps = vec![Step::Truncate(name.clone(), down)];
        if self.rng.below(3) > 0 {
            let up = down + self.rng.below((len - down) as u64 + 40) as usize;
            steps.push(Step::Truncate(name.clone(), up));
            if self.rng.below(2) == 0 {
                let units = 1 + self.rng.below(20) as usize;
                steps.push(Step::Write { name: name.clone(), unit: up, units, stamp });
            }
        }
        steps.push(Step::Sync(name, false));
        Op { label: "truncate", steps }
    }

    fn recreate(&mut self, name: &str, stamp: u32) -> Op {
        let mut op = self.create(name, stamp);
        op.steps.insert(0, Step::Unlink(name.to_owned()));
        op.label = "recreate";
        op
    }

    fn create(&mut self, name: &str, stamp: u32) -> Op {
        let write = |unit, units| Step::Write { name: name.to_owned(), unit, units, stamp };
        let mut steps = vec![Step::Create(name.to_owned())];
        match (name, self.rng.below(12)) {
            ("huge", 0) => steps.push(write(0, 3010 * PAGE)),
            ("huge", _) => {
                // A page in the inode, in direct nodes, and behind an indirect node.
                for page in [0, 920, 1938, 2950, 3005] {
                    steps.push(write(page * PAGE + self.rng.below(30) as usize, 20 * PAGE));
                }
            }
            ("large", 0..6) => steps.push(write(0, (930 + self.rng.below(60) as usize) * PAGE)),
            (_, 0) => {}
            (_, 1..8) => steps.push(write(0, 1 + self.rng.below(20) as usize)),
            _ => steps.push(write(0, 1 + self.rng.below(60 * PAGE as u64) as usize)),
        }
        if self.rng.below(5) == 0 {
            steps.push(Step::Chmod(name.to_owned(), 0o640));
            steps.push(Step::Xattr(name.to_owned(), Some(self.rng.bytes(30))));
        }
        steps.push(Step::Sync(name.to_owned(), self.rng.below(4) == 0));
        Op { label: "create", steps }
    }
}

/// Runs operations until `say` returns false; `say` gets a line for each operation that has ended.
///
/// # Errors
/// A failure other than a full volume.
pub fn run(
    worker: &mut Worker,
    id: u32,
    store: &mut dyn Store,
    mut say: impl FnMut(&str) -> bool,
) -> Result<(), String> {
    loop {
        let op = worker.next_op();
        let r = op.steps.iter().try_for_each(|s| store.run(worker.key, s).map_err(|e| (e, s.clone())));
        let n = worker.done;
        let line = match r {
            Ok(()) => {
                worker.done(&op);
                let names: Vec<&str> = op.steps.last().map(Step::names).unwrap_or_default();
                let file = names.first().copied().unwrap_or_default();
                let f = worker.model.file(file);
                let size = f.map_or(0, |f| f.units.len() * super::UNIT);
                format!("P {id} {n} {} {file} size={size}", op.label)
            }
            Err((Failure::NoSpace, _)) => {
                worker.failed(&op);
                format!("F {id} {n} {}", op.label)
            }
            Err((Failure::Other(e), step)) => {
                let mut step = format!("{step:?}");
                step.truncate(200);
                return Err(format!("X {id} {n} {} {step}: {e}", op.label));
            }
        };
        if !say(&line) {
            return Ok(());
        }
    }
}
