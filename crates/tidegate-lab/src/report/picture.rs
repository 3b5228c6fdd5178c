//! The ratios of all experiments as one self-contained picture (SVG), for documents.
//!
//! The picture is light on any screen. Its style is the page's style sheet, with values in place of names,
//! since not every viewer supports names in style sheets.

use super::svg::c;
use super::text::esc;
use super::{Outcome, bars};
use std::fmt::Write;

const STYLE: &str = include_str!("style.css");
const WIDE: f64 = 1060.0;
const MARGIN: f64 = 24.0;
/// Distance from an experiment's title to its drawing, and from there to the next title.
const TITLE: f64 = 14.0;
const GAP: f64 = 36.0;

/// Draws the ratios of `outcomes`; none if no outcome has any.
pub fn picture(outcomes: &[Outcome]) -> Option<String> {
    let (mut y, mut inner) = (MARGIN, String::new());
    for o in outcomes {
        let Some(drawing) = bars::ratio(o) else { continue };
        let title = format!("{} {}", o.experiment, o.title);
        y += TITLE;
        let _ = writeln!(inner, "<text x=\"14\" y=\"{}\" class=\"title\">{}</text>", c(y), esc(&title));
        y += TITLE;
        let _ = writeln!(inner, "<g transform=\"translate(0 {})\">{drawing}</g>", c(y));
        y += height(&drawing) + GAP;
    }
    let (width, height) = (c(WIDE + 2.0 * MARGIN), c(y));
    (!inner.is_empty()).then(|| {
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} \
             {height}\">\n<title>Ratios of the lab's experiments</title>\n<style>{}</style>\n<rect width=\"100%\" \
             height=\"100%\" fill=\"{}\"/>\n<g transform=\"translate({} 0)\">\n{inner}</g>\n</svg>\n",
            style(),
            value("paper"),
            c(MARGIN)
        )
    })
}

/// The height attribute of a drawing.
fn height(drawing: &str) -> f64 {
    let said = drawing.split_once(" height=\"").and_then(|(_, rest)| rest.split_once('"'));
    said.and_then(|(h, _)| h.parse().ok()).unwrap_or(0.0)
}

/// The rules of the style sheet that drawings need: those of their classes and their text.
fn style() -> String {
    let lines = STYLE.lines().take_while(|l| !l.starts_with("@media (") && !l.starts_with("@media print"));
    let mut rules: String = lines.collect::<Vec<_>>().join("\n");
    // The rules begin behind the one for drawings themselves, which have their own width here.
    if let Some((_, from)) = rules.split_once("overflow:visible}\n") {
        rules = from.to_string();
    }
    if let Some((upto, _)) = rules.split_once(".key{") {
        rules = upto.to_string();
    }
    let mut out = String::new();
    let mut parts = rules.split("var(--");
    out.push_str(parts.next().unwrap_or_default());
    for part in parts {
        let (name, rest) = part.split_once(')').unwrap_or((part, ""));
        out.push_str(value(name));
        out.push_str(rest);
    }
    out + "svg text.title{font-size:17px;font-weight:600}"
}

/// The value of a name on a light page: the first rules of the style sheet have it.
fn value(name: &str) -> &'static str {
    let found = STYLE.split_once(&format!("--{name}:")).and_then(|(_, rest)| rest.split([';', '}']).next());
    found.unwrap_or("#000")
}
