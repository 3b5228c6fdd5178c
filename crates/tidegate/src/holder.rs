//! The process that has an image open, as far as the system shows it.

use crate::error::{path_bytes, show};
use crate::within::within;
use rustix::fs::{major, minor, stat};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The file system types of our mounts in the kernel's table. The second is for block devices.
pub const MOUNTS: [&str; 2] = ["fuse.tidegate", "fuseblk.tidegate"];

/// The program that has `image` open, in words: where the image is mounted, or which process has locked it.
/// `None` if that cannot be seen.
pub(crate) fn of(image: &Path) -> Option<String> {
    let image = std::fs::canonicalize(within(image).0).ok()?;
    let read = |file| std::fs::read_to_string(file).unwrap_or_default();
    if let Some(dir) = mounted_at(&read("/proc/self/mountinfo"), image.as_os_str().as_bytes()) {
        let dir = show(&dir);
        return Some(format!("it is mounted at {dir} (for its files look there; tidegate umount ends that)"));
    }
    let s = stat(&image).ok()?;
    let number = format!("{:02x}:{:02x}:{}", major(s.st_dev), minor(s.st_dev), s.st_ino);
    let pid = locked_by(&read("/proc/locks"), &number)?;
    let name = read(&format!("/proc/{pid}/comm"));
    Some(format!("process {pid} ({}) has this image open", show(name.trim().as_bytes())))
}

/// The mount point of our last mount with this source.
fn mounted_at(mountinfo: &str, source: &[u8]) -> Option<Vec<u8>> {
    mountinfo.lines().rev().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let (kind, rest) = after.split_once(' ')?;
        let found = MOUNTS.contains(&kind).then(|| rest.split(' ').next())??;
        let found = unescaped(found);
        let (file, _) = within(Path::new(OsStr::from_bytes(&found)));
        (path_bytes(&file) == source).then(|| before.split(' ').nth(4).map(unescaped))?
    })
}

/// The process that holds a lock on the file with this number. Lines of processes that wait for a lock have
/// an arrow.
fn locked_by(locks: &str, number: &str) -> Option<u32> {
    locks.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, "FLOCK", _, _, pid, file, ..] = words[..] else { return None };
        if file == number { pid.parse().ok().filter(|p| *p > 0) } else { None }
    })
}

/// A field of the mount table, in which some characters are written in octal.
fn unescaped(field: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field.as_bytes();
    while let Some((&b, after)) = rest.split_first() {
        let code = after.get(..3).and_then(|d| std::str::from_utf8(d).ok());
        match code.and_then(|d| u8::from_str_radix(d, 8).ok()).filter(|_| b == b'\\') {
            Some(c) => {
                out.push(c);
                rest = &after[3..];
            }
            None => {
                out.push(b);
                rest = after;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_read() {
        let table = "40 22 0:51 / /m\\040x rw - fuse.tidegate /a\\134\\040b rw,user_id=0\n\
            41 22 0:52 / /other rw - fuse.sshfs /a rw\n";
        assert_eq!(mounted_at(table, b"/a\\ b"), Some(b"/m x".to_vec()));
        assert_eq!(mounted_at(table, b"/a"), None);
        let locks =
            "1: -> FLOCK ADVISORY WRITE 7 fe:00:12 0 EOF\n2: FLOCK  ADVISORY  READ 23 fe:00:12 0 EOF\n";
        assert_eq!((locked_by(locks, "fe:00:12"), locked_by(locks, "fe:00:1")), (Some(23), None));
    }
}
