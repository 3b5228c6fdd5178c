//! Extended attributes, in inodes and in blocks.

use super::{Checker, rules};
use crate::format::raw::*;
use crate::offline::node::Node;
use crate::offline::xattr::{Stored, checksum, header};
use tidegate_vfs::Result;

impl Checker<'_> {
    /// Checks the attributes of an inode; true if it has a block of them.
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
        self.found.require(self.sb.compat.contains(Compat::EXT_ATTR), rules::SB_FEATURES, || {
            format!("inode {} has a block of attributes, and ext_attr is off", n.ino)
        });
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
        let users = read_at::<RawXattrHeader>(&bytes, 0).map_or(0, |head| head.h_refcount.get());
        self.shared_attributes.insert(block, (users, 1));
        let Some(head) = header(&bytes) else {
            self.found.add(rules::XATTR, || format!("block {block} holds no attributes"));
            return Ok(true);
        };
        if self.sb.has_csum() {
            let right = checksum(&self.sb, block, &bytes) == head.h_checksum.get();
            self.found.require(right, rules::XATTR_CHECKSUM, || {
                format!("block {block}: the checksum does not match")
            });
        }
        self.check_area(n, &bytes, size_of::<RawXattrHeader>(), true);
        Ok(true)
    }

    /// Checks an area whose entries begin at `first`; offsets of values count from the start of the area.
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

    /// Checks one entry; returns its end.
    fn check_attribute(
        &mut self,
        n: &Node,
        area: &[u8],
        at: usize,
        in_block: bool,
        taken: &mut Vec<(usize, usize)>,
    ) -> Option<usize> {
        let entry = Stored::at(area, at, in_block)?;
        self.context |= entry.is_context();
        if !entry.place.is_empty() {
            taken.push((entry.place.start, entry.place.end));
        }
        self.found.require(entry.hash_is_right, rules::XATTR_HASH, || {
            format!("inode {}: an attribute's hash is {:#x}", n.ino, entry.hash)
        });
        Some(entry.next)
    }

    /// Compares the reference counts of attribute blocks with the references found.
    pub(super) fn check_refcounts(&mut self) {
        for (block, (stored, found)) in &self.shared_attributes {
            self.found.require(stored == found, rules::XATTR_REFCOUNT, || {
                format!("block {block} counts {stored} users of its attributes, and has {found}")
            });
        }
    }
}
