//! A manifest of a mounted volume of ours, in the form of the kernel's manifests.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use tidegate_vfs::{Cred, ErrorKind, Inode, OpenFlags, SeekTarget, Vfs};

use crate::manifest::{
    BLOCK, Builder, ContentHash, Entry, Kind, Manifest, Options, Time, compare, escape, hex,
};

/// The most differences that are shown of one comparison.
const SHOWN: usize = 20;

/// Describes every name of a volume and every byte of its files; each name is looked up, too.
///
/// # Errors
/// The first read error, with the path; a name for which the lookup differs from the listing.
pub fn describe(v: &Arc<Vfs>) -> Result<Manifest> {
    let mut builder = Builder::new();
    let mut pending = vec![(Vec::new(), v.root()?)];
    while let Some((path, inode)) = pending.pop() {
        let entry = describe_inode(v, &inode).with_context(|| escape(&path))?;
        builder.push(&path, inode.ino.0, entry);
        if inode.is_dir() {
            pending.extend(below(v, &path, &inode).with_context(|| escape(&path))?);
        }
    }
    Ok(builder.finish())
}

/// The entries of a directory.
fn below(v: &Vfs, path: &[u8], dir: &Arc<Inode>) -> Result<Vec<(Vec<u8>, Arc<Inode>)>> {
    let mut out = Vec::new();
    for e in v.entries(dir)? {
        let inode = v.lookup(dir, &e.name).with_context(|| escape(&e.name))?;
        ensure!(inode.ino == e.ino, "{}: listed as {}, found as {}", escape(&e.name), e.ino, inode.ino);
        // Old directories have no types.
        let as_listed = e.file_type.is_none_or(|t| t == inode.file_type);
        ensure!(as_listed, "{}: listed as {:?}", escape(&e.name), e.file_type);
        let sep: &[u8] = if path.is_empty() { b"" } else { b"/" };
        out.push(([path, sep, &e.name].concat(), inode));
    }
    Ok(out)
}

fn describe_inode(v: &Arc<Vfs>, inode: &Arc<Inode>) -> Result<Entry> {
    let attr = inode.attr().clone();
    let kind = Kind::from_mode(attr.file_type.mode_bits()).context("a type without a name")?;
    let sized = matches!(kind, Kind::File | Kind::Symlink);
    let device = matches!(kind, Kind::Char | Kind::Block);
    Ok(Entry {
        path: String::new(),
        kind,
        mode: attr.mode,
        uid: attr.uid,
        gid: attr.gid,
        size: sized.then_some(attr.size),
        mtime: Time(attr.mtime.secs, attr.mtime.nanos),
        nlink: (kind != Kind::Dir).then_some(u64::from(attr.nlink)),
        same_as: None,
        rdev: device.then_some((attr.rdev.major, attr.rdev.minor)),
        target: if kind == Kind::Symlink { Some(escape(&v.readlink(inode)?)) } else { None },
        crc32: if kind == Kind::File { Some(hash_file(v, inode)?) } else { None },
        xattrs: xattrs(v, inode)?,
    })
}

fn xattrs(v: &Vfs, inode: &Inode) -> Result<BTreeMap<String, String>> {
    let mut out = BTreeMap::new();
    for name in v.listxattr(&Cred::ROOT, inode)? {
        let value = v.getxattr(&Cred::ROOT, inode, &name)?;
        ensure!(out.insert(escape(&name), hex(&value)).is_none(), "{} is listed twice", escape(&name));
    }
    Ok(out)
}

/// Hashes a file's data without reading holes.
///
/// # Errors
/// A read error; positions of data and holes that are out of order.
pub fn hash_file(v: &Arc<Vfs>, inode: &Arc<Inode>) -> Result<u32> {
    let f = v.open(&Cred::ROOT, inode, OpenFlags::READ)?;
    let mut hash = ContentHash::new();
    let mut buf = vec![0; 256 * BLOCK];
    let mut done = 0;
    while done < f.size() {
        let start = match f.seek(done, SeekTarget::Data) {
            Err(e) if e.kind() == ErrorKind::NoDeviceOrAddress => break,
            r => r?,
        };
        let end = f.seek(start, SeekTarget::Hole)?;
        let in_order = done <= start && start < end && end <= f.size();
        ensure!(in_order, "data at {start} to {end}, looked for from {done} on");
        // Blocks may be smaller than the unit of hashing.
        done = done.max(start / BLOCK as u64 * BLOCK as u64);
        let end = end.next_multiple_of(BLOCK as u64).min(f.size());
        while done < end {
            let part = &mut buf[..(end - done).min(256 * BLOCK as u64) as usize];
            ensure!(f.read_at(done, part)? == part.len(), "a short read at {done}");
            hash.update(done, part);
            done += part.len() as u64;
        }
    }
    Ok(hash.finish())
}

/// Panics and shows some differences unless two manifests agree in everything that `options` does not leave
/// out.
///
/// # Panics
/// The manifests differ.
pub fn assert_same_but(what: &str, kernel: &Manifest, ours: &Manifest, options: &Options) {
    assert!(!kernel.entries.is_empty(), "{what}: nothing to compare with");
    let found = compare(kernel, ours, options);
    let some = found.iter().take(SHOWN).cloned().collect::<Vec<_>>().join("\n");
    assert!(found.is_empty(), "{what}: {} differences, kernel's against ours:\n{some}", found.len());
}
