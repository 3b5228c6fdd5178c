//! Extended attributes, in inodes and in blocks: attributes that make sense stay.

use super::Repair;
use super::disk::Stage;
use crate::format::raw::*;
use crate::format::units::BlockAddr;
use crate::offline::node::Node;
use crate::offline::xattr::{Stored, checksum, hash, header};
use std::ops::Range;
use tidegate_vfs::Result;
use zerocopy::IntoBytes;

/// An attribute.
struct Attr {
    index: u8,
    name: Vec<u8>,
    value: Vec<u8>,
}

/// Bytes before the entries of a block.
const HEAD: usize = size_of::<RawXattrHeader>();

impl Repair<'_, '_> {
    /// Repairs attributes of an inode; true if it has a block of them.
    pub(super) fn mend_xattrs(&mut self, n: &mut Node) -> Result<bool> {
        self.context = false;
        self.mend_own_xattrs(n);
        let block = n.acl_block();
        if block == 0 {
            return Ok(false);
        }
        if self.mend_xattr_block(n.ino, block)? {
            self.allow_xattr_blocks();
            return Ok(true);
        }
        self.tell("xattr", format!("inode {}", n.ino), format!("attributes in block {block}"), "none");
        (n.raw.i_file_acl_lo, n.raw.i_file_acl_high) = (0.into(), 0.into());
        Ok(false)
    }

    /// Sets the feature that a block of attributes needs. Revision 0 has no features.
    fn allow_xattr_blocks(&mut self) {
        if !self.sb.compat.contains(Compat::EXT_ATTR) && self.sb.raw.s_rev_level.get() > 0 {
            self.tell("superblock", "ext_attr", "an inode has a block of attributes", "the feature is on");
            self.sb.compat |= Compat::EXT_ATTR;
            self.sb.raw.s_feature_compat = self.sb.compat.bits().into();
        }
    }

    /// Repairs an inode with the encryption flag: it must have an attribute with its encryption context.
    pub(super) fn mend_encryption(&mut self, n: &mut Node) {
        if n.has(InodeFlags::ENCRYPT) && !self.context {
            self.tell("inode", n.ino, "flagged as encrypted, and nothing says how", "not flagged");
            n.raw.i_flags = (n.flags() - InodeFlags::ENCRYPT).bits().into();
        }
    }

    fn note_context(&mut self, attrs: &[Attr]) {
        self.context |= attrs.iter().any(|a| a.index == INDEX_ENCRYPTION && a.name == b"c");
    }

    fn mend_own_xattrs(&mut self, n: &mut Node) {
        let extra = usize::from(n.raw.i_extra_isize.get());
        let start = INODE_BASE + extra;
        if extra == 0 || start + 4 >= n.bytes.len() || le32(&n.bytes, start) != XATTR_MAGIC {
            return;
        }
        let area = &n.bytes[start + 4..];
        let (attrs, sound) = parse(area, 0, false);
        self.note_context(&attrs);
        if sound {
            return;
        }
        self.tell("xattr", format!("inode {}", n.ino), "attributes damaged", format!("{} kept", attrs.len()));
        let fields = n.bytes.len().min(size_of::<RawInode>());
        n.bytes[..fields].copy_from_slice(&n.raw.as_bytes()[..fields]);
        let area = &mut n.bytes[start + 4..];
        area.fill(0);
        write(area, 0, &attrs);
        *n = Node::parse(&self.sb, n.ino, &n.bytes);
    }

    /// Repairs a block of attributes and counts its user; true if anything in it is usable.
    fn mend_xattr_block(&mut self, ino: u32, block: u64) -> Result<bool> {
        if !self.sb.holds(BlockAddr(block), 1) || self.meta.get(block) {
            return Ok(false);
        }
        if let Some(users) = self.attributes.get_mut(&block) {
            *users += 1;
            self.context = true;
            return Ok(true);
        }
        let mut bytes = self.disk.block(block)?;
        let Some(head) = header(&bytes) else {
            self.seen.set(block);
            return Ok(false);
        };
        let (attrs, sound) = parse(&bytes, HEAD, true);
        self.note_context(&attrs);
        if attrs.is_empty() && !sound {
            self.seen.set(block);
            return Ok(false);
        }
        let sealed = !self.sb.has_csum() || checksum(&self.sb, block, &bytes) == head.h_checksum.get();
        let place = || format!("block {block} of inode {ino}");
        if !sound {
            self.tell("xattr", place(), "attributes damaged", format!("{} kept", attrs.len()));
            bytes[HEAD..].fill(0);
            write(&mut bytes, HEAD, &attrs);
        } else if !sealed {
            self.tell("xattr", place(), "checksum wrong", "right");
        }
        if !sound || !sealed {
            self.put_xattr_block(block, bytes)?;
        }
        if !self.claim(block) {
            self.shared.insert(block);
        }
        self.attributes.insert(block, 1);
        Ok(true)
    }

    fn put_xattr_block(&mut self, block: u64, mut bytes: Vec<u8>) -> Result<()> {
        if self.sb.has_csum() {
            let sum = checksum(&self.sb, block, &bytes);
            if let Some(head) = at_mut::<RawXattrHeader>(&mut bytes, 0) {
                head.h_checksum = sum.into();
            }
        }
        self.disk.put(block, Stage::InPlace, bytes)
    }

    /// Corrects the users that blocks of attributes count.
    pub(super) fn mend_refcounts(&mut self) -> Result<()> {
        for (block, users) in std::mem::take(&mut self.attributes) {
            let mut bytes = self.disk.block(block)?;
            let Some(head) = at_mut::<RawXattrHeader>(&mut bytes, 0) else { continue };
            let stored = head.h_refcount.get();
            if stored != users {
                head.h_refcount = users.into();
                self.tell("xattr", format!("block {block}"), format!("{stored} users"), users);
                self.put_xattr_block(block, bytes)?;
            }
        }
        Ok(())
    }
}

/// The attributes of an area whose entries begin at `first`, as far as they make sense, and whether all of
/// them do.
fn parse(area: &[u8], first: usize, in_block: bool) -> (Vec<Attr>, bool) {
    let (mut at, mut sound) = (first, true);
    let mut found: Vec<(Attr, usize, usize)> = Vec::new();
    while le32(area, at) != 0 {
        let Some(entry) = Stored::at(area, at, in_block) else {
            sound = false;
            break;
        };
        let Range { start, end } = entry.place;
        let apart = start == end || found.iter().all(|f| f.1 >= end || f.2 <= start || f.1 == f.2);
        if entry.hash_is_right && apart {
            let attr = Attr { index: entry.index, name: entry.name.into(), value: entry.value.into() };
            found.push((attr, start, end));
        } else {
            sound = false;
        }
        at = entry.next;
    }
    if at + 4 > area.len() {
        sound = false;
    }
    let before = found.len();
    found.retain(|f| f.1 == f.2 || f.1 >= at + 4);
    sound &= found.len() == before;
    (found.into_iter().map(|f| f.0).collect(), sound)
}

/// Writes attributes to an empty area: entries from `first` on, values from its end.
fn write(area: &mut [u8], first: usize, attrs: &[Attr]) {
    let (mut at, mut end, mut whole) = (first, area.len() / XATTR_ROUND * XATTR_ROUND, 0_u32);
    for a in attrs {
        let padded = a.value.len().next_multiple_of(XATTR_ROUND);
        end -= padded;
        area[end..end + a.value.len()].copy_from_slice(&a.value);
        let e_hash = hash(&a.name, &area[end..end + padded], true);
        let entry = RawXattrEntry {
            e_name_len: a.name.len() as u8,
            e_name_index: a.index,
            e_value_offs: (if padded == 0 { 0 } else { end } as u16).into(),
            e_value_inum: 0.into(),
            e_value_size: (a.value.len() as u32).into(),
            e_hash: e_hash.into(),
        };
        area[at..at + XATTR_ENTRY].copy_from_slice(entry.as_bytes());
        area[at + XATTR_ENTRY..at + XATTR_ENTRY + a.name.len()].copy_from_slice(&a.name);
        at = (at + XATTR_ENTRY + a.name.len()).next_multiple_of(XATTR_ROUND);
        whole = whole.rotate_left(16) ^ e_hash;
    }
    if first == HEAD
        && let Some(head) = at_mut::<RawXattrHeader>(area, 0)
    {
        head.h_hash = whole.into();
    }
}
