//! Making a volume, filled and sized to fit if the request says so.

use crate::detect::Format;
use crate::devices::Others;
use crate::error::{About, Error, Result, Subject, path_bytes, show};
use crate::estimate::{self, Content};
use crate::fit::{LARGEST_BLOCK, few_inodes, fit, more};
use crate::found::is_superblock;
use crate::image::{self, Claim, Existing, NewImage};
use crate::import::{ImportOptions, Source, Target, import};
use crate::new_volume::NewVolume;
use crate::options::OpenOptions;
use crate::progress::Progress;
use crate::spool::spool;
use crate::summary::Summary;
use crate::tar::compress;
use crate::unfinished::Unfinished;
use crate::volume::Volume;
use std::fs::File;
use std::io::{Read, Seek};
use std::path::PathBuf;
use std::sync::Arc;
use tidegate_block::held::Held;
use tidegate_block::{Device, QueueLimits, RequestQueue};
use tidegate_rt::{Timespec, clock};
use tidegate_vfs::{Cred, ErrorKind, Inode, MemoryLimits, SetAttr};

/// The number of bytes between two syncs when equal input must make equal bytes.
const SYNC_EVERY: u64 = 32 << 20;
/// How often a volume that was too small after all is made again.
const ATTEMPTS: usize = 8;

/// The advice for a host that holds one image, but not two.
const HOLDS_BOTH: &str = "the old image is kept until the new one is complete; remove it first";

/// The size of a new volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// So many bytes.
    Bytes(u64),
    /// As much as its content needs. Not on a device, whose size is fixed.
    Fit,
    /// As large as the file or device already is.
    Keep,
}

/// The source of a new volume's content.
pub enum From {
    /// A directory tree.
    Tree(PathBuf),
    /// A tar in a file.
    Tar(PathBuf),
    /// A tar that can be read only once, and its name in errors.
    Stream(Box<dyn Read + Send>, String),
    /// A tar in a file that is open already, and its name in errors.
    Kept(File, String),
}

/// The volume to make.
pub struct Request {
    /// The image.
    pub image: PathBuf,
    /// F2FS: other devices or files after the image. Each is used in its present size.
    pub devices: Vec<PathBuf>,
    /// The size, without the other devices.
    pub size: Size,
    /// The content that goes in.
    pub from: Option<From>,
    /// The volume's properties.
    pub options: NewVolume,
    /// The options for opening the volume to fill it.
    pub open: OpenOptions,
    /// User and group of all files that go in, instead of the owners at the source.
    pub owner: Option<(u32, u32)>,
    /// User and group of the root directory, instead of those at the source.
    pub root_owner: Option<(u32, u32)>,
    /// Bytes to be left free, where the volume is made to fit.
    pub free: u64,
    /// Equal input makes equal bytes: later times become this time, and changes get it.
    pub reproducible: Option<Timespec>,
    /// Counters to advance.
    pub progress: Arc<Progress>,
    /// A file at `image` may be lost, whatever it holds. Without this, only zeros may be.
    pub force: bool,
    /// The state of the making, for a thread that catches signals.
    pub unfinished: Arc<Unfinished>,
}

/// The new volume in figures.
pub struct Made {
    /// Its cost.
    pub summary: Summary,
    /// Identity of the volume.
    pub uuid: [u8; 16],
    /// Attributes that could not be kept, one line each.
    pub notes: Vec<String>,
}

/// Makes a volume. A new image appears only once it is complete, and an image with content replaces another
/// only then.
///
/// # Errors
/// The fault of the request, the source or the image. A volume that is made to fit is made again, larger,
/// when the content turns out to need more.
pub fn mkfs(mut request: Request) -> Result<Made> {
    let start = clock::now();
    let mut summary = Summary::default();
    if request.open.offset > 0 {
        let what = "option \"offset\": a volume is made of a whole image or device";
        return Err(Error::argument(&request.image, what));
    }
    if let Some((uid, gid)) = request.root_owner {
        request.options.root_owner = (uid, gid);
    }
    if let Some(time) = request.reproducible {
        request.options.time = Some(time);
        request.open.fixed_time = Some(time);
        // The flusher starts when memory runs short, which depends on timing. Syncs at fixed points replace
        // it.
        let never = u64::MAX / 4;
        request.open.memory = MemoryLimits { dirty: never, background: never, ..request.open.memory };
    }
    // No program sees the volume before it is complete.
    request.open.format.ext4.filling = true;
    let image = Subject::from(&request.image);
    request.options.check(&image, !request.devices.is_empty())?;
    let mut claim = Claim::new(&request.image, request.force, request.open.backend)?;
    let others = Others::claim(&request)?;
    request.unfinished.begin(&image.to_string(), &claim);
    let there = claim.there();
    let mut bytes = match (request.size, there) {
        (Size::Bytes(_) | Size::Fit, Existing::Device) => {
            return Err(Error::argument(image, "a device has its size; leave --size out"));
        }
        (Size::Bytes(n), _) => n,
        (_, Existing::Device) => 0,
        (Size::Keep, Existing::File(n, _)) if n > 0 => n,
        (Size::Keep, _) => return Err(Error::argument(image, "a new image needs a size or content to fit")),
        (Size::Fit, _) if !others.is_empty() => {
            return Err(Error::argument(
                image,
                "on several devices a volume is not made to fit: give --size for this one",
            ));
        }
        (Size::Fit, _) => {
            let content = measure(&mut request, there)?;
            summary.phase("measure", start);
            request.progress.expect(content.files + content.dirs, content.bytes);
            fit(&image, &content, request.free, &mut request.options)?
        }
    };
    for attempt in 1.. {
        request.progress.reset();
        request.unfinished.again();
        match make(&mut request, bytes, (&mut claim, &others), &mut summary) {
            // A stream that was not kept cannot be read again.
            Err(e)
                if e.is_no_space()
                    && request.size == Size::Fit
                    && request.from.is_some()
                    && attempt < ATTEMPTS =>
            {
                bytes += more(request.options.format, bytes);
                summary.phases.clear();
            }
            Err(e) => {
                let e = match () {
                    () if e.is_no_space() => too_small(&mut request, e, there, bytes),
                    () if let Some(way) = higher_limit(&request.options, &e, bytes) => e.and(way),
                    () if e.is_host_full() && request.unfinished.keeps_old() => e.and(HOLDS_BOTH),
                    () => e,
                };
                return Err(match request.unfinished.failed() {
                    Some(left) => e.and(left),
                    None => e,
                });
            }
            Ok((uuid, notes)) => {
                summary.total(start);
                return Ok(Made { summary, uuid, notes });
            }
        }
    }
    unreachable!("the last attempt returns")
}

/// Adds to the error of a volume that is too small for its content what would help.
fn too_small(request: &mut Request, e: Error, there: Existing, bytes: u64) -> Error {
    if request.size == Size::Fit {
        return e
            .and("the source grew while it was read; give --size, or try again when nobody writes to it");
    }
    if there == Existing::Device || !request.devices.is_empty() {
        return e.and("the device is too small for what --from holds");
    }
    // A stream that was not kept cannot be read again.
    let measured = if request.from.is_some() { measure(request, there).ok() } else { None };
    if let Some(why) = measured.as_ref().and_then(|c| few_inodes(&request.options, c, bytes)) {
        return e.and(why);
    }
    match measured.and_then(|c| fit(&"".into(), &c, 0, &mut request.options.clone()).ok()) {
        Some(n) if n > bytes => {
            e.and(format_args!("--size {}M would do; left out, it is chosen to fit", n.div_ceil(1 << 20)))
        }
        _ => e.and("choose a larger --size; left out, it is chosen to fit"),
    }
}

/// The options that raise the limit that a volume of `bytes` bytes has met, if there are any.
fn higher_limit(options: &NewVolume, e: &Error, bytes: u64) -> Option<&'static str> {
    let small = options.room(&"".into(), bytes).ok()?.block_size < LARGEST_BLOCK;
    let large_dir = options.features.iter().any(|f| f == "large_dir");
    match (options.format, e.kind()?) {
        (Format::F2fs, _) => None,
        (Format::Ext4, ErrorKind::DirectoryFull) => match (small, large_dir) {
            (true, false) => Some("--block-size 4096 or -O large_dir makes room for more"),
            (true, true) => Some("--block-size 4096 makes room for more"),
            (false, false) => Some("-O large_dir makes room for more"),
            (false, true) => None,
        },
        (Format::Ext4, ErrorKind::TooBig) if small => Some("--block-size 4096 makes room for more"),
        (Format::Ext4, _) => None,
    }
}

/// Measures the content that goes in. A stream is kept in a file, so that it can be read again.
fn measure(request: &mut Request, there: Existing) -> Result<Content> {
    let image = Subject::from(&request.image);
    let geometry = request.options.geometry(&image)?;
    if let Some(From::Stream(read, name)) = &mut request.from {
        let file = spool(read, name, image::dir_of(&request.image))?;
        let name = std::mem::take(name);
        let again = file.try_clone().about(name.as_bytes())?;
        request.from = Some(From::Kept(again, name.clone()));
        let input = compress::open_file(file).about(name.as_bytes())?;
        return estimate::archive::measure(input, &name, &geometry);
    }
    match &request.from {
        Some(From::Tree(path)) => estimate::tree::measure(path, &geometry, skip(there)),
        Some(From::Tar(path)) => {
            let name = show(path_bytes(path));
            let input = File::open(path).and_then(compress::open_file).about(path_bytes(path))?;
            estimate::archive::measure(input, &name, &geometry)
        }
        _ => Ok(Content::default()),
    }
}

fn skip(there: Existing) -> Option<(u64, u64)> {
    match there {
        Existing::File(_, id) => Some(id),
        _ => None,
    }
}

fn make(
    request: &mut Request,
    bytes: u64,
    (claim, others): (&mut Claim, &Others),
    summary: &mut Summary,
) -> Result<([u8; 16], Vec<String>)> {
    let subject = Subject::from(&request.image);
    let start = clock::now();
    let there = claim.there();
    // Errors of a new file come before anything is changed.
    if there != Existing::Device {
        request.options.room(&subject, bytes + others.bytes())?;
    }
    let (filled, unfinished) = (request.from.is_some(), request.unfinished.clone());
    // An old volume whose other devices the new one takes must not stay valid.
    let replace = filled && others.is_empty();
    let image = NewImage::create(claim, bytes, replace, request.open.backend, &unfinished)?;
    // A volume that is made in place must not be valid before it is complete.
    let held =
        (image.in_place() && filled).then(|| Arc::new(Held::new(image.device.clone(), 2, is_superblock)));
    let device = held.clone().map_or_else(|| image.device.clone(), |h| h as Arc<dyn Device>);
    let (device, devices) = others.behind(&request.image, device)?;
    let queue = Arc::new(RequestQueue::new(device.clone(), QueueLimits::default()));
    let options = NewVolume { no_discard: there != Existing::Device, devices, ..request.options.clone() };
    let uuid = options.make(&subject, &queue)?;
    summary.phase("format", start);
    let mut notes = Vec::new();
    let io;
    if let Some(source) = source(&mut request.from)? {
        let start = clock::now();
        let volume = Volume::from_queue(&subject, queue, &request.open)?;
        let target = Target { dir: volume.resolve(b"/", true)?, path: b"/".to_vec(), name: None, over: None };
        let options = ImportOptions {
            clamp: request.reproducible,
            owner: request.owner,
            sync_every: request.reproducible.map(|_| SYNC_EVERY),
            skip: skip(there).into_iter().chain(image.id()).collect(),
            // The first failure ends the import: a volume that lacks something was not asked for.
            failed: None,
            progress: request.progress.clone(),
        };
        let root = target.dir.clone();
        // A tar may have no entry for the root.
        if let Some((uid, gid)) = request.owner {
            own(&volume, &root, uid, gid)?;
        }
        notes = import(&volume, source, target, &options)?.notes;
        if let Some((uid, gid)) = request.root_owner {
            own(&volume, &root, uid, gid)?;
        }
        drop(root);
        summary.phase("import", start);
        io = volume.unmount()?;
    } else {
        io = Summary::of(&queue.stats(), &Default::default());
    }
    summary.phases.extend(io.phases.iter().cloned());
    *summary = Summary {
        files: request.progress.files(),
        dirs: request.progress.dirs(),
        bytes: request.progress.bytes(),
        image_bytes: device.size(),
        phases: std::mem::take(&mut summary.phases),
        ..io
    };
    unfinished.finish(|| {
        held.map_or(Ok(()), |h| h.release()).map_err(|e| Error::Os(subject, e.into()))?;
        image.finish()
    })?;
    Ok((uuid, notes))
}

/// Gives the root of a new volume to a user and a group.
fn own(volume: &Volume, root: &Arc<Inode>, uid: u32, gid: u32) -> Result<()> {
    let set = SetAttr { uid: Some(uid), gid: Some(gid), ..SetAttr::default() };
    volume.vfs().setattr(&Cred::ROOT, root, &set).map_err(|e| volume.error_at(b"/", e))
}

/// The source of an import. A stream that was not kept is used up.
fn source(from: &mut Option<From>) -> Result<Option<Source>> {
    let tar = |f: File, name: String| Source::Tar(Box::new(f), name);
    Ok(Some(match from {
        None => return Ok(None),
        Some(From::Tree(path)) => Source::Tree(path.clone()),
        Some(From::Tar(path)) => tar(File::open(&*path).about(path_bytes(path))?, show(path_bytes(path))),
        Some(From::Kept(file, name)) => {
            let again = file.try_clone().and_then(|mut f| f.rewind().map(|()| f));
            tar(again.about(name.as_bytes())?, name.clone())
        }
        Some(From::Stream(..)) => match from.take() {
            Some(From::Stream(read, name)) => Source::Tar(read, name),
            _ => return Ok(None),
        },
    }))
}
