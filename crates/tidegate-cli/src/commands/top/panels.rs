//! Header, bandwidth, write-back, bios.

use super::tables::shortened;
use super::theme::column;
use super::view::{View, fitting};
use crate::units::{bytes, duration};
use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, RenderDirection, Sparkline};
use tidegate::Sample;

/// Classes of sizes in the chart of bios: from 4 KiB to 1 MiB.
const CLASSES: [(u64, &str); 9] = [
    (4 << 10, "4K"),
    (8 << 10, "8K"),
    (16 << 10, "16K"),
    (32 << 10, "32K"),
    (64 << 10, "64K"),
    (128 << 10, "128"),
    (256 << 10, "256"),
    (512 << 10, "512"),
    (1 << 20, "1M"),
];

/// The first line.
pub fn head(view: &View, s: &Sample, width: u16) -> Line<'static> {
    let t = view.theme;
    let place = s.mountpoint.clone().unwrap_or_default();
    let used = s.space.total_bytes.saturating_sub(s.space.available_bytes);
    let mode = if s.read_only.is_some() { "read-only" } else { "rw" };
    let up = time(s.up_seconds);
    let mut spans =
        vec![Span::styled(" tidegate top ", t.title()), Span::styled(format!(" {place} "), t.strong())];
    let mut more = vec![
        format!("{} {mode}", s.format),
        format!("{} of {}", bytes(used), bytes(s.space.total_bytes)),
        format!("up {up}"),
        s.image.clone(),
    ];
    // The name of the image is left out first, where there is no room.
    let long = |spans: &[Span], more: &[String]| {
        let text: usize = spans.iter().map(Span::width).sum();
        text + more.iter().map(|m| m.chars().count() + 4).sum::<usize>() > usize::from(width)
    };
    while long(&spans, &more) && !more.is_empty() {
        more.pop();
    }
    for m in more {
        spans.push(Span::styled(" · ", t.dim()));
        spans.push(Span::raw(m));
    }
    Line::from(spans)
}

/// The last line.
pub fn foot(view: &View, s: &Sample) -> Line<'static> {
    let t = view.theme;
    let key = |k, what| [Span::styled(k, t.strong()), Span::styled(what, t.dim())];
    let mut spans = vec![Span::raw(" ")];
    spans.extend(key("q", " quit   "));
    spans.extend(key("p", if view.paused { " go on   " } else { " pause   " }));
    spans.extend(key("+ -", " slower, faster   "));
    if view.paused {
        spans.push(Span::styled("paused   ", t.warning()));
    }
    if let Some(why) = &s.read_only {
        spans.push(Span::styled(format!("read-only: {why}"), t.warning()));
    }
    Line::from(spans)
}

/// `3d 04:05:06`.
fn time(seconds: f64) -> String {
    let s = seconds as u64;
    let (days, clock) = (s / 86_400, format!("{:02}:{:02}:{:02}", s / 3600 % 24, s / 60 % 60, s % 60));
    if days > 0 { format!("{days}d {clock}") } else { clock }
}

/// The chart of bytes written and read over time.
pub fn bandwidth(view: &View, frame: &mut Frame, area: Rect) {
    let (h, t) = (view.history, view.theme);
    let peak = h.written.iter().copied().max().unwrap_or(0);
    let title = view.title("Device");
    let inner = view.panel(frame, area, title, view.note(format!("peak {}/s", bytes(peak))));
    let [text, picture] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(inner);
    let rate = |v: f64| format!("{}/s", bytes(v as u64));
    let parts = vec![
        vec![Span::styled("write ", t.write()), Span::styled(rate(h.now.write_bytes), t.strong())],
        vec![Span::styled("   read ", t.read()), Span::styled(rate(h.now.read_bytes), t.strong())],
    ];
    frame.render_widget(fitting(parts, text.width), text);
    let data: Vec<u64> = h.written.iter().copied().collect();
    let spark = Sparkline::default()
        .data(data)
        .max(peak.max(1))
        .style(t.write())
        .direction(RenderDirection::RightToLeft);
    frame.render_widget(spark, picture);
}

/// Dirty, write-back and cached bytes, and the flusher's activity.
pub fn write_back(view: &View, s: &Sample, frame: &mut Frame, area: Rect) {
    let m = &s.memory;
    let inner = view.panel(
        frame,
        area,
        view.title("Write-back"),
        view.note(format!("limit {}", bytes(m.dirty_limit))),
    );
    let share = |n: u64, of: u64| n as f64 / of.max(1) as f64;
    let t = view.theme;
    let background = share(m.background_limit, m.dirty_limit);
    let cached = share(m.cached_bytes, m.cache_limit);
    let rows = [
        ("dirty", m.dirty_bytes, share(m.dirty_bytes, m.dirty_limit), Some(background), None),
        ("writeback", m.writeback_bytes, share(m.writeback_bytes, m.dirty_limit), None, Some(t.write())),
        ("cached", m.cached_bytes, cached, None, Some(t.dim())),
    ];
    let lines = Layout::vertical([Constraint::Length(1); 5]).split(inner);
    for (line, (name, n, share, mark, style)) in lines.iter().zip(rows) {
        gauge(view, frame, *line, (name, n), (share, mark), style.unwrap_or_else(|| t.load(share)));
    }
    let (what, at) = flusher(s, usize::from(inner.width).saturating_sub(12));
    let style = if s.flusher.state == "waiting" { t.warning() } else { t.strong() };
    let line = Line::from(vec![Span::raw("flusher   "), Span::styled(what, style), Span::raw(at)]);
    frame.render_widget(line, lines[3]);
    let part = |text: String| vec![Span::raw(text)];
    let parts = vec![
        part(format!("commits   {} queued", s.commits.queued)),
        part(format!(", {} for {} requests", s.commits.issued, s.commits.total)),
    ];
    frame.render_widget(fitting(parts, lines[4].width), lines[4]);
}

/// The flusher's activity, and the file that it is writing, in `room` characters.
fn flusher(s: &Sample, room: usize) -> (String, String) {
    let f = &s.flusher;
    match (&*f.state, f.ino) {
        ("writing", Some(ino)) => {
            let path = s.files.iter().find(|x| x.ino == ino).and_then(|x| x.path.clone());
            let path = path.unwrap_or_else(|| format!("inode {ino}"));
            let why = f.why.clone().unwrap_or_default();
            let room = room.saturating_sub(why.len());
            (why, format!(": {}", shortened(&path, room)))
        }
        ("waiting", _) => ("waiting".into(), ": writing failed".into()),
        (state, _) => (state.to_string(), String::new()),
    }
}

/// A line with a name, a bar, and a number.
fn gauge(
    view: &View,
    frame: &mut Frame,
    area: Rect,
    (name, n): (&'static str, u64),
    (share, mark): (f64, Option<f64>),
    style: Style,
) {
    const LABEL: u16 = 10;
    const NUMBER: u16 = 11;
    if area.width < LABEL + NUMBER {
        let parts = vec![vec![Span::raw(format!("{name:<9} "))], vec![Span::raw(bytes(n))]];
        return frame.render_widget(fitting(parts, area.width), area);
    }
    let [label, bar, number] =
        Layout::horizontal([Constraint::Length(LABEL), Constraint::Min(0), Constraint::Length(NUMBER)])
            .areas(area);
    frame.render_widget(Line::raw(name), label);
    frame.render_widget(view.theme.bar(share, mark, usize::from(bar.width), style), bar);
    frame.render_widget(Line::raw(bytes(n)).alignment(Alignment::Right), number);
}

/// The number and sizes of bios.
pub fn bios(view: &View, s: &Sample, frame: &mut Frame, area: Rect) {
    let (h, t) = (view.history, view.theme);
    let note = view.note(format!("{} in flight, {:.0} flushes/s", s.io.in_flight, h.now.flushes));
    let inner = view.panel(frame, area, view.title("Bios"), note);
    let [text, picture, labels] =
        Layout::vertical([Constraint::Length(1), Constraint::Min(0), Constraint::Length(1)]).areas(inner);
    let rate = |bios: f64| Span::styled(format!("{bios:.0}/s"), t.strong());
    let parts = vec![
        vec![Span::styled("write ", t.write()), rate(h.now.write_bios)],
        vec![Span::styled(format!(" of {}", bytes(h.now.mean_write_bio as u64)), t.dim())],
        vec![Span::styled("   read ", t.read()), rate(h.now.read_bios)],
    ];
    frame.render_widget(fitting(parts, text.width), text);
    let count = |i: usize| -> u64 {
        let sizes = h.window.sizes.iter();
        let class = |bytes: u64| CLASSES.iter().rposition(|c| bytes >= c.0).unwrap_or(0);
        sizes.filter(|c| class(c.bytes) == i).map(|c| c.writes).sum()
    };
    let counts: Vec<u64> = (0..CLASSES.len()).map(count).collect();
    let most = counts.iter().copied().max().unwrap_or(0).max(1);
    let cell = (usize::from(inner.width) / CLASSES.len()).clamp(1, 8);
    let height = usize::from(picture.height);
    let columns: Vec<_> = counts.iter().map(|n| column(*n as f64 / most as f64, height)).collect();
    let rows: Vec<Line> = (0..height)
        .map(|row| {
            let fill = columns.iter().map(|c| format!("{:<cell$}", c[row].repeat(cell.max(2) - 1)));
            Line::styled(fill.collect::<String>(), t.write())
        })
        .collect();
    frame.render_widget(Paragraph::new(rows), picture);
    // A name and the blank after it take four cells. Where columns are narrower, not every column has a name.
    let step = 4usize.div_ceil(cell);
    let wide = step * cell;
    let names =
        CLASSES.iter().step_by(step).map(|(_, name)| vec![Span::styled(format!("{name:<wide$}"), t.dim())]);
    frame.render_widget(fitting(names.collect(), labels.width), labels);
}

/// A time, or a dash where nothing was counted.
pub fn latency(ns: u64, count: u64) -> String {
    if count == 0 { "–".into() } else { duration(ns) }
}
