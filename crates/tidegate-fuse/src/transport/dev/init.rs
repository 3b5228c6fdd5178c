//! The first message of the kernel, and its answer.

use super::Channel;
use super::wire::{Head, Reader, Writer};
use crate::transport::MAX_IO;
use rustix::io::Errno;
use std::io;

const INIT: u32 = 26;
/// The version of the protocol that is used. `FUSE_STATX` came with 7.39.
const MAJOR: u32 = 7;
const MINOR: u32 = 39;
/// The oldest version of the protocol that has all that is needed.
const OLDEST: u32 = 31;
/// Requests that the kernel may send ahead (read-ahead, write-back) before it waits.
const MAX_BACKGROUND: u16 = 64;

bitflags::bitflags! {
    /// The abilities of kernel and server, as bits of `fuse_init_in` and `fuse_init_out`.
    #[derive(Clone, Copy)]
    struct Init: u64 {
        const ASYNC_READ = 1;
        const EXPORT_SUPPORT = 1 << 4;
        const BIG_WRITES = 1 << 5;
        const DONT_MASK = 1 << 6;
        const SPLICE_WRITE = 1 << 7;
        const SPLICE_MOVE = 1 << 8;
        const SPLICE_READ = 1 << 9;
        const HAS_IOCTL_DIR = 1 << 11;
        const DO_READDIRPLUS = 1 << 13;
        const WRITEBACK_CACHE = 1 << 16;
        const PARALLEL_DIROPS = 1 << 18;
        const POSIX_ACL = 1 << 20;
        const MAX_PAGES = 1 << 22;
        const CACHE_SYMLINKS = 1 << 23;
        const NO_OPENDIR_SUPPORT = 1 << 24;
        const EXPLICIT_INVAL_DATA = 1 << 25;
        const HANDLE_KILLPRIV_V2 = 1 << 28;
        const SETXATTR_EXT = 1 << 29;
        const INIT_EXT = 1 << 30;
        const OVER_IO_URING = 1 << 41;
    }
}

/// The kernel's first message.
pub(super) struct Greeting {
    unique: u64,
    readahead: u32,
    offered: Init,
}

fn unmounted() -> io::Error {
    io::Error::new(io::ErrorKind::NotConnected, "unmounted before it was greeted")
}

impl Greeting {
    /// Reads the message from the kernel.
    ///
    /// # Errors
    /// The protocol is too old, or the kernel hung up.
    pub(super) fn read(channel: &Channel) -> io::Result<Self> {
        let (mut head, mut body) = ([0; super::wire::WRITE_HEAD], vec![0; 8192]);
        let n = channel.receive(&mut head, &mut body)?.ok_or_else(unmounted)?;
        let message = [&head[..n.min(head.len())], &body[..n.saturating_sub(head.len())]].concat();
        let mut r = Reader(&message);
        let h = Head::parse(&mut r)?;
        let (opcode, major, minor) = (h.opcode, r.u32()?, r.u32()?);
        if opcode != INIT || major != MAJOR || minor < OLDEST {
            channel.send(h.unique, -Errno::PROTO.raw_os_error(), &[]);
            let what = format!("the kernel speaks FUSE {major}.{minor}, not 7.{OLDEST} or later");
            return Err(io::Error::new(io::ErrorKind::Unsupported, what));
        }
        let readahead = r.u32()?;
        let low = r.u32()? as u64;
        let high = if low & Init::INIT_EXT.bits() != 0 { r.u32()? as u64 } else { 0 };
        Ok(Greeting { unique: h.unique, readahead, offered: Init::from_bits_truncate(low | high << 32) })
    }

    /// Whether the kernel is older than Linux 5.13, which this ability came with.
    pub(super) fn is_before_5_13(&self) -> bool {
        !self.offered.contains(Init::SETXATTR_EXT)
    }

    /// Whether requests may come by io_uring.
    pub(super) fn offers_rings(&self) -> bool {
        self.offered.contains(Init::OVER_IO_URING)
    }

    /// Answers. Not asked for: `ASYNC_DIO` (the kernel then leaves pages in its cache that an asynchronous
    /// direct write has replaced, and readers see them); `ATOMIC_O_TRUNC` (a separate truncation costs one
    /// request and is seen by everybody); `POSIX_LOCKS` and `FLOCK_LOCKS` (a volume is mounted once, and
    /// the kernel's own locks detect deadlocks and can be interrupted). With `rings` the kernel holds
    /// requests back until each of its queues has an entry. `granularity` is that of times, in nanoseconds.
    ///
    /// # Errors
    /// The kernel hung up.
    pub(super) fn answer(self, channel: &Channel, rings: bool, granularity: u32) -> io::Result<()> {
        let mut agreed = self.offered;
        agreed.set(Init::OVER_IO_URING, rings && self.offers_rings());
        let mut w = Writer::default();
        for v in [MAJOR, MINOR, self.readahead.min(MAX_IO), agreed.bits() as u32] {
            w.u32(v);
        }
        w.u16(MAX_BACKGROUND);
        w.u16(MAX_BACKGROUND / 4 * 3);
        w.u32(MAX_IO);
        w.u32(granularity);
        w.u16((MAX_IO / 4096) as u16);
        w.u16(0);
        w.u32((agreed.bits() >> 32) as u32);
        w.zeros(64 - w.0.len());
        if channel.send(self.unique, 0, &[&w.0]) { Ok(()) } else { Err(unmounted()) }
    }
}
