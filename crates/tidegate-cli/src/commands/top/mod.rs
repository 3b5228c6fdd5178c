//! `tidegate top`: a mounted volume at work, live or once.
//!
//! | module | holds |
//! |---|---|
//! | `history` | the samples of the last seconds |
//! | `screen` | the terminal: keys, time, drawing |
//! | `view` | the layout of the screen |
//! | `panels`, `tables` | the content of its parts |
//! | `theme` | colours, bars |
//! | `picture` | the screen as an SVG file |
//! | `plain` | one sample as text |

mod history;
mod panels;
mod picture;
mod plain;
mod screen;
mod tables;
#[cfg(test)]
mod tests;
mod theme;
mod view;

use crate::global::Global;
use crate::out::Out;
use history::History;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use serde::Serialize;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::Duration;
use theme::Theme;
use tidegate::error::path_bytes;
use tidegate::sample::{Rates, prometheus};
use tidegate::{Error, Result, Sample};
use tidegate_fuse::control::Client;
use view::View;

/// Arguments of `tidegate top`.
#[derive(clap::Args)]
pub struct Args {
    /// A mounted directory, or the image that is mounted
    #[arg(value_name = "DIR|IMAGE")]
    place: PathBuf,
    /// Seconds between two samples (0.05 to 3600)
    #[arg(long, short = 'd', default_value_t = 1.0, value_parser = interval)]
    interval: f64,
    /// Print one sample in the text format of Prometheus
    #[arg(long, conflicts_with = "json")]
    prometheus: bool,
    /// Watch for eleven samples, and draw the screen into an SVG file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "prometheus"])]
    picture: Option<PathBuf>,
}

/// Columns and rows of a picture, and the number of samples for it.
const PICTURE: (u16, u16, u32) = (110, 26, 11);

fn interval(text: &str) -> std::result::Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("{text}: not a number of seconds"))?;
    if (0.05..=3600.0).contains(&seconds) { Ok(seconds) } else { Err("it must be 0.05 to 3600".into()) }
}

/// A sample, and the changes in the interval before it.
#[derive(Serialize)]
struct Once<'a> {
    #[serde(flatten)]
    sample: &'a Sample,
    rates: &'a Rates,
}

/// Shows the volume.
///
/// # Errors
/// No volume is mounted there, the mount ends, or the terminal fails.
pub fn run(args: &Args, global: &Global) -> Result<()> {
    let mut client = Client::connect(&args.place)?;
    let interval = Duration::from_secs_f64(args.interval);
    if args.prometheus {
        let sample = client.sample(false)?;
        let mut out = Out::new();
        out.bytes(prometheus(&sample).as_bytes())?;
        return out.finish();
    }
    if let Some(file) = &args.picture {
        return draw(client, interval, file);
    }
    if !global.json && std::io::stdout().is_terminal() {
        return screen::run(client, interval);
    }
    let before = client.sample(true)?;
    client.sleep(interval, true)?;
    let sample = client.sample(true)?;
    let rates = sample.since(&before);
    let mut out = Out::new();
    if global.json {
        out.json(&Once { sample: &sample, rates: &rates })?;
    } else {
        plain::print(&mut out, &sample, &rates)?;
    }
    out.finish()
}

/// Watches for a while, and then draws the screen into `file`.
fn draw(mut client: Client, interval: Duration, file: &Path) -> Result<()> {
    let (width, height, samples) = PICTURE;
    let mut history = History::default();
    for n in 0..samples {
        if n > 0 {
            client.sleep(interval, true)?;
        }
        history.push(client.sample(true)?);
    }
    let Ok(mut terminal) = Terminal::new(TestBackend::new(width, height));
    let view = View { history: &history, theme: Theme::colored(), paused: false };
    let Ok(_) = terminal.draw(|f| view.draw(f));
    let place = history.sample().and_then(|s| s.mountpoint.clone()).unwrap_or_default();
    let svg = picture::svg(terminal.backend().buffer(), &format!("tidegate top {place}"));
    std::fs::write(file, svg).map_err(|e| Error::os(path_bytes(file), e))
}
