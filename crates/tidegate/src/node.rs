//! The attributes of an inode that goes into or out of a volume.

use tidegate_rt::Timespec;
use tidegate_vfs::{Attr, DeviceNumber, FileType};

/// An extended attribute: name with namespace, value as user space sees it.
pub type Xattr = (Vec<u8>, Vec<u8>);

/// An inode's attributes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meta {
    /// Type.
    pub kind: FileType,
    /// Permission bits, set-id and sticky included.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Last read.
    pub atime: Timespec,
    /// Last change of the content.
    pub mtime: Timespec,
    /// The device number of a device file.
    pub rdev: DeviceNumber,
    /// Extended attributes, including ACLs and capabilities.
    pub xattrs: Vec<Xattr>,
}

impl Meta {
    /// The default attributes of a directory.
    pub fn plain_dir(time: Timespec) -> Self {
        Meta {
            kind: FileType::Directory,
            mode: 0o755,
            uid: 0,
            gid: 0,
            atime: time,
            mtime: time,
            rdev: DeviceNumber::default(),
            xattrs: Vec::new(),
        }
    }

    /// The attributes of an inode in a volume.
    pub fn of(a: &Attr, xattrs: Vec<Xattr>) -> Self {
        Meta {
            kind: a.file_type,
            mode: a.mode,
            uid: a.uid,
            gid: a.gid,
            atime: a.atime,
            mtime: a.mtime,
            rdev: a.rdev,
            xattrs,
        }
    }

    /// Makes times depend only on the content: no time is later than `limit`, and the time of the last read
    /// does not count.
    pub fn clamp(&mut self, limit: Option<Timespec>) {
        if let Some(limit) = limit {
            self.mtime = self.mtime.min(limit);
            self.atime = self.mtime;
        }
    }
}
