//! The promises of a run, and whether a recovered tree keeps them.
//!
//! | promise | says |
//! |---|---|
//! | P0 | the volume opens, writable, and its whole tree can be read |
//! | P1 | each name refers to the object of some time since its directory was last synced |
//! | P2 | a file's size, pages and (but for fdatasync) attributes are of some time since it was synced |
//! | P3 | the names of an object are those of one moment since it was synced: a rename is whole |
//! | P4 | no bytes, sizes or values that the object never had |
//! | P5 | names removed before a sync are gone |
//! | P6 | recovery leaves a volume that the check calls clean, and the same tree each time |
//! | P7 | the reference checker calls the volume clean, too |
//! | P8 | a tree that another program recovers keeps these promises, too |

#[cfg(test)]
mod tests;

use crate::Fault;
use crate::model::{Id, Link, Model, Object, Page, ROOT};
use crate::ops::CrashOp;
use crate::run::Recording;
use crate::stamp::{self, PAGE};
use crate::walk::{Found, Tree};
use std::collections::{BTreeMap, BTreeSet};
use tidegate_vfs::FileType;

/// The state from which on each promise holds, at one moment.
#[derive(Debug, Default)]
pub struct Promises {
    /// The last possible state: the operation in progress is done.
    to: usize,
    /// Everything is at least as new as this state.
    all: usize,
    /// For an object's attributes and a directory's entries.
    objects: BTreeMap<Id, usize>,
    /// For the names of a file.
    names: BTreeMap<Id, usize>,
    /// For the size and pages of a file.
    data: BTreeMap<Id, usize>,
    /// The bytes that the device keeps whole: parts of a page may be from different times.
    unit: usize,
    /// A change of a file's size may be there in part: a large change takes several commits.
    in_steps: bool,
    /// A size is on the medium no sooner than the data that made it.
    ordered: bool,
}

impl Promises {
    /// The promises that hold when power fails before event `cut`.
    pub fn at(run: &Recording, cut: u64) -> Promises {
        let done = run.spans.iter().take_while(|s| s.1 <= cut).count();
        let mut p = Promises {
            to: (done + 1).min(run.spans.len()),
            unit: run.tape.blocks.block_size(),
            in_steps: run.manner.switches.sizes_change_in_steps(),
            ordered: run.manner.switches.sizes_follow_data(),
            ..Promises::default()
        };
        for (i, (step, synced)) in run.steps[..done].iter().zip(&run.synced).enumerate() {
            p.add(&step.op, *synced, i + 1);
        }
        for (start, _) in run.others.iter().filter(|s| s.1 <= cut) {
            p.all = p.all.max(run.spans.iter().take_while(|s| s.1 <= *start).count());
        }
        p
    }

    fn add(&mut self, op: &CrashOp, synced: Option<Id>, state: usize) {
        if *op == CrashOp::Sync {
            self.all = state;
        }
        let Some(id) = synced else { return };
        self.data.insert(id, state);
        match op {
            CrashOp::Fsync { .. } | CrashOp::WriteSync { .. } => {
                self.objects.insert(id, state);
                self.names.insert(id, state);
            }
            // The name of the directory itself is promised by an fsync of its parent.
            CrashOp::FsyncDir { .. } => drop(self.objects.insert(id, state)),
            _ => {}
        }
    }

    fn since(&self, of: &BTreeMap<Id, usize>, id: Id) -> usize {
        of.get(&id).copied().unwrap_or(0).max(self.all)
    }
}

/// Compares a tree with the promises.
///
/// # Errors
/// The first promise that is broken.
pub fn judge(tree: &Tree, model: &Model, p: &Promises) -> Result<(), Fault> {
    for (id, found) in tree {
        let Some(o) = model.objects.get(id) else {
            return Err(Fault::new("P4", format!("object {id} {:?} was never made", found.names)));
        };
        if o.kind != found.kind {
            return Err(Fault::new("P4", format!("object {id} is a {:?}, not a {:?}", found.kind, o.kind)));
        }
    }
    names(tree, model, p)?;
    for (id, o) in &model.objects {
        match tree.get(id) {
            Some(found) => {
                one_moment(*id, &found.names, o, p)?;
                attributes(*id, found, o, p)?;
                content(*id, found, o, p)?;
            }
            None => one_moment(*id, &BTreeSet::new(), o, p)?,
        }
    }
    Ok(())
}

fn shown(name: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(name)
}

/// P1 and P5.
fn names(tree: &Tree, model: &Model, p: &Promises) -> Result<(), Fault> {
    let mut is: BTreeMap<(Id, &[u8]), Id> = BTreeMap::new();
    for (id, found) in tree {
        for (dir, name) in &found.names {
            is.insert((*dir, name), *id);
            if !model.entries.get(dir).is_some_and(|e| e.contains_key(name)) {
                let text = format!("directory {dir} has an entry {:?} that never was", shown(name));
                return Err(Fault::new("P4", text));
            }
        }
    }
    for (dir, entries) in model.entries.iter().filter(|e| tree.contains_key(e.0)) {
        let from = p.since(&p.objects, *dir);
        for (name, h) in entries {
            let now = is.get(&(*dir, name)).copied();
            if h.between(from, p.to).any(|v| *v == now) {
                continue;
            }
            let may: Vec<_> = h.between(from, p.to).collect();
            let promise = if now.is_some() && may == [&None] { "P5" } else { "P1" };
            let text =
                format!("directory {dir}: {:?} is {now:?}; since its sync it was {may:?}", shown(name));
            return Err(Fault::new(promise, text));
        }
    }
    Ok(())
}

/// P3, and that a synced file has a name.
fn one_moment(id: Id, names: &BTreeSet<Link>, o: &Object, p: &Promises) -> Result<(), Fault> {
    let from = p.since(&p.names, id);
    // After an fdatasync, the file has some name.
    let nameless = names.is_empty() && !o.names.between(p.since(&p.data, id), p.to).any(BTreeSet::is_empty);
    if id == ROOT || (o.names.between(from, p.to).any(|v| v == names) && !(nameless && is_file(o))) {
        return Ok(());
    }
    let list = |names: &BTreeSet<Link>| {
        let each: Vec<_> = names.iter().map(|(d, n)| format!("{d}:{}", shown(n))).collect();
        format!("{{{}}}", each.join(", "))
    };
    let may: Vec<_> = o.names.between(from, p.to).map(list).collect();
    let promise = if names.is_empty() && is_file(o) && p.data.contains_key(&id) { "P2" } else { "P3" };
    let text =
        format!("object {id} has the names {}; since its sync it had {}", list(names), may.join(" or "));
    Err(Fault::new(promise, text))
}

fn is_file(o: &Object) -> bool {
    o.kind == FileType::Regular
}

/// P2 and P4 for the mode, the group, the time of access, the extended attributes and the target.
fn attributes(id: Id, found: &Found, o: &Object, p: &Promises) -> Result<(), Fault> {
    let from = p.since(&p.objects, id);
    if !o.mode.between(from, p.to).any(|m| *m == found.mode) {
        let may: Vec<_> = o.mode.between(from, p.to).map(|m| format!("{m:o}")).collect();
        let text = format!("object {id} has mode {:o}; since its sync it had {may:?}", found.mode);
        return Err(Fault::new("P2", text));
    }
    if !o.gid.between(from, p.to).any(|gid| *gid == found.gid) {
        let may: Vec<_> = o.gid.between(from, p.to).collect();
        let text = format!("object {id} has group {}; since its sync it had {may:?}", found.gid);
        return Err(Fault::new("P2", text));
    }
    if !o.atime.between(from, p.to).any(|t| t.is_none_or(|t| t == found.atime)) {
        let may: Vec<_> = o.atime.between(from, p.to).collect();
        let text = format!("object {id} was read at {}; since its sync that was {may:?}", found.atime);
        return Err(Fault::new("P2", text));
    }
    if let Some(name) = found.xattrs.keys().find(|n| !o.xattrs.keys().any(|k| k.as_bytes() == &n[..])) {
        return Err(Fault::new("P4", format!("object {id} has an attribute {:?}", shown(name))));
    }
    for (name, h) in &o.xattrs {
        let now = found.xattrs.get(name.as_bytes());
        if !h.between(from, p.to).any(|v| v.as_ref() == now) {
            let show =
                |v: Option<&Vec<u8>>| v.map(|v| format!("{}({})", shown(&v[..v.len().min(8)]), v.len()));
            let may: Vec<_> = h.between(from, p.to).map(|v| show(v.as_ref())).collect();
            let text = format!("object {id}: {name} is {:?}; since its sync it was {may:?}", show(now));
            return Err(Fault::new("P2", text));
        }
    }
    if found.target != o.target {
        let text =
            format!("symbolic link {id} leads to {:?}", shown(&found.target[..found.target.len().min(20)]));
        return Err(Fault::new("P4", text));
    }
    Ok(())
}

/// P2 and P4 for size and pages.
fn content(id: Id, found: &Found, o: &Object, p: &Promises) -> Result<(), Fault> {
    if !is_file(o) {
        return Ok(());
    }
    let from = p.since(&p.data, id);
    let Some(reached) = reached(found.size, o, from, p) else {
        let may: Vec<_> = o.size.between(from, p.to).collect();
        let text = format!("file {id} has {} bytes; since its sync it had {may:?}", found.size);
        return Err(Fault::new("P2", text));
    };
    let grown = if p.ordered { grown(o, from, reached, p.to) } else { Vec::new() };
    let mut seen = BTreeSet::new();
    for (first, bytes) in &found.data {
        for (n, page) in bytes.chunks(PAGE).enumerate() {
            let index = first + n as u64;
            seen.insert(index);
            parts_may(id, index, page, o, from, p)?;
            appended(id, index, page, o, &grown, p)?;
        }
    }
    for (&index, _) in o.pages.range(..found.size.div_ceil(PAGE as u64)).filter(|e| !seen.contains(e.0)) {
        let n = (found.size - index * PAGE as u64).min(PAGE as u64) as usize;
        parts_may(id, index, &[0; PAGE][..n], o, from, p)?;
        appended(id, index, &[0; PAGE][..n], o, &grown, p)?;
    }
    Ok(())
}

/// The first state since the sync in which the file may have had this size. Where sizes change in steps, a
/// size between the old and the new one counts, too.
fn reached(size: u64, o: &Object, from: usize, p: &Promises) -> Option<usize> {
    if *o.size.at(from) == size {
        return Some(from);
    }
    let came = |old: u64, new: u64| new == size || p.in_steps && (old < size) != (new < size);
    o.size.changes(from, p.to).filter(|(_, old, new)| came(**old, **new)).last().map(|c| c.0)
}

/// The growths of a file up to state `reached`, in which it first had its size: from which byte on it grew,
/// and in which state. Growths after which it was shorter again are left out. After a truncation, nothing is
/// said of the bytes below the truncation's size: the truncation sets the size at once, as Linux does, and
/// data written below it may not be there yet.
fn grown(o: &Object, from: usize, reached: usize, to: usize) -> Vec<(u64, usize)> {
    let mut least = u64::MAX;
    let mut all = Vec::new();
    for (state, old, _) in o.size.changes(from, reached) {
        if *old < least {
            least = *old;
            let set = o.truncated.iter().filter(|t| t.0 >= state && t.0 <= to).map(|t| t.1);
            all.push((set.fold(least, u64::max), state));
        }
    }
    all
}

/// P4 for the bytes by which a file grew: when the size is there, these bytes are there, too, as they were
/// then or later.
fn appended(
    id: Id,
    index: u64,
    page: &[u8],
    o: &Object,
    grown: &[(u64, usize)],
    p: &Promises,
) -> Result<(), Fault> {
    let start = index * PAGE as u64;
    for (unit, part) in page.chunks(p.unit).enumerate() {
        let first = start + (unit * p.unit) as u64;
        for (old, state) in grown {
            let skip = old.saturating_sub(first).min(part.len() as u64) as usize;
            let (at, bytes) = (unit * p.unit + skip, &part[skip..]);
            let is = |v: &Page| match v {
                Some(page) => bytes == &page[at..at + bytes.len()],
                None => bytes.iter().all(|&b| b == 0),
            };
            let Some(h) = o.pages.get(&index).filter(|_| !bytes.is_empty()) else { continue };
            if !h.between(*state, p.to).any(is)
                && !written_elsewhere(o, index, p.since(&p.data, id), p.to, &is)
            {
                let text = format!(
                    "file {id} got longer than {old} bytes in state {state}, but page {index} holds {} from {at} on",
                    stamp::describe(bytes),
                );
                return Err(Fault::new("P4", text));
            }
        }
    }
    Ok(())
}

fn parts_may(id: Id, index: u64, page: &[u8], o: &Object, from: usize, p: &Promises) -> Result<(), Fault> {
    let mut parts = page.chunks(p.unit).enumerate();
    parts.try_for_each(|(n, part)| page_may(id, (index, n * p.unit), part, o, from, p))
}

/// Whether a page may hold data written to another page, which now has its block. This happens when pages
/// moved since the sync (a range was taken out or put in), were then written in place, and power failed
/// before the commit with the move. Linux's ext4 promises no more.
fn written_elsewhere(o: &Object, index: u64, from: usize, to: usize, is: &dyn Fn(&Page) -> bool) -> bool {
    let mut moves = o.shifted.iter().filter(|s| s.0 > from && s.0 <= to);
    let Some(first) = moves.next() else { return false };
    let far = first.1 + moves.map(|s| s.1).sum::<u64>();
    let near = o.pages.range(index.saturating_sub(far)..=index + far);
    near.flat_map(|(_, h)| h.changes(first.0, to)).any(|(_, _, new)| is(new))
}

/// P2 and P4 for the bytes at one place of a page.
fn page_may(
    id: Id,
    (index, at): (u64, usize),
    bytes: &[u8],
    o: &Object,
    from: usize,
    p: &Promises,
) -> Result<(), Fault> {
    let is = |v: &Page| match v {
        Some(page) => bytes == &page[at..at + bytes.len()],
        None => bytes.iter().all(|&b| b == 0),
    };
    let Some(h) = o.pages.get(&index) else {
        return if is(&None) {
            Ok(())
        } else {
            let text = format!("page {index} of file {id}, never written, holds {}", stamp::describe(bytes));
            Err(Fault::new("P4", text))
        };
    };
    if h.between(from, p.to).any(is) || written_elsewhere(o, index, from, p.to, &is) {
        return Ok(());
    }
    let show = |v: &Page| v.as_ref().map_or("zeros".into(), |p| stamp::describe(p));
    let may: Vec<_> = h.between(from, p.to).map(show).collect();
    let promise = if h.between(0, p.to).any(is) { "P2" } else { "P4" };
    let text = format!(
        "page {index} of file {id} holds {}; since its sync it held {}",
        stamp::describe(bytes),
        may.join(" or ")
    );
    Err(Fault::new(promise, text))
}
