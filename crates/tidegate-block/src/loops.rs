//! Loop devices: the kernel's way of making a block device of an image file.
//!
//! A lock on the file does not keep others from the device, and a lock on the device does not keep others from the
//! file. So opening a loop device also locks the files behind it, and a file that the kernel has mounted through a loop
//! device is in use. Sysfs tells which files are attached to which devices.

use crate::Errno;
use crate::file::patiently;
use rustix::fs::{FileType, FlockOperation, Mode, OFlags, Stat, major, minor};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use tidegate_rt::hash::HashSet;

/// The most loop devices over loop devices that are followed.
const MAX_DEPTH: usize = 8;

/// Locks the files behind a loop device, or behind a partition of one. The locks last as long as the returned
/// value.
///
/// # Errors
/// The path of a file that another program has locked.
pub(crate) fn lock_behind(device: &Stat, op: FlockOperation) -> Result<Vec<OwnedFd>, PathBuf> {
    let mut locked = Vec::new();
    let mut at = *device;
    while let Some(path) = behind(&at).filter(|_| locked.len() < MAX_DEPTH) {
        // A file that cannot be opened was deleted, or lies in another root: no lock of ours is on it.
        let Ok(fd) = rustix::fs::open(&path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) else { break };
        let Ok(st) = rustix::fs::fstat(&fd) else { break };
        // Parts of a file may be in use side by side. Their shared locks keep off a program that wants the
        // whole file.
        let op = if is_part(&at) { FlockOperation::NonBlockingLockShared } else { op };
        // Where the file system has no locks, as some network file systems, there is no lock to respect.
        if patiently(Errno::WOULDBLOCK, || rustix::fs::flock(&fd, op)) == Err(Errno::WOULDBLOCK) {
            return Err(path);
        }
        locked.push(fd);
        at = st;
    }
    Ok(locked)
}

/// The file behind a loop device.
fn behind(device: &Stat) -> Option<PathBuf> {
    if FileType::from_raw_mode(device.st_mode) != FileType::BlockDevice {
        return None;
    }
    let dir = format!("/sys/dev/block/{}:{}", major(device.st_rdev), minor(device.st_rdev));
    // A partition lies below its disk.
    let read = |name: &str| std::fs::read(Path::new(&dir).join(name)).ok();
    let path = read("loop/backing_file").or_else(|| read("../loop/backing_file"))?;
    Some(path_of(&path))
}

/// Whether a device is a partition of a loop device, or one over a part of its file.
fn is_part(device: &Stat) -> bool {
    let dir = format!("/sys/dev/block/{}:{}", major(device.st_rdev), minor(device.st_rdev));
    let read = |name: &str| std::fs::read_to_string(Path::new(&dir).join(name)).ok();
    let zero = |name: &str| read(name).is_none_or(|s| s.trim() == "0");
    read("loop/backing_file").is_none() || !zero("loop/offset") || !zero("loop/sizelimit")
}

/// The path in a `backing_file`, which ends with a newline.
fn path_of(bytes: &[u8]) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    std::ffi::OsStr::from_bytes(bytes.strip_suffix(b"\n").unwrap_or(bytes)).into()
}

/// The loop device through which the kernel has `file` mounted, if there is one.
pub(crate) fn mounted_through(file: &Stat) -> Option<String> {
    if FileType::from_raw_mode(file.st_mode) != FileType::RegularFile {
        return None;
    }
    let over = |name: &str| {
        let path = path_of(&std::fs::read(format!("/sys/block/{name}/loop/backing_file")).ok()?);
        let st = rustix::fs::stat(&path).ok()?;
        (st.st_dev == file.st_dev && st.st_ino == file.st_ino).then_some(())
    };
    let mut mounted = None;
    for entry in std::fs::read_dir("/sys/block").ok()?.flatten() {
        let Ok(name) = entry.file_name().into_string() else { continue };
        if !name.starts_with("loop") || over(&name).is_none() {
            continue;
        }
        let mounted = mounted.get_or_insert_with(mounted_devices);
        if numbers(&name).iter().any(|n| mounted.contains(n)) {
            return Some(name);
        }
    }
    None
}

/// The numbers of a disk and of its partitions, as "7:0".
fn numbers(disk: &str) -> Vec<String> {
    let dir = PathBuf::from("/sys/block").join(disk);
    let parts = std::fs::read_dir(&dir).into_iter().flatten().flatten().map(|e| e.path());
    let read = |d: PathBuf| std::fs::read_to_string(d.join("dev")).ok().map(|s| s.trim().to_string());
    std::iter::once(dir.clone()).chain(parts.filter(|p| p.is_dir())).filter_map(read).collect()
}

/// The devices that are mounted here, as "7:0".
fn mounted_devices() -> HashSet<String> {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    table.lines().filter_map(|l| l.split(' ').nth(2).map(String::from)).collect()
}
