//! The io_uring backend: submission from any thread, one thread that reaps completions.
//!
//! Requests that need more than one command (PREFLUSH, FUA, discard) and whatever comes back short run
//! synchronously, so the ring carries only plain reads and writes.

use crate::bio::{BioFlags, Op};
use crate::file::{FileIo, is_aligned};
use crate::{Device, Errno, Request};
use io_uring::{IoUring, opcode, types};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use tidegate_rt::{LockClass, Mutex, thread};

static SQ_CLASS: LockClass = LockClass::new("io_uring->sq", 985);
const ENTRIES: u32 = 256;
/// `user_data` of the entry that tells the reaper to end.
const STOP: u64 = 0;

#[repr(C)]
struct IoVec {
    base: *mut u8,
    len: usize,
}

/// A request the kernel works on. Boxed: the kernel holds pointers into it until its completion.
struct InFlight {
    rq: Request,
    iov: Vec<IoVec>,
}

struct Shared {
    io: FileIo,
    ring: IoUring,
    sq: Mutex<()>,
}

/// A file served by io_uring.
pub struct UringDevice {
    shared: Arc<Shared>,
    reaper: Option<thread::JoinHandle<()>>,
}

impl UringDevice {
    /// Sets the ring up.
    ///
    /// # Errors
    /// Gives `io` back with the errno when the kernel refuses (ENOSYS, EPERM under seccomp, EMFILE …).
    pub fn new(io: FileIo) -> Result<Self, (FileIo, Errno)> {
        let ring = match IoUring::builder().dontfork().build(ENTRIES) {
            Ok(r) => r,
            Err(e) => return Err((io, Errno::from_io_error(&e).unwrap_or(Errno::NOSYS))),
        };
        let shared = Arc::new(Shared { io, ring, sq: Mutex::new(&SQ_CLASS, ()) });
        let s = shared.clone();
        match thread::spawn("tg-uring", move || s.reap()) {
            Ok(t) => Ok(UringDevice { shared, reaper: Some(t) }),
            Err(e) => match Arc::try_unwrap(shared) {
                Ok(s) => Err((s.io, Errno::from_io_error(&e).unwrap_or(Errno::AGAIN))),
                Err(_) => unreachable!("the closure that held the other reference was dropped"),
            },
        }
    }
}

impl Shared {
    /// Queues one entry and tells the kernel. Waits only if the submission ring is full, which the
    /// request queue's bound on requests in flight keeps from happening.
    fn push(&self, entry: &io_uring::squeue::Entry) {
        let _sq = self.sq.lock();
        // SAFETY: the mutex makes this the only submission queue handle; memory that the entry points
        // to lives until its completion (see `InFlight`).
        while unsafe { self.ring.submission_shared().push(entry) }.is_err() {
            self.enter();
        }
        self.enter();
    }

    /// Hands queued entries to the kernel. What can fail here passes (no memory, a full completion
    /// ring, a signal), and the entry cannot be taken back, so it is tried until it goes through.
    fn enter(&self) {
        while self.ring.submit().is_err() {
            thread::sleep(std::time::Duration::from_micros(50));
        }
    }

    fn reap(&self) {
        loop {
            if self.wait().is_err() {
                thread::sleep(std::time::Duration::from_millis(1));
            }
            loop {
                // SAFETY: only this thread touches the completion queue.
                let Some(cqe) = (unsafe { self.ring.completion_shared() }).next() else { break };
                if cqe.user_data() == STOP {
                    return;
                }
                // SAFETY: `user_data` is the pointer that `submit` made from a box; each entry
                // completes once.
                let done = unsafe { Box::from_raw(cqe.user_data() as *mut InFlight) };
                self.finish(done.rq, cqe.result());
            }
        }
    }

    /// Waits for a completion without submitting, so that it needs no lock.
    fn wait(&self) -> Result<(), Errno> {
        // SAFETY: plain io_uring_enter with GETEVENTS and no argument memory.
        let r = unsafe { self.ring.submitter().enter::<()>(0, 1, 1, None) };
        match r {
            Ok(_) => Ok(()),
            Err(e) => match Errno::from_io_error(&e) {
                Some(Errno::INTR) => Ok(()),
                e => Err(e.unwrap_or(Errno::IO)),
            },
        }
    }

    fn finish(&self, mut rq: Request, result: i32) {
        let r = match result {
            n if n >= 0 && n as u64 == rq.bytes => Ok(()),
            // Short, or something the ring could not do: doing it again whole is idempotent.
            0.. => self.io.execute(&mut rq),
            _ => match Errno::from_raw_os_error(-result) {
                // What waits for one of the kernel's workers is cancelled when the thread that submitted it ends.
                Errno::CANCELED | Errno::AGAIN | Errno::INTR | Errno::OPNOTSUPP => self.io.execute(&mut rq),
                e => Err(e),
            },
        };
        rq.complete(r);
    }
}

impl Device for UringDevice {
    fn name(&self) -> &str {
        &self.shared.io.name
    }
    fn size(&self) -> u64 {
        self.shared.io.size
    }
    fn read_only(&self) -> bool {
        self.shared.io.read_only
    }
    fn backend(&self) -> &'static str {
        "io_uring"
    }
    fn is_quick(&self, rq: &Request) -> bool {
        self.shared.io.is_quick(rq)
    }
    fn execute(&self, rq: &mut Request) -> Result<(), Errno> {
        self.shared.io.execute(rq)
    }

    fn submit(&self, mut rq: Request) {
        let plain = matches!(rq.op, Op::Read | Op::Write)
            && !rq.flags.intersects(BioFlags::PREFLUSH | BioFlags::FUA)
            && rq.end().bytes() <= self.shared.io.size
            && !(rq.op == Op::Write && self.shared.io.read_only)
            && is_aligned(&rq);
        if !plain {
            let r = self.execute(&mut rq);
            return rq.complete(r);
        }
        self.shared.io.note(&rq);
        let mut iov = Vec::with_capacity(rq.segments());
        match rq.op {
            Op::Read => rq.for_each_target(|t| iov.push(IoVec { base: t.as_mut_ptr(), len: t.len() })),
            _ => rq.for_each_source(|s| iov.push(IoVec { base: s.as_ptr().cast_mut(), len: s.len() })),
        }
        let (write, at, n) = (rq.op == Op::Write, rq.sector.bytes(), iov.len() as u32);
        let flight = Box::new(InFlight { rq, iov });
        let fd = types::Fd(self.shared.io.fd.as_raw_fd());
        let ptr = flight.iov.as_ptr().cast();
        let raw = Box::into_raw(flight);
        let entry = if write {
            opcode::Writev::new(fd, ptr, n).offset(at).build()
        } else {
            opcode::Readv::new(fd, ptr, n).offset(at).build()
        };
        self.shared.push(&entry.user_data(raw as u64));
    }
}

impl Drop for UringDevice {
    fn drop(&mut self) {
        // Every request queue drains before it lets go of its device, so nothing is in flight here.
        self.shared.push(&opcode::Nop::new().build().user_data(STOP));
        if let Some(t) = self.reaper.take() {
            t.join();
        }
    }
}
