//! ioctls: flags of inodes, and calls about the volume as a whole.

use crate::errno::{Result, ToErrno};
use crate::privileges::Capability;
use crate::server::{Caller, ROOT, Server};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use tidegate::vfs::{APPEND_ONLY, IMMUTABLE, JOURNAL_DATA, SetAttr};

/// Makes everything durable, as syncfs(2) does where the kernel forwards it: `_IO(0xf5, 0x74)`. See
/// [`full_sync`].
pub const TIDEGATE_IOC_SYNC: u32 = 0xf574;

/// Chooses the streams of a file, a bit for each, where the volume leaves the choice to programs
/// (`stream_policy=amfs`): `_IOW(0xf5, 0x75, __u32)`. See [`Vfs::choose_streams`](tidegate::vfs::Vfs::choose_streams).
pub const TIDEGATE_IOC_SET_STREAMS: u32 = 0x4004_f575;

/// The streams that were chosen for a file: `_IOR(0xf5, 0x76, __u32)`.
pub const TIDEGATE_IOC_GET_STREAMS: u32 = 0x8004_f576;

const FS_IOC_GETFLAGS: u32 = 0x8008_6601;
const FS_IOC_SETFLAGS: u32 = 0x4008_6602;
const FS_IOC_GETVERSION: u32 = 0x8008_7601;
const FS_IOC_FSGETXATTR: u32 = 0x801c_581f;
const FS_IOC_FSSETXATTR: u32 = 0x401c_5820;
const FS_IOC_SHUTDOWN: u32 = 0x8004_587d;
const FITRIM: u32 = 0xc018_5879;
const F2FS_IOC_WRITE_CHECKPOINT: u32 = 0xf507;

/// `FS_SYNC_FL`. It is kept only for directories: the kernel does not report a write when it is made.
pub(crate) const SYNC: u32 = 0x8;
/// `FS_DIRSYNC_FL`.
pub(crate) const DIRSYNC: u32 = 0x1_0000;
/// `FS_*_FL` that users may set: immutable, append, nodump, noatime, dirsync, and sync for directories. A
/// format may have more.
const SETTABLE: u32 = 0x10 | 0x20 | 0x40 | 0x80 | DIRSYNC;
/// Each `FS_*_FL` with the equivalent bit of `FS_XFLAG_*`.
const XFLAGS: [(u32, u32); 5] = [(0x8, 0x20), (0x10, 0x8), (0x20, 0x10), (0x40, 0x80), (0x80, 0x40)];
/// Bytes of `struct fsxattr`.
const FSXATTR: usize = 28;

/// Arguments of `FS_IOC_SHUTDOWN`: before the end, everything is saved; names and attributes are saved;
/// nothing is saved, but fsynced files are safe.
const GOING_DOWN_FULLSYNC: u32 = 0;
const GOING_DOWN_METASYNC: u32 = 1;
const GOING_DOWN_NOSYNC: u32 = 2;

/// The place of an ioctl's argument in the caller's memory.
#[derive(Clone, Copy, Debug)]
pub struct UserPointer {
    /// The thread; 0 when it is in a PID namespace that is not visible here.
    pub pid: u32,
    /// Its address; 0 when it is not known.
    pub address: u64,
}

impl UserPointer {
    /// The number at the address. The calling program waits for the server meanwhile. `None` where the server
    /// may not read it.
    fn word(self) -> Option<u32> {
        if self.pid == 0 || self.address == 0 {
            return None;
        }
        let memory = File::open(format!("/proc/{}/mem", self.pid)).ok()?;
        let mut b = [0; 4];
        memory.read_exact_at(&mut b, self.address).ok()?;
        Some(u32::from_ne_bytes(b))
    }
}

impl Server {
    /// Whether an ioctl waits for the kernel to write its pages. Other threads must be free to serve these
    /// writes.
    pub fn ioctl_waits(cmd: u32) -> bool {
        matches!(cmd, F2FS_IOC_WRITE_CHECKPOINT | TIDEGATE_IOC_SYNC | FS_IOC_SHUTDOWN)
    }

    /// Executes an ioctl. Returns the bytes to copy out. `input` is what the kernel copied of the argument at
    /// `at`.
    ///
    /// # Errors
    /// `ENOTTY` for an unknown ioctl, `EPERM`, `EINVAL`, `EOPNOTSUPP`.
    pub fn ioctl(
        &self,
        caller: &Caller,
        node: u64,
        cmd: u32,
        input: &[u8],
        at: UserPointer,
    ) -> Result<Vec<u8>> {
        match cmd {
            FS_IOC_GETFLAGS => Ok(self.inode(node)?.attr().flags.to_le_bytes().to_vec()),
            FS_IOC_SETFLAGS => self.set_flags(caller, node, word(input, 0)?),
            // The ioctl is declared with a long, but programs use an int.
            FS_IOC_GETVERSION => Ok(self.inode(node)?.attr().generation.to_le_bytes().to_vec()),
            FS_IOC_FSGETXATTR => self.fs_get_xattr(node),
            FS_IOC_FSSETXATTR => self.fs_set_xattr(caller, node, input),
            TIDEGATE_IOC_SET_STREAMS => {
                self.vfs()
                    .choose_streams(&caller.cred(), &*self.inode(node)?, word(input, 0)?)
                    .map_errno()?;
                Ok(Vec::new())
            }
            TIDEGATE_IOC_GET_STREAMS => {
                let streams = self.vfs().fs().chosen_streams(&*self.inode(node)?).map_errno()?;
                Ok(streams.to_le_bytes().to_vec())
            }
            FITRIM => self.trim(caller, input),
            F2FS_IOC_WRITE_CHECKPOINT | TIDEGATE_IOC_SYNC => {
                if cmd == F2FS_IOC_WRITE_CHECKPOINT {
                    self.check_admin(caller)?;
                }
                self.sync_all().map(|()| Vec::new())
            }
            FS_IOC_SHUTDOWN => self.shutdown(caller, at),
            _ => Err(Errno::NOTTY),
        }
    }

    fn sync_all(&self) -> Result<()> {
        if let Some(kernel) = self.kernel() {
            kernel.write_back_all();
            // The call above does not wait until the pages have arrived. This one does, for files that may
            // have dirty pages.
            for node in self.written_nodes() {
                kernel.write_back(node, 0);
            }
        }
        self.vfs().sync().map_errno()
    }

    fn set_flags(&self, caller: &Caller, node: u64, flags: u32) -> Result<Vec<u8>> {
        let inode = self.inode(node)?;
        let old = inode.attr().flags;
        let settable = SETTABLE | self.vfs().fs().own_flags() | if inode.is_dir() { SYNC } else { 0 };
        if (flags ^ old) & !settable != 0 {
            return Err(Errno::OPNOTSUPP);
        }
        if self.before_5_13.load(Relaxed) {
            self.check_owner(&inode, caller)?;
            let forbids = (flags ^ old) & (IMMUTABLE | APPEND_ONLY) != 0;
            if forbids && !caller.is_capable(Capability::LinuxImmutable) {
                return Err(Errno::PERM);
            }
        }
        if (flags ^ old) & JOURNAL_DATA != 0 {
            // All users share the journal's space. The kernel leaves the check to the server.
            self.check_admin(caller)?;
        }
        let set = SetAttr { flags: Some(flags), ..SetAttr::default() };
        self.vfs().setattr(ROOT, &inode, &set).map_errno()?;
        // The kernel must ask for the time of the change, and a program that has the file open for writing
        // must get an error if it is now immutable.
        self.have_asked(node);
        Ok(Vec::new())
    }

    fn fs_get_xattr(&self, node: u64) -> Result<Vec<u8>> {
        let flags = self.inode(node)?.attr().flags;
        let xflags = XFLAGS.iter().filter(|(f, _)| flags & f != 0).fold(0u32, |x, (_, b)| x | b);
        let mut out = vec![0; FSXATTR];
        out[..4].copy_from_slice(&xflags.to_le_bytes());
        Ok(out)
    }

    fn fs_set_xattr(&self, caller: &Caller, node: u64, input: &[u8]) -> Result<Vec<u8>> {
        let xflags = word(input, 0)?;
        let known = XFLAGS.iter().fold(0, |x, (_, b)| x | b);
        // The formats have neither extent sizes nor project ids.
        let others = input.get(4..20).ok_or(Errno::INVAL)?;
        if xflags & !known != 0 || others[..4].iter().chain(&others[8..12]).any(|b| *b != 0) {
            return Err(Errno::OPNOTSUPP);
        }
        let old = self.inode(node)?.attr().flags;
        let flags = XFLAGS.iter().fold(old, |f, (fl, b)| if xflags & b != 0 { f | fl } else { f & !fl });
        self.set_flags(caller, node, flags)
    }

    fn trim(&self, caller: &Caller, input: &[u8]) -> Result<Vec<u8>> {
        self.check_admin(caller)?;
        let at = |i: usize| -> Result<u64> {
            let b = input.get(i..i + 8).ok_or(Errno::INVAL)?;
            Ok(u64::from_le_bytes(b.try_into().map_err(|_| Errno::INVAL)?))
        };
        let (start, len, minlen) = (at(0)?, at(8)?, at(16)?);
        let s = self.vfs().statfs();
        let size = s.block_size as u64;
        if len < size || start >= s.blocks.saturating_mul(size) {
            return Err(Errno::INVAL);
        }
        let trimmed = self.volume.ops().trim(start..start.saturating_add(len), minlen).map_errno()?;
        // Blocks that are reserved for cleaning are trimmed, too, but are not reported as free elsewhere.
        let trimmed = trimmed.min(s.blocks_free.saturating_mul(size));
        Ok([start, trimmed, minlen].iter().flat_map(|v| v.to_le_bytes()).collect())
    }

    /// Stops the volume. The ioctl is declared as one that reads, so the kernel does not copy its argument
    /// in. Where the server cannot fetch the argument, everything is saved.
    fn shutdown(&self, caller: &Caller, at: UserPointer) -> Result<Vec<u8>> {
        self.check_admin(caller)?;
        let saved = match at.word().unwrap_or(GOING_DOWN_FULLSYNC) {
            GOING_DOWN_FULLSYNC => self.sync_all(),
            GOING_DOWN_METASYNC => self.vfs().fs().sync_fs().map_errno(),
            GOING_DOWN_NOSYNC => Ok(()),
            _ => return Err(Errno::INVAL),
        };
        self.vfs().fs().shutdown();
        saved.map(|()| Vec::new())
    }
}

/// Makes all data and changes durable of the volume that is mounted at `path` or above.
///
/// # Errors
/// `path` is in no mounted volume, or may not be opened; data could not be written.
pub fn full_sync(path: &Path) -> io::Result<()> {
    match tidegate_sys::host::ioctl_without_argument::<{ TIDEGATE_IOC_SYNC as _ }>(File::open(path)?) {
        Err(Errno::NOTTY) => Err(io::Error::other("not in a mounted volume")),
        r => r.map_err(io::Error::from),
    }
}

fn word(input: &[u8], at: usize) -> Result<u32> {
    let b = input.get(at..at + 4).ok_or(Errno::INVAL)?;
    Ok(u32::from_le_bytes(b.try_into().map_err(|_| Errno::INVAL)?))
}
