//! `tidegate trim`: gives unused space of a volume back to the device below, as fstrim does.

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
    /// Do not discard free pieces smaller than this many bytes; without it, discard all
    #[arg(long, short, value_parser = size_or_0, value_name = "SIZE")]
    minimum: Option<u64>,
    /// The byte of the volume at which to begin; without it, the first
    #[arg(long, value_parser = size_or_0, value_name = "SIZE")]
    offset: Option<u64>,
    /// The number of bytes from there; without it, up to the end
    #[arg(long, value_parser = size, value_name = "SIZE")]
    length: Option<u64>,
    /// The volume
    #[arg(value_name = "IMAGE")]
    image: OsString,
}

/// Discards free blocks.
///
/// # Errors
/// The volume cannot be opened, or the device cannot discard.
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

/// Refuses a mounted volume, which is to be trimmed by fstrim.
fn refuse_mounted(place: &Path) -> Result<()> {
    if !place.is_dir() {
        return Ok(());
    }
    let text = "is a directory; tidegate trim takes an image, for what is mounted there is fstrim(8)";
    Err(Error::argument(place, text))
}

fn trim(args: &Args, volume: &Volume) -> Result<u64> {
    // Blocks that were freed when the volume was opened may be discarded only after a checkpoint.
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
