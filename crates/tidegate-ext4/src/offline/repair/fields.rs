//! Fields of an inode: flags, sizes, counts, targets of symbolic links.

use super::Repair;
use super::map::{Map, Run};
use crate::format::gate::Journal;
use crate::format::raw::*;
use crate::format::units::BlockAddr;
use crate::offline::node::{Kind, Node, header};
use tidegate_vfs::Result;
use zerocopy::IntoBytes;

/// Bytes of the extra fields that exist today.
const EXTRA: u16 = (size_of::<RawInode>() - INODE_BASE) as u16;

impl Repair<'_, '_> {
    /// Repairs fields that do not depend on blocks.
    pub(super) fn mend_fields(&mut self, n: &mut Node, special: bool) -> Result<()> {
        let ino = n.ino;
        if n.raw.i_dtime.get() != 0 && !self.orphans.contains(&ino) {
            self.tell("inode", ino, "in use, with a time of deletion", "without");
            n.raw.i_dtime = 0.into();
        }
        self.mend_extra(n);
        if n.raw.i_obso_faddr.get() != 0 {
            self.tell("inode", ino, format!("i_faddr {}", n.raw.i_obso_faddr.get()), "0");
            n.raw.i_obso_faddr = 0.into();
        }
        if n.raw.i_blocks_high.get() != 0 && !self.sb.ro_compat.contains(RoCompat::HUGE_FILE) {
            self.tell("inode", ino, format!("i_blocks_high {}", n.raw.i_blocks_high.get()), "0");
            n.raw.i_blocks_high = 0.into();
        }
        if n.has_stray_acl_high() {
            self.tell("inode", ino, format!("i_file_acl_high {}", n.raw.i_file_acl_high.get()), "0");
            n.raw.i_file_acl_high = 0.into();
        }
        for at in n.late_times() {
            self.tell("inode", ino, "a time beyond 2310-04-04", "before 1970");
            n.raw.as_mut_bytes()[at] &= !3;
        }
        self.mend_flags(n, special);
        self.mend_short_link(n)
    }

    fn mend_extra(&mut self, n: &mut Node) {
        let extra = usize::from(n.raw.i_extra_isize.get());
        let room = n.bytes.len() - INODE_BASE;
        let fits = room == 0 || extra == 0 || (extra >= 4 && extra.is_multiple_of(4) && extra <= room);
        if fits {
            return;
        }
        // Attributes begin behind the fields.
        let magic = |e: &usize| le32(&n.bytes, INODE_BASE + e) == XATTR_MAGIC;
        let found = (4..room.saturating_sub(4)).step_by(4).find(magic);
        let to = found.map_or(EXTRA.min(room as u16), |e| e as u16);
        self.tell("inode", n.ino, format!("{extra} bytes of extra fields"), to);
        n.raw.i_extra_isize = to.into();
    }

    fn mend_flags(&mut self, n: &mut Node, special: bool) {
        let (flags, sb) = (n.flags(), &self.sb);
        let dir = n.kind() == Some(Kind::Dir);
        let mut refused = InodeFlags::INLINE_DATA | InodeFlags::EA_INODE;
        refused.set(InodeFlags::EXTENTS, !sb.incompat.contains(Incompat::EXTENTS));
        refused.set(InodeFlags::IMAGIC, !sb.compat.contains(Compat::IMAGIC_INODES));
        refused.set(InodeFlags::INDEX, !dir || !sb.compat.contains(Compat::DIR_INDEX));
        refused.set(InodeFlags::CASEFOLD, !dir || !sb.incompat.contains(Incompat::CASEFOLD));
        refused.set(InodeFlags::ENCRYPT, !sb.incompat.contains(Incompat::ENCRYPT));
        refused.set(InodeFlags::VERITY, !sb.ro_compat.contains(RoCompat::VERITY));
        let node = matches!(n.kind(), Some(Kind::Char | Kind::Block | Kind::Fifo | Kind::Socket));
        if node {
            refused |= InodeFlags::EXTENTS;
        }
        if node || n.kind() == Some(Kind::Link) {
            refused |= InodeFlags::IMMUTABLE | InodeFlags::APPEND;
        }
        let mut to = flags - refused;
        if self.looks_like_extents(n) && sb.incompat.contains(Incompat::EXTENTS) && !special {
            to |= InodeFlags::EXTENTS;
        }
        if to != flags {
            self.tell("inode", n.ino, format!("flags {:#x}", flags.bits()), format!("{:#x}", to.bits()));
            n.raw.i_flags = to.bits().into();
        }
    }

    /// Whether `i_block` begins like an extent tree.
    pub(super) fn looks_like_extents(&self, n: &Node) -> bool {
        let mapped = matches!(n.kind(), Some(Kind::File | Kind::Dir | Kind::Link));
        let sane = |h: RawExtentHeader| {
            let (max, count, depth) = (h.eh_max.get(), h.eh_entries.get(), h.eh_depth.get());
            h.eh_magic.get() == EXTENT_MAGIC && max == 4 && count <= max && depth <= MAX_DEPTH
        };
        mapped && header(&n.raw.i_block).is_some_and(sane)
    }

    /// Repairs the size of a target in the inode, which would otherwise be taken for block numbers.
    fn mend_short_link(&mut self, n: &mut Node) -> Result<()> {
        let is_text =
            n.kind() == Some(Kind::Link) && !n.flags().intersects(InodeFlags::EXTENTS | InodeFlags::ENCRYPT);
        let own = u64::from(n.raw.i_blocks_lo.get());
        let attributes = if n.acl_block() != 0 { u64::from(self.sb.block_size) / 512 } else { 0 };
        let len = n.raw.i_block.iter().position(|b| *b == 0).unwrap_or(0);
        let short = n.size() < I_BLOCK_SIZE as u64 || own == attributes || own == 0;
        if is_text && short && len > 0 && n.size() != len as u64 && !self.leads_to_target(n)? {
            self.tell("inode", n.ino, format!("{} bytes of target", n.size()), len);
            set_size(n, len as u64);
        }
        Ok(())
    }

    /// Whether a symbolic link maps one block with a target of its size: then the count of blocks is wrong.
    fn leads_to_target(&mut self, n: &Node) -> Result<bool> {
        let (size, block) = (n.size(), u64::from(n.word(0)));
        let slow = (I_BLOCK_SIZE as u64..self.sb.block_size.into()).contains(&size);
        let one = (1..15).all(|w| n.word(w) == 0);
        if !slow || !one || !self.sb.holds(BlockAddr(block), 1) || self.meta.get(block) {
            return Ok(false);
        }
        let len = self.disk.block(block)?.iter().position(|b| *b == 0);
        Ok(len.is_some_and(|len| len as u64 == size))
    }

    /// Removes holes and unwritten blocks from a directory's map; true if any block is left.
    pub(super) fn mend_dir_map(&mut self, n: &Node, map: &mut Map) -> Result<bool> {
        let mut next = 0;
        for run in &mut map.runs {
            if run.at != next || run.unwritten {
                map.wrong
                    .get_or_insert_with(|| format!("block {next} of the directory is missing or unwritten"));
            }
            (run.at, run.unwritten) = (next, false);
            next += run.len;
        }
        let limit = u64::from(u32::MAX);
        if next > limit {
            map.runs.clear();
        }
        if map.runs.is_empty() && n.ino != ROOT_INO {
            self.clear_inode(n, "a directory without blocks")?;
            return Ok(false);
        }
        Ok(true)
    }

    /// Compares sizes with the map; true if the inode stays.
    pub(super) fn mend_size(&mut self, n: &mut Node, map: &mut Map, special: bool) -> Result<bool> {
        let (bs, size) = (u64::from(self.sb.block_size), n.size());
        if self.orphans.contains(&n.ino) && n.kind() == Some(Kind::File) {
            cut(map, size.div_ceil(bs));
        }
        let to = match n.kind() {
            Some(Kind::File) if self.sb.journal == Journal::Inode(n.ino) => map.end() * bs,
            _ if special => size,
            Some(Kind::Dir) => map.end() * bs,
            Some(Kind::File) => {
                let limit = if n.has(InodeFlags::EXTENTS) { bs << 32 } else { self.indirect_limit() };
                let least = map.written_end().saturating_sub(1) * bs;
                let short = map.written_end() > 0 && size < least && !n.has(InodeFlags::VERITY);
                let large = size >> 31 != 0 && !self.allow_large();
                if size > limit || short || large { map.written_end() * bs } else { size }
            }
            Some(Kind::Link) => return self.mend_link(n, map),
            Some(_) => 0,
            None => size,
        };
        if to != size {
            self.tell("inode", n.ino, format!("size {size}"), to);
            set_size(n, to);
        }
        Ok(true)
    }

    /// Whether files may have 2 GiB or more; the feature is set if a file does.
    fn allow_large(&mut self) -> bool {
        if self.sb.ro_compat.contains(RoCompat::LARGE_FILE) {
            return true;
        }
        // Revision 0 has no features.
        if self.sb.raw.s_rev_level.get() == 0 {
            return false;
        }
        self.tell("superblock", "large_file", "a file is that large", "the feature is on");
        self.sb.ro_compat |= RoCompat::LARGE_FILE;
        self.sb.raw.s_feature_ro_compat = self.sb.ro_compat.bits().into();
        true
    }

    fn mend_link(&mut self, n: &mut Node, map: &mut Map) -> Result<bool> {
        let (bs, size) = (u64::from(self.sb.block_size), n.size());
        if n.has(InodeFlags::ENCRYPT) {
            let fits = size > 0 && (n.is_short_link() || size < bs && map.end() == 1);
            if !fits {
                self.clear_inode(n, "an encrypted symbolic link without a target")?;
            }
            return Ok(fits);
        }
        let target = match map.runs.first() {
            None if n.is_short_link() => n.raw.i_block.to_vec(),
            Some(run) if run.at == 0 => self.disk.block(run.start)?,
            _ => Vec::new(),
        };
        let len = target.iter().position(|b| *b == 0).unwrap_or(target.len()) as u64;
        let room = if n.is_short_link() { I_BLOCK_SIZE as u64 } else { bs };
        if len == 0
            || len >= room
            || (!n.has(InodeFlags::EXTENTS) && !n.is_short_link() && len < I_BLOCK_SIZE as u64)
        {
            self.clear_inode(n, "a symbolic link without a target")?;
            return Ok(false);
        }
        if map.end() > 1 || map.runs.iter().any(|r| r.unwritten) {
            map.wrong.get_or_insert_with(|| "more than one block of target".into());
            map.runs.truncate(1);
            map.runs[0].len = 1;
            map.runs[0].unwritten = false;
        }
        if len != size {
            self.tell("inode", n.ino, format!("{size} bytes of target"), len);
            set_size(n, len);
        }
        Ok(true)
    }

    /// The bytes that a block map can lead to.
    fn indirect_limit(&self) -> u64 {
        let per = u64::from(self.sb.block_size / 4);
        (12 + per + per * per + per * per * per) * u64::from(self.sb.block_size)
    }

    /// Sets `i_blocks`; reports the change if `tell` is set.
    pub(super) fn mend_block_count(&mut self, n: &mut Node, blocks: u64, tell: bool) {
        let huge = self.sb.ro_compat.contains(RoCompat::HUGE_FILE);
        let high = if huge { u64::from(n.raw.i_blocks_high.get()) << 32 } else { 0 };
        let has = u64::from(n.raw.i_blocks_lo.get()) | high;
        let unit = if huge && n.has(InodeFlags::HUGE_FILE) { 1 } else { u64::from(self.sb.block_size) / 512 };
        if has == blocks * unit {
            return;
        }
        if tell {
            self.tell("inode", n.ino, format!("i_blocks {has}"), blocks * unit);
        }
        n.raw.i_blocks_lo = ((blocks * unit) as u32).into();
        if huge {
            n.raw.i_blocks_high = (((blocks * unit) >> 32) as u16).into();
        }
    }
}

pub(super) fn set_size(n: &mut Node, size: u64) {
    n.raw.i_size_lo = (size as u32).into();
    n.raw.i_size_high = ((size >> 32) as u32).into();
}

/// Drops the part of a map behind `blocks` blocks.
fn cut(map: &mut Map, blocks: u64) {
    if map.end() <= blocks {
        return;
    }
    map.wrong.get_or_insert_with(|| "blocks behind the end of a file that was being cut".into());
    let keep = |r: &Run| Run { len: r.len.min(blocks.saturating_sub(r.at)), ..*r };
    map.runs = map.runs.iter().map(keep).filter(|r| r.len > 0).collect();
}
