//! Pages that the kernel accepted from a program and the server could not take.
//!
//! With the write-back cache write(2) ends in the kernel. When the kernel sends the pages and the volume is
//! full, it notes the error for fsync and close, drops the pages, and keeps the size that it had computed. A
//! program that goes on writing gets no error. So the server makes the kernel forget the file's attributes:
//! then the kernel asks for them before the next write(2), and returns the error of that answer. The kernel's
//! size is correct again only when it forgets the inode (a truncation by the server would race with a program
//! that goes on writing). So once the file is no longer open for writing, the server tells the kernel to
//! forget the name, which also drops an unused inode. The inode may be in use for a moment (by a lookup, or
//! by a notice of the server), so the kernel is told again until it reports that the inode is gone.

use crate::errno::Result;
use crate::server::Server;
use rustix::io::Errno;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;
use tidegate::vfs::Inode;
use tidegate_rt::{Condvar, LockClass, Mutex, MutexGuard, Nanos, clock, thread};

static REFUSED: LockClass = LockClass::new("fuse->refused", 5);

/// With so many bytes left no page is about to be refused: it is more than the kernel has in flight at once.
const AMPLE: u64 = 16 << 20;
/// Pages that would leave a gap wait so long for the pages before them. A program that really leaves a gap waits so
/// long on a nearly full volume.
const PATIENCE: Duration = Duration::from_millis(50);

/// The first wait for the kernel to forget an inode. Each wait is twice as long as the one before, up to
/// [`AGAIN_AT_MOST`].
const AGAIN: Duration = Duration::from_millis(10);
const AGAIN_AT_MOST: Duration = Duration::from_secs(1);
/// How often the kernel is told to forget an inode.
const TOLD: u32 = 20;

/// The refusal of pages of a file.
struct Refusal {
    error: Errno,
    /// The largest request that was refused, in bytes.
    len: u64,
    /// The first byte of the first request that was refused.
    from: u64,
    /// Bytes that have to be free in the volume before there is room again. `None` where the volume itself
    /// was not full.
    enough: Option<u64>,
    /// Open files whose writer has got the error.
    told: Vec<u64>,
}

/// Files with pages that the kernel took from a program and the volume could not take.
pub(crate) struct Refused {
    /// The number of files here. Most mounts never have one, and need not take the lock.
    count: AtomicUsize,
    files: Mutex<Files>,
    /// Signalled when [`Files::settled`] changes.
    changed: Condvar,
}

#[derive(Default)]
struct Files {
    /// Refusals of files that are open.
    refusals: HashMap<u64, Refusal>,
    /// Files that are no longer open for writing and whose size the kernel may still keep, with the kernel's number of
    /// lookups.
    leaving: HashMap<u64, u64>,
    /// Where space is short, the requests whose pages are about to be taken or refused: the file, and the first byte.
    underway: Vec<(u64, u64)>,
    /// Counts how often pages were taken or refused.
    settled: u64,
}

/// Pages that are being taken while space is short. Pages after them wait.
pub(crate) struct Underway<'a> {
    refused: &'a Refused,
    of: (u64, u64),
}

impl Drop for Underway<'_> {
    fn drop(&mut self) {
        let mut files = self.refused.files.lock();
        if let Some(n) = files.underway.iter().position(|u| *u == self.of) {
            files.underway.swap_remove(n);
        }
        self.refused.settle(files);
    }
}

impl Refused {
    pub(crate) fn new() -> Self {
        Refused {
            count: AtomicUsize::new(0),
            files: Mutex::new(&REFUSED, Files::default()),
            changed: Condvar::new(),
        }
    }

    fn settle(&self, mut files: MutexGuard<'_, Files>) {
        files.settled += 1;
        drop(files);
        self.changed.notify_all();
    }

    /// To be read before the condition for which [`Refused::wait_settled`] waits is checked.
    fn settled(&self) -> u64 {
        self.files.lock().settled
    }

    fn change<T>(&self, change: impl FnOnce(&mut Files) -> T) -> T {
        let mut files = self.files.lock();
        let r = change(&mut files);
        self.count.store(files.refusals.len() + files.leaving.len(), SeqCst);
        self.settle(files);
        r
    }

    fn with<T>(&self, node: u64, look: impl FnOnce(&mut Refusal) -> T) -> Option<T> {
        if self.count.load(SeqCst) == 0 {
            return None;
        }
        self.files.lock().refusals.get_mut(&node).map(look)
    }

    fn begin(&self, node: u64, pos: u64) -> Underway<'_> {
        self.files.lock().underway.push((node, pos));
        Underway { refused: self, of: (node, pos) }
    }

    /// Waits until more pages were taken or refused than `settled` says, but only until `end` where no pages of `node`
    /// before `pos` are being taken. Returns the time until which to wait for the next pages, or `None` once that time
    /// is over.
    fn wait_settled(&self, settled: u64, (node, pos): (u64, u64), end: Nanos) -> Option<Nanos> {
        let mut files = self.files.lock();
        let now = clock::now();
        let underway = files.underway.iter().any(|u| u.0 == node && u.1 < pos);
        // After pages are done, it takes a moment until their refusal is noted.
        let end = if underway { now + PATIENCE } else { end };
        let left = end.since(now);
        if left == Nanos::default() {
            return None;
        }
        if files.settled == settled {
            self.changed.wait_for(&mut files, left.duration());
        }
        Some(end)
    }

    /// Notes a refusal. Returns whether the kernel may have attributes that keep it from asking.
    fn add(&self, node: u64, error: Errno, (pos, len): (u64, u64), free: Option<u64>) -> bool {
        self.change(|files| {
            let known = files.refusals.len();
            let new = Refusal { error, len: 0, from: pos, enough: None, told: Vec::new() };
            let r = files.refusals.entry(node).or_insert(new);
            let settled = !r.told.is_empty();
            (r.error, r.len, r.from) = (error, r.len.max(len), r.from.min(pos));
            r.enough = free.map(|free| free + r.len);
            r.told.clear();
            settled || files.refusals.len() > known
        })
    }

    /// Called when the file is no longer open for writing: its program got the error at close at the latest. Returns
    /// whether there was a refusal and no thread is making the kernel forget the file yet, which the kernel knows by so
    /// many `lookups`.
    fn forget(&self, node: u64, lookups: u64) -> bool {
        if self.count.load(SeqCst) == 0 {
            return false;
        }
        self.change(|files| {
            let known = files.refusals.remove(&node).is_some();
            known && files.leaving.insert(node, lookups).is_none()
        })
    }

    /// Notes that the kernel has forgotten `lookups` lookups of a file. If these are all lookups, its inode
    /// in the kernel is gone.
    pub(crate) fn forgotten(&self, node: u64, lookups: u64) {
        if self.count.load(SeqCst) != 0 {
            self.change(|files| files.leaving.retain(|n, known| *n != node || lookups < *known));
        }
    }

    fn is_leaving(&self, node: u64) -> bool {
        self.files.lock().leaving.contains_key(&node)
    }
}

impl Server {
    /// Called before pages are taken that the kernel cached. Pages after refused pages would make a file with
    /// a hole where a program wrote data. So the file does not grow before a writer got the error, even if
    /// there is space again; a program that got the error and goes on after the loss accepts the hole. Where
    /// space is short, pages that would leave a gap wait as long as the pages before them are being taken,
    /// which may include a commit, and a moment for pages that have not come yet.
    ///
    /// # Errors
    /// The error of the pages before them.
    pub(crate) fn take_cached(&self, inode: &Inode, pos: u64) -> Result<Option<Underway<'_>>> {
        let node = self.node(inode);
        if self.has_room(AMPLE) && self.refused.with(node, |_| ()).is_none() {
            return Ok(None);
        }
        let underway = self.refused.begin(node, pos);
        let mut end = clock::now() + PATIENCE;
        loop {
            let settled = self.refused.settled();
            if pos <= inode.size() {
                break;
            }
            self.check_behind_refused(node, pos)?;
            if self.has_room(AMPLE) {
                break;
            }
            match self.refused.wait_settled(settled, (node, pos), end) {
                Some(until) => end = until,
                None => break,
            }
        }
        Ok(Some(underway))
    }

    /// Refuses pages at `pos` after other refused pages, unless a writer got the error and there is room again.
    fn check_behind_refused(&self, node: u64, pos: u64) -> Result<()> {
        let behind =
            |r: &mut Refusal| (r.from < pos).then_some((r.error, r.len, r.enough, !r.told.is_empty()));
        let Some((error, len, enough, told)) = self.refused.with(node, behind).flatten() else {
            return Ok(());
        };
        // Pages that a program wrote before it got the error still come. So only space that was freed since then
        // counts.
        let has_room = || enough.map_or_else(|| self.has_room(len), |enough| self.free() >= enough);
        if told && error == Errno::NOSPC && has_room() { Ok(()) } else { Err(error) }
    }

    /// Whether `len` bytes fit, in the volume and on the disk below the image.
    fn has_room(&self, len: u64) -> bool {
        let s = self.vfs().statfs();
        s.blocks_available * u64::from(s.block_size) >= len && self.space.has(self, len)
    }

    /// Free bytes of the volume.
    fn free(&self) -> u64 {
        let s = self.vfs().statfs();
        s.blocks_free * u64::from(s.block_size)
    }

    /// Notes that the server refused `len` bytes at `pos` of `node` with `error`, which the kernel had
    /// cached.
    pub fn refuse(self: &Arc<Self>, node: u64, error: Errno, pos: u64, len: u64) {
        let free = self.space.has(self, len).then(|| self.free());
        if self.refused.add(node, error, (pos, len), free) {
            let server = self.clone();
            // Another thread does this: the kernel may wait in it for the very write that is being answered. If no
            // thread can be started, only close and fsync report the error.
            let _ = thread::spawn("tg-fuse-offload", move || server.have_asked(node));
        }
    }

    /// Called when the last writer of `node` has closed it. If pages of it were refused, the kernel must
    /// forget its size.
    pub(crate) fn forget_refused(self: &Arc<Self>, node: u64) {
        if self.refused.forget(node, self.nodes.lookups(node)) {
            let server = Arc::downgrade(self);
            // Another thread does this: the kernel may hold the directory's lock for a request that waits for the
            // present thread. The volume can be unmounted meanwhile.
            let spawned = thread::spawn("tg-fuse-offload", move || {
                let mut pause = AGAIN;
                for _ in 0..TOLD {
                    match server.upgrade() {
                        Some(s) if s.refused.is_leaving(node) => s.have_looked_up(node),
                        _ => return,
                    }
                    thread::sleep(pause);
                    pause = AGAIN_AT_MOST.min(pause * 2);
                }
                if let Some(s) = server.upgrade() {
                    s.refused.forgotten(node, u64::MAX);
                }
            });
            if spawned.is_err() {
                self.refused.forgotten(node, u64::MAX);
            }
        }
    }

    fn have_looked_up(&self, node: u64) {
        if let (Some(kernel), Ok(inode)) = (self.kernel(), self.inode(node))
            && let Some((dir, name)) = self.vfs().cached_name(inode.ino)
            && let Ok(dir) = self.vfs().iget(dir)
        {
            kernel.forget_name(self.node(&dir), &name);
        }
    }

    /// Makes the kernel ask for the attributes of `node` before it uses them again.
    pub(crate) fn have_asked(&self, node: u64) {
        if let Some(kernel) = self.kernel() {
            kernel.forget_attributes(node);
        }
    }

    /// Called before a write through `fh`, when the kernel asks for attributes through an open file. Fails
    /// with the error of earlier writes that this writer has not got yet.
    ///
    /// # Errors
    /// The error of earlier writes.
    pub fn check_refused(&self, node: u64, fh: u64) -> Result<()> {
        let untold = |r: &mut Refusal| (!r.told.contains(&fh)).then_some(r.error);
        let Some(error) = self.refused.with(node, untold).flatten() else { return Ok(()) };
        if !self.handles.get(fh).is_ok_and(|h| h.writes) {
            return Ok(());
        }
        self.refused.with(node, |r| r.told.push(fh));
        Err(error)
    }

    /// Called before attributes of `node` are sent. The kernel must not keep them while a writer may still have to get
    /// an error.
    pub(crate) fn keep_asked(&self, node: u64) {
        if self.refused.with(node, |_| ()).is_some() {
            self.have_asked(node);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::Make;
    use crate::privileges::Kill;
    use crate::server::{Caller, ROOT_NODE, View};
    use tidegate::vfs::DeviceNumber;

    const PIECE: usize = 1 << 20;
    const WRITES: u32 = 1;

    fn volume(dir: &std::path::Path) -> Arc<tidegate::Volume> {
        let image = dir.join("a.img");
        let request = tidegate::mkfs::Request {
            image: image.clone(),
            devices: Vec::new(),
            size: tidegate::mkfs::Size::Bytes(64 << 20),
            from: None,
            options: Default::default(),
            open: Default::default(),
            owner: None,
            root_owner: None,
            free: 0,
            reproducible: None,
            progress: Default::default(),
            force: false,
            unfinished: Default::default(),
        };
        tidegate::mkfs(request).unwrap();
        Arc::new(tidegate::Volume::open(&image, &tidegate::OpenOptions::default()).unwrap())
    }

    /// Pages that would leave a gap wait for the pages before them, however long these take, and are refused with them.
    #[test]
    fn pages_wait_for_those_before_them_that_are_being_taken() {
        let scratch = tempfile::tempdir().unwrap();
        let server = Server::new(volume(scratch.path()), View::default());
        let caller = Caller { uid: 0, gid: 0, pid: 0 };
        let (mode, rdev) = (0o100_644, DeviceNumber::default());
        let make = Make { parent: ROOT_NODE, name: b"fill", mode, umask: 0, rdev, target: b"" };
        let (entry, fh) = server.create(&caller, &make, WRITES, Kill::No).unwrap();
        let write = |at: usize, len| server.write(fh, (at * PIECE) as u64, &vec![7; len], true, Kill::No);
        let last = (0..64).find(|i| write(*i, PIECE).is_err() || !server.has_room(AMPLE)).unwrap();
        let at = last + 1;
        let before = server.refused.begin(entry.node, (at * PIECE) as u64);
        let (done, written) = std::sync::mpsc::channel();
        let (writer, pos) = (server.clone(), ((at + 1) * PIECE) as u64);
        let next = move || done.send(writer.write(fh, pos, &[7; 4096], true, Kill::No)).unwrap();
        let next = thread::spawn("next", next).unwrap();
        thread::sleep(PATIENCE * 4);
        server.refuse(entry.node, Errno::NOSPC, (at * PIECE) as u64, PIECE as u64);
        drop(before);
        next.join();
        assert_eq!(written.recv().unwrap(), Err(Errno::NOSPC));
        server.release(fh);
        server.detach();
        server.vfs().unmount().unwrap();
    }

    /// Pages after a gap are refused even if there is room again, until a writer got the error.
    #[test]
    fn a_gap_is_made_by_those_alone_who_know_of_it() {
        let scratch = tempfile::tempdir().unwrap();
        let server = Server::new(volume(scratch.path()), View::default());
        let caller = Caller { uid: 0, gid: 0, pid: 0 };
        let create = |name: &[u8]| {
            let (mode, rdev) = (0o100_644, DeviceNumber::default());
            let make = Make { parent: ROOT_NODE, name, mode, umask: 0, rdev, target: b"" };
            let (entry, fh) = server.create(&caller, &make, WRITES, Kill::No).unwrap();
            (entry.node, fh)
        };
        let write = |fh, at: usize| server.write(fh, (at * PIECE) as u64, &vec![7; PIECE], true, Kill::No);
        let (gone, other) = create(b"other");
        (0..8).for_each(|i| write(other, i).unwrap());
        server.release(other);
        let (node, fh) = create(b"fill");
        let lost = (0..64).find(|i| write(fh, *i).is_err()).unwrap();
        server.refuse(node, Errno::NOSPC, (lost * PIECE) as u64, PIECE as u64);
        server.remove(ROOT_NODE, b"other", false).unwrap();
        server.forget(gone, 1);
        server.vfs().sync().unwrap();
        assert!(server.has_room(4 * PIECE as u64));
        assert_eq!(write(fh, lost + 1), Err(Errno::NOSPC));
        assert_eq!(server.getattr(node, Some(fh)).err(), Some(Errno::NOSPC));
        assert!(server.getattr(node, Some(fh)).is_ok(), "it is told once");
        write(fh, lost + 1).unwrap();
        server.release(fh);
        server.detach();
        server.vfs().unmount().unwrap();
    }
}
