//! The transport on /dev/fuse. It uses all of the protocol that a volume can serve, including birth times, unnamed
//! files, and set-id bits that are removed with the write itself (so that the kernel does not ask for an attribute at
//! each write).
//!
//! Where the kernel offers it, requests come by io_uring (`ring`). /dev/fuse is then used only for requests
//! that need no answer, and for messages to the kernel that are no answers.

mod attrs;
mod dispatch;
mod init;
pub mod opcode;
mod requests;
mod ring;
pub mod wire;

use super::cpu_awake::{CpuAwake, KeepAwake};
use super::{Connection, Kernel, MAX_IO, Transport};
use crate::server::Server;
pub use dispatch::{Answer, Answers, Outcome};
use dispatch::{Maker, Offload, Worker};
use ring::Workers;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, readv, writev};
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed, Ordering::SeqCst};
use tidegate_rt::thread;
use wire::{Head, OUT_HEADER, Reader, WRITE_HEAD, Writer};

/// Messages to the kernel that are no answers.
const NOTIFY_INVAL_INODE: i32 = 2;
const NOTIFY_INVAL_ENTRY: i32 = 3;
/// The offset that means only attributes: any below 0.
const NO_PAGES: u64 = u64::MAX;

/// The file that the superuser sets to `Y` to have the kernel offer io_uring.
pub const ENABLE_URING: &str = "/sys/module/fuse/parameters/enable_uring";

/// Whether the kernel supports FUSE over io_uring, but it is switched off.
pub fn uring_is_off() -> bool {
    std::fs::read_to_string(ENABLE_URING).is_ok_and(|s| s.trim() == "N")
}

/// Whether requests come by io_uring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rings {
    /// They do if the kernel offers it.
    Maybe,
    /// They must: otherwise connecting fails.
    Always,
    /// They do not.
    Never,
}

/// Whether an error of reading means that the connection has ended: after the end, or while the kernel is ending
/// requests that were not read.
fn has_ended(e: Errno) -> bool {
    matches!(e, Errno::NODEV | Errno::CONNABORTED)
}

/// The connection. A read takes a whole request, and a write gives a whole answer.
pub(crate) struct Channel {
    fd: Arc<OwnedFd>,
    gone: AtomicBool,
}

impl Channel {
    /// Waits for a request. Returns how many bytes of it went into `head` and `body`. `None` once unmounted.
    fn receive(&self, head: &mut [u8], body: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            let mut parts = [IoSliceMut::new(head), IoSliceMut::new(body)];
            match readv(&self.fd, &mut parts) {
                Ok(n) => return Ok(Some(n)),
                Err(e) if has_ended(e) => return Ok(None),
                // The requesting process is gone.
                Err(Errno::NOENT | Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    let _ = poll(&mut [PollFd::new(&self.fd, PollFlags::IN)], None);
                }
                Err(_) if self.gone.load(SeqCst) => return Ok(None),
                Err(e) => return Err(e.into()),
            }
        }
    }

    /// Answers request `unique`. False when it is no longer waited for.
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

/// The transport on /dev/fuse.
pub struct Device {
    maker: Maker,
    channel: Arc<Channel>,
    threads: usize,
    workers: Option<Arc<Workers>>,
    awake: Option<Arc<CpuAwake>>,
}

impl Device {
    /// Greets the kernel.
    ///
    /// # Errors
    /// As [`super::connect`]; the kernel does not offer io_uring where `rings` insists on it.
    pub fn connect(server: Arc<Server>, connection: Connection, rings: Rings) -> io::Result<Self> {
        let served = server.clone();
        let maker: Maker = Arc::new(move |offload| Box::new(Worker::new(served.clone(), offload)));
        let mountpoint = connection.mountpoint.clone();
        let granularity = server.vfs().fs().time_granularity();
        Self::greet(maker, connection, (rings, granularity), |channel, greeting| {
            server.before_5_13.store(greeting.is_before_5_13(), Relaxed);
            server.attach(Box::new(DeviceKernel { channel, mountpoint }));
        })
    }

    /// The transport without a volume: `make` makes the [`Answers`] of each thread. A benchmark measures with it the
    /// cost of a mount without a file system.
    ///
    /// # Errors
    /// As [`Device::connect`].
    pub fn answered_by<A: Answers + 'static>(
        make: impl Fn() -> A + Send + Sync + 'static,
        connection: Connection,
        rings: Rings,
    ) -> io::Result<Self> {
        let maker: Maker = Arc::new(move |_| Box::new(make()));
        Self::greet(maker, connection, (rings, 1), |_, _| ())
    }

    fn greet(
        maker: Maker,
        connection: Connection,
        (rings, granularity): (Rings, u32),
        attach: impl FnOnce(Arc<Channel>, &init::Greeting),
    ) -> io::Result<Self> {
        let Connection { fd, mountpoint, threads, keep_awake } = connection;
        let channel = Arc::new(Channel { fd: Arc::new(fd), gone: AtomicBool::new(false) });
        let greeting = init::Greeting::read(&channel)?;
        attach(channel.clone(), &greeting);
        let by_rings = rings != Rings::Never && greeting.offers_rings();
        // Requests by /dev/fuse gain nothing from CPUs that are awake: another CPU is woken for them.
        let gains = by_rings || keep_awake == KeepAwake::On;
        let awake = gains.then(|| CpuAwake::start(keep_awake)).flatten().map(Arc::new);
        let workers = match by_rings {
            false => None,
            true => Workers::gather(&maker, &awake, &channel.fd, &mountpoint, threads),
        };
        if rings == Rings::Always && workers.is_none() {
            let what = format!(
                "the kernel offers no FUSE over io_uring (the superuser allows it in {ENABLE_URING})"
            );
            return Err(io::Error::new(io::ErrorKind::Unsupported, what));
        }
        greeting.answer(&channel, workers.is_some(), granularity)?;
        if let Some(workers) = &workers {
            workers.start();
        }
        Ok(Device { maker, channel, threads, workers, awake })
    }
}

/// Reads requests from /dev/fuse and answers them.
fn serve(maker: &Maker, awake: Option<Arc<CpuAwake>>, channel: &Arc<Channel>) -> io::Result<()> {
    let mut worker = maker(Offload::Thread(channel.clone()));
    let (mut head, mut buffer) = ([0; WRITE_HEAD], vec![0; MAX_IO as usize + 4096]);
    while let Some(n) = channel.receive(&mut head, &mut buffer)? {
        if let Some(awake) = &awake {
            awake.request();
        }
        let (front, back) = (n.min(WRITE_HEAD), n.saturating_sub(WRITE_HEAD));
        let mut r = Reader(&head[..front]);
        let Ok(h) = Head::parse(&mut r) else { continue };
        let _span = requests::begin(&h);
        let last = h.opcode == opcode::DESTROY;
        channel.gone.fetch_or(last, SeqCst);
        match worker.outcome(&h, r.0, &mut buffer, back) {
            Ok(Answer::Bytes(w)) => drop(channel.send(h.unique, 0, &[&w.0])),
            Ok(Answer::Buffer(n)) => drop(channel.send(h.unique, 0, &[&buffer[..n]])),
            Ok(Answer::Nothing) => {}
            Err(e) => drop(channel.send(h.unique, -e.raw_os_error(), &[])),
        }
        if last {
            break;
        }
    }
    Ok(())
}

impl Transport for Device {
    fn run(self: Box<Self>) -> io::Result<()> {
        let threads = if self.workers.is_some() { 1 } else { self.threads };
        let workers: Vec<_> = (0..threads)
            .map(|i| {
                let (maker, channel) = (self.maker.clone(), self.channel.clone());
                let awake = self.awake.clone();
                thread::spawn(&format!("tg-fuse-{i}"), move || serve(&maker, awake, &channel))
            })
            .collect::<io::Result<_>>()?;
        let served = workers.into_iter().map(thread::JoinHandle::join).fold(Ok(()), Result::and);
        let rings = self.workers.map_or(Ok(()), |c| c.end());
        served.and(rings)
    }
}

struct DeviceKernel {
    channel: Arc<Channel>,
    mountpoint: PathBuf,
}

impl DeviceKernel {
    fn invalidate(&self, node: u64, from: u64) {
        let mut w = Writer::default();
        w.u64(node);
        w.u64(from);
        w.u64(0);
        self.channel.send(0, NOTIFY_INVAL_INODE, &[&w.0]);
    }
}

impl Kernel for DeviceKernel {
    fn write_back(&self, node: u64, from: u64) {
        // Dropping pages writes the dirty ones. The call fails where no page is cached, which is ignored.
        self.invalidate(node, from);
    }

    fn write_back_all(&self) {
        super::sync_mount(&self.mountpoint);
    }

    fn forget_attributes(&self, node: u64) {
        self.invalidate(node, NO_PAGES);
    }

    fn forget_name(&self, parent: u64, name: &[u8]) {
        let mut w = Writer::default();
        w.u64(parent);
        w.u32(name.len() as u32);
        w.u32(0);
        self.channel.send(0, NOTIFY_INVAL_ENTRY, &[&w.0, name, &[0]]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If the second were taken for a fault, umount(8) would fail by chance after many requests.
    #[test]
    fn both_ends_of_a_connection_are_ends() {
        for (e, ended) in [
            (Errno::NODEV, true),
            (Errno::CONNABORTED, true),
            (Errno::NOENT, false),
            (Errno::INTR, false),
            (Errno::AGAIN, false),
            (Errno::IO, false),
        ] {
            assert_eq!(has_ended(e), ended, "{e}");
        }
    }
}
