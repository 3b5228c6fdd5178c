//! The format of an image.

use crate::error::Subject;
use crate::error::{Error, Refusal, Result};
use crate::found::{Found, NO_VOLUME, tell};
use crate::partitions::{self, Partition};
use tidegate_block::{BioFlags, PAGE_SIZE, RequestQueue, Sector};

/// A format that a volume can have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// F2FS.
    #[default]
    F2fs,
    /// ext2, ext3 and ext4.
    Ext4,
}

impl Format {
    /// Every format.
    pub const ALL: [Format; 2] = [Format::F2fs, Format::Ext4];

    /// Its name, as in mount(8).
    pub fn name(self) -> &'static str {
        match self {
            Format::F2fs => "f2fs",
            Format::Ext4 => "ext4",
        }
    }

    /// The command that repairs an image of it.
    pub fn repaired_by(self) -> &'static str {
        match self {
            Format::F2fs => "tidegate check --repair",
            Format::Ext4 => "tidegate check --repair",
        }
    }
}

impl std::str::FromStr for Format {
    type Err = String;

    /// # Errors
    /// The names of the formats.
    fn from_str(name: &str) -> std::result::Result<Format, String> {
        let known = || Format::ALL.map(Format::name).join(" or ");
        Format::ALL.into_iter().find(|f| f.name() == name).ok_or_else(known)
    }
}

/// The number of pages that are read to name another kind of image.
const LOOKED_AT: u64 = 17;

/// The format of the image called `image` behind `queue`.
///
/// # Errors
/// A message that names another kind of image.
pub fn detect(image: impl Into<Subject>, queue: &RequestQueue) -> Result<Format> {
    let image = &image.into();
    let size = queue.device().size();
    let pages = (size / PAGE_SIZE as u64).min(LOOKED_AT) as usize;
    let front = || queue.read_wait(Sector(0), pages, BioFlags::empty());
    if size < 2 * PAGE_SIZE as u64 {
        let found = if pages == 0 { Found::Nothing } else { front().map_or(Found::Nothing, |b| tell(&b)) };
        return Err(too_short(image, size, found));
    }
    if tidegate_f2fs::is_f2fs(queue) {
        return Ok(Format::F2fs);
    }
    queue.read_wait(Sector(0), 1, BioFlags::empty()).map_err(|e| Error::Os(image.clone(), e.into()))?;
    if tidegate_ext4::is_ext4(queue) {
        return Ok(Format::Ext4);
    }
    let found = front().map_or(Found::Nothing, |b| tell(&b));
    let parts = partitions::list(queue);
    Err(match found {
        _ if !parts.is_empty() => Error::refused(Refusal::NoVolume, image, disk(image, &parts)),
        Found::Other(what) => no_volume(image, what),
        _ => Error::refused(Refusal::NoVolume, image, "not an f2fs or ext4 volume"),
    })
}

/// Whether an image has no partitions and no known mark, neither of a volume nor of anything else.
pub(crate) fn is_unmarked(queue: &RequestQueue) -> bool {
    let pages = (queue.device().size() / PAGE_SIZE as u64).min(LOOKED_AT) as usize;
    let front = (pages > 0).then(|| queue.read_wait(Sector(0), pages, BioFlags::empty()));
    // An image whose beginning cannot be read has no mark.
    let found = front.and_then(|b| b.ok()).map_or(Found::Nothing, |b| tell(&b));
    matches!(found, Found::Nothing | Found::Other(NO_VOLUME)) && partitions::list(queue).is_empty()
}

/// The message for an image that is too small for any volume.
pub(crate) fn too_short(image: &Subject, size: u64, found: Found) -> Error {
    match found {
        Found::Other(what) if what != NO_VOLUME => no_volume(image, what),
        _ if size == 0 => {
            Error::refused(Refusal::NoVolume, image, "not an f2fs or ext4 volume: the image is empty")
        }
        _ => Error::refused(
            Refusal::NoVolume,
            image,
            format!("not an f2fs or ext4 volume: only {size} bytes long"),
        ),
    }
}

fn no_volume(image: &Subject, what: &str) -> Error {
    Error::refused(Refusal::NoVolume, image, format!("not an f2fs or ext4 volume, but {what}{}", cure(what)))
}

/// The message for a disk, with the name of the first partition that can be opened.
fn disk(image: &Subject, parts: &[Partition]) -> String {
    let part = |p: &Partition| format!("partition {} at {} holds {}", p.number, short(p.offset), p.holds);
    let told: Vec<String> = parts.iter().map(part).collect();
    let told = told.join(", ");
    match parts.iter().find(|p| p.opens) {
        Some(p) => format!("a disk with a partition table: {told}; name one as {image}@{}", short(p.offset)),
        None => format!("a disk with a partition table, and no volume that can be opened: {told}"),
    }
}

/// A number of bytes in the form for behind the `@`.
fn short(bytes: u64) -> String {
    match bytes {
        0 => "0".into(),
        n if n.is_multiple_of(1 << 20) => format!("{}M", n >> 20),
        n if n.is_multiple_of(1 << 10) => format!("{}K", n >> 10),
        n => n.to_string(),
    }
}

/// The advice on how to reach a volume that may be inside.
fn cure(what: &str) -> &'static str {
    match what {
        "a qcow2 image" | "a VMDK image" | "a VHDX image" | "a VDI image" => {
            "; qemu-img convert -O raw makes an image of it"
        }
        "an Android sparse image" => "; simg2img makes an image of it",
        "gzip data" | "zstd data" | "xz data" | "bzip2 data" | "lz4 data" | "a zip archive" => {
            "; unpack it first"
        }
        "a tar archive" => "; mkfs --from makes a volume of it",
        _ => "",
    }
}
