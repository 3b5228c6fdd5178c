//! The operations of a run, and the places they work on.

use std::fmt;
use std::ops::Range;

/// The number of a path in [`PATHS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place(pub u8);

/// All paths. They are few, so that operations meet; the paths of aged volumes come last.
pub const PATHS: [&str; 40] = [
    "/",
    "/d",
    "/e",
    "/d/s",
    "/a",
    "/b",
    "/c",
    "/hot.db",
    "/d/a",
    "/d/b",
    "/d/c",
    "/d/film.mp4",
    "/e/a",
    "/e/b",
    "/e/a-name-so-long-that-it-takes-eight-slots-of-a-directory-block",
    "/d/s/a",
    "/d/s/b",
    "/e/c",
    "/e/d",
    "/old",
    "/old/a.mp4",
    "/old/b.db",
    "/old/c",
    "/old/d",
    "/old/e",
    "/old/f",
    "/old/g.mp4",
    "/old/h.db",
    "/old/i",
    "/old/j",
    "/old/k",
    "/old/l",
    "/old/m",
    "/old/n",
    "/old/o",
    "/old/p",
    "/old/q",
    "/old/r",
    "/old/s",
    "/old/t",
];

impl Place {
    /// The root directory.
    pub const ROOT: Place = Place(0);
    /// Paths where directories are made.
    pub const DIRS: [Place; 4] = [Place(1), Place(2), Place(3), Place(18)];
    /// Paths where files are made.
    pub const FILES: Range<u8> = 4..19;
    /// The directory of an aged volume's files.
    pub const OLD: Place = Place(19);
    /// The files of an aged volume; the first ones are large.
    pub const FILLERS: Range<u8> = 20..40;

    /// The path.
    pub fn path(self) -> &'static str {
        PATHS[self.0 as usize % PATHS.len()]
    }

    /// The names in the path, from the root on.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        self.path().split('/').filter(|n| !n.is_empty())
    }
}

/// A file by path, or a file that is kept open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The file at a path.
    At(Place),
    /// The file that a slot holds open.
    Held(u8),
}

/// The number of files that can be kept open at once.
pub const SLOTS: usize = 3;
/// Names of extended attributes.
pub const XATTRS: [&str; 3] = ["user.a", "user.bb", "trusted.ccc"];

/// One operation. An impossible operation does nothing, so any part of a run is a run.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the words of the system calls
pub enum CrashOp {
    Create {
        at: Place,
    },
    Mkdir {
        at: Place,
    },
    Symlink {
        at: Place,
        len: u16,
    },
    Write {
        file: Target,
        pos: u64,
        len: u32,
    },
    Truncate {
        file: Target,
        size: u64,
    },
    Punch {
        file: Target,
        pos: u64,
        len: u64,
    },
    Allocate {
        file: Target,
        pos: u64,
        len: u64,
        keep: bool,
    },
    /// Makes a range zeros, and allocates it.
    Zero {
        file: Target,
        pos: u64,
        len: u64,
        keep: bool,
    },
    Rename {
        from: Place,
        to: Place,
        exchange: bool,
    },
    Link {
        from: Place,
        to: Place,
    },
    /// Makes a file without a name, and holds it open.
    Tmpfile {
        slot: u8,
    },
    /// Gives an open file another name, if it has a name or never had one.
    LinkHeld {
        slot: u8,
        to: Place,
    },
    Unlink {
        at: Place,
    },
    Rmdir {
        at: Place,
    },
    SetXattr {
        at: Place,
        name: u8,
        len: u16,
    },
    RemoveXattr {
        at: Place,
        name: u8,
    },
    Chmod {
        at: Place,
        mode: u32,
    },
    /// Changes only the group: the owner is the object's number.
    Chown {
        at: Place,
        gid: u32,
    },
    /// Sets only the time of the last access, in seconds.
    Utimes {
        at: Place,
        atime: i64,
    },
    /// A write that is durable, with its file, when it returns.
    WriteSync {
        file: Target,
        pos: u64,
        len: u32,
    },
    /// Takes out whole pages before the end of the file.
    Collapse {
        file: Target,
        pos: u64,
        len: u64,
    },
    /// Puts in a hole of whole pages before the end of the file.
    Insert {
        file: Target,
        pos: u64,
        len: u64,
    },
    Fsync {
        file: Target,
    },
    Fdatasync {
        file: Target,
    },
    FsyncDir {
        at: Place,
    },
    Sync,
    Hold {
        at: Place,
        slot: u8,
    },
    Release {
        slot: u8,
    },
    /// Background write-back of a file, as the flusher does it when memory runs short.
    Writeback {
        file: Target,
    },
    /// A step of background cleaning; with `sync`, as a writer that needs room does it.
    Clean {
        sync: bool,
    },
    /// Discards the free blocks.
    Trim,
    /// Changes the mount options to others, chosen by a seed.
    Turn {
        seed: u64,
    },
}

/// An operation and its number in the run for which it was made. The number stays when other operations are
/// dropped. Files that the operation makes or writes bear the number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// From 1 on.
    pub serial: u32,
    /// The operation.
    pub op: CrashOp,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.path())
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::At(p) => p.fmt(f),
            Target::Held(n) => write!(f, "<{n}>"),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:3} {}", self.serial, self.op)
    }
}

impl CrashOp {
    /// The most bytes for which the operation may allocate space in a file.
    pub fn bytes(&self) -> u64 {
        match self {
            CrashOp::Write { len, .. } | CrashOp::WriteSync { len, .. } => u64::from(*len),
            CrashOp::Allocate { len, .. } | CrashOp::Zero { len, .. } => *len,
            _ => 0,
        }
    }
}

impl fmt::Display for CrashOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use CrashOp::*;
        match self {
            Create { at } => write!(f, "create {at}"),
            Mkdir { at } => write!(f, "mkdir {at}"),
            Symlink { at, len } => write!(f, "symlink {at} -> {len} bytes"),
            Write { file, pos, len } => write!(f, "write {file} {pos}+{len}"),
            Truncate { file, size } => write!(f, "truncate {file} {size}"),
            Punch { file, pos, len } => write!(f, "punch {file} {pos}+{len}"),
            Allocate { file, pos, len, keep } => {
                write!(f, "fallocate {file} {pos}+{len}{}", if *keep { " keep-size" } else { "" })
            }
            Zero { file, pos, len, keep } => {
                write!(f, "zero {file} {pos}+{len}{}", if *keep { " keep-size" } else { "" })
            }
            Rename { from, to, exchange: false } => write!(f, "rename {from} {to}"),
            Rename { from, to, exchange: true } => write!(f, "exchange {from} {to}"),
            Link { from, to } => write!(f, "link {from} {to}"),
            Tmpfile { slot } => write!(f, "open a nameless file as <{slot}>"),
            LinkHeld { slot, to } => write!(f, "link <{slot}> {to}"),
            Unlink { at } => write!(f, "unlink {at}"),
            Rmdir { at } => write!(f, "rmdir {at}"),
            SetXattr { at, name, len } => write!(f, "setxattr {at} {} {len} bytes", xattr(*name)),
            RemoveXattr { at, name } => write!(f, "removexattr {at} {}", xattr(*name)),
            Chmod { at, mode } => write!(f, "chmod {at} {mode:o}"),
            Chown { at, gid } => write!(f, "chown {at} :{gid}"),
            Utimes { at, atime } => write!(f, "utimes {at} {atime}"),
            WriteSync { file, pos, len } => write!(f, "write-sync {file} {pos}+{len}"),
            Collapse { file, pos, len } => write!(f, "collapse {file} {pos}+{len}"),
            Insert { file, pos, len } => write!(f, "insert {file} {pos}+{len}"),
            Fsync { file } => write!(f, "fsync {file}"),
            Fdatasync { file } => write!(f, "fdatasync {file}"),
            FsyncDir { at } => write!(f, "fsync-directory {at}"),
            Sync => write!(f, "sync"),
            Hold { at, slot } => write!(f, "open {at} as <{slot}>"),
            Release { slot } => write!(f, "close <{slot}>"),
            Writeback { file } => write!(f, "write-back {file}"),
            Clean { sync } => write!(f, "clean{}", if *sync { " at once" } else { "" }),
            Trim => write!(f, "trim"),
            Turn { seed } => write!(f, "remount with options {seed}"),
        }
    }
}

/// The name of an extended attribute by number.
pub fn xattr(n: u8) -> &'static str {
    XATTRS[n as usize % XATTRS.len()]
}
