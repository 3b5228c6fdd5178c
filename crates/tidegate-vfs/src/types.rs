//! Values that cross the interface between a file system and its users.

use tidegate_rt::Timespec;

/// An inode's number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ino(pub u64);

impl From<u64> for Ino {
    fn from(ino: u64) -> Self {
        Ino(ino)
    }
}

impl From<u32> for Ino {
    fn from(ino: u32) -> Self {
        Ino(ino.into())
    }
}

impl std::fmt::Display for Ino {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// The type of an inode. The numbers are those of `S_IFMT` shifted right by 12.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FileType {
    /// Named pipe.
    Fifo = 0o1,
    /// Character device.
    CharDevice = 0o2,
    /// Directory.
    Directory = 0o4,
    /// Block device.
    BlockDevice = 0o6,
    /// Regular file.
    Regular = 0o10,
    /// Symbolic link.
    Symlink = 0o12,
    /// Socket.
    Socket = 0o14,
}

impl FileType {
    /// The type in a mode's `S_IFMT` bits, if they name one.
    pub fn from_mode(mode: u32) -> Option<Self> {
        Some(match mode >> 12 & 0xf {
            0o1 => Self::Fifo,
            0o2 => Self::CharDevice,
            0o4 => Self::Directory,
            0o6 => Self::BlockDevice,
            0o10 => Self::Regular,
            0o12 => Self::Symlink,
            0o14 => Self::Socket,
            _ => return None,
        })
    }

    /// The `S_IFMT` bits.
    pub fn mode_bits(self) -> u32 {
        (self as u32) << 12
    }
}

/// A device number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct DeviceNumber {
    /// Major.
    pub major: u32,
    /// Minor.
    pub minor: u32,
}

/// An inode's attributes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attr {
    /// Type.
    pub file_type: FileType,
    /// Permission bits, set-id and sticky included (`0o7777`).
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// The number of names.
    pub nlink: u32,
    /// Size in bytes.
    pub size: u64,
    /// Space used, in 512-byte units.
    pub blocks: u64,
    /// Last read.
    pub atime: Timespec,
    /// Last change of the content.
    pub mtime: Timespec,
    /// Last change of the inode.
    pub ctime: Timespec,
    /// Time of birth, where the format keeps it.
    pub crtime: Option<Timespec>,
    /// The device number of a device file.
    pub rdev: DeviceNumber,
    /// Distinguishes successive inodes with one number.
    pub generation: u32,
    /// `FS_*_FL` flags.
    pub flags: u32,
}

/// Changes to attributes; `None` leaves one as it is.
#[derive(Clone, Debug, Default, PartialEq)]
#[allow(missing_docs)] // as in `Attr`
pub struct SetAttr {
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub atime: Option<Timespec>,
    pub mtime: Option<Timespec>,
    /// Set for faithful copies. Otherwise a change sets the current time.
    pub ctime: Option<Timespec>,
    /// Set for faithful copies, where the format keeps a time of birth.
    pub crtime: Option<Timespec>,
    /// `FS_*_FL` flags.
    pub flags: Option<u32>,
}

/// The attributes of a new inode.
#[derive(Clone, Debug)]
pub struct NewInode<'a> {
    /// Type.
    pub file_type: FileType,
    /// Permission bits.
    pub mode: u32,
    /// Bits that are cleared in `mode` where the directory has no default ACL.
    pub umask: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number, for devices.
    pub rdev: DeviceNumber,
    /// Target, for symbolic links.
    pub target: &'a [u8],
    /// All its times.
    pub time: Timespec,
    /// The flags of its directory, which [`Vfs`](crate::Vfs) fills in: a format hands some of them down.
    pub dir_flags: u32,
}

/// A volume's capacity, in blocks of `block_size` bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct StatFs {
    /// Bytes in a block.
    pub block_size: u32,
    /// Blocks for files and directories.
    pub blocks: u64,
    /// Free blocks.
    pub blocks_free: u64,
    /// Free blocks that an ordinary user may take.
    pub blocks_available: u64,
    /// The most inodes.
    pub files: u64,
    /// Free inodes.
    pub files_free: u64,
    /// Longest name in bytes.
    pub name_max: u32,
    /// The id of the volume.
    pub fsid: u64,
}

/// An entry as a directory lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// The inode.
    pub ino: Ino,
    /// The type of the inode. `None` if the directory does not keep it.
    pub file_type: Option<FileType>,
    /// The name.
    pub name: Vec<u8>,
    /// The position after this entry.
    pub next: u64,
}

bitflags::bitflags! {
    /// How to open a file.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct OpenFlags: u32 {
        /// For reading.
        const READ = 1;
        /// For writing.
        const WRITE = 1 << 1;
        /// Every write goes to the end.
        const APPEND = 1 << 2;
        /// Create the file if it is missing.
        const CREATE = 1 << 3;
        /// With `CREATE`: the file must be missing.
        const EXCL = 1 << 4;
        /// Truncate the file to size 0.
        const TRUNC = 1 << 5;
        /// The inode must be a directory.
        const DIRECTORY = 1 << 6;
        /// A symbolic link at the end is an error.
        const NOFOLLOW = 1 << 7;
        /// Every write is durable when it returns.
        const SYNC = 1 << 8;
        /// Reads leave the access time alone.
        const NOATIME = 1 << 9;
        /// Changes of the content leave `mtime` and `ctime` alone: the program that has the file open keeps and sets
        /// them (the kernel's `S_NOCMTIME`). As its changes may be older than the file's capability, writes leave that
        /// alone, too.
        const NOCMTIME = 1 << 10;
    }

    /// Flags of rename.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct RenameFlags: u32 {
        /// The new name must be missing.
        const NOREPLACE = 1;
        /// Both names must exist. They are exchanged.
        const EXCHANGE = 2;
        /// The old name gets a whiteout: a character device 0:0, which hides a name in a union mount.
        const WHITEOUT = 4;
    }

    /// Flags of fallocate.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct FallocateFlags: u32 {
        /// The size stays.
        const KEEP_SIZE = 1;
        /// Free the blocks of the range.
        const PUNCH_HOLE = 2;
        /// Remove the range: the bytes behind it move to its beginning.
        const COLLAPSE_RANGE = 8;
        /// Make the range read as zeros.
        const ZERO_RANGE = 0x10;
        /// Insert the range, as zeros: the bytes from its beginning on move behind it.
        const INSERT_RANGE = 0x20;
    }

    /// Flags of setxattr.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct XattrFlags: u32 {
        /// The attribute must be missing.
        const CREATE = 1;
        /// The attribute must exist.
        const REPLACE = 2;
    }
}

/// The thing that a seek looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeekTarget {
    /// The next byte that has data.
    Data,
    /// The next byte in a hole, or the end.
    Hole,
}

/// The credentials with which an operation is done.
#[derive(Clone, Debug)]
pub struct Cred {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Other groups.
    pub groups: Vec<u32>,
}

impl Cred {
    /// The superuser: no permission is checked.
    pub const ROOT: Cred = Cred { uid: 0, gid: 0, groups: Vec::new() };

    /// Whether permissions are checked.
    pub fn is_root(&self) -> bool {
        self.uid == 0
    }

    /// Whether the user is in group `gid`.
    pub fn in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }
}

/// The lifetime of data that is written, as a program sets it (`RWH_WRITE_LIFE_*`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum WriteHint {
    /// No hint was set.
    #[default]
    NotSet = 0,
    /// A program has set that nothing is known about the lifetime.
    None = 1,
    /// A short time.
    Short = 2,
    /// A longer time than `Short`.
    Medium = 3,
    /// A longer time than `Medium`.
    Long = 4,
    /// The longest time: data that is hardly ever overwritten.
    Extreme = 5,
}

impl WriteHint {
    /// The hint with this number.
    pub fn from_number(n: u8) -> Option<WriteHint> {
        use WriteHint::*;
        [NotSet, None, Short, Medium, Long, Extreme].get(usize::from(n)).copied()
    }
}
