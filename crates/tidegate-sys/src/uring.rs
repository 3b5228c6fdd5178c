//! Reads and writes of files by io_uring: one half submits, the other reaps.
//!
//! Each command owns its memory, as a `T`, from its creation until its completion returns the `T`. So no code can
//! access, move or free the memory while the kernel works on it. The memory of commands that are in flight when both
//! halves are dropped is never freed.

use crate::Errno;
use io_uring::{IoUring, opcode, squeue, types};
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;

/// `user_data` of a [`Command::wake`].
const WAKE: u64 = 0;

/// The memory of a command. The pieces are borrowed from the whole, so they are valid as long as the whole is
/// not touched.
pub trait Memory: Send + 'static {
    /// Calls `each` with each piece to be read into, in order.
    fn targets<'a>(&'a mut self, each: impl FnMut(&'a mut [u8]));
    /// Calls `each` with each piece to be written, in order.
    fn sources<'a>(&'a self, each: impl FnMut(&'a [u8]));
}

struct Flight<T> {
    memory: T,
    vectors: Vec<libc::iovec>,
}

/// A command for the kernel.
pub struct Command<T: Memory> {
    entry: squeue::Entry,
    /// Null once the kernel has the command, and for a command without memory.
    flight: *mut Flight<T>,
}

impl<T: Memory> Command<T> {
    /// Reads at `pos` (bytes) of `file` into all of `memory`. The file must stay open until the command was submitted.
    pub fn read(file: BorrowedFd<'_>, pos: u64, memory: T) -> Self {
        Self::with(memory, |flight| {
            let vectors = &mut flight.vectors;
            flight.memory.targets(|t| {
                vectors.push(libc::iovec { iov_base: t.as_mut_ptr().cast(), iov_len: t.len() });
            });
            let fd = types::Fd(file.as_raw_fd());
            opcode::Readv::new(fd, vectors.as_ptr(), vectors.len() as u32).offset(pos).build()
        })
    }

    /// Writes all of `memory` at `pos` (bytes) of `file`. The file must stay open until the command was submitted.
    pub fn write(file: BorrowedFd<'_>, pos: u64, memory: T) -> Self {
        Self::with(memory, |flight| {
            let vectors = &mut flight.vectors;
            flight.memory.sources(|s| {
                vectors.push(libc::iovec { iov_base: s.as_ptr().cast_mut().cast(), iov_len: s.len() });
            });
            let fd = types::Fd(file.as_raw_fd());
            opcode::Writev::new(fd, vectors.as_ptr(), vectors.len() as u32).offset(pos).build()
        })
    }

    /// A command that only completes, as [`Completion::Wake`].
    pub fn wake() -> Self {
        let entry = opcode::Nop::new().build().user_data(WAKE);
        Command { entry, flight: std::ptr::null_mut() }
    }

    fn with(memory: T, entry: impl FnOnce(&mut Flight<T>) -> squeue::Entry) -> Self {
        let flight = Box::into_raw(Box::new(Flight { memory, vectors: Vec::new() }));
        // SAFETY: it was just made from a box, and there are no other pointers to it.
        let entry = entry(unsafe { &mut *flight });
        Command { entry: entry.user_data(flight as u64), flight }
    }
}

impl<T: Memory> Drop for Command<T> {
    fn drop(&mut self) {
        if !self.flight.is_null() {
            // SAFETY: made by `Box::into_raw`, and the kernel never had it.
            drop(unsafe { Box::from_raw(self.flight) });
        }
    }
}

/// A completed command.
pub enum Completion<T> {
    /// A read or write, with its memory and the kernel's result: bytes, or a negative errno.
    Done(T, i32),
    /// A [`Command::wake`].
    Wake,
}

/// The half of a ring that submits commands to the kernel.
pub struct Submitter<T> {
    ring: Arc<IoUring>,
    memory: PhantomData<T>,
}

/// The half of a ring that takes completions.
pub struct Reaper<T> {
    ring: Arc<IoUring>,
    memory: PhantomData<T>,
}

/// Sets up a ring for `entries` commands.
///
/// # Errors
/// The reason for which io_uring cannot be used: `ENOSYS`, `EPERM` under seccomp, `EMFILE`, `ENOMEM`.
pub fn ring<T: Memory>(entries: u32) -> Result<(Submitter<T>, Reaper<T>), Errno> {
    let ring = IoUring::builder()
        .dontfork()
        .build(entries)
        .map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::NOSYS))?;
    let ring = Arc::new(ring);
    let submitter = Submitter { ring: ring.clone(), memory: PhantomData };
    Ok((submitter, Reaper { ring, memory: PhantomData }))
}

impl<T: Memory> Submitter<T> {
    /// Queues a command for the next [`Submitter::enter`]. Returns it when the queue is full.
    ///
    /// # Errors
    /// The command.
    pub fn push(&mut self, mut command: Command<T>) -> Result<(), Command<T>> {
        // SAFETY: `&mut self` of the only submitter makes this the only handle of the submission queue. The
        // memory that the entry points to is in the flight, which is neither freed nor touched until the
        // reaper has its completion.
        match unsafe { self.ring.submission_shared().push(&command.entry) } {
            Ok(()) => {
                command.flight = std::ptr::null_mut();
                Ok(())
            }
            Err(_) => Err(command),
        }
    }

    /// Submits the queued commands to the kernel, without waiting for them.
    ///
    /// # Errors
    /// Temporary errors: no memory, a full completion queue, a signal. The commands, or the last of them, are then still
    /// queued.
    pub fn enter(&mut self) -> Result<(), Errno> {
        self.ring.submit().map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?;
        // SAFETY: `&mut self` of the only submitter makes this the only handle of the submission queue.
        let is_done = unsafe { self.ring.submission_shared() }.is_empty();
        if is_done { Ok(()) } else { Err(Errno::AGAIN) }
    }
}

impl<T: Memory> Reaper<T> {
    /// Waits until there is a completion, or until a signal comes.
    ///
    /// # Errors
    /// The kernel's.
    pub fn wait(&mut self) -> Result<(), Errno> {
        /// `IORING_ENTER_GETEVENTS`.
        const GETEVENTS: u32 = 1;
        // SAFETY: no argument memory, and nothing is submitted.
        match unsafe { self.ring.submitter().enter::<()>(0, 1, GETEVENTS, None) } {
            Ok(_) => Ok(()),
            Err(e) => match Errno::from_io_error(&e) {
                Some(Errno::INTR) => Ok(()),
                e => Err(e.unwrap_or(Errno::IO)),
            },
        }
    }

    /// The next completion, if there is one.
    pub fn reap(&mut self) -> Option<Completion<T>> {
        // SAFETY: `&mut self` of the only reaper makes this the only handle of the completion queue.
        let cqe = unsafe { self.ring.completion_shared() }.next()?;
        if cqe.user_data() == WAKE {
            return Some(Completion::Wake);
        }
        // SAFETY: it is the address of a flight of this ring, with this type `T`; each entry completes once.
        let flight = unsafe { Box::from_raw(cqe.user_data() as *mut Flight<T>) };
        Some(Completion::Done(flight.memory, cqe.result()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, memfd_create};
    use std::os::fd::AsFd;

    impl Memory for Vec<Box<[u8]>> {
        fn targets<'a>(&'a mut self, each: impl FnMut(&'a mut [u8])) {
            self.iter_mut().map(|b| &mut b[..]).for_each(each);
        }
        fn sources<'a>(&'a self, each: impl FnMut(&'a [u8])) {
            self.iter().map(|b| &b[..]).for_each(each);
        }
    }

    fn all(submitter: &mut Submitter<Vec<Box<[u8]>>>, command: Command<Vec<Box<[u8]>>>) {
        assert!(submitter.push(command).is_ok());
        submitter.enter().unwrap();
    }

    fn one<T: Memory>(reaper: &mut Reaper<T>) -> Completion<T> {
        loop {
            if let Some(done) = reaper.reap() {
                return done;
            }
            reaper.wait().unwrap();
        }
    }

    #[test]
    fn memory_comes_back_with_what_was_read() {
        let (mut submitter, mut reaper) = match ring(4) {
            Ok(halves) => halves,
            Err(e) => {
                assert!(std::env::var_os("CI").is_none(), "io_uring: {e}");
                return println!("skipped: no io_uring here: {e}");
            }
        };
        let file = memfd_create("uring", MemfdFlags::CLOEXEC).unwrap();
        let written: Vec<Box<[u8]>> = vec![Box::from(*b"abc"), Box::from(*b"defgh")];
        all(&mut submitter, Command::write(file.as_fd(), 5, written));
        let Completion::Done(memory, 8) = one(&mut reaper) else { panic!("the write was not whole") };
        assert_eq!(&*memory[1], b"defgh");
        all(&mut submitter, Command::read(file.as_fd(), 4, vec![Box::from([9; 2]), Box::from([9; 3])]));
        let Completion::Done(memory, 5) = one(&mut reaper) else { panic!("the read was not whole") };
        assert_eq!(memory, [Box::from(*b"\0a") as Box<[u8]>, Box::from(*b"bcd")]);
        all(&mut submitter, Command::wake());
        assert!(matches!(one(&mut reaper), Completion::Wake));
        assert!(reaper.reap().is_none());
    }

    #[test]
    fn a_full_queue_gives_the_command_back() {
        let Ok((mut submitter, _reaper)) = ring::<Vec<Box<[u8]>>>(2) else { return };
        assert!(submitter.push(Command::wake()).is_ok());
        assert!(submitter.push(Command::wake()).is_ok());
        assert!(submitter.push(Command::wake()).is_err());
        submitter.enter().unwrap();
        assert!(submitter.push(Command::wake()).is_ok());
    }
}
