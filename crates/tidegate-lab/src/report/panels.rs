//! Values over time: a panel for each position, all with equal scales and with marks for events.

use super::scale::Scale;
use super::svg::{Anchor, Svg, width};
use super::text::{bytes, nanos, num};

const W: f64 = 1060.0;
const LEFT: f64 = 78.0;
const RIGHT: f64 = W - 14.0;
const PLOT: f64 = 84.0;
const STRIP: f64 = 16.0;
/// The gap between a plot and its strips, for the lowest tick's label.
const GAP: f64 = 8.0;

/// Kinds of marks that have a row of their own; others are left out.
pub const STRIPS: usize = 4;

/// One position's part.
pub struct Panel {
    /// The position.
    pub name: String,
    /// Its class of colour.
    pub colour: usize,
    /// Seconds and value; `None` where there is no value.
    pub points: Vec<Option<(f64, f64)>>,
    /// By kind of event: start and end, in seconds.
    pub marks: Vec<(String, Vec<(f64, f64)>)>,
}

/// A chart of them.
pub struct Panels {
    /// The subject of the panel.
    pub title: String,
    /// Unit of the values, shown at the axis.
    pub unit: String,
    /// Values are bytes, on an axis of powers of two.
    pub bytes: bool,
    /// The panels, from the top.
    pub panels: Vec<Panel>,
}

impl Panels {
    /// The drawing; `None` without points.
    pub fn draw(&self) -> Option<String> {
        let points = || self.panels.iter().flat_map(|p| p.points.iter().flatten());
        let values = || points().map(|p| p.1).filter(|v| v.is_finite());
        let (min, max) = (values().reduce(f64::min)?, values().reduce(f64::max)?);
        let marks = self.panels.iter().flat_map(|p| &p.marks).flat_map(|(_, spans)| spans);
        let end = points().map(|p| p.0).chain(marks.map(|s| s.1)).fold(0.0, f64::max);
        let x = Scale::exact(0.0, end, (LEFT, RIGHT));
        let height = 26.0 + self.panels.iter().map(height).sum::<f64>() + 34.0;
        let mut svg = Svg::new(W, height, &self.title, &self.said());
        svg.text(4.0, 13.0, Anchor::Start, "unit", &self.unit);
        let mut top = 22.0;
        for p in &self.panels {
            let range = (top + 20.0 + PLOT, top + 20.0);
            let y = match self.bytes {
                true => Scale::log(min, max, 2.0, range),
                false => Scale::linear(0.0, max, range, 3),
            };
            self.panel(&mut svg, p, &x, &y, top);
            top += height_of(p.marks.len());
        }
        let at = |v: &f64| (x.at(*v), seconds(*v));
        svg.labels(x.ticks(10).iter().map(at), top + 12.0, (LEFT - 20.0, W));
        svg.text((LEFT + RIGHT) / 2.0, top + 30.0, Anchor::Middle, "unit", "time since the start");
        Some(svg.done())
    }

    fn said(&self) -> String {
        let one = |p: &Panel| {
            let values = || p.points.iter().flatten().map(|p| p.1);
            let n = values().count().max(1) as f64;
            let mean = self.value(values().sum::<f64>() / n);
            let (low, high) = (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max));
            let marks: Vec<String> = p.marks.iter().map(|(k, m)| format!("{} {k}", m.len())).collect();
            let marks =
                if marks.is_empty() { String::new() } else { format!("; marked: {}", marks.join(", ")) };
            format!("{}: mean {mean}, from {} to {}{marks}", p.name, self.value(low), self.value(high))
        };
        self.panels.iter().map(one).collect::<Vec<_>>().join(". ")
    }

    fn value(&self, v: f64) -> String {
        if self.bytes { bytes(v) } else { num(v) }
    }

    fn panel(&self, svg: &mut Svg, p: &Panel, x: &Scale, y: &Scale, top: f64) {
        svg.rect((LEFT, top + 3.0), (16.0, 9.0), &format!("f{}", p.colour), None);
        svg.text(LEFT + 22.0, top + 12.0, Anchor::Start, "name", &p.name);
        let bottom = top + 20.0 + PLOT;
        let ticks = if self.bytes { y.log_ticks(2.0, 4) } else { y.ticks(3) };
        for v in ticks {
            svg.line((LEFT, y.at(v)), (RIGHT, y.at(v)), "grid");
            svg.text(LEFT - 6.0, y.at(v) + 4.0, Anchor::End, "tick", &self.value(v));
        }
        if let Some((_, spans)) = p.marks.iter().find(|(k, _)| k == "sync") {
            for (from, to) in spans {
                let (a, b) = (x.at(*from), x.at(*to));
                svg.rect((a, top + 20.0), ((b - a).max(1.0), PLOT), "shade", None);
            }
        }
        let at = |q: &Option<(f64, f64)>| q.map(|(t, v)| (x.at(t), y.at(v)));
        let points: Vec<_> = p.points.iter().map(at).collect();
        svg.lines(&points, &format!("line thin s{}", p.colour));
        svg.line((LEFT, bottom), (RIGHT, bottom), "axis");
        for (i, (kind, spans)) in p.marks.iter().enumerate() {
            strip(svg, kind, spans, x, bottom + GAP + i as f64 * STRIP);
        }
    }
}

fn height(p: &Panel) -> f64 {
    height_of(p.marks.len())
}

fn height_of(strips: usize) -> f64 {
    20.0 + PLOT + GAP + strips as f64 * STRIP + 8.0
}

fn strip(svg: &mut Svg, kind: &str, spans: &[(f64, f64)], x: &Scale, y: f64) {
    let label = super::text::cut(kind, ((LEFT - 8.0) / width("m")) as usize);
    svg.text(LEFT - 6.0, y + 11.5, Anchor::End, "tick", &label);
    let class = match kind {
        "sync" => "mark sync",
        "loop" => "mark loop",
        _ => "mark",
    };
    // Spans closer than a stroke are joined, so that thousands of them stay small.
    let mut open: Option<(f64, f64)> = None;
    let put = |svg: &mut Svg, (a, b): (f64, f64)| {
        svg.rect((a, y + 3.0), ((b - a - 0.6).max(1.4), STRIP - 7.0), class, None);
    };
    for (from, to) in spans {
        let (a, b) = (x.at(*from), x.at(*to));
        open = match open {
            Some((c, d)) if a - d < 0.5 && b - c < 1.5 => Some((c, d.max(b))),
            Some(last) => {
                put(svg, last);
                Some((a, b))
            }
            None => Some((a, b)),
        };
    }
    if let Some(last) = open {
        put(svg, last);
    }
}

fn seconds(s: f64) -> String {
    if s == 0.0 { "0".into() } else { nanos((s * 1e9).round()) }
}
