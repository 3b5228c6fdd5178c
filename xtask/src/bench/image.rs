//! The image that workloads run on: made anew for each run, and without holes.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;
use tidegate_sys::slab::{SLAB_BYTES, Slab};

use tidegate_testing::temp::TempDir;
use tidegate_testing::{golden, oracle};

/// The memory that [`touch_memory`] touches: several times the need of a run.
const TOUCHED_MIB: u64 = 512;
/// How much of this memory is touched in large pages.
const TOUCHED_LARGE_MIB: usize = 192;

/// An image file; removed when dropped.
#[derive(Debug)]
pub struct Image {
    path: PathBuf,
    size: u64,
    _dir: TempDir,
}

impl Image {
    /// Makes an image of that many bytes in a directory; the directory is made if it is missing.
    pub fn new(dir: &Path, size: u64) -> Result<Self> {
        fs::create_dir_all(dir).with_context(|| format!("creating {}", dir.display()))?;
        let dir = TempDir::new_in(dir, "bench")?;
        let path = dir.path().join("volume.img");
        File::create_new(&path)?.set_len(size).with_context(|| path.display().to_string())?;
        Ok(Image { path, size, _dir: dir })
    }

    /// The path of the image.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the file system of the image supports direct I/O.
    pub fn takes_direct(&self) -> bool {
        use rustix::fs::{Mode, OFlags};
        rustix::fs::open(&self.path, OFlags::RDWR | OFlags::DIRECT, Mode::empty()).is_ok()
    }

    /// Makes an empty F2FS volume.
    pub fn mkfs_f2fs(&self) -> Result<()> {
        quiet(Command::new(oracle::require("mkfs.f2fs")?).args(["-q", "-f", "-t", "0"]).arg(&self.path))?;
        self.settle()
    }

    /// Makes an empty ext4 volume, with nothing left for the kernel to initialise later.
    pub fn mkfs_ext4(&self) -> Result<()> {
        self.mkfs_ext4_with(&[])
    }

    /// Makes an empty ext4 volume with room for that many inodes.
    pub fn mkfs_ext4_of(&self, inodes: u64) -> Result<()> {
        self.mkfs_ext4_with(&["-N", &inodes.to_string()])
    }

    fn mkfs_ext4_with(&self, more: &[&str]) -> Result<()> {
        let now = "nodiscard,lazy_itable_init=0,lazy_journal_init=0";
        let mut command = Command::new(oracle::require("mke2fs")?);
        quiet(command.args(["-q", "-F", "-t", "ext4", "-E", now]).args(more).arg(&self.path))?;
        self.settle()
    }

    /// Fails if `fsck.f2fs` finds a fault.
    pub fn fsck(&self) -> Result<()> {
        golden::fsck_f2fs(&self.path)
    }

    /// Fails if `e2fsck` finds a fault.
    pub fn e2fsck(&self) -> Result<()> {
        quiet(Command::new(oracle::require("e2fsck")?).args(["-f", "-n"]).arg(&self.path)).map(drop)
    }

    /// Writes zeros where the file has holes, and waits for the disk. Otherwise the next user would pay for
    /// the holes that tools and discards made.
    fn settle(&self) -> Result<()> {
        const CHUNK: u64 = 1 << 20;
        let file = File::options().read(true).write(true).open(&self.path)?;
        let zeros = vec![0; CHUNK as usize];
        let mut at = 0;
        while at < self.size {
            let hole = seek(&file, SeekFrom::Hole(at))?;
            let end = match seek(&file, SeekFrom::Data(hole)) {
                Err(Errno::NXIO) => self.size,
                r => r?,
            };
            at = hole;
            while at < end {
                let n = CHUNK.min(end - at);
                file.write_all_at(zeros.get(..n as usize).unwrap_or_default(), at)?;
                at += n;
            }
        }
        file.sync_all().with_context(|| self.path.display().to_string())
    }

    /// Mounts the image as ext4 through a loop device; with `direct`, the loop device uses direct I/O.
    pub fn mount_ext4(&self, direct: bool) -> Result<Mounted> {
        let dir = TempDir::new("mnt")?;
        let mode = if direct { "on" } else { "off" };
        let mut command = Command::new("losetup");
        command.args(["--find", "--show", &format!("--direct-io={mode}")]).arg(&self.path);
        let device = quiet(&mut command)?.trim().to_owned();
        let mounted = Mounted { device, dir };
        quiet(Command::new("mount").args(["-t", "ext4"]).arg(&mounted.device).arg(mounted.dir.path()))?;
        Ok(mounted)
    }
}

/// A mounted loop device; unmounted and detached when dropped.
#[derive(Debug)]
pub struct Mounted {
    device: String,
    dir: TempDir,
}

impl Mounted {
    /// The mount point.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Limits the kernel's dirty bytes for this device: to those of a page cache of some size, on a machine
    /// with more memory.
    ///
    /// # Errors
    /// Linux before 6.2 has no such limit for one device.
    pub fn bound_dirty(&self, bytes: u64) -> Result<()> {
        let set = |file: &str, text: &str| {
            let file = self.bdi().join(file);
            std::fs::write(&file, text).with_context(|| format!("bounding dirty pages by {}", file.display()))
        };
        set("max_bytes", &bytes.to_string())?;
        set("strict_limit", "1")
    }

    /// The sysfs directory with the device's limit of dirty pages. The limit stays for the next user of the
    /// loop device.
    fn bdi(&self) -> PathBuf {
        let name = Path::new(&self.device).file_name().unwrap_or_default();
        Path::new("/sys/class/block").join(name).join("bdi")
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = quiet(Command::new("umount").arg(self.dir.path()));
        for (file, usual) in [("strict_limit", "0"), ("max_ratio", "100")] {
            let _ = std::fs::write(self.bdi().join(file), usual);
        }
        let _ = quiet(Command::new("losetup").arg("--detach").arg(&self.device));
    }
}

/// Runs a command to its end; returns its output, or an error with its messages.
pub fn quiet(command: &mut Command) -> Result<String> {
    let out = command.stdin(Stdio::null()).output().with_context(|| format!("running {command:?}"))?;
    if !out.status.success() {
        let text = String::from_utf8_lossy(&out.stderr);
        bail!("{command:?}: {}: {}", out.status, text.trim().lines().last().unwrap_or_default());
    }
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

/// Touches memory through files in a directory in memory. The host of a virtual machine takes away memory
/// that was unused for a while, and the first program would pay for getting it back. Both pages and large
/// pages are touched: they come from different ends of the free memory, and kernels use the former, we the
/// latter.
pub fn touch_memory(dir: &Path) -> Result<()> {
    touch_large_pages()?;
    let path = dir.join("touched");
    let mut file = File::create(&path)?;
    let chunk = vec![1; 1 << 20];
    for _ in 0..TOUCHED_MIB {
        file.write_all(&chunk)?;
    }
    fs::remove_file(path).context("removing what was touched")
}

/// Touches memory in large pages, where the system has them.
fn touch_large_pages() -> Result<()> {
    let slabs = (TOUCHED_LARGE_MIB << 20) / SLAB_BYTES;
    let touched: Option<Vec<_>> = (0..slabs).map(|_| Slab::map()).collect();
    touched.map(drop).context("no memory to touch")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn settling_fills_holes_and_keeps_data() {
        let scratch = TempDir::new("settle").unwrap();
        let size = 4 << 20;
        let image = Image::new(scratch.path(), size).unwrap();
        let file = File::options().write(true).open(image.path()).unwrap();
        file.write_all_at(b"kept", (2 << 20) + 5).unwrap();
        image.settle().unwrap();
        assert!(file.metadata().unwrap().blocks() * 512 >= size);
        let bytes = fs::read(image.path()).unwrap();
        assert_eq!(bytes.len() as u64, size);
        assert_eq!(bytes.iter().filter(|b| **b != 0).count(), 4);
        assert_eq!(&bytes[(2 << 20) + 5..][..4], b"kept");
    }
}
