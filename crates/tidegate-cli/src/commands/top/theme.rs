//! Colours and bars. Without colours (`NO_COLOR`), text, bold and dim still show everything.

use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

/// The styles of the screen.
#[derive(Clone, Copy)]
pub struct Theme {
    colors: bool,
}

/// Eighths of a cell, from the left and from below.
const WIDE: [&str; 9] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉", "█"];
const TALL: [&str; 9] = [" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];

impl Theme {
    /// The theme for the environment.
    pub fn of_environment() -> Self {
        Theme { colors: std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty()) }
    }

    /// The theme with colours, as for a picture.
    pub fn colored() -> Self {
        Theme { colors: true }
    }

    /// The theme with or without colours.
    #[cfg(test)]
    pub fn with_colors(colors: bool) -> Self {
        Theme { colors }
    }

    fn color(self, c: Color) -> Style {
        if self.colors { Style::new().fg(c) } else { Style::new() }
    }

    pub fn title(self) -> Style {
        self.color(Color::Cyan).add_modifier(Modifier::BOLD)
    }

    pub fn border(self) -> Style {
        self.dim()
    }

    pub fn dim(self) -> Style {
        if self.colors { self.color(Color::DarkGray) } else { Style::new().add_modifier(Modifier::DIM) }
    }

    pub fn head(self) -> Style {
        self.dim()
    }

    pub fn write(self) -> Style {
        self.color(Color::Cyan)
    }

    pub fn read(self) -> Style {
        self.color(Color::Magenta)
    }

    pub fn strong(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// The style for good, critical or bad, by the used share of a limit.
    pub fn load(self, share: f64) -> Style {
        match share {
            s if s >= 0.9 => self.color(Color::Red).add_modifier(Modifier::BOLD),
            s if s >= 0.6 => self.color(Color::Yellow),
            _ => self.color(Color::Green),
        }
    }

    pub fn warning(self) -> Style {
        self.color(Color::Yellow).add_modifier(Modifier::BOLD)
    }

    /// A bar of `width` cells of which `share` is filled, with a mark at a threshold.
    pub fn bar(self, share: f64, mark: Option<f64>, width: usize, style: Style) -> Line<'static> {
        let eighths = (share.clamp(0.0, 1.0) * (width * 8) as f64).round() as usize;
        let mark = mark.map(|m| ((m * width as f64) as usize).min(width.saturating_sub(1)));
        let mut spans = Vec::with_capacity(width);
        for cell in 0..width {
            let filled = eighths.saturating_sub(cell * 8).min(8);
            spans.push(match filled {
                0 if mark == Some(cell) => Span::styled("╎", self.dim()),
                0 => Span::styled("·", self.dim()),
                n => Span::styled(WIDE[n], style),
            });
        }
        Line::from(spans)
    }
}

/// A column of `height` rows, from above, filled to `share`. Every value above zero shows at least a line.
pub fn column(share: f64, height: usize) -> Vec<&'static str> {
    let eighths = (share.clamp(0.0, 1.0) * (height * 8) as f64).ceil() as usize;
    (0..height).rev().map(|row| TALL[eighths.saturating_sub(row * 8).min(8)]).collect()
}
