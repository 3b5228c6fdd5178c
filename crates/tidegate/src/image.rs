//! The file in which a new volume is made.
//!
//! A new image has no name until it is complete, and an image that it replaces stays until then. So neither a
//! failure nor a killed process leaves half an image. Only a device, or a file with other names, is written
//! in place: see [`Unfinished`].

use crate::error::{About, Error, Refusal, Result, path_bytes};
use crate::found::{Found, found};
use crate::host;
use crate::paths::temporary;
use crate::unfinished::Unfinished;
use crate::within::within;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, PROC_SUPER_MAGIC, StatxAttributes, StatxFlags, XattrFlags};
use std::fs::Permissions;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::NamedTempFile;
use tidegate_block::{Backend, Device, Errno, OpenOptions};

/// The file at a path where a volume is to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// Nothing.
    Nothing,
    /// A file of so many bytes, and its device and inode number.
    File(u64, (u64, u64)),
    /// A block device.
    Device,
}

/// Finds out which file is at `path`.
///
/// # Errors
/// It is another kind of file, or stat(2) fails.
pub fn existing(path: &Path) -> Result<Existing> {
    let m = match std::fs::metadata(path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Existing::Nothing),
        r => r.about(path_bytes(path))?,
    };
    match m.file_type() {
        t if t.is_file() => Ok(Existing::File(m.len(), (m.dev(), m.ino()))),
        t if t.is_block_device() => Ok(Existing::Device),
        t if t.is_dir() => Err(Error::refused(Refusal::NoVolume, path, "not an image: is a directory")),
        _ => Err(Error::refused(Refusal::NoVolume, path, "not an image: neither a file nor a block device")),
    }
}

/// Refuses a path such as `disk.img@1M`.
///
/// # Errors
/// The path is a place in a disk.
pub fn refuse_within(path: &Path) -> Result<()> {
    if within(path).1.is_none() {
        return Ok(());
    }
    let what =
        "a place in a disk, where no volume can be made; losetup --offset --sizelimit makes a device of it";
    Err(Error::argument(path, what))
}

/// The right to make a volume at a path: no program has the old file open, and it will not be missed.
pub struct Claim {
    path: PathBuf,
    there: Existing,
    found: Found,
    /// The file there, locked. Dropped to be opened again where the file is written in place.
    held: Option<Arc<dyn Device>>,
}

impl Claim {
    /// Claims `path`. With `force`, the old file may be lost, whatever it holds.
    ///
    /// # Errors
    /// The file is in use; it holds something; the path is a place in a disk.
    pub fn new(path: &Path, force: bool, backend: Backend) -> Result<Claim> {
        refuse_within(path)?;
        let there = existing(path)?;
        let end = end_of(path);
        // Another program may have changed the links meanwhile.
        let at = if existing(&end).ok() == Some(there) { end } else { path.to_path_buf() };
        let mut claim = Claim { path: at, there, found: Found::Nothing, held: None };
        if there == Existing::Nothing {
            return Ok(claim);
        }
        claim.held = Some(open(path, path, None, backend)?);
        claim.found = found(path)?;
        let why = match claim.found {
            Found::Other(what) => what,
            Found::F2fs => "an f2fs volume",
            _ => return Ok(claim),
        };
        if force {
            return Ok(claim);
        }
        let how = "mkfs would destroy it; if that is wanted, add --force (-f)";
        Err(Error::refused(Refusal::Occupied, path, format!("holds {why}: {how}")))
    }

    /// The file at the path.
    pub fn there(&self) -> Existing {
        self.there
    }

    /// Whether the old file could be missed.
    pub fn holds_something(&self) -> bool {
        self.found != Found::Nothing
    }

    /// The file at the path, opened and locked.
    pub(crate) fn held(&self) -> Option<&Arc<dyn Device>> {
        self.held.as_ref()
    }

    /// Whether a new file can replace the old one: the old file has only this name, and is not itself a mount
    /// point.
    fn gives_way(&self) -> bool {
        let only = std::fs::symlink_metadata(&self.path).is_ok_and(|m| m.is_file() && m.nlink() == 1);
        only && is_mount_root(&self.path) == Some(false)
    }
}

/// A file being made into an image.
pub struct NewImage {
    /// The opened device, locked.
    pub device: Arc<dyn Device>,
    path: PathBuf,
    state: State,
    /// It replaces another file.
    replaces: bool,
}

enum State {
    /// It existed before, and stays.
    Old,
    /// It has a temporary name: for file systems without unnamed files. It is removed unless it is finished.
    Named(NamedTempFile),
    /// It gets its name when it is finished.
    Unnamed(OwnedFd),
}

impl NewImage {
    /// Makes a file of `size` bytes, or opens the claimed file, emptied and of that size. A device stays as
    /// it is. A new file replaces the old one where `replace` says so and the new file can get its owner,
    /// mode and attributes.
    ///
    /// # Errors
    /// The file is in use; no permission; no space.
    pub fn create(
        claim: &mut Claim,
        size: u64,
        replace: bool,
        backend: Backend,
        unfinished: &Unfinished,
    ) -> Result<NewImage> {
        let path = claim.path.clone();
        let there = claim.there;
        let done = |device, state, replaces| NewImage { device, path: path.clone(), state, replaces };
        let replaces = there != Existing::Nothing;
        if !replaces || replace && claim.gives_way() {
            let made = fresh(&path, if replaces { 0o600 } else { 0o666 })
                .and_then(|made| if replaces { like(&made.0, &path).map(|()| made) } else { Ok(made) });
            match made {
                Ok((state, at)) => {
                    unfinished.beside(matches!(state, State::Named(_)).then(|| at.clone()));
                    return Ok(done(open(&path, &at, Some(size), backend)?, state, replaces));
                }
                Err(e) if !replaces => return Err(Error::os(path_bytes(&path), e)),
                Err(_) => {}
            }
        }
        claim.held = None;
        let create = (there != Existing::Device).then_some(size);
        let device = unfinished.in_place(|| open(&path, &path, create, backend))?;
        Ok(done(device, State::Old, false))
    }

    /// Device and inode number, if it is not the file that existed.
    pub fn id(&self) -> Option<(u64, u64)> {
        let st = match &self.state {
            State::Old => return None,
            State::Named(f) => rustix::fs::fstat(f.as_file()),
            State::Unnamed(fd) => rustix::fs::fstat(fd),
        };
        st.ok().map(|st| host::id(&st))
    }

    /// Whether the volume is made in the file that existed.
    pub fn in_place(&self) -> bool {
        matches!(self.state, State::Old)
    }

    /// Gives the complete volume its name.
    ///
    /// # Errors
    /// Another file took the name meanwhile.
    pub fn finish(self) -> Result<()> {
        let about = path_bytes(&self.path);
        match self.state {
            State::Old => Ok(()),
            State::Named(f) if self.replaces => {
                f.persist(&self.path).map(drop).map_err(|e| e.error).about(about)
            }
            State::Named(f) => f.persist_noclobber(&self.path).map(drop).map_err(|e| e.error).about(about),
            State::Unnamed(fd) => {
                let from = format!("/proc/self/fd/{}", fd.as_raw_fd());
                let beside = dir_of(&self.path).join(temporary());
                let to = if self.replaces { &beside } else { &self.path };
                rustix::fs::linkat(CWD, from, CWD, to, AtFlags::SYMLINK_FOLLOW).about(about)?;
                if !self.replaces {
                    return Ok(());
                }
                std::fs::rename(&beside, &self.path).about(about).inspect_err(|_| {
                    let _ = std::fs::remove_file(&beside);
                })
            }
        }
    }
}

/// Opens `at`, which errors call `path`.
fn open(path: &Path, at: &Path, create: Option<u64>, backend: Backend) -> Result<Arc<dyn Device>> {
    let o = OpenOptions { read_only: false, backend, direct: true, claimed: false, create };
    tidegate_block::file::open(at, o).map_err(|e| match Error::open(&path.into(), e) {
        Error::Os(what, e) if e.raw_os_error() == Some(Errno::FBIG.raw_os_error()) => Error::refused(
            Refusal::NoRoom,
            what,
            "larger than a file can be where it is kept; choose a smaller --size",
        ),
        e => e,
    })
}

/// A new file for the volume at `path`, and a path by which to open it.
fn fresh(path: &Path, mode: u32) -> std::io::Result<(State, PathBuf)> {
    if let Some(fd) = unnamed(path, mode) {
        let at = PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()));
        return Ok((State::Unnamed(fd), at));
    }
    let mut builder = tempfile::Builder::new();
    builder.prefix(".tidegate-").permissions(Permissions::from_mode(mode));
    let file = builder.tempfile_in(dir_of(path))?;
    let at = file.path().to_path_buf();
    Ok((State::Named(file), at))
}

/// Gives a new file the attributes of the file at `path` that are to be kept.
fn like(state: &State, path: &Path) -> std::io::Result<()> {
    let new = match state {
        State::Old => return Ok(()),
        State::Named(f) => f.as_file().as_fd(),
        State::Unnamed(fd) => fd.as_fd(),
    };
    let old = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let (was, is) = (rustix::fs::fstat(&old)?, rustix::fs::fstat(new)?);
    if (was.st_uid, was.st_gid) != (is.st_uid, is.st_gid) {
        let (uid, gid) = (rustix::fs::Uid::from_raw(was.st_uid), rustix::fs::Gid::from_raw(was.st_gid));
        rustix::fs::fchown(new, Some(uid), Some(gid))?;
    }
    for (name, value) in host::xattrs_of(&old)? {
        rustix::fs::fsetxattr(new, &name[..], &value, XattrFlags::empty())?;
    }
    Ok(rustix::fs::fchmod(new, Mode::from_raw_mode(was.st_mode & 0o7777))?)
}

/// The directory that a path lies in.
pub fn dir_of(path: &Path) -> &Path {
    match path.parent() {
        Some(p) if !p.as_os_str().is_empty() => p,
        _ => Path::new("."),
    }
}

/// The end of `path` if it is a symbolic link: the file is made there, and the links stay. A link of the
/// kernel's (/proc/self/fd) leads to an open file, not to a name: then it is `path` itself.
fn end_of(path: &Path) -> PathBuf {
    const MAX_LINKS: usize = 40;
    let mut end = path.to_path_buf();
    for _ in 0..MAX_LINKS {
        let Ok(to) = std::fs::read_link(&end) else { break };
        if rustix::fs::statfs(dir_of(&end)).is_ok_and(|s| s.f_type == PROC_SUPER_MAGIC) {
            return path.to_path_buf();
        }
        end = dir_of(&end).join(to);
    }
    end
}

/// Whether something is mounted at `path`, where the kernel tells.
fn is_mount_root(path: &Path) -> Option<bool> {
    let root = StatxAttributes::MOUNT_ROOT;
    let st = rustix::fs::statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BASIC_STATS).ok()?;
    st.stx_attributes_mask.contains(root).then(|| st.stx_attributes.contains(root))
}

/// A file without a name where `path` will be, if the file system has such files.
fn unnamed(path: &Path, mode: u32) -> Option<OwnedFd> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let fd = rustix::fs::open(dir_of(path), flags, Mode::from_raw_mode(mode)).ok()?;
    // Without /proc the file could neither be opened again nor get a name.
    Path::new(&format!("/proc/self/fd/{}", fd.as_raw_fd())).exists().then_some(fd)
}
