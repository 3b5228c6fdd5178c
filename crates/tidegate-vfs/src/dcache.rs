//! The dentry cache: names in memory, positive and negative.

use crate::types::Ino;
use tidegate_rt::hash::{HashMap, HashSet};
use tidegate_rt::{LockClass, RwLock};

static D_HASH: LockClass = LockClass::new("dentry_hashtable", 625);

/// Entries kept in each of two generations.
const GENERATION: usize = 16_384;
const SHARDS: usize = 16;

type Key = (Ino, Box<[u8]>);

#[derive(Default)]
struct Shard {
    young: HashMap<Key, Option<Ino>>,
    old: HashMap<Key, Option<Ino>>,
}

impl Shard {
    fn insert(&mut self, key: Key, ino: Option<Ino>) {
        if self.young.len() >= GENERATION / SHARDS {
            self.old = std::mem::take(&mut self.young);
        }
        self.old.remove(&key);
        self.young.insert(key, ino);
    }
}

/// Entries change only under the `i_rwsem` of the directory, so an answer is current while that lock is held.
pub(crate) struct DentryCache {
    shards: Box<[RwLock<Shard>]>,
}

impl DentryCache {
    pub(crate) fn new() -> Self {
        DentryCache { shards: (0..SHARDS).map(|_| RwLock::new(&D_HASH, Shard::default())).collect() }
    }

    fn shard(&self, dir: Ino, name: &[u8]) -> &RwLock<Shard> {
        let h = name.iter().fold(dir.0, |h, &b| h.wrapping_mul(0x100_0000_01b3) ^ b as u64);
        &self.shards[(h >> 7) as usize % SHARDS]
    }

    /// The cached answer for a name: not cached, missing, or an inode.
    pub(crate) fn get(&self, dir: Ino, name: &[u8]) -> Option<Option<Ino>> {
        let key = (dir, Box::from(name));
        let s = self.shard(dir, name);
        let g = s.read();
        if let Some(i) = g.young.get(&key) {
            return Some(*i);
        }
        let i = *g.old.get(&key)?;
        drop(g);
        s.write().insert(key, i);
        Some(i)
    }

    /// One cached name of each of these inodes, and the directory that it is in. Inodes without a cached name
    /// are left out.
    pub(crate) fn names_of(&self, wanted: &HashSet<Ino>) -> HashMap<Ino, (Ino, Box<[u8]>)> {
        let mut found = HashMap::default();
        for shard in &self.shards {
            let s = shard.read();
            for ((dir, name), ino) in s.young.iter().chain(&s.old) {
                if let Some(ino) = ino
                    && wanted.contains(ino)
                {
                    found.insert(*ino, (*dir, name.clone()));
                }
            }
        }
        found
    }

    pub(crate) fn set(&self, dir: Ino, name: &[u8], ino: Option<Ino>) {
        self.shard(dir, name).write().insert((dir, Box::from(name)), ino);
    }
}
