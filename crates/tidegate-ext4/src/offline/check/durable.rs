//! The journal, and lists of orphans.

use super::{Checker, rules};
use crate::fast_commit;
use crate::format::crc::crc32c;
use crate::format::gate::{Journal, Superblock};
use crate::format::raw::*;
use crate::offline::node::{Kind, Node};
use std::sync::Arc;
use tidegate_block::RequestQueue;
use tidegate_jbd2::{FsBlock, Log, Run, recover};
use tidegate_vfs::{ErrorKind, Result};
use zerocopy::IntoBytes;

/// Bytes of a journal's superblock of version 1.
pub(in crate::offline) const VERSION_1: usize = 0x24;

impl Checker<'_> {
    /// Reads the journal; its blocks are laid over the volume.
    pub(super) fn load_journal(&mut self, queue: &Arc<RequestQueue>) -> Result<()> {
        let Journal::Inode(ino) = self.sb.journal else { return Ok(()) };
        let Some(node) = self.node(ino)? else {
            self.found.add(rules::JOURNAL, || format!("inode {ino} cannot be read"));
            return Ok(());
        };
        let sane = node.kind() == Some(Kind::File) && node.raw.i_links_count.get() > 0;
        if !self.found.require(sane, rules::JOURNAL, || format!("inode {ino} is no journal")) {
            return Ok(());
        }
        let runs = self.journal_runs(&node)?;
        let log = Log::new(queue.clone(), self.sb.block_size, runs);
        let replay = match log.and_then(|log| recover(Arc::new(log), self.sb.blocks)) {
            Ok(replay) => replay,
            Err(e) if matches!(e.kind(), ErrorKind::Corrupt | ErrorKind::Unsupported | ErrorKind::Io) => {
                self.found.add(rules::JOURNAL, || e.to_string());
                self.journal_unread = Some(e).filter(|e| e.kind() == ErrorKind::Io);
                return Ok(());
            }
            Err(e) => return Err(e),
        };
        let raw = &replay.superblock().raw;
        let old = raw.s_header.h_blocktype.get() == tidegate_jbd2::format::raw::SUPERBLOCK_V1;
        let filled = raw.as_bytes()[VERSION_1..].iter().any(|b| *b != 0);
        self.found.require(!old || !filled, rules::JOURNAL, || {
            "its superblock is of version 1, and has fields of version 2".into()
        });
        let users = raw.s_nr_users.get();
        self.found.require(users <= 1, rules::JOURNAL, || format!("{users} volumes use it"));
        if let Some(tid) = replay.failed_commit() {
            self.found.add(rules::JOURNAL, || format!("transaction {tid} is damaged"));
        }
        let errno = replay.errno();
        self.found.require(errno == 0, rules::JOURNAL, || format!("it tells of error {errno}"));
        if replay.is_clean() {
            return Ok(());
        }
        let flagged = self.sb.incompat.contains(Incompat::RECOVER);
        if !self.found.require(flagged, rules::JOURNAL_FLAG, || "the journal is not empty".into()) {
            return Ok(());
        }
        let overlay = match fast_commit::lay_over(queue, &self.sb, replay) {
            Ok(overlay) => overlay,
            Err(e) if e.kind() == ErrorKind::Corrupt => {
                self.found.add(rules::JOURNAL, || e.to_string());
                return Ok(());
            }
            Err(e) => return Err(e),
        };
        if overlay.lacks_fast_commits() {
            self.found.notes.push("fast commits of the journal are not looked at".into());
        }
        self.recovered = true;
        self.dev.lay_over(overlay);
        self.reload_superblock()
    }

    fn journal_runs(&mut self, node: &Node) -> Result<Vec<Run>> {
        let mut runs: Vec<Run> = Vec::new();
        let blocks = node.size() / u64::from(self.sb.block_size);
        let list = self.bounded_blocks(node)?;
        for (_, block) in list.into_iter().take_while(|b| b.0 < blocks) {
            match runs.last_mut() {
                Some(r) if r.first.0 + u64::from(r.len) == block => r.len += 1,
                _ => runs.push(Run { first: FsBlock(block), len: 1 }),
            }
        }
        Ok(runs)
    }

    fn reload_superblock(&mut self) -> Result<()> {
        let bs = self.sb.block_size as usize;
        let bytes = self.dev.block((SUPER_OFFSET / bs) as u64)?;
        let size = self.sb.blocks * bs as u64;
        let sb = Superblock::parse(&bytes[SUPER_OFFSET % bs..][..SUPER_SIZE], size);
        self.sb = sb.map_err(|e| e.of("the superblock in the journal"))?;
        self.load_groups()
    }

    /// Follows the list of orphans through the inodes' times of deletion, and reads the orphan file.
    pub(super) fn load_orphans(&mut self) -> Result<()> {
        let mut at = self.sb.raw.s_last_orphan.get();
        while at != 0 {
            if !self.add_orphan(at) {
                return Ok(());
            }
            at = self.node(at)?.map_or(0, |n| n.raw.i_dtime.get());
        }
        let ino = self.sb.raw.s_orphan_file_inum.get();
        if self.sb.compat.contains(Compat::ORPHAN_FILE)
            && self.sb.names_orphan_file()
            && let Some(node) = self.node(ino)?
        {
            self.read_orphan_file(&node)?;
        }
        Ok(())
    }

    fn add_orphan(&mut self, ino: u32) -> bool {
        let known = (self.sb.first_ino..=self.sb.raw.s_inodes_count.get()).contains(&ino);
        let fresh = known && self.orphans.insert(ino);
        self.found
            .require(fresh, rules::ORPHAN_LIST, || format!("inode {ino} is on it, twice or out of range"))
    }

    fn read_orphan_file(&mut self, node: &Node) -> Result<()> {
        let present = self.sb.ro_compat.contains(RoCompat::ORPHAN_PRESENT);
        for (at, block) in self.bounded_blocks(node)? {
            let bytes = self.block(block)?;
            let end = RawOrphanTail::offset(&bytes);
            let sum = crc32c(crc32c(node.seed, &block.to_le_bytes()), &bytes[..end]);
            let sealed = |tail: &RawOrphanTail| !self.sb.has_csum() || sum == tail.ob_checksum.get();
            let sane = RawOrphanTail::of(&bytes)
                .is_some_and(|tail| tail.ob_magic.get() == ORPHAN_MAGIC && sealed(&tail));
            if !self.found.require(sane, rules::ORPHAN_FILE, || format!("block {at} of it is damaged")) {
                continue;
            }
            for (_, ino) in RawOrphanTail::numbers(&bytes) {
                if self
                    .found
                    .require(present, rules::ORPHAN_FILE, || format!("inode {ino} is in it unannounced"))
                {
                    self.add_orphan(ino);
                }
            }
        }
        Ok(())
    }
}
