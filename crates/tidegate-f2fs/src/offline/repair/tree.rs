//! A file's tree of nodes down to its block addresses: impossible parts are cut off.

use super::Repair;
use super::claim::Owner;
use super::disk::Block;
use super::inode::{Inode, Kind};
use super::map::Place;
use crate::format::raw::*;
use crate::format::units::BlockAddr;
use tidegate_rt::hash::HashSet;
use tidegate_vfs::Result;
use tidegate_vfs::acl::Acl;
use zerocopy::{FromBytes, IntoBytes};

/// A block of a directory's entries.
#[derive(Clone, Copy)]
pub(super) struct DirBlock {
    /// Block of the directory file.
    pub(super) index: u64,
    pub(super) addr: u32,
    pub(super) place: Place,
}

/// Findings in a file.
pub(super) struct Walk {
    /// Blocks that i_blocks counts.
    pub(super) blocks: u64,
    /// One past the last mapped block of the file.
    pub(super) end: u64,
    /// The blocks of a directory.
    pub(super) entries: Vec<DirBlock>,
    is_dir: bool,
    ino: u32,
    extent: RawExtent,
    /// Number of blocks that are where the inode's extent says.
    matched: u32,
}

impl Repair<'_, '_> {
    /// Walks everything below the inode and corrects the inode's fields about it.
    pub(super) fn walk_tree(&mut self, i: &mut Inode) -> Result<Walk> {
        let extent = i.raw().i_ext;
        let is_dir = i.kind == Kind::Directory;
        let mut w = Walk { blocks: 1, end: 0, entries: Vec::new(), is_dir, ino: i.ino, extent, matched: 0 };
        self.mend_target(i)?;
        if i.kind != Kind::Special {
            if !i.is_inline() {
                let (base, addrs) = (i.areas.base(), i.areas.addrs());
                i.dirty |= self.leaf(&mut w, i.ino, &mut i.block, base, addrs, 0)?;
            }
            self.branches(i, &mut w)?;
            if i.kind == Kind::Symlink && !i.is_inline() && i.u32(i.areas.base()) == 0 {
                self.lose_target(i);
            }
        }
        self.mend_xattrs(i, &mut w)?;
        self.mend_extent(i, &w);
        if i.raw().i_blocks.get() != w.blocks {
            self.inode_change(i.ino, "i_blocks", i.raw().i_blocks.get().to_string(), w.blocks.to_string());
            i.change(|r| r.i_blocks = w.blocks.into());
        }
        self.mend_size(i, &w)?;
        Ok(w)
    }

    fn branches(&mut self, i: &mut Inode, w: &mut Walk) -> Result<()> {
        const NIDS: u32 = NIDS_PER_BLOCK as u32;
        let each = ADDRS_PER_BLOCK as u64;
        let mut first = i.areas.addrs() as u64;
        for n in 0..5u32 {
            let (ofs, depth, blocks) = match n {
                0 | 1 => (1 + n, 0, each),
                2 | 3 => (3 + (n - 2) * (NIDS + 1), 1, each * NIDS as u64),
                _ => (5 + 2 * NIDS, 2, 0),
            };
            let nid = i.nids()[n as usize].get();
            if nid != 0 && !self.branch(w, nid, ofs, first, depth)? {
                i.nids_mut()[n as usize] = 0.into();
            }
            first += blocks;
        }
        Ok(())
    }

    /// Walks node `nid`, `depth` levels above the addresses, and everything below it. False when there is no
    /// such node.
    fn branch(&mut self, w: &mut Walk, nid: u32, ofs: u32, first: u64, depth: u32) -> Result<bool> {
        let Some((addr, mut block)) = self.take_node(nid, w.ino, ofs)? else {
            let place = format!("inode {} node offset {ofs}", w.ino);
            self.change("node", place, format!("node {nid}"), "hole: there is no such node of it".into());
            return Ok(false);
        };
        w.blocks += 1;
        let each = ADDRS_PER_BLOCK as u64;
        if depth == 0 {
            if self.leaf(w, nid, &mut block, 0, ADDRS_PER_BLOCK, first)? {
                self.disk.put(addr, Place::Node(nid), block);
            }
            return Ok(true);
        }
        let (step, below) =
            if depth == 1 { (1, each) } else { (NIDS_PER_BLOCK as u32 + 1, each * NIDS_PER_BLOCK as u64) };
        let mut dirty = false;
        for n in 0..NIDS_PER_BLOCK {
            let child = le32(&block[..], 4 * n);
            let (ofs, first) = (ofs + 1 + n as u32 * step, first + n as u64 * below);
            if child != 0 && !self.branch(w, child, ofs, first, depth - 1)? {
                put32(&mut block[..], 4 * n, 0);
                dirty = true;
            }
        }
        if dirty {
            self.disk.put(addr, Place::Node(nid), block);
        }
        Ok(true)
    }

    /// Checks the addresses in one node. The first of them is of the file's block `first`. True if any was
    /// cut off.
    fn leaf(
        &mut self,
        w: &mut Walk,
        nid: u32,
        block: &mut Block,
        base: usize,
        count: usize,
        first: u64,
    ) -> Result<bool> {
        let mut dirty = false;
        for n in 0..count {
            let (at, index) = (base + 4 * n, first + n as u64);
            let addr = BlockAddr(le32(&block[..], at));
            if addr == BlockAddr::NULL {
                continue;
            }
            if addr == BlockAddr::NEW {
                self.usage.reserved += 1;
            } else if !self.claim(addr.0, Owner { nid, slot: Some(n as u16) })? {
                let place = format!("inode {} block {index}", w.ino);
                let why =
                    if self.sb.in_main(addr) { "it is another's" } else { "it is not in the main area" };
                self.change("block", place, format!("block {addr}"), format!("hole: {why}"));
                put32(&mut block[..], at, 0);
                dirty = true;
                continue;
            } else if w.is_dir {
                let place = Place::Entries { nid, slot: n as u16 };
                w.entries.push(DirBlock { index, addr: addr.0, place });
            }
            w.blocks += 1;
            w.end = index + 1;
            let ahead = index.wrapping_sub(w.extent.fofs.get() as u64);
            let inside = ahead < w.extent.len.get() as u64;
            w.matched += u32::from(inside && w.extent.blk.get() as u64 + ahead == addr.0 as u64);
        }
        Ok(dirty)
    }

    fn mend_extent(&mut self, i: &mut Inode, w: &Walk) {
        let len = w.extent.len.get();
        if len == 0 || w.matched == len {
            return;
        }
        let (fofs, blk) = (w.extent.fofs, w.extent.blk);
        self.inode_change(i.ino, "i_ext", format!("{len} blocks at {fofs} to {blk}"), "none".into());
        i.change(|r| r.i_ext = RawExtent::default());
    }

    fn mend_size(&mut self, i: &mut Inode, w: &Walk) -> Result<()> {
        const MOST: u64 =
            ADDRS_PER_BLOCK as u64 * (2 + 2 * NIDS_PER_BLOCK as u64 + (NIDS_PER_BLOCK as u64).pow(2));
        let (size, block) = (i.raw().i_size.get(), BLOCK_SIZE as u64);
        let mut right = size;
        if i.is_inline() {
            right = right.min(i.areas.inline_max() as u64);
        } else if i.kind == Kind::Directory {
            let least = w.end.max(1) * block;
            let fits = size >= least && size.is_multiple_of(block) && size <= (w.end + MOST) * block;
            right = if fits { size } else { least };
        } else {
            right = right.min((i.areas.addrs() as u64 + MOST) * block);
        }
        if right != size {
            self.inode_change(i.ino, "i_size", size.to_string(), right.to_string());
            i.change(|r| r.i_size = right.into());
        }
        Ok(())
    }

    /// Sets a symbolic link's size to the length of its target, which a zero byte ends.
    fn mend_target(&mut self, i: &mut Inode) -> Result<()> {
        if i.kind != Kind::Symlink {
            return Ok(());
        }
        let a = i.areas;
        let content = if i.has(inline::DATA) {
            i.block[a.inline_at()..a.inline_at() + a.inline_max()].to_vec()
        } else {
            let addr = i.u32(a.base());
            if self.is_free(addr) { self.disk.block(addr)?.to_vec() } else { Vec::new() }
        };
        let has = content.iter().position(|b| *b == 0).unwrap_or(content.len()) as u64;
        let size = i.raw().i_size.get();
        if has == 0 {
            self.lose_target(i);
        } else if size == 0 || size > has {
            self.inode_change(i.ino, "i_size", size.to_string(), has.to_string());
            i.change(|r| r.i_size = has.into());
        }
        Ok(())
    }

    /// Lets a symbolic link without a target lead to "?": its name, owner and attributes stay.
    fn lose_target(&mut self, i: &mut Inode) {
        self.inode_change(i.ino, "target", "gone".into(), "\"?\"".into());
        let a = i.areas;
        i.block[a.base()..a.base() + 4 * a.addrs()].fill(0);
        i.nids_mut().fill(0.into());
        i.change(|r| r.i_ext = RawExtent::default());
        i.raw_mut().i_inline |= inline::DATA | inline::DATA_EXIST;
        i.block[a.inline_at()] = b'?';
        i.change(|r| r.i_size = 1.into());
    }

    /// Repairs extended attributes: impossible entries are removed, and everything behind an entry that does
    /// not end.
    fn mend_xattrs(&mut self, i: &mut Inode, w: &mut Walk) -> Result<()> {
        let nid = i.raw().i_xattr_nid.get();
        let words = if i.has(inline::XATTR) { i.areas.words } else { 0 };
        let from = I_NID_OFFSET - 4 * words;
        let mut area = i.block[from..I_NID_OFFSET].to_vec();
        let split = area.len();
        let node = if nid != 0 { self.take_node(nid, i.ino, XATTR_NODE_OFFSET)? } else { None };
        if let Some((_, b)) = &node {
            w.blocks += 1;
            area.extend_from_slice(&b[..VALID_XATTR_BLOCK_SIZE]);
        } else if nid != 0 {
            self.inode_change(
                i.ino,
                "i_xattr_nid",
                format!("node {nid}"),
                "none: there is no such node".into(),
            );
            i.change(|r| r.i_xattr_nid = 0.into());
        }
        if node.is_none() && RawXattrHeader::of(&area).h_magic == 0 {
            return Ok(());
        }
        let (good, entries) = good_xattrs(&area);
        if good == area {
            return Ok(());
        }
        self.inode_change(i.ino, "xattrs", "damaged".into(), format!("{entries} entries are good"));
        area = good;
        if entries == 0
            && node.is_some()
            && let Some(header) = RawXattrHeader::of_mut(&mut area)
        {
            (header.h_magic, header.h_refcount) = (F2FS_XATTR_MAGIC.into(), 1.into());
        }
        i.block[from..I_NID_OFFSET].copy_from_slice(&area[..split]);
        i.dirty = true;
        if let Some((addr, mut b)) = node {
            b[..VALID_XATTR_BLOCK_SIZE].copy_from_slice(&area[split..]);
            self.disk.put(addr, Place::Node(nid), b);
        }
        Ok(())
    }
}

/// An xattr area with only its good entries, without gaps, and their number. Bytes behind the last entry stay
/// if all entries are good.
fn good_xattrs(area: &[u8]) -> (Vec<u8>, usize) {
    let none = || (vec![0; area.len()], 0);
    if area.len() < XATTR_HEADER_SIZE || RawXattrHeader::of(area).h_magic != F2FS_XATTR_MAGIC {
        return none();
    }
    let (mut at, mut count, mut all_good) = (XATTR_HEADER_SIZE, 0, true);
    let mut good = area[..XATTR_HEADER_SIZE].to_vec();
    let mut names = HashSet::default();
    while let Ok((raw, _)) = RawXattrEntry::read_from_prefix(&area[at..])
        && raw.as_bytes() != [0; 4]
    {
        let (index, name) = (raw.e_name_index, usize::from(raw.e_name_len));
        let value = usize::from(raw.e_value_size.get());
        let next = at + (size_of::<RawXattrEntry>() + name + value).next_multiple_of(4);
        let Some(entry) = area.get(at..next) else {
            all_good = false;
            break;
        };
        let (name, value) = (&entry[4..4 + name], &entry[4 + name..4 + name + value]);
        if is_good_xattr(index, name, value) && names.insert((index, name)) {
            good.extend_from_slice(entry);
            count += 1;
        } else {
            all_good = false;
        }
        at = next;
    }
    if all_good {
        return (area.to_vec(), count);
    }
    if count == 0 {
        return none();
    }
    good.resize(area.len(), 0);
    (good, count)
}

/// Whether an attribute can be read: it has a name, or is a well-formed ACL.
fn is_good_xattr(index: u8, name: &[u8], value: &[u8]) -> bool {
    match index {
        index::POSIX_ACL_ACCESS | index::POSIX_ACL_DEFAULT => {
            name.is_empty() && Acl::from_disk(value).is_some()
        }
        _ => !name.is_empty() && !name.contains(&0),
    }
}
