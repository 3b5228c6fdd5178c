//! Volumes on several devices: the first lists the others.
//!
//! A superblock is untrusted input, and a path in it could name a file that does not belong to the volume: another
//! image beside it, whose bytes would be shown and changed. So such a path is followed only from a block device to a
//! block device, as in Linux. The caller must name all other devices.

use crate::error::Subject;
use crate::error::{About, Error, Refusal, Result, path_bytes, show};
use crate::image::{Claim, Existing, dir_of, existing};
use crate::mkfs::Request;
use crate::new_volume::DevicePart;
use crate::options::OpenOptions;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tidegate_block::{Device, Linear, QueueLimits, RequestQueue};

/// Bytes of a segment: each device has a whole number of them.
const SEGMENT: u64 = 2 << 20;
/// The most bytes of a path in a superblock.
const MAX_PATH: usize = 63;

/// All devices of the volume whose first device is open behind `queue`, as one device. `None` for a volume on
/// one device.
///
/// # Errors
/// A device is missing, in use, too small, in the place of another, or must not be opened unasked; or too many devices
/// are named.
pub(crate) fn all_of(
    image: &Subject,
    file: &Path,
    queue: &RequestQueue,
    options: &OpenOptions,
) -> Result<Option<Linear>> {
    let listed = tidegate_f2fs::devices(queue);
    let (count, named) = (listed.len(), options.devices.len());
    if named >= count.max(1) {
        let on = if count == 0 { "one device".into() } else { format!("{count} devices") };
        let what = format!("a volume on {on}, and {named} more than the first are named (-o device=)");
        return Err(Error::argument(image, what));
    }
    let Some(first) = listed.first() else { return Ok(None) };
    let mut all = vec![(queue.device().clone(), first.1)];
    let mut paths = vec![file.to_path_buf()];
    for (n, (path, bytes)) in listed.iter().enumerate().skip(1) {
        let path = match options.devices.get(n - 1) {
            Some(path) => path.clone(),
            None => followed(file, path).map_err(|why| {
                let what = format!(
                    "on {count} devices, of which it lists number {} as \"{}\": {why}; -o device=PATH names those \
                     behind the first, one after the other",
                    n + 1,
                    show(path.as_bytes())
                );
                Error::refused(Refusal::Missing, image, what)
            })?,
        };
        distinct(&path, &paths)?;
        in_order(&path, n, &listed)?;
        all.push((open(&path, *bytes, options)?, *bytes));
        paths.push(path);
    }
    if all[0].0.size() < first.1 {
        return Err(too_small(file, all[0].0.size(), first.1));
    }
    together(image, all).map(Some)
}

/// The devices after the first that opening `file` opens, too: those that are named, or else those that the superblock
/// lists and that are followed unasked. Empty for a volume on one device, and where the first cannot be read.
pub fn behind(file: &Path, options: &OpenOptions) -> Vec<PathBuf> {
    if !options.devices.is_empty() || !file.metadata().is_ok_and(|m| m.file_type().is_block_device()) {
        return options.devices.clone();
    }
    let how = tidegate_block::OpenOptions { read_only: true, claimed: true, ..Default::default() };
    let Ok(device) = tidegate_block::file::open(file, how) else { return Vec::new() };
    let listed = tidegate_f2fs::devices(&RequestQueue::new(device, QueueLimits::default()));
    listed.iter().skip(1).filter_map(|(path, _)| followed(file, path).ok()).collect()
}

/// The target of a path that a superblock lists, if it may be followed unasked.
fn followed(image: &Path, path: &str) -> std::result::Result<PathBuf, String> {
    let is_device = |p: &Path| p.metadata().map(|m| m.file_type().is_block_device());
    if !is_device(image).map_err(|e| e.to_string())? {
        return Err("a file is opened only where it is named".into());
    }
    let path = Path::new(path);
    let found = is_device(path).map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => "there is none".to_string(),
        _ => e.to_string(),
    })?;
    (found && path.is_absolute()).then(|| path.into()).ok_or_else(|| "not the path of a block device".into())
}

/// Refuses a device that is named twice.
fn distinct(path: &Path, others: &[PathBuf]) -> Result<()> {
    let id = |p: &Path| {
        let m = p.metadata().ok()?;
        Some(if m.file_type().is_block_device() { (m.rdev(), 0) } else { (m.dev(), m.ino()) })
    };
    match id(path) {
        Some(own) if others.iter().any(|o| id(o) == Some(own)) => {
            Err(Error::argument(path, "two devices of one volume"))
        }
        _ => Ok(()),
    }
}

/// Refuses a file in place `n` that the volume lists in another place. The names of block devices are not compared:
/// they may differ after the next start of the machine.
fn in_order(path: &Path, n: usize, listed: &[(String, u64)]) -> Result<()> {
    let is_device = path.metadata().is_ok_and(|m| m.file_type().is_block_device());
    let is = |(name, _): &(String, u64)| Path::new(name).file_name() == path.file_name();
    if is_device || is(&listed[n]) {
        return Ok(());
    }
    let Some(other) = listed.iter().position(is) else { return Ok(()) };
    let what = format!(
        "named as device number {}, and listed by the volume as number {}: -o device=PATH names those behind the \
         first, in the order of the list",
        n + 1,
        other + 1
    );
    Err(Error::argument(path, what))
}

fn open(path: &Path, bytes: u64, options: &OpenOptions) -> Result<Arc<dyn Device>> {
    let how = tidegate_block::OpenOptions {
        read_only: options.read_only,
        backend: options.backend,
        direct: options.direct,
        claimed: false,
        create: None,
    };
    let device = tidegate_block::file::open(path, how).map_err(|e| Error::open(&path.into(), e))?;
    if device.size() < bytes { Err(too_small(path, device.size(), bytes)) } else { Ok(device) }
}

fn too_small(path: &Path, has: u64, takes: u64) -> Error {
    let what = format!("{has} bytes long, and the volume has {takes} there: not this device of it");
    Error::refused(Refusal::NoVolume, path, what)
}

fn together(image: &Subject, all: Vec<(Arc<dyn Device>, u64)>) -> Result<Linear> {
    Linear::new(all).ok_or_else(|| {
        let what =
            "its devices do not go together: those with zones come last, and all zones are of one size";
        Error::argument(image, what)
    })
}

/// The devices of a new volume after the first, claimed.
pub(crate) struct Others(Vec<(PathBuf, Claim)>);

impl Others {
    /// Claims the devices that a request names.
    ///
    /// # Errors
    /// A device is missing or empty, in use, holds something, or is named twice.
    pub(crate) fn claim(request: &Request) -> Result<Others> {
        let mut all = Vec::new();
        let mut paths = vec![request.image.clone()];
        for path in &request.devices {
            if matches!(existing(path)?, Existing::Nothing | Existing::File(..SEGMENT, _)) {
                let what = "a volume's other devices are there before it is made; truncate -s 1G makes a file of 1 GiB";
                return Err(Error::argument(path, what));
            }
            distinct(path, &paths)?;
            all.push((path.clone(), Claim::new(path, request.force, request.open.backend)?));
            paths.push(path.clone());
        }
        Ok(Others(all))
    }

    /// Whether there are no other devices.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn devices(&self) -> impl Iterator<Item = (&Path, &Arc<dyn Device>)> {
        self.0.iter().filter_map(|(path, claim)| Some((&**path, claim.held()?)))
    }

    /// The number of bytes that a volume has on them.
    pub(crate) fn bytes(&self) -> u64 {
        self.devices().map(|(_, d)| whole(d.size())).sum()
    }

    /// The first device and the others, as one device; and their list for the superblock. Only the first
    /// where there are no others.
    ///
    /// # Errors
    /// The zones of the devices do not go together; a path is too long.
    pub(crate) fn behind(
        &self,
        image: &Path,
        first: Arc<dyn Device>,
    ) -> Result<(Arc<dyn Device>, Vec<DevicePart>)> {
        if self.is_empty() {
            return Ok((first, Vec::new()));
        }
        if first.size() < SEGMENT {
            return Err(Error::argument(image, "a device of several has 2 MiB at least"));
        }
        let all: Vec<_> = std::iter::once((image, &first)).chain(self.devices()).collect();
        let part = |(path, d): &(&Path, &Arc<dyn Device>)| {
            Ok(DevicePart { path: listed(path, image)?, bytes: whole(d.size()) })
        };
        let parts = all.iter().map(part).collect::<Result<_>>()?;
        let all = all.into_iter().map(|(_, d)| (d.clone(), whole(d.size()))).collect();
        Ok((Arc::new(together(&image.into(), all)?), parts))
    }
}

fn whole(bytes: u64) -> u64 {
    bytes / SEGMENT * SEGMENT
}

/// The path of a device in a superblock: a file beside the image is listed by its name, all others by their
/// absolute path.
fn listed(path: &Path, image: &Path) -> Result<String> {
    let about = path_bytes(path);
    let is_device = path.metadata().is_ok_and(|m| m.file_type().is_block_device());
    let real = |p: &Path| match p.file_name() {
        // The image may not exist yet.
        Some(name) if !p.exists() => dir_of(p).canonicalize().map(|dir| dir.join(name)),
        _ => p.canonicalize(),
    };
    let (file, first) = (real(path).about(about)?, real(image).about(path_bytes(image))?);
    let listed = match file.file_name() {
        Some(name) if !is_device && dir_of(&file) == dir_of(&first) => name.into(),
        _ => std::path::absolute(path).about(about)?,
    };
    match listed.to_str() {
        Some(text) if text.len() <= MAX_PATH => Ok(text.into()),
        _ => {
            let what =
                "a superblock lists devices by at most 63 bytes of UTF-8: make a link with a shorter path";
            Err(Error::argument(path, what))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Equal sizes say nothing about the order. The name of a file that the volume lists elsewhere does.
    #[test]
    fn a_file_in_the_place_of_another_is_refused() {
        let listed = ["a.img", "b.img", "/far/c.img"].map(|p| (p.to_string(), SEGMENT));
        let place = |path: &str, n| in_order(Path::new(path), n, &listed);
        for (path, n) in [("x/b.img", 1), ("c.img", 2), ("other", 1), ("other", 2)] {
            place(path, n).unwrap();
        }
        for (path, n, other) in [("c.img", 1, 3), ("./b.img", 2, 2), ("a.img", 1, 1)] {
            let e = place(path, n).unwrap_err().to_string();
            assert!(
                e.contains(&format!("number {}, and listed by the volume as number {other}", n + 1)),
                "{e}"
            );
        }
        // One name in several places.
        let twice = ["a", "x/v", "y/v"].map(|p| (p.to_string(), SEGMENT));
        in_order(Path::new("z/v"), 1, &twice).unwrap();
    }
}
