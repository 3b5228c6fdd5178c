//! The layout of the screen: three bands of two panels. Parts that do not fit are left out from below, and
//! the tables take the rest.

use super::history::History;
use super::theme::Theme;
use super::{panels, tables};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, BorderType};

/// Rows of the upper bands.
const WRITE_BACK: u16 = 7;
const LATENCY: u16 = 6;
/// The least number of rows with which tables are drawn.
const LEAST: u16 = 4;
/// The number of rows that tables keep where the steps of commits need more.
const TABLES: u16 = 6;

/// The content of the screen.
pub struct View<'a> {
    pub history: &'a History,
    pub theme: Theme,
    pub paused: bool,
}

impl View<'_> {
    /// Draws all of it.
    pub fn draw(&self, frame: &mut Frame) {
        let area = frame.area();
        let Some(sample) = self.history.sample() else { return };
        let wide = area.width >= 140;
        let [head, body, foot] =
            Layout::vertical([Constraint::Length(1), Constraint::Min(0), Constraint::Length(1)]).areas(area);
        frame.render_widget(panels::head(self, sample, head.width), head);
        frame.render_widget(panels::foot(self, sample), foot);
        let below = body.height.saturating_sub(WRITE_BACK);
        let latency = tables::latency_rows(self).min(below.saturating_sub(TABLES)).max(LATENCY).min(below);
        let bands = Layout::vertical([
            Constraint::Length(WRITE_BACK.min(body.height)),
            Constraint::Length(latency),
            Constraint::Min(0),
        ]);
        let [first, second, rest] = bands.areas(body);
        let [left, right] = halves(first, 50);
        panels::bandwidth(self, frame, left);
        panels::write_back(self, sample, frame, right);
        if second.height >= LATENCY {
            let [left, right] = halves(second, 50);
            tables::latency(self, frame, left);
            panels::bios(self, sample, frame, right);
        }
        if rest.height >= LEAST {
            let [left, right] = halves(rest, if wide { 40 } else { 50 });
            tables::locks(self, frame, left);
            tables::files(self, sample, frame, right);
        }
    }

    /// A panel's frame; the area inside of it.
    pub fn panel(&self, frame: &mut Frame, area: Rect, title: Line<'static>, note: Line<'static>) -> Rect {
        // Title and note are between the corners, with a line between them.
        let fits = title.width() + note.width() + 3 <= usize::from(area.width);
        let mut block =
            Block::bordered().border_type(BorderType::Rounded).border_style(self.theme.border()).title(title);
        if fits {
            block = block.title(note.right_aligned());
        }
        let inner = block.inner(area);
        frame.render_widget(block, area);
        inner
    }

    pub fn title(&self, text: impl std::fmt::Display) -> Line<'static> {
        Line::styled(format!(" {text} "), self.theme.title())
    }

    pub fn note(&self, text: impl std::fmt::Display) -> Line<'static> {
        let text = text.to_string();
        Line::styled(if text.is_empty() { text } else { format!(" {text} ") }, self.theme.dim())
    }
}

/// As many of `parts`, in order, as fit. A part that does not fit is left out with all later ones: a number
/// without its last digits is another number.
pub fn fitting(parts: Vec<Vec<Span<'static>>>, room: u16) -> Line<'static> {
    let mut line = Line::default();
    for part in parts {
        if line.width() + part.iter().map(Span::width).sum::<usize>() > usize::from(room) {
            break;
        }
        line.spans.extend(part);
    }
    line
}

fn halves(area: Rect, left: u16) -> [Rect; 2] {
    Layout::horizontal([Constraint::Percentage(left), Constraint::Min(0)]).areas(area)
}
