//! Call graphs of folded stacks as `perf report --stdio` draws them, whole or below one function.
//!
//! Shares are of the time of all stacks. Functions with less than half a percent of it are left out, as perf does.

use std::fmt::Write;

/// The least share that is drawn.
const LEAST: f64 = 0.005;

/// Spans whose own time is time of waiting.
const WAITS: [&str; 14] = [
    "balance_dirty_pages",
    "blk_mq_get_tag",
    "f2fs_issue_checkpoint",
    "f2fs_issue_flush",
    "f2fs_wait_for_flush",
    "f2fs_wait_for_fsyncs",
    "f2fs_wait_on_node_pages_writeback",
    "filemap_fdatawait",
    "folio_wait_writeback",
    "submit_bio_wait",
    "wait_epoch",
    "wait_for_sync_pass",
    "wait_sb_inodes",
    "wb_wait_for_completion",
];

/// Whether a thread in a frame of this name, and in none below it, waits.
pub fn is_wait(frame: &str) -> bool {
    frame.starts_with("[lock ") || WAITS.contains(&frame)
}

/// Time in one function as it was called, in nanoseconds or the stacks' own unit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Graph {
    name: String,
    total: u64,
    own: u64,
    below: Vec<Graph>,
}

impl Graph {
    /// The graph of lines such as `a;b;c 123`. Other lines are ignored.
    pub fn of(folded: &str) -> Graph {
        let mut root = Graph::default();
        for (stack, n) in folded.lines().filter_map(|l| l.rsplit_once(' ')) {
            let Ok(n) = n.parse::<u64>() else { continue };
            let mut at = &mut root;
            at.total += n;
            for name in stack.split(';') {
                at = at.called(name);
                at.total += n;
            }
            at.own += n;
        }
        root.sort();
        root
    }

    /// The graph of depths, shares and names, a caller before its callees, as in published graphs.
    pub fn of_shares(nodes: &[(usize, u64, &str)]) -> Graph {
        let mut root = Graph::default();
        for (depth, total, name) in nodes {
            let mut at = &mut root;
            for _ in 0..*depth {
                let last = at.below.len().saturating_sub(1);
                at = &mut at.below[last];
            }
            at.own = at.own.saturating_sub(*total);
            at.below.push(Graph { name: (*name).into(), total: *total, own: *total, below: Vec::new() });
        }
        root
    }

    /// The time of all stacks.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The graph below a function, from all callers. `None` where it was never called.
    pub fn below(&self, symbol: &str) -> Option<Graph> {
        let mut found = Graph { name: symbol.into(), ..Graph::default() };
        self.gather(symbol, &mut found);
        found.sort();
        (found.total > 0).then_some(found)
    }

    /// This graph without waits, of which perf has no samples.
    pub fn without_waits(&self) -> Graph {
        let own = if is_wait(&self.name) { 0 } else { self.own };
        let below: Vec<Graph> = self.below.iter().map(Graph::without_waits).filter(|g| g.total > 0).collect();
        let total = own + below.iter().map(|g| g.total).sum::<u64>();
        let mut graph = Graph { name: self.name.clone(), total, own, below };
        graph.sort();
        graph
    }

    /// The time in a function that is called by this one, directly or not.
    pub fn time_in(&self, symbol: &str) -> u64 {
        self.below(symbol).map_or(0, |g| g.total)
    }

    fn gather(&self, symbol: &str, found: &mut Graph) {
        for g in &self.below {
            if g.name == symbol { found.add(g) } else { g.gather(symbol, found) }
        }
    }

    fn add(&mut self, other: &Graph) {
        self.total += other.total;
        self.own += other.own;
        for g in &other.below {
            self.called(&g.name).add(g);
        }
    }

    fn called(&mut self, name: &str) -> &mut Graph {
        let i = self.below.iter().position(|g| g.name == name).unwrap_or_else(|| {
            self.below.push(Graph { name: name.into(), ..Graph::default() });
            self.below.len() - 1
        });
        &mut self.below[i]
    }

    fn sort(&mut self) {
        self.below.sort_by(|a, b| b.total.cmp(&a.total).then_with(|| a.name.cmp(&b.name)));
        self.below.iter_mut().for_each(Graph::sort);
    }

    /// The graph as text. Shares are of `all`. Functions in `kept` are drawn however small their shares are.
    pub fn draw(&self, all: u64, kept: &[&str]) -> String {
        let share = |n: u64| n as f64 / all.max(1) as f64;
        let mut out = String::new();
        let (total, own) = (100.0 * share(self.total), 100.0 * share(self.own));
        let _ = writeln!(out, "{total:>9.2}%{own:>9.2}%  {}", self.name);
        let _ = writeln!(out, "            |\n            ---{}", self.name);
        let is_drawn = |g: &Graph| share(g.total) >= LEAST || g.has(kept);
        self.branches(&share, &is_drawn, "               ", &mut out);
        out
    }

    /// Whether the function is one of these, or calls one of them.
    fn has(&self, names: &[&str]) -> bool {
        names.contains(&&*self.name) || self.below.iter().any(|g| g.has(names))
    }

    fn branches(
        &self,
        share: &impl Fn(u64) -> f64,
        is_drawn: &impl Fn(&Graph) -> bool,
        lead: &str,
        out: &mut String,
    ) {
        let drawn: Vec<&Graph> = self.below.iter().filter(|g| is_drawn(g)).collect();
        for (i, g) in drawn.iter().enumerate() {
            let last = i + 1 == drawn.len();
            let (fork, lead_below) = if last { (" ", " ") } else { ("|", "|") };
            let _ = writeln!(out, "{lead}|");
            let _ = writeln!(out, "{lead}{fork}--{:.2}%--{}", 100.0 * share(g.total), g.name);
            g.branches(share, is_drawn, &format!("{lead}{lead_below}          "), out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOLDED: &str = "mark;fsync;write 10\nmark;fsync;write;place 20\nmark;fsync;write;place;[lock a b] 30\n\
        mark;fsync;write;send 5\nflusher;write;place 30\nflusher;tiny 1\nflusher;write 4\nno number\n";

    #[test]
    fn what_is_below_a_function_is_put_together() {
        let all = Graph::of(FOLDED);
        assert_eq!(all.total(), 100);
        let write = all.below("write").unwrap();
        assert_eq!((write.total, write.own), (99, 14));
        assert_eq!((write.time_in("place"), write.time_in("[lock a b]"), write.time_in("tiny")), (80, 30, 0));
        assert_eq!(all.below("nowhere"), None);
        let want = "    99.00%    14.00%  write\n            |\n            ---write\n               |\n               \
            |--80.00%--place\n               |          |\n               |           --30.00%--[lock a b]\n               |\n                \
            --5.00%--send\n";
        assert_eq!(write.draw(all.total(), &[]), want);
    }

    #[test]
    fn waits_can_be_left_out() {
        let folded = format!("{FOLDED}flusher;folio_wait_writeback 50\nflusher;submit_bio_wait;copy 5\n");
        let work = Graph::of(&folded).without_waits();
        assert_eq!((work.total(), work.time_in("write"), work.time_in("place")), (75, 69, 50));
        assert_eq!((work.below("folio_wait_writeback"), work.time_in("submit_bio_wait")), (None, 5));
    }

    #[test]
    fn small_shares_are_left_out() {
        let graph = Graph::of("a;b 996\na;c 4\n");
        let draw = |all, kept: &[&str]| graph.below("a").unwrap().draw(all, kept);
        assert!(!draw(1000, &[]).contains("--c") && !draw(1000, &["b"]).contains("--c"));
        assert!(draw(800, &[]).contains("--0.50%--c") && draw(1000, &["c"]).contains("--0.40%--c"));
    }

    #[test]
    fn shares_make_a_graph() {
        let shares = [(0, 3197, "write"), (1, 2907, "place"), (2, 402, "allocate"), (1, 182, "clear")];
        let graph = Graph::of_shares(&shares).below("write").unwrap();
        assert_eq!(
            (graph.own, graph.time_in("place"), graph.time_in("allocate")),
            (3197 - 2907 - 182, 2907, 402)
        );
    }
}
