//! Single inodes: the tables, group by group.

use super::tree::Mapped;
use super::{Checker, InodeState, rules};
use crate::format::gate::Journal;
use crate::format::raw::*;
use crate::format::units::GroupNo;
use crate::offline::node::{Kind, Node, is_listed};
use tidegate_vfs::Result;

impl Checker<'_> {
    /// Inode `ino`, if its table can be read.
    pub(super) fn node(&mut self, ino: u32) -> Result<Option<Node>> {
        let index = ino.wrapping_sub(1);
        let (group, slot) = (index / self.sb.inodes_per_group, index % self.sb.inodes_per_group);
        let Some(Some(desc)) = self.groups.get(group as usize) else { return Ok(None) };
        let table = desc.inode_table.0;
        let byte = u64::from(slot) * u64::from(self.sb.inode_size);
        let bs = u64::from(self.sb.block_size);
        let block = self.block(table + byte / bs)?;
        let at = (byte % bs) as usize;
        Ok(Some(Node::parse(&self.sb, ino, &block[at..at + self.sb.inode_size as usize])))
    }

    /// Every inode that may be in use.
    pub(super) fn check_inodes(&mut self) -> Result<()> {
        for g in 0..self.sb.groups {
            let Some(desc) = self.groups[g as usize].clone() else { continue };
            let unused = if desc.flags.contains(GroupFlags::INODE_UNINIT) {
                self.sb.inodes_per_group
            } else {
                desc.itable_unused
            };
            let used = self.sb.inodes_per_group - unused;
            for slot in 0..used {
                let ino = g * self.sb.inodes_per_group + slot + 1;
                if let Some(node) = self.node(ino)? {
                    self.check_node(&node)?;
                }
            }
            self.tell_progress(g);
        }
        Ok(())
    }

    fn check_node(&mut self, n: &Node) -> Result<()> {
        let ino = n.ino;
        let special = self.sb.is_special(ino);
        let links = n.raw.i_links_count.get();
        let mode = n.raw.i_mode.get();
        let orphan = self.orphans.contains(&ino);
        if ino == BAD_INO {
            self.check_bad_blocks(n);
        }
        if links == 0 && !orphan && !(special && (mode != 0 || (0..15).any(|w| n.word(w) != 0))) {
            let freed = mode == 0 || n.raw.i_dtime.get() != 0;
            self.found.require(freed || special, rules::INODE_DTIME, || {
                format!("inode {ino} has no link, and no time of deletion")
            });
            // The field is an inode number, as on lists of orphans, though the inode is on none.
            let listed = is_listed(&self.sb, n.raw.i_dtime.get());
            self.found.require(!listed, rules::INODE_DTIME, || {
                format!("inode {ino} is on no list of orphans, and leads to inode {}", n.raw.i_dtime.get())
            });
            // Unused inodes have a checksum, too, unless nothing was ever written there.
            let written = n.bytes.iter().any(|b| *b != 0);
            if written {
                self.check_checksum(n);
            }
            if ino < self.sb.first_ino && written {
                let empty = n.is_empty();
                self.found.require(empty, rules::INODE_UNUSED, || {
                    format!("inode {ino} is reserved, and has a size, blocks or attributes")
                });
            }
            return Ok(());
        }
        self.check_checksum(n);
        self.used_inodes.set(u64::from(ino));
        let kind = n.kind();
        self.found.require(kind.is_some() || special, rules::INODE_MODE, || {
            format!("inode {ino} has the mode {mode:o}")
        });
        self.found.require(orphan || n.raw.i_dtime.get() == 0, rules::INODE_DTIME, || {
            format!("inode {ino} is in use and has a time of deletion")
        });
        self.check_extra(n);
        let times = n.late_times().is_empty();
        self.found.require(times, rules::INODE_TIMES, || format!("inode {ino} has a time beyond 2310-04-04"));
        self.check_flags(n);
        self.check_unused_fields(n);
        let mapped = if n.is_mapped() { self.map(n)? } else { Mapped::default() };
        self.context = false;
        // The count of the resize inode is not checked.
        let kept = ino == RESIZE_INO && self.sb.compat.contains(Compat::RESIZE_INODE);
        let attributes = !kept && self.check_xattrs(n)?;
        let context = self.context || !n.has(InodeFlags::ENCRYPT);
        self.found.require(context, rules::INODE_FLAGS, || {
            format!("inode {ino} is flagged as encrypted, and has no attribute that says how")
        });
        self.check_size(n, &mapped, special);
        self.check_own_file(n, &mapped);
        let large = kind == Some(Kind::File) && n.size() >> 31 != 0 && !special;
        let known = self.sb.ro_compat.contains(RoCompat::LARGE_FILE);
        self.found
            .require(!large || known, rules::SB_LARGE_FILE, || format!("inode {ino} has {} bytes", n.size()));
        if !(ino == RESIZE_INO && self.sb.compat.contains(Compat::RESIZE_INODE)) {
            self.check_blocks(n, mapped.blocks + u64::from(attributes));
        }
        if kind == Some(Kind::Link) {
            self.check_link(n, &mapped)?;
        }
        let state =
            InodeState { kind, links: links.into(), special, sound: mapped.sound, ..Default::default() };
        self.count(kind, special || orphan);
        self.set_state(ino, state);
        if kind == Some(Kind::Dir) {
            self.dirs_in_group(ino);
        }
        Ok(())
    }

    fn check_bad_blocks(&mut self, n: &Node) {
        let r = &n.raw;
        let fields = [r.i_mode, r.i_uid, r.i_gid, r.i_links_count];
        let plain = fields.iter().all(|f| f.get() == 0) && r.i_file_acl_lo.get() == 0;
        self.found.require(plain, rules::BAD_BLOCKS_INODE, || format!("inode {BAD_INO} looks like a file's"));
    }

    fn check_checksum(&mut self, n: &Node) {
        if !self.sb.has_csum() {
            return;
        }
        let (stored, sum) = n.checksums();
        self.found.require(stored == sum, rules::INODE_CHECKSUM, || {
            format!("inode {} has the checksum {stored:#010x}, and should have {sum:#010x}", n.ino)
        });
    }

    fn check_extra(&mut self, n: &Node) {
        let extra = usize::from(n.raw.i_extra_isize.get());
        let fits = n.bytes.len() == INODE_BASE
            || extra == 0
            || (extra >= 4 && extra.is_multiple_of(4) && INODE_BASE + extra <= n.bytes.len());
        self.found.require(fits, rules::INODE_EXTRA, || {
            format!("inode {} has {extra} bytes of extra fields", n.ino)
        });
    }

    fn check_flags(&mut self, n: &Node) {
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
        let bad = flags & refused;
        self.found.require(bad.is_empty(), rules::INODE_FLAGS, || {
            format!("inode {} has the flags {:#x}, which do not fit it", n.ino, bad.bits())
        });
    }

    fn check_unused_fields(&mut self, n: &Node) {
        let high = n.raw.i_blocks_high.get() != 0 && !self.sb.ro_compat.contains(RoCompat::HUGE_FILE);
        let sane = !high && n.raw.i_obso_faddr.get() == 0 && !n.has_stray_acl_high();
        self.found.require(sane, rules::INODE_UNUSED, || {
            format!("inode {} has something in i_faddr, in i_blocks_high without huge_file, or in i_file_acl_high without 64bit", n.ino)
        });
    }

    fn check_size(&mut self, n: &Node, m: &Mapped, special: bool) {
        let (bs, size) = (u64::from(self.sb.block_size), n.size());
        let fits = match n.kind() {
            Some(Kind::Dir) => size == m.end * bs && size > 0,
            Some(Kind::File) => {
                let limit = if n.has(InodeFlags::EXTENTS) { bs << 32 } else { self.indirect_limit() };
                // As in e2fsck, a block that begins exactly where the file ends is allowed.
                let behind = m.written_end == 0 || size >= (m.written_end - 1) * bs;
                // The hashes of fs-verity lie behind the end.
                size <= limit && (behind || n.has(InodeFlags::VERITY))
            }
            Some(Kind::Link) => size > 0 && (n.is_short_link() || (size < bs && m.end == 1)),
            Some(_) => size == 0,
            None => true,
        };
        self.found.require(fits || special || !m.sound, rules::INODE_SIZE, || {
            format!(
                "inode {} has {size} bytes, and its last block is number {}",
                n.ino,
                m.end.wrapping_sub(1)
            )
        });
    }

    /// The journal and the orphan file are files with a link, whose blocks all lie before the end.
    fn check_own_file(&mut self, n: &Node, m: &Mapped) {
        let is_journal = self.sb.journal == Journal::Inode(n.ino);
        let is_orphans =
            self.sb.compat.contains(Compat::ORPHAN_FILE) && self.sb.raw.s_orphan_file_inum.get() == n.ino;
        if !(is_journal || is_orphans) || !m.sound {
            return;
        }
        let ends = n.size() == m.end * u64::from(self.sb.block_size);
        let is_file = n.kind() == Some(Kind::File) && n.raw.i_links_count.get() > 0;
        let rule = if is_journal { rules::JOURNAL } else { rules::ORPHAN_FILE };
        self.found.require(ends && is_file, rule, || {
            let links = n.raw.i_links_count.get();
            format!(
                "inode {} has mode {:o}, {links} links, {} bytes, and {} blocks",
                n.ino,
                n.raw.i_mode.get(),
                n.size(),
                m.end
            )
        });
    }

    /// The bytes that a block map can lead to.
    fn indirect_limit(&self) -> u64 {
        let per = u64::from(self.sb.block_size / 4);
        (12 + per + per * per + per * per * per) * u64::from(self.sb.block_size)
    }

    fn check_blocks(&mut self, n: &Node, blocks: u64) {
        let huge = self.sb.ro_compat.contains(RoCompat::HUGE_FILE);
        let high = if huge { u64::from(n.raw.i_blocks_high.get()) << 32 } else { 0 };
        let has = u64::from(n.raw.i_blocks_lo.get()) | high;
        let unit = if huge && n.has(InodeFlags::HUGE_FILE) { 1 } else { u64::from(self.sb.block_size) / 512 };
        self.found.require(has == blocks * unit, rules::INODE_BLOCKS, || {
            format!("inode {} counts {has} in i_blocks, and has {}", n.ino, blocks * unit)
        });
    }

    fn check_link(&mut self, n: &Node, m: &Mapped) -> Result<()> {
        if n.has(InodeFlags::ENCRYPT) {
            return Ok(());
        }
        let size = n.size() as usize;
        let target = if n.is_short_link() {
            n.raw.i_block.to_vec()
        } else if let (true, Some(block)) = (m.sound, m.first) {
            self.block(block)?
        } else {
            return Ok(());
        };
        let len = target.iter().position(|&b| b == 0).unwrap_or(target.len());
        self.found.require(len == size, rules::LINK_TARGET, || {
            format!("inode {}: its target has {len} bytes, and its size is {size}", n.ino)
        });
        Ok(())
    }

    /// Checks the resize inode, which maps, through one block of numbers, the blocks that each group
    /// reserves.
    pub(super) fn check_resize_inode(&mut self) -> Result<()> {
        if !self.sb.compat.contains(Compat::RESIZE_INODE) {
            return Ok(());
        }
        let Some(n) = self.node(RESIZE_INO)? else { return Ok(()) };
        let kept = u64::from(self.sb.raw.s_reserved_gdt_blocks.get());
        let top = u64::from(n.word(13));
        let others = (0..15).filter(|&w| w != 13).any(|w| n.word(w) != 0);
        let mut sound = !others
            && !n.has(InodeFlags::EXTENTS)
            && n.kind() == Some(Kind::File)
            && n.raw.i_links_count.get() > 0
            && ((kept, top) == (0, 0) || self.on_volume(top, 1));
        // mke2fs allocates the block also on a volume that reserves nothing.
        if sound && top != 0 {
            sound = self.claim(top) && self.check_kept(top, kept)?;
        }
        self.found.require(sound, rules::RESIZE_INODE, || "inode 7 does not map what is kept".into());
        if sound {
            let copies = (0..self.sb.groups).filter(|&g| self.sb.has_super(GroupNo(g))).count() as u64;
            self.check_blocks(&n, if top == 0 { 0 } else { 1 + kept * copies });
            let fits = n.size() <= self.indirect_limit();
            self.found.require(fits, rules::INODE_SIZE, || format!("inode 7 has {} bytes", n.size()));
        }
        Ok(())
    }

    fn check_kept(&mut self, top: u64, kept: u64) -> Result<bool> {
        let per = self.sb.block_size as usize / 4;
        let words = self.block(top)?;
        let first = self.sb.group_start(GroupNo(0)).0 + 1 + self.sb.desc_blocks();
        let groups: Vec<u32> =
            (1..self.sb.groups).filter(|&g| self.sb.has_super(GroupNo(g))).take(per).collect();
        let total = words.as_chunks::<4>().0.iter().filter(|w| **w != [0; 4]).count() as u64;
        if total != kept {
            return Ok(false);
        }
        for n in 0..kept {
            let (block, at) = (first + n, (self.sb.desc_blocks() + n) as usize % per);
            if u64::from(le32(&words, at * 4)) != block || !self.on_volume(block, 1) {
                return Ok(false);
            }
            let copies = self.block(block)?;
            for i in 0..per {
                let copy = |g: &u32| block + u64::from(*g) * u64::from(self.sb.blocks_per_group);
                if u64::from(le32(&copies, i * 4)) != groups.get(i).map_or(0, copy) {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }
}
