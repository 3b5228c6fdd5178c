//! Extended attributes: one list that begins in the inode's inline area and goes on in an xattr node.

use crate::format::raw::*;
use crate::format::units::Nid;
use crate::inode::{F2fsInode, NodeId, fi};
use crate::node::{Freed, ofs_of};
use crate::volume::sbi::F2fs;
use std::sync::atomic::Ordering::Relaxed;
use tidegate_rt::Timespec;
use tidegate_vfs::acl::{self, Acl};
use tidegate_vfs::fs::NewXattrs;
use tidegate_vfs::{Error, ErrorKind, Inode, PageRun, Result, XattrFlags};
use zerocopy::{FromBytes, IntoBytes};

/// Longest name in bytes, its namespace included (as Linux has it).
const XATTR_NAME_MAX: usize = 255;

/// An attribute as it is stored.
struct Stored<'a> {
    index: u8,
    name: &'a [u8],
    value: &'a [u8],
}

/// Splits a full name into the format's namespace number and the rest.
fn split_name(name: &[u8]) -> Result<(u8, &[u8])> {
    let spaces: [(&[u8], u8); 3] =
        [(b"user.", index::USER), (b"trusted.", index::TRUSTED), (b"security.", index::SECURITY)];
    if name == acl::ACCESS {
        return Ok((index::POSIX_ACL_ACCESS, b""));
    }
    if name == acl::DEFAULT {
        return Ok((index::POSIX_ACL_DEFAULT, b""));
    }
    for (prefix, i) in spaces {
        if let Some(rest) = name.strip_prefix(prefix) {
            if rest.is_empty() {
                return Err(ErrorKind::InvalidArgument.into());
            }
            if name.len() > XATTR_NAME_MAX {
                return Err(Error::new(ErrorKind::Range, "an attribute's name of more than 255 bytes"));
            }
            return Ok((i, rest));
        }
    }
    Err(ErrorKind::Unsupported.into())
}

fn full_name(index: u8, name: &[u8]) -> Option<Vec<u8>> {
    let prefix: &[u8] = match index {
        index::USER => b"user.",
        index::TRUSTED => b"trusted.",
        index::SECURITY => b"security.",
        index::POSIX_ACL_ACCESS => acl::ACCESS,
        index::POSIX_ACL_DEFAULT => acl::DEFAULT,
        _ => return None,
    };
    Some([prefix, name].concat())
}

/// Walks a list; a damaged list ends with an error.
fn parse<'a>(area: &'a [u8], ino: u64) -> Result<Vec<Stored<'a>>> {
    let bad = || Error::corrupt("its extended attributes are damaged").in_inode(ino);
    let mut out = Vec::new();
    let header = RawXattrHeader::ref_from_prefix(area).ok();
    if header.is_none_or(|h| h.0.h_magic.get() != F2FS_XATTR_MAGIC) {
        return Ok(out); // never written
    }
    let mut at = XATTR_HEADER_SIZE;
    while at + 4 <= area.len() {
        let e = RawXattrEntry::read_from_prefix(&area[at..]).map_err(|_| bad())?.0;
        if e.as_bytes() == [0; 4] {
            break;
        }
        let (n, v) = (e.e_name_len as usize, e.e_value_size.get() as usize);
        let end = at + 4 + n + v;
        if end > area.len() {
            return Err(bad());
        }
        out.push(Stored {
            index: e.e_name_index,
            name: &area[at + 4..at + 4 + n],
            value: &area[at + 4 + n..end],
        });
        at = end.next_multiple_of(4);
    }
    Ok(out)
}

fn serialise(list: &[Stored<'_>]) -> Vec<u8> {
    if list.is_empty() {
        return Vec::new();
    }
    let header =
        RawXattrHeader { h_magic: F2FS_XATTR_MAGIC.into(), h_refcount: 1.into(), h_reserved: [0.into(); 4] };
    let mut out = header.as_bytes().to_vec();
    for s in list {
        let e = RawXattrEntry {
            e_name_index: s.index,
            e_name_len: s.name.len() as u8,
            e_value_size: (s.value.len() as u16).into(),
        };
        out.extend(e.as_bytes());
        out.extend(s.name);
        out.extend(s.value);
        out.resize(out.len().next_multiple_of(4), 0);
    }
    out
}

fn is_acl(index: u8) -> bool {
    matches!(index, index::POSIX_ACL_ACCESS | index::POSIX_ACL_DEFAULT)
}

/// An attribute's value as it is stored.
///
/// # Errors
/// `InvalidArgument` for a malformed ACL, `TooBig` when the value is longer than the format allows.
fn value_to_disk(index: u8, value: &[u8]) -> Result<Vec<u8>> {
    let v = if is_acl(index) {
        Acl::parse(value).ok_or(ErrorKind::InvalidArgument)?.to_disk()
    } else {
        value.to_vec()
    };
    if v.len() > VALID_XATTR_BLOCK_SIZE {
        return Err(Error::new(ErrorKind::TooBig, "an attribute's value"));
    }
    Ok(v)
}

/// The list that a new inode begins with.
pub(crate) fn first_list(xattrs: &NewXattrs) -> Result<Vec<u8>> {
    let encode = |(name, value): &(&'static [u8], Vec<u8>)| {
        let (index, name) = split_name(name)?;
        Ok((index, name, value_to_disk(index, value)?))
    };
    let all = xattrs.iter().map(encode).collect::<Result<Vec<_>>>()?;
    let list: Vec<_> = all.iter().map(|(index, name, value)| Stored { index: *index, name, value }).collect();
    Ok(serialise(&list))
}

impl F2fs {
    /// The whole list: the inline area, then the xattr node.
    fn read_xattrs(&self, inode: &Inode) -> Result<Vec<u8>> {
        let f = fi(inode);
        let mut area = Vec::new();
        if f.has_inline(inline::XATTR) {
            let node = self.node_of(inode.nid(), inode.ino.0)?;
            area.extend_from_slice(&node.bytes()[f.inline_xattr_area()]);
        }
        let nid = Nid(f.xattr_nid.load(Relaxed));
        if nid.0 != 0 {
            let node = self.xattr_node(nid, inode.ino.0)?;
            area.extend_from_slice(&node.bytes()[..VALID_XATTR_BLOCK_SIZE]);
        }
        Ok(area)
    }

    /// Replaces the list. The caller holds `cp_rwsem`.
    ///
    /// # Errors
    /// As [`F2fs::place_xattrs`].
    fn write_xattrs(&self, inode: &Inode, list: &[u8], now: Timespec) -> Result<Freed> {
        let f = fi(inode);
        let nodes = || u64::from(f.xattr_nid.load(Relaxed) != 0);
        let before = nodes();
        let freed = self.place_xattrs(inode.nid(), f, inode.is_dir(), list)?;
        if freed != Freed::Gone {
            return Ok(freed);
        }
        {
            let mut a = inode.attr();
            a.blocks = (a.blocks + nodes() * 8).saturating_sub(before * 8);
            a.ctime = now;
        }
        self.finish(|| self.store_inode(inode))?;
        Ok(Freed::Gone)
    }

    /// Replaces the list of inode `ino`, which is a directory or not. The caller holds `cp_rwsem`, and stores
    /// the inode's fields. `Busy` when the xattr node is to be freed but is on its way to the device: nothing
    /// has changed then.
    ///
    /// # Errors
    /// `NoSpace` when there is no room for an xattr node, `TooBig` when the list is longer than the format allows.
    pub(crate) fn place_xattrs(&self, ino: Nid, f: &F2fsInode, is_dir: bool, list: &[u8]) -> Result<Freed> {
        let inline_len = if f.has_inline(inline::XATTR) { f.inline_xattr_words() * 4 } else { 0 };
        // The list ends with a zero word.
        if !list.is_empty() && list.len() + 4 > inline_len + VALID_XATTR_BLOCK_SIZE {
            return Err(
                Error::new(ErrorKind::TooBig, format!("attributes of {} bytes", list.len())).in_inode(ino)
            );
        }
        let mut bytes = list.to_vec();
        let needs_node = !list.is_empty() && list.len() + 4 > inline_len;
        bytes.resize(inline_len + VALID_XATTR_BLOCK_SIZE, 0);
        let nid = Nid(f.xattr_nid.load(Relaxed));
        let fill = |page: &mut [u8]| page[..VALID_XATTR_BLOCK_SIZE].copy_from_slice(&bytes[inline_len..]);
        match (needs_node, nid.0) {
            (true, 0) => {
                let nid = self.new_node(Some(ino.0), XATTR_NODE_OFFSET, !is_dir, fill)?;
                f.xattr_nid.store(nid.0, Relaxed);
            }
            (true, _) => {
                self.xattr_node(nid, ino.0 as u64)?;
                self.modify_node(nid, fill)?
            }
            (false, 0) => {}
            (false, _) => {
                self.xattr_node(nid, ino.0 as u64)?;
                let freed = self.finish(|| self.free_node(nid, false))?;
                if freed != Freed::Gone {
                    return Ok(freed);
                }
                f.xattr_nid.store(0, Relaxed);
            }
        }
        let area = f.inline_xattr_area();
        let xnid = f.xattr_nid.load(Relaxed);
        let place = |page: &mut [u8]| {
            if inline_len > 0 {
                page[area.clone()].copy_from_slice(&bytes[..inline_len]);
            }
            if let Some(raw) = RawInode::of_mut(page) {
                raw.i_xattr_nid = xnid.into();
            }
        };
        self.finish(|| self.modify_node(ino, place))?;
        Ok(Freed::Gone)
    }

    /// The value of an attribute, in user space's form.
    pub(crate) fn get_xattr(&self, inode: &Inode, name: &[u8]) -> Result<Vec<u8>> {
        let (index, rest) = split_name(name)?;
        let area = self.read_xattrs(inode)?;
        let list = parse(&area, inode.ino.0)?;
        let hit = list.iter().find(|s| s.index == index && s.name == rest).ok_or(ErrorKind::NoData)?;
        if is_acl(index) {
            return Acl::from_disk(hit.value)
                .map(|a| a.to_xattr())
                .ok_or_else(|| Error::corrupt("its ACL is damaged").in_inode(inode.ino));
        }
        Ok(hit.value.to_vec())
    }

    /// Sets or removes an attribute. Takes `cp_rwsem` shared.
    pub(crate) fn set_xattr(
        &self,
        inode: &Inode,
        name: &[u8],
        value: Option<&[u8]>,
        flags: XattrFlags,
        now: Timespec,
    ) -> Result<()> {
        let (index, rest) = split_name(name)?;
        let value = value.map(|v| value_to_disk(index, v)).transpose()?;
        while let Freed::Busy(nid) = self.set_in_list(inode, (index, rest), value.as_deref(), flags, now)? {
            self.wait_on_node(nid);
        }
        Ok(())
    }

    /// Sets or removes an attribute, with the name and the value as they are in the list. Changes nothing if
    /// an xattr node that it has to free is on its way to the device.
    fn set_in_list(
        &self,
        inode: &Inode,
        (index, name): (u8, &[u8]),
        value: Option<&[u8]>,
        flags: XattrFlags,
        now: Timespec,
    ) -> Result<Freed> {
        let _op = self.cp_rwsem.read();
        let area = self.read_xattrs(inode)?;
        let mut list = parse(&area, inode.ino.0)?;
        let old = list.iter().position(|s| s.index == index && s.name == name);
        if old.is_some() && flags.contains(XattrFlags::CREATE) {
            return Err(ErrorKind::Exists.into());
        }
        if old.is_none() && (value.is_none() || flags.contains(XattrFlags::REPLACE)) {
            return Err(ErrorKind::NoData.into());
        }
        if let Some(i) = old {
            list.remove(i);
        }
        if let Some(v) = &value {
            list.push(Stored { index, name, value: v });
        }
        let bytes = serialise(&list);
        self.write_xattrs(inode, &bytes, now)
    }

    /// Names of all attributes.
    pub(crate) fn list_xattr(&self, inode: &Inode) -> Result<Vec<Vec<u8>>> {
        let area = self.read_xattrs(inode)?;
        Ok(parse(&area, inode.ino.0)?.iter().filter_map(|s| full_name(s.index, s.name)).collect())
    }

    /// The xattr node of an inode. Any other node would lose its content to attributes.
    ///
    /// # Errors
    /// `Corrupt` for another node, or the node of another inode.
    pub(crate) fn xattr_node(&self, nid: Nid, ino: u64) -> Result<PageRun> {
        let node = self.node_of(nid, ino)?;
        if ofs_of(node.bytes()) != XATTR_NODE_OFFSET {
            return Err(Error::corrupt("holds no attributes").at(nid.place()));
        }
        Ok(node)
    }

    /// Frees the xattr node, if there is one. The caller holds `cp_rwsem`, and stores the inode.
    pub(crate) fn free_xattr_node(&self, inode: &Inode) -> Result<Freed> {
        let f = fi(inode);
        let nid = Nid(f.xattr_nid.load(Relaxed));
        if nid.0 == 0 {
            return Ok(Freed::Gone);
        }
        self.xattr_node(nid, inode.ino.0)?;
        let freed = self.free_node(nid, false)?;
        if freed == Freed::Gone {
            f.xattr_nid.store(0, Relaxed);
            let mut a = inode.attr();
            a.blocks = a.blocks.saturating_sub(8);
        }
        Ok(freed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::new_volume;
    use tidegate_vfs::Cred;

    /// A damaged inode that names itself, or a node of its data, keeps what these nodes hold.
    #[test]
    fn attributes_go_to_no_node_of_another_kind() {
        let open = new_volume();
        let (vfs, root) = (&open.vfs, &Cred::ROOT);
        let inode = vfs.create(root, &vfs.root().unwrap(), b"file", 0o644).unwrap();
        fi(&inode).xattr_nid.store(inode.nid().0, Relaxed);
        let before = open.fs.node(inode.nid()).unwrap().bytes().to_vec();
        let set = |value| vfs.setxattr(root, &inode, b"user.name", value, XattrFlags::empty());
        for r in [set(Some(&[7; 3000])), set(None), vfs.listxattr(root, &inode).map(drop)] {
            assert_eq!(r.unwrap_err().kind(), ErrorKind::Corrupt);
        }
        assert_eq!(open.fs.node(inode.nid()).unwrap().bytes(), before);
        assert!(open.fs.why_read_only().is_none());
    }
}
