//! The transport on /dev/fuse itself. It knows parts of the protocol that `fuser` does not: times of birth,
//! unnamed files, set-id bits taken off with the write that should (so that the kernel asks for no attribute at
//! each), and it reads the pages of a large write into buffers that become the file's own.

mod attrs;
mod dispatch;
mod init;
mod opcode;
pub(crate) mod wire;

use super::{Connection, Kernel, MAX_IO, Transport};
use crate::server::Server;
use dispatch::Worker;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, readv, writev};
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use tidegate_rt::thread;
use wire::{OUT_HEADER, Writer};

/// What the kernel is told without having asked.
const NOTIFY_INVAL_INODE: i32 = 2;

/// The connection. Reading takes a whole request, writing gives a whole answer.
pub(crate) struct Channel {
    fd: OwnedFd,
    gone: AtomicBool,
}

impl Channel {
    /// Waits for a request; how many bytes of it went into `head` and `body`. `None` once unmounted.
    fn receive(&self, head: &mut [u8], body: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            let mut parts = [IoSliceMut::new(head), IoSliceMut::new(body)];
            match readv(&self.fd, &mut parts) {
                Ok(n) => return Ok(Some(n)),
                // Whoever asked has gone.
                Err(Errno::NOENT | Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    let _ = poll(&mut [PollFd::new(&self.fd, PollFlags::IN)], None);
                }
                Err(Errno::NODEV) => return Ok(None),
                Err(_) if self.gone.load(SeqCst) => return Ok(None),
                Err(e) => return Err(e.into()),
            }
        }
    }

    /// Answers request `unique`; false when nobody waits any more.
    pub(crate) fn send(&self, unique: u64, error: i32, parts: &[&[u8]]) -> bool {
        let len = OUT_HEADER + parts.iter().map(|p| p.len()).sum::<usize>();
        let mut head = Writer::default();
        head.u32(len as u32);
        head.u32(error as u32);
        head.u64(unique);
        let slices: Vec<IoSlice<'_>> =
            std::iter::once(&head.0[..]).chain(parts.iter().copied()).map(IoSlice::new).collect();
        writev(&self.fd, &slices).is_ok()
    }
}

/// See the module.
pub struct Device {
    server: Arc<Server>,
    channel: Arc<Channel>,
    threads: usize,
}

impl Device {
    /// Greets the kernel.
    ///
    /// # Errors
    /// As [`super::connect`].
    pub fn connect(server: Arc<Server>, connection: Connection) -> io::Result<Self> {
        let channel = Arc::new(Channel { fd: connection.fd, gone: AtomicBool::new(false) });
        init::greet(&channel)?;
        server.attach(Box::new(DeviceKernel { channel: channel.clone(), mountpoint: connection.mountpoint }));
        Ok(Device { server, channel, threads: connection.threads })
    }
}

impl Transport for Device {
    fn run(self: Box<Self>) -> io::Result<()> {
        let workers: Vec<_> = (0..self.threads)
            .map(|i| {
                let mut worker = Worker::new(self.server.clone(), self.channel.clone(), MAX_IO as usize);
                thread::spawn(&format!("tg-fuse-{i}"), move || worker.run())
            })
            .collect::<io::Result<_>>()?;
        workers.into_iter().map(thread::JoinHandle::join).fold(Ok(()), Result::and)
    }
}

struct DeviceKernel {
    channel: Arc<Channel>,
    mountpoint: PathBuf,
}

impl Kernel for DeviceKernel {
    fn write_back(&self, node: u64, from: u64) {
        let mut w = Writer::default();
        w.u64(node);
        w.u64(from);
        w.u64(0);
        // Dropping pages writes the dirty ones. That it fails where nothing is cached is no matter.
        self.channel.send(0, NOTIFY_INVAL_INODE, &[&w.0]);
    }

    fn write_back_all(&self) {
        super::sync_mount(&self.mountpoint);
    }
}
