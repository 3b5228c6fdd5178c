//! `tidegate check`.

use crate::global::Global;
use crate::out::Out;
use crate::place::Place;
use serde_json::json;
use std::ffi::OsString;
use std::process::ExitCode;
use tidegate::f2fs::check::{CheckOptions, CheckReport, check};
use tidegate::{Error, Result};

/// Exit statuses, as fsck's.
const ERRORS_LEFT: u8 = 4;
/// The check itself failed.
pub const OPERATIONAL: u8 = 8;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// Problems to print; the rest is counted
    #[arg(long, value_name = "N")]
    max_problems: Option<usize>,
    /// Print every rule there is, too
    #[arg(long)]
    rules: bool,
    /// The volume
    image: OsString,
}

/// Checks a volume.
///
/// # Errors
/// It could not be checked.
pub fn run(args: &Args, global: &Global) -> Result<ExitCode> {
    let place = Place::parse(&args.image);
    let image = tidegate::error::show(tidegate::error::path_bytes(&place.image));
    let queue = tidegate::volume::open_queue(&place.image, &global.open_options(true)?)?;
    tidegate::detect::detect(&image, &queue)?;
    let mut options = CheckOptions::default();
    options.max_problems = args.max_problems.unwrap_or(options.max_problems);
    let report = check(&queue, options).map_err(|e| Error::Volume(image.clone(), e))?;
    let mut out = Out::new();
    if global.json {
        out.json(&as_json(&report))?;
    } else {
        text(&mut out, &report, &image, args.rules)?;
    }
    out.finish()?;
    Ok(if report.is_clean() { ExitCode::SUCCESS } else { ExitCode::from(ERRORS_LEFT) })
}

fn text(out: &mut Out, r: &CheckReport, image: &str, rules: bool) -> Result<()> {
    if rules {
        r.rules.iter().try_for_each(|(name, text)| out.line(format_args!("rule {name}: {text}")))?;
    }
    for p in &r.problems {
        out.line(format_args!("{image}: {}: {}", p.rule, p.text))?;
    }
    for note in &r.notes {
        out.line(format_args!("{image}: note: {note}"))?;
    }
    if r.unclean {
        out.line(format_args!("{image}: note: not cleanly unmounted"))?;
    }
    let verdict = match r.total_problems {
        0 => "clean".to_string(),
        1 => "1 problem".to_string(),
        n => format!("{n} problems"),
    };
    out.line(format_args!(
        "{image}: {verdict}; {} files, {} directories, {} others, {} orphans; {} nodes, {} blocks",
        r.files, r.directories, r.others, r.orphans, r.nodes, r.blocks
    ))
}

fn as_json(r: &CheckReport) -> serde_json::Value {
    let problems: Vec<_> = r.problems.iter().map(|p| json!({ "rule": p.rule, "text": p.text })).collect();
    let rules: Vec<_> = r.rules.iter().map(|(name, text)| json!({ "rule": name, "text": text })).collect();
    json!({
        "clean": r.is_clean(),
        "unclean_unmount": r.unclean,
        "total_problems": r.total_problems,
        "problems": problems,
        "notes": r.notes,
        "files": r.files,
        "directories": r.directories,
        "others": r.others,
        "orphans": r.orphans,
        "nodes": r.nodes,
        "blocks": r.blocks,
        "rules": rules,
    })
}
