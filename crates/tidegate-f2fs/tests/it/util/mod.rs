//! The helpers that the tests share.

pub mod gate;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use tidegate_block::{QueueLimits, RequestQueue, file};
use tidegate_f2fs::{F2fs, F2fsOptions};
use tidegate_vfs::*;

/// Mounts an image for writing.
pub fn mount(path: &Path) -> Arc<Vfs> {
    mount_with(path, MemoryLimits::default())
}

/// Mounts an image for writing within limits of memory.
pub fn mount_with(path: &Path, limits: MemoryLimits) -> Arc<Vfs> {
    let dev = file::open(path, Default::default()).unwrap();
    let queue = Arc::new(RequestQueue::new(dev, QueueLimits::default()));
    let bdi = Bdi::new(limits);
    let fs = F2fs::open(queue, bdi.clone(), F2fsOptions::default()).unwrap();
    assert_eq!(FileSystem::read_only(&*fs), None);
    Vfs::mount(fs, bdi, MountOptions::default()).unwrap()
}

/// Panics unless stock fsck calls the image clean.
pub fn fsck(path: &Path) {
    tidegate_testing::golden::fsck_f2fs(path).unwrap();
}

/// An image of `size` bytes made by stock mkfs with `features`.
pub fn make_image(dir: &Path, size: u64, features: &str) -> PathBuf {
    match features {
        "" => make_image_with(dir, size, &[]),
        _ => make_image_with(dir, size, &["-O", features]),
    }
}

/// An image of `size` bytes made by stock mkfs with `args`.
pub fn make_image_with(dir: &Path, size: u64, args: &[&str]) -> PathBuf {
    let path = dir.join("a.img");
    std::fs::File::create(&path).unwrap().set_len(size).unwrap();
    let mut c = Command::new("mkfs.f2fs");
    assert!(c.arg("-q").args(args).arg(&path).status().unwrap().success());
    path
}
