//! An inode in the form that `ls`, `stat` and `tree` show.

use crate::units;
use serde::Serialize;
use tidegate::error::show;
use tidegate::vfs::{Attr, FileType, Inode};
use tidegate::{Result, Volume};

/// An inode in plain values, for JSON.
#[derive(Serialize)]
pub struct Entry {
    /// Name, or path; bytes that are no UTF-8 are replaced.
    pub name: String,
    /// Name in hexadecimal, when it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name_hex: Option<String>,
    /// Number.
    pub inode: u64,
    /// Type.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// Permission bits, octal.
    pub mode: String,
    /// The number of names.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Size in bytes.
    pub size: u64,
    /// Space used, in 512-byte units.
    pub blocks: u64,
    /// Last read. Times are in the form of RFC 3339, in UTC, to the nanosecond.
    pub atime: Option<String>,
    /// Last change of content.
    pub mtime: Option<String>,
    /// Last change of the inode.
    pub ctime: Option<String>,
    /// Birth.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub crtime: Option<String>,
    /// Major and minor number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<(u32, u32)>,
    /// Target of a symbolic link; bytes that are no UTF-8 are replaced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Target in hexadecimal, when it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_hex: Option<String>,
    /// The bytes of the target.
    #[serde(skip)]
    pub link: Option<Vec<u8>>,
    /// Extended attributes, values in hexadecimal.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub xattrs: Vec<(String, String)>,
}

impl Entry {
    /// Describes `inode`, called `name`, at `path`. Extended attributes are read only if asked for.
    ///
    /// # Errors
    /// Those of reading a link's target and the attributes.
    pub fn new(volume: &Volume, inode: &Inode, name: &[u8], path: &[u8], xattrs: bool) -> Result<Entry> {
        let a = inode.attr().clone();
        let target = match a.file_type {
            FileType::Symlink => Some(volume.vfs().readlink(inode).map_err(|e| volume.error_at(path, e))?),
            _ => None,
        };
        let xattrs =
            if xattrs { volume.xattrs(inode).map_err(|e| volume.error_at(path, e))? } else { Vec::new() };
        let time = |t: tidegate::Timespec| Some(units::rfc3339_nanos(t));
        let device = matches!(a.file_type, FileType::CharDevice | FileType::BlockDevice);
        Ok(Entry {
            name: String::from_utf8_lossy(name).into_owned(),
            name_hex: hex_unless_text(name),
            inode: inode.ino.0,
            kind: kind(a.file_type),
            mode: format!("{:04o}", a.mode),
            links: a.nlink,
            uid: a.uid,
            gid: a.gid,
            size: a.size,
            blocks: volume.vfs().fs().sectors(inode),
            atime: time(a.atime),
            mtime: time(a.mtime),
            ctime: time(a.ctime),
            crtime: a.crtime.and_then(time),
            device: device.then_some((a.rdev.major, a.rdev.minor)),
            target: target.as_ref().map(|t| String::from_utf8_lossy(t).into_owned()),
            target_hex: target.as_deref().and_then(hex_unless_text),
            link: target,
            xattrs: xattrs.iter().map(|(n, v)| (show(n), hex(v))).collect(),
        })
    }
}

/// The type as a word.
pub fn kind(t: FileType) -> &'static str {
    match t {
        FileType::Fifo => "fifo",
        FileType::CharDevice => "character device",
        FileType::Directory => "directory",
        FileType::BlockDevice => "block device",
        FileType::Regular => "file",
        FileType::Symlink => "symbolic link",
        FileType::Socket => "socket",
    }
}

/// Bytes in hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Bytes that are no UTF-8 in hexadecimal.
pub fn hex_unless_text(bytes: &[u8]) -> Option<String> {
    std::str::from_utf8(bytes).is_err().then(|| hex(bytes))
}

/// Type and mode in the letters of `ls -l`.
pub fn letters(a: &Attr) -> String {
    let kind = match a.file_type {
        FileType::Fifo => 'p',
        FileType::CharDevice => 'c',
        FileType::Directory => 'd',
        FileType::BlockDevice => 'b',
        FileType::Regular => '-',
        FileType::Symlink => 'l',
        FileType::Socket => 's',
    };
    let mut out = String::from(kind);
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = a.mode >> shift & 7;
        out.push(if bits & 4 != 0 { 'r' } else { '-' });
        out.push(if bits & 2 != 0 { 'w' } else { '-' });
        out.push(match (a.mode & special != 0, bits & 1 != 0) {
            (true, true) => letter,
            (true, false) => letter.to_ascii_uppercase(),
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    out
}

/// The size column of `ls -l`, or with `units` that of `ls -lh`. For a device, its numbers instead.
pub fn size(a: &Attr, units: bool) -> String {
    match a.file_type {
        FileType::CharDevice | FileType::BlockDevice => format!("{}, {}", a.rdev.major, a.rdev.minor),
        _ if units => units::short(a.size),
        _ => a.size.to_string(),
    }
}

/// The time column of `ls -l`.
pub fn mtime(a: &Attr) -> String {
    units::time(a.mtime, false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate::vfs::DeviceNumber;

    #[test]
    fn modes_in_letters() {
        let a = |file_type, mode| Attr {
            file_type,
            mode,
            uid: 0,
            gid: 0,
            nlink: 1,
            size: 0,
            blocks: 0,
            atime: Default::default(),
            mtime: Default::default(),
            ctime: Default::default(),
            crtime: None,
            rdev: DeviceNumber::default(),
            generation: 0,
            flags: 0,
        };
        assert_eq!(letters(&a(FileType::Directory, 0o1777)), "drwxrwxrwt");
        assert_eq!(letters(&a(FileType::Regular, 0o4755)), "-rwsr-xr-x");
        assert_eq!(letters(&a(FileType::Regular, 0o6640)), "-rwSr-S---");
    }
}
