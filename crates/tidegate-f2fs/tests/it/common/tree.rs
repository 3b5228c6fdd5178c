//! Describes, changes and judges a volume of ours in the terms of the kernel's manifests.

use std::path::Path;
use std::sync::Arc;
use tidegate_block::{QueueLimits, RequestQueue, file};
use tidegate_f2fs::check::{CheckOptions, check};
use tidegate_f2fs::{F2fs, F2fsOptions};
use tidegate_testing::manifest::{ContentHash, Manifest, Options};
use tidegate_testing::tree::assert_same_but;
use tidegate_vfs::*;

/// The user of all operations here.
pub const ROOT: &Cred = &Cred::ROOT;

/// Most differences that one comparison reports.
const SHOWN: usize = 20;

/// The device behind an image.
pub fn queue(path: &Path, read_only: bool) -> Arc<RequestQueue> {
    let options = file::OpenOptions { read_only, ..Default::default() };
    Arc::new(RequestQueue::new(file::open(path, options).unwrap(), QueueLimits::default()))
}

/// Mounts an image, or returns the reason why not.
pub fn try_mount(path: &Path, read_only: bool) -> Result<Arc<Vfs>> {
    let bdi = Bdi::new(MemoryLimits::default());
    let options = F2fsOptions { read_only, ..Default::default() };
    let fs = F2fs::open(queue(path, read_only), bdi.clone(), options)?;
    Vfs::mount(fs, bdi, MountOptions { noatime: true, ..Default::default() })
}

/// Mounts an image for reading only.
pub fn mount_read_only(path: &Path) -> Arc<Vfs> {
    try_mount(path, true).unwrap()
}

/// Mounts an image for writing.
pub fn mount(path: &Path) -> Arc<Vfs> {
    let v = try_mount(path, false).unwrap();
    assert_eq!(v.fs().read_only(), None);
    v
}

/// Describes an image's tree as we read it.
pub fn describe_image(path: &Path) -> Manifest {
    let v = mount_read_only(path);
    let found = describe(&v);
    v.unmount().unwrap();
    found
}

/// Describes a mounted tree.
pub fn describe(v: &Arc<Vfs>) -> Manifest {
    tidegate_testing::tree::describe(v).unwrap()
}

/// The hash of a whole content.
pub fn hash(data: &[u8]) -> u32 {
    let mut hash = ContentHash::new();
    hash.update(0, data);
    hash.finish()
}

/// Panics, showing some differences, unless two manifests agree in everything.
pub fn assert_same(what: &str, kernel: &Manifest, ours: &Manifest) {
    assert_same_but(what, kernel, ours, &Options::default());
}

/// Panics unless our own check finds every rule kept.
pub fn assert_check_clean(path: &Path) {
    let report = check(&queue(path, true), CheckOptions::default()).unwrap();
    let some: Vec<_> = report.problems.iter().take(SHOWN).collect();
    assert!(report.is_clean(), "{}: {} problems: {some:#?}", path.display(), report.total_problems);
}

/// Panics unless both checkers call the image clean.
pub fn assert_clean(path: &Path) {
    assert_check_clean(path);
    tidegate_testing::golden::fsck_f2fs(path).unwrap();
}

/// Bytes that differ from place to place.
pub fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| ((i / 7 * 31) ^ i ^ (seed * 97)) as u8 | 1).collect()
}

/// Makes a file that holds `data`.
pub fn put(v: &Arc<Vfs>, dir: &Arc<Inode>, name: &[u8], data: &[u8]) -> Arc<Inode> {
    let inode = v.create(ROOT, dir, name, 0o644).unwrap();
    write(v, &inode, 0, data);
    inode
}

/// Writes `data` at `pos`.
pub fn write(v: &Arc<Vfs>, inode: &Arc<Inode>, pos: u64, data: &[u8]) {
    let f = v.open(ROOT, inode, OpenFlags::WRITE).unwrap();
    f.write_at(pos, data).unwrap();
}
