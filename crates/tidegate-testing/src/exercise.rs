//! A small tree with some of everything, and a walk over it on a volume that may be damaged: everything is
//! read, then changed. Errors are allowed, and kept; a panic or an endless walk is not allowed.

use std::collections::HashSet;
use std::sync::Arc;
use tidegate_vfs::*;

const ROOT: &Cred = &Cred::ROOT;
const RW: OpenFlags = OpenFlags::READ.union(OpenFlags::WRITE);
/// A walk ends after this many entries and attributes, since damage can make an endless tree.
const MAX_ENTRIES: usize = 20_000;
const MAX_ATTRS: usize = 300;
/// Bytes read of each file.
const READ: usize = 64 << 10;

/// How far a volume could be used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The volume could be mounted.
    pub mounted: bool,
    /// The volume was writable.
    pub writable: bool,
    /// Names that were read.
    pub entries: usize,
    /// Bytes of files that were read.
    pub bytes: usize,
    /// Attributes that were read.
    pub attrs: usize,
    /// The kinds of all errors, in the order in which they occurred.
    pub errors: Vec<ErrorKind>,
}

impl Seen {
    /// Returns the value, or records the error and returns `None`. An error without a message fails the test.
    pub fn keep<T>(&mut self, r: Result<T>) -> Option<T> {
        match r {
            Ok(v) => Some(v),
            Err(e) => {
                assert!(!e.to_string().is_empty(), "an error without words");
                if self.errors.len() < MAX_ENTRIES {
                    self.errors.push(e.kind());
                }
                None
            }
        }
    }

    fn attributes(&mut self, v: &Vfs, inode: &Arc<Inode>) {
        for name in self.keep(v.listxattr(ROOT, inode)).unwrap_or_default().iter().take(MAX_ATTRS) {
            self.attrs += 1;
            self.keep(v.getxattr(ROOT, inode, name));
        }
    }

    fn content(&mut self, v: &Arc<Vfs>, inode: &Arc<Inode>) {
        let Some(file) = self.keep(v.open(ROOT, inode, OpenFlags::READ)) else { return };
        let mut buf = vec![0; READ];
        self.bytes += self.keep(file.read_at(0, &mut buf)).unwrap_or(0);
        let size = file.size();
        self.bytes += self.keep(file.read_at(size.saturating_sub(10), &mut buf[..10])).unwrap_or(0);
    }

    fn children(&mut self, v: &Vfs, dir: &Arc<Inode>) -> Vec<Arc<Inode>> {
        let room = MAX_ENTRIES.saturating_sub(self.entries);
        let mut names = Vec::new();
        let read = v.readdir(dir, 0, &mut |e| {
            if e.name != b"." && e.name != b".." {
                names.push(e.name);
            }
            names.len() < room
        });
        self.keep(read);
        self.entries += names.len();
        names.iter().filter_map(|n| self.keep(v.lookup(dir, n))).collect()
    }

    /// Walks the tree, each inode once.
    fn walk(&mut self, v: &Arc<Vfs>, top: Arc<Inode>) {
        let mut done = HashSet::new();
        let mut left = vec![top];
        while let Some(inode) = left.pop() {
            if self.entries >= MAX_ENTRIES || !done.insert(inode.ino) {
                continue;
            }
            self.attributes(v, &inode);
            let kind = inode.attr().file_type;
            match kind {
                FileType::Directory => left.extend(self.children(v, &inode)),
                FileType::Symlink => drop(self.keep(v.readlink(&inode))),
                FileType::Regular => self.content(v, &inode),
                _ => {}
            }
        }
    }

    fn change_file(&mut self, v: &Arc<Vfs>, path: &str) {
        let Some(file) = self.keep(v.open_path(ROOT, path.as_bytes(), RW, 0)) else { return };
        self.keep(file.write_at(3000, &[9; 5000]));
        self.keep(file.truncate(1000));
        let attr = (b"user.attribute-1", [3; 300]);
        self.keep(v.setxattr(ROOT, file.inode(), attr.0, Some(&attr.1), XattrFlags::empty()));
    }

    /// Makes, changes and removes files of each layout, and entries of each kind of directory.
    fn change(&mut self, v: &Arc<Vfs>, top: &Arc<Inode>) {
        if let Some(inode) = self.keep(v.create(ROOT, top, b"new", 0o600))
            && let Some(file) = self.keep(v.open(ROOT, &inode, RW))
        {
            self.keep(file.write_at(0, &[1; 10_000]));
            self.keep(file.write_at(13 << 20, &[1; 10]));
        }
        for path in ["/inline", "/blocks-0", "/holes", "/attrs"] {
            self.change_file(v, path);
        }
        for dir in ["/inline-dir", "/block-dir"] {
            if let Some(dir) = self.keep(v.resolve(ROOT, dir.as_bytes(), false)) {
                self.keep(v.create(ROOT, &dir, b"new", 0o600));
                self.keep(v.unlink(ROOT, &dir, b"a"));
                self.keep(v.unlink(ROOT, &dir, b"hard-link-0001-and-more"));
            }
        }
        self.keep(v.sync());
        for name in ["attrs", "holes", "blocks-1", "long-link"] {
            self.keep(v.unlink(ROOT, top, name.as_bytes()));
        }
    }

    /// Reads all of a volume, if it could be mounted, then changes it and unmounts it.
    pub fn go_through(&mut self, mounted: Result<Arc<Vfs>>) {
        let Some(v) = self.keep(mounted) else { return };
        self.mounted = true;
        if let Some(top) = self.keep(v.root()) {
            self.walk(&v, top.clone());
            self.writable = FileSystem::read_only(&**v.fs()).is_none();
            if self.writable {
                self.change(&v, &top);
            }
        }
        self.keep(v.unmount());
    }
}

/// Makes a file with a number of bytes at each position.
pub fn write_new(v: &Arc<Vfs>, dir: &Arc<Inode>, name: &str, parts: &[(u64, usize)]) -> Arc<Inode> {
    let inode = v.create(ROOT, dir, name.as_bytes(), 0o644).unwrap();
    let file = v.open(ROOT, &inode, RW).unwrap();
    for (at, len) in parts {
        file.write_at(*at, &vec![0x5a; *len]).unwrap();
    }
    inode
}

/// Makes files, links and directories of every kind and layout.
pub fn fill_files(v: &Arc<Vfs>, top: &Arc<Inode>) {
    write_new(v, top, "inline", &[(0, 100)]);
    for n in 0..4 {
        write_new(v, top, &format!("blocks-{n}"), &[(0, 9000 + n * 5000)]);
    }
    // One block in the range of each: the inode, a direct node, an indirect node, the double indirect node.
    write_new(v, top, "holes", &[(0, 5000), (4 << 20, 10), (14 << 20, 10), (9 << 30, 10)]);
    let hot = write_new(v, top, "linked", &[(0, 20_000)]);
    v.symlink(ROOT, top, b"short-link", b"inline").unwrap();
    v.symlink(ROOT, top, b"long-link", &[b'x'; 4000]).unwrap();
    let small = v.mkdir(ROOT, top, b"inline-dir", 0o755).unwrap();
    write_new(v, &small, "a", &[(0, 10)]);
    v.mkdir(ROOT, &small, b"deeper", 0o755).unwrap();
    let large = v.mkdir(ROOT, top, b"block-dir", 0o755).unwrap();
    for n in 0..200 {
        v.link(ROOT, &hot, &large, format!("hard-link-{n:04}-and-more").as_bytes()).unwrap();
    }
    write_new(v, &large, &"n".repeat(255), &[(0, 5000)]);
}

/// Makes a file with many attributes.
pub fn fill_attrs(v: &Arc<Vfs>, top: &Arc<Inode>) {
    let inode = write_new(v, top, "attrs", &[(0, 6000)]);
    for n in 0..40usize {
        let name = format!("user.attribute-{n}");
        v.setxattr(ROOT, &inode, name.as_bytes(), Some(&vec![7; n * 2]), XattrFlags::empty()).unwrap();
    }
}
