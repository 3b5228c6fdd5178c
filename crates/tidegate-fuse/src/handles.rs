//! Open files, by the numbers with which the kernel knows them.

use crate::errno::Result;
use rustix::io::Errno;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use tidegate::vfs::{APPEND_ONLY, File};
use tidegate_rt::{LockClass, Mutex, RwLock};

static HANDLES: LockClass = LockClass::new("fuse->handles", 2);
static WRITERS: LockClass = LockClass::new("fuse->writers", 3);
const SHARDS: u64 = 16;

/// An open file.
pub(crate) struct Handle {
    pub(crate) file: File,
    node: u64,
    pub(crate) writes: bool,
    /// The file was append-only when it was opened for writing.
    appends: bool,
    /// Data came since the kernel was told last that it may have more blocks.
    pub(crate) written: AtomicBool,
}

impl Handle {
    /// Refuses a write at `pos` that would replace what an append-only file has.
    pub(crate) fn check_append(&self, pos: u64) -> Result<()> {
        if self.appends && pos < self.file.size() { Err(Errno::PERM) } else { Ok(()) }
    }
}

type Table = RwLock<HashMap<u64, Arc<Handle>>>;

/// Open files by number.
pub(crate) struct Handles {
    shards: Box<[Table]>,
    next: AtomicU64,
    /// How often each file is open for writing: only then can the kernel have dirty pages of it.
    writers: Mutex<HashMap<u64, u32>>,
}

impl Handles {
    pub(crate) fn new() -> Self {
        Handles {
            shards: (0..SHARDS).map(|_| RwLock::new(&HANDLES, HashMap::new())).collect(),
            next: AtomicU64::new(1),
            writers: Mutex::new(&WRITERS, HashMap::new()),
        }
    }

    fn shard(&self, fh: u64) -> &Table {
        &self.shards[(fh % SHARDS) as usize]
    }

    pub(crate) fn add(&self, node: u64, file: File, writes: bool) -> u64 {
        let fh = self.next.fetch_add(1, Relaxed);
        if writes {
            *self.writers.lock().entry(node).or_insert(0) += 1;
        }
        let appends = writes && file.inode().attr().flags & APPEND_ONLY != 0;
        self.shard(fh)
            .write()
            .insert(fh, Arc::new(Handle { file, node, writes, appends, written: AtomicBool::new(false) }));
        fh
    }

    pub(crate) fn get(&self, fh: u64) -> Result<Arc<Handle>> {
        self.shard(fh).read().get(&fh).cloned().ok_or(Errno::BADF)
    }

    /// Closes a file. Returns its number if this was the last opening for writing.
    pub(crate) fn remove(&self, fh: u64) -> Option<u64> {
        let handle = self.shard(fh).write().remove(&fh);
        let mut last = None;
        if let Some(h) = &handle
            && h.writes
        {
            let mut w = self.writers.lock();
            if let Some(n) = w.get_mut(&h.node) {
                *n -= 1;
                if *n == 0 {
                    w.remove(&h.node);
                    last = Some(h.node);
                }
            }
        }
        drop(handle);
        last
    }

    /// Whether the file is open for writing.
    pub(crate) fn is_written(&self, node: u64) -> bool {
        self.writers.lock().contains_key(&node)
    }

    /// The files that are open for writing.
    pub(crate) fn written(&self) -> Vec<u64> {
        self.writers.lock().keys().copied().collect()
    }

    /// Closes everything: the mount is gone.
    pub(crate) fn clear(&self) {
        for shard in &self.shards {
            let all = std::mem::take(&mut *shard.write());
            drop(all);
        }
    }
}
