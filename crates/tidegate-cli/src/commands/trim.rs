//! `tidegate trim`: gives what a volume does not use back to the device below, as fstrim does.

use crate::global::Global;
use crate::out::Out;
use crate::place::Place;
use crate::units::{bytes, size, size_or_0};
use serde_json::json;
use std::ffi::OsString;
use std::path::Path;
use tidegate::error::Refusal;
use tidegate::vfs::ErrorKind;
use tidegate::{Error, Result, Volume};

/// Arguments of `tidegate trim`.
#[derive(clap::Args)]
pub struct Args {
    /// Leave free pieces alone that are smaller than this many bytes; without it none
    #[arg(long, short, value_parser = size_or_0, value_name = "SIZE")]
    minimum: Option<u64>,
    /// Where in the volume to begin, in bytes; without it at its beginning
    #[arg(long, value_parser = size_or_0, value_name = "SIZE")]
    offset: Option<u64>,
    /// How far to go from there, in bytes; without it to the end
    #[arg(long, value_parser = size, value_name = "SIZE")]
    length: Option<u64>,
    /// The volume
    #[arg(value_name = "IMAGE")]
    image: OsString,
}

/// Discards what is free.
///
/// # Errors
/// The volume cannot be opened, or the device not discard.
pub fn run(args: &Args, global: &Global) -> Result<()> {
    refuse_mounted(Path::new(&args.image))?;
    let volume = global.write(&Place::image(&args.image))?;
    let image = volume.image().to_string();
    let trimmed = trim(args, &volume);
    let unmounted = volume.unmount();
    let trimmed = trimmed?;
    unmounted?;
    let mut out = Out::new();
    if global.json {
        out.json(&json!({ "image": image, "discarded_bytes": trimmed }))?;
    } else if !global.quiet {
        out.line(format_args!("{image}: {} ({trimmed} bytes) discarded", bytes(trimmed)))?;
    }
    out.finish()
}

/// A mounted volume is trimmed by the kernel's way.
fn refuse_mounted(place: &Path) -> Result<()> {
    if !place.is_dir() {
        return Ok(());
    }
    let text = "is a directory; tidegate trim takes an image, for what is mounted there is fstrim(8)";
    Err(Error::argument(place, text))
}

fn trim(args: &Args, volume: &Volume) -> Result<u64> {
    // Blocks that opening freed are free for good only after a checkpoint.
    volume.commit(false)?;
    let start = args.offset.unwrap_or(0);
    let end = args.length.map_or(u64::MAX, |n| start.saturating_add(n));
    volume.ops().trim(start..end, args.minimum.unwrap_or(0)).map_err(|e| match e.kind() {
        ErrorKind::Unsupported => Error::refused(
            Refusal::Unsupported,
            volume.image(),
            "cannot trim: what it lies on takes no discards; an image needs a file system that can punch \
             holes, such as ext4, XFS, btrfs or tmpfs",
        ),
        _ => volume.error(e),
    })
}
