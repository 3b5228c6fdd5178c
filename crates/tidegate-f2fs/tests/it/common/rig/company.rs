//! Threads that are busy on a volume without changing its files: they sync, commit, clean, reclaim memory,
//! change switches.

use crate::common::volume::SWITCHES;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;
use tidegate_rt::{clock, thread};
use tidegate_vfs::{SyncWait, Vfs, VolumeOps};

/// The threads end when this is dropped.
pub struct Company {
    stop: Arc<AtomicBool>,
    threads: Vec<thread::JoinHandle<()>>,
}

const WAITS: [SyncWait; 3] = [SyncWait::Flusher, SyncWait::Caller, SyncWait::Epoch];

fn any<T>(of: &[T]) -> &T {
    &of[(clock::entropy() % of.len() as u64) as usize]
}

/// The work that a thread repeats. On an unmounted volume it gets errors, which are ignored.
type Work = fn(&dyn VolumeOps, &Vfs);

const WORKS: [(&str, Work); 5] = [
    ("sync", |_, vfs| {
        vfs.set_sync_wait(*any(&WAITS));
        let _ = vfs.sync();
    }),
    ("commit", |fs, _| {
        let _ = fs.commit(true);
    }),
    ("clean", |fs, _| {
        let _ = fs.clean(false);
    }),
    ("reclaim", |_, vfs| {
        let Ok(root) = vfs.root() else { return };
        // As under memory pressure, clean pages are dropped at any moment.
        for inode in (0..7).filter_map(|n| vfs.lookup(&root, &super::ops::name(n)).ok()) {
            inode.mapping.reclaim(false);
        }
    }),
    ("switch", |fs, _| {
        fs.remount(any::<&str>(&SWITCHES)).unwrap();
    }),
];

impl Company {
    /// Starts the threads.
    pub fn of(fs: &Arc<dyn VolumeOps>, vfs: &Arc<Vfs>) -> Company {
        let stop = Arc::<AtomicBool>::default();
        let start = |(name, work): (&str, Work)| {
            let (fs, vfs, stop) = (fs.clone(), vfs.clone(), stop.clone());
            let body = move || {
                while !stop.load(SeqCst) {
                    work(&*fs, &vfs);
                    thread::sleep(Duration::from_nanos(clock::entropy() % 1_000_000));
                }
            };
            thread::spawn(name, body).unwrap()
        };
        let threads = WORKS.into_iter().map(start).collect();
        Company { stop, threads }
    }
}

impl Drop for Company {
    fn drop(&mut self) {
        self.stop.store(true, SeqCst);
        self.threads.drain(..).for_each(thread::JoinHandle::join);
    }
}
