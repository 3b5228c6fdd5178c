//! Call trees as `perf report --call-graph` shows them, and folded stacks.
//!
//! Threads whose names differ only in a number at the end are shown as one. Shares are of the time that all threads
//! spent in spans, waiting included: an fsync that sleeps counts like one that works.

use super::Observed;
use std::io::{self, Write};
use tidegate_rt::profile::CallTree;

/// A span within the spans around it, for all threads of a group.
#[derive(Clone, Debug, Default)]
struct Frame {
    name: String,
    count: u64,
    total: u64,
    own: u64,
    max: u64,
    inner: Vec<Frame>,
}

impl Frame {
    fn named(name: String) -> Self {
        Frame { name, ..Frame::default() }
    }

    /// The frame of that name within this one.
    fn inner(&mut self, name: &str) -> usize {
        self.inner.iter().position(|f| f.name == name).unwrap_or_else(|| {
            self.inner.push(Frame::named(name.to_string()));
            self.inner.len() - 1
        })
    }

    fn sort(&mut self) {
        // Equal frames are in order of name: the order in which threads ended means nothing.
        self.inner.sort_by(|a, b| b.total.cmp(&a.total).then_with(|| a.name.cmp(&b.name)));
        self.inner.iter_mut().for_each(Frame::sort);
    }
}

/// A name without the number at its end.
fn group(thread: &str) -> &str {
    let end = thread.trim_end_matches(|c: char| c.is_ascii_digit());
    if end.len() < thread.len() { end.trim_end_matches('-') } else { thread }
}

/// All trees under one frame. Its time is that of the outermost spans of the threads.
fn frames(trees: &[CallTree]) -> Frame {
    let mut root = Frame::named(String::new());
    for tree in trees {
        let of_threads = root.inner(group(&tree.thread));
        // The place of each node of the tree in this one.
        let mut paths: Vec<Vec<usize>> = Vec::with_capacity(tree.nodes.len());
        for node in &tree.nodes {
            let mut path = node.parent.map_or_else(|| vec![of_threads], |p| paths[p].clone());
            let mut at = &mut root;
            for i in &path {
                at = &mut at.inner[*i];
            }
            let name = if node.is_lock { format!("[lock {}]", node.name) } else { node.name.to_string() };
            let i = at.inner(&name);
            if node.parent.is_none() {
                at.total += node.total_ns;
            }
            let f = &mut at.inner[i];
            f.count += node.count;
            f.total += node.total_ns;
            f.own += node.self_ns;
            f.max = f.max.max(node.max_ns);
            path.push(i);
            paths.push(path);
        }
    }
    root.total = root.inner.iter().map(|f| f.total).sum();
    root.sort();
    root
}

/// Writes the trees.
///
/// # Errors
/// Those of writing.
pub fn write_tree(observed: &Observed, to: &mut impl Write) -> io::Result<()> {
    let root = frames(&observed.recorded.calls);
    let wall = observed.until.since(observed.since).0;
    writeln!(to, "# Call tree of the spans of {}, waits included.", time(wall))?;
    writeln!(
        to,
        "# 100% is {}, the time of all threads in spans. [lock …] is waiting for it.",
        time(root.total)
    )?;
    writeln!(to, "#\n# Children      Self     Count       Mean        Max  Call")?;
    writeln!(to, "# ........  ........  ........  .........  .........  {}\n#", ".".repeat(40))?;
    for threads in &root.inner {
        write_frame(threads, root.total.max(1), "", None, to)?;
        writeln!(to)?;
    }
    Ok(())
}

/// Writes the line of a frame and those of the frames in it. `lead` is the text before the branches of its
/// children.
fn write_frame(f: &Frame, all: u64, lead: &str, last: Option<bool>, to: &mut impl Write) -> io::Result<()> {
    let share = |ns: u64| format!("{:.2}%", ns as f64 * 100.0 / all as f64);
    let (count, mean, max) = match f.count {
        0 => (String::new(), String::new(), String::new()),
        n => (n.to_string(), time(f.total / n), time(f.max)),
    };
    let figures = format!("{:>10}{:>10}{:>10}{:>11}{:>11}", share(f.total), share(f.own), count, mean, max);
    let branch = if last.is_none() { String::new() } else { format!("{lead}|--{}--", share(f.total)) };
    writeln!(to, "{figures}  {branch}{}", f.name)?;
    let below = match last {
        None => String::new(),
        Some(false) => format!("{lead}|          "),
        Some(true) => format!("{lead}           "),
    };
    for (i, inner) in f.inner.iter().enumerate() {
        write_frame(inner, all, &below, Some(i + 1 == f.inner.len()), to)?;
    }
    Ok(())
}

fn time(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.2} us", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2} ms", ns as f64 / 1e6),
        _ => format!("{:.3} s", ns as f64 / 1e9),
    }
}

/// Writes a line for each stack: its frames, outermost first, and the nanoseconds of the last frame itself.
///
/// # Errors
/// Those of writing.
pub fn write_folded(observed: &Observed, to: &mut impl Write) -> io::Result<()> {
    for threads in &frames(&observed.recorded.calls).inner {
        write_stacks(threads, &threads.name, to)?;
    }
    Ok(())
}

fn write_stacks(f: &Frame, stack: &str, to: &mut impl Write) -> io::Result<()> {
    if f.own > 0 {
        writeln!(to, "{stack} {}", f.own)?;
    }
    f.inner.iter().try_for_each(|inner| write_stacks(inner, &format!("{stack};{}", inner.name), to))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_rt::profile::Call;

    fn observed() -> Observed {
        let call = |name, parent, total_ns, self_ns, is_lock| Call {
            name,
            is_lock,
            parent,
            count: 2,
            total_ns,
            self_ns,
            max_ns: total_ns,
        };
        let tree = |thread: &str, scale: u64| CallTree {
            thread: thread.into(),
            nodes: vec![
                call("fsync", None, 100 * scale, 10 * scale, false),
                call("flush", Some(0), 60 * scale, 60 * scale, false),
                call("cp_rwsem", Some(0), 30 * scale, 30 * scale, true),
            ],
        };
        let mut o = Observed::default();
        o.recorded.calls = vec![tree("mark-1", 1), tree("mark-22", 3), tree("tg-flusher", 4)];
        o
    }

    #[test]
    fn threads_of_a_kind_are_one() {
        let mut out = Vec::new();
        write_folded(&observed(), &mut out).unwrap();
        let want = "mark;fsync 40\nmark;fsync;flush 240\nmark;fsync;[lock cp_rwsem] 120\n\
            tg-flusher;fsync 40\ntg-flusher;fsync;flush 240\ntg-flusher;fsync;[lock cp_rwsem] 120\n";
        assert_eq!(String::from_utf8(out).unwrap(), want);
    }

    #[test]
    fn shares_are_of_all() {
        let mut out = Vec::new();
        write_tree(&observed(), &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let line =
            |end: &str| text.lines().find(|l| l.ends_with(end)).unwrap_or_else(|| panic!("{end}: {text}"));
        assert!(line("  mark").trim_start().starts_with("50.00%     0.00%"), "{text}");
        let flush = line("|--30.00%--flush");
        assert!(
            flush.trim_start().starts_with("30.00%    30.00%         4      60 ns     180 ns"),
            "{flush}"
        );
        assert!(line("--[lock cp_rwsem]").contains("15.00%"));
    }
}
