//! A volume of ours described, changed and judged in the terms of the kernel's manifests.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use tidegate_block::{QueueLimits, RequestQueue, file};
use tidegate_f2fs::check::{CheckOptions, check};
use tidegate_f2fs::{F2fs, F2fsOptions};
use tidegate_testing::manifest::{
    BLOCK, Builder, ContentHash, Entry, Kind, Manifest, Options, Time, compare,
};
use tidegate_testing::manifest::{escape, hex};
use tidegate_vfs::*;

/// The one who does everything here.
pub const ROOT: &Cred = &Cred::ROOT;

/// Differences shown of one comparison.
const SHOWN: usize = 20;

/// The device behind an image.
pub fn queue(path: &Path, read_only: bool) -> Arc<RequestQueue> {
    let options = file::OpenOptions { read_only, ..Default::default() };
    Arc::new(RequestQueue::new(file::open(path, options).unwrap(), QueueLimits::default()))
}

/// Mounts an image, or says why not.
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
    let mut builder = Builder::new();
    let mut pending = vec![(Vec::new(), v.root().unwrap())];
    while let Some((path, inode)) = pending.pop() {
        let entry = describe_inode(v, &inode).unwrap_or_else(|e| panic!("{}: {e}", escape(&path)));
        builder.push(&path, inode.ino.0, entry);
        if inode.is_dir() {
            pending.extend(below(v, &path, &inode));
        }
    }
    builder.finish()
}

/// What is in a directory, each name looked up too.
fn below(v: &Vfs, path: &[u8], dir: &Arc<Inode>) -> Vec<(Vec<u8>, Arc<Inode>)> {
    let mut out = Vec::new();
    for e in v.entries(dir).unwrap() {
        let inode = v.lookup(dir, &e.name).unwrap();
        assert_eq!(inode.ino, e.ino, "{} in {}", escape(&e.name), escape(path));
        assert_eq!(Some(inode.file_type), e.file_type, "{} in {}", escape(&e.name), escape(path));
        let sep: &[u8] = if path.is_empty() { b"" } else { b"/" };
        out.push(([path, sep, &e.name].concat(), inode));
    }
    out
}

fn describe_inode(v: &Arc<Vfs>, inode: &Arc<Inode>) -> Result<Entry> {
    let attr = inode.attr().clone();
    let kind = Kind::from_mode(attr.file_type.mode_bits()).unwrap();
    let sized = matches!(kind, Kind::File | Kind::Symlink);
    let device = matches!(kind, Kind::Char | Kind::Block);
    Ok(Entry {
        path: String::new(),
        kind,
        mode: attr.mode,
        uid: attr.uid,
        gid: attr.gid,
        size: sized.then_some(attr.size),
        mtime: Time(attr.mtime.secs, attr.mtime.nanos),
        nlink: (kind != Kind::Dir).then_some(u64::from(attr.nlink)),
        same_as: None,
        rdev: device.then_some((attr.rdev.major, attr.rdev.minor)),
        target: if kind == Kind::Symlink { Some(escape(&v.readlink(inode)?)) } else { None },
        crc32: if kind == Kind::File { Some(hash_file(v, inode)?) } else { None },
        xattrs: xattrs(v, inode)?,
    })
}

fn xattrs(v: &Vfs, inode: &Inode) -> Result<BTreeMap<String, String>> {
    let mut out = BTreeMap::new();
    for name in v.listxattr(ROOT, inode)? {
        let value = v.getxattr(ROOT, inode, &name)?;
        assert_eq!(out.insert(escape(&name), hex(&value)), None, "listed twice");
    }
    Ok(out)
}

/// Hashes a file's data, reading no holes.
pub fn hash_file(v: &Arc<Vfs>, inode: &Arc<Inode>) -> Result<u32> {
    let f = v.open(ROOT, inode, OpenFlags::READ)?;
    let mut hash = ContentHash::new();
    let mut buf = vec![0; 256 * BLOCK];
    let mut done = 0;
    while done < f.size() {
        let start = match f.seek(done, SeekTarget::Data) {
            Err(e) if e.kind() == ErrorKind::NoDeviceOrAddress => break,
            r => r?,
        };
        let end = f.seek(start, SeekTarget::Hole)?;
        assert!(done <= start && start < end && end <= f.size(), "{done} {start} {end}");
        done = start;
        while done < end {
            let part = &mut buf[..(end - done).min(256 * BLOCK as u64) as usize];
            assert_eq!(f.read_at(done, part)?, part.len());
            hash.update(done, part);
            done += part.len() as u64;
        }
    }
    Ok(hash.finish())
}

/// The hash of a whole content.
pub fn hash(data: &[u8]) -> u32 {
    let mut hash = ContentHash::new();
    hash.update(0, data);
    hash.finish()
}

/// Panics, showing some differences, unless two manifests agree in everything.
pub fn assert_same(what: &str, kernel: &Manifest, ours: &Manifest) {
    assert!(!kernel.entries.is_empty(), "{what}: nothing to compare with");
    let found = compare(kernel, ours, &Options::default());
    let some = found.iter().take(SHOWN).cloned().collect::<Vec<_>>().join("\n");
    assert!(found.is_empty(), "{what}: {} differences, kernel's against ours:\n{some}", found.len());
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
