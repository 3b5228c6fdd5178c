//! A mounted volume in memory that can be copied at any moment: the copy is what a power cut would leave.

use super::volume::{Image, fsck, mount_with, template};
use std::sync::Arc;
use tidegate_block::MemoryDevice;
use tidegate_f2fs::{F2fs, F2fsOptions};
use tidegate_vfs::*;

pub const ROOT: &Cred = &Cred::ROOT;
pub const RW: OpenFlags = OpenFlags::READ.union(OpenFlags::WRITE);

pub struct Mounted {
    pub device: Arc<MemoryDevice>,
    pub fs: Arc<F2fs>,
    pub vfs: Arc<Vfs>,
    options: F2fsOptions,
}

impl Mounted {
    /// A new volume of `mib` MiB with these features, opened with the mount options in `list`.
    pub fn new(mib: u64, features: &'static str, list: &str) -> Mounted {
        let v = Self::with_options(template(mib, features).device(), list);
        // The first fsync after a mount makes a checkpoint: no chain of nodes is continued.
        v.file("/first").fsync(false).unwrap();
        v
    }

    /// The volume on a device, opened with the mount options in `list`.
    pub fn with_options(device: Arc<MemoryDevice>, list: &str) -> Mounted {
        let mut options = F2fsOptions::default();
        options.parse(list).unwrap();
        Self::open(device, options)
    }

    /// No page is written because of its age: only requested writes are on the device.
    pub fn open(device: Arc<MemoryDevice>, options: F2fsOptions) -> Mounted {
        let mount = MountOptions { no_periodic_writeback: true, ..Default::default() };
        let limits = MemoryLimits::default();
        let (fs, vfs) = mount_with(device.clone(), limits, options.clone(), mount).unwrap();
        Mounted { device, fs, vfs, options }
    }

    /// The volume as it opens after a power cut now.
    pub fn after_crash(&self) -> Mounted {
        Self::open(Image::of(&self.device).device(), self.options.clone())
    }

    pub fn file(&self, path: &str) -> File {
        self.vfs.open_path(ROOT, path.as_bytes(), RW | OpenFlags::CREATE, 0o644).unwrap()
    }

    pub fn read(&self, path: &str) -> Vec<u8> {
        let f = self.vfs.open_path(ROOT, path.as_bytes(), OpenFlags::READ, 0).unwrap();
        let mut bytes = vec![0; f.size() as usize];
        let mut at = 0;
        while at < bytes.len() {
            let n = f.read_at(at as u64, &mut bytes[at..]).unwrap();
            assert!(n > 0);
            at += n;
        }
        bytes
    }

    pub fn exists(&self, path: &str) -> bool {
        self.vfs.resolve(ROOT, path.as_bytes(), false).is_ok()
    }

    pub fn root(&self) -> Arc<Inode> {
        self.vfs.root().unwrap()
    }

    pub fn unlink(&self, name: &str) {
        self.vfs.unlink(ROOT, &self.root(), name.as_bytes()).unwrap();
    }

    pub fn rename(&self, from: &str, to: &str) {
        let top = self.root();
        let (from, to) = ((&top, from.as_bytes()), (&top, to.as_bytes()));
        self.vfs.rename(ROOT, from, to, RenameFlags::empty()).unwrap();
    }

    /// Unmounts the volume and has it judged.
    pub fn finish(self) {
        self.vfs.unmount().unwrap();
        fsck(&self.device).unwrap();
    }
}
