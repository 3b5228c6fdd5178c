//! A directory of the host: any mounted file system, driven by the host's kernel.

use super::{Counts, OpenHow, Target, TargetFile};
use crate::error::{Error, Result};
use rustix::fs::{Timespec, Timestamps, UTIME_NOW, futimens};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use tidegate_sys::host;

/// A directory of the host.
pub struct Directory {
    path: PathBuf,
    handle: File,
    /// Major and minor number of the device.
    device: (u32, u32),
    /// Weights of I/O groups by number; 0 for a group without one.
    weights: [AtomicU32; GROUPS],
}

/// Number of I/O groups that may have a weight, the root group included.
const GROUPS: usize = 9;

/// The I/O priority for which `bfq` gives a thread half of `weight`; `None` if there is none.
fn level(weight: u32) -> Option<u8> {
    const OF_ONE: u32 = 20;
    let levels = u32::from(host::IO_LEVELS);
    let fits = (OF_ONE..=OF_ONE * levels).contains(&weight) && weight.is_multiple_of(OF_ONE);
    fits.then(|| (levels - weight / OF_ONE) as u8)
}

struct HostFile {
    path: PathBuf,
    file: File,
}

impl Directory {
    /// The directory at `path`, which must be there.
    ///
    /// # Errors
    /// The directory is missing, or may not be read.
    pub fn open(path: &Path) -> Result<Self> {
        let of = |e| Error::host(path, e);
        let handle = File::open(path).map_err(of)?;
        let dev = handle.metadata().map_err(of)?.dev();
        let device = (rustix::fs::major(dev), rustix::fs::minor(dev));
        Ok(Directory { path: path.to_path_buf(), handle, device, weights: Default::default() })
    }

    fn at(&self, path: &str) -> PathBuf {
        self.path.join(path.trim_start_matches('/'))
    }

    /// Whether the device's elevator shares by I/O priority. A partition has its disk's elevator.
    fn shares_by_priority(&self) -> bool {
        let device = format!("/sys/dev/block/{}:{}", self.device.0, self.device.1);
        let of = |queue: &str| fs::read_to_string(format!("{device}/{queue}/scheduler")).ok();
        of("queue").or_else(|| of("../queue")).is_some_and(|text| text.contains("[bfq]"))
    }

    /// The block layer's counts, in the columns of Documentation/block/stat.rst.
    fn block_counts(&self) -> Option<Counts> {
        let path = format!("/sys/dev/block/{}:{}/stat", self.device.0, self.device.1);
        let text = fs::read_to_string(path).ok()?;
        let n: Vec<u64> = text.split_whitespace().filter_map(|w| w.parse().ok()).collect();
        let counts = [
            ("queue.read_bios", *n.first()?),
            ("queue.read_bytes", n.get(2)? * 512),
            ("queue.write_requests", *n.get(4)?),
            ("queue.write_bytes", n.get(6)? * 512),
            ("queue.discards", *n.get(11)?),
            ("queue.flushes", *n.get(15)?),
        ];
        Some(counts.into_iter().map(|(k, v)| (k.to_string(), v)).collect())
    }

    /// The counts of the kernel's F2FS, which reports the number of all checkpoints as that of the
    /// foreground's.
    fn f2fs_counts(&self) -> Counts {
        let link = format!("/sys/dev/block/{}:{}", self.device.0, self.device.1);
        let name = fs::read_link(link).unwrap_or_default();
        let dir = Path::new("/sys/fs/f2fs").join(name.file_name().unwrap_or_default());
        let number = |file: &str| fs::read_to_string(dir.join(file)).ok()?.trim().parse::<u64>().ok();
        let names = [("fs.commits", "cp_foreground_calls"), ("fs.gc_segments", "gc_reclaimed_segments")];
        names.iter().filter_map(|(name, file)| Some((name.to_string(), number(file)?))).collect()
    }
}

impl Target for Directory {
    fn describe(&self) -> String {
        format!("directory {}", self.path.display())
    }

    fn mkdir(&self, path: &str) -> Result<()> {
        let path = self.at(path);
        fs::create_dir_all(&path).map_err(|e| Error::host(&path, e))
    }

    fn can_go_direct(&self) -> bool {
        true
    }

    fn open(&self, path: &str, how: OpenHow) -> Result<Box<dyn TargetFile>> {
        let path = self.at(path);
        let mut options = File::options();
        options.read(true).write(true).create(how.create).truncate(how.truncate);
        if how.direct {
            options.custom_flags(rustix::fs::OFlags::DIRECT.bits() as i32);
        }
        let file = options.open(&path).map_err(|e| Error::host(&path, e))?;
        Ok(Box::new(HostFile { path, file }))
    }

    fn open_dir(&self, path: &str) -> Result<Box<dyn TargetFile>> {
        let path = self.at(path);
        let file = File::open(&path).map_err(|e| Error::host(&path, e))?;
        Ok(Box::new(HostFile { path, file }))
    }

    fn touch(&self, path: &str) -> Result<()> {
        let path = self.at(path);
        let touch = || -> std::io::Result<()> {
            let file = File::options().append(true).create(true).open(&path)?;
            let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
            Ok(futimens(&file, &Timestamps { last_access: now, last_modification: now })?)
        };
        touch().map_err(|e| Error::host(&path, e))
    }

    fn unlink(&self, path: &str) -> Result<()> {
        let path = self.at(path);
        fs::remove_file(&path).map_err(|e| Error::host(&path, e))
    }

    fn exists(&self, path: &str) -> Result<bool> {
        let path = self.at(path);
        match path.symlink_metadata() {
            Ok(_) => Ok(true),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(e) => Err(Error::host(&path, e)),
        }
    }

    fn remove_tree(&self, path: &str) -> Result<()> {
        let path = self.at(path);
        fs::remove_dir_all(&path).map_err(|e| Error::host(&path, e))
    }

    fn sync(&self) -> Result<()> {
        rustix::fs::syncfs(&self.handle).map_err(|e| Error::host(&self.path, e))
    }

    fn set_group_weight(&self, group: u32, weight: u32) -> bool {
        let Some(of_group) = self.weights.get(group as usize) else { return false };
        if level(weight).is_none() || !self.shares_by_priority() {
            return false;
        }
        of_group.store(weight, SeqCst);
        true
    }

    fn enter_group(&self, group: u32) {
        let weight = self.weights.get(group as usize).map_or(0, |w| w.load(SeqCst));
        if let Some(level) = level(weight) {
            // A sandbox that forbids it leaves the thread's priority unchanged.
            let _ = host::set_io_priority(level);
        }
    }

    fn drop_pages(&self, path: &str) -> Result<bool> {
        let path = self.at(path);
        let file = File::open(&path).map_err(|e| Error::host(&path, e))?;
        let dropped = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
        dropped.map(|()| true).map_err(|e| Error::host(&path, e))
    }

    fn counts(&self) -> Counts {
        let mut counts = self.f2fs_counts();
        counts.extend(self.block_counts().unwrap_or_default());
        counts
    }
}

impl HostFile {
    fn of(&self) -> impl Fn(std::io::Error) -> Error + '_ {
        |e| Error::host(&self.path, e)
    }
}

impl TargetFile for HostFile {
    fn size(&self) -> Result<u64> {
        Ok(self.file.metadata().map_err(self.of())?.len())
    }

    fn write_at(&self, pos: u64, data: &[u8]) -> Result<()> {
        self.file.write_all_at(data, pos).map_err(self.of())
    }

    fn read_at(&self, pos: u64, to: &mut [u8]) -> Result<usize> {
        self.file.read_at(to, pos).map_err(self.of())
    }

    fn fsync(&self, datasync: bool) -> Result<()> {
        if datasync { self.file.sync_data() } else { self.file.sync_all() }.map_err(self.of())
    }

    fn truncate(&self, size: u64) -> Result<()> {
        self.file.set_len(size).map_err(self.of())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_keep_their_proportion_or_are_none() {
        assert_eq!([100, 20, 160].map(level), [Some(3), Some(7), Some(0)]);
        assert_eq!([0, 10, 30, 180, 1000].map(level), [None; 5]);
    }
}
