//! Makes a manifest of a mounted tree.
//!
//! Names are reached through `/proc/self/fd/N/name`, so paths longer than the
//! kernel's limit work and no name is followed out of the tree.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rustix::io::Errno;

use super::{Builder, Entry, Kind, Manifest, Time, escape, hash_file, hex};

/// Describes every name below (and including) a directory.
pub fn walk(dir: &Path) -> Result<Manifest> {
    let mut builder = Builder::new();
    let top = File::open(dir).with_context(|| format!("opening {}", dir.display()))?;
    if !top.metadata()?.is_dir() {
        bail!("{} is not a directory", dir.display());
    }
    let here = fd_path(&top).join(".");
    let (entry, ino) = describe(&mut HashMap::new(), &here)?;
    builder.push(b"", ino, entry);
    descend(&mut builder, &mut HashMap::new(), &top, &mut Vec::new())?;
    Ok(builder.finish())
}

/// Inodes with several names, by device and inode number.
///
/// This saves calls into a guest's kernel, which are slow enough to matter.
type Linked = HashMap<(u64, u64), Entry>;

fn fd_path(dir: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", dir.as_raw_fd()))
}

fn descend(builder: &mut Builder, linked: &mut Linked, dir: &File, path: &mut Vec<u8>) -> Result<()> {
    let base = fd_path(dir);
    let list = fs::read_dir(&base).with_context(|| format!("listing {}", escape(path)))?;
    for item in list {
        let name = item.with_context(|| format!("listing {}", escape(path)))?.file_name();
        let keep = path.len();
        if keep > 0 {
            path.push(b'/');
        }
        path.extend_from_slice(name.as_bytes());
        let at = base.join(&name);
        let (entry, ino) = describe(linked, &at).with_context(|| escape(path))?;
        let is_dir = entry.kind == Kind::Dir;
        builder.push(path, ino, entry);
        if is_dir {
            let below = File::open(&at).with_context(|| format!("opening {}", escape(path)))?;
            descend(builder, linked, &below, path)?;
        }
        path.truncate(keep);
    }
    Ok(())
}

fn describe(linked: &mut Linked, at: &Path) -> Result<(Entry, u64)> {
    let meta = fs::symlink_metadata(at).context("stat")?;
    let id = (meta.dev(), meta.ino());
    if let Some(seen) = linked.get(&id) {
        return Ok((seen.clone(), meta.ino()));
    }
    let Some(kind) = Kind::from_mode(meta.mode()) else { bail!("unknown file type {:o}", meta.mode()) };
    let mut entry = Entry {
        path: String::new(),
        kind,
        mode: meta.mode() & 0o7777,
        uid: meta.uid(),
        gid: meta.gid(),
        size: None,
        mtime: Time(meta.mtime(), meta.mtime_nsec() as u32),
        nlink: None,
        same_as: None,
        rdev: None,
        target: None,
        crc32: None,
        xattrs: xattrs(at).context("extended attributes")?,
    };
    match kind {
        Kind::File => {
            entry.size = Some(meta.len());
            entry.crc32 = Some(match meta.len() {
                0 => 0,
                len => hash_file(&File::open(at).context("open")?, len)?,
            });
        }
        Kind::Symlink => {
            entry.size = Some(meta.len());
            let target = fs::read_link(at).context("readlink")?;
            entry.target = Some(escape(target.as_os_str().as_bytes()));
        }
        Kind::Char | Kind::Block => {
            entry.rdev = Some((rustix::fs::major(meta.rdev()), rustix::fs::minor(meta.rdev())));
        }
        Kind::Dir | Kind::Fifo | Kind::Socket => {}
    }
    if kind != Kind::Dir {
        entry.nlink = Some(meta.nlink());
        if meta.nlink() > 1 {
            linked.insert(id, entry.clone());
        }
    }
    Ok((entry, meta.ino()))
}

fn xattrs(at: &Path) -> Result<BTreeMap<String, String>> {
    let names = match grown(|buf| rustix::fs::llistxattr(at, buf)) {
        Ok(names) => names,
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(BTreeMap::new()),
        Err(e) => return Err(e).context("listing"),
    };
    let mut out = BTreeMap::new();
    for name in names.split(|&b| b == 0).filter(|n| !n.is_empty()) {
        match grown(|buf| rustix::fs::lgetxattr(at, name, buf)) {
            Ok(value) => {
                out.insert(escape(name), hex(&value));
            }
            // Security modules list names that the file system did not store.
            Err(Errno::NODATA | Errno::OPNOTSUPP) => {}
            Err(e) => return Err(e).with_context(|| escape(name)),
        }
    }
    Ok(out)
}

/// Calls with a larger buffer until the result fits.
fn grown(mut call: impl FnMut(&mut [u8]) -> Result<usize, Errno>) -> Result<Vec<u8>, Errno> {
    let mut buf = vec![0; 512];
    loop {
        match call(&mut buf) {
            Ok(len) => {
                buf.truncate(len);
                return Ok(buf);
            }
            Err(Errno::RANGE) if buf.len() < 1 << 20 => buf.resize(buf.len() * 8, 0),
            Err(e) => return Err(e),
        }
    }
}
