//! The screen as a picture (SVG), for documents and reports.
//!
//! Text is laid out by cells, whatever font a viewer has: each run of text is as wide as its cells. Bars, columns and
//! frames are drawn as shapes, since glyphs of another font would leave gaps.

use ratatui::buffer::{Buffer, Cell};
use ratatui::style::{Color, Modifier};
use std::fmt::Write;

/// Pixels of a cell, the base line of its text, and the size of text.
const WIDTH: f32 = 8.4;
const HEIGHT: f32 = 17.0;
const BASE: f32 = 13.0;
const FONT: f32 = 14.0;
/// Pixels around the screen.
const MARGIN: f32 = 10.0;

const BACKGROUND: &str = "#15191f";
const TEXT: &str = "#d7dde5";

/// Draws `screen`. `title` is for screen readers.
pub fn svg(screen: &Buffer, title: &str) -> String {
    let (columns, rows) = (f32::from(screen.area.width), f32::from(screen.area.height));
    let (w, h) = (columns * WIDTH + 2.0 * MARGIN, rows * HEIGHT + 2.0 * MARGIN);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{w:.0}\" height=\"{h:.0}\" viewBox=\"0 0 {w:.1} {h:.1}\" \
         role=\"img\" font-family=\"ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace\" \
         font-size=\"{FONT}\">\n<title>{}</title>\n<rect width=\"100%\" height=\"100%\" rx=\"6\" \
         fill=\"{BACKGROUND}\"/>\n",
        escaped(title)
    );
    for (row, cells) in screen.content.chunks(usize::from(screen.area.width).max(1)).enumerate() {
        let mut column = 0;
        while column < cells.len() {
            let at = (MARGIN + column as f32 * WIDTH, MARGIN + row as f32 * HEIGHT);
            column += match shape(cells[column].symbol()) {
                Some(shape) => {
                    draw(&mut out, &shape, at, color(&cells[column]));
                    1
                }
                None => text(&mut out, &cells[column..], at),
            };
        }
    }
    out.push_str("</svg>\n");
    out
}

/// Writes the run of text at the beginning of `cells`. Returns how many cells it takes. Two adjacent blanks end it.
fn text(out: &mut String, cells: &[Cell], at: (f32, f32)) -> usize {
    let look = |c: &Cell| (c.fg, c.modifier);
    let same = |c: &&Cell| look(c) == look(&cells[0]) && shape(c.symbol()).is_none();
    let run: Vec<&str> = cells.iter().take_while(same).map(Cell::symbol).collect();
    let taken = run.windows(2).position(|w| w[0] == " " && w[1] == " ").unwrap_or(run.len()).max(1);
    let words = run[..taken].concat();
    let shown = words.trim_end();
    if shown.is_empty() {
        return taken;
    }
    let bold = if cells[0].modifier.contains(Modifier::BOLD) { " font-weight=\"bold\"" } else { "" };
    let _ = writeln!(
        out,
        "<text x=\"{:.1}\" y=\"{:.1}\" textLength=\"{:.1}\" lengthAdjust=\"spacingAndGlyphs\" fill=\"{}\"{bold} \
         xml:space=\"preserve\">{}</text>",
        at.0,
        at.1 + BASE,
        shown.chars().count() as f32 * WIDTH,
        color(&cells[0]),
        escaped(shown)
    );
    taken
}

/// A cell that holds no text.
enum Shape {
    /// A part of the cell: left, top, right, bottom, as shares of it.
    Fill(f32, f32, f32, f32),
    /// Lines from the middle of the cell: to the left, top, right, bottom.
    Lines([bool; 4]),
}

fn shape(symbol: &str) -> Option<Shape> {
    let c = symbol.chars().next()?;
    Some(match c {
        '█' => Shape::Fill(0.0, 0.0, 1.0, 1.0),
        // ▁ is an eighth from below, ▇ seven.
        '▁'..='▇' => Shape::Fill(0.0, 1.0 - (c as u32 - 0x2580) as f32 / 8.0, 1.0, 1.0),
        // ▏ is an eighth from the left, ▉ seven.
        '▉'..='▏' => Shape::Fill(0.0, 0.2, (0x2590 - c as u32) as f32 / 8.0, 0.8),
        '─' => Shape::Lines([true, false, true, false]),
        '│' => Shape::Lines([false, true, false, true]),
        '╭' => Shape::Lines([false, false, true, true]),
        '╮' => Shape::Lines([true, false, false, true]),
        '╰' => Shape::Lines([false, true, true, false]),
        '╯' => Shape::Lines([true, true, false, false]),
        _ => return None,
    })
}

fn draw(out: &mut String, shape: &Shape, (x, y): (f32, f32), color: &str) {
    match *shape {
        Shape::Fill(left, top, right, bottom) => {
            let (w, h) = ((right - left) * WIDTH, (bottom - top) * HEIGHT);
            let (x, y) = (x + left * WIDTH, y + top * HEIGHT);
            let _ = writeln!(
                out,
                "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{w:.1}\" height=\"{h:.1}\" fill=\"{color}\" \
                 shape-rendering=\"crispEdges\"/>"
            );
        }
        Shape::Lines(to) => {
            let (mx, my) = (x + WIDTH / 2.0, y + HEIGHT / 2.0);
            let ends = [(x, my), (mx, y), (x + WIDTH, my), (mx, y + HEIGHT)];
            let ends = ends.iter().zip(to).filter(|(_, drawn)| *drawn);
            let path: String =
                ends.map(|((ex, ey), _)| format!("M{mx:.1} {my:.1}L{ex:.1} {ey:.1}")).collect();
            let _ = writeln!(out, "<path d=\"{path}\" stroke=\"{color}\"/>");
        }
    }
}

/// The colour of a cell's content, light enough to be read on the background.
fn color(cell: &Cell) -> &'static str {
    match cell.fg {
        Color::Cyan => "#56c8d8",
        Color::Magenta => "#d38ae0",
        Color::Red => "#f07178",
        Color::Yellow => "#f2c55c",
        Color::Green => "#7fd17f",
        Color::DarkGray => "#8793a3",
        _ => TEXT,
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
