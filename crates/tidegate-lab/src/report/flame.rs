//! A call tree as a flame graph: a caller stands below its callees, as wide as its share.

use super::svg::{Anchor, Svg, width};
use super::text::{count, cut};
use std::collections::BTreeMap;

const W: f64 = 1060.0;
const ROW: f64 = 18.0;
/// Narrower frames are invisible and not drawn, and neither are frames deeper than `DEEPEST`.
const NARROWEST: f64 = 0.5;
const DEEPEST: usize = 64;

#[derive(Default)]
struct Frame {
    total: u64,
    below: BTreeMap<String, Frame>,
}

impl Frame {
    fn add(&mut self, stack: &str, n: u64) {
        let mut at = self;
        at.total += n;
        for name in stack.split(';').take(DEEPEST) {
            at = at.below.entry(name.to_string()).or_default();
            at.total += n;
        }
    }

    /// Number of levels that are wide enough to be drawn.
    fn depth(&self, least: f64) -> usize {
        let wide = self.below.values().filter(|f| f.total as f64 >= least);
        wide.map(|f| 1 + f.depth(least)).max().unwrap_or(0)
    }
}

/// Parses lines of the form `a;b;c 123`; other lines are skipped.
fn parse(folded: &str) -> Frame {
    let mut root = Frame::default();
    for (stack, n) in folded.lines().filter_map(|l| l.trim().rsplit_once(' ')) {
        if let Ok(n) = n.parse::<u64>() {
            root.add(stack.trim(), n);
        }
    }
    root
}

/// The drawing; `None` without frames.
pub fn chart(title: &str, folded: &str) -> Option<String> {
    let root = parse(folded);
    if root.total == 0 {
        return None;
    }
    let least = NARROWEST / W * root.total as f64;
    let height = (root.depth(least) + 1) as f64 * ROW + 2.0;
    let mut widest: Vec<(&String, &Frame)> = root.below.iter().collect();
    widest.sort_by_key(|(_, f)| std::cmp::Reverse(f.total));
    let top: Vec<String> = widest.iter().take(5).map(|(n, f)| format!("{n} {}", share(f, &root))).collect();
    let mut svg = Svg::new(W, height, title, &format!("Call tree; at its root: {}", top.join(", ")));
    let bottom = height - ROW - 1.0;
    frame(&mut svg, "all", &root, &root, (0.0, bottom));
    draw(&mut svg, &root, &root, (0.0, bottom - ROW));
    Some(svg.done())
}

fn share(f: &Frame, root: &Frame) -> String {
    format!("{:.1} %", f.total as f64 / root.total as f64 * 100.0)
}

fn draw(svg: &mut Svg, of: &Frame, root: &Frame, (mut x, y): (f64, f64)) {
    for (name, f) in &of.below {
        let w = f.total as f64 / root.total as f64 * W;
        if w >= NARROWEST {
            frame(svg, name, f, root, (x, y));
            draw(svg, f, root, (x, y - ROW));
        }
        x += w;
    }
}

fn frame(svg: &mut Svg, name: &str, f: &Frame, root: &Frame, (x, y): (f64, f64)) {
    let w = f.total as f64 / root.total as f64 * W;
    let tint = name.bytes().fold(7u32, |h, b| h.wrapping_mul(31).wrapping_add(u32::from(b))) % 5;
    let tip = format!("{name}: {} ({})", share(f, root), count(f.total));
    svg.rect((x, y), ((w - 0.6).max(0.4), ROW - 1.0), &format!("t{tint}"), Some(&tip));
    let room = ((w - 8.0) / width("m")) as usize;
    if room >= 3 {
        svg.text(x + 4.0, y + 12.5, Anchor::Start, "frame", &cut(name, room));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_add_up() {
        let root = parse("a;b 3\na;c 1\nnonsense\na;d x\ne 4\n");
        assert_eq!((root.total, root.below["a"].total, root.below["a"].below["b"].total), (8, 4, 3));
        assert_eq!(root.depth(0.0), 2);
        assert!(chart("t", "").is_none());
        let drawn = chart("t", "a;b<T> 3\n").unwrap();
        assert!(drawn.contains("b&lt;T&gt;: 100.0 % (3)"), "{drawn}");
    }
}
