//! The layer between the kernel and [`Server`]: threads that read requests, call the server, and send the
//! answers.
//!
//! Lock owned: `fuse->workers` 1.

mod cpu_awake;
pub mod dev;

pub use cpu_awake::KeepAwake;

use crate::server::Server;
use dev::Rings;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tidegate::vfs::positions;

/// Largest read or write in bytes.
pub const MAX_IO: u32 = 1 << 20;

/// How long the kernel may keep names and attributes. All changes go through the kernel: the volume is
/// locked, and mounted once.
pub const TTL: Duration = Duration::from_secs(24 * 3600);

/// The parts that a transport is given.
pub struct Connection {
    /// The connection to the kernel, mounted, with the first message not answered yet.
    pub fd: OwnedFd,
    /// The mount point.
    pub mountpoint: PathBuf,
    /// Threads that serve.
    pub threads: usize,
    /// When CPUs are kept from halting between requests.
    pub keep_awake: KeepAwake,
}

positions! {
    /// The transports.
    pub enum TransportKind {
        /// By io_uring if the kernel offers it, else on /dev/fuse.
        #[default]
        Best = "best",
        /// By io_uring, or an error.
        Uring = "uring",
        /// On /dev/fuse.
        Dev = "dev",
    }
}

/// Carries requests of one mount.
pub trait Transport: Send {
    /// Serves until the kernel unmounts.
    ///
    /// # Errors
    /// The connection breaks.
    fn run(self: Box<Self>) -> io::Result<()>;
}

/// Requests of the server to the kernel. The calls may wait for requests that other threads serve, so a
/// serving thread must not make them unless their text says that they do not wait.
pub trait Kernel: Send + Sync {
    /// Makes the kernel write its dirty pages of `node` from byte `from` on.
    fn write_back(&self, node: u64, from: u64);

    /// Makes the kernel write all dirty pages of the mount. The write requests may still be in flight when
    /// this returns.
    fn write_back_all(&self);

    /// Makes the kernel ask for the attributes of `node` before it uses them again. Does not wait.
    fn forget_attributes(&self, node: u64);

    /// Makes the kernel look `name` up in `parent` before it uses it again. The kernel forgets a name that is
    /// not in use.
    fn forget_name(&self, parent: u64, name: &[u8]);
}

/// Answers the kernel's first message and makes a transport that serves `server`.
///
/// # Errors
/// The kernel's protocol is too old, or the kernel hung up.
pub fn connect(
    which: TransportKind,
    server: Arc<Server>,
    connection: Connection,
) -> io::Result<Box<dyn Transport>> {
    Ok(match which {
        TransportKind::Best => Box::new(dev::Device::connect(server, connection, Rings::Maybe)?),
        TransportKind::Uring => Box::new(dev::Device::connect(server, connection, Rings::Always)?),
        TransportKind::Dev => Box::new(dev::Device::connect(server, connection, Rings::Never)?),
    })
}

/// Makes the kernel write its dirty pages of the mount at `dir`.
pub(crate) fn sync_mount(dir: &Path) {
    use rustix::fs::{Mode, OFlags, open, syncfs};
    if let Ok(fd) = open(dir, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) {
        // An error of writing is reported to the program that syncs the file.
        let _ = syncfs(&fd);
    }
}
