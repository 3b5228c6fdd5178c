//! FUSE over io_uring: one entry in a queue of the kernel, for one request at a time.
//!
//! It does: offer buffers to the kernel, wait until the kernel has put a request into them, pass the answer
//! back. It does not know the meaning of requests. An entry belongs to the thread that made it: the kernel
//! fills its buffers in that thread, while it waits.

use crate::Errno;
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

/// Commands of `enum fuse_uring_cmd`.
const REGISTER: u32 = 1;
const COMMIT_AND_FETCH: u32 = 2;

/// Bytes of the two header areas of `struct fuse_uring_req_header`, and of the whole structure.
const AREA: usize = 128;
const HEADER: usize = 2 * AREA + 32;
/// The offsets in it of the commit id and of the length of the payload, from `struct fuse_uring_ent_in_out`.
const COMMIT_ID: usize = 2 * AREA + 8;
const PAYLOAD_LEN: usize = 2 * AREA + 16;
/// Bytes of `struct fuse_in_header` and of `struct fuse_out_header`.
const IN_HEADER: usize = 40;
const OUT_HEADER: usize = 16;

/// The offset of `len` in an entry of the submission queue.
const SQE_LEN: usize = 24;
const _: () = assert!(size_of::<squeue::Entry128>() == 128);

/// Zeroed, page-aligned memory.
struct Pages {
    at: *mut u8,
    layout: Layout,
    /// The memory must never be freed.
    given_away: bool,
}

impl Pages {
    fn new(len: usize) -> Result<Self, Errno> {
        let layout = Layout::from_size_align(len.max(1), crate::PAGE_SIZE).map_err(|_| Errno::INVAL)?;
        // SAFETY: the size is not 0.
        let at = unsafe { alloc_zeroed(layout) };
        if at.is_null() {
            handle_alloc_error(layout);
        }
        Ok(Pages { at, layout, given_away: false })
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: allocated with that length, zeroed, and borrowed as `self` is.
        unsafe { std::slice::from_raw_parts(self.at, self.layout.size()) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.at, self.layout.size()) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        if !self.given_away {
            // SAFETY: allocated with this layout.
            unsafe { dealloc(self.at, self.layout) }
        }
    }
}

/// A request, in the buffers of the entry.
pub struct Message<'a> {
    /// `struct fuse_in_header`.
    pub head: &'a [u8],
    /// The structure at the beginning of the operation; empty where there is none.
    pub fixed: &'a [u8],
    /// The whole payload buffer: the request, and space for the answer.
    pub payload: &'a mut [u8],
    /// The number of bytes of the request in it.
    pub len: usize,
}

/// One entry in a queue of the kernel, for one request at a time.
pub struct FuseRing {
    /// Declared before the buffers, so that it is dropped first.
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
    fuse: Arc<OwnedFd>,
    queue: u16,
    header: Pages,
    payload: Pages,
    /// The kernel has a command, and with it the buffers.
    pending: bool,
}

impl FuseRing {
    /// An entry for queue `queue` (that of the CPU of this number) of the connection `fuse`. Its requests and
    /// answers have at most `payload` bytes beside their headers. To be called by the thread that uses the
    /// entry.
    ///
    /// # Errors
    /// The reason for which io_uring cannot be used: `ENOSYS`, `EPERM`, `ENOMEM`, `EMFILE`.
    pub fn new(fuse: Arc<OwnedFd>, queue: u16, payload: usize) -> Result<Self, Errno> {
        let ring = IoUring::builder()
            .dontfork()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .build(2)
            .map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::NOSYS))?;
        let (header, payload) = (Pages::new(HEADER)?, Pages::new(payload)?);
        Ok(FuseRing { ring, fuse, queue, header, payload, pending: false })
    }

    /// Registers the entry with the kernel, without waiting for a request.
    ///
    /// # Errors
    /// `EAGAIN` before the kernel's first message was answered, `EOPNOTSUPP` where the kernel does not
    /// support this, `ENOTCONN`.
    pub fn register(&mut self) -> Result<(), Errno> {
        let vectors = [&self.header, &self.payload]
            .map(|p| libc::iovec { iov_base: p.at.cast(), iov_len: p.layout.size() });
        let mut entry = self.command(REGISTER, 0, vectors.as_ptr() as u64);
        // SAFETY: an entry is plain data of 128 bytes (asserted above) in the kernel's layout.
        unsafe { (&raw mut entry).cast::<u8>().add(SQE_LEN).cast::<u32>().write_unaligned(2) };
        self.push(&entry)?;
        // The kernel reads the vectors when it takes the submission, so they live until then.
        while !self.ring.submission().is_empty() {
            self.enter(0)?;
        }
        match self.completion() {
            None => Ok(()),
            Some(r) => Err(Errno::from_raw_os_error(-r)),
        }
    }

    /// Waits for a request. False once there will be no more. Only after [`FuseRing::register`].
    ///
    /// # Errors
    /// The kernel does not accept the previous answer.
    pub fn wait(&mut self) -> Result<bool, Errno> {
        while self.pending {
            match self.completion() {
                None => self.enter(1)?,
                Some(r) => return Self::arrived(r),
            }
        }
        Ok(false)
    }

    /// Answers with `error` (0, or a negative errno) and the first `len` bytes of the payload, and waits as
    /// [`FuseRing::wait`] does.
    ///
    /// # Errors
    /// As [`FuseRing::wait`].
    pub fn answer(&mut self, error: i32, len: usize) -> Result<bool, Errno> {
        let header = self.header.bytes_mut();
        let id: [u8; 8] = header[COMMIT_ID..COMMIT_ID + 8].try_into().unwrap_or_default();
        // `unique` is at the same place in both heads.
        header[..4].copy_from_slice(&((OUT_HEADER + len) as u32).to_ne_bytes());
        header[4..8].copy_from_slice(&error.to_ne_bytes());
        header[PAYLOAD_LEN..PAYLOAD_LEN + 4].copy_from_slice(&(len as u32).to_ne_bytes());
        let entry = self.command(COMMIT_AND_FETCH, u64::from_ne_bytes(id), 0);
        self.push(&entry)?;
        self.enter(1)?;
        self.wait()
    }

    /// The request that came.
    ///
    /// # Errors
    /// `EINVAL` when its lengths contradict each other.
    pub fn message(&mut self) -> Result<Message<'_>, Errno> {
        if self.pending {
            return Err(Errno::INVAL);
        }
        let header = self.header.bytes();
        let number =
            |at: usize| u32::from_ne_bytes(header[at..at + 4].try_into().unwrap_or_default()) as usize;
        let (all, len) = (number(0), number(PAYLOAD_LEN));
        let fixed = all.checked_sub(IN_HEADER + len).filter(|n| *n <= AREA).ok_or(Errno::INVAL)?;
        let payload = self.payload.bytes_mut();
        if len > payload.len() {
            return Err(Errno::INVAL);
        }
        Ok(Message { head: &header[..IN_HEADER], fixed: &header[AREA..AREA + fixed], payload, len })
    }

    fn command(&self, op: u32, commit: u64, addr: u64) -> squeue::Entry128 {
        // `struct fuse_uring_cmd_req`.
        let mut data = [0; 80];
        data[8..16].copy_from_slice(&commit.to_ne_bytes());
        data[16..18].copy_from_slice(&self.queue.to_ne_bytes());
        opcode::UringCmd80::new(types::Fd(self.fuse.as_raw_fd()), op).cmd(data).addr(Some(addr)).build()
    }

    fn push(&mut self, entry: &squeue::Entry128) -> Result<(), Errno> {
        // SAFETY: the memory that the entry points to is read while it is submitted; the buffers stay until
        // its completion (see `drop`), and are not accessed until then (`pending`).
        unsafe { self.ring.submission().push(entry) }.map_err(|_| Errno::BUSY)?;
        self.pending = true;
        Ok(())
    }

    /// Submits queued entries, and waits for so many completions.
    fn enter(&mut self, wait: u32) -> Result<(), Errno> {
        /// `IORING_ENTER_GETEVENTS`.
        const GETEVENTS: u32 = 1;
        let submit = self.ring.submission().len() as u32;
        let flags = if wait > 0 { GETEVENTS } else { 0 };
        // SAFETY: no argument memory.
        match unsafe { self.ring.submitter().enter::<()>(submit, wait, flags, None) } {
            Ok(_) => Ok(()),
            Err(e) => match Errno::from_io_error(&e) {
                // A signal, or no memory just now: `wait` tries again.
                Some(Errno::INTR | Errno::AGAIN) => Ok(()),
                e => Err(e.unwrap_or(Errno::IO)),
            },
        }
    }

    fn completion(&mut self) -> Option<i32> {
        let result = self.ring.completion().next()?.result();
        self.pending = false;
        Some(result)
    }

    fn arrived(result: i32) -> Result<bool, Errno> {
        match result {
            0.. => Ok(true),
            e => match Errno::from_raw_os_error(-e) {
                Errno::NOTCONN | Errno::CONNABORTED | Errno::NODEV | Errno::NOENT | Errno::CANCELED => {
                    Ok(false)
                }
                e => Err(e),
            },
        }
    }
}

impl Drop for FuseRing {
    fn drop(&mut self) {
        if self.pending {
            // The kernel has the buffers, and returns them only some time after the ring was closed. So they
            // are leaked.
            for p in [&mut self.header, &mut self.payload] {
                p.given_away = true;
            }
        }
    }
}
