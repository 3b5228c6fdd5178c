//! The inodes that the kernel knows: lookup counts, and inodes that only the kernel keeps alive.
//!
//! A count takes a few bytes and pins nothing: an inode that has a name is read again when it is needed. An
//! inode that lost its last name while the kernel knows it is held open until the kernel forgets it.

use std::collections::HashMap;
use tidegate::vfs::File;
use tidegate_rt::{LockClass, Mutex};

static NODES: LockClass = LockClass::new("fuse->nodes", 620);
const SHARDS: u64 = 16;
/// A table with room for so many times its entries is made smaller.
const SPARSE: usize = 8;
const FEW: usize = 512;

#[derive(Default)]
struct Shard {
    lookups: HashMap<u64, u64>,
    orphans: HashMap<u64, File>,
}

/// Inodes that the kernel knows, with its lookup counts.
pub(crate) struct Nodes(Box<[Mutex<Shard>]>);

impl Nodes {
    pub(crate) fn new() -> Self {
        Nodes((0..SHARDS).map(|_| Mutex::new(&NODES, Shard::default())).collect())
    }

    fn shard(&self, node: u64) -> &Mutex<Shard> {
        &self.0[(node % SHARDS) as usize]
    }

    /// Counts one more lookup of `node`.
    pub(crate) fn remember(&self, node: u64) {
        *self.shard(node).lock().lookups.entry(node).or_insert(0) += 1;
    }

    /// The number of lookups of `node` that the kernel has not forgotten.
    pub(crate) fn lookups(&self, node: u64) -> u64 {
        self.shard(node).lock().lookups.get(&node).copied().unwrap_or(0)
    }

    /// Notes that the kernel forgets `n` lookups of `node`.
    pub(crate) fn forget(&self, node: u64, n: u64) {
        let mut s = self.shard(node).lock();
        let Some(left) = s.lookups.get_mut(&node) else { return };
        *left = left.saturating_sub(n);
        if *left > 0 {
            return;
        }
        s.lookups.remove(&node);
        // The memory is given back after a walk through the whole tree.
        let len = s.lookups.len();
        if s.lookups.capacity() > SPARSE * (len + FEW) {
            s.lookups.shrink_to(2 * len);
        }
        let orphan = s.orphans.remove(&node);
        drop(s);
        // Freeing the inode takes locks of lower rank.
        drop(orphan);
    }

    /// Keeps an inode without a name open for as long as the kernel knows it.
    pub(crate) fn keep(&self, node: u64, file: File) {
        let mut s = self.shard(node).lock();
        let file = if s.lookups.contains_key(&node) { s.orphans.insert(node, file) } else { Some(file) };
        drop(s);
        drop(file);
    }

    /// Drops everything: the mount is gone.
    pub(crate) fn clear(&self) {
        for shard in &self.0 {
            let all = std::mem::take(&mut *shard.lock());
            drop(all);
        }
    }

    /// How many inodes the kernel knows, and how many of them have no name.
    pub(crate) fn len(&self) -> (usize, usize) {
        self.0.iter().fold((0, 0), |(l, o), shard| {
            let s = shard.lock();
            (l + s.lookups.len(), o + s.orphans.len())
        })
    }
}
