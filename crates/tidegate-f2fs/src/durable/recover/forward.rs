//! The three passes over the log.

use super::RollForward;
use super::chain::{self, Chain};
use crate::format::raw::*;
use crate::format::units::{BlockAddr, Nid};
use crate::node::{is_dnode, ofs_of};
use crate::segment::log::Log;
use crate::volume::sbi::F2fs;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use tidegate_rt::hash::HashMap;
use tidegate_vfs::{At, Error, ErrorKind, FileType, Result};

/// The logs; the logs that recovery writes most to come first, as there may not be a free segment for each
/// log.
const BY_NEED: [Log; NR_CURSEG_TYPE] =
    [Log::WarmNode, Log::HotNode, Log::HotData, Log::ColdNode, Log::WarmData, Log::ColdData];

impl F2fs {
    /// Whether files were fsynced after the last checkpoint.
    pub(crate) fn has_fsynced_files(&self) -> Result<bool> {
        Ok(!chain::find(self)?.entries.is_empty())
    }

    /// Recovers what was fsynced after the last checkpoint; false if there was nothing. Nothing of it is
    /// durable before the next checkpoint. On a volume that is opened read-only all of it stays in memory.
    ///
    /// # Errors
    /// `Corrupt` when the nodes make no sense, `NoSpace`, those of the device.
    pub(crate) fn roll_forward(&self) -> Result<bool> {
        let mut found = chain::find(self)?;
        if found.is_cut && !self.ckpt.lock().cp.flags.contains(CpFlags::UMOUNT) {
            self.unrecovered.store(true, SeqCst);
        }
        if found.entries.is_empty() {
            return Ok(false);
        }
        // On zones, the logs have left the chain's sections already.
        if self.why_read_only().is_none() && !self.is_zoned() {
            self.clear_the_way(std::mem::take(&mut found.segments))?;
        }
        let mut r =
            RollForward { fs: self, entries: found.entries, dirs: HashMap::default(), nodes: found.nodes };
        r.prepare()?;
        let mut chain = Chain::new(self);
        while let Some((at, page)) = chain.next()? {
            let page = page.to_vec();
            r.apply(at, &page)?;
        }
        self.recovered.store(r.entries.len() as u64, Relaxed);
        if self.why_read_only().is_some() {
            self.keep_directories();
        }
        Ok(true)
    }

    /// Takes the logs away from `segments` (a bit each), which the chain is in or leads to. A small or full
    /// volume may have too few other segments. Logs then also go to `segments`, and stay away only from the
    /// blocks of the chain; where there is no free segment, logs fill holes.
    fn clear_the_way(&self, segments: Vec<u8>) -> Result<()> {
        self.sit.exclude(Some(segments));
        let mut stuck = self.leave_segments(BY_NEED.into())?;
        if !stuck.is_empty() {
            chain::each_block(self, |blk| self.sit.protect(blk))?;
            self.sit.exclude(None);
            stuck = self.leave_segments(stuck)?;
        }
        stuck.into_iter().try_for_each(|log| self.stay_in_holes(log))
    }

    /// Takes logs to other segments that they are not kept away from. Returns the logs that found none.
    pub(super) fn leave_segments(&self, logs: Vec<Log>) -> Result<Vec<Log>> {
        let mut stuck = Vec::new();
        for log in logs {
            match self.leave_segment(log) {
                Err(e) if e.kind() == ErrorKind::NoSpace => stuck.push(log),
                r => r?,
            }
        }
        Ok(stuck)
    }

    /// Keeps in memory the directory blocks that recovery changed: the read-only volume itself will never
    /// have them.
    fn keep_directories(&self) {
        let dirs: Vec<_> = self.dirty_dirs.lock().drain().collect();
        let mut kept = HashMap::default();
        for (ino, dir) in dirs {
            for block in dir.mapping.dirty_indices(0, u64::MAX) {
                kept.extend(dir.mapping.get(block, 1).map(|run| ((ino, block), run)));
            }
        }
        let _ = self.overlay.set(kept);
    }
}

impl RollForward<'_> {
    /// Makes inodes that no checkpoint has, before any other node takes their number. From the other inodes
    /// it drops what truncation took.
    fn prepare(&mut self) -> Result<()> {
        let mut inos: Vec<u32> = self.entries.keys().copied().collect();
        inos.sort_unstable();
        for ino in inos {
            let e = &self.entries[&ino];
            let known = self.fs.nat.lookup(&self.fs.meta, Nid(ino))?.addr != BlockAddr::NULL;
            let keep = match (known, e.dentry, e.inode) {
                (false, Some(at), _) => self.make_inode(ino, at)?,
                // The file's last name went before the checkpoint.
                (false, None, _) => false,
                (true, _, Some(at)) => self.drop_old_subtrees(ino, at)?,
                (true, _, None) => self.load(ino)?.file_type == FileType::Regular,
            };
            // A file that has a name gets no other.
            if let Some(e) = self.entries.get_mut(&ino).filter(|_| known) {
                e.dentry = None;
            }
            if !keep {
                self.entries.remove(&ino);
            }
        }
        Ok(())
    }

    /// Takes over the content of node `page`, found at `at`, for its file.
    fn apply(&mut self, at: BlockAddr, page: &[u8]) -> Result<()> {
        let ino = crate::node::ino_of(page);
        let Some(e) = self.entries.get(&ino) else { return Ok(()) };
        if e.last == BlockAddr::NULL {
            return Ok(()); // all fsynced nodes of the file are recovered
        }
        let (is_last, named) = (e.last == at, e.dentry == Some(at));
        // Behind the last inode in the chain, only the nodes themselves tell the file's size.
        let grows = e.inode.is_none();
        let last_inode = e.inode == Some(at);
        let inode = match self.load(ino) {
            Ok(inode) => inode,
            Err(e) if e.kind() == ErrorKind::Stale => return Ok(()), // the file's name went to another file
            Err(e) => return Err(e.of_at("recovering", At::Inode(ino.into()))),
        };
        let of = |e: Error| e.at(at.place()).of_at("recovering", At::Inode(ino.into()));
        let ofs = ofs_of(page);
        if ofs == 0 {
            self.recover_inode(&inode, page, last_inode).map_err(of)?;
            if named {
                self.recover_name(&inode, page).map_err(of)?;
            }
        } else if ofs == XATTR_NODE_OFFSET {
            self.recover_xattr_node(&inode, page).map_err(of)?;
        } else if is_dnode(ofs) {
            self.recover_dnode(&inode, page, grows).map_err(of)?;
        }
        if let Some(e) = self.entries.get_mut(&ino) {
            if last_inode {
                e.inode = None;
            }
            if is_last {
                e.last = BlockAddr::NULL;
            }
        }
        Ok(())
    }
}
