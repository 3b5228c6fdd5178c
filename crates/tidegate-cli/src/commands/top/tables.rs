//! Latencies, locks, files.

use super::panels::latency as time;
use super::view::View;
use crate::units::{bytes, duration};
use ratatui::Frame;
use ratatui::layout::{Constraint, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Text};
use ratatui::widgets::{Cell, Row, Table};
use std::cmp::Reverse;
use tidegate::Sample;
use tidegate::sample::{Latency, Rates, Step};

/// A right-aligned cell.
fn right(text: impl Into<String>) -> Cell<'static> {
    Cell::from(Text::from(Line::from(text.into()).right_aligned()))
}

fn head(view: &View, names: &[&'static str]) -> Row<'static> {
    let cells = names.iter().enumerate().map(|(i, n)| if i == 0 { Cell::from(*n) } else { right(*n) });
    Row::new(cells).style(view.theme.head())
}

/// The number of columns of these widths that fit into `room`. The first may grow. A column that does not fit is left
/// out: a number without its first digits is another number.
pub fn columns_that_fit(widths: &[u16], room: u16) -> usize {
    let ends = widths.iter().scan(0u16, |end, w| {
        *end = end.saturating_add(*w);
        Some(std::mem::replace(end, end.saturating_add(1)))
    });
    ends.take_while(|end| *end <= room).count().max(1)
}

/// Draws rows below their header, as many columns of them as fit.
fn table(
    view: &View,
    frame: &mut Frame,
    area: Rect,
    columns: &[(&'static str, u16)],
    rows: impl Iterator<Item = (Vec<Cell<'static>>, Option<Style>)>,
) {
    let widths: Vec<u16> = columns.iter().map(|c| c.1).collect();
    let n = columns_that_fit(&widths, area.width);
    let names: Vec<&'static str> = columns[..n].iter().map(|c| c.0).collect();
    let rows = rows.map(|(cells, style)| {
        let row = Row::new(cells.into_iter().take(n));
        style.map_or(row.clone(), |s| row.style(s))
    });
    let constraint =
        |(i, w): (usize, &u16)| if i == 0 { Constraint::Min(*w) } else { Constraint::Length(*w) };
    let widths: Vec<Constraint> = widths[..n].iter().enumerate().map(constraint).collect();
    frame.render_widget(Table::new(rows, widths).header(head(view, &names)).column_spacing(1), area);
}

/// The fixed rows of the panel of latencies: its frame, its head, fsync, commit and freeze.
const LATENCY: u16 = 6;

/// The number of rows of the panel of latencies with all steps of commits.
pub fn latency_rows(view: &View) -> u16 {
    LATENCY + view.history.window.steps.len() as u16
}

/// The steps of commits that took the most time, as many as fit, in their order in a commit.
fn steps(w: &Rates, room: usize) -> Vec<&Step> {
    let mut order: Vec<usize> = (0..w.steps.len()).collect();
    order.sort_by_key(|i| Reverse(w.steps[*i].took.sum_ns));
    order.truncate(room);
    order.sort_unstable();
    order.into_iter().map(|i| &w.steps[i]).collect()
}

/// The latencies of fsyncs, commits and the steps of commits.
pub fn latency(view: &View, frame: &mut Frame, area: Rect) {
    let w = &view.history.window;
    let seconds = w.seconds.round();
    let inner =
        view.panel(frame, area, view.title("Latency"), view.note(format!("of the last {seconds:.0} s")));
    let row = |name: String, l: &Latency| {
        let rate = if w.seconds > 0.0 { l.count as f64 / w.seconds } else { 0.0 };
        let per_second = if rate >= 9.95 { format!("{rate:.0}") } else { format!("{rate:.1}") };
        let times = [l.p50_ns, l.p99_ns, l.max_ns].map(|ns| right(time(ns, l.count)));
        let mut cells = vec![Cell::from(name), right(per_second)];
        cells.extend(times);
        (cells, None)
    };
    let all = [("fsync", &w.fsync), ("commit", &w.commit), ("  frozen", &w.frozen)];
    let steps = steps(w, usize::from(area.height.saturating_sub(LATENCY)));
    let columns = [("", 8), ("/s", 5), ("p50", 7), ("p99", 7), ("max", 7)];
    let others: u16 = columns[1..].iter().map(|c| c.1 + 1).sum();
    let room = usize::from(inner.width.saturating_sub(others).max(8));
    let step = |s: &Step| {
        let name = format!("{}{}", if s.frozen { "*" } else { " " }, s.name);
        let cut = || name.chars().take(room - 1).chain(['…']).collect();
        row(if name.chars().count() > room { cut() } else { name.clone() }, &s.took)
    };
    let rows = all.map(|(name, l)| row(name.into(), l)).into_iter().chain(steps.into_iter().map(step));
    table(view, frame, inner, &columns, rows);
}

/// The locks with the longest waits and holds.
pub fn locks(view: &View, frame: &mut Frame, area: Rect) {
    let w = &view.history.window;
    let inner = view.panel(frame, area, view.title("Busiest locks"), view.note("share of the time"));
    let all = w.seconds.max(1e-9) * 1e9;
    let share = |ns: u64| format!("{:.1} %", ns as f64 * 100.0 / all);
    let rows = w.locks.iter().take(usize::from(inner.height.saturating_sub(1))).map(|l| {
        let waits = l.wait_total_ns.checked_div(l.contentions).map_or("–".into(), duration);
        let cells = vec![
            Cell::from(l.class.clone()),
            right(share(l.wait_total_ns)),
            right(waits),
            right(share(l.hold_total_ns)),
        ];
        (cells, (l.wait_total_ns as f64 > all / 10.0).then(|| view.theme.warning()))
    });
    table(view, frame, inner, &[("class", 12), ("waited", 7), ("mean", 7), ("held", 7)], rows);
}

/// The files with the most to write.
pub fn files(view: &View, s: &Sample, frame: &mut Frame, area: Rect) {
    let inner = view.panel(frame, area, view.title("Files being written"), view.note(""));
    let room = usize::from(inner.height.saturating_sub(1));
    let widths = [("file", 8), ("dirty", 9), ("writeback", 9)];
    let fit = columns_that_fit(&widths.map(|w| w.1), inner.width);
    let others: u16 = widths[1..fit].iter().map(|w| w.1 + 1).sum();
    let width = usize::from(inner.width.saturating_sub(others));
    let rows = s.files.iter().take(room).map(|f| {
        let name = f.path.clone().unwrap_or_else(|| format!("inode {}", f.ino));
        let cells = vec![
            Cell::from(shortened(&name, width)),
            right(bytes(f.dirty_bytes)),
            right(bytes(f.writeback_bytes)),
        ];
        (cells, (s.flusher.ino == Some(f.ino)).then(|| view.theme.write()))
    });
    table(view, frame, inner, &widths, rows);
}

/// A path of at most `width` characters. The omitted part is at its front.
pub fn shortened(path: &str, width: usize) -> String {
    let n = path.chars().count();
    if n <= width || width < 2 {
        return path.to_string();
    }
    std::iter::once('…').chain(path.chars().skip(n + 1 - width)).collect()
}
