//! Requests about attributes, and ioctls.

use super::dispatch::{ACL_KILL_SGID, Outcome, Worker, bytes, caller_of, empty, kill_if, sized, with};
use super::opcode::*;
use super::wire::{Head, Reader, SetAttrIn, Writer};
use crate::attrs::Change;
use crate::errno::Result;
use crate::ioctl::UserPointer;
use crate::server::{Caller, Server};
use crate::transport::TTL;
use rustix::io::Errno;
use std::sync::atomic::Ordering::Relaxed;
use tidegate::vfs::SetAttr;

/// The flag that attributes are asked for through an open file.
const GETATTR_FH: u32 = 1;

impl Worker {
    pub(super) fn attrs(&mut self, h: &Head, mut r: Reader<'_>) -> Outcome {
        let server = &self.server;
        let caller = caller_of(h);
        match h.opcode {
            GETATTR => {
                let (flags, _, fh) = (r.u32()?, r.u32()?, r.u64()?);
                let x = server.getattr(h.node, (flags & GETATTR_FH != 0).then_some(fh))?;
                with(|w| w.attr_out(&x, TTL))
            }
            // After this error the kernel asks for no more birth times, and gets all other attributes by
            // GETATTR.
            STATX if !server.keeps_births() => Err(Errno::NOSYS),
            STATX => {
                let x = server.getattr(h.node, None)?;
                with(|w| w.statx(&x, TTL))
            }
            SETATTR => {
                let (set, change) = self.set_attr(&mut r, &caller)?;
                let x = server.setattr(h.node, &set, change)?;
                with(|w| w.attr_out(&x, TTL))
            }
            READLINK => bytes(Writer(server.readlink(h.node)?)),
            STATFS => {
                let s = server.statfs();
                with(|w| {
                    for v in [s.blocks, s.blocks_free, s.blocks_available, s.files, s.files_free] {
                        w.u64(v);
                    }
                    for v in [s.block_size, s.name_max, s.block_size] {
                        w.u32(v);
                    }
                    w.zeros(28);
                })
            }
            SETXATTR => {
                let (size, flags, more) = r.setxattr_in()?;
                let name = r.name()?;
                let value = r.bytes(size as usize)?;
                server
                    .setxattr(h.node, name, Some(value), flags, more & ACL_KILL_SGID != 0)
                    .and_then(|()| empty())
            }
            REMOVEXATTR => server.setxattr(h.node, r.name()?, None, 0, false).and_then(|()| empty()),
            GETXATTR => {
                let (size, _) = (r.u32()?, r.u32()?);
                sized(server.getxattr(h.node, r.name()?)?, size)
            }
            LISTXATTR => sized(server.listxattr(&caller, h.node)?, r.u32()?),
            IOCTL => self.ioctl(h, &caller, r),
            FLUSH if self.server.before_5_13.load(Relaxed) => empty(),
            // After this error the kernel opens directories and flushes files without a request.
            _ => Err(Errno::NOSYS),
        }
    }

    /// The attributes to be set, and the kind of change. Where both times are that of the call, the kernel sends its
    /// own time for a regular file, equal to `ctime`.
    fn set_attr<'a>(&self, r: &mut Reader<'_>, caller: &'a Caller) -> Result<(SetAttr, Change<'a>)> {
        let x = SetAttrIn::read(r)?;
        let given = |bit: u32| x.given(bit);
        let time = |i: usize, set: u32, now: u32| match (given(set), given(now)) {
            (_, true) => Some(self.server.vfs().now()),
            (true, false) => Some(x.times[i]),
            _ => None,
        };
        let set = SetAttr {
            mode: given(0).then_some(x.mode),
            uid: given(1).then_some(x.uid),
            gid: given(2).then_some(x.gid),
            size: given(3).then_some(x.size),
            atime: time(0, 4, 7),
            mtime: time(1, 5, 8),
            ctime: given(10).then_some(x.times[2]),
            ..SetAttr::default()
        };
        let no_value = (0..=11).all(|bit| !given(bit) || bit == 10);
        let touch = given(7) && (given(8) || set.mtime.is_some() && set.mtime == set.ctime);
        let kill = kill_if(caller, given(11));
        let change = match (no_value, touch) {
            (true, _) if given(10) => Change::Owner(caller),
            (true, _) => Change::None(caller),
            (_, true) => Change::Touch(kill),
            _ => Change::Values(kill),
        };
        Ok((set, change))
    }

    fn ioctl(&self, h: &Head, caller: &Caller, mut r: Reader<'_>) -> Outcome {
        r.skip(12)?;
        let cmd = r.u32()?;
        let at = UserPointer { pid: h.pid, address: r.u64()? };
        let (size, room) = (r.u32()? as usize, r.u32()? as usize);
        let (input, node, caller) = (r.bytes(size)?.to_vec(), h.node, *caller);
        self.maybe_offload(Server::ioctl_waits(cmd), h, move |s| {
            let out = s.ioctl(&caller, node, cmd, &input, at)?;
            with(|w| {
                w.zeros(16);
                w.0.extend_from_slice(&out[..out.len().min(room)]);
            })
        })
    }
}
