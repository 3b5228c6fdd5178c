//! The format's own inodes.

use super::Repair;
use super::disk::Stage;
use crate::format::gate::Journal;
use crate::format::raw::*;
use crate::format::units::{BlockAddr, GroupNo};
use crate::offline::node::{Kind, Node, is_listed};
use tidegate_vfs::{Error, Result};

const BOOT_INO: u32 = 5;
const QUOTA_INOS: [u32; 2] = [3, 4];
const S_IFREG: u16 = 0o100_000;
/// Index of the doubly indirect block's number.
const DIND: usize = 13;

impl Repair<'_, '_> {
    /// Repairs an inode that has no name; true if it is in use.
    pub(super) fn mend_special(&mut self, n: &mut Node) -> Result<bool> {
        let ino = n.ino;
        let words = (0..15).any(|w| n.word(w) != 0);
        let filled = n.raw.i_mode.get() != 0 || n.raw.i_links_count.get() != 0 || words || !n.is_empty();
        let filled = filled || is_listed(&self.sb, n.raw.i_dtime.get());
        if self.sb.journal == Journal::Inode(ino) {
            return self.mend_journal_inode(n);
        }
        let keep = match ino {
            BAD_INO => return self.mend_bad_blocks(n, words),
            RESIZE_INO if self.sb.compat.contains(Compat::RESIZE_INODE) => {
                let top = u64::from(n.word(DIND));
                if self.sb.holds(BlockAddr(top), 1)
                    && self.disk.block(top)? == self.resize_map().0
                    && self.claim(top)
                {
                    self.map_blocks.set(top);
                    self.resize_top = Some(top);
                }
                return Ok(true);
            }
            BOOT_INO => n.kind() == Some(Kind::File),
            _ if QUOTA_INOS.contains(&ino) => self.sb.ro_compat.contains(RoCompat::QUOTA),
            _ if ino == self.sb.raw.s_orphan_file_inum.get() => return self.mend_orphan_inode(n),
            _ => ino >= self.sb.first_ino,
        };
        if filled && !keep && ino >= GOOD_OLD_FIRST_INO {
            let what = format!(
                "inode {ino} is in use, and reserved where s_first_ino is {}: nothing was changed",
                self.sb.first_ino
            );
            return Err(Error::corrupt(what));
        }
        if filled && !keep {
            self.clear_inode(n, "in use, and reserved")?;
            return Ok(false);
        }
        self.seal_unused(n, filled)?;
        Ok(filled)
    }

    /// Corrects the checksum of an unused inode.
    pub(super) fn seal_unused(&mut self, n: &mut Node, filled: bool) -> Result<()> {
        let (has, should) = n.checksums();
        let written = n.bytes.iter().any(|b| *b != 0);
        if !filled && written && self.sb.has_csum() && has != should {
            self.tell("inode", n.ino, format!("checksum {has:#010x}"), format!("{should:#010x}"));
            self.store(n)?;
        }
        Ok(())
    }

    fn mend_bad_blocks(&mut self, n: &mut Node, words: bool) -> Result<bool> {
        let fields = [n.raw.i_mode, n.raw.i_uid, n.raw.i_gid, n.raw.i_links_count];
        let plain = fields.iter().all(|f| f.get() == 0) && n.raw.i_file_acl_lo.get() == 0;
        if !plain || !words && !n.is_empty() || words && self.map(n, true)?.fault().is_some() {
            self.clear_inode(n, "not the inode of bad blocks")?;
            return Ok(false);
        }
        self.seal_unused(n, words)?;
        Ok(words)
    }

    fn mend_journal_inode(&mut self, n: &mut Node) -> Result<bool> {
        if let Some(from) = self.journal_inode.take() {
            self.tell("journal", format!("inode {}", n.ino), "damaged", "as the superblock has it");
            *n = from;
        }
        if self.journal_lost {
            if n.bytes.iter().any(|b| *b != 0) {
                self.clear_inode(n, "no journal")?;
            }
            return Ok(false);
        }
        if n.kind() != Some(Kind::File) || n.raw.i_links_count.get() == 0 {
            self.tell(
                "inode",
                n.ino,
                format!("mode {:o}, {} links", n.raw.i_mode.get(), n.raw.i_links_count.get()),
                "a journal's",
            );
            (n.raw.i_mode, n.raw.i_links_count) = ((S_IFREG | 0o600).into(), 1.into());
        }
        Ok(true)
    }

    /// Repairs the inode of the orphan file; removes the feature if the file is damaged.
    fn mend_orphan_inode(&mut self, n: &mut Node) -> Result<bool> {
        if !self.sb.compat.contains(Compat::ORPHAN_FILE) {
            return Ok(n.raw.i_mode.get() != 0);
        }
        let map = self.map(n, true)?;
        let bs = u64::from(self.sb.block_size);
        let journal = self.sb.journal != Journal::None;
        let sound = journal
            && n.kind() == Some(Kind::File)
            && map.fault().is_none()
            && map.end() * bs == n.size()
            && map.data() == map.end();
        if sound && map.end() > 0 {
            if n.raw.i_links_count.get() == 0 {
                self.tell("inode", n.ino, "0 links", 1);
                n.raw.i_links_count = 1.into();
            }
            return Ok(true);
        }
        self.drop_orphan_file(if journal { "its inode is damaged" } else { "there is no journal" });
        self.clear_inode(n, "no orphan file")?;
        Ok(false)
    }

    /// Repairs the resize inode, which maps, through one block of numbers, the blocks that each group
    /// reserves for descriptors.
    pub(super) fn mend_resize_inode(&mut self) -> Result<()> {
        if !self.sb.compat.contains(Compat::RESIZE_INODE) {
            return Ok(());
        }
        let mut n = self.node(RESIZE_INO)?;
        let kept = u64::from(self.sb.raw.s_reserved_gdt_blocks.get());
        let top = u64::from(n.word(DIND));
        let (map, lists) = self.resize_map();
        if lists.iter().any(|(block, _)| !self.is_kept(*block)) {
            let what = format!("{kept} blocks kept, and tables among them");
            return self.drop_resize_inode(&n, &what);
        }
        let others = (0..15).filter(|w| *w != DIND).any(|w| n.word(w) != 0);
        let right = self.resize_top == Some(top);
        let bare = (kept, top) == (0, 0);
        let mut sound = !others
            && !n.has(InodeFlags::EXTENTS)
            && n.kind() == Some(Kind::File)
            && n.raw.i_links_count.get() > 0
            && (bare || right);
        for (block, list) in &lists {
            sound &= self.disk.block(*block)? == *list;
        }
        let copies = (0..self.sb.groups).filter(|g| self.sb.has_super(GroupNo(*g))).count() as u64;
        if !sound {
            self.tell("resize", "inode 7", "does not map what is kept", "made anew");
            let top = if right { top } else { self.alloc_block()? };
            self.disk.put(top, Stage::Fresh, map)?;
            for (block, list) in lists {
                self.disk.put(block, Stage::InPlace, list)?;
            }
            n.raw.i_flags = (n.flags() - InodeFlags::EXTENTS).bits().into();
            n.raw.i_block.fill(0);
            n.raw.i_block[DIND * 4..DIND * 4 + 4].copy_from_slice(&(top as u32).to_le_bytes());
            (n.raw.i_mode, n.raw.i_links_count) = ((S_IFREG | 0o600).into(), 1.into());
            let per = u64::from(self.sb.block_size / 4);
            super::fields::set_size(&mut n, (12 + per + per * per) * u64::from(self.sb.block_size));
        }
        let per = u64::from(self.sb.block_size / 4);
        if n.size() > (12 + per + per * per + per * per * per) * u64::from(self.sb.block_size) {
            self.tell("inode", RESIZE_INO, format!("size {}", n.size()), "what it can map");
            super::fields::set_size(&mut n, (12 + per + per * per) * u64::from(self.sb.block_size));
        }
        let blocks = if bare && sound { 0 } else { 1 + kept * copies };
        self.mend_block_count(&mut n, blocks, sound);
        self.used_inodes.set(RESIZE_INO.into());
        use zerocopy::IntoBytes;
        let (has, should) = n.checksums();
        let before = self.node(RESIZE_INO)?;
        if before.raw.as_bytes() != n.raw.as_bytes() || self.sb.has_csum() && has != should {
            self.store(&mut n)?;
        }
        Ok(())
    }

    /// Whether a block is reserved for descriptors in the first group, and in no table.
    fn is_kept(&self, block: u64) -> bool {
        let in_table = |d: &super::groups::Desc| {
            let table = d.desc.inode_table.0;
            [d.desc.block_bitmap.0, d.desc.inode_bitmap.0].contains(&block)
                || (table..table + self.sb.itable_blocks()).contains(&block)
        };
        let end = self.sb.group_start(GroupNo(0)).0 + self.sb.copies_in(GroupNo(0));
        block < end && block < self.sb.blocks && !self.descs.iter().any(in_table)
    }

    /// Makes features fit each other and the places of tables.
    pub(super) fn mend_layout_features(&mut self) -> Result<()> {
        let resizes = self.sb.compat.contains(Compat::RESIZE_INODE);
        if resizes && self.sb.incompat.contains(Incompat::META_BG) {
            let n = self.node(RESIZE_INO)?;
            self.drop_resize_inode(&n, "on beside meta_bg")?;
        }
        let kept = self.sb.raw.s_reserved_gdt_blocks.get();
        if !resizes && kept != 0 {
            self.tell("superblock", "s_reserved_gdt_blocks", format!("{kept} without resize_inode"), 0);
            self.sb.raw.s_reserved_gdt_blocks = 0.into();
        }
        let outside = |d: &super::groups::Desc| {
            let start = self.sb.group_start(d.desc.group).0;
            let own = start..start + u64::from(self.sb.blocks_per_group);
            let tables = [d.desc.block_bitmap, d.desc.inode_bitmap, d.desc.inode_table];
            // The place of a bitmap may be lost.
            tables.iter().any(|table| table.0 != 0 && !own.contains(&table.0))
        };
        if !self.sb.incompat.contains(Incompat::FLEX_BG) && self.descs.iter().any(outside) {
            self.tell("superblock", "flex_bg", "off, and tables lie in other groups", "the feature is on");
            self.sb.incompat |= Incompat::FLEX_BG;
            let stored = Incompat::from_bits_retain(self.sb.raw.s_feature_incompat.get()) | Incompat::FLEX_BG;
            self.sb.raw.s_feature_incompat = stored.bits().into();
        }
        Ok(())
    }

    /// Removes the reserve for descriptors.
    fn drop_resize_inode(&mut self, n: &Node, what: &str) -> Result<()> {
        self.tell("superblock", "resize_inode", what, "the feature is off");
        self.clear_inode(n, "no resize inode")?;
        self.sb.compat -= Compat::RESIZE_INODE;
        self.sb.raw.s_feature_compat = self.sb.compat.bits().into();
        self.sb.raw.s_reserved_gdt_blocks = 0.into();
        Ok(())
    }

    /// The content of the block of numbers, and each block that it leads to.
    #[allow(clippy::type_complexity)] // a list of blocks with their bytes
    fn resize_map(&self) -> (Vec<u8>, Vec<(u64, Vec<u8>)>) {
        let bs = self.sb.block_size as usize;
        let per = bs / 4;
        let kept = u64::from(self.sb.raw.s_reserved_gdt_blocks.get());
        let first = self.sb.group_start(GroupNo(0)).0 + 1 + self.sb.desc_blocks();
        let groups: Vec<u64> =
            (1..self.sb.groups).filter(|g| self.sb.has_super(GroupNo(*g))).take(per).map(u64::from).collect();
        let (mut map, mut lists) = (vec![0; bs], Vec::new());
        let put = |to: &mut [u8], word: usize, block: u64| {
            to[word * 4..word * 4 + 4].copy_from_slice(&(block as u32).to_le_bytes());
        };
        for n in 0..kept {
            let block = first + n;
            put(&mut map, (self.sb.desc_blocks() + n) as usize % per, block);
            let mut list = vec![0; bs];
            for (at, g) in groups.iter().enumerate() {
                put(&mut list, at, block + g * u64::from(self.sb.blocks_per_group));
            }
            lists.push((block, list));
        }
        (map, lists)
    }
}
