//! Inodes in memory, by number.

use crate::bdi::Bdi;
use crate::error::{ErrorKind, Result};
use crate::fs::{FileSystem, InodeParts};
use crate::inode::Inode;
use crate::types::Ino;
use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use tidegate_rt::hash::{HashMap, HashSet};
use tidegate_rt::{LockClass, Mutex};

static HASH_LOCK: LockClass = LockClass::new("inode_hash_lock", 630);

/// Numbers that the clock may have beyond twice those of inodes in memory.
const CLOCK_ROOM: usize = 64;

#[derive(Default)]
struct Table {
    map: HashMap<Ino, Arc<Inode>>,
    clock: VecDeque<Ino>,
    /// Counts inodes that went: a read of one from before it went may be outdated.
    removals: u64,
}

/// Every inode that is in use, and as many clean ones as the limit allows.
pub(crate) struct InodeCache {
    table: Mutex<Table>,
    bdi: Arc<Bdi>,
}

impl InodeCache {
    pub(crate) fn new(bdi: Arc<Bdi>) -> Self {
        InodeCache { table: Mutex::new(&HASH_LOCK, Table::default()), bdi }
    }

    pub(crate) fn get(&self, ino: Ino) -> Option<Arc<Inode>> {
        let t = self.table.lock();
        let i = t.map.get(&ino)?;
        i.referenced.store(true, Relaxed);
        Some(i.clone())
    }

    /// The inode, read by `read` if it is not in memory. Two threads may read; one result is kept.
    pub(crate) fn get_or_read(&self, ino: Ino, read: impl Fn() -> Result<InodeParts>) -> Result<Arc<Inode>> {
        loop {
            if let Some(i) = self.get(ino) {
                return Ok(i);
            }
            let removals = self.table.lock().removals;
            let parts = read()?;
            let mut t = self.table.lock();
            if t.map.contains_key(&ino) || t.removals == removals {
                return Ok(self.insert_locked(&mut t, parts));
            }
        }
    }

    /// Adds a new inode, or finds that somebody has read it already. One that had its number before and is
    /// freed may still be there.
    pub(crate) fn insert(&self, parts: InodeParts) -> Arc<Inode> {
        let mut t = self.table.lock();
        if t.map.get(&parts.ino).is_some_and(|i| i.is_freed()) {
            t.map.remove(&parts.ino);
        }
        self.insert_locked(&mut t, parts)
    }

    fn insert_locked(&self, t: &mut Table, parts: InodeParts) -> Arc<Inode> {
        let ino = parts.ino;
        if let Some(i) = t.map.get(&ino) {
            return i.clone();
        }
        let inode = Arc::new(Inode::new(parts, self.bdi.clone(), 1));
        t.map.insert(ino, inode.clone());
        t.clock.push_back(ino);
        if t.clock.len() > 2 * t.map.len() + CLOCK_ROOM {
            // Numbers of inodes that are freed, and those that others have by now.
            let mut seen = HashSet::default();
            t.clock.retain(|ino| t.map.contains_key(ino) && seen.insert(*ino));
        }
        self.evict(t);
        inode
    }

    /// Drops clean, unused inodes above the limit; looks at a few at each call.
    fn evict(&self, t: &mut Table) {
        let mut looks = 8;
        while t.map.len() > self.bdi.limits().inodes && looks > 0 {
            looks -= 1;
            let Some(ino) = t.clock.pop_front() else { break };
            let Some(i) = t.map.get(&ino) else { continue };
            // One reference is the table's: nobody else has it, and under this lock nobody gets it.
            if Arc::strong_count(i) == 1 && i.is_clean() && !i.referenced.swap(false, Relaxed) {
                t.map.remove(&ino);
                t.removals += 1;
            } else {
                t.clock.push_back(ino);
            }
        }
    }

    /// Removes an inode that is freed. Its number may belong to another by now, which stays.
    pub(crate) fn remove(&self, inode: &Arc<Inode>) {
        let mut t = self.table.lock();
        if t.map.get(&inode.ino).is_some_and(|i| Arc::ptr_eq(i, inode)) {
            t.map.remove(&inode.ino);
        }
        t.removals += 1;
    }

    pub(crate) fn all(&self) -> Vec<Arc<Inode>> {
        self.table.lock().map.values().cloned().collect()
    }

    pub(crate) fn clear(&self) {
        let mut t = self.table.lock();
        t.map.clear();
        t.removals += 1;
        t.clock.clear();
    }
}

/// The inodes in memory, for a file system that has to find one by its number. Holding this keeps
/// neither them nor the mount alive.
#[derive(Clone)]
pub struct Inodes(Weak<InodeCache>);

impl Inodes {
    pub(crate) fn of(cache: &Arc<InodeCache>) -> Inodes {
        Inodes(Arc::downgrade(cache))
    }

    /// The one inode in memory with number `ino`, read if need be. Takes `inode_hash_lock`.
    ///
    /// # Errors
    /// Those of reading it; `Stale` when it is free or the mount is gone.
    pub fn get(&self, fs: &dyn FileSystem, ino: Ino) -> Result<Arc<Inode>> {
        let cache = self.0.upgrade().ok_or(ErrorKind::Stale)?;
        cache.get_or_read(ino, || fs.read_inode(ino))
    }
}
