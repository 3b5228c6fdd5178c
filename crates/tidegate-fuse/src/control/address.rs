//! The place of the socket of a mount.
//!
//! It is in `/run/tidegate` for the superuser, else in `$XDG_RUNTIME_DIR/tidegate`. Where neither is possible, it is in
//! `tidegate-UID` in a directory that all users may write to. Another user may have taken that name there, so there are
//! several such directories. The socket's name consists of the numbers by which the system knows the image.

use rustix::fs::{FileType, Stat, stat};
use rustix::io::Errno;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tidegate::within::within;

/// The socket's name. It is equal for every path of the image.
fn name(image: &Stat) -> String {
    match FileType::from_raw_mode(image.st_mode) {
        FileType::BlockDevice => format!("b{:x}.sock", image.st_rdev),
        _ => format!("{:x}-{:x}.sock", image.st_dev, image.st_ino),
    }
}

/// The numbers of the device that `image` is, or that it lies on.
pub(super) fn device(image: &Path) -> (u32, u32) {
    let Ok(s) = stat(image) else { return (0, 0) };
    let block = FileType::from_raw_mode(s.st_mode) == FileType::BlockDevice;
    let number = if block { s.st_rdev } else { s.st_dev };
    (rustix::fs::major(number), rustix::fs::minor(number))
}

/// Directories that all users may write to.
const SHARED: [&str; 3] = ["/tmp", "/var/tmp", "/dev/shm"];
/// A socket of this age that does not answer belongs to a server that has died.
const DEAD: Duration = Duration::from_secs(60);

/// The directories that may hold sockets of user `uid`, best first.
fn directories(uid: u32) -> Vec<PathBuf> {
    let mut dirs = Vec::new();
    if uid == 0 {
        dirs.push("/run/tidegate".into());
    } else {
        let own = rustix::process::geteuid().as_raw() == uid;
        let named = std::env::var_os("XDG_RUNTIME_DIR").filter(|d| own && !d.is_empty());
        let dir = named.map_or_else(|| PathBuf::from(format!("/run/user/{uid}")), PathBuf::from);
        dirs.push(dir.join("tidegate"));
    }
    for end in ["", ".1", ".2"] {
        dirs.extend(SHARED.map(|dir| PathBuf::from(format!("{dir}/tidegate-{uid}{end}"))));
    }
    dirs
}

/// Whether `dir` is a directory that only this user may access.
fn is_private(dir: &Path, uid: u32) -> bool {
    let meta = std::fs::symlink_metadata(dir);
    meta.is_ok_and(|m| m.is_dir() && m.uid() == uid && m.mode() & 0o077 == 0)
}

/// The path where the calling process puts the socket of a mount of `image`. Makes the directory.
///
/// # Errors
/// The image is missing, or there is no place for sockets.
pub(super) fn to_serve(image: &Path) -> io::Result<PathBuf> {
    let name = name(&stat(image)?);
    let uid = rustix::process::geteuid().as_raw();
    let mut why = io::Error::from(io::ErrorKind::NotFound);
    for dir in directories(uid) {
        match std::fs::DirBuilder::new().mode(0o700).create(&dir) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => why = e,
            _ if is_private(&dir, uid) => {
                sweep(&dir);
                return Ok(dir.join(name));
            }
            _ => why = io::Error::other(format!("{}: open to others", dir.display())),
        }
    }
    Err(why)
}

/// Removes the sockets in `dir` whose servers were killed. A young socket may belong to a server that is just starting.
fn sweep(dir: &Path) {
    let is_dead = |path: &Path| {
        let modified = std::fs::symlink_metadata(path).and_then(|m| m.modified());
        let is_old = modified.is_ok_and(|t| t.elapsed().is_ok_and(|age| age > DEAD));
        let refuses = |e: io::Error| e.kind() == io::ErrorKind::ConnectionRefused;
        is_old && UnixStream::connect(path).is_err_and(refuses)
    };
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|e| e == "sock") && is_dead(&path) {
            let _ = std::fs::remove_file(&path);
        }
    }
}

/// The sockets that a mount of `place` may have. `place` is an image, or a directory that is mounted or in a
/// mount. The superuser also finds the sockets of the user who mounted.
///
/// # Errors
/// `place` is missing, or a directory where no Tidegate volume is mounted.
pub fn to_ask(place: &Path) -> io::Result<Vec<PathBuf>> {
    let own = rustix::process::geteuid().as_raw();
    let (image, owner) = match mount_of(place)? {
        Some(mount) => (stat(&within(Path::new(&mount.source)).0)?, mount.owner),
        None => (stat(&within(place).0)?, own),
    };
    let mut users = vec![owner, own, image.st_uid];
    users.dedup();
    let mut sockets: Vec<PathBuf> = Vec::new();
    for uid in users {
        let dirs = directories(uid).into_iter().filter(|d| is_private(d, uid));
        sockets.extend(dirs.map(|d| d.join(name(&image))));
    }
    sockets.dedup();
    Ok(sockets)
}

/// A mount of a Tidegate volume.
#[derive(Debug, PartialEq)]
pub struct Mounted {
    /// The image.
    pub source: String,
    /// The directory.
    pub directory: String,
    /// The user who mounted it.
    pub owner: u32,
}

/// The mount at or around the directory `place`. `None` if `place` is no directory.
///
/// # Errors
/// `place` is missing, or a directory where no Tidegate volume is mounted; or a user mounted it and admits no
/// other user, which the error says with that user's number. The superuser does not act as that user: the
/// process that serves the mount decides what its paths mean, and how long an answer takes.
pub fn mount_of(place: &Path) -> io::Result<Option<Mounted>> {
    let nothing = || io::Error::other("no Tidegate volume is mounted here");
    let table = std::fs::read_to_string("/proc/self/mountinfo")?;
    match stat(place) {
        Err(Errno::ACCESS) => {
            let dir = unasked(place).ok_or(Errno::ACCESS)?;
            let found = mounts(&table).find(|(_, m)| Path::new(&m.directory) == dir);
            Err(found.map_or_else(|| Errno::ACCESS.into(), |(_, m)| closed(m.owner)))
        }
        Ok(s) if FileType::from_raw_mode(s.st_mode) == FileType::Directory => {
            mounted(&table, s.st_dev).map(Some).ok_or_else(nothing)
        }
        Ok(_) => Ok(None),
        Err(_) if within(place).1.is_some() => Ok(None),
        Err(e) => Err(e.into()),
    }
}

/// The Tidegate volume that is mounted at `place` itself, a path without links: a directory, or a file that
/// is bound there. Also whether the volume is mounted elsewhere, too.
pub fn mounted_at(place: &Path) -> Option<(Mounted, bool)> {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let (device, mount) = mounts(&table).find(|(_, m)| Path::new(&m.directory) == place)?;
    let places = mounts(&table).filter(|(d, _)| *d == device).count();
    Some((mount, places > 1))
}

fn closed(owner: u32) -> io::Error {
    io::Error::other(format!(
        "permission denied: mounted by user {owner} for nobody else; do it as that user (sudo -u '#{owner}' tidegate \
         ...), or let go of it by `umount --lazy`"
    ))
}

/// The absolute path of `place`, without a request to its server.
fn unasked(place: &Path) -> Option<PathBuf> {
    let name = place.file_name()?;
    let above = place.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Some(std::fs::canonicalize(above).ok()?.join(name))
}

/// The last mount of a Tidegate volume with this device number.
fn mounted(table: &str, device: u64) -> Option<Mounted> {
    let device = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    mounts(table).find(|(d, _)| *d == device).map(|(_, m)| m)
}

/// The mounts of Tidegate volumes with their device numbers, the last first.
fn mounts(table: &str) -> impl Iterator<Item = (&str, Mounted)> {
    table.lines().rev().filter_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let mut after = after.split(' ');
        let (kind, source, options) = (after.next()?, after.next()?, after.next().unwrap_or(""));
        if !tidegate::holder::MOUNTS.contains(&kind) {
            return None;
        }
        let mut before = before.split(' ').skip(2);
        let (device, directory) = (before.next()?, before.nth(1)?);
        let number = |key: &str| options.split(',').find_map(|o| o.strip_prefix(key)?.parse().ok());
        let mount = Mounted {
            source: unescaped(source),
            directory: unescaped(directory),
            owner: number("user_id=").unwrap_or(0),
        };
        Some((device, mount))
    })
}

/// A field of the mount table, where spaces, tabs, newlines and backslashes are written in octal.
fn unescaped(field: &str) -> String {
    let mut out = field.to_string();
    for (code, c) in [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")] {
        out = out.replace(code, c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_number_leads_to_the_image() {
        let table = "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
            40 22 0:51 / /mnt rw,nosuid - fuse.tidegate /a\\040b.img rw,user_id=1000,group_id=1000\n\
            41 22 0:52 / /other rw - fuse.sshfs host: rw,user_id=0\n";
        let device = |minor| rustix::fs::makedev(0, minor);
        let want = Mounted { source: "/a b.img".into(), directory: "/mnt".into(), owner: 1000 };
        assert_eq!(mounted(table, device(51)), Some(want));
        assert_eq!(mounted(table, device(52)), None);
        assert_eq!(mounted(table, rustix::fs::makedev(8, 1)), None);
    }
}
