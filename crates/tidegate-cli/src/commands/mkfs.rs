//! `tidegate mkfs`.

use crate::bar::Bar;
use crate::global::{Global, source_date_epoch};
use crate::{interrupt, out, report, units};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tidegate::detect::Format;
use tidegate::found::{Found, found};
use tidegate::image::{Existing, existing};
use tidegate::mkfs::{From, Request, Size};
use tidegate::new_volume::{self, NewVolume};
use tidegate::{Error, Progress, Result, Unfinished};

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// Format of the volume
    #[arg(short = 't', long = "type", value_name = "FORMAT", default_value = "f2fs", value_parser = ["f2fs"])]
    format: String,
    /// Size of the image, such as 64M or 1.5T, or `auto` to fit what --from holds; left out, it is `auto`
    /// with --from, else that of the image that is there; an empty file keeps its size
    #[arg(long, value_parser = size, value_name = "SIZE|auto")]
    size: Option<Size>,
    /// Fill the volume from a directory, a tar (plain, gzip or zstd), or a tar on standard input (`-`)
    #[arg(long, value_name = "DIR|TAR|-")]
    from: Option<PathBuf>,
    /// Name of the volume, up to 512 UTF-16 units
    #[arg(long, default_value = "", hide_default_value = true)]
    label: String,
    /// Identity of the volume; random if left out
    #[arg(long, value_parser = units::uuid)]
    uuid: Option<[u8; 16]>,
    /// Features, separated by commas: extra_attr, inode_checksum, flexible_inline_xattr, inode_crtime,
    /// sb_checksum, lost_found
    #[arg(long, value_delimiter = ',', value_parser = feature)]
    features: Vec<String>,
    /// The owner of the root directory, as UID:GID; left out, its owner at the source, and without --from the caller
    #[arg(long, value_parser = units::owner, value_name = "UID:GID")]
    root_owner: Option<(u32, u32)>,
    /// The owner of all that --from holds, as UID:GID
    #[arg(long, value_parser = units::owner, value_name = "UID:GID")]
    owner: Option<(u32, u32)>,
    /// The superuser owns all that --from holds: --owner 0:0
    #[arg(long, conflicts_with = "owner")]
    all_root: bool,
    /// How much to leave free in a volume that is made to fit, such as 50M
    #[arg(long, value_parser = units::size, value_name = "SIZE")]
    free: Option<u64>,
    /// Make the volume whatever is there: a file system of any kind, a partition table, a file that is no image
    #[arg(short, long)]
    force: bool,
    /// The image file, made if it is missing, or a block device
    image: PathBuf,
}

fn size(text: &str) -> std::result::Result<Size, String> {
    let digits = text.trim().trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let is_number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    match units::size(text) {
        _ if text == "auto" => Ok(Size::Fit),
        Ok(n) if n <= new_volume::largest(Format::default()) => Ok(Size::Bytes(n)),
        Err(_) if is_number && digits.bytes().all(|b| b == b'0') => {
            Err(format!("{text}: a volume has some room; give a size such as 64M, or auto"))
        }
        // More than a number of bytes can say is too large, too.
        Err(e) if !is_number || units::size(&text.replace(digits, "1")).is_err() => Err(e),
        _ => Err(format!("{text}: a volume has at most 16T")),
    }
}

fn feature(name: &str) -> std::result::Result<String, String> {
    match new_volume::features(Format::default()).find(|f| *f == name) {
        Some(name) => Ok(name.into()),
        None => Err(format!("{name}: not a feature that can be made")),
    }
}

/// Makes a volume.
///
/// # Errors
/// What is in the way.
pub fn run(args: &Args, global: &Global) -> Result<()> {
    global.opening(&args.image);
    let unfinished = Arc::new(Unfinished::default());
    interrupt::tell(&unfinished)?;
    let progress = Arc::new(Progress::default());
    let reproducible = source_date_epoch()?;
    let (label, features) = (args.label.clone(), args.features.clone());
    let options = NewVolume { label, uuid: args.uuid, features, ..NewVolume::default() };
    let request = Request {
        image: args.image.clone(),
        size: choose_size(args)?,
        from: args.from.as_deref().map(from).transpose()?,
        options,
        open: global.open_options(false)?,
        owner: if args.all_root { Some((0, 0)) } else { args.owner },
        root_owner: args.root_owner.or_else(|| caller().filter(|_| args.from.is_none())),
        free: args.free.unwrap_or(0),
        reproducible,
        progress: progress.clone(),
        force: args.force,
        unfinished,
    };
    let bar = Bar::new(&progress, global.quiet);
    let made = tidegate::mkfs(request);
    drop(bar);
    let made = made?;
    out::notes(&made.notes);
    let extra = [("image", args.image.display().to_string()), ("uuid", units::uuid_text(&made.uuid))];
    let printed = report::print(global, &made.summary, &extra);
    printed.map_err(|e| if e.is_broken_pipe() { e } else { e.and("the image is made all the same") })
}

fn choose_size(args: &Args) -> Result<Size> {
    if let Some(size) = args.size {
        return Ok(size);
    }
    match existing(&args.image)? {
        Existing::Device => Ok(Size::Keep),
        // A file that was prepared for it has the size that is wanted.
        Existing::File(n, _) if n > 0 && found(&args.image)? == Found::Nothing => Ok(Size::Keep),
        _ if args.from.is_some() => Ok(Size::Fit),
        Existing::File(n, _) if n > 0 => Ok(Size::Keep),
        _ => {
            let image = tidegate::error::show(tidegate::error::path_bytes(&args.image));
            Err(Error::other(image, "a new image needs a size: give --size, or --from to fit its content"))
        }
    }
}

/// Whose root directory an empty volume gets: the caller's, who is to fill it.
fn caller() -> Option<(u32, u32)> {
    use rustix::process::{getegid, geteuid};
    (!geteuid().is_root()).then(|| (geteuid().as_raw(), getegid().as_raw()))
}

fn from(path: &Path) -> Result<From> {
    if path == Path::new("-") {
        return Ok(From::Stream(Box::new(std::io::stdin()), "standard input".into()));
    }
    let bytes = tidegate::error::path_bytes(path);
    let m = std::fs::metadata(path).map_err(|e| Error::os(bytes, e))?;
    Ok(if m.is_dir() { From::Tree(path.into()) } else { From::Tar(path.into()) })
}
