//! The view of a mounted file system while it works.

use crate::bdi::Bdi;
use crate::inode::Inode;
use crate::types::Ino;
use crate::vfs::Vfs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tidegate_rt::hash::{HashMap, HashSet};
use tidegate_rt::{Distribution, Histogram, Nanos, clock};

/// The most directories above a file that are looked up.
const MAX_DEPTH: usize = 64;

/// The reason for which the flusher writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Pass {
    /// A thread asked for everything.
    Sync = 1,
    /// Too much is dirty.
    Background = 2,
    /// Some dirty pages are old.
    Periodic = 3,
}

/// The flusher's activity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlusherState {
    /// It does nothing.
    Idle,
    /// It writes. The inode is the one that it is writing, if any.
    Writing(Pass, Option<Ino>),
    /// It waits before it tries again a write that failed.
    Waiting,
}

const IDLE: u8 = 0;
const WAITING: u8 = 4;

/// Figures of a bdi that nothing depends on.
#[derive(Default)]
pub(crate) struct WbStats {
    state: AtomicU8,
    ino: AtomicU64,
    pub(crate) fsync: Histogram,
    pub(crate) not_freed: AtomicU64,
}

impl WbStats {
    pub(crate) fn pass(&self, pass: Pass) {
        self.ino.store(0, Relaxed);
        self.state.store(pass as u8, Relaxed);
    }

    pub(crate) fn at(&self, ino: Ino) {
        self.ino.store(ino.0, Relaxed);
    }

    pub(crate) fn waiting(&self) {
        self.state.store(WAITING, Relaxed);
    }

    pub(crate) fn idle(&self) {
        self.state.store(IDLE, Relaxed);
    }
}

impl Bdi {
    /// Inodes without a name that could not be freed since the volume was mounted: orphans for the next
    /// mount.
    pub fn not_freed(&self) -> u64 {
        self.stats.not_freed.load(Relaxed)
    }

    /// The flusher's activity now.
    pub fn flusher_state(&self) -> FlusherState {
        let ino = self.stats.ino.load(Relaxed);
        let ino = (ino != 0).then_some(Ino(ino));
        match self.stats.state.load(Relaxed) {
            1 => FlusherState::Writing(Pass::Sync, ino),
            2 => FlusherState::Writing(Pass::Background, ino),
            3 => FlusherState::Writing(Pass::Periodic, ino),
            WAITING => FlusherState::Waiting,
            _ => FlusherState::Idle,
        }
    }

    /// How long calls of fsync took, including those that failed, in nanoseconds.
    pub fn fsync_times(&self) -> Distribution {
        self.stats.fsync.read()
    }

    /// The inodes that wait to be written. Takes `wb->list_lock`.
    fn listed(&self) -> Vec<Arc<Inode>> {
        let l = self.lists.lock();
        l.b_io.iter().chain(&l.b_more_io).chain(&l.b_dirty).cloned().collect()
    }
}

/// A file with pages that are not on the volume yet.
#[derive(Clone, Debug)]
pub struct WrittenFile {
    /// Its number.
    pub ino: Ino,
    /// Its path from the root on, as far as names are in memory.
    pub path: Option<Vec<u8>>,
    /// It holds the file system's own pages.
    pub internal: bool,
    /// Pages to be written.
    pub dirty: u64,
    /// Pages under write-back.
    pub writeback: u64,
    /// How long it has been dirty.
    pub age: Duration,
}

impl Vfs {
    /// The files with the most pages that are not on the volume yet, at most `most` of them, in descending
    /// order. Takes `wb->list_lock` and `dentry_hashtable`, one after the other. It is cheap enough to be
    /// called each second.
    pub fn files_being_written(&self, most: usize) -> Vec<WrittenFile> {
        let now = clock::now();
        let mut inodes = self.bdi.listed();
        if let FlusherState::Writing(_, Some(ino)) = self.bdi.flusher_state() {
            inodes.extend(self.icache.get(ino));
        }
        let mut seen = HashSet::default();
        let mut files: Vec<WrittenFile> = (inodes.iter().filter(|i| seen.insert(i.ino)))
            .map(|i| WrittenFile {
                ino: i.ino,
                path: None,
                internal: i.internal,
                dirty: i.mapping.nr_dirty(),
                writeback: i.mapping.nr_writeback(),
                age: now.since(Nanos(i.dirtied_when.load(Relaxed))).duration(),
            })
            .filter(|f| f.dirty + f.writeback > 0)
            .collect();
        drop(inodes);
        files.sort_by_key(|f| (std::cmp::Reverse(f.dirty + f.writeback), f.ino));
        files.truncate(most);
        let mut paths = self.cached_paths(files.iter().filter(|f| !f.internal).map(|f| f.ino).collect());
        files.iter_mut().for_each(|f| f.path = paths.remove(&f.ino));
        files
    }

    /// A name of an inode and the directory that it is in, if a name is in memory. Takes `dentry_hashtable`, and looks
    /// at all its entries.
    pub fn cached_name(&self, ino: Ino) -> Option<(Ino, Box<[u8]>)> {
        self.dcache.names_of(&HashSet::from_iter([ino])).remove(&ino)
    }

    /// Paths of inodes, of those for which every name up to the root is in memory.
    pub fn cached_paths(&self, inos: Vec<Ino>) -> HashMap<Ino, Vec<u8>> {
        let mut names = HashMap::default();
        let mut wanted: HashSet<Ino> = inos.iter().copied().collect();
        for _ in 0..MAX_DEPTH {
            wanted.remove(&self.fs.root());
            if wanted.is_empty() {
                break;
            }
            let found = self.dcache.names_of(&wanted);
            wanted = found.values().map(|(dir, _)| *dir).filter(|d| !names.contains_key(d)).collect();
            names.extend(found);
        }
        let path = |ino: Ino| {
            let (mut at, mut parts) = (ino, Vec::new());
            while at != self.fs.root() {
                let (dir, name) = names.get(&at)?;
                parts.push(&name[..]);
                at = *dir;
                if parts.len() > MAX_DEPTH {
                    return None;
                }
            }
            if parts.is_empty() {
                return Some(b"/".to_vec());
            }
            Some(parts.iter().rev().flat_map(|p| b"/".iter().chain(*p)).copied().collect())
        };
        inos.into_iter().filter_map(|i| Some((i, path(i)?))).collect()
    }
}
