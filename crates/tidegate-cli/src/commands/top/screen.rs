//! The terminal: keys, time, drawing.

use super::history::History;
use super::theme::Theme;
use super::view::View;
use crate::out;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use std::time::Duration;
use tidegate::Result;
use tidegate_fuse::control::Client;
use tidegate_fuse::control::client::OFTEN;
use tidegate_rt::clock;

/// Bounds of the interval that keys set.
const FASTEST: Duration = Duration::from_millis(100);
const SLOWEST: Duration = Duration::from_secs(60);

/// The request behind a key.
enum Wish {
    Nothing,
    Quit,
}

/// Shows the screen until a key ends it.
///
/// # Errors
/// The mount ends, or the terminal fails.
pub fn run(client: Client, interval: Duration) -> Result<()> {
    let mut terminal = ratatui::try_init().map_err(out::error)?;
    let shown = Screen { client, interval, paused: false, history: History::default() }.show(&mut terminal);
    let restored = ratatui::try_restore().map_err(out::error);
    shown.and(restored)
}

struct Screen {
    client: Client,
    interval: Duration,
    paused: bool,
    history: History,
}

impl Screen {
    fn show(&mut self, terminal: &mut ratatui::DefaultTerminal) -> Result<()> {
        let theme = Theme::of_environment();
        loop {
            if !self.paused {
                self.history.push(self.client.sample(true)?);
            }
            let start = clock::now();
            let mut asked = start;
            loop {
                let view = View { history: &self.history, theme, paused: self.paused };
                terminal.draw(|f| view.draw(f)).map_err(out::error)?;
                let left = self.interval.saturating_sub(clock::now().since(start).duration());
                if left.is_zero() {
                    break;
                }
                if clock::now().since(asked).duration() >= OFTEN {
                    let there = self.client.sample(true);
                    // A paused screen stays as it is, even if the mount ends.
                    if !self.paused {
                        there?;
                    }
                    asked = clock::now();
                }
                if event::poll(left.min(OFTEN)).map_err(out::error)?
                    && let Wish::Quit = self.react(&event::read().map_err(out::error)?)
                {
                    return Ok(());
                }
            }
        }
    }

    fn react(&mut self, event: &Event) -> Wish {
        let Event::Key(KeyEvent { code, modifiers, kind: KeyEventKind::Press, .. }) = event else {
            return Wish::Nothing;
        };
        match code {
            KeyCode::Char('c' | 'd') if modifiers.contains(KeyModifiers::CONTROL) => return Wish::Quit,
            KeyCode::Char('q') | KeyCode::Esc => return Wish::Quit,
            KeyCode::Char('p' | ' ') => self.paused = !self.paused,
            KeyCode::Char('+') => self.interval = (self.interval * 2).min(SLOWEST),
            KeyCode::Char('-') => self.interval = (self.interval / 2).max(FASTEST),
            _ => {}
        }
        Wish::Nothing
    }
}
