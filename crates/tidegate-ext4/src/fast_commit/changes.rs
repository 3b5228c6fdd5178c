//! The changes of fast commits while they are made, and the inodes that they concern.

use crate::format::gate::rule;
use crate::format::raw::ROOT_INO;
use crate::inode::{Own, Ranges};
use crate::volume::handle::Handle;
use crate::volume::sbi::Ext4;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tidegate_jbd2::format::fc::FcInode;
use tidegate_vfs::{Bdi, Ino, Inode, InodeParts, Result};

/// The changes made so far, and the work that is left for the end.
pub(super) struct Changes<'a> {
    pub(super) fs: &'a Ext4,
    pub(super) bdi: Arc<Bdi>,
    pub(super) handle: Handle<'a>,
    /// Inodes that the changes concern.
    pub(super) inodes: BTreeMap<u32, Arc<Inode>>,
    /// Blocks that were free and that a tag gives to a file. They count as in use from the start, so that
    /// they get no other use.
    pub(super) ahead: Ranges,
    /// Blocks that a file lost.
    pub(super) gone: Ranges,
    /// Blocks that files got.
    pub(super) owned: BTreeMap<u32, Ranges>,
    /// Directories whose subdirectories must be counted.
    pub(super) recount: BTreeSet<u32>,
}

impl Changes<'_> {
    /// The number of an inode that a fast commit may name.
    pub(super) fn number(&self, ino: FcInode) -> Result<u32> {
        let (n, sb) = (ino.0, &self.fs.sb);
        let can_be = n == ROOT_INO || (sb.first_ino..=sb.raw.s_inodes_count.get()).contains(&n);
        rule(can_be && !self.fs.is_system(n), "no file has this number").map_err(|e| e.in_inode(n))?;
        Ok(n)
    }

    /// An inode in use.
    pub(super) fn inode(&mut self, ino: FcInode) -> Result<Arc<Inode>> {
        let n = self.number(ino)?;
        if let Some(inode) = self.inodes.get(&n) {
            return Ok(inode.clone());
        }
        rule(self.fs.is_inode_used(n)?, "it is free, and fast commits change it")
            .map_err(|e| e.in_inode(n))?;
        self.load(n)
    }

    pub(super) fn load(&mut self, n: u32) -> Result<Arc<Inode>> {
        let (attr, own) = self.fs.load_any(n)?;
        let parts = InodeParts { ino: Ino(n.into()), attr, private: Own::new(&self.fs.sb, own, None) };
        let inode = Arc::new(Inode::new(parts, self.bdi.clone(), 1));
        self.inodes.insert(n, inode.clone());
        Ok(inode)
    }
}
