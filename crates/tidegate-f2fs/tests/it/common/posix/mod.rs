//! A plain model of POSIX file semantics in memory: the content that a volume must have after a sequence of
//! operations, and the errors that an operation must return.

pub mod acl;
mod attrs;
mod files;
mod names;
pub mod sparse;

use sparse::Sparse;
use std::collections::{BTreeMap, BTreeSet};
use tidegate_rt::Timespec;
use tidegate_vfs::{Cred, DeviceNumber, ErrorKind, FileType};

pub use names::Resolved;

pub const R: u32 = 4;
pub const W: u32 = 2;
pub const X: u32 = 1;

/// An inode of the model; ids are never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id(pub usize);

/// An inode with its content.
#[derive(Clone, Debug)]
pub struct Node {
    pub kind: FileType,
    pub mode: u32,
    /// Mode bits that are not compared: POSIX leaves open what happens to them.
    pub loose_mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub nlink: u32,
    pub size: u64,
    pub atime: Option<Timespec>,
    pub mtime: Option<Timespec>,
    pub ctime: Option<Timespec>,
    pub crtime: Option<Timespec>,
    pub rdev: DeviceNumber,
    pub target: Vec<u8>,
    pub data: Sparse,
    pub entries: BTreeMap<Vec<u8>, Id>,
    pub parent: Id,
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The names of the inode.
    pub links: BTreeSet<(Id, Vec<u8>)>,
}

impl Node {
    pub fn is_dir(&self) -> bool {
        self.kind == FileType::Directory
    }
}

/// The errors that an operation may return. It must fail when `must` holds any; errors in `may` are also
/// right.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    pub must: Vec<ErrorKind>,
    pub may: Vec<ErrorKind>,
}

impl Verdict {
    pub fn fails(mut self, when: bool, kind: ErrorKind) -> Self {
        if when {
            self.must.push(kind);
        }
        self
    }

    pub fn might(mut self, when: bool, kind: ErrorKind) -> Self {
        if when {
            self.may.push(kind);
        }
        self
    }

    pub fn is_ok(&self) -> bool {
        self.must.is_empty()
    }

    pub fn accepts(&self, kind: ErrorKind) -> bool {
        self.must.contains(&kind) || self.may.contains(&kind)
    }
}

/// The model's tree of files.
#[derive(Clone, Debug)]
pub struct Model {
    pub nodes: Vec<Node>,
    /// Time of every change made from now on.
    pub now: Timespec,
    /// Largest file size.
    pub max_size: u64,
    /// Files may have blocks allocated beyond their data.
    pub ahead: bool,
}

pub const ROOT: Id = Id(0);

impl Model {
    /// A tree of a root directory only.
    pub fn new(now: Timespec, max_size: u64) -> Model {
        let mut model = Model { nodes: Vec::new(), now, max_size, ahead: true };
        let mut root = model.blank(FileType::Directory, 0o755, 0, 0);
        root.nlink = 2;
        model.nodes.push(root);
        model
    }

    fn blank(&self, kind: FileType, mode: u32, uid: u32, gid: u32) -> Node {
        Node {
            kind,
            mode,
            loose_mode: 0,
            uid,
            gid,
            nlink: 1,
            size: 0,
            atime: Some(self.now),
            mtime: Some(self.now),
            ctime: Some(self.now),
            crtime: Some(self.now),
            rdev: DeviceNumber::default(),
            target: Vec::new(),
            data: Sparse::default(),
            entries: BTreeMap::new(),
            parent: ROOT,
            xattrs: BTreeMap::new(),
            links: BTreeSet::new(),
        }
    }

    pub fn get(&self, id: Id) -> &Node {
        &self.nodes[id.0]
    }

    pub fn get_mut(&mut self, id: Id) -> &mut Node {
        &mut self.nodes[id.0]
    }

    pub fn is_linked(&self, id: Id) -> bool {
        id == ROOT || !self.get(id).links.is_empty()
    }

    /// Every inode that has a name, in the order of creation.
    pub fn linked(&self) -> Vec<Id> {
        (0..self.nodes.len()).map(Id).filter(|id| self.is_linked(*id)).collect()
    }

    /// Every directory that has a name.
    pub fn dirs(&self) -> Vec<Id> {
        self.linked().into_iter().filter(|id| self.get(*id).is_dir()).collect()
    }

    /// Path from the root.
    pub fn path(&self, id: Id) -> Vec<u8> {
        match self.get(id).links.first() {
            None => Vec::new(),
            Some((dir, name)) => [&self.path(*dir)[..], b"/", name].concat(),
        }
    }

    pub fn depth(&self, id: Id) -> usize {
        self.get(id).links.first().map_or(0, |(dir, _)| 1 + self.depth(*dir))
    }

    /// Whether `id` is `dir` or lies below it.
    pub fn is_within(&self, id: Id, dir: Id) -> bool {
        id == dir || id != ROOT && self.is_within(self.get(id).parent, dir)
    }

    /// Whether `cred` may do `want` with the inode.
    pub fn may(&self, cred: &Cred, id: Id, want: u32) -> bool {
        let n = self.get(id);
        if cred.is_root() {
            return want & X == 0 || n.is_dir() || n.mode & 0o111 != 0;
        }
        if cred.uid == n.uid {
            return n.mode >> 6 & want == want;
        }
        // The group bits are the list's mask: if none is set, no entry grants more than `other`.
        if let Some(list) = n.xattrs.get(acl::ACCESS).filter(|_| n.mode & 0o070 != 0) {
            return acl::permits(&acl::decode(list), cred, n.gid, want);
        }
        let bits = if cred.in_group(n.gid) { n.mode >> 3 } else { n.mode };
        bits & want == want
    }

    pub fn is_owner(&self, cred: &Cred, id: Id) -> bool {
        cred.is_root() || cred.uid == self.get(id).uid
    }

    pub(super) fn touch(&mut self, id: Id, content: bool) {
        let now = self.now;
        let n = self.get_mut(id);
        n.ctime = Some(now);
        if content {
            n.mtime = Some(now);
        }
    }
}
