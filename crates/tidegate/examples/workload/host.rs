//! A directory of the host, driven by its kernel.

use crate::target::{Counts, OpenFile, Result, Target};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

pub struct Directory {
    path: PathBuf,
    handle: File,
    /// Major and minor number of the device.
    device: (u32, u32),
}

impl Directory {
    pub fn open(path: &Path) -> Result<Self> {
        let handle = File::open(path).map_err(|e| format!("{}: {e}", path.display()))?;
        let dev = handle.metadata()?.dev();
        let device = (rustix::fs::major(dev), rustix::fs::minor(dev));
        Ok(Directory { path: path.to_path_buf(), handle, device })
    }

    fn at(&self, path: &str) -> PathBuf {
        self.path.join(path.trim_start_matches('/'))
    }

    /// The counts of the block layer, with the columns of Documentation/block/stat.rst.
    fn block_counts(&self) -> Option<Counts> {
        let path = format!("/sys/dev/block/{}:{}/stat", self.device.0, self.device.1);
        let text = fs::read_to_string(path).ok()?;
        let n: Vec<u64> = text.split_whitespace().filter_map(|w| w.parse().ok()).collect();
        Some(Counts::from([
            ("writes", *n.get(4)?),
            ("written_bytes", n.get(6)? * 512),
            ("discards", *n.get(11)?),
            ("flushes", *n.get(15)?),
        ]))
    }

    /// The counts of the kernel's F2FS.
    fn f2fs_counts(&self) -> Counts {
        let link = format!("/sys/dev/block/{}:{}", self.device.0, self.device.1);
        let name = fs::read_link(link).unwrap_or_default();
        let dir = Path::new("/sys/fs/f2fs").join(name.file_name().unwrap_or_default());
        let number = |file: &str| fs::read_to_string(dir.join(file)).ok()?.trim().parse::<u64>().ok();
        // The kernel gives the number of all checkpoints the name of the foreground's.
        let names = [("commits", "cp_foreground_calls"), ("gc_segments", "gc_reclaimed_segments")];
        names.iter().filter_map(|(name, file)| Some((*name, number(file)?))).collect()
    }
}

impl Target for Directory {
    fn mkdir(&self, path: &str) -> Result<()> {
        Ok(fs::create_dir(self.at(path))?)
    }

    fn open(&self, path: &str, create: bool) -> Result<Box<dyn OpenFile>> {
        let mut options = File::options();
        options.read(true).write(true).create_new(create);
        Ok(Box::new(options.open(self.at(path))?))
    }

    fn unlink(&self, path: &str) -> Result<()> {
        Ok(fs::remove_file(self.at(path))?)
    }

    fn sync(&self) -> Result<()> {
        Ok(rustix::fs::syncfs(&self.handle)?)
    }

    fn available(&self) -> Result<u64> {
        let st = rustix::fs::fstatvfs(&self.handle)?;
        Ok(st.f_bavail * st.f_frsize)
    }

    fn counts(&self) -> Counts {
        let mut counts = self.f2fs_counts();
        counts.extend(self.block_counts().unwrap_or_default());
        counts
    }

    fn fragments(&self, _: &str) -> Result<Option<u64>> {
        Ok(None)
    }

    fn close(&self) -> Result<()> {
        Ok(())
    }
}

impl OpenFile for File {
    fn size(&self) -> Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn write_at(&self, pos: u64, data: &[u8]) -> Result<()> {
        Ok(self.write_all_at(data, pos)?)
    }

    fn read_at(&self, pos: u64, to: &mut [u8]) -> Result<()> {
        Ok(self.read_exact_at(to, pos)?)
    }

    fn fsync(&self) -> Result<()> {
        Ok(self.sync_all()?)
    }
}
