//! Pages that the kernel accepted from a program and we could not take.
//!
//! With the write-back cache write(2) ends in the kernel. When it sends the pages and the volume is full, it
//! notes the error for fsync and close, drops the pages and keeps the size it had in mind; a program that goes
//! on writing hears nothing. So we have it forget the file's attributes: then it asks for them before the next
//! write(2), and takes an error for an answer. And a truncation of our own, which changes nothing here, has it
//! take over the size that the file has.

use crate::errno::Result;
use crate::server::Server;
use rustix::io::Errno;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use tidegate::vfs::SetAttr;
use tidegate_rt::{LockClass, Mutex, thread};

static REFUSED: LockClass = LockClass::new("fuse->refused", 5);

/// What became of a file's pages.
struct Refusal {
    error: Errno,
    /// The largest request that was refused, in bytes.
    len: u64,
    /// A writer has heard of it.
    told: bool,
    /// More was refused while the size was being set right.
    again: bool,
    /// Nobody writes the file any more.
    closed: bool,
    /// The thread that sets it right, and whether it has the file open.
    mender: Option<(u32, bool)>,
}

/// See the module.
pub(crate) struct Refused {
    /// How many there are: most mounts never have one, and need not look.
    count: AtomicUsize,
    nodes: Mutex<HashMap<u64, Refusal>>,
}

impl Refused {
    pub(crate) fn new() -> Self {
        Refused { count: AtomicUsize::new(0), nodes: Mutex::new(&REFUSED, HashMap::new()) }
    }

    fn with<T>(&self, node: u64, look: impl FnOnce(&mut Refusal) -> T) -> Option<T> {
        if self.count.load(SeqCst) == 0 {
            return None;
        }
        self.nodes.lock().get_mut(&node).map(look)
    }

    /// Notes a refusal; whether somebody has to begin setting the size right.
    fn add(&self, node: u64, error: Errno, len: u64) -> bool {
        let mut nodes = self.nodes.lock();
        let new = Refusal { error, len: 0, told: false, again: true, closed: false, mender: None };
        let r = nodes.entry(node).or_insert(new);
        (r.error, r.len, r.told, r.again) = (error, r.len.max(len), false, true);
        // Whose number is not known yet.
        let begins = r.mender.replace((0, false)).is_none_or(|m| {
            r.mender = Some(m);
            false
        });
        self.count.store(nodes.len(), SeqCst);
        begins
    }

    /// Nobody writes the file any more: who did has heard of it at the latest when closing it.
    pub(crate) fn forget(&self, node: u64) {
        if self.count.load(SeqCst) > 0 {
            let mut nodes = self.nodes.lock();
            // Who sets the size right is not done with it.
            let kept = nodes.get_mut(&node).is_some_and(|r| {
                r.closed = true;
                r.mender.is_some()
            });
            if !kept {
                nodes.remove(&node);
            }
            self.count.store(nodes.len(), SeqCst);
        }
    }
}

impl Server {
    /// The kernel could not write back `len` bytes of `node`, since we refused them with `error`.
    pub fn refuse(self: &Arc<Self>, node: u64, error: Errno, len: u64) {
        if self.refused.add(node, error, len) {
            let server = self.clone();
            // Where no thread can be had, close and fsync tell it.
            let _ = thread::spawn("tg-fuse-aside", move || server.mend(node));
        }
    }

    /// Before a write through `fh`, which is when the kernel asks for attributes through an open file: the
    /// error that earlier writes met and nobody was told of.
    ///
    /// # Errors
    /// That.
    pub fn check_refused(&self, node: u64, fh: u64) -> Result<()> {
        let Some((error, len)) = self.refused.with(node, |r| (!r.told).then_some((r.error, r.len))).flatten()
        else {
            return Ok(());
        };
        if !self.handles.get(fh).is_ok_and(|h| h.writes) {
            return Ok(());
        }
        // There may be room again.
        let s = self.vfs().statfs();
        let room =
            || s.blocks_available * s.block_size as u64 >= len && self.space.check_data(self, len).is_ok();
        if error == Errno::NOSPC && room() {
            self.refused.forget(node);
            return Ok(());
        }
        self.refused.with(node, |r| r.told = true);
        Err(error)
    }

    /// Before attributes of `node` are told: the kernel is not to keep them while a writer has to hear of an error.
    pub(crate) fn keep_asked(&self, node: u64) {
        if self.refused.with(node, |r| r.told) == Some(false)
            && let Some(kernel) = self.kernel()
        {
            kernel.forget_attributes(node);
        }
    }

    /// Notes that thread `pid` has opened `node`: its truncation will come to us, and to nobody else.
    pub fn note_open(&self, node: u64, pid: u32) {
        self.refused.with(node, |r| match &mut r.mender {
            Some((tid, opened)) if *tid == pid => *opened = true,
            _ => {}
        });
    }

    /// Takes the size out of a truncation of our own.
    pub fn correct(&self, node: u64, pid: u32, set: &mut SetAttr) {
        let ours = self.refused.with(node, |r| r.mender == Some((pid, true)));
        if set.size.is_some() && ours == Some(true) {
            set.size = None;
        }
    }

    /// Has the kernel ask before the next write, write what it still holds, and take over the true size.
    fn mend(&self, node: u64) {
        let Some(kernel) = self.kernel() else { return };
        let me = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        let begins = |r: &mut Refusal| {
            r.again = false;
            r.mender = Some((me, false));
        };
        while self.refused.with(node, begins).is_some() {
            kernel.forget_attributes(node);
            kernel.write_back(node, 0);
            // What that refused needs no other round.
            self.refused.with(node, |r| r.again = false);
            if let Ok(inode) = self.inode(node) {
                let attr = inode.attr().clone();
                let opened = || self.refused.with(node, |r| r.mender == Some((me, true))) == Some(true);
                kernel.truncate(node, attr.generation, attr.size, &opened);
            }
            kernel.forget_attributes(node);
            let goes_on = |r: &mut Refusal| {
                r.mender = r.mender.filter(|_| r.again);
                (r.again, r.closed)
            };
            match self.refused.with(node, goes_on) {
                Some((true, _)) => {}
                Some((false, true)) => return self.refused.forget(node),
                _ => return,
            }
        }
    }
}
