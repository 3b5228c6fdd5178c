//! Mounting at a directory, which gives a connection to the kernel, and unmounting.

use crate::options::{MountOptions, NOSYMFOLLOW};
use crate::transport::MAX_IO;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags, open, statx};
use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use std::ffi::CString;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use tidegate::holder::MOUNTS;
use tidegate_block::PAGE_SIZE;
use tidegate_block::claim::Claim;
use tidegate_rt::thread;

const DEVICE: &str = "/dev/fuse";
const HELPER: &str = "fusermount3";
/// An attribute that no file has. A read-only volume refuses to remove it.
const NO_ATTRIBUTE: &str = "user.tidegate.none";
/// How far the kernel reads ahead, in KiB: two requests.
const READ_AHEAD: u32 = 2 * (MAX_IO >> 10);
/// The share of the machine's dirty pages that one mount may have, in percent.
const MAX_RATIO: u32 = 40;

/// Mounts at `dir`: by mount(2) where that is allowed, else through `fusermount3`. `source` is the name in
/// the mount table. The first message of the connection is not answered yet.
///
/// A claimed block device is mounted as `fuseblk`, if the kernel supports that: then the kernel takes the
/// claim over, umount(2) waits until the volume is unmounted, and sync(2) is passed on. Otherwise the claim
/// is taken back.
///
/// # Errors
/// There is no /dev/fuse, no right to mount there, no `fusermount3`; the message of `fusermount3`. Another
/// program has claimed the device.
pub fn mount(
    source: &str,
    dir: &Path,
    options: &MountOptions,
    claim: Option<&mut Claim>,
) -> io::Result<OwnedFd> {
    if let Some(claim) = claim {
        claim.release();
        let device = open(DEVICE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
        match device.and_then(|fd| by_syscall(source, fd, dir, options, Kind::BlockDevice)) {
            Ok(fd) => return Ok(fd),
            Err(_) => claim
                .take()
                .map_err(|_| io::Error::other(format!("{source}: another program has taken it meanwhile")))?,
        }
    }
    let device = open(DEVICE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
    if let Err(Errno::NOENT | Errno::NODEV | Errno::NXIO) = device {
        let what = "missing, or nothing is behind it: load the kernel's module (modprobe fuse); in a container, give it \
                    the device (docker run --device /dev/fuse --cap-add SYS_ADMIN)";
        return Err(io::Error::other(format!("{DEVICE} is {what}")));
    }
    if !options.auto_unmount {
        match device.and_then(|fd| by_syscall(source, fd, dir, options, Kind::File)) {
            Err(Errno::PERM | Errno::ACCESS) => {}
            r => return r.map_err(io::Error::from),
        }
    }
    let connection = by_helper(source, dir, options)?;
    complete(dir, options).inspect_err(|_| drop(unmount(dir, true)))?;
    Ok(connection)
}

/// Gives a mount of `fusermount3` the flags that `fusermount3` does not know, or permits only to the
/// superuser.
fn complete(dir: &Path, options: &MountOptions) -> io::Result<()> {
    let known = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    let wanted = options.flags & (known | NOSYMFOLLOW);
    let has = MountFlags::NOSUID | MountFlags::NODEV | options.flags & MountFlags::NOEXEC;
    if wanted == has {
        return Ok(());
    }
    let mut flags = wanted | MountFlags::BIND;
    flags.set(MountFlags::RDONLY, options.read_only);
    match rustix::mount::mount_remount(dir, flags, c"") {
        // An ordinary user may not remove restrictions.
        Err(Errno::PERM) if has.contains(wanted) => Ok(()),
        Err(e) => Err(io::Error::other(format!("{HELPER} does not know nosymfollow, and: {e}"))),
        Ok(()) => Ok(()),
    }
}

/// Remounts the mount at `dir`: read-only or not, and with the flags of `options`. All its content is durable
/// afterwards.
///
/// # Errors
/// `EPERM` for a caller that is not the superuser, `EBUSY` for read-only while a file is open for writing;
/// the volume was opened read-only, and cannot become writable; data could not be written.
pub fn remount(dir: &Path, options: &MountOptions) -> io::Result<()> {
    let mut flags = options.flags;
    flags.set(MountFlags::RDONLY, options.read_only);
    rustix::mount::mount_remount(dir, flags, c"")?;
    if !options.read_only && rustix::fs::removexattr(dir, NO_ATTRIBUTE) == Err(Errno::ROFS) {
        rustix::mount::mount_remount(dir, flags | MountFlags::RDONLY, c"")?;
        return Err(io::Error::other("the volume was opened read-only: unmount it, and mount it again"));
    }
    crate::ioctl::full_sync(dir)
}

/// The end of the name that the kernel gives to the limits of a block device's mount.
const OF_DEVICE: &str = "-fuseblk";

/// The type of a mount, as an index of [`MOUNTS`].
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    File,
    BlockDevice,
}

fn by_syscall(
    source: &str,
    fd: OwnedFd,
    dir: &Path,
    options: &MountOptions,
    kind: Kind,
) -> Result<OwnedFd, Errno> {
    let mode = rustix::fs::stat(dir)?.st_mode;
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let mut data = format!("fd={},rootmode={mode:o},user_id={uid},group_id={gid}", fd.as_raw_fd());
    data.push_str(",default_permissions");
    if options.allow_other {
        data.push_str(",allow_other");
    }
    if kind == Kind::BlockDevice {
        data.push_str(&format!(",blksize={PAGE_SIZE}"));
    }
    let data = CString::new(data).map_err(|_| Errno::INVAL)?;
    let mut flags = options.flags;
    flags.set(MountFlags::RDONLY, options.read_only);
    rustix::mount::mount(source, dir, MOUNTS[kind as usize], flags, data.as_c_str())?;
    Ok(fd)
}

/// The options in the words of `fusermount3`.
fn words(source: &str, options: &MountOptions) -> String {
    // A comma in the name would end it.
    let name = source.replace('\\', "\\\\").replace(',', "\\,");
    let mut w = format!("fsname={name},subtype=tidegate,default_permissions");
    for (on, word) in [
        (options.read_only, "ro"),
        (options.allow_other, "allow_other"),
        (options.auto_unmount, "auto_unmount"),
        (options.flags.contains(MountFlags::NOEXEC), "noexec"),
        (options.flags.contains(MountFlags::SYNCHRONOUS), "sync"),
        (options.flags.contains(MountFlags::DIRSYNC), "dirsync"),
    ] {
        if on {
            w.push(',');
            w.push_str(word);
        }
    }
    w
}

fn by_helper(source: &str, dir: &Path, options: &MountOptions) -> io::Result<OwnedFd> {
    let (ours, theirs) = UnixStream::pair()?;
    fcntl_setfd(&theirs, FdFlags::empty())?;
    let mut child = Command::new(HELPER)
        .args(["-o", &words(source, options), "--"])
        .arg(dir)
        .env("_FUSE_COMMFD", theirs.as_raw_fd().to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| io::Error::new(e.kind(), format!("{HELPER}: {e}")))?;
    drop(theirs);
    match receive_fd(&ours)? {
        Some(fd) => {
            if options.auto_unmount {
                // fusermount3 unmounts when this end is closed, which is at the end of the process.
                std::mem::forget(ours);
            } else {
                // It is done; a process that nobody waits for stays in the table of processes.
                let _ = child.wait();
            }
            Ok(fd)
        }
        None => {
            let said = child.wait_with_output()?.stderr;
            let said = String::from_utf8_lossy(&said);
            let said = said.trim();
            Err(io::Error::other(if said.is_empty() { "fusermount3 gave no connection" } else { said }))
        }
    }
}

fn receive_fd(socket: &UnixStream) -> io::Result<Option<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut messages = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    loop {
        let mut io = [IoSliceMut::new(&mut byte)];
        match rustix::net::recvmsg(socket, &mut io, &mut messages, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => continue,
            r => r?,
        };
        break;
    }
    Ok(messages.drain().find_map(|m| match m {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    }))
}

/// Unmounts `dir`. With `lazy` also while it is in use; from then on the mount has no path.
///
/// # Errors
/// `ResourceBusy` while it is in use; the message of `fusermount3`.
pub fn unmount(dir: &Path, lazy: bool) -> io::Result<()> {
    let flags = if lazy { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    // The target of a link may change meanwhile, so the real path is used. A path that is dead or not
    // accessible is no link.
    let real = std::fs::canonicalize(dir).unwrap_or_else(|_| dir.to_path_buf());
    match rustix::mount::unmount(&real, flags | UnmountFlags::NOFOLLOW) {
        Err(Errno::PERM) => {}
        r => return r.map_err(io::Error::from),
    }
    let out = Command::new(HELPER)
        .arg(if lazy { "-uz" } else { "-u" })
        .arg("--")
        .arg(dir)
        .stdin(Stdio::null())
        .output()
        .map_err(|e| io::Error::new(e.kind(), format!("{HELPER}: {e}")))?;
    match out.status.success() {
        true => Ok(()),
        false => {
            let said = String::from_utf8_lossy(&out.stderr).trim().to_string();
            // fusermount3 prints the text of strerror(3).
            let busy = said.ends_with("busy");
            Err(io::Error::new(if busy { io::ErrorKind::ResourceBusy } else { io::ErrorKind::Other }, said))
        }
    }
}

/// Unmounts `dir`, which this process serves. With `wait`, returns when that is done. For a block device, the
/// caller of umount(2) waits for an answer of the server, and the wait cannot be interrupted: a thread of
/// this process in that wait would keep the connection open after the end of the process. So another process
/// calls umount(2).
///
/// # Errors
/// As [`unmount`]. Without `wait`, failures are not reported.
pub(crate) fn unmount_own(dir: &Path, lazy: bool, wait: bool) -> io::Result<()> {
    if !bdi(dir).is_some_and(|d| d.to_string_lossy().ends_with(OF_DEVICE)) {
        return unmount(dir, lazy);
    }
    let mut child = Command::new("umount");
    child.args(lazy.then_some("-l")).arg(dir);
    let mut child = child.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    match !wait || child.wait()?.success() {
        true => Ok(()),
        false => Err(Errno::BUSY.into()),
    }
}

/// Whether `dir` is a mount whose process died.
pub fn is_dead(dir: &Path) -> bool {
    // With io_uring the connection lives a moment longer than the process. Requests in that time end with
    // these errors.
    let given_up = [Errno::CONNABORTED, Errno::CANCELED];
    for _ in 0..100 {
        // The kernel answers stat(2) from memory, but sends a request for statvfs(2).
        match rustix::fs::statvfs(dir) {
            Err(e) if given_up.contains(&e) => thread::sleep(Duration::from_millis(10)),
            r => return r.is_err_and(|e| e == Errno::NOTCONN),
        }
    }
    false
}

/// The device numbers of the last mount at `dir`. Only the kernel is asked, not the server.
pub(crate) fn device(dir: &Path) -> Option<(u32, u32)> {
    let s = statx(CWD, dir, AtFlags::STATX_DONT_SYNC, StatxFlags::empty()).ok()?;
    Some((s.stx_dev_major, s.stx_dev_minor))
}

/// The kernel's directory with the limits of the mount at `dir`.
pub(crate) fn bdi(dir: &Path) -> Option<PathBuf> {
    let (major, minor) = device(dir)?;
    // For a block device, that name belongs to the device's own limits; those of the mount have another name.
    let own = format!("/sys/class/bdi/{major}:{minor}");
    let of_device = PathBuf::from(format!("{own}{OF_DEVICE}"));
    Some(if of_device.exists() { of_device } else { own.into() })
}

/// Has the kernel treat the mount's pages as those of a disk; only the superuser may do that. The kernel
/// reads two requests ahead. And writers are not throttled at a hundredth of the dirty limit, which is FUSE's
/// default against servers that never write: this server is trusted no less than the device below it. The
/// bound for writers is in `dirty_bound`.
pub fn tune(dir: &Path) {
    let Some(bdi) = bdi(dir) else { return };
    for (name, value) in [("read_ahead_kb", READ_AHEAD), ("max_ratio", MAX_RATIO), ("strict_limit", 0)] {
        // Some kernels do not have the setting.
        let _ = std::fs::write(bdi.join(name), value.to_string());
    }
}
