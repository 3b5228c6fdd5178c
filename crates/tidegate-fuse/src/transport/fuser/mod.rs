//! The transport on the `fuser` crate: its multi-threaded session, its message formats.

mod convert;
mod ops;

use super::{Connection, Kernel, MAX_IO, Transport};
use crate::server::Server;
use fuser::{Config, INodeNo, InitFlags, KernelConfig, Notifier, Session, SessionACL};
use ops::Adapter;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// What the kernel may do for us. Not among it: `ATOMIC_O_TRUNC`, since the kernel takes set-id bits off
/// only in a truncation of its own; `POSIX_LOCKS` and `FLOCK_LOCKS`, since a volume is mounted once and the
/// kernel's own locks are interruptible and see deadlocks, which fuser's are not (it answers no
/// `FUSE_INTERRUPT`); `HANDLE_KILLPRIV`, since cached writes reach us without the credentials it takes.
const WANTED: [InitFlags; 16] = [
    InitFlags::FUSE_ASYNC_READ,
    InitFlags::FUSE_BIG_WRITES,
    InitFlags::FUSE_DONT_MASK,
    InitFlags::FUSE_SPLICE_WRITE,
    InitFlags::FUSE_SPLICE_MOVE,
    InitFlags::FUSE_SPLICE_READ,
    InitFlags::FUSE_HAS_IOCTL_DIR,
    InitFlags::FUSE_DO_READDIRPLUS,
    InitFlags::FUSE_ASYNC_DIO,
    InitFlags::FUSE_WRITEBACK_CACHE,
    InitFlags::FUSE_PARALLEL_DIROPS,
    InitFlags::FUSE_POSIX_ACL,
    InitFlags::FUSE_MAX_PAGES,
    InitFlags::FUSE_CACHE_SYMLINKS,
    InitFlags::FUSE_NO_OPENDIR_SUPPORT,
    InitFlags::FUSE_EXPLICIT_INVAL_DATA,
];

/// Requests that the kernel may send ahead (read-ahead, write-back) before it waits.
const MAX_BACKGROUND: u16 = 64;

/// The transport on the `fuser` crate.
pub struct Fuser {
    session: Session<Adapter>,
}

impl Fuser {
    /// Greets the kernel.
    ///
    /// # Errors
    /// As [`super::connect`].
    pub fn connect(server: Arc<Server>, connection: Connection) -> io::Result<Self> {
        let mut config = Config::default();
        config.n_threads = Some(connection.threads);
        config.clone_fd = connection.threads > 1;
        let adapter = Adapter { server: server.clone() };
        // The kernel lets in whom the mount options allow. fuser's own filter would refuse what the
        // kernel sends for nobody, such as the times it kept.
        let session = Session::from_fd(adapter, connection.fd, SessionACL::All, config)?;
        server.attach(Box::new(FuserKernel {
            notifier: session.notifier(),
            mountpoint: connection.mountpoint,
        }));
        Ok(Fuser { session })
    }
}

impl Transport for Fuser {
    fn run(self: Box<Self>) -> io::Result<()> {
        self.session.run()
    }
}

struct FuserKernel {
    notifier: Notifier,
    mountpoint: PathBuf,
}

impl Kernel for FuserKernel {
    fn write_back(&self, node: u64, from: u64) {
        // Dropping pages writes the dirty ones. That it fails where nothing is cached is no matter.
        let _ = self.notifier.inval_inode(INodeNo(node), from as i64, 0);
    }

    fn write_back_all(&self) {
        super::sync_mount(&self.mountpoint);
    }

    fn forget_attributes(&self, node: u64) {
        let _ = self.notifier.inval_inode(INodeNo(node), -1, 0);
    }
}

/// Agrees with the kernel on what it may do for us.
fn negotiate(config: &mut KernelConfig) {
    for flag in WANTED {
        // What an older kernel lacks, it does without.
        let _ = config.add_capabilities(flag);
    }
    if let Err(most) = config.set_max_write(MAX_IO) {
        let _ = config.set_max_write(most);
    }
    if let Err(most) = config.set_max_readahead(MAX_IO) {
        let _ = config.set_max_readahead(most);
    }
    let _ = config.set_max_background(MAX_BACKGROUND);
}
