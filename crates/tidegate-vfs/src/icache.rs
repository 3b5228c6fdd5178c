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

/// The clock may hold twice as many numbers as there are inodes in memory, and so many more.
const CLOCK_ROOM: usize = 64;

#[derive(Default)]
struct Table {
    map: HashMap<Ino, Arc<Inode>>,
    clock: VecDeque<Ino>,
    /// The number of removed inodes: a read that began before a removal may be outdated.
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

    /// The inode with number `ino`. `read` reads it if it is not in memory. Two threads may read at once; one
    /// result is kept.
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

    /// Adds a new inode, or finds that another thread has read it already. An earlier, freed inode of this
    /// number may still be in the table.
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
            // The clock drops numbers of freed inodes, and duplicates of numbers that were reused.
            let mut seen = HashSet::default();
            t.clock.retain(|ino| t.map.contains_key(ino) && seen.insert(*ino));
        }
        self.evict(t);
        inode
    }

    /// Drops clean, unused inodes above the limit. Each call looks at a few.
    fn evict(&self, t: &mut Table) {
        let mut looks = 8;
        while t.map.len() > self.bdi.limits().inodes && looks > 0 {
            looks -= 1;
            let Some(ino) = t.clock.pop_front() else { break };
            let Some(i) = t.map.get(&ino) else { continue };
            // The only reference is the table's, and under this lock no thread can get another.
            if Arc::strong_count(i) == 1 && i.is_clean() && !i.referenced.swap(false, Relaxed) {
                t.map.remove(&ino);
                t.removals += 1;
            } else {
                t.clock.push_back(ino);
            }
        }
    }

    /// Removes an inode that is freed. A newer inode with its number stays.
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

/// The inodes in memory, for a file system that has to find an inode by its number. This keeps neither the
/// inodes nor the mount alive.
#[derive(Clone)]
pub struct Inodes(Weak<InodeCache>);

impl Inodes {
    pub(crate) fn of(cache: &Arc<InodeCache>) -> Inodes {
        Inodes(Arc::downgrade(cache))
    }

    /// The inode in memory with number `ino`, which is read if need be. Takes `inode_hash_lock`.
    ///
    /// # Errors
    /// Those of reading the inode; `Stale` when the inode is free or the mount is gone.
    pub fn get(&self, fs: &dyn FileSystem, ino: Ino) -> Result<Arc<Inode>> {
        let cache = self.0.upgrade().ok_or(ErrorKind::Stale)?;
        cache.get_or_read(ino, || fs.read_inode(ino))
    }
}
