//! A volume's tree as it is found: every name, attribute and byte.

use crate::Fault;
use crate::model::{Id, Link, ROOT};
use crate::stamp::PAGE;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tidegate::volume::Volume;
use tidegate_vfs::{Cred, ErrorKind, File, FileType, Ino, Inode, OpenFlags, Result, SeekTarget};

/// An object as it is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its inode.
    pub ino: Ino,
    /// Its type.
    pub kind: FileType,
    /// Its names.
    pub names: BTreeSet<Link>,
    /// Permission bits.
    pub mode: u32,
    /// Its group.
    pub gid: u32,
    /// The time of its last access, in seconds.
    pub atime: i64,
    /// Bytes.
    pub size: u64,
    /// Runs of data: the first page, and the bytes up to the end of the file. Bytes between runs read as
    /// zeros.
    pub data: Vec<(u64, Vec<u8>)>,
    /// Extended attributes.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The target of a symbolic link.
    pub target: Vec<u8>,
}

/// Objects by their number, which is the owner's user id.
pub type Tree = BTreeMap<Id, Found>;

/// A directory of a fresh volume, unknown to all runs.
const FROM_THE_BEGINNING: &[u8] = b"lost+found";
/// Files up to this size are read as a whole; of larger files, only the runs of data.
const READ_WHOLE: u64 = 64 << 10;

/// Reads a volume's whole tree.
///
/// # Errors
/// Something cannot be read; one object has two inodes.
pub fn walk(volume: &Volume) -> std::result::Result<Tree, Fault> {
    let fail = |e: tidegate_vfs::Error| Fault::new("P0", format!("reading the tree: {e}"));
    let mut tree = Tree::new();
    let root = volume.vfs().root().map_err(fail)?;
    tree.insert(ROOT, describe(volume, &root).map_err(fail)?);
    let mut pending = vec![(ROOT, root)];
    while let Some((dir_id, dir)) = pending.pop() {
        for e in volume.vfs().entries(&dir).map_err(fail)? {
            if dir_id == ROOT && e.name == FROM_THE_BEGINNING {
                continue;
            }
            let inode = volume.vfs().lookup(&dir, &e.name).map_err(fail)?;
            let id = inode.attr().uid;
            if let Some(known) = tree.get_mut(&id) {
                if known.ino != inode.ino {
                    let text = format!("inodes {} and {} both hold object {id}", known.ino, inode.ino);
                    return Err(Fault::new("P4", text));
                }
                known.names.insert((dir_id, e.name));
                continue;
            }
            let mut found = describe(volume, &inode).map_err(fail)?;
            found.names.insert((dir_id, e.name));
            tree.insert(id, found);
            if inode.is_dir() {
                pending.push((id, inode));
            }
        }
    }
    Ok(tree)
}

fn describe(volume: &Volume, inode: &Arc<Inode>) -> Result<Found> {
    let vfs = volume.vfs();
    let (kind, mode, size, gid, atime) = {
        let a = inode.attr();
        (a.file_type, a.mode, a.size, a.gid, a.atime.secs)
    };
    let mut xattrs = BTreeMap::new();
    for name in vfs.listxattr(&Cred::ROOT, inode)? {
        let value = vfs.getxattr(&Cred::ROOT, inode, &name)?;
        xattrs.insert(name, value);
    }
    let target = if kind == FileType::Symlink { vfs.readlink(inode)? } else { Vec::new() };
    let data = match kind {
        FileType::Regular => data(&vfs.open(&Cred::ROOT, inode, OpenFlags::READ | OpenFlags::NOATIME)?)?,
        _ => Vec::new(),
    };
    Ok(Found { ino: inode.ino, kind, names: BTreeSet::new(), mode, gid, atime, size, data, xattrs, target })
}

fn data(file: &File) -> Result<Vec<(u64, Vec<u8>)>> {
    let size = file.size();
    let read = |from: u64, to: u64| -> Result<(u64, Vec<u8>)> {
        let mut bytes = vec![0; (to - from) as usize];
        let n = file.read_at(from, &mut bytes)?;
        bytes.truncate(n);
        Ok((from / PAGE as u64, bytes))
    };
    if size <= READ_WHOLE {
        return Ok(vec![read(0, size)?]);
    }
    let mut runs = Vec::new();
    let mut at = 0;
    while at < size {
        let start = match file.seek(at, SeekTarget::Data) {
            Err(e) if e.kind() == ErrorKind::NoDeviceOrAddress => break,
            r => r?,
        };
        // Blocks may be smaller than pages.
        at = file.seek(start, SeekTarget::Hole)?.next_multiple_of(PAGE as u64).min(size);
        let start = start / PAGE as u64 * PAGE as u64;
        runs.push(read(start, at)?);
    }
    Ok(runs)
}
