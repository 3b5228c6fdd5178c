//! A thread's tree while it grows: the thread adds to it, and other threads read it meanwhile.
//!
//! Entering and leaving take no lock. The shape of the tree is under a lock, for readers and for new nodes.
//! Only the thread writes the figures. They only grow, except for maxima, and the reader remembers their last
//! values. A node stays as long as its thread.

use super::{NONE, Shape, Tree};
use crate::clock::Nanos;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicU32, AtomicU64, AtomicUsize, Ordering::Acquire, Ordering::Relaxed, Ordering::Release, fence,
};

/// The most nodes of a thread's tree. Spans beyond these, or nested deeper than [`DEPTH`], count to the span
/// around them.
const MAX_NODES: usize = 4096;
const DEPTH: usize = 64;
/// The number of nodes for which there is room at first.
const FIRST_NODES: usize = 32;
/// The most attempts to read figures; after that they are taken as they are, perhaps during a change.
const LOOKS: u32 = 200;

/// A thread's own part of its tree.
#[derive(Default)]
pub(crate) struct Live {
    shapes: Vec<Shape>,
    /// `None` before the first node.
    figures: Option<Arc<Figures>>,
    /// The number of open spans that have no node.
    beyond: usize,
}

/// The part of a tree that other threads see.
#[derive(Default)]
pub(crate) struct Shown {
    /// For each node: its parent, its name, and whether it is a wait for a lock.
    paths: Vec<(u32, &'static str, bool)>,
    figures: Option<Arc<Figures>>,
    /// The figures that were already taken, by node.
    taken: Vec<Sum>,
}

struct Figures {
    /// Odd while the thread changes the other fields.
    version: AtomicU64,
    /// The number of times that figures were taken.
    period: AtomicU64,
    depth: AtomicUsize,
    /// The open spans, outermost first.
    open: [Open; DEPTH],
    nodes: Box<[Counts]>,
}

#[derive(Default)]
struct Open {
    node: AtomicU32,
    since: AtomicU64,
}

#[derive(Default)]
struct Counts {
    count: AtomicU64,
    total: AtomicU64,
    /// The part of the total in spans within.
    inside: AtomicU64,
    max: AtomicU64,
    /// The period of the maximum.
    period: AtomicU64,
}

/// Figures of a node at one time.
#[derive(Clone, Copy, Default)]
struct Sum {
    count: u64,
    total: u64,
    inside: u64,
    max: u64,
    period: u64,
}

fn add(to: &AtomicU64, n: u64) {
    to.store(to.load(Relaxed) + n, Relaxed);
}

impl Figures {
    fn of(nodes: usize) -> Figures {
        Figures {
            version: AtomicU64::new(0),
            period: AtomicU64::new(0),
            depth: AtomicUsize::new(0),
            open: std::array::from_fn(|_| Open::default()),
            nodes: (0..nodes).map(|_| Counts::default()).collect(),
        }
    }

    /// These figures with room for more nodes.
    fn grown(&self) -> Figures {
        let new = Figures::of(self.nodes.len() * 2);
        new.period.store(self.period.load(Relaxed), Relaxed);
        new.depth.store(self.depth.load(Relaxed), Relaxed);
        for (to, from) in new.open.iter().zip(&self.open) {
            to.node.store(from.node.load(Relaxed), Relaxed);
            to.since.store(from.since.load(Relaxed), Relaxed);
        }
        for (to, from) in new.nodes.iter().zip(&self.nodes) {
            let sum = from.read();
            to.count.store(sum.count, Relaxed);
            to.total.store(sum.total, Relaxed);
            to.inside.store(sum.inside, Relaxed);
            to.max.store(sum.max, Relaxed);
            to.period.store(sum.period, Relaxed);
        }
        new
    }

    /// Changes fields that other threads read.
    #[inline]
    fn change(&self, f: impl FnOnce()) {
        let version = self.version.load(Relaxed);
        self.version.store(version + 1, Relaxed);
        fence(Release);
        f();
        self.version.store(version + 2, Release);
    }

    /// The figures of all nodes, with open spans counted up to `now`; and the nodes of the open spans. Maxima
    /// are those of a period.
    fn read(&self, nodes: usize, now: Nanos, period: u64) -> (Vec<Sum>, Vec<u32>) {
        let mut looks = 0;
        loop {
            let version = self.version.load(Acquire);
            let found = self.look(nodes, now, period);
            fence(Acquire);
            looks += 1;
            if version.is_multiple_of(2) && self.version.load(Relaxed) == version || looks == LOOKS {
                return found;
            }
            std::thread::yield_now();
        }
    }

    fn look(&self, nodes: usize, now: Nanos, period: u64) -> (Vec<Sum>, Vec<u32>) {
        let mut sums: Vec<Sum> = self.nodes.iter().take(nodes).map(Counts::read).collect();
        sums.iter_mut().filter(|s| s.period < period).for_each(|s| s.max = 0);
        let mut open = Vec::new();
        for o in self.open.iter().take(self.depth.load(Relaxed)) {
            let (node, took) = (o.node.load(Relaxed), now.since(Nanos(o.since.load(Relaxed))).0);
            if let Some(parent) = open.last().and_then(|p| sums.get_mut(*p as usize)) {
                parent.inside += took;
            }
            if let Some(sum) = sums.get_mut(node as usize) {
                sum.total += took;
                sum.max = sum.max.max(took);
            }
            open.push(node);
        }
        (sums, open)
    }
}

impl Counts {
    fn read(&self) -> Sum {
        Sum {
            count: self.count.load(Relaxed),
            total: self.total.load(Relaxed),
            inside: self.inside.load(Relaxed),
            max: self.max.load(Relaxed),
            period: self.period.load(Relaxed),
        }
    }

    /// Counts a span.
    fn count(&self, took: u64, period: u64) {
        add(&self.count, 1);
        add(&self.total, took);
        if self.period.load(Relaxed) != period || self.max.load(Relaxed) < took {
            self.max.store(took, Relaxed);
            self.period.store(period, Relaxed);
        }
    }
}

impl Live {
    /// Enters a span.
    pub fn enter(&mut self, shown: &parking_lot::Mutex<Shown>, name: &'static str, is_lock: bool, at: Nanos) {
        let node = if self.beyond == 0 { self.child(shown, name, is_lock) } else { None };
        let Some((f, node)) = self.figures.as_ref().zip(node) else {
            self.beyond += 1;
            return;
        };
        let depth = f.depth.load(Relaxed);
        let Some(open) = f.open.get(depth) else {
            self.beyond += 1;
            return;
        };
        f.change(|| {
            open.node.store(node, Relaxed);
            open.since.store(at.0, Relaxed);
            f.depth.store(depth + 1, Relaxed);
        });
    }

    /// Leaves the span entered last.
    pub fn leave(&mut self, at: Nanos) {
        if self.beyond > 0 {
            self.beyond -= 1;
            return;
        }
        let Some(f) = &self.figures else { return };
        let Some(depth) = f.depth.load(Relaxed).checked_sub(1) else { return };
        let Some(open) = f.open.get(depth) else { return };
        let node = open.node.load(Relaxed) as usize;
        let took = at.since(Nanos(open.since.load(Relaxed))).0;
        let (Some(counts), Some(shape)) = (f.nodes.get(node), self.shapes.get(node)) else { return };
        let period = f.period.load(Relaxed);
        f.change(|| {
            f.depth.store(depth, Relaxed);
            counts.count(took, period);
            if let Some(around) = f.nodes.get(shape.parent as usize) {
                add(&around.inside, took);
            }
        });
    }

    /// The node of this name in the span entered last. It is made if it is new and there is room.
    #[inline]
    fn child(&mut self, shown: &parking_lot::Mutex<Shown>, name: &'static str, is_lock: bool) -> Option<u32> {
        let parent = self.innermost();
        let mut at = self.first_child(parent);
        while let Some(shape) = self.shapes.get(at as usize) {
            // Equal texts at different addresses are compared below.
            if shape.is_lock == is_lock && std::ptr::eq(shape.name, name) {
                return Some(at);
            }
            at = shape.next;
        }
        self.other_child(shown, parent, name, is_lock)
    }

    fn innermost(&self) -> u32 {
        let open = self.figures.as_ref().and_then(|f| f.open.get(f.depth.load(Relaxed).wrapping_sub(1)));
        open.map_or(NONE, |o| o.node.load(Relaxed))
    }

    /// Root nodes are in a list that begins with the first node.
    fn first_child(&self, parent: u32) -> u32 {
        if parent == NONE { 0 } else { self.shapes[parent as usize].first_child }
    }

    #[cold]
    fn other_child(
        &mut self,
        shown: &parking_lot::Mutex<Shown>,
        parent: u32,
        name: &'static str,
        is_lock: bool,
    ) -> Option<u32> {
        let (mut at, mut last) = (self.first_child(parent), NONE);
        while let Some(shape) = self.shapes.get(at as usize) {
            if shape.is_lock == is_lock && shape.name == name {
                return Some(at);
            }
            (last, at) = (at, shape.next);
        }
        let new = self.shapes.len();
        if new >= MAX_NODES {
            return None;
        }
        let mut shown = shown.lock();
        let figures = match self.figures.take() {
            None => Arc::new(Figures::of(FIRST_NODES)),
            Some(f) if new == f.nodes.len() => Arc::new(f.grown()),
            Some(f) => f,
        };
        shown.figures = Some(figures.clone());
        self.figures = Some(figures);
        self.shapes.push(Shape { name, is_lock, parent, first_child: NONE, next: NONE });
        match (self.shapes.get(last as usize).is_some(), self.shapes.get(parent as usize).is_some()) {
            (true, _) => self.shapes[last as usize].next = new as u32,
            (false, true) => self.shapes[parent as usize].first_child = new as u32,
            (false, false) => {}
        }
        shown.paths.push((parent, name, is_lock));
        Some(new as u32)
    }
}

impl Shown {
    /// Whether nothing was added since the last taking. The thread has left all spans.
    pub fn is_empty(&self) -> bool {
        let taken = |i: usize| self.taken.get(i).map_or(0, |t| t.count);
        let mut nodes = self.figures.iter().flat_map(|f| &f.nodes).enumerate();
        nodes.all(|(i, n)| n.count.load(Relaxed) == taken(i))
    }

    /// The growth since the last taking, with open spans counted up to `now`: such a span counts each time.
    pub fn take(&mut self, now: Nanos) -> Tree {
        let mut tree = Tree::default();
        let Some(figures) = &self.figures else { return tree };
        // The period ends first, so that no maximum is lost. A span that ends right now may be in both
        // periods.
        let period = figures.period.fetch_add(1, Relaxed);
        let (sums, open) = figures.read(self.paths.len(), now, period);
        self.taken.resize(sums.len(), Sum::default());
        for (i, (now, before)) in sums.iter().zip(&self.taken).enumerate() {
            let (parent, name, is_lock) = self.paths[i];
            // Names differ within a node, so each path gets its own node here.
            let node = tree.child(parent, name, is_lock) as usize;
            let node = &mut tree.nodes[node];
            node.count = now.count - before.count + u64::from(open.contains(&(i as u32)));
            node.total = now.total.saturating_sub(before.total);
            node.inside = now.inside.saturating_sub(before.inside);
            node.max = now.max;
        }
        self.taken = sums;
        tree
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;

    /// The two parts of one thread's tree.
    #[derive(Default)]
    struct Both(Live, Mutex<Shown>);

    impl Both {
        fn enter(&mut self, name: &'static str, at: u64) {
            self.0.enter(&self.1, name, false, Nanos(at));
        }

        fn take(&self, now: u64) -> Vec<(&'static str, u64, u64, u64, u64)> {
            let tree = self.1.lock().take(Nanos(now)).finish("t".into());
            tree.nodes.iter().map(|n| (n.name, n.count, n.total_ns, n.self_ns, n.max_ns)).collect()
        }
    }

    #[test]
    fn each_taking_has_what_came_since() {
        let mut both = Both::default();
        both.enter("outer", 10);
        both.enter("inner", 20);
        both.0.leave(Nanos(50));
        assert_eq!(both.take(100), [("outer", 1, 90, 60, 90), ("inner", 1, 30, 30, 30)]);
        // An equal text at another address.
        both.enter("inner".to_string().leak(), 110);
        both.0.leave(Nanos(115));
        both.0.leave(Nanos(120));
        assert_eq!(both.take(130), [("outer", 1, 20, 15, 110), ("inner", 1, 5, 5, 5)]);
        assert_eq!(both.take(140), []);
        both.enter("other", 150);
        both.0.leave(Nanos(151));
        both.0.leave(Nanos(152));
        assert_eq!(both.take(160), [("other", 1, 1, 1, 1)]);
    }

    #[test]
    fn a_maximum_is_one_of_its_time() {
        let mut both = Both::default();
        both.enter("a", 0);
        both.0.leave(Nanos(1000));
        both.enter("a", 1500);
        assert_eq!(both.take(1600), [("a", 2, 1100, 1100, 1000)]);
        assert_eq!(both.take(1700), [("a", 1, 100, 100, 200)]);
        both.0.leave(Nanos(1800));
        assert!(!both.1.lock().is_empty());
        assert_eq!(both.take(1900), [("a", 1, 100, 100, 300)]);
        assert!(both.1.lock().is_empty());
    }

    #[test]
    fn what_has_no_room_is_counted_to_what_is_around() {
        let mut both = Both::default();
        let names: Vec<&'static str> = (0..MAX_NODES + 10).map(|i| &*format!("{i}").leak()).collect();
        both.enter("top", 0);
        for name in &names {
            both.enter(name, 5);
            both.0.leave(Nanos(6));
        }
        both.0.leave(Nanos(10_000));
        let found = both.take(20_000);
        assert_eq!(found.len(), MAX_NODES);
        assert_eq!(found[0], ("top", 1, 10_000, 10_000 - (MAX_NODES as u64 - 1), 10_000));

        let mut both = Both::default();
        for _ in 0..DEPTH + 10 {
            both.enter("deep", 200);
        }
        (0..DEPTH as u64 + 10).for_each(|at| both.0.leave(Nanos(300 + at)));
        let found = both.take(1000);
        assert_eq!((found.len(), found[DEPTH - 1]), (DEPTH, ("deep", 1, 110, 110, 110)));
        both.0.leave(Nanos(2000));
        assert_eq!(both.take(3000), []);
    }

    /// However often figures are taken while the thread goes on, their sum is right.
    #[test]
    fn one_takes_while_another_adds() {
        const ROUNDS: u64 = 300_000;
        let shown = Mutex::new(Shown::default());
        let done = AtomicU32::new(0);
        let mut sum = Tree::default();
        std::thread::scope(|s| {
            s.spawn(|| {
                let mut live = Live::default();
                for i in 0..ROUNDS {
                    live.enter(&shown, "outer", false, Nanos(4 * i));
                    live.enter(&shown, "inner", true, Nanos(4 * i + 1));
                    live.leave(Nanos(4 * i + 2));
                    live.leave(Nanos(4 * i + 3));
                }
                done.store(1, Release);
            });
            loop {
                let was_done = done.load(Acquire) == 1;
                // At time 0, open spans have taken no time.
                let taken = shown.lock().take(Nanos(0));
                for call in &taken.clone().finish("t".into()).nodes {
                    assert!(call.self_ns <= call.total_ns && call.max_ns <= 3, "{call:?}");
                }
                sum.absorb(taken);
                if was_done {
                    break;
                }
            }
        });
        let nodes = sum.finish("t".into()).nodes;
        let found: Vec<_> = nodes.iter().map(|n| (n.name, n.is_lock, n.total_ns, n.self_ns)).collect();
        assert_eq!(found, [("outer", false, 3 * ROUNDS, 2 * ROUNDS), ("inner", true, ROUNDS, ROUNDS)]);
        // Spans that were open when figures were taken count again.
        assert!(nodes.iter().all(|n| (ROUNDS..2 * ROUNDS).contains(&n.count)));
    }
}
