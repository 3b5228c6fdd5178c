//! Changes of inodes and names since the last checkpoint, as far as fsync must know them.
//!
//! Roll-forward gives a file its data, its attributes and, if it is new, its name. Any other change that an
//! fsync would have to promise needs a checkpoint; fsync learns of such changes here. A change is noted
//! before it is made, so that an fsync between the two errs on the safe side.

use crate::format::raw::dentry_hash;
use crate::inode::NodeId;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use tidegate_rt::hash::{HashMap, HashSet};
use tidegate_rt::{LockClass, Mutex};
use tidegate_vfs::Inode;

static INO_LOCK: LockClass = LockClass::new("im->ino_lock[TRANS]", 435);

bitflags::bitflags! {
    /// Changes of one inode.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub(crate) struct Since: u8 {
        /// The inode was made since the checkpoint.
        const NEW = 1;
        /// The inode was written with the fsync mark.
        const FSYNCED = 2;
        /// The inode's name changed.
        const RENAMED = 4;
        /// Truncation took nodes from the inode: roll-forward would find old nodes that do not tell so.
        const CUT = 8;
        /// The inode had the fsync mark when it was last written.
        const LAST_FSYNC = 16;
    }
}

#[derive(Default)]
struct Notes {
    inodes: HashMap<u32, Since>,
    /// Names, as parent and hash, that an inode gave up while it lives on.
    vacated: HashSet<(u32, u32)>,
}

/// Inodes by what happened to them since the last checkpoint.
pub(crate) struct SinceCp {
    notes: Mutex<Notes>,
    /// Number of inodes and names noted.
    len: AtomicUsize,
}

impl Default for SinceCp {
    fn default() -> Self {
        SinceCp { notes: Mutex::new(&INO_LOCK, Notes::default()), len: AtomicUsize::new(0) }
    }
}

impl SinceCp {
    /// Adds a note for inode `ino`.
    pub(crate) fn note(&self, ino: u32, what: Since) {
        self.change(|n| *n.inodes.entry(ino).or_default() |= what);
    }

    /// The noted changes of inode `ino`.
    pub(crate) fn of(&self, ino: u32) -> Since {
        let [since] = self.of_each([ino]);
        since
    }

    /// The noted changes of each of several inodes, all at one time.
    pub(crate) fn of_each<const N: usize>(&self, inos: [u32; N]) -> [Since; N] {
        let n = self.notes.lock();
        inos.map(|ino| n.inodes.get(&ino).copied().unwrap_or_default())
    }

    fn change(&self, f: impl FnOnce(&mut Notes)) {
        let mut n = self.notes.lock();
        f(&mut n);
        self.len.store(n.inodes.len() + n.vacated.len(), Relaxed);
    }

    /// Notes that inode nodes `inos` were written, with the fsync mark or without.
    pub(crate) fn inodes_written(&self, inos: impl Iterator<Item = u32>, fsync: bool) {
        self.change(|n| {
            for ino in inos {
                if fsync {
                    *n.inodes.entry(ino).or_default() |= Since::FSYNCED | Since::LAST_FSYNC;
                } else if let Some(s) = n.inodes.get_mut(&ino) {
                    s.remove(Since::LAST_FSYNC);
                }
            }
        });
    }

    /// Notes that an inode gave up its name `name` in `dir` and lives on.
    pub(crate) fn vacate(&self, dir: &Inode, name: &[u8]) {
        self.change(|n| {
            n.vacated.insert((dir.nid().0, dentry_hash(name)));
        });
    }

    /// Whether `name` in directory `pino` was vacated; true also for another name with the same hash.
    pub(crate) fn is_vacated(&self, pino: u32, name: &[u8]) -> bool {
        self.notes.lock().vacated.contains(&(pino, dentry_hash(name)))
    }

    /// Number of inodes and names noted. Takes no lock.
    pub(crate) fn len(&self) -> usize {
        self.len.load(Relaxed)
    }

    /// Forgets everything: a checkpoint has it all. The caller has operations frozen.
    pub(crate) fn clear(&self) {
        self.change(|n| *n = Notes::default());
    }
}
