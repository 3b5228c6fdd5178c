//! The volume as the kernel's client sees it, on which every operation is based.

use crate::dirty_bound::DirtyBound;
use crate::errno::{Result, ToErrno};
use crate::handles::Handles;
use crate::host_space::HostSpace;
use crate::nodes::Nodes;
use crate::privileges::Capability;
use crate::refused::Refused;
use crate::transport::Kernel;
use crate::walk::Walk;
use rustix::io::Errno;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, OnceLock};
use tidegate::Volume;
use tidegate::vfs::{APPEND_ONLY, FileType, IMMUTABLE};
use tidegate::vfs::{Attr, Cred, Ino, Inode, OpenFlags, Vfs};

/// The kernel's number for the root directory.
pub const ROOT_NODE: u64 = 1;

/// All operations are done as the superuser: with POSIX ACLs negotiated, the kernel checks permissions
/// itself, and it knows the caller's groups and capabilities, which the server does not.
pub(crate) const ROOT: &Cred = &Cred::ROOT;

/// The process that asks.
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    /// The user to which new files belong.
    pub uid: u32,
    /// The group to which new files belong.
    pub gid: u32,
    /// Its thread; 0 when it is in a PID namespace that is not visible here.
    pub pid: u32,
}

/// The kernel's view of an inode.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The node number that the kernel uses.
    pub node: u64,
    /// The inode number that users see.
    pub ino: u64,
    /// Attributes.
    pub attr: Attr,
    /// A file is open for writing that has no blocks yet: the kernel is to ask again soon. With its write-back cache it keeps
    /// their number until the file is closed, and a program such as tar takes a file without blocks for a hole.
    pub is_filling: bool,
}

/// How a mounted volume presents itself.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// Everything belongs to this user.
    pub uid: Option<u32>,
    /// Everything belongs to this group.
    pub gid: Option<u32>,
    /// Changes of names are durable when they return.
    pub dirsync: bool,
}

/// Serves the operations of a mounted volume. Shared by the transport's threads.
pub struct Server {
    pub(crate) volume: Arc<Volume>,
    pub(crate) nodes: Nodes,
    pub(crate) handles: Handles,
    pub(crate) refused: Refused,
    pub(crate) space: HostSpace,
    pub(crate) dirty_bound: DirtyBound,
    pub(crate) walk: Arc<Walk>,
    /// The large directory that was listed by names only and in which names were then looked up.
    pub(crate) looked_up: AtomicU64,
    pub(crate) view: View,
    /// The user who mounted it, and who may do to the volume as a whole what the superuser may.
    pub(crate) owner: u32,
    /// The kernel is older than Linux 5.13: it leaves to the server who may change flags. Before 5.8, it writes pages at
    /// close, and reports errors of that, only where the server takes `FLUSH`.
    pub(crate) before_5_13: AtomicBool,
    root: Ino,
    kernel: OnceLock<Box<dyn Kernel>>,
    at_end: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl Server {
    /// Serves `volume`.
    pub fn new(volume: Arc<Volume>, view: View) -> Arc<Server> {
        Arc::new(Server {
            root: volume.vfs().fs().root(),
            nodes: Nodes::new(),
            handles: Handles::new(),
            refused: Refused::new(),
            space: HostSpace::new(&volume),
            dirty_bound: DirtyBound::new(),
            walk: Arc::default(),
            looked_up: AtomicU64::new(0),
            view,
            owner: rustix::process::geteuid().as_raw(),
            before_5_13: AtomicBool::new(false),
            kernel: OnceLock::new(),
            at_end: OnceLock::new(),
            volume,
        })
    }

    /// Sets the way to send requests to the kernel.
    pub fn attach(&self, kernel: Box<dyn Kernel>) {
        let _ = self.kernel.set(kernel);
    }

    pub(crate) fn kernel(&self) -> Option<&dyn Kernel> {
        self.kernel.get().map(|k| &**k)
    }

    /// Sets the function that ends the mount and returns when the volume is unmounted.
    pub(crate) fn at_end(&self, end: impl Fn() + Send + Sync + 'static) {
        let _ = self.at_end.set(Box::new(end));
    }

    /// Unmounts the volume. Called when the kernel has unmounted, and waits.
    pub(crate) fn destroy(&self) {
        if let Some(end) = self.at_end.get() {
            end();
        }
    }

    /// Drops everything that the kernel kept open. No request is served afterwards.
    pub fn detach(&self) {
        self.handles.clear();
        self.nodes.clear();
    }

    /// How many inodes the kernel knows, and how many of them have lost their names.
    pub fn known_nodes(&self) -> (usize, usize) {
        self.nodes.len()
    }

    /// The files that are open for writing.
    pub(crate) fn written_nodes(&self) -> Vec<u64> {
        self.handles.written()
    }

    pub(crate) fn vfs(&self) -> &Arc<Vfs> {
        self.volume.vfs()
    }

    pub(crate) fn inode(&self, node: u64) -> Result<Arc<Inode>> {
        let ino = if node == ROOT_NODE { self.root } else { Ino(node) };
        self.vfs().iget(ino).map_errno()
    }

    pub(crate) fn node(&self, inode: &Inode) -> u64 {
        if inode.ino == self.root { ROOT_NODE } else { inode.ino.0 }
    }

    /// The answer to the kernel about an inode.
    pub(crate) fn entry(&self, inode: &Inode) -> Entry {
        let mut attr = inode.attr().clone();
        attr.size = attr.size.min(inode.read_size());
        attr.uid = self.view.uid.unwrap_or(attr.uid);
        attr.gid = self.view.gid.unwrap_or(attr.gid);
        attr.blocks = self.vfs().fs().sectors(inode);
        let node = self.node(inode);
        let is_filling =
            attr.blocks == 0 && attr.file_type == FileType::Regular && self.handles.is_written(node);
        Entry { node, ino: inode.ino.0, attr, is_filling }
    }

    /// The answer about an inode, counted as a lookup.
    pub(crate) fn remembered(&self, inode: &Inode) -> Entry {
        let e = self.entry(inode);
        self.nodes.remember(e.node);
        e
    }

    /// Notes that the kernel forgets `n` lookups of `node`.
    pub fn forget(&self, node: u64, n: u64) {
        self.nodes.forget(node, n);
        self.refused.forgotten(node, n);
    }

    /// Keeps an inode from being freed while its name is removed.
    pub(crate) fn pin(&self, inode: &Arc<Inode>) -> Result<tidegate::vfs::File> {
        self.vfs().open(ROOT, inode, OpenFlags::empty()).map_errno()
    }

    /// Refuses operations that immutable and append-only inodes do not allow. The kernel does not know these
    /// flags of FUSE inodes.
    pub(crate) fn check_flags(&self, inode: &Inode, forbidding: u32) -> Result<()> {
        if inode.attr().flags & forbidding != 0 { Err(Errno::PERM) } else { Ok(()) }
    }

    /// Whether names may be added to a directory, or (`removing`) removed from it.
    pub(crate) fn check_dir(&self, dir: &Inode, removing: bool) -> Result<()> {
        self.check_flags(dir, if removing { IMMUTABLE | APPEND_ONLY } else { IMMUTABLE })
    }

    /// Whether the caller may act on the volume as a whole: with `CAP_SYS_ADMIN`, or as the user who mounted it. The
    /// superuser without that capability, as in a container, may not.
    pub(crate) fn check_admin(&self, caller: &Caller) -> Result<()> {
        let mounted = self.owner != 0 && caller.uid == self.owner;
        if mounted || caller.is_capable(Capability::SysAdmin) { Ok(()) } else { Err(Errno::PERM) }
    }
}
