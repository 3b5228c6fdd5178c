//! `tidegate df`.

use crate::global::Global;
use crate::out::Out;
use crate::place::Place;
use crate::units::bytes;
use serde::Serialize;
use std::ffi::OsString;
use tidegate::Result;

/// Arguments of `tidegate df`.
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub struct Args {
    /// Accepted for habit; sizes always have units
    #[arg(short, long)]
    human_readable: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    /// Volumes
    #[arg(required = true, value_name = "IMAGE")]
    images: Vec<OsString>,
}

#[derive(Serialize)]
struct Row {
    image: String,
    format: &'static str,
    /// The size of the image, which includes the volume's own structures.
    image_bytes: u64,
    /// The space for files, used or not.
    size: u64,
    used: u64,
    available: u64,
    files: u64,
    files_free: u64,
}

/// Shows capacity and use.
///
/// # Errors
/// The volume cannot be opened.
pub fn run(args: &Args, global: &Global) -> Result<()> {
    // The first option has no effect, and clap itself ends the program after the help.
    let _ = (args.human_readable, args.help);
    let mut rows = Vec::new();
    for place in args.images.iter().map(|p| Place::image(p)) {
        let Some(volume) = global.or_fail(global.read(&place)) else { continue };
        let s = volume.vfs().statfs();
        let block = s.block_size as u64;
        rows.push(Row {
            image: volume.image().into(),
            format: volume.format(),
            image_bytes: volume.queue().device().size(),
            size: s.blocks * block,
            used: s.blocks.saturating_sub(s.blocks_free) * block,
            available: s.blocks_available * block,
            files: s.files.saturating_sub(s.files_free),
            files_free: s.files_free,
        });
        global.or_fail(volume.unmount());
    }
    let mut out = Out::new();
    if global.json {
        out.json(&rows)?;
        return out.finish();
    }
    let width = rows.iter().map(|r| r.image.chars().count()).max().unwrap_or(0).max(5);
    out.line(format_args!(
        "{:<width$} {:<6} {:>10} {:>10} {:>10} {:>10} {:>4} {:>9}",
        "Image", "Format", "Image size", "For files", "Used", "Available", "Use", "Files"
    ))?;
    for r in &rows {
        let percent = (r.used * 100).div_ceil((r.used + r.available).max(1));
        out.line(format_args!(
            "{:<width$} {:<6} {:>10} {:>10} {:>10} {:>10} {percent:>3}% {:>9}",
            r.image,
            r.format,
            bytes(r.image_bytes),
            bytes(r.size),
            bytes(r.used),
            bytes(r.available),
            r.files
        ))?;
    }
    out.finish()
}
