//! Takes requests apart and calls the server.

use super::Channel;
use super::opcode::*;
use super::ring::Post;
use super::wire::{ENTRY, Head, Reader, Writer, decode_dev};
use crate::errno::{Result, ToErrno};
use crate::names::Make;
use crate::privileges::Kill;
use crate::server::{Caller, Entry, Server};
use crate::transport::TTL;
use rustix::io::Errno;
use std::sync::Arc;
use tidegate::vfs::{DeviceNumber, FileType};
use tidegate_rt::thread;

/// Flags of requests: a write of pages that the kernel cached, a write or open that removes set-id bits, an fsync of
/// data only, an ACL that removes set-group-id.
const WRITE_CACHE: u32 = 1;
const WRITE_KILL_SUIDGID: u32 = 1 << 2;
const OPEN_KILL_SUIDGID: u32 = 1;
const FDATASYNC: u32 = 1;
pub(super) const ACL_KILL_SGID: u32 = 1;

/// The answer to a request.
pub enum Answer {
    /// These bytes.
    Bytes(Writer),
    /// The first bytes of the request's data.
    Buffer(usize),
    /// No answer: the kernel does not wait, or another thread answers.
    Nothing,
}

/// The outcome of a request: an answer, or an errno.
pub type Outcome = Result<Answer>;

/// Answers requests.
pub trait Answers {
    /// Serves a request. `fixed` is the structure after the head, and the first `len` bytes of `data` are the rest. The
    /// data of a write is there, and a read puts its data there.
    fn outcome(&mut self, h: &Head, fixed: &[u8], data: &mut [u8], len: usize) -> Outcome;
}

/// The function that makes an [`Answers`] for each thread.
pub(super) type Maker = Arc<dyn Fn(Offload) -> Box<dyn Answers> + Send + Sync>;

/// The number of bytes of a file that a request moves.
pub(super) fn volume_of(h: &Head, fixed: &[u8], len: usize) -> usize {
    match h.opcode {
        WRITE => len,
        READ => Reader(fixed.get(16..).unwrap_or_default()).u32().unwrap_or(0) as usize,
        _ => 0,
    }
}

pub(super) fn bytes(w: Writer) -> Outcome {
    Ok(Answer::Bytes(w))
}

pub(super) fn empty() -> Outcome {
    bytes(Writer::default())
}

/// An answer with the bytes that `put` writes.
pub(super) fn with(put: impl FnOnce(&mut Writer)) -> Outcome {
    let mut w = Writer::default();
    put(&mut w);
    bytes(w)
}

pub(super) fn entry(x: &Entry) -> Outcome {
    with(|w| w.entry(x, TTL))
}

/// An attribute's value, or its length if the caller has no room.
pub(super) fn sized(value: Vec<u8>, room: u32) -> Outcome {
    match room as usize {
        0 => with(|w| {
            w.u32(value.len() as u32);
            w.u32(0);
        }),
        room if value.len() > room => Err(Errno::RANGE),
        _ => bytes(Writer(value)),
    }
}

/// The place for work that waits for other requests.
pub(super) enum Offload {
    /// In a thread of its own, which answers.
    Thread(Arc<Channel>),
    /// In this thread: others serve meanwhile.
    Here(Post),
}

pub(super) struct Worker {
    pub(super) server: Arc<Server>,
    offload: Offload,
    small: Vec<u8>,
}

impl Answers for Worker {
    fn outcome(&mut self, h: &Head, fixed: &[u8], data: &mut [u8], len: usize) -> Outcome {
        let rest = data.get(..len).ok_or(Errno::INVAL)?;
        if h.opcode == WRITE {
            return self.write(h, Reader(fixed), rest);
        }
        let mut small = std::mem::take(&mut self.small);
        small.clear();
        small.extend_from_slice(fixed);
        small.extend_from_slice(rest);
        let outcome = self.serve(h, Reader(&small), data);
        self.small = small;
        outcome
    }
}

impl Worker {
    pub(super) fn new(server: Arc<Server>, offload: Offload) -> Worker {
        Worker { server, offload, small: Vec::new() }
    }

    fn serve(&mut self, h: &Head, r: Reader<'_>, buffer: &mut [u8]) -> Outcome {
        match h.opcode {
            FORGET | BATCH_FORGET | INTERRUPT => self.silent(h, r),
            // The caller of umount(2) waits for the answer, and so until everything is written.
            DESTROY => {
                self.server.destroy();
                empty()
            }
            // The kernel has sent its own pages before this request.
            SYNCFS => self.server.vfs().sync().map_errno().and_then(|()| empty()),
            LOOKUP | MKNOD | MKDIR | SYMLINK | LINK | UNLINK | RMDIR | RENAME | RENAME2 | CREATE
            | TMPFILE => self.names(h, r),
            READ | READDIR | READDIRPLUS | FSYNC | FSYNCDIR | FALLOCATE | LSEEK | COPY_FILE_RANGE | OPEN
            | RELEASE => self.data(h, r, buffer),
            _ => self.attrs(h, r),
        }
    }

    /// Requests that the kernel does not wait for.
    fn silent(&mut self, h: &Head, mut r: Reader<'_>) -> Outcome {
        match h.opcode {
            FORGET => self.server.forget(h.node, r.u64()?),
            BATCH_FORGET => {
                let count = r.u64()? as u32;
                for _ in 0..count {
                    let (node, n) = (r.u64()?, r.u64()?);
                    self.server.forget(node, n);
                }
            }
            // Interrupts are ignored: no operation waits for long enough to be worth giving up.
            _ => {}
        }
        Ok(Answer::Nothing)
    }

    fn names(&mut self, h: &Head, mut r: Reader<'_>) -> Outcome {
        let server = &self.server;
        let caller = caller_of(h);
        let make = |mode: u32, umask: u32, rdev: DeviceNumber, name: &[u8], target: &[u8]| {
            server
                .make(&caller, &Make { parent: h.node, name, mode, umask, rdev, target })
                .and_then(|x| entry(&x))
        };
        match h.opcode {
            LOOKUP => match server.lookup(h.node, r.name()?)? {
                Some(x) => entry(&x),
                // A node number of 0 means that there is no such name, and may be cached.
                None => with(|w| {
                    w.zeros(16);
                    w.u64(TTL.as_secs());
                    w.zeros(ENTRY - 24);
                }),
            },
            MKNOD => {
                let (mode, rdev, umask) = (r.u32()?, r.u32()?, r.u32()?);
                r.skip(4)?;
                make(mode, umask, decode_dev(rdev), r.name()?, b"")
            }
            MKDIR => {
                let (mode, umask) = (r.u32()?, r.u32()?);
                let mode = FileType::Directory.mode_bits() | mode & 0o7777;
                make(mode, umask, DeviceNumber::default(), r.name()?, b"")
            }
            SYMLINK => {
                let (name, target) = (r.name()?, r.name()?);
                let mode = FileType::Symlink.mode_bits() | 0o777;
                make(mode, 0, DeviceNumber::default(), name, target)
            }
            LINK => {
                let node = r.u64()?;
                entry(&server.link(node, h.node, r.name()?)?)
            }
            UNLINK | RMDIR => server.remove(h.node, r.name()?, h.opcode == RMDIR).and_then(|()| empty()),
            RENAME | RENAME2 => {
                let dir = r.u64()?;
                let flags = if h.opcode == RENAME2 { r.u64()? as u32 } else { 0 };
                let (old, new) = (r.name()?, r.name()?);
                server.rename(&caller, (h.node, old), (dir, new), flags).and_then(|()| empty())
            }
            _ => {
                let (flags, mode, umask, open_flags) = (r.u32()?, r.u32()?, r.u32()?, r.u32()?);
                let mode = FileType::Regular.mode_bits() | mode & 0o7777;
                let (name, rdev) = (r.name()?, DeviceNumber::default());
                let m = Make { parent: h.node, name, mode, umask, rdev, target: b"" };
                let (x, fh) = match h.opcode {
                    TMPFILE => server.tmpfile(&caller, &m, flags)?,
                    _ => server.create(
                        &caller,
                        &m,
                        flags,
                        kill_if(&caller, open_flags & OPEN_KILL_SUIDGID != 0),
                    )?,
                };
                with(|w| {
                    w.entry(&x, TTL);
                    w.opened(fh);
                })
            }
        }
    }

    fn write(&mut self, h: &Head, mut r: Reader<'_>, data: &[u8]) -> Outcome {
        let (fh, pos, size, flags) = (r.u64()?, r.u64()?, r.u32()?, r.u32()?);
        let data = &data[..data.len().min(size as usize)];
        let caller = caller_of(h);
        let kill = kill_if(&caller, flags & WRITE_KILL_SUIDGID != 0);
        if let Err(e) = self.server.write(fh, pos, data, flags & WRITE_CACHE != 0, kill) {
            if flags & WRITE_CACHE != 0 {
                self.server.refuse(h.node, e, pos, data.len() as u64);
            }
            return Err(e);
        }
        with(|w| {
            w.u32(size);
            w.u32(0);
        })
    }

    fn data(&mut self, h: &Head, mut r: Reader<'_>, buffer: &mut [u8]) -> Outcome {
        let server = &self.server;
        let caller = caller_of(h);
        match h.opcode {
            OPEN => {
                let (flags, open_flags) = (r.u32()?, r.u32()?);
                let kill = kill_if(&caller, open_flags & OPEN_KILL_SUIDGID != 0);
                let fh = server.open(h.node, flags, kill)?;
                with(|w| w.opened(fh))
            }
            RELEASE => {
                server.release(r.u64()?);
                empty()
            }
            READ => {
                let (fh, pos, size) = (r.u64()?, r.u64()?, r.u32()? as usize);
                r.skip(12)?;
                let (flags, to) = (r.u32()?, buffer.get_mut(..size).ok_or(Errno::INVAL)?);
                server.read(fh, pos, to, flags).map(Answer::Buffer)
            }
            READDIR | READDIRPLUS => {
                r.skip(8)?;
                let (pos, room) = (r.u64()?, r.u32()? as usize);
                self.readdir(h, pos, room)
            }
            FSYNC => {
                let (fh, flags) = (r.u64()?, r.u32()?);
                server.fsync(fh, flags & FDATASYNC != 0).and_then(|()| empty())
            }
            FSYNCDIR => {
                r.skip(8)?;
                server.fsyncdir(h.node, r.u32()? & FDATASYNC != 0).and_then(|()| empty())
            }
            FALLOCATE => {
                let (fh, offset, len, mode) = (r.u64()?, r.u64()?, r.u64()?, r.u32()?);
                server.fallocate(fh, mode, offset, len, Kill::Unless(&caller)).and_then(|()| empty())
            }
            LSEEK => {
                let (fh, pos, whence) = (r.u64()?, r.u64()?, r.u32()?);
                let node = h.node;
                self.maybe_offload(server.lseek_waits(node), h, move |s| {
                    let at = s.lseek(node, fh, pos, whence)?;
                    with(|w| w.u64(at))
                })
            }
            _ => {
                let from = (r.u64()?, r.u64()?);
                r.skip(8)?;
                let (to, len) = ((r.u64()?, r.u64()?), r.u64()?);
                let n = server.copy_file_range(from, to, len, Kill::Unless(&caller))?;
                with(|w| w.u64(n))
            }
        }
    }

    fn readdir(&mut self, h: &Head, pos: u64, room: usize) -> Outcome {
        let mut w = Writer::default();
        if h.opcode == READDIR {
            let mut any = false;
            let listed = self.server.readdir(h.node, pos, &mut |d| {
                let kind = d.file_type.map_or(0, |t| t as u32);
                any = true;
                w.dirent(|_| (), d.ino.0, d.next, kind, &d.name, room)
            });
            // Entries before a fault are listed. The kernel asks again from behind them, and gets the error.
            listed.or_else(|e| if any { Ok(()) } else { Err(e) })?;
        } else {
            self.server.readdirplus(h.node, pos, &mut |d, x| {
                let kind = x.map(|x| x.attr.file_type).or(d.file_type).map_or(0, |t| t as u32);
                let head = |w: &mut Writer| match x {
                    Some(x) => w.entry(x, TTL),
                    None => w.zeros(ENTRY),
                };
                w.dirent(head, d.ino.0, d.next, kind, &d.name, room)
            })?;
        }
        bytes(w)
    }

    /// Does `work`, in a thread of its own if it waits for requests that this thread may have to serve.
    pub(super) fn maybe_offload(
        &self,
        offload: bool,
        h: &Head,
        work: impl FnOnce(&Server) -> Outcome + Send + 'static,
    ) -> Outcome {
        if !offload {
            return work(&self.server);
        }
        let channel = match &self.offload {
            Offload::Here(post) => return post.while_others_serve(|| work(&self.server)),
            Offload::Thread(channel) => channel.clone(),
        };
        let (server, unique) = (self.server.clone(), h.unique);
        let started = thread::spawn("tg-fuse-offload", move || match work(&server) {
            Ok(Answer::Bytes(w)) => channel.send(unique, 0, &[&w.0]),
            Ok(_) => false,
            Err(e) => channel.send(unique, -e.raw_os_error(), &[]),
        });
        started.map(|_| Answer::Nothing).map_err(|_| Errno::NOMEM)
    }
}

/// The process that sent a request.
pub(super) fn caller_of(h: &Head) -> Caller {
    Caller { uid: h.uid, gid: h.gid, pid: h.pid }
}

/// The meaning of the kernel's flag `flagged` for set-id bits.
pub(super) fn kill_if(caller: &Caller, flagged: bool) -> Kill<'_> {
    if flagged { Kill::By(caller) } else { Kill::No }
}
