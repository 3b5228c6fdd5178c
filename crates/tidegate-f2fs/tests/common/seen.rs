//! Goes through a volume that may be damaged: checks, walks, reads and changes it.

use super::{ROOT, RW, mount, queue};
use std::collections::HashSet;
use std::sync::Arc;
use tidegate_block::Device;
use tidegate_f2fs::check::{CheckOptions, check};
use tidegate_vfs::*;

/// Entries and attributes after which a walk ends, since damage can make a tree without an end.
const MAX_ENTRIES: usize = 20_000;
const MAX_ATTRS: usize = 300;
/// Bytes read of each file.
const READ: usize = 64 << 10;

/// How far a volume could be used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    pub mounted: bool,
    pub writable: bool,
    pub entries: usize,
    pub bytes: usize,
    pub attrs: usize,
    /// The kinds of all errors, in the order in which they came.
    pub errors: Vec<ErrorKind>,
}

impl Seen {
    /// The value, or `None` and the error noted. An error that says nothing helps nobody.
    fn keep<T>(&mut self, r: Result<T>) -> Option<T> {
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

    /// Goes through the tree, each inode once.
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

    /// Makes, changes and removes something in each place.
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

    fn all(&mut self, device: Arc<dyn Device>) {
        let Some(v) = self.keep(mount(device)) else { return };
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

/// Checks a volume, then mounts it, reads all of it and changes it.
pub fn exercise(device: Arc<dyn Device>) -> Seen {
    let mut seen = Seen::default();
    seen.keep(check(&queue(device.clone()), CheckOptions::default()));
    seen.all(device);
    seen
}
