//! Reads the promises from the lines, and checks whether they were kept.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};

use super::model::{FileState, Model, Slot, UNIT, content};
use super::plan::Worker;

/// A file that was found.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    /// All its bytes.
    pub data: Vec<u8>,
    /// Permissions.
    pub mode: u32,
    /// The attribute.
    pub xattr: Option<Vec<u8>>,
}

/// A tree after the power cut.
pub trait View {
    /// The file at `path`; `None` when there is none. The error is why it cannot be read.
    fn look(&mut self, path: &str) -> Result<Option<Seen>, String>;
}

/// The lines that were printed before the power failed.
#[derive(Debug, Clone, Default)]
pub struct Promises {
    seed: u64,
    /// The most operations that a worker may have begun beyond those that it printed.
    ahead: u32,
    /// For each worker, whether each of its operations succeeded.
    over: BTreeMap<u32, Vec<bool>>,
}

impl Promises {
    /// No promises so far. Each worker may be `ahead` operations ahead of its printed lines.
    pub fn new(seed: u64, workers: u32, ahead: u32) -> Self {
        Promises { seed, ahead, over: (0..workers).map(|w| (w, Vec::new())).collect() }
    }

    /// Takes a line of a worker; returns false for any other line.
    pub fn hear(&mut self, line: &str) -> Result<bool> {
        let mut words = line.split(' ');
        let good = match words.next() {
            Some("P") => true,
            Some("F") => false,
            Some("X") => bail!("a worker failed: {line}"),
            _ => return Ok(false),
        };
        let mut number = || words.next().and_then(|w| w.parse::<u32>().ok());
        let (Some(id), Some(n)) = (number(), number()) else { bail!("line {line:?}") };
        let over = self.over.get_mut(&id).with_context(|| format!("line {line:?}"))?;
        if over.len() != n as usize {
            bail!("line {line:?} where number {} was due", over.len());
        }
        over.push(good);
        Ok(true)
    }

    /// The number of promised operations.
    pub fn len(&self) -> usize {
        self.over.values().map(Vec::len).sum()
    }

    /// Whether nothing was promised.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of operations that failed for lack of space.
    pub fn failures(&self) -> usize {
        self.over.values().flatten().filter(|good| !**good).count()
    }

    /// The promises as text for [`Promises::parse`].
    pub fn to_text(&self) -> String {
        let mut out = format!("{} {} {}\n", self.seed, self.over.len(), self.ahead);
        for (id, over) in &self.over {
            let line = |(n, good): (usize, &bool)| format!("{} {id} {n}\n", if *good { 'P' } else { 'F' });
            out.extend(over.iter().enumerate().map(line));
        }
        out
    }

    /// Reads the text of [`Promises::to_text`].
    pub fn parse(text: &str) -> Result<Self> {
        let mut lines = text.lines();
        let head: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
        let [seed, workers, ahead] = head[..] else { bail!("no promises: {head:?}") };
        let mut p = Promises::new(seed.parse()?, workers.parse()?, ahead.parse()?);
        for line in lines {
            p.hear(line)?;
        }
        Ok(p)
    }

    /// All broken promises, one per line. Worker 3 has its files in `w3`.
    pub fn broken(&self, view: &mut dyn View) -> Result<Vec<String>> {
        let mut out = Vec::new();
        for (&id, over) in &self.over {
            let mut worker = Worker::new(self.seed, id);
            let mut touched = BTreeMap::new();
            for good in over {
                let op = worker.next_op();
                for name in op.steps.iter().flat_map(|s| s.names()) {
                    touched.insert(name.to_owned(), (worker.done, op.label));
                }
                if *good { worker.done(&op) } else { worker.failed(&op) }
            }
            let states = self.states(&mut worker);
            let last = &states[states.len() - 1];
            for name in last.names() {
                let seen = view.look(&format!("w{id}/{name}"));
                let wrong = match seen {
                    Err(e) => Some(e),
                    Ok(seen) => judge(worker.key, name, &states, seen.as_ref()),
                };
                let by = touched.get(name).map_or("nothing".into(), |(n, l)| format!("{l} {n}"));
                let n = over.len();
                out.extend(wrong.map(|w| format!("w{id}/{name}: {w} (last touched by {by} of {n})")));
            }
        }
        Ok(out)
    }

    /// The promised state, then the states that each further step may have made of it.
    fn states(&self, worker: &mut Worker) -> Vec<Model> {
        let mut states = vec![worker.model.clone()];
        for _ in 0..self.ahead {
            let op = worker.next_op();
            for step in &op.steps {
                let mut next = states[states.len() - 1].clone();
                next.apply(step);
                states.push(next);
            }
            worker.done(&op);
        }
        states
    }
}

/// The broken promise of a name, if there is one; `states[0]` is the promised state.
fn judge(key: u64, name: &str, states: &[Model], seen: Option<&Seen>) -> Option<String> {
    let slots: Vec<Slot> = states.iter().map(|m| m.slot(name)).collect();
    let Some(seen) = seen else {
        let gone = slots.iter().any(|s| !matches!(s, Slot::File(_)));
        return (!gone).then(|| "is missing".into());
    };
    // The removal of a name is not promised, and a failed operation may have left anything.
    if !matches!(slots[0], Slot::File(_)) || slots.contains(&Slot::Unknown) {
        return None;
    }
    let mut may: Vec<&FileState> = states.iter().filter_map(|m| m.file(name)).collect();
    may.dedup();
    compare(key, &may, seen)
}

fn compare(key: u64, may: &[&FileState], seen: &Seen) -> Option<String> {
    let sizes = may.iter().map(|f| f.units.len() * UNIT);
    let (least, most) = (sizes.clone().min()?, sizes.max()?);
    if seen.data.len() < least || seen.data.len() > most {
        return Some(format!("size {} where {least} to {most} was promised", seen.data.len()));
    }
    if !may.iter().any(|f| f.mode == seen.mode) {
        return Some(format!("mode {:o} where {:o} was promised", seen.mode, may[0].mode));
    }
    if !may.iter().any(|f| f.xattr == seen.xattr) {
        let len = |x: &Option<Vec<u8>>| x.as_ref().map(Vec::len);
        return Some(format!(
            "attribute of {:?} bytes where {:?} was promised",
            len(&seen.xattr),
            len(&may[0].xattr)
        ));
    }
    let wrong: Vec<usize> = seen
        .data
        .chunks(UNIT)
        .enumerate()
        .filter(|(i, bytes)| {
            let mut stamps: Vec<u32> = may.iter().map(|f| f.units.get(*i).copied().unwrap_or(0)).collect();
            stamps.dedup();
            !stamps.iter().any(|s| content(key, *s, *i)[..bytes.len()] == **bytes)
        })
        .map(|(i, _)| i)
        .collect();
    let (first, last) = (*wrong.first()?, *wrong.last()?);
    let bytes = &seen.data[first * UNIT..seen.data.len().min((first + 1) * UNIT)];
    let want = may[0].units.get(first).copied().unwrap_or(0);
    let got = if bytes.iter().all(|b| *b == 0) {
        "zeros".into()
    } else {
        let of = (1..100_000).find(|s| content(key, *s, first)[..bytes.len()] == *bytes);
        of.map_or("strange bytes".into(), |s| format!("what operation {} wrote", s - 1))
    };
    let want = if want == 0 { "zeros".into() } else { format!("what operation {} wrote", want - 1) };
    Some(format!(
        "{} units from {first} to {last} of {} are wrong; at the first, {got} instead of {want}",
        wrong.len(),
        seen.data.len() / UNIT
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::power::plan::{self, Failure, Store};
    use crate::power::{Step, UNIT};
    use std::collections::BTreeMap;

    /// A tree that loses only the entries that it is told to lose.
    #[derive(Default)]
    struct Memory {
        model: Model,
        key: u64,
        full_at: Option<u32>,
        steps: u32,
    }

    impl Store for Memory {
        fn run(&mut self, key: u64, step: &Step) -> Result<(), Failure> {
            self.key = key;
            self.steps += 1;
            if self.full_at == Some(self.steps) {
                return Err(Failure::NoSpace);
            }
            self.model.apply(step);
            Ok(())
        }
    }

    impl View for Memory {
        fn look(&mut self, path: &str) -> Result<Option<Seen>, String> {
            let name = path.strip_prefix("w0/").ok_or("path")?;
            Ok(self.model.file(name).map(|f| Seen {
                data: f.units.iter().enumerate().flat_map(|(i, s)| content(self.key, *s, i)).collect(),
                mode: f.mode,
                xattr: f.xattr.clone(),
            }))
        }
    }

    fn ran(ops: usize, full_at: Option<u32>) -> (Memory, Vec<String>) {
        let mut memory = Memory { full_at, ..Default::default() };
        let mut lines = Vec::new();
        let mut worker = Worker::new(5, 0);
        let stop = |l: &str| {
            lines.push(l.to_owned());
            lines.len() < ops
        };
        plan::run(&mut worker, 0, &mut memory, stop).unwrap();
        (memory, lines)
    }

    fn heard(lines: &[String]) -> Promises {
        let mut p = Promises::new(5, 1, 2);
        lines.iter().for_each(|l| assert!(p.hear(l).unwrap()));
        Promises::parse(&p.to_text()).unwrap()
    }

    #[test]
    fn what_is_kept_is_kept_and_what_is_lost_is_seen() {
        let (mut memory, lines) = ran(120, None);
        assert_eq!(heard(&lines).broken(&mut memory).unwrap(), Vec::<String>::new());
        // A power cut in the middle of operations may leave up to two operations more than were printed.
        assert_eq!(heard(&lines[..119]).broken(&mut memory).unwrap(), Vec::<String>::new());
        let labels: BTreeMap<&str, u32> = lines.iter().fold(BTreeMap::new(), |mut m, l| {
            *m.entry(l.split(' ').nth(3).unwrap()).or_default() += 1;
            m
        });
        assert!(labels.len() >= 9, "{labels:?}");
        let (mut stale, _) = ran(60, None);
        assert!(heard(&lines).broken(&mut stale).unwrap().len() > 3);
    }

    #[test]
    fn a_failed_operation_leaves_anything() {
        let (mut memory, lines) = ran(120, Some(200));
        assert_eq!(heard(&lines).failures(), 1);
        assert_eq!(heard(&lines).broken(&mut memory).unwrap(), Vec::<String>::new());
    }

    #[test]
    fn a_wrong_unit_is_seen() {
        let f = FileState { units: vec![1, 2, 0].into(), mode: 0o644, xattr: None };
        let g = FileState { units: vec![1, 9, 0].into(), ..f.clone() };
        let mut seen = Seen { mode: 0o644, ..Default::default() };
        for (i, s) in [1, 9, 0].into_iter().enumerate() {
            seen.data.extend(content(7, s, i));
        }
        assert!(compare(7, &[&f], &seen).is_some_and(|w| w.contains("operation 8")));
        assert_eq!(compare(7, &[&f, &g], &seen), None);
        seen.data.truncate(2 * UNIT);
        assert!(compare(7, &[&f, &g], &seen).is_some());
    }
}
