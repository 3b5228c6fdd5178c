//! `tidegate check`, with and without `--repair`.

use crate::global::Global;
use crate::out::Out;
use crate::place::Place;
use serde_json::json;
use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;
use tidegate::Result;
use tidegate::offline::{
    Change, CheckOptions, CheckReport, Outcome, RepairOptions, RepairReport, check, repair,
};

/// Exit statuses, as those of fsck.
const CORRECTED: u8 = 1;
const ERRORS_LEFT: u8 = 4;
/// The check itself failed.
pub const OPERATIONAL: u8 = 8;
/// The usage was wrong.
pub const USAGE: u8 = 16;

/// Arguments of `tidegate check`.
#[derive(clap::Args)]
pub struct Args {
    /// Problems to print, 1000 unless given; the rest is counted
    #[arg(long, value_name = "N")]
    max_problems: Option<usize>,
    /// Also list all rules
    #[arg(long)]
    rules: bool,
    /// Repair the damage without asking; each change is printed. Exit status 0: clean, 1: errors corrected,
    /// 4: errors left, 8: could not check
    #[arg(long)]
    repair: bool,
    /// With --repair: print the changes and make none
    #[arg(long, requires = "repair")]
    dry_run: bool,
    /// The volume
    image: OsString,
}

/// Checks arguments and environment, before the volume is opened.
///
/// # Errors
/// One of them is wrong.
pub fn usage(args: &Args, global: &Global) -> Result<()> {
    Place::image(&args.image).check()?;
    global.open_options(true).map(drop)
}

/// Checks a volume.
///
/// # Errors
/// It could not be checked.
pub fn run(args: &Args, global: &Global) -> Result<ExitCode> {
    if args.repair {
        return run_repair(args, global);
    }
    let place = Place::image(&args.image);
    let image = tidegate::error::show(tidegate::error::path_bytes(&place.image));
    let queue = Arc::new(tidegate::volume::open_queue(&place.image, &global.open_options(true)?)?);
    let mut options = CheckOptions::default();
    options.max_problems = args.max_problems.unwrap_or(options.max_problems);
    let report = check(&image, &queue, options)?;
    let mut out = Out::new();
    if global.json {
        out.json(&as_json(&report))?;
    } else {
        text(&mut out, &report, &image, args, global)?;
    }
    out.finish()?;
    Ok(if report.is_clean() { ExitCode::SUCCESS } else { ExitCode::from(ERRORS_LEFT) })
}

fn run_repair(args: &Args, global: &Global) -> Result<ExitCode> {
    let place = Place::image(&args.image);
    let image = tidegate::error::show(tidegate::error::path_bytes(&place.image));
    let open = global.open_options(args.dry_run)?;
    let queue = Arc::new(tidegate::volume::open_queue(&place.image, &open)?);
    let now = open.fixed_time.unwrap_or_else(tidegate_rt::clock::realtime);
    let options = RepairOptions { dry_run: args.dry_run, now };
    let mut out = Out::new();
    // Changes are printed when they are decided; as JSON, together at the end.
    let (mut changes, mut printed) = (Vec::new(), Ok(()));
    let mut told = |c: &Change| {
        if global.json {
            changes.push(json!({ "what": c.what, "place": c.place, "from": c.from, "to": c.to }));
        } else if printed.is_ok() {
            printed = out.line(format_args!("{image}: {c}"));
        }
    };
    let done = repair(&image, &queue, options, &mut told);
    printed?;
    let report = match done {
        Ok(report) => report,
        Err(e) => {
            out.finish()?;
            return Err(e);
        }
    };
    if global.json {
        out.json(&repair_json(&report, &changes, args.dry_run))?;
    } else {
        repair_text(&mut out, &report, &image, args, global)?;
    }
    out.finish()?;
    Ok(match report.outcome {
        Outcome::Clean => ExitCode::SUCCESS,
        Outcome::Corrected => ExitCode::from(CORRECTED),
        Outcome::Left => ExitCode::from(ERRORS_LEFT),
    })
}

fn repair_text(out: &mut Out, r: &RepairReport, image: &str, args: &Args, global: &Global) -> Result<()> {
    for note in &r.notes {
        out.line(format_args!("{image}: note: {note}"))?;
    }
    let counted = r.changes > 0 && !global.quiet;
    if args.dry_run && counted {
        out.line(format_args!("{image}: {} would be made", count(r.changes)))?;
    }
    if args.dry_run && r.changes > 0 {
        return Ok(());
    }
    if counted {
        out.line(format_args!("{image}: {} made", count(r.changes)))?;
    }
    text(out, &r.check, image, args, global)
}

fn count(changes: u64) -> String {
    if changes == 1 { "1 change".into() } else { format!("{changes} changes") }
}

fn repair_json(r: &RepairReport, changes: &[serde_json::Value], dry_run: bool) -> serde_json::Value {
    json!({
        "outcome": match r.outcome {
            Outcome::Clean => "clean",
            Outcome::Corrected => "corrected",
            Outcome::Left => "left",
        },
        "dry_run": dry_run,
        "changes": changes,
        "rounds": r.rounds,
        "notes": r.notes,
        "check": as_json(&r.check),
    })
}

fn text(out: &mut Out, r: &CheckReport, image: &str, args: &Args, global: &Global) -> Result<()> {
    if args.rules {
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
    if global.quiet {
        return Ok(());
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
