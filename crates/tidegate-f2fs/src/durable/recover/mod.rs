//! Roll-forward: files that were fsynced after the last checkpoint.
//!
//! fsync leaves marked nodes in the warm-node log. Recovery follows that log from its place in the
//! checkpoint, three times: to learn which files were fsynced and which segments recovery touches
//! ([`chain`]); to make the inodes that no checkpoint has; and to give each file the content of its nodes, up
//! to its last marked one ([`inode`], [`data`], [`name`]). The blocks that recovery reads are not
//! overwritten: the logs move to other segments first. Nothing counts before the checkpoint at the end, so a
//! crash during recovery changes nothing.
//!
//! Locks: recovery runs while the volume is opened, before any other thread can use it, so it waits for no
//! lock.
//!
//! | module | holds |
//! |---|---|
//! | `forward` | the three passes |
//! | `chain` | the marked nodes behind the last checkpoint |
//! | `inode`, `inline`, `data`, `name` | an inode; data in an inode; a file's addresses; a name that no checkpoint has |
//! | `zones` | logs and write pointers, brought together |

mod chain;
mod data;
mod forward;
mod inline;
mod inode;
mod name;
mod zones;

use crate::format::units::BlockAddr;
use crate::volume::sbi::F2fs;
use std::sync::Arc;
use tidegate_rt::hash::{HashMap, HashSet};
use tidegate_vfs::{Ino, Inode, Result};

/// A file that was fsynced.
#[derive(Default)]
struct Entry {
    /// The file's last marked node: later nodes were not fsynced.
    last: BlockAddr,
    /// The last inode node up to the last marked node.
    inode: Option<BlockAddr>,
    /// The last inode node that asks for the file's name to be recovered.
    dentry: Option<BlockAddr>,
}

/// One roll-forward and its state.
struct RollForward<'a> {
    fs: &'a F2fs,
    entries: HashMap<u32, Entry>,
    /// Directories that got names; these directories have dirty blocks.
    dirs: HashMap<u32, Arc<Inode>>,
    /// Segments the chain is in.
    nodes: HashSet<u32>,
}

impl RollForward<'_> {
    fn load(&self, ino: u32) -> Result<Arc<Inode>> {
        let parts = self.fs.load_inode(Ino(ino as u64))?;
        Ok(Arc::new(Inode::new(parts, self.fs.bdi.clone(), 1)))
    }

    /// Whether a block is in a segment of the chain.
    fn chain_is_in(&self, blk: BlockAddr) -> bool {
        self.nodes.contains(&self.fs.sit.place(blk).0.0)
    }
}
