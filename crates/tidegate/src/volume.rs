//! An opened volume.

use crate::detect::{Format, detect, too_short};
use crate::devices;
use crate::error::{Error, Refusal, Result, Subject};
use crate::found::found;
use crate::info::Info;
use crate::options::{OpenOptions, VolumeSwitches};
use crate::summary::Summary;
use crate::within::within;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tidegate_block::slice::Slice;
use tidegate_block::{Device, PAGE_SIZE, QueueLimits, RequestQueue, SECTOR_SIZE, Wbt};
use tidegate_ext4::{Ext4, Ext4Options};
use tidegate_f2fs::{F2fs, F2fsOptions};
use tidegate_rt::clock;
use tidegate_vfs::{Bdi, CommitRun, CommitStats, MountOptions, Vfs, VolumeOps, VolumeStats};

/// The engine of an open volume, for facts that only one format has.
enum Engine {
    F2fs(Arc<F2fs>),
    Ext4(Arc<Ext4>),
}

/// A volume in an image or on a device. If it is dropped without [`Volume::unmount`], synced files are kept.
pub struct Volume {
    subject: Subject,
    /// The subject, in the form for messages.
    image: String,
    path: PathBuf,
    /// The other files and devices with which the volume was opened.
    devices: Vec<PathBuf>,
    queue: Arc<RequestQueue>,
    engine: Engine,
    ops: Arc<dyn VolumeOps>,
    vfs: Arc<Vfs>,
    started: tidegate_rt::Nanos,
    without_effect: Vec<String>,
}

impl Volume {
    /// Opens the image at `path`, which may be a place in a disk ([`within`]). Takes an exclusive lock on it
    /// for writing, a shared one for reading.
    ///
    /// # Errors
    /// Each begins with the path: the image is missing, in use, not a volume, damaged, or has an unsupported
    /// feature.
    pub fn open(path: &Path, options: &OpenOptions) -> Result<Volume> {
        let queue = Arc::new(open_queue(path, options)?);
        let volume = Self::from_queue(path, queue, options)?;
        Ok(Volume { path: within(path).0, devices: options.devices.clone(), ..volume })
    }

    /// Opens the volume behind `queue`. Errors call it `image`.
    ///
    /// # Errors
    /// As [`Volume::open`].
    pub fn from_queue(
        image: impl Into<Subject>,
        queue: Arc<RequestQueue>,
        options: &OpenOptions,
    ) -> Result<Volume> {
        let started = clock::now();
        let image = image.into();
        let format = detect(&image, &queue)?;
        let of = |source| Error::Volume { about: image.clone(), format, source };
        queue.set_wbt(options.switches.wbt);
        let bdi = Bdi::new(options.memory);
        let (engine, ops) = match format {
            Format::F2fs => {
                let fs = F2fs::open(queue.clone(), bdi.clone(), f2fs_options(options, &queue)).map_err(of)?;
                (Engine::F2fs(fs.clone()), fs as Arc<dyn VolumeOps>)
            }
            Format::Ext4 => {
                let fs = Ext4::open(queue.clone(), bdi.clone(), ext4_options(options, &queue)).map_err(of)?;
                (Engine::Ext4(fs.clone()), fs as Arc<dyn VolumeOps>)
            }
        };
        let mount = MountOptions {
            noatime: options.noatime,
            fixed_time: options.fixed_time,
            no_periodic_writeback: options.fixed_time.is_some(),
            sync_wait: options.switches.sync_wait,
        };
        let vfs = Vfs::mount(ops.clone(), bdi, mount).map_err(of)?;
        let path = image.host_path().map_or_else(|| image.to_string().into(), Path::to_path_buf);
        let without_effect = options.format.without_effect(format);
        let devices = Vec::new();
        Ok(Volume {
            image: image.to_string(),
            subject: image,
            path,
            devices,
            queue,
            engine,
            ops,
            vfs,
            started,
            without_effect,
        })
    }

    /// The name of the volume in errors: the image's path, in the form for messages.
    pub fn image(&self) -> &str {
        &self.image
    }

    /// The subject of this volume's errors.
    pub(crate) fn subject(&self) -> &Subject {
        &self.subject
    }

    /// The file or device of the image, or around it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// All files and devices with which it was opened. The first is [`Volume::path`].
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        std::iter::once(self.path()).chain(self.devices.iter().map(PathBuf::as_path))
    }

    /// The mounted file system.
    pub fn vfs(&self) -> &Arc<Vfs> {
        &self.vfs
    }

    /// The request queue in front of the device.
    pub fn queue(&self) -> &Arc<RequestQueue> {
        &self.queue
    }

    /// The operations of its format on the volume as a whole.
    pub fn ops(&self) -> &Arc<dyn VolumeOps> {
        &self.ops
    }

    /// The format's name.
    pub fn format(&self) -> &'static str {
        self.ops.name()
    }

    /// The format.
    pub fn kind(&self) -> Format {
        match &self.engine {
            Engine::F2fs(_) => Format::F2fs,
            Engine::Ext4(_) => Format::Ext4,
        }
    }

    /// The content of the volume's own structures.
    ///
    /// # Errors
    /// Those of reading them.
    pub fn info(&self) -> Result<Info> {
        match &self.engine {
            Engine::F2fs(fs) => fs.info().map(Info::f2fs).map_err(|e| self.error(e)),
            Engine::Ext4(fs) => fs.info().map(Info::ext4).map_err(|e| self.error(e)),
        }
    }

    /// When it was opened, on the monotonic clock.
    pub(crate) fn opened_at(&self) -> tidegate_rt::Nanos {
        self.started
    }

    /// Figures of the writes since it was opened.
    pub fn stats(&self) -> VolumeStats {
        self.ops.stats()
    }

    /// Requests for commits, how they were served, and the time of each step.
    pub fn commit_stats(&self) -> CommitStats {
        self.ops.commit_stats()
    }

    /// The last commits one by one, the oldest first. Empty where the format does not remember them.
    pub fn recent_commits(&self) -> Vec<CommitRun> {
        self.ops.recent_commits()
    }

    /// Makes all changes durable. With `force`, writes a commit even when nothing has changed.
    ///
    /// # Errors
    /// The volume is read-only; those of the device, after which the volume takes no more changes.
    pub fn commit(&self, force: bool) -> Result<()> {
        self.ops.commit(force).map_err(|e| self.error(e))
    }

    /// Sets switches while the volume is in use, spelled as in [`OpenOptions::parse`].
    ///
    /// # Errors
    /// An option is no switch or has a wrong value. Nothing is changed then.
    pub fn remount(&self, list: &str) -> Result<()> {
        let mut own = VolumeSwitches { sync_wait: self.vfs.sync_wait(), wbt: self.queue.wbt() };
        let mut rest = Vec::new();
        for option in list.split(',') {
            if !own.set_switch(option).map_err(|e| self.error(e))? {
                rest.push(option);
            }
        }
        self.ops.remount(&rest.join(",")).map_err(|e| self.error(e))?;
        self.vfs.set_sync_wait(own.sync_wait);
        self.queue.set_wbt(own.wbt);
        Ok(())
    }

    /// Those of its mount options that its format does not have.
    pub fn options_without_effect(&self) -> &[String] {
        &self.without_effect
    }

    /// The number of files that were fsynced after the last commit and recovered when the volume was opened.
    pub fn recovered(&self) -> u64 {
        self.ops.recovered()
    }

    /// Refuses a volume that was opened for writing and is read-only.
    ///
    /// # Errors
    /// The reason why it is read-only.
    pub fn check_writable(&self) -> Result<()> {
        match self.ops.read_only() {
            None => Ok(()),
            Some(why) => Err(Error::refused(
                Refusal::ReadOnly,
                &self.subject,
                format!("the volume is read-only: {why}"),
            )),
        }
    }

    /// An error of this volume.
    pub fn error(&self, source: tidegate_vfs::Error) -> Error {
        Error::Volume { about: self.subject.clone(), format: self.kind(), source }
    }

    /// An error at a path in this volume.
    pub fn error_at(&self, path: &[u8], source: tidegate_vfs::Error) -> Error {
        Error::Volume { about: self.subject.inside(path), format: self.kind(), source }
    }

    /// Makes everything written so far durable.
    ///
    /// # Errors
    /// The first failure; everything was tried.
    pub fn sync(&self) -> Result<()> {
        self.vfs.sync().map_err(|e| self.error(e))
    }

    /// Syncs, writes the state of a clean unmount, and closes the image. Returns the cost of all operations.
    ///
    /// # Errors
    /// The first failure. The image is closed all the same.
    pub fn unmount(self) -> Result<Summary> {
        let start = clock::now();
        self.vfs.unmount().map_err(|e| self.error(e))?;
        let mut s = Summary::of(&self.queue.stats(), &self.ops.stats());
        s.image_bytes = self.queue.device().size();
        s.phase("unmount", start);
        s.total(self.started);
        Ok(s)
    }
}

/// The options of F2FS, and those of a volume of any format.
fn f2fs_options(options: &OpenOptions, queue: &RequestQueue) -> F2fsOptions {
    let own = &options.format.f2fs;
    F2fsOptions {
        read_only: options.read_only || own.read_only || queue.device().read_only(),
        deterministic: options.fixed_time.is_some(),
        ..own.clone()
    }
}

/// The options of ext4, and those of a volume of any format.
fn ext4_options(options: &OpenOptions, queue: &RequestQueue) -> Ext4Options {
    let own = &options.format.ext4;
    Ext4Options {
        read_only: options.read_only || own.read_only || queue.device().read_only(),
        fixed_time: options.fixed_time,
        ..own.clone()
    }
}

/// Opens and locks the image at `path`, which may be a place in a disk ([`within`]), and the other devices that its
/// superblock lists. Does not look at other content.
///
/// # Errors
/// Each begins with the path: the image is missing, in use, no image, or too short for a volume; another device cannot
/// be opened, with the way to name it.
pub fn open_queue(path: &Path, options: &OpenOptions) -> Result<RequestQueue> {
    let how = tidegate_block::OpenOptions {
        read_only: options.read_only,
        backend: options.backend,
        direct: options.direct,
        claimed: options.claimed,
        create: None,
    };
    let (image, (file, at)) = (Subject::from(path), within(path));
    let device = tidegate_block::file::open(&file, how).map_err(|e| Error::open(&image, e))?;
    // The queue reads whole pages.
    if device.size() < PAGE_SIZE as u64 && device.size() > 0 {
        return Err(too_short(&image, device.size(), found(&file)?));
    }
    let offset = match (at, options.offset) {
        (Some(_), 1..) => {
            return Err(Error::argument(image, "said twice where the volume begins: by @ and by offset="));
        }
        (Some(at), 0) => at,
        (None, offset) => offset,
    };
    let device = match offset {
        0 => device,
        _ => Arc::new(slice(device, offset).map_err(|why| Error::argument(image.clone(), why))?),
    };
    let queue_on = |device| {
        let limits = QueueLimits { wbt: Some(Wbt::default()), ..QueueLimits::default() };
        RequestQueue::with_elevator(device, limits, options.elevator)
    };
    let queue = queue_on(device);
    // The first device lists the others.
    match devices::all_of(&image, &file, &queue, options)? {
        None => Ok(queue),
        Some(all) => Ok(queue_on(Arc::new(all))),
    }
}

fn slice(device: Arc<dyn Device>, offset: u64) -> std::result::Result<Slice, String> {
    let size = device.size();
    Slice::new(device, offset).ok_or_else(|| match offset.is_multiple_of(SECTOR_SIZE) {
        true => format!("no volume begins at byte {offset}: it is {size} bytes long, which is shorter"),
        false => format!("no volume begins at byte {offset}: that is not a multiple of 512"),
    })
}
