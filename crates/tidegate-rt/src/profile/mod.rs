//! Call trees: how often each span was entered and how long it took, by the spans around it.

use crate::clock::Nanos;
use crate::trace::{Event, Phase};
use std::collections::BTreeMap;

pub(crate) mod live;

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
    /// Whether it is a wait for a lock.
    pub is_lock: bool,
    /// The span around it, as an index of the nodes.
    pub parent: Option<usize>,
    /// How often it ended, or was open when figures were taken.
    pub count: u64,
    /// Time in it, in nanoseconds.
    pub total_ns: u64,
    /// The part of it outside the spans in it.
    pub self_ns: u64,
    /// The longest, in nanoseconds.
    pub max_ns: u64,
}

impl CallTree {
    /// The trees of events that were kept elsewhere, as by a simulated world. `name` gives the name of a
    /// thread. Spans without an end or without a beginning are not counted.
    pub fn of_events(events: &[Event], name: impl Fn(u32) -> String) -> Vec<CallTree> {
        let mut trees: BTreeMap<u32, (Tree, Vec<(u32, Nanos)>)> = BTreeMap::new();
        for e in events {
            let (tree, open) = trees.entry(e.thread).or_default();
            match e.phase {
                Phase::Instant => {}
                Phase::Begin | Phase::ContentionBegin => {
                    let parent = open.last().map_or(NONE, |o| o.0);
                    let node = tree.child(parent, e.name, e.phase == Phase::ContentionBegin);
                    open.push((node, e.at));
                }
                Phase::End | Phase::ContentionEnd => {
                    let its = |o: &mut (u32, Nanos)| tree.nodes[o.0 as usize].shape.name == e.name;
                    if let Some((node, since)) = open.pop_if(its) {
                        tree.count(node, e.at.since(since).0);
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

/// The place of a node in the tree.
#[derive(Clone, Copy)]
struct Shape {
    name: &'static str,
    is_lock: bool,
    parent: u32,
    first_child: u32,
    next: u32,
}

#[derive(Clone)]
struct Node {
    shape: Shape,
    count: u64,
    total: u64,
    inside: u64,
    max: u64,
}

/// Nodes, a parent before its children. Root nodes are in a list that begins with the first node.
#[derive(Clone, Default)]
pub(crate) struct Tree {
    nodes: Vec<Node>,
}

impl Tree {
    pub(crate) fn is_empty(&self) -> bool {
        self.nodes.iter().all(|n| n.count == 0)
    }

    /// Counts a span that took so long.
    fn count(&mut self, node: u32, took: u64) {
        let n = &mut self.nodes[node as usize];
        n.count += 1;
        n.total += took;
        n.max = n.max.max(took);
        let parent = n.shape.parent;
        if parent != NONE {
            self.nodes[parent as usize].inside += took;
        }
    }

    /// The child of `parent` (or root) of this name. It is made if it is new.
    fn child(&mut self, parent: u32, name: &'static str, is_lock: bool) -> u32 {
        let mut at = if parent == NONE { 0 } else { self.nodes[parent as usize].shape.first_child };
        let mut last = NONE;
        while let Some(n) = self.nodes.get(at as usize) {
            if n.shape.is_lock == is_lock && n.shape.name == name {
                return at;
            }
            (last, at) = (at, n.shape.next);
        }
        let new = self.nodes.len() as u32;
        let shape = Shape { name, is_lock, parent, first_child: NONE, next: NONE };
        self.nodes.push(Node { shape, count: 0, total: 0, inside: 0, max: 0 });
        match (last, parent) {
            (NONE, NONE) => {}
            (NONE, parent) => self.nodes[parent as usize].shape.first_child = new,
            (last, _) => self.nodes[last as usize].shape.next = new,
        }
        new
    }

    /// Adds another tree's figures.
    pub(crate) fn absorb(&mut self, other: Tree) {
        let mut to: Vec<u32> = Vec::with_capacity(other.nodes.len());
        for n in &other.nodes {
            let parent = to.get(n.shape.parent as usize).copied().unwrap_or(NONE);
            let node = self.child(parent, n.shape.name, n.shape.is_lock);
            to.push(node);
            let mine = &mut self.nodes[node as usize];
            mine.count += n.count;
            mine.total += n.total;
            mine.inside += n.inside;
            mine.max = mine.max.max(n.max);
        }
    }

    /// The tree in its final form. Nodes without counts are in it only above others.
    pub(crate) fn finish(self, thread: String) -> CallTree {
        let mut wanted = vec![false; self.nodes.len()];
        for i in (0..self.nodes.len()).rev() {
            wanted[i] |= self.nodes[i].count > 0;
            let parent = self.nodes[i].shape.parent;
            if wanted[i] && parent != NONE {
                wanted[parent as usize] = true;
            }
        }
        let mut index = vec![0; self.nodes.len()];
        let mut nodes: Vec<Call> = Vec::new();
        for (i, n) in self.nodes.iter().enumerate().filter(|(i, _)| wanted[*i]) {
            index[i] = nodes.len();
            nodes.push(Call {
                name: n.shape.name,
                is_lock: n.shape.is_lock,
                parent: (n.shape.parent != NONE).then(|| index[n.shape.parent as usize]),
                count: n.count,
                total_ns: n.total,
                self_ns: n.total.saturating_sub(n.inside),
                max_ns: n.max,
            });
        }
        CallTree { thread, nodes }
    }
}
