//! A drawing: shapes one after the other, coloured by classes of the page's style sheet.

use super::text::esc;
use std::fmt::Write;

/// The position of a text's anchor point.
#[derive(Clone, Copy)]
pub enum Anchor {
    /// At its beginning.
    Start,
    /// In its middle.
    Middle,
    /// At its end.
    End,
}

/// One drawing, closed by [`Svg::done`].
pub struct Svg {
    out: String,
}

/// About the width of `s` in the drawing's font.
pub fn width(s: &str) -> f64 {
    s.chars().count() as f64 * 7.8
}

/// A coordinate in few characters.
pub fn c(x: f64) -> String {
    let s = format!("{x:.1}");
    s.strip_suffix(".0").map(str::to_string).unwrap_or(s)
}

impl Svg {
    /// A new drawing. `title` and `desc` are for readers who cannot see it.
    pub fn new(w: f64, h: f64, title: &str, desc: &str) -> Svg {
        let (title, desc) = (esc(title), esc(desc));
        let size = format!("viewBox=\"0 0 {} {}\" width=\"{}\" height=\"{}\"", c(w), c(h), c(w), c(h));
        let out = format!("<svg role=\"img\" {size}><title>{title}</title><desc>{desc}</desc>");
        Svg { out }
    }

    /// Text with its baseline at `y`.
    pub fn text(&mut self, x: f64, y: f64, anchor: Anchor, class: &str, s: &str) {
        let anchor = match anchor {
            Anchor::Start => "",
            Anchor::Middle => " text-anchor=\"middle\"",
            Anchor::End => " text-anchor=\"end\"",
        };
        let _ = write!(
            self.out,
            "<text x=\"{}\" y=\"{}\"{anchor} class=\"{class}\">{}</text>",
            c(x),
            c(y),
            esc(s)
        );
    }

    /// A straight line.
    pub fn line(&mut self, from: (f64, f64), to: (f64, f64), class: &str) {
        let d = format!("M{} {}L{} {}", c(from.0), c(from.1), c(to.0), c(to.1));
        let _ = write!(self.out, "<path d=\"{d}\" class=\"{class}\"/>");
    }

    /// Lines through `points`, broken where one is `None`. A single point is a short stroke around it.
    pub fn lines(&mut self, points: &[Option<(f64, f64)>], class: &str) {
        let mut d = String::new();
        for part in points.split(Option::is_none) {
            for (i, (x, y)) in part.iter().flatten().enumerate() {
                let _ = write!(d, "{}{} {}", if i == 0 { 'M' } else { 'L' }, c(*x), c(*y));
            }
            if part.len() == 1 {
                d.push_str("m-5 0h10");
            }
        }
        if !d.is_empty() {
            let _ = write!(self.out, "<path d=\"{d}\" class=\"{class}\"/>");
        }
    }

    /// A closed shape.
    pub fn area(&mut self, points: &[(f64, f64)], class: &str) {
        let mut d = String::new();
        for (i, (x, y)) in points.iter().enumerate() {
            let _ = write!(d, "{}{} {}", if i == 0 { 'M' } else { 'L' }, c(*x), c(*y));
        }
        let _ = write!(self.out, "<path d=\"{d}Z\" class=\"{class}\"/>");
    }

    /// A rectangle; `tip` is shown when pointed at.
    pub fn rect(&mut self, (x, y): (f64, f64), (w, h): (f64, f64), class: &str, tip: Option<&str>) {
        let (x, y, w, h) = (c(x), c(y), c(w.max(0.0)), c(h.max(0.0)));
        let _ = write!(self.out, "<rect x=\"{x}\" y=\"{y}\" width=\"{w}\" height=\"{h}\" class=\"{class}\"");
        let _ = match tip {
            Some(tip) => write!(self.out, "><title>{}</title></rect>", esc(tip)),
            None => write!(self.out, "/>"),
        };
    }

    /// A disc.
    pub fn dot(&mut self, (x, y): (f64, f64), r: f64, class: &str) {
        let _ =
            write!(self.out, "<circle cx=\"{}\" cy=\"{}\" r=\"{}\" class=\"{class}\"/>", c(x), c(y), c(r));
    }

    /// Labels along a horizontal axis at `y`: a label that would touch the one before is left out.
    pub fn labels(
        &mut self,
        labels: impl IntoIterator<Item = (f64, String)>,
        y: f64,
        (left, right): (f64, f64),
    ) {
        let mut end = f64::NEG_INFINITY;
        for (x, s) in labels {
            let half = width(&s) / 2.0;
            let x = x.min(right - half).max(left + half);
            if x - half > end + 6.0 {
                self.text(x, y, Anchor::Middle, "tick", &s);
                end = x + half;
            }
        }
    }

    /// The drawing as an element.
    pub fn done(mut self) -> String {
        self.out.push_str("</svg>");
        self.out
    }
}
