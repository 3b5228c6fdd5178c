//! `tidegate mkfs`.

use crate::bar::Bar;
use crate::global::{Global, source_date_epoch};
use crate::{interrupt, out, report, units};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tidegate::detect::Format;
use tidegate::found::{Found, found};
use tidegate::image::{Existing, existing, refuse_within};
use tidegate::mkfs::{From, Request, Size};
use tidegate::new_volume::{self, Ext4Shape, NewJournal, NewVolume};
use tidegate::{Error, Progress, Result, Unfinished};

/// Arguments of `tidegate mkfs`.
#[derive(clap::Args)]
pub struct Args {
    /// Format of the volume
    #[arg(short = 't', long, alias = "type", value_name = "FORMAT", default_value = "f2fs", value_parser = format())]
    format: Format,
    /// Size of the image, such as 64M or 1.5T, or `auto` to fit the content of --from; left out, it is `auto`
    /// with --from, else that of the image that is there; a file of zeros keeps its size
    #[arg(long, value_parser = size, value_name = "SIZE|auto")]
    size: Option<Size>,
    /// Fill the volume from a directory or a tar (plain, gzip or zstd): a file, a pipe, or standard input (`-`)
    #[arg(long, value_name = "DIR|TAR|-")]
    from: Option<PathBuf>,
    /// Name of the volume: with f2fs up to 512 UTF-16 units, with ext4 up to 16 bytes
    #[arg(long, default_value = "", hide_default_value = true)]
    label: String,
    /// Identity of the volume; random if left out
    #[arg(long, value_parser = units::uuid)]
    uuid: Option<[u8; 16]>,
    /// Features, separated by commas. Of f2fs: extra_attr, inode_checksum, flexible_inline_xattr, inode_crtime,
    /// sb_checksum, lost_found. Of ext4, added to mke2fs's, or removed with ^ before the name: has_journal, ext_attr,
    /// resize_inode, dir_index, stable_inodes, orphan_file, meta_bg, 64bit, flex_bg, metadata_csum_seed,
    /// large_dir, sparse_super, large_file, huge_file, uninit_bg, dir_nlink, extra_isize, metadata_csum
    #[arg(short = 'O', long, value_delimiter = ',')]
    features: Vec<String>,
    /// Put an f2fs volume on zones (blkzoned), as a zoned device asks for: it is only ever written in order.
    /// The size is that of a zone in an image file, a multiple of 2M; left out, 2M; a zoned device has its
    /// own
    #[arg(long, value_name = "SIZE", value_parser = units::size, num_args = 0..=1, require_equals = true, default_missing_value = "2M")]
    zoned: Option<u64>,
    /// Another device or file of an f2fs volume, behind the image; up to seven. It must exist; its size is kept
    #[arg(short = 'c', long = "device", value_name = "DEVICE")]
    devices: Vec<PathBuf>,
    /// The owner of the root directory, as UID:GID; left out, its owner at the source, and without --from the caller
    #[arg(long, value_parser = units::owner, value_name = "UID:GID")]
    root_owner: Option<(u32, u32)>,
    /// The owner of all files of --from, as UID:GID
    #[arg(long, value_parser = units::owner, value_name = "UID:GID")]
    owner: Option<(u32, u32)>,
    /// The superuser owns all files of --from: --owner 0:0
    #[arg(long, conflicts_with = "owner")]
    all_root: bool,
    /// Space to leave free in a volume that is made to fit, such as 50M
    #[arg(long, value_parser = units::size_or_0, value_name = "SIZE")]
    free: Option<u64>,
    /// Make the volume whatever the image holds: a file system of any kind, a partition table, a file that is no image
    #[arg(short, long)]
    force: bool,
    /// The image file, made if it is missing, or a block device
    image: PathBuf,
    #[command(flatten)]
    ext4: Ext4Args,
}

/// A format by its name.
pub(super) fn format() -> impl clap::builder::TypedValueParser<Value = Format> {
    use clap::builder::{PossibleValuesParser, TypedValueParser};
    PossibleValuesParser::new(Format::ALL.map(Format::name)).try_map(|name| name.parse::<Format>())
}

/// Options for ext4 alone.
#[derive(clap::Args)]
#[command(next_help_heading = "Options for ext4 alone; where none is given, as mke2fs -t ext4")]
struct Ext4Args {
    /// Bytes of a block: 1024, 2048 or 4096; left out, 1024 for a volume of less than 512 MiB, else 4096
    #[arg(long, value_name = "BYTES", value_parser = units::size)]
    block_size: Option<u64>,
    /// Bytes of an inode: 128 to the size of a block, a power of two; left out, 256
    #[arg(long, value_name = "BYTES", value_parser = units::size)]
    inode_size: Option<u64>,
    /// Bytes of the volume for each inode, such as 16K
    #[arg(long, value_name = "BYTES", value_parser = units::size, conflicts_with = "inodes")]
    inode_ratio: Option<u64>,
    /// The least number of inodes
    #[arg(long, value_name = "COUNT")]
    inodes: Option<u64>,
    /// Share of the volume that only the superuser may fill, in percent; left out, 5
    #[arg(long, value_name = "PERCENT")]
    reserved: Option<f64>,
    /// Size of the journal, or `none`; left out, as the size of the volume has it
    #[arg(long, value_name = "SIZE|none", value_parser = journal)]
    journal: Option<NewJournal>,
}

fn journal(text: &str) -> std::result::Result<NewJournal, String> {
    if text == "none" { Ok(NewJournal::None) } else { units::size(text).map(NewJournal::Bytes) }
}

impl Ext4Args {
    fn shape(&self) -> Ext4Shape {
        // A number that is too large for the type is also too large for the format.
        let narrow = |n: Option<u64>| n.map(|n| u32::try_from(n).unwrap_or(u32::MAX));
        Ext4Shape {
            block_size: narrow(self.block_size),
            inode_size: narrow(self.inode_size),
            inode_ratio: self.inode_ratio,
            inodes: self.inodes,
            reserved_percent: self.reserved,
            journal: self.journal,
        }
    }
}

impl Args {
    /// The options that would have no effect together with the others, and why.
    fn without_effect(&self, size: Size) -> Option<&'static str> {
        if self.free.is_some_and(|n| n > 0) && size != Size::Fit {
            return Some("--free is for a volume that is made to fit its content: this one has its size");
        }
        let owner = if self.all_root { Some("--all-root") } else { self.owner.map(|_| "--owner") };
        match owner.filter(|_| self.from.is_none())? {
            "--owner" => Some("--owner is for what --from holds; --root-owner is for the root directory"),
            _ => Some("--all-root is for what --from holds; --root-owner 0:0 is for the root directory"),
        }
    }
}

/// The volume that is asked for, without its size.
fn new_volume(args: &Args) -> Result<NewVolume> {
    let segments_per_section = args.zoned.map(|bytes| zone(&args.image, bytes)).transpose()?;
    Ok(NewVolume {
        format: args.format,
        label: args.label.clone(),
        uuid: args.uuid,
        features: args.features.clone(),
        ext4: args.ext4.shape(),
        segments_per_section,
        zoned: args.zoned.is_some(),
        ..NewVolume::default()
    })
}

/// Bytes of a segment of F2FS.
const SEGMENT: u64 = 2 << 20;

/// Segments in a zone of so many bytes.
fn zone(image: &Path, bytes: u64) -> Result<u32> {
    let segments = u32::try_from(bytes / SEGMENT).ok().filter(|n| *n > 0 && bytes.is_multiple_of(SEGMENT));
    segments.ok_or_else(|| Error::argument(image, "--zoned: a zone is a multiple of 2M"))
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
        // A number that does not fit in 64 bits is also too large.
        Err(e) if !is_number || units::size(&text.replace(digits, "1")).is_err() => Err(e),
        _ => Err(format!("{text}: a volume has at most 16T")),
    }
}

/// Bytes of the page cache without `--cache`. Written pages are not read again, so a larger cache gains nothing.
const CACHE: u64 = 24 << 20;
/// Bytes of buffers that are kept for reuse. With fewer, a tree of gigabytes takes a tenth longer.
const KEPT: usize = 24 << 20;

/// Makes a volume.
///
/// # Errors
/// A fault of the request, the source or the image.
pub fn run(args: &Args, global: &Global) -> Result<()> {
    global.opening(&args.image);
    let unfinished = Arc::new(Unfinished::default());
    interrupt::tell(&unfinished)?;
    let progress = Arc::new(Progress::default());
    let reproducible = source_date_epoch()?;
    let options = new_volume(args)?;
    let mut open = global.open_options(false)?;
    global.tell_without_effect(&open.format.without_effect(options.format), options.format);
    tidegate::keep_for_reuse(KEPT);
    if global.cache.is_none() {
        open.memory = open.memory.with_cache(CACHE);
    }
    refuse_within(&args.image)?;
    let size = choose_size(args)?;
    if let Some(why) = args.without_effect(size) {
        return Err(Error::argument(&args.image, why));
    }
    let request = Request {
        image: args.image.clone(),
        devices: args.devices.clone(),
        size,
        from: args.from.as_deref().map(from).transpose()?,
        options,
        open,
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
        // A file of zeros was prepared with the wanted size.
        Existing::File(n, _) if n > 0 && found(&args.image)? == Found::Nothing => Ok(Size::Keep),
        _ if args.from.is_some() => Ok(Size::Fit),
        Existing::File(n, _) if n > 0 => Ok(Size::Keep),
        _ => Err(Error::argument(
            shown(&args.image),
            "a new image needs a size: give --size, or --from to fit its content",
        )),
    }
}

fn shown(path: &Path) -> String {
    tidegate::error::show(tidegate::error::path_bytes(path))
}

/// The owner of the root directory of an empty volume: the caller, who is to fill the volume.
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
    let kind = m.file_type();
    if kind.is_dir() {
        return Ok(From::Tree(path.into()));
    }
    if kind.is_file() || kind.is_block_device() {
        return Ok(From::Tar(path.into()));
    }
    // A pipe can be read only once.
    let stream = std::fs::File::open(path).map_err(|e| Error::os(bytes, e))?;
    Ok(From::Stream(Box::new(stream), shown(path)))
}
