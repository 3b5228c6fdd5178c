//! The journal: the search for it, and a new one where it is lost.

use super::Repair;
use super::disk::Stage;
use super::map::Run;
use crate::format::crc::crc32c;
use crate::format::gate::Journal;
use crate::format::raw::*;
use crate::offline::check::durable::VERSION_1;
use crate::offline::mkfs;
use crate::offline::node::{Kind, Node};
use std::sync::Arc;
use tidegate_block::RequestQueue;
use tidegate_jbd2::format::raw::{MIN_JOURNAL_BLOCKS, SUPERBLOCK_V1};
use tidegate_jbd2::{FsBlock, Log, Superblock as JournalSuperblock};
use tidegate_vfs::{ErrorKind, Result};
use zerocopy::IntoBytes;

/// The usual inode of a journal.
const JOURNAL_INO: u32 = 8;
const S_IFREG: u16 = 0o100_000;
/// `s_jnl_backup_type`: the superblock has a copy of the map and the size.
const BACKUP_BLOCKS: u8 = 1;

/// Offset of `s_sequence` in the journal's superblock.
const SEQUENCE: usize = 0x18;

/// A journal that was found.
pub(super) struct Found {
    pub(super) log: Log,
    /// Its first block on the volume.
    pub(super) head: u64,
}

/// Whether a superblock of version 1 has fields of version 2, or more than one volume uses the journal.
fn is_mixed(sb: &JournalSuperblock) -> bool {
    let old = sb.raw.s_header.h_blocktype.get() == SUPERBLOCK_V1;
    sb.raw.s_nr_users.get() > 1 || old && sb.raw.as_bytes()[VERSION_1..].iter().any(|b| *b != 0)
}

impl Repair<'_, '_> {
    /// Finds the journal, by its inode or by the copy in the superblock; none where there is none, or where
    /// it must be rebuilt.
    ///
    /// # Errors
    /// `Unsupported` for its features; those of the device.
    pub(super) fn find_journal(&mut self, queue: &Arc<RequestQueue>) -> Result<Option<Found>> {
        let Journal::Inode(ino) = self.sb.journal else { return Ok(None) };
        let mut tried = Vec::new();
        for (ino, copied) in [(ino, false), (ino, true), (JOURNAL_INO, false), (JOURNAL_INO, true)] {
            if !self.is_inode(ino) || ino >= self.sb.first_ino && ino != ROOT_INO && copied {
                continue;
            }
            let mut n = self.node(ino)?;
            if copied && !self.copied_map(&mut n) {
                continue;
            }
            let Some(found) = self.log_of(queue, &n)? else { continue };
            match JournalSuperblock::read(&found.log) {
                // The log is empty: a log of version 1 was replayed as such before.
                Ok(sb) if sb.start.is_none() && is_mixed(&sb) => tried.push((found, n, copied)),
                Ok(_) => {
                    self.journal_inode = copied.then_some(n);
                    self.move_journal(ino);
                    return Ok(Some(found));
                }
                Err(e) if e.kind() == ErrorKind::Corrupt => {
                    // Nothing is written to the blocks of a damaged inode.
                    let (has, should) = n.checksums();
                    if n.kind() == Some(Kind::File) && (!self.sb.has_csum() || has == should) {
                        tried.push((found, n, copied));
                    }
                }
                Err(e) => return Err(e),
            }
        }
        let large = |f: &&(Found, Node, bool)| f.0.log.len() >= MIN_JOURNAL_BLOCKS && !f.2;
        match tried.iter().find(large) {
            Some((found, n, _)) => {
                self.journal_head = Some((found.head, found.log.len()));
                self.move_journal(n.ino);
            }
            None => self.journal_lost = true,
        }
        Ok(None)
    }

    fn move_journal(&mut self, ino: u32) {
        if self.sb.journal != Journal::Inode(ino) {
            self.sb.journal = Journal::Inode(ino);
            self.sb.raw.s_journal_inum = ino.into();
        }
    }

    /// Copies the map and size of the journal from the superblock into its inode, if the superblock has them.
    fn copied_map(&self, n: &mut Node) -> bool {
        let raw = &self.sb.raw;
        if raw.s_jnl_backup_type != BACKUP_BLOCKS || raw.s_jnl_blocks.iter().all(|w| w.get() == 0) {
            return false;
        }
        n.raw.i_block.copy_from_slice(&raw.s_jnl_blocks.as_bytes()[..I_BLOCK_SIZE]);
        (n.raw.i_size_high, n.raw.i_size_lo) = (raw.s_jnl_blocks[15], raw.s_jnl_blocks[16]);
        (n.raw.i_mode, n.raw.i_links_count) = ((S_IFREG | 0o600).into(), 1.into());
        let extents = le16(&n.raw.i_block, 0) == EXTENT_MAGIC && self.sb.incompat.contains(Incompat::EXTENTS);
        let flags = if extents { InodeFlags::EXTENTS } else { InodeFlags::empty() };
        n.raw.i_flags = flags.bits().into();
        true
    }

    /// The log in an inode's blocks; none where the map is not sound.
    fn log_of(&mut self, queue: &Arc<RequestQueue>, n: &Node) -> Result<Option<Found>> {
        let map = self.map(n, false)?;
        let blocks = n.size() / u64::from(self.sb.block_size);
        let whole = map.wrong.is_none() && map.end() == map.data() && map.end() >= blocks;
        // A log cannot lie in tables.
        let table = |r: &Run| (r.start..r.start + r.len).any(|b| self.meta.get(b));
        if map.runs.iter().any(table) {
            return Ok(None);
        }
        let Some(first) = map.runs.first().filter(|_| whole && blocks > 0) else { return Ok(None) };
        let within = |r: &Run| {
            let len = r.len.min(blocks.saturating_sub(r.at)) as u32;
            tidegate_jbd2::Run { first: FsBlock(r.start), len }
        };
        let log = Log::new(queue.clone(), self.sb.block_size, map.runs.iter().map(within));
        Ok(log.ok().map(|log| Found { log, head: first.start }))
    }

    /// Rewrites the journal's first block if it is damaged, and makes a new journal if it is lost.
    pub(super) fn mend_journal(&mut self) -> Result<()> {
        let head = match self.journal_head {
            Some((_, blocks)) => self.final_head(blocks)?.map(|head| (head, blocks)),
            None => None,
        };
        self.journal_lost |= self.journal_head.is_some() && head.is_none();
        if let Some((head, blocks)) = head {
            self.tell(
                "journal",
                format!("block {head}"),
                "its superblock is damaged",
                "made anew; it is empty",
            );
            let mut bytes = mkfs::journal::superblock(&self.sb, blocks.into());
            // Transactions of the old log must not be taken for new ones.
            let first = crc32c(self.sb.csum_seed, &self.options.now.secs.to_le_bytes());
            bytes[SEQUENCE..SEQUENCE + 4].copy_from_slice(&first.max(1).to_be_bytes());
            self.disk.put(head, Stage::InPlace, bytes)?;
        }
        if self.journal_lost { self.new_journal() } else { Ok(()) }
    }

    /// The first block of the journal by its present map; none if another inode has it, or if the map is not
    /// whole.
    fn final_head(&mut self, blocks: u32) -> Result<Option<u64>> {
        let Journal::Inode(ino) = self.sb.journal else { return Ok(None) };
        let n = self.node(ino)?;
        let map = self.map(&n, false)?;
        let whole = map.wrong.is_none() && map.end() == map.data() && map.end() >= blocks.into();
        let first = map.runs.first().map(|r| r.start).filter(|_| whole);
        let fixed = |b: &u64| self.meta.get(*b) || self.map_blocks.get(*b) || self.attributes.contains_key(b);
        Ok(first.filter(|b| !fixed(b)))
    }

    /// A new, empty journal of the usual size; none where there is no room.
    fn new_journal(&mut self) -> Result<()> {
        let usual = mkfs::usual_journal(self.sb.blocks).max(MIN_JOURNAL_BLOCKS.into());
        let Some(runs) = self.free_runs(usual).or_else(|| self.free_runs(MIN_JOURNAL_BLOCKS.into())) else {
            self.tell(
                "journal",
                "superblock",
                "the journal is lost, and there is no room for another",
                "without a journal",
            );
            self.sb.compat -= Compat::HAS_JOURNAL;
            self.sb.raw.s_feature_compat = self.sb.compat.bits().into();
            self.sb.raw.s_journal_inum = 0.into();
            return Ok(());
        };
        let blocks: u64 = runs.iter().map(|r| r.len).sum();
        self.tell("journal", "superblock", "the journal is lost", format!("a new one of {blocks} blocks"));
        self.move_journal(JOURNAL_INO);
        let mut n = Node::parse(&self.sb, JOURNAL_INO, &vec![0; self.sb.inode_size as usize]);
        self.set_times(&mut n);
        (n.raw.i_mode, n.raw.i_links_count) = ((S_IFREG | 0o600).into(), 1.into());
        if self.sb.incompat.contains(Incompat::EXTENTS) {
            n.raw.i_flags = InodeFlags::EXTENTS.bits().into();
        }
        super::fields::set_size(&mut n, blocks * u64::from(self.sb.block_size));
        runs.iter().for_each(|r| self.disk.zero(r.start, r.len));
        let head = mkfs::journal::superblock(&self.sb, blocks);
        self.disk.put(runs[0].start, Stage::Fresh, head)?;
        self.build_map(&mut n, &runs)?;
        let raw = &mut self.sb.raw;
        raw.s_jnl_backup_type = BACKUP_BLOCKS;
        for (to, from) in raw.s_jnl_blocks.iter_mut().zip(n.raw.i_block.as_chunks::<4>().0) {
            *to = u32::from_le_bytes(*from).into();
        }
        (raw.s_jnl_blocks[15], raw.s_jnl_blocks[16]) = (n.raw.i_size_high, n.raw.i_size_lo);
        self.used_inodes.set(JOURNAL_INO.into());
        let state = super::State { kind: Some(Kind::File), special: true, links: 1, ..Default::default() };
        *self.state_mut(JOURNAL_INO) = state;
        Ok(())
    }

    /// Free blocks in as few runs as come first, `blocks` in all.
    fn free_runs(&mut self, blocks: u64) -> Option<Vec<Run>> {
        let (mut runs, mut at): (Vec<Run>, u64) = (Vec::new(), 0);
        for block in self.sb.first_data_block.0 + 1..self.sb.blocks {
            if at == blocks {
                break;
            }
            if self.used.get(block) || self.seen.get(block) {
                continue;
            }
            match runs.last_mut() {
                Some(r) if r.start + r.len == block => r.len += 1,
                _ => runs.push(Run { at, start: block, len: 1, unwritten: false }),
            }
            at += 1;
        }
        if at < blocks {
            return None;
        }
        for block in runs.iter().flat_map(|r| r.start..r.start + r.len) {
            self.claim(block);
        }
        Some(runs)
    }
}
