//! Extended attributes, in inodes and in blocks: those that make sense stay.

use super::Repair;
use super::disk::Stage;
use crate::format::crc::crc32c;
use crate::format::raw::*;
use crate::format::units::BlockAddr;
use crate::offline::node::Node;
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
    /// Mends attributes of an inode; whether it has a block of them.
    pub(super) fn mend_xattrs(&mut self, n: &mut Node) -> Result<bool> {
        self.context = false;
        self.mend_own_xattrs(n);
        let block = n.acl_block();
        if block == 0 {
            return Ok(false);
        }
        if self.mend_xattr_block(n.ino, block)? {
            return Ok(true);
        }
        self.tell("xattr", format!("inode {}", n.ino), format!("attributes in block {block}"), "none");
        (n.raw.i_file_acl_lo, n.raw.i_file_acl_high) = (0.into(), 0.into());
        Ok(false)
    }

    /// An inode that is flagged as encrypted has an attribute that says how.
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

    /// Mends a block of attributes and counts its user; whether there is anything to use.
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
        if le32(&bytes, 0) != XATTR_MAGIC || le32(&bytes, 8) != 1 {
            self.seen.set(block);
            return Ok(false);
        }
        let (attrs, sound) = parse(&bytes, HEAD, true);
        self.note_context(&attrs);
        if attrs.is_empty() && !sound {
            self.seen.set(block);
            return Ok(false);
        }
        let sealed = !self.sb.has_csum() || self.xattr_sum(block, &bytes) == le32(&bytes, XATTR_CSUM_OFFSET);
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

    fn xattr_sum(&self, block: u64, bytes: &[u8]) -> u32 {
        let mut whole = bytes.to_vec();
        whole[XATTR_CSUM_OFFSET..XATTR_CSUM_OFFSET + 4].fill(0);
        crc32c(crc32c(self.sb.csum_seed, &block.to_le_bytes()), &whole)
    }

    fn put_xattr_block(&mut self, block: u64, mut bytes: Vec<u8>) -> Result<()> {
        if self.sb.has_csum() {
            let sum = self.xattr_sum(block, &bytes);
            bytes[XATTR_CSUM_OFFSET..XATTR_CSUM_OFFSET + 4].copy_from_slice(&sum.to_le_bytes());
        }
        self.disk.put(block, Stage::InPlace, bytes)
    }

    /// Users that blocks of attributes count.
    pub(super) fn mend_refcounts(&mut self) -> Result<()> {
        for (block, users) in std::mem::take(&mut self.attributes) {
            let mut bytes = self.disk.block(block)?;
            let stored = le32(&bytes, 4);
            if stored != users {
                self.tell("xattr", format!("block {block}"), format!("{stored} users"), users);
                bytes[4..8].copy_from_slice(&users.to_le_bytes());
                self.put_xattr_block(block, bytes)?;
            }
        }
        Ok(())
    }
}

/// The attributes of an area whose entries begin at `first`, as far as they make sense, and whether all do.
fn parse(area: &[u8], first: usize, in_block: bool) -> (Vec<Attr>, bool) {
    let (mut at, mut sound) = (first, true);
    let mut found: Vec<(Attr, usize, usize)> = Vec::new();
    while le32(area, at) != 0 {
        let Some((attr, offset, next, right)) = attribute(area, at, in_block) else {
            sound = false;
            break;
        };
        let end = offset + attr.value.len().next_multiple_of(XATTR_ROUND);
        let apart = attr.value.is_empty() || found.iter().all(|f| f.1 >= end || f.2 <= offset || f.1 == f.2);
        if right && apart {
            let empty = attr.value.is_empty();
            found.push((attr, if empty { end } else { offset }, end));
        } else {
            sound = false;
        }
        at = next;
    }
    if at + 4 > area.len() {
        sound = false;
    }
    let before = found.len();
    found.retain(|f| f.1 == f.2 || f.1 >= at + 4);
    sound &= found.len() == before;
    (found.into_iter().map(|f| f.0).collect(), sound)
}

/// One entry: the attribute, where its value is, where the next begins, and whether its hash is right.
fn attribute(area: &[u8], at: usize, in_block: bool) -> Option<(Attr, usize, usize, bool)> {
    let name_len = usize::from(*area.get(at)?);
    let name = area.get(at + XATTR_ENTRY..at + XATTR_ENTRY + name_len)?;
    let offset = usize::from(le16(area, at + 2));
    let (inum, size, stored) = (le32(area, at + 4), le32(area, at + 8) as usize, le32(area, at + 12));
    let padded = area.get(offset..offset.checked_add(size.next_multiple_of(XATTR_ROUND))?)?;
    if in_block && area.get(at + 1) == Some(&0)
        || inum != 0
        || (size > 0 && !offset.is_multiple_of(XATTR_ROUND))
    {
        return None;
    }
    let known = !in_block && stored == 0;
    let right = known || [true, false].iter().any(|signed| hash(name, padded, *signed) == stored);
    let attr = Attr { index: area[at + 1], name: name.to_vec(), value: padded[..size].to_vec() };
    Some((attr, offset, (at + XATTR_ENTRY + name_len).next_multiple_of(XATTR_ROUND), right))
}

/// Writes attributes to an empty area: entries from `first` on, values at its end.
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
    if first == HEAD {
        area[12..16].copy_from_slice(&whole.to_le_bytes());
    }
}

/// The hash of an entry: of its name, then of the words of its value.
fn hash(name: &[u8], value: &[u8], signed: bool) -> u32 {
    let byte = |b: u8| if signed { i32::from(b as i8) as u32 } else { b.into() };
    let of_name = name.iter().fold(0u32, |h, &b| h.rotate_left(5) ^ byte(b));
    let words = value.as_chunks::<4>().0;
    words.iter().fold(of_name, |h, w| h.rotate_left(16) ^ u32::from_le_bytes(*w))
}
