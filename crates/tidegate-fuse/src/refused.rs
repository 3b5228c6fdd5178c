//! Pages that the kernel accepted from a program and we could not take.
//!
//! With the write-back cache write(2) ends in the kernel. When it sends the pages and the volume is full, it
//! notes the error for fsync and close, drops the pages and keeps the size it had in mind; a program that goes
//! on writing hears nothing. So we have it forget the file's attributes: then it asks for them before the next
//! write(2), and takes an error for an answer. The size it has in mind is true again when it forgets the inode:
//! a truncation of ours would race with whoever goes on writing.

use crate::errno::Result;
use crate::server::Server;
use rustix::io::Errno;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;
use tidegate::vfs::Inode;
use tidegate_rt::{LockClass, Mutex, thread};

static REFUSED: LockClass = LockClass::new("fuse->refused", 5);

/// With so many bytes left nothing is about to be refused: more than the kernel has under way at once.
const AMPLE: u64 = 64 << 20;
/// Looks for the pages before a gap, and the time between two: a program that leaves a gap waits so long near the end.
const PATIENCE: u32 = 50;
const PAUSE: Duration = Duration::from_millis(1);

/// What became of a file's pages.
struct Refusal {
    error: Errno,
    /// The largest request that was refused, in bytes.
    len: u64,
    /// The first byte of the first request that was refused.
    from: u64,
    /// Open files whose writer has heard of it.
    told: Vec<u64>,
    /// There was room again before a writer asked. It is believed once: what ran out need not have been blocks.
    over: bool,
    believed: bool,
}

/// Pages that the kernel took from a program and the volume could not take.
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

    /// Notes a refusal; whether the kernel may have attributes that keep it from asking.
    fn add(&self, node: u64, error: Errno, pos: u64, len: u64) -> bool {
        let mut nodes = self.nodes.lock();
        let known = nodes.len();
        let new = Refusal { error, len: 0, from: pos, told: Vec::new(), over: false, believed: false };
        let r = nodes.entry(node).or_insert(new);
        let settled = r.over || !r.told.is_empty();
        (r.error, r.len, r.from, r.over) = (error, r.len.max(len), r.from.min(pos), false);
        r.told.clear();
        let is_new = nodes.len() > known;
        self.count.store(nodes.len(), SeqCst);
        is_new || settled
    }

    /// Nobody writes the file any more: who did has heard of it at the latest when closing it.
    pub(crate) fn forget(&self, node: u64) {
        if self.count.load(SeqCst) > 0 {
            let mut nodes = self.nodes.lock();
            nodes.remove(&node);
            self.count.store(nodes.len(), SeqCst);
        }
    }
}

impl Server {
    /// Before pages are taken that the kernel cached. Behind pages that were refused they would make a file with a hole
    /// where a program wrote, so while there is no room the file gets no longer. Where room is short, pages that would
    /// leave a gap wait a moment for those before them, which another thread may be about to take or to refuse.
    ///
    /// # Errors
    /// The error that the pages before met.
    pub(crate) fn check_behind_refused(&self, inode: &Inode, pos: u64) -> Result<()> {
        let behind = |r: &mut Refusal| (r.from < pos && !r.over).then_some((r.error, r.len));
        for _ in 0..PATIENCE {
            if pos <= inode.size() {
                return Ok(());
            }
            if let Some((error, len)) = self.refused.with(self.node(inode), behind).flatten()
                && !(error == Errno::NOSPC && self.has_room(len))
            {
                return Err(error);
            }
            if self.has_room(AMPLE) {
                return Ok(());
            }
            thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// Whether `len` bytes fit, in the volume and where the image is kept.
    fn has_room(&self, len: u64) -> bool {
        let s = self.vfs().statfs();
        s.blocks_available * u64::from(s.block_size) >= len && self.space.check_data(self, len).is_ok()
    }

    /// The kernel could not write back `len` bytes at `pos` of `node`, since we refused them with `error`.
    pub fn refuse(self: &Arc<Self>, node: u64, error: Errno, pos: u64, len: u64) {
        if self.refused.add(node, error, pos, len) {
            let server = self.clone();
            // Offload: the kernel may wait there for the very write that is being answered. Where no thread can be
            // had, close and fsync tell it.
            let _ = thread::spawn("tg-fuse-aside", move || server.have_asked(node));
        }
    }

    /// Has the kernel ask for the attributes of `node` before it uses them again.
    pub(crate) fn have_asked(&self, node: u64) {
        if let Some(kernel) = self.kernel() {
            kernel.forget_attributes(node);
        }
    }

    /// Before a write through `fh`, which is when the kernel asks for attributes through an open file: the
    /// error that earlier writes met and this writer was not told of.
    ///
    /// # Errors
    /// That.
    pub fn check_refused(&self, node: u64, fh: u64) -> Result<()> {
        let untold =
            |r: &mut Refusal| (!r.over && !r.told.contains(&fh)).then_some((r.error, r.len, r.believed));
        let Some((error, len, believed)) = self.refused.with(node, untold).flatten() else { return Ok(()) };
        if !self.handles.get(fh).is_ok_and(|h| h.writes) {
            return Ok(());
        }
        let over = error == Errno::NOSPC && !believed && self.has_room(len);
        self.refused.with(node, |r| match over {
            true => (r.over, r.believed) = (true, true),
            false => r.told.push(fh),
        });
        if over { Ok(()) } else { Err(error) }
    }

    /// Before attributes of `node` are told: the kernel is not to keep them while a writer may have to hear of an
    /// error.
    pub(crate) fn keep_asked(&self, node: u64) {
        if self.refused.with(node, |r| !r.over) == Some(true) {
            self.have_asked(node);
        }
    }
}
