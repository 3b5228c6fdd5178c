//! Trees of calls: how often and for how long each span was entered, by the spans around it.

use crate::clock::Nanos;
use crate::trace::{Event, Phase};
use std::collections::BTreeMap;

/// Nodes of a thread's tree; what comes after is counted to the span around it.
const MAX_NODES: usize = 4096;
const NONE: u32 = u32::MAX;

/// Calls of the threads of one name.
#[derive(Clone, Debug, Default)]
pub struct CallTree {
    /// The threads' name.
    pub thread: String,
    /// The nodes; a parent stands before its children.
    pub nodes: Vec<Call>,
}

/// A span within the spans around it.
#[derive(Clone, Debug)]
pub struct Call {
    /// Its name, or a lock's class.
    pub name: &'static str,
    /// It is a wait for a lock.
    pub is_lock: bool,
    /// The span around it, an index of the nodes.
    pub parent: Option<usize>,
    /// How often it ended, or was still there when it was looked at.
    pub count: u64,
    /// Time in it, in nanoseconds.
    pub total_ns: u64,
    /// Of this, outside of the spans in it.
    pub self_ns: u64,
    /// The longest, in nanoseconds.
    pub max_ns: u64,
}

impl CallTree {
    /// The trees of events that were kept elsewhere, as a simulated world keeps them; `name` is that of a
    /// thread. Spans without an end are not counted, nor is what lost its beginning.
    pub fn of_events(events: &[Event], name: impl Fn(u32) -> String) -> Vec<CallTree> {
        let mut trees: BTreeMap<u32, (Tree, Vec<&'static str>)> = BTreeMap::new();
        for e in events {
            let (tree, open) = trees.entry(e.thread).or_default();
            match e.phase {
                Phase::Instant => {}
                Phase::Begin | Phase::ContentionBegin => {
                    open.push(e.name);
                    tree.enter(e.name, e.phase == Phase::ContentionBegin, e.at);
                }
                Phase::End | Phase::ContentionEnd => {
                    if open.pop_if(|n| *n == e.name).is_some() {
                        tree.leave(e.at);
                    }
                }
            }
        }
        let mut named: BTreeMap<String, Tree> = BTreeMap::new();
        for (thread, (tree, _)) in trees {
            named.entry(name(thread)).or_default().absorb(tree);
        }
        named.into_iter().filter(|(_, t)| !t.is_empty()).map(|(n, t)| t.finish(n)).collect()
    }
}

#[derive(Clone)]
struct Node {
    name: &'static str,
    is_lock: bool,
    parent: u32,
    first_child: u32,
    next: u32,
    count: u64,
    total: u64,
    inside: u64,
    max: u64,
}

/// A thread's tree while it grows.
#[derive(Default)]
pub(crate) struct Tree {
    nodes: Vec<Node>,
    first: u32,
    /// Spans that last, outermost first: node, beginning, and what was counted of it already.
    open: Vec<(u32, Nanos, u64)>,
    /// Spans that last and have no node.
    beyond: usize,
}

impl Tree {
    pub(crate) fn is_empty(&self) -> bool {
        self.nodes.iter().all(|n| n.count == 0)
    }

    /// Enters a span.
    pub(crate) fn enter(&mut self, name: &'static str, is_lock: bool, at: Nanos) {
        let parent = self.open.last().map_or(NONE, |o| o.0);
        match if self.beyond > 0 { None } else { self.child(parent, name, is_lock) } {
            Some(node) => self.open.push((node, at, 0)),
            None => self.beyond += 1,
        }
    }

    /// Leaves the span entered last.
    pub(crate) fn leave(&mut self, at: Nanos) {
        if self.beyond > 0 {
            self.beyond -= 1;
        } else if let Some((node, since, counted)) = self.open.pop() {
            self.count(node, at.since(since).0, counted);
        }
    }

    fn count(&mut self, node: u32, took: u64, counted: u64) {
        let n = &mut self.nodes[node as usize];
        n.count += 1;
        n.total += took - counted.min(took);
        n.max = n.max.max(took);
        let parent = n.parent;
        if parent != NONE {
            self.nodes[parent as usize].inside += took - counted.min(took);
        }
    }

    /// The child of `parent` (or root) of this name, made if there is room.
    fn child(&mut self, parent: u32, name: &'static str, is_lock: bool) -> Option<u32> {
        if self.nodes.is_empty() {
            self.first = NONE;
        }
        let mut at = if parent == NONE { self.first } else { self.nodes[parent as usize].first_child };
        let mut last = NONE;
        while at != NONE {
            let n = &self.nodes[at as usize];
            if n.is_lock == is_lock && (std::ptr::eq(n.name, name) || n.name == name) {
                return Some(at);
            }
            (last, at) = (at, n.next);
        }
        if self.nodes.len() >= MAX_NODES {
            return None;
        }
        let new = self.nodes.len() as u32;
        self.nodes.push(Node {
            name,
            is_lock,
            parent,
            first_child: NONE,
            next: NONE,
            count: 0,
            total: 0,
            inside: 0,
            max: 0,
        });
        match (last, parent) {
            (NONE, NONE) => self.first = new,
            (NONE, parent) => self.nodes[parent as usize].first_child = new,
            (last, _) => self.nodes[last as usize].next = new,
        }
        Some(new)
    }

    /// Adds another tree's figures.
    pub(crate) fn absorb(&mut self, other: Tree) {
        let mut to: Vec<Option<u32>> = Vec::with_capacity(other.nodes.len());
        for n in &other.nodes {
            let parent = if n.parent == NONE { Some(NONE) } else { to[n.parent as usize] };
            let node = parent.and_then(|p| self.child(p, n.name, n.is_lock));
            to.push(node);
            if let Some(node) = node {
                let mine = &mut self.nodes[node as usize];
                mine.count += n.count;
                mine.total += n.total;
                mine.inside += n.inside;
                mine.max = mine.max.max(n.max);
            }
        }
    }

    /// Takes the figures, with those of spans that last up to `now`, and leaves the spans.
    pub(crate) fn take(&mut self, now: Nanos) -> Tree {
        let open = self.open.clone();
        for (node, since, counted) in &open {
            self.count(*node, now.since(*since).0, *counted);
        }
        let figures = Tree { nodes: self.nodes.clone(), first: self.first, open: Vec::new(), beyond: 0 };
        let kept: Vec<_> = open.iter().map(|(node, since, _)| (*node, *since, now.since(*since).0)).collect();
        if kept.is_empty() {
            self.nodes = Vec::new();
        } else {
            for n in &mut self.nodes {
                (n.count, n.total, n.inside, n.max) = (0, 0, 0, 0);
            }
        }
        self.open = kept;
        figures
    }

    /// The tree as it is shown. Nodes that nothing was counted of are in it only above others.
    pub(crate) fn finish(self, thread: String) -> CallTree {
        let mut wanted = vec![false; self.nodes.len()];
        for i in (0..self.nodes.len()).rev() {
            wanted[i] |= self.nodes[i].count > 0;
            let parent = self.nodes[i].parent;
            if wanted[i] && parent != NONE {
                wanted[parent as usize] = true;
            }
        }
        let mut index = vec![0; self.nodes.len()];
        let mut nodes: Vec<Call> = Vec::new();
        for (i, n) in self.nodes.iter().enumerate().filter(|(i, _)| wanted[*i]) {
            index[i] = nodes.len();
            nodes.push(Call {
                name: n.name,
                is_lock: n.is_lock,
                parent: (n.parent != NONE).then(|| index[n.parent as usize]),
                count: n.count,
                total_ns: n.total,
                self_ns: n.total.saturating_sub(n.inside),
                max_ns: n.max,
            });
        }
        CallTree { thread, nodes }
    }
}
