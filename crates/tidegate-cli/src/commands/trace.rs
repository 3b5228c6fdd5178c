//! `tidegate trace`: records the work of a running mount.

use crate::global::Global;
use crate::out::Out;
use crate::watch::{create, tell_dropped};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use tidegate::error::path_bytes;
use tidegate::observe::{ProfileForm, TraceForm};
use tidegate::{Error, Result};
use tidegate_fuse::control::Client;
use tidegate_fuse::control::protocol::Record;

/// Arguments of `tidegate trace`.
#[derive(clap::Args)]
pub struct Args {
    /// A mounted directory, or the image that is mounted
    #[arg(value_name = "DIR|IMAGE")]
    place: PathBuf,
    /// How long to record, in seconds (0 to 3600)
    #[arg(long, short = 's', default_value_t = 5.0)]
    seconds: f64,
}

/// Records, and writes what --lockstat, --trace and --profile ask for; without these, a profile to standard
/// output.
///
/// # Errors
/// JSON was asked for; no volume is mounted there; another recording is running; those of writing.
pub fn run(args: &Args, global: &Global) -> Result<()> {
    let watch = &global.watch;
    global.refuse_json(
        "a recording goes to files: --trace FILE.json writes events as JSON; top --json has figures",
    )?;
    if !(0.0..=3600.0).contains(&args.seconds) {
        return Err(Error::argument("--seconds", "it must be 0 to 3600"));
    }
    let mut client = Client::connect(&args.place)?;
    let nothing = !watch.anything();
    let record = Record {
        seconds: args.seconds,
        events: watch.trace_events,
        locks: watch.lockstat,
        trace: watch.trace.as_deref().map(TraceForm::of),
        profile: watch.profile.as_deref().map(ProfileForm::of).or(nothing.then_some(ProfileForm::Tree)),
    };
    let mut printed = Vec::new();
    let mut trace = create(watch.trace.as_deref())?.map(BufWriter::new);
    let mut profile = create(watch.profile.as_deref())?.map(BufWriter::new);
    let mut parts: Vec<&mut dyn Write> = Vec::new();
    if watch.lockstat || nothing {
        parts.push(&mut printed);
    }
    parts.extend(trace.as_mut().map(|f| f as &mut dyn Write));
    parts.extend(profile.as_mut().map(|f| f as &mut dyn Write));
    let found = client.record(record, &mut parts)?;
    for (path, file) in [(&watch.trace, trace), (&watch.profile, profile)] {
        if let (Some(path), Some(mut file)) = (path, file) {
            BufWriter::<File>::flush(&mut file).map_err(|e| Error::os(path_bytes(path), e))?;
        }
    }
    if let Some(path) = &watch.trace {
        tell_dropped(path, found.events, found.dropped);
    }
    let mut out = Out::new();
    out.bytes(&printed)?;
    out.finish()
}
