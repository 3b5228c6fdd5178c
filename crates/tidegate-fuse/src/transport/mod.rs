//! Between the kernel and [`Server`]: threads that read requests, call it, and send the answers.
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

/// How long the kernel may keep names and attributes. Nothing changes them behind its back: the volume is
/// locked, and mounted once.
pub const TTL: Duration = Duration::from_secs(24 * 3600);

/// The parts that a transport is given.
pub struct Connection {
    /// The connection to the kernel, mounted and not yet greeted.
    pub fd: OwnedFd,
    /// Where it is mounted.
    pub mountpoint: PathBuf,
    /// Threads that serve.
    pub threads: usize,
    /// When CPUs are kept from halting between requests.
    pub keep_awake: KeepAwake,
}

positions! {
    /// The transports there are.
    pub enum TransportKind {
        /// By io_uring if the kernel offers it, else on /dev/fuse.
        #[default]
        Best = "best",
        /// By io_uring or not at all.
        Uring = "uring",
        /// On /dev/fuse: knows all of the protocol that we use.
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

/// Our requests to the kernel. Either call waits for requests that other threads serve, so none that serves
/// may make it.
pub trait Kernel: Send + Sync {
    /// Has the kernel write the pages of `node` from byte `from` on that only it has.
    fn write_back(&self, node: u64, from: u64);

    /// Has the kernel write all pages of the mount. They may still be on their way to us when it returns.
    fn write_back_all(&self);

    /// Has the kernel ask for the attributes of `node` before it uses them again. Waits for nobody.
    fn forget_attributes(&self, node: u64);

    /// Has the kernel look `name` up in `parent` before it uses it again; it forgets a name that nobody uses.
    fn forget_name(&self, parent: u64, name: &[u8]);
}

/// Greets the kernel and makes a transport that serves `server`.
///
/// # Errors
/// The kernel's protocol is too old, or it hung up.
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

/// Has the kernel write what it holds of the mount at `dir`.
pub(crate) fn sync_mount(dir: &Path) {
    use rustix::fs::{Mode, OFlags, open, syncfs};
    if let Ok(fd) = open(dir, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) {
        // An error of writing is reported to the program that syncs the file.
        let _ = syncfs(&fd);
    }
}
