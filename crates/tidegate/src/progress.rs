//! How far an operation is, for display.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counters that an operation advances and other threads may read.
#[derive(Debug, Default)]
pub struct Progress {
    files: AtomicU64,
    dirs: AtomicU64,
    bytes: AtomicU64,
    total_files: AtomicU64,
    total_bytes: AtomicU64,
}

impl Progress {
    /// Files, links and special files done.
    pub fn files(&self) -> u64 {
        self.files.load(Relaxed)
    }
    /// Directories done.
    pub fn dirs(&self) -> u64 {
        self.dirs.load(Relaxed)
    }
    /// Bytes of content done.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }
    /// Files in all; 0 while the number is not known.
    pub fn total_files(&self) -> u64 {
        self.total_files.load(Relaxed)
    }
    /// Bytes in all; 0 while the number is not known.
    pub fn total_bytes(&self) -> u64 {
        self.total_bytes.load(Relaxed)
    }
    pub(crate) fn file(&self) {
        self.files.fetch_add(1, Relaxed);
    }
    pub(crate) fn dir(&self) {
        self.dirs.fetch_add(1, Relaxed);
    }
    pub(crate) fn data(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Relaxed);
    }
    /// Sets the totals.
    pub fn expect(&self, files: u64, bytes: u64) {
        self.total_files.store(files, Relaxed);
        self.total_bytes.store(bytes, Relaxed);
    }
    /// Sets all counters to 0.
    pub(crate) fn reset(&self) {
        self.files.store(0, Relaxed);
        self.dirs.store(0, Relaxed);
        self.bytes.store(0, Relaxed);
    }
}
