//! An opened volume.

use crate::detect::{Format, detect};
use crate::error::{Error, Result, path_bytes, show};
use crate::summary::Summary;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tidegate_block::slice::Slice;
use tidegate_block::{Backend, Elevator, QueueLimits, RequestQueue};
use tidegate_f2fs::{CkptStats, F2fs, F2fsOptions, FsStats, VolumeInfo};
use tidegate_rt::{Timespec, clock};
use tidegate_vfs::{Bdi, FileSystem, MemoryLimits, MountOptions, SyncWait, Vfs};

/// How to open a volume.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// Change nothing, and let others read the image meanwhile.
    pub read_only: bool,
    /// What does the I/O.
    pub backend: Backend,
    /// Go around the host's page cache when writing.
    pub direct: bool,
    /// What decides the order of I/O; shares are set on [`Volume::queue`].
    pub elevator: Elevator,
    /// Memory the volume may use.
    pub memory: MemoryLimits,
    /// Every change gets this time instead of the clock's, and nothing else depends on chance either.
    pub fixed_time: Option<Timespec>,
    /// Reading leaves access times alone.
    pub noatime: bool,
    /// Who waits in a sync.
    pub sync_wait: SyncWait,
    /// Where in the image the volume begins, in bytes: a partition of a disk.
    pub offset: u64,
    /// Switches of F2FS; `read_only` and `fixed_time` above override what it says of these.
    pub f2fs: F2fsOptions,
}

impl Default for OpenOptions {
    fn default() -> Self {
        OpenOptions {
            read_only: false,
            backend: Backend::Auto,
            direct: true,
            elevator: Elevator::None,
            memory: MemoryLimits::default(),
            fixed_time: None,
            noatime: true,
            sync_wait: SyncWait::default(),
            offset: 0,
            f2fs: F2fsOptions::default(),
        }
    }
}

impl OpenOptions {
    /// Applies options spelled as for mount(8): `sync_wait=`, `offset=` and those of the file system.
    ///
    /// # Errors
    /// `InvalidArgument` naming the first that is unknown or has a wrong value; those before it are set.
    pub fn parse(&mut self, list: &str) -> tidegate_vfs::Result<()> {
        for option in list.split(',').filter(|o| !o.is_empty()) {
            match option.split_once('=') {
                Some(("sync_wait", word)) => self.sync_wait = word.parse()?,
                Some(("offset", bytes)) => self.offset = parse_offset(option, bytes)?,
                _ => self.f2fs.parse(option)?,
            }
        }
        Ok(())
    }
}

/// A number of bytes as mount options have it: 1048576 or 1024K or 1M.
pub fn bytes_of(text: &str) -> Option<u64> {
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 10),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 20),
        Some(b'g' | b'G') => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

fn parse_offset(option: &str, text: &str) -> tidegate_vfs::Result<u64> {
    bytes_of(text).filter(|n| n.is_multiple_of(512)).ok_or_else(|| {
        let what = format!("option \"{option}\": not a multiple of 512 such as 1048576 or 1M");
        tidegate_vfs::Error::new(tidegate_vfs::ErrorKind::InvalidArgument, what)
    })
}

/// A volume in an image or on a device. Dropping it without [`Volume::unmount`] keeps what was synced.
pub struct Volume {
    image: String,
    path: PathBuf,
    queue: Arc<RequestQueue>,
    fs: Arc<F2fs>,
    vfs: Arc<Vfs>,
    started: tidegate_rt::Nanos,
}

impl Volume {
    /// Opens the image at `path`. Writing takes an exclusive lock on it, reading a shared one.
    ///
    /// # Errors
    /// Each begins with the path: missing, in use, not a volume, an unsupported feature, damaged.
    pub fn open(path: &Path, options: &OpenOptions) -> Result<Volume> {
        let queue = Arc::new(open_queue(path, options)?);
        let volume = Self::from_queue(&show(path_bytes(path)), queue, options)?;
        Ok(Volume { path: path.to_path_buf(), ..volume })
    }

    /// Opens the volume behind `queue`; errors call it `image`.
    ///
    /// # Errors
    /// As [`Volume::open`].
    pub fn from_queue(image: &str, queue: Arc<RequestQueue>, options: &OpenOptions) -> Result<Volume> {
        let started = clock::now();
        let of = |e| Error::Volume(image.to_string(), e);
        let Format::F2fs = detect(image, &queue)?;
        let bdi = Bdi::new(options.memory);
        let read_only = options.read_only || options.f2fs.read_only || queue.device().read_only();
        let deterministic = options.fixed_time.is_some();
        let fs_options = F2fsOptions { read_only, deterministic, ..options.f2fs.clone() };
        let fs = F2fs::open(queue.clone(), bdi.clone(), fs_options).map_err(of)?;
        let mount = MountOptions {
            noatime: options.noatime,
            fixed_time: options.fixed_time,
            no_periodic_writeback: options.fixed_time.is_some(),
            sync_wait: options.sync_wait,
        };
        let vfs = Vfs::mount(fs.clone(), bdi, mount).map_err(of)?;
        Ok(Volume { image: image.to_string(), path: image.into(), queue, fs, vfs, started })
    }

    /// What errors call it: the image's path, as it can be shown.
    pub fn image(&self) -> &str {
        &self.image
    }

    /// The image's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The mounted file system.
    pub fn vfs(&self) -> &Arc<Vfs> {
        &self.vfs
    }

    /// The way to the device.
    pub fn queue(&self) -> &Arc<RequestQueue> {
        &self.queue
    }

    /// The file system below, for what only F2FS can tell.
    pub fn f2fs(&self) -> &Arc<F2fs> {
        &self.fs
    }

    /// The format's name.
    pub fn format(&self) -> &'static str {
        self.fs.name()
    }

    /// What the volume's own structures say.
    ///
    /// # Errors
    /// Those of reading them.
    pub fn info(&self) -> Result<VolumeInfo> {
        self.fs.info().map_err(|e| self.error(e))
    }

    /// When it was opened, on the monotonic clock.
    pub(crate) fn opened_at(&self) -> tidegate_rt::Nanos {
        self.started
    }

    /// What was written since it was opened.
    pub fn stats(&self) -> FsStats {
        self.fs.stats()
    }

    /// Requests for checkpoints, how they were served, and what each step took.
    pub fn ckpt_stats(&self) -> CkptStats {
        self.fs.ckpt_stats()
    }

    /// Writes a checkpoint; with `force` also when nothing has changed since the last.
    ///
    /// # Errors
    /// It is read-only; those of the device, and the volume takes no more changes then.
    pub fn write_checkpoint(&self, force: bool) -> Result<()> {
        self.fs.write_checkpoint(force).map_err(|e| self.error(e))
    }

    /// Turns the switches of the file system while it is in use.
    pub fn remount(&self, options: &F2fsOptions) {
        self.fs.remount(options);
    }

    /// How many files opening it recovered that were fsynced after the last checkpoint.
    pub fn recovered(&self) -> u64 {
        self.fs.recovered()
    }

    /// Refuses to go on with a volume that came up read-only.
    ///
    /// # Errors
    /// Why it did.
    pub fn check_writable(&self) -> Result<()> {
        match self.fs.read_only() {
            None => Ok(()),
            Some(why) => Err(Error::other(&self.image, format_args!("the volume is read-only: {why}"))),
        }
    }

    /// An error of this volume.
    pub(crate) fn error(&self, e: tidegate_vfs::Error) -> Error {
        Error::Volume(self.image.clone(), e)
    }

    /// An error at a path in this volume.
    pub fn error_at(&self, path: &[u8], e: tidegate_vfs::Error) -> Error {
        let slash = if path.starts_with(b"/") { "" } else { "/" };
        Error::Volume(format!("{}:{slash}{}", self.image, show(path)), e)
    }

    /// Makes everything written so far durable.
    ///
    /// # Errors
    /// The first failure; everything was tried.
    pub fn sync(&self) -> Result<()> {
        self.vfs.sync().map_err(|e| self.error(e))
    }

    /// Syncs, leaves a cleanly unmounted volume and lets go of the image; what it all took.
    ///
    /// # Errors
    /// The first failure. The image is let go of all the same.
    pub fn unmount(self) -> Result<Summary> {
        let start = clock::now();
        self.vfs.unmount().map_err(|e| self.error(e))?;
        let mut s = Summary::of(&self.queue.stats(), &self.fs.stats());
        s.image_bytes = self.queue.device().size();
        s.phase("unmount", start);
        s.total(self.started);
        Ok(s)
    }
}

/// Opens and locks the image at `path` without looking at what is in it.
///
/// # Errors
/// Each begins with the path: missing, in use, not an image.
pub fn open_queue(path: &Path, options: &OpenOptions) -> Result<RequestQueue> {
    let how = tidegate_block::OpenOptions {
        read_only: options.read_only,
        backend: options.backend,
        direct: options.direct,
        create: None,
    };
    let device =
        tidegate_block::file::open(path, how).map_err(|e| Error::open(&show(path_bytes(path)), e))?;
    let device = match options.offset {
        0 => device,
        offset => Arc::new(Slice::new(device, offset).ok_or_else(|| {
            Error::other(show(path_bytes(path)), format_args!("option \"offset={offset}\": it is shorter"))
        })?),
    };
    Ok(RequestQueue::with_elevator(device, QueueLimits::default(), options.elevator))
}
