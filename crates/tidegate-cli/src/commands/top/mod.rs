//! `tidegate top`: what a mounted volume does, live or once.
//!
//! | module | holds |
//! |---|---|
//! | `history` | the samples of the last seconds |
//! | `screen` | the terminal: keys, time, drawing |
//! | `view` | how the screen is divided |
//! | `panels`, `tables` | what stands in its parts |
//! | `theme` | colours, bars |
//! | `plain` | one sample as text |

mod history;
mod panels;
mod plain;
mod screen;
mod tables;
#[cfg(test)]
mod tests;
mod theme;
mod view;

use crate::global::Global;
use crate::out::Out;
use serde::Serialize;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::Duration;
use tidegate::sample::{Rates, prometheus};
use tidegate::{Result, Sample};
use tidegate_fuse::control::Client;
use tidegate_rt::thread;

/// Arguments.
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
}

fn interval(text: &str) -> std::result::Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("{text}: not a number of seconds"))?;
    if (0.05..=3600.0).contains(&seconds) { Ok(seconds) } else { Err("it must be 0.05 to 3600".into()) }
}

/// A sample, and what happened in the interval before it.
#[derive(Serialize)]
struct Once<'a> {
    #[serde(flatten)]
    sample: &'a Sample,
    rates: &'a Rates,
}

/// Shows.
///
/// # Errors
/// Nothing is mounted there, the mount ends, the terminal fails.
pub fn run(args: &Args, global: &Global) -> Result<()> {
    let mut client = Client::connect(&args.place)?;
    let interval = Duration::from_secs_f64(args.interval);
    if args.prometheus {
        let sample = client.sample(false)?;
        let mut out = Out::new();
        out.bytes(prometheus(&sample).as_bytes())?;
        return out.finish();
    }
    if !global.json && std::io::stdout().is_terminal() {
        return screen::run(client, interval);
    }
    let before = client.sample(true)?;
    thread::sleep(interval);
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
