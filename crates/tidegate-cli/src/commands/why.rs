//! `tidegate why`: why fsyncs, syncs and checkpoints of a running mount are slow.

use crate::bar::Countdown;
use crate::global::Global;
use crate::out::{self, Out};
use std::path::PathBuf;
use std::time::Duration;
use tidegate::observe::why::page;
use tidegate::{Error, Result};
use tidegate_fuse::control::Client;
use tidegate_fuse::control::protocol::Why;

/// The most operations of each kind that are explained.
const MOST: usize = 10;
/// The least number of events that are kept of each thread: a thread that writes much makes some ten thousand a second.
const EVENTS: usize = 1 << 18;
/// The longest time to watch, in seconds.
const LONGEST: f64 = 3600.0;

/// Arguments of `tidegate why`.
#[derive(clap::Args)]
#[command(
    after_help = "The page has the ten slowest fsyncs and syncs, together, and the three slowest checkpoints; \
                        --json has ten of each kind."
)]
pub struct Args {
    /// A mounted directory, or the image that is mounted
    #[arg(value_name = "DIR|IMAGE")]
    place: PathBuf,
    /// Operations that take longer than this are slow (a number with us, ms or s)
    #[arg(long, default_value = "50ms", value_parser = duration, value_name = "TIME")]
    over: Duration,
    /// How long to watch, in seconds (0 to 3600)
    #[arg(long, short = 's', default_value_t = 10.0, value_parser = seconds)]
    seconds: f64,
}

fn seconds(text: &str) -> std::result::Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("{text}: not a number of seconds"))?;
    if (0.0..=LONGEST).contains(&seconds) { Ok(seconds) } else { Err("it must be 0 to 3600".into()) }
}

fn duration(text: &str) -> std::result::Result<Duration, String> {
    let wrong = || format!("{text}: write a number with us, ms or s behind it, such as 50ms");
    let (number, unit) = text.split_at(text.find(|c: char| c.is_ascii_alphabetic()).ok_or_else(wrong)?);
    let factor = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        _ => return Err(wrong()),
    };
    let number: f64 = number.parse().map_err(|_| wrong())?;
    Duration::try_from_secs_f64(number * factor).map_err(|_| wrong())
}

/// Watches, and prints the findings.
///
/// # Errors
/// No volume is mounted there; another recording is running; those of writing.
pub fn run(args: &Args, global: &Global) -> Result<()> {
    let watch = &global.watch;
    if watch.anything() {
        let text = "tidegate why records by itself; for these use tidegate trace DIR";
        return Err(Error::argument("--lockstat, --trace, --profile", text));
    }
    let mut client = Client::connect(&args.place)?;
    let why = Why {
        seconds: args.seconds,
        events: watch.trace_events.max(EVENTS),
        over_ns: u64::try_from(args.over.as_nanos()).unwrap_or(u64::MAX),
        most: MOST,
    };
    let bar = Countdown::new("watching", Duration::from_secs_f64(args.seconds), global.quiet);
    let report = client.why(why)?;
    drop(bar);
    let mut out = Out::new();
    if global.json {
        out.json(&report)?;
    } else {
        let mut text = Vec::new();
        page::write(&report, &args.place.display().to_string(), &mut text).map_err(out::error)?;
        out.bytes(&text)?;
    }
    out.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        let ms = |text| duration(text).map(|d| d.as_micros());
        assert_eq!((ms("50ms"), ms("1.5s"), ms("200us")), (Ok(50_000), Ok(1_500_000), Ok(200)));
        for wrong in ["50", "ms", "", "5 m", "-1s", "1e999s"] {
            assert!(duration(wrong).is_err_and(|e| e.contains("50ms")), "{wrong}");
        }
    }
}
