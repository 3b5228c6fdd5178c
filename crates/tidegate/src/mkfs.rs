//! Making a volume, filled and sized to fit if that is wanted.

use crate::detect::Format;
use crate::devices::Others;
use crate::error::{About, Error, Refusal, Result, path_bytes, show};
use crate::estimate::{self, Content};
use crate::found::is_superblock;
use crate::image::{self, Claim, Existing, NewImage};
use crate::import::{ImportOptions, Source, Target, import};
use crate::new_volume::{Ext4Shape, NewVolume, Room, largest};
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
use tidegate_vfs::{Cred, ErrorKind, MemoryLimits, SetAttr};

/// Bytes that go in between two syncs when equal input must make equal bytes.
const SYNC_EVERY: u64 = 32 << 20;
/// Smallest volume that is made without being asked for a size.
const SMALLEST: u64 = 40 << 20;
/// Unit in which a size is chosen: a segment.
const SEGMENT: u64 = 2 << 20;
/// Unit of ext4's sizes, whose volumes are as small as one likes; then the smallest.
const EXT4_STEP: u64 = 64 << 10;
const EXT4_SMALLEST: u64 = 256 << 10;
/// Bytes of the largest block that ext4 is made with.
const LARGEST_BLOCK: u64 = 4096;
/// Inodes that are not for files: the reserved ones and lost+found's.
const FIRST_INODES: u64 = 12;
/// How often a volume that was too small after all is made anew.
const ATTEMPTS: usize = 8;

/// The advice for a host that holds one image, but not two.
const HOLDS_BOTH: &str = "the old image is kept until the new one is complete; remove it first";

/// How large a volume is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// So many bytes.
    Bytes(u64),
    /// As its content needs; not on a device, which has its size.
    Fit,
    /// As the file or device already is.
    Keep,
}

/// The source of a new volume's content.
pub enum From {
    /// A directory tree.
    Tree(PathBuf),
    /// A tar in a file.
    Tar(PathBuf),
    /// A tar that can be read once, and its name in errors.
    Stream(Box<dyn Read + Send>, String),
    /// A tar in a file that is open already, and its name in errors.
    Kept(File, String),
}

/// The volume to make.
pub struct Request {
    /// Where.
    pub image: PathBuf,
    /// F2FS: other devices or files, behind the image; each has its size.
    pub devices: Vec<PathBuf>,
    /// How large, without the other devices.
    pub size: Size,
    /// The content that goes in.
    pub from: Option<From>,
    /// The volume's properties.
    pub options: NewVolume,
    /// How it is opened to be filled.
    pub open: OpenOptions,
    /// User and group of all that goes in, instead of its owner at the source.
    pub owner: Option<(u32, u32)>,
    /// User and group of the root directory, instead of those at the source.
    pub root_owner: Option<(u32, u32)>,
    /// Bytes to be left for more, where the volume is made to fit.
    pub free: u64,
    /// Equal input makes equal bytes: no time is later than this, and changes bear it.
    pub reproducible: Option<Timespec>,
    /// Counters to move on.
    pub progress: Arc<Progress>,
    /// A file at `image` may be lost, whatever it holds; without this, only zeros.
    pub force: bool,
    /// For a thread that catches signals.
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

/// Makes a volume. A new image appears only once it is complete, and one with content takes the place of
/// another only then.
///
/// # Errors
/// The fault of the request, the source or the image. A volume that fits its content is made anew, larger,
/// when the content turned out to need more.
pub fn mkfs(mut request: Request) -> Result<Made> {
    let start = clock::now();
    let mut summary = Summary::default();
    if request.open.offset > 0 {
        let what = "option \"offset\": a volume is made of a whole image or device";
        return Err(Error::argument(show(path_bytes(&request.image)), what));
    }
    if let Some((uid, gid)) = request.root_owner {
        request.options.root_owner = (uid, gid);
    }
    if let Some(time) = request.reproducible {
        request.options.time = Some(time);
        request.open.fixed_time = Some(time);
        // The flusher starts when memory runs short, which is a matter of timing; syncs at fixed points
        // take its place.
        let never = u64::MAX / 4;
        request.open.memory = MemoryLimits { dirty: never, background: never, ..request.open.memory };
    }
    // Nobody has seen the volume before it is complete.
    request.open.format.ext4.filling = true;
    let shown = show(path_bytes(&request.image));
    let mut claim = Claim::new(&request.image, request.force, request.open.backend)?;
    let others = Others::claim(&request)?;
    request.unfinished.begin(&shown, &claim);
    let there = claim.there();
    let mut bytes = match (request.size, there) {
        (Size::Bytes(_) | Size::Fit, Existing::Device) => {
            return Err(Error::argument(shown, "a device has its size; leave --size out"));
        }
        (Size::Bytes(n), _) => n,
        (_, Existing::Device) => 0,
        (Size::Keep, Existing::File(n, _)) if n > 0 => n,
        (Size::Keep, _) => return Err(Error::argument(shown, "a new image needs a size or content to fit")),
        (Size::Fit, _) if !others.is_empty() => {
            return Err(Error::argument(
                shown,
                "on several devices a volume is not made to fit: give --size for this one",
            ));
        }
        (Size::Fit, _) => {
            let content = measure(&mut request, there)?;
            summary.phase("measure", start);
            request.progress.expect(content.files + content.dirs, content.bytes);
            fit(&shown, &content, request.free, &mut request.options)?
        }
    };
    for attempt in 1.. {
        request.progress.reset();
        request.unfinished.again();
        match make(&mut request, bytes, (&mut claim, &others), &mut summary) {
            // A stream that was not kept is used up.
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

/// Says of a volume that its content does not fit what would do.
fn too_small(request: &mut Request, e: Error, there: Existing, bytes: u64) -> Error {
    if request.size == Size::Fit {
        return e
            .and("the source grew while it was read; give --size, or try again when nobody writes to it");
    }
    if there == Existing::Device || !request.devices.is_empty() {
        return e.and("the device is too small for what --from holds");
    }
    // A stream that was not kept is used up.
    let measured = if request.from.is_some() { measure(request, there).ok() } else { None };
    if let Some(why) = measured.as_ref().and_then(|c| few_inodes(&request.options, c, bytes)) {
        return e.and(why);
    }
    match measured.and_then(|c| fit("", &c, 0, &mut request.options.clone()).ok()) {
        Some(n) if n > bytes => {
            e.and(format_args!("--size {}M would do; left out, it is chosen to fit", n.div_ceil(1 << 20)))
        }
        _ => e.and("choose a larger --size; left out, it is chosen to fit"),
    }
}

/// The options that lift the limit that a volume of `bytes` bytes has met, if there are some.
fn higher_limit(options: &NewVolume, e: &Error, bytes: u64) -> Option<&'static str> {
    let small = options.room("", bytes).ok()?.block_size < LARGEST_BLOCK;
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

/// Inodes of a volume that gets as many as its content has, and some.
fn enough_inodes(content: &Content) -> u64 {
    content.inodes + content.inodes / 16 + FIRST_INODES
}

/// The same volume with so many inodes.
fn with_inodes(options: &NewVolume, inodes: u64) -> NewVolume {
    let ext4 = Ext4Shape { inodes: Some(inodes), inode_ratio: None, ..options.ext4.clone() };
    NewVolume { ext4, ..options.clone() }
}

/// Says of a volume of `bytes` bytes that it has fewer inodes than its content takes, if it has, and names
/// the number that would do.
fn few_inodes(options: &NewVolume, content: &Content, bytes: u64) -> Option<String> {
    let free = options.room("", bytes).ok()?.inodes.filter(|n| *n < content.inodes)?;
    let wanted = enough_inodes(content);
    let size = fit("", content, 0, &mut with_inodes(options, wanted)).ok().filter(|n| *n > bytes);
    let size = size.map_or(String::new(), |n| format!(" with --size {}M", n.div_ceil(1 << 20)));
    let takes = content.inodes;
    Some(format!(
        "the source takes {takes} inodes, and the volume has {free} free: --inodes {wanted}{size} would do"
    ))
}

/// Measures the content that goes in. A stream is kept in a file, so that it can be read again.
fn measure(request: &mut Request, there: Existing) -> Result<Content> {
    let shown = show(path_bytes(&request.image));
    let geometry = request.options.geometry(&shown)?;
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

/// The unit in which a size is chosen, and the smallest that is made without being asked for a size.
fn steps(format: Format) -> (u64, u64) {
    match format {
        Format::F2fs => (SEGMENT, SMALLEST),
        Format::Ext4 => (EXT4_STEP, EXT4_SMALLEST),
    }
}

/// How much larger a volume is made that was too small after all.
fn more(format: Format, bytes: u64) -> u64 {
    match format {
        Format::F2fs => (bytes / 16).next_multiple_of(SEGMENT).max(4 * SEGMENT),
        Format::Ext4 => (bytes / 64).next_multiple_of(EXT4_STEP),
    }
}

/// The smallest volume that holds `content` and leaves `free` bytes. ext4 gets more inodes than its size
/// would have it where the content has so many.
fn fit(image: &str, content: &Content, free: u64, options: &mut NewVolume) -> Result<u64> {
    // Errors that do not depend on the size.
    options.room(image, 1 << 30).or_else(|_| options.room(image, 1 << 40))?;
    let (step, smallest) = steps(options.format);
    let format = options.format;
    let holds = |room: &Room| {
        let kept = if free > 0 { room.kept } else { 0 };
        let blocks = content.blocks[room.kind] + free.div_ceil(room.block_size) + kept;
        let spare = match format {
            // A margin for facts that the count cannot know: files that grow meanwhile, names that gather in
            // few buckets.
            Format::F2fs => blocks / 64 + 256,
            // The blocks that are promised to data before it has its place: more where there is enough of it for several
            // threads.
            Format::Ext4 => blocks / 512 + (blocks / 512).saturating_sub(2),
        };
        room.blocks >= blocks + spare
    };
    let has_inodes = |room: &Room| room.inodes.is_none_or(|n| n >= content.inodes);
    let many = with_inodes(options, enough_inodes(content));
    let chosen = options.ext4.inodes.is_some() || options.ext4.inode_ratio.is_some();
    // Whether it is enough, and whether it takes more inodes to be.
    let judge = |bytes: u64| match options.room(image, bytes) {
        Ok(room) if chosen || has_inodes(&room) => (has_inodes(&room) && holds(&room), false),
        Ok(_) => (many.room(image, bytes).is_ok_and(|r| has_inodes(&r) && holds(&r)), true),
        Err(_) => (false, false),
    };
    let enough = |bytes: u64| judge(bytes).0;
    let high = smallest_of(smallest, step, largest(format), enough);
    let high = high.ok_or_else(|| {
        Error::refused(Refusal::NoRoom, image, "the content does not fit the largest volume, 16 TiB")
    })?;
    if judge(high).1 {
        *options = many;
    }
    Ok(high)
}

/// The smallest size that is `enough`, in steps from `smallest` on. Choices that a format makes by size, such
/// as a journal or larger blocks, change at powers of two: a larger volume may have less space than one just
/// below.
fn smallest_of(smallest: u64, step: u64, largest: u64, enough: impl Fn(u64) -> bool) -> Option<u64> {
    let mut low = smallest;
    while low <= largest {
        let next = (low + 1).next_power_of_two();
        let mut high = if low == largest { low } else { next - step };
        if enough(high.max(low)) {
            high = high.max(low);
            while !enough(low) && high - low > step {
                let middle = (low + (high - low) / 2) / step * step;
                if enough(middle) { high = middle } else { low = middle }
            }
            return Some(if enough(low) { low } else { high });
        }
        low = next;
    }
    None
}

fn make(
    request: &mut Request,
    bytes: u64,
    (claim, others): (&mut Claim, &Others),
    summary: &mut Summary,
) -> Result<([u8; 16], Vec<String>)> {
    let shown = show(path_bytes(&request.image));
    let start = clock::now();
    let there = claim.there();
    // Without an existing volume, refuse before anything is changed.
    if there != Existing::Device {
        request.options.room(&shown, bytes + others.bytes())?;
    }
    let (filled, unfinished) = (request.from.is_some(), request.unfinished.clone());
    // An old volume that lost its other devices to the new one must not stay valid behind it.
    let replace = filled && others.is_empty();
    let image = NewImage::create(claim, bytes, replace, request.open.backend, &unfinished)?;
    // In place, a volume must not be one before it is complete.
    let held =
        (image.in_place() && filled).then(|| Arc::new(Held::new(image.device.clone(), 2, is_superblock)));
    let device = held.clone().map_or_else(|| image.device.clone(), |h| h as Arc<dyn Device>);
    let (device, devices) = others.behind(&request.image, device)?;
    let queue = Arc::new(RequestQueue::new(device.clone(), QueueLimits::default()));
    let options = NewVolume { no_discard: there != Existing::Device, devices, ..request.options.clone() };
    let uuid = options.make(&shown, &queue)?;
    summary.phase("format", start);
    let mut notes = Vec::new();
    let io;
    if let Some(source) = source(&mut request.from)? {
        let start = clock::now();
        let volume = Volume::from_queue(&shown, queue, &request.open)?;
        let target = Target { dir: volume.resolve(b"/", true)?, path: b"/".to_vec(), name: None, over: None };
        let options = ImportOptions {
            clamp: request.reproducible,
            owner: request.owner,
            sync_every: request.reproducible.map(|_| SYNC_EVERY),
            skip: skip(there).into_iter().chain(image.id()).collect(),
            // A volume that lacks something is not what was asked for.
            failed: None,
            progress: request.progress.clone(),
        };
        let root = target.dir.clone();
        notes = import(&volume, source, target, &options)?.notes;
        if let Some((uid, gid)) = request.root_owner {
            let set = SetAttr { uid: Some(uid), gid: Some(gid), ..SetAttr::default() };
            let set = volume.vfs().setattr(&Cred::ROOT, &root, &set);
            set.map_err(|e| volume.error_at(b"/", e))?;
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
        held.map_or(Ok(()), |h| h.release()).map_err(|e| Error::os(shown.as_bytes(), e))?;
        image.finish()
    })?;
    Ok((uuid, notes))
}

/// The source of an import; a stream that was not kept is used up.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_size_is_found_though_a_larger_one_may_be_too_small() {
        let find = |enough: &dyn Fn(u64) -> bool| smallest_of(40, 2, 1 << 20, enough);
        assert_eq!(find(&|_| true), Some(40));
        assert_eq!(find(&|n| n >= 41), Some(42));
        assert_eq!(find(&|n| n >= 64), Some(64));
        assert_eq!(find(&|n| (60..64).contains(&n) || n >= 100), Some(60));
        assert_eq!(find(&|n| n >= 65), Some(66));
        assert_eq!(find(&|n| n >= 1 << 20), Some(1 << 20));
        assert_eq!(find(&|_| false), None);
    }
}
