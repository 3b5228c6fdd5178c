//! Inodes in memory, by number.

use crate::bdi::Bdi;
use crate::error::Result;
use crate::fs::InodeParts;
use crate::inode::Inode;
use crate::types::Ino;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use tidegate_rt::{LockClass, Mutex};

static HASH_LOCK: LockClass = LockClass::new("inode_hash_lock", 630);

#[derive(Default)]
struct Table {
    map: HashMap<Ino, Arc<Inode>>,
    clock: VecDeque<Ino>,
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
    pub(crate) fn get_or_read(
        &self,
        ino: Ino,
        read: impl FnOnce() -> Result<InodeParts>,
    ) -> Result<Arc<Inode>> {
        match self.get(ino) {
            Some(i) => Ok(i),
            None => Ok(self.insert(read()?)),
        }
    }

    /// Adds an inode unless one with its number is there.
    pub(crate) fn insert(&self, parts: InodeParts) -> Arc<Inode> {
        let ino = parts.ino;
        let mut t = self.table.lock();
        if let Some(i) = t.map.get(&ino) {
            return i.clone();
        }
        let inode = Arc::new(Inode::new(parts, self.bdi.clone(), 1));
        t.map.insert(ino, inode.clone());
        t.clock.push_back(ino);
        self.evict(&mut t);
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
            } else {
                t.clock.push_back(ino);
            }
        }
    }

    pub(crate) fn remove(&self, ino: Ino) {
        self.table.lock().map.remove(&ino);
    }

    pub(crate) fn all(&self) -> Vec<Arc<Inode>> {
        self.table.lock().map.values().cloned().collect()
    }

    pub(crate) fn clear(&self) {
        let mut t = self.table.lock();
        t.map.clear();
        t.clock.clear();
    }
}
