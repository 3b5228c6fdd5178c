//! Extended attributes, in inodes and in blocks.

use super::{Checker, rules};
use crate::format::crc::crc32c;
use crate::format::raw::*;
use crate::offline::node::Node;
use tidegate_vfs::Result;

impl Checker<'_> {
    /// Attributes of an inode; whether it has a block of them.
    pub(super) fn check_xattrs(&mut self, n: &Node) -> Result<bool> {
        let start = INODE_BASE + usize::from(n.raw.i_extra_isize.get());
        if n.raw.i_extra_isize.get() > 0 && start + 4 < n.bytes.len() && le32(&n.bytes, start) == XATTR_MAGIC
        {
            self.check_area(n, &n.bytes[start + 4..], 0, false);
        }
        let block = n.acl_block();
        if block == 0 {
            return Ok(false);
        }
        if !self.on_volume(block, 1) {
            self.found
                .add(rules::BLOCK_RANGE, || format!("inode {}: its attributes lie in block {block}", n.ino));
            return Ok(false);
        }
        if let Some(count) = self.shared_attributes.get_mut(&block) {
            count.1 += 1;
            self.context = true;
            return Ok(true);
        }
        if !self.claim(block) {
            let text = || format!("inode {}: block {block} of its attributes has another owner", n.ino);
            self.found.add(rules::BLOCK_SHARED, text);
            return Ok(true);
        }
        let bytes = self.block(block)?;
        self.shared_attributes.insert(block, (le32(&bytes, 4), 1));
        let sane = le32(&bytes, 0) == XATTR_MAGIC && le32(&bytes, 8) == 1;
        if !self.found.require(sane, rules::XATTR, || format!("block {block} holds no attributes")) {
            return Ok(true);
        }
        if self.sb.has_csum() {
            let mut whole = bytes.clone();
            whole[XATTR_CSUM_OFFSET..XATTR_CSUM_OFFSET + 4].fill(0);
            let sum = crc32c(crc32c(self.sb.csum_seed, &block.to_le_bytes()), &whole);
            self.found.require(sum == le32(&bytes, XATTR_CSUM_OFFSET), rules::XATTR_CHECKSUM, || {
                format!("block {block}: the checksum does not match")
            });
        }
        self.check_area(n, &bytes, size_of::<RawXattrHeader>(), true);
        Ok(true)
    }

    /// An area whose entries begin at `first`; places of values count from its beginning.
    fn check_area(&mut self, n: &Node, area: &[u8], first: usize, in_block: bool) {
        let mut at = first;
        let mut taken: Vec<(usize, usize)> = Vec::new();
        while le32(area, at) != 0 {
            let Some(end) = self.check_attribute(n, area, at, in_block, &mut taken) else {
                self.found.add(rules::XATTR, || {
                    format!("inode {}: the attribute at byte {at} does not fit", n.ino)
                });
                return;
            };
            at = end;
        }
        taken.push((first.min(at), at + 4));
        taken.sort_unstable();
        let apart = taken.windows(2).all(|w| w[0].1 <= w[1].0) && at + 4 <= area.len();
        self.found.require(apart, rules::XATTR, || format!("inode {}: its attributes overlap", n.ino));
    }

    /// One entry; where it ends.
    fn check_attribute(
        &mut self,
        n: &Node,
        area: &[u8],
        at: usize,
        in_block: bool,
        taken: &mut Vec<(usize, usize)>,
    ) -> Option<usize> {
        let name_len = usize::from(*area.get(at)?);
        let name = area.get(at + XATTR_ENTRY..at + XATTR_ENTRY + name_len)?;
        let offset = usize::from(le16(area, at + 2));
        let (inum, size, stored) = (le32(area, at + 4), le32(area, at + 8) as usize, le32(area, at + 12));
        self.context |= area[at + 1] == INDEX_ENCRYPTION && name == b"c";
        let padded = size.next_multiple_of(XATTR_ROUND);
        let value = area.get(offset..offset.checked_add(padded)?)?;
        if in_block && area.get(at + 1) == Some(&0)
            || inum != 0
            || (size > 0 && !offset.is_multiple_of(XATTR_ROUND))
        {
            return None;
        }
        if size > 0 {
            taken.push((offset, offset + padded));
        }
        if in_block || stored != 0 {
            let right = [true, false].iter().any(|&signed| hash(name, value, signed) == stored);
            self.found.require(right, rules::XATTR_HASH, || {
                format!("inode {}: an attribute's hash is {stored:#x}", n.ino)
            });
        }
        Some((at + XATTR_ENTRY + name_len).next_multiple_of(XATTR_ROUND))
    }

    /// References that blocks of attributes count, and those that there are.
    pub(super) fn check_refcounts(&mut self) {
        for (block, (stored, found)) in &self.shared_attributes {
            self.found.require(stored == found, rules::XATTR_REFCOUNT, || {
                format!("block {block} counts {stored} users of its attributes, and has {found}")
            });
        }
    }
}

/// The hash of an entry: of its name, then of the words of its value.
fn hash(name: &[u8], value: &[u8], signed: bool) -> u32 {
    let byte = |b: u8| if signed { i32::from(b as i8) as u32 } else { b.into() };
    let of_name = name.iter().fold(0u32, |h, &b| h.rotate_left(5) ^ byte(b));
    let words = value.as_chunks::<4>().0;
    words.iter().fold(of_name, |h, w| h.rotate_left(16) ^ u32::from_le_bytes(*w))
}
