//! The io_uring backend: any thread submits, and one thread reaps completions.
//!
//! Requests that need more than one command (PREFLUSH, FUA, discard) and requests that came back short run
//! synchronously, so the ring carries only plain reads and writes.

use crate::bio::{BioFlags, Op};
use crate::file::{FileIo, is_aligned};
use crate::{Device, DeviceInfo, Errno, Request, Zone};
use std::os::fd::AsFd;
use std::sync::Arc;
use tidegate_rt::trace::causes;
use tidegate_rt::{LockClass, Mutex, thread};
use tidegate_sys::uring::{self, Command, Completion, Memory, Reaper, Submitter};

static SQ_CLASS: LockClass = LockClass::new("io_uring->sq", 985);
const ENTRIES: u32 = 256;

impl Memory for Request {
    fn targets<'a>(&'a mut self, each: impl FnMut(&'a mut [u8])) {
        self.for_each_target(each);
    }
    fn sources<'a>(&'a self, each: impl FnMut(&'a [u8])) {
        self.for_each_source(each);
    }
}

struct Shared {
    io: FileIo,
    sq: Mutex<Submitter<Request>>,
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
        let (submitter, reaper) = match uring::ring(ENTRIES) {
            Ok(halves) => halves,
            Err(e) => return Err((io, e)),
        };
        let shared = Arc::new(Shared { io, sq: Mutex::new(&SQ_CLASS, submitter) });
        let s = shared.clone();
        match thread::spawn("tg-uring", move || s.reap(reaper)) {
            Ok(t) => Ok(UringDevice { shared, reaper: Some(t) }),
            Err(e) => match Arc::try_unwrap(shared) {
                Ok(s) => Err((s.io, Errno::from_io_error(&e).unwrap_or(Errno::AGAIN))),
                Err(_) => unreachable!("the closure that held the other reference was dropped"),
            },
        }
    }
}

impl Shared {
    /// Queues commands and submits them to the kernel. Waits only if the submission ring is full, which does
    /// not happen, as the request queue bounds the requests in flight.
    fn push(&self, commands: impl IntoIterator<Item = Command<Request>>) {
        let mut sq = self.sq.lock();
        for mut command in commands {
            while let Err(back) = sq.push(command) {
                command = back;
                enter(&mut sq);
            }
        }
        enter(&mut sq);
    }

    fn reap(&self, mut reaper: Reaper<Request>) {
        loop {
            // A completion in the ring waits until this thread runs on a CPU.
            causes::calls();
            if reaper.wait().is_err() {
                thread::sleep(std::time::Duration::from_millis(1));
            }
            while let Some(completion) = reaper.reap() {
                match completion {
                    Completion::Done(rq, result) => self.finish(rq, result),
                    Completion::Wake => return,
                }
            }
        }
    }

    fn finish(&self, mut rq: Request, result: i32) {
        let r = match result {
            n if n >= 0 && n as u64 == rq.bytes => Ok(()),
            // The request came back short, or the ring could not do it. The whole request is idempotent, so
            // it is executed again.
            0.. if self.io.repeats(&rq) => self.io.execute(&mut rq),
            0.. => Err(Errno::IO),
            _ => match Errno::from_raw_os_error(-result) {
                // A request that waits for a worker of the kernel is cancelled when the thread that submitted
                // it ends.
                Errno::CANCELED | Errno::AGAIN | Errno::INTR | Errno::OPNOTSUPP => self.io.execute(&mut rq),
                e => Err(e),
            },
        };
        rq.complete(r);
    }
}

/// Submits queued commands to the kernel. The failures that are possible here are temporary (no memory, a
/// full completion ring, a signal), and a command cannot be taken back, so the call is repeated until it
/// succeeds.
fn enter(sq: &mut Submitter<Request>) {
    while sq.enter().is_err() {
        thread::sleep(std::time::Duration::from_micros(50));
    }
}

impl Device for UringDevice {
    fn info(&self) -> DeviceInfo<'_> {
        self.shared.io.info("io_uring")
    }

    fn report_zones(&self) -> Result<Vec<Zone>, Errno> {
        self.shared.io.report_zones()
    }

    fn report_zone(&self, pos: u64) -> Result<Option<Zone>, Errno> {
        self.shared.io.report_zone(pos)
    }

    fn is_quick(&self, rq: &Request) -> bool {
        self.shared.io.is_quick(rq)
    }
    fn execute(&self, rq: &mut Request) -> Result<(), Errno> {
        self.shared.io.execute(rq)
    }

    fn submit(&self, rq: Request) {
        if let Some(command) = self.command(rq) {
            self.shared.push([command]);
        }
    }

    /// One system call submits all of them, and the kernel passes them to the disk together.
    fn submit_all(&self, requests: Vec<Request>) {
        let mut commands = Vec::new();
        for rq in requests {
            // A request that is not for the ring is executed here; the commands so far are submitted before
            // it.
            if !self.is_for_ring(&rq) {
                self.push_all(&mut commands);
            }
            commands.extend(self.command(rq));
        }
        self.push_all(&mut commands);
    }
}

impl UringDevice {
    fn push_all(&self, commands: &mut Vec<Command<Request>>) {
        if !commands.is_empty() {
            self.shared.push(commands.drain(..));
        }
    }

    fn is_for_ring(&self, rq: &Request) -> bool {
        matches!(rq.op, Op::Read | Op::Write)
            && !rq.flags.intersects(BioFlags::PREFLUSH | BioFlags::FUA)
            && rq.end().bytes() <= self.shared.io.size
            && !(rq.op == Op::Write && self.shared.io.read_only)
            && is_aligned(rq)
    }

    /// The command for a request. `None` for a request that is not for the ring, which is done then.
    fn command(&self, mut rq: Request) -> Option<Command<Request>> {
        if !self.is_for_ring(&rq) {
            let r = self.execute(&mut rq);
            rq.complete(r);
            return None;
        }
        self.shared.io.note(&rq);
        let (pos, file) = (rq.sector.bytes(), self.shared.io.fd.as_fd());
        Some(match rq.op {
            Op::Write => Command::write(file, pos, rq),
            _ => Command::read(file, pos, rq),
        })
    }
}

impl Drop for UringDevice {
    fn drop(&mut self) {
        // Every request queue drains before it drops its device, so nothing is in flight here.
        self.shared.push([Command::wake()]);
        if let Some(t) = self.reaper.take() {
            t.join();
        }
    }
}
