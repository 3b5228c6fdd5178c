//! How many blocks a tree takes on a volume, computed before it is written.
//!
//! It counts the blocks that the engine will allocate. On F2FS: a node for each inode, data blocks of files
//! that do not fit in their inode, direct and indirect nodes, dentry blocks, and a node for attributes that
//! do not fit inline. On ext4: data blocks, and blocks of extents, of directories and of attributes. Inodes
//! are counted separately, and blocks once for each block size that the volume may turn out to have.
//!
//! Locks owned: `measure->work` 970, `measure->linked` 975.
//!
//! | module | holds |
//! |---|---|
//! | [`f2fs`], [`dentries`] | blocks of one file, of one directory of F2FS |
//! | [`ext4`] | blocks of one file, of one directory of ext4 |
//! | [`tree`], [`archive`] | adding up a directory tree, a tar |

pub(crate) mod archive;
pub(crate) mod dentries;
pub(crate) mod ext4;
pub(crate) mod f2fs;
pub(crate) mod tree;

use dentries::Dentries;

/// The number of block sizes that a volume of one format may turn out to have.
pub(crate) const KINDS: usize = 2;

/// The rules for how many blocks something takes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Geometry {
    /// On F2FS.
    F2fs(f2fs::Geometry),
    /// On ext4, for each block size that the volume may turn out to have.
    Ext4([ext4::Geometry; KINDS]),
}

/// The content of a tree, in figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Content {
    /// Files, links and special files.
    pub files: u64,
    /// Directories.
    pub dirs: u64,
    /// Bytes of content, holes not counted.
    pub bytes: u64,
    /// The blocks for all of it, by block size.
    pub blocks: [u64; KINDS],
    /// Inodes.
    pub inodes: u64,
}

/// Attributes of one inode.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Xattrs {
    /// Attributes.
    pub count: usize,
    /// Bytes of names and values, each with four more.
    pub bytes: usize,
}

/// The entries of one directory.
#[derive(Clone, Debug)]
pub(crate) enum Names {
    F2fs(Dentries),
    Ext4(ext4::Entries),
}

impl Names {
    pub(crate) fn new(g: &Geometry) -> Self {
        match g {
            Geometry::F2fs(g) => Names::F2fs(Dentries::new(g)),
            Geometry::Ext4(_) => Names::Ext4(ext4::Entries::DOTS),
        }
    }

    pub(crate) fn add(&mut self, name: &[u8]) {
        match self {
            Names::F2fs(d) => d.add(name),
            Names::Ext4(entries) => entries.add(name),
        }
    }
}

impl Content {
    /// The sum of both.
    fn plus(&self, o: &Content) -> Content {
        Content {
            files: self.files + o.files,
            dirs: self.dirs + o.dirs,
            bytes: self.bytes + o.bytes,
            blocks: std::array::from_fn(|kind| self.blocks[kind] + o.blocks[kind]),
            inodes: self.inodes + o.inodes,
        }
    }

    fn add(
        &mut self,
        g: &Geometry,
        of_f2fs: impl Fn(&f2fs::Geometry) -> u64,
        of_ext4: impl Fn(&ext4::Geometry) -> u64,
    ) {
        self.inodes += 1;
        match g {
            Geometry::F2fs(g) => self.blocks[0] += of_f2fs(g),
            Geometry::Ext4(kinds) => {
                self.blocks.iter_mut().zip(kinds).for_each(|(blocks, g)| *blocks += of_ext4(g));
            }
        }
    }

    /// Adds a file of `size` bytes with data in `ranges` (bytes).
    fn file(&mut self, g: &Geometry, size: u64, ranges: &[(u64, u64)], x: Xattrs) {
        self.files += 1;
        self.bytes += ranges.iter().map(|r| r.1).sum::<u64>();
        let of_f2fs = |g: &f2fs::Geometry| g.file(size, ranges) + g.xattr(x.bytes);
        self.add(g, of_f2fs, |g| g.file(ranges) + g.xattr(x.bytes, x.count));
    }

    /// Adds a symbolic link to `size` bytes.
    fn symlink(&mut self, g: &Geometry, size: u64, x: Xattrs) {
        self.files += 1;
        self.bytes += size;
        let of_f2fs = |g: &f2fs::Geometry| g.file(size, &[(0, size)]) + g.xattr(x.bytes);
        self.add(g, of_f2fs, |g| g.symlink(size) + g.xattr(x.bytes, x.count));
    }

    /// Adds a file that lies in its inode: a device, a fifo.
    fn special(&mut self, g: &Geometry, x: Xattrs) {
        self.files += 1;
        self.add(g, |g| 1 + g.xattr(x.bytes), |g| g.xattr(x.bytes, x.count));
    }

    /// Adds a directory.
    fn dir(&mut self, g: &Geometry, names: &Names, x: Xattrs) {
        self.dirs += 1;
        let dentries = |g: &f2fs::Geometry| match names {
            Names::F2fs(d) => d.blocks(g),
            Names::Ext4(_) => 0,
        };
        let entries = match names {
            Names::Ext4(entries) => *entries,
            Names::F2fs(_) => ext4::Entries::DOTS,
        };
        let of_ext4 = |g: &ext4::Geometry| g.dir(entries) + g.xattr(x.bytes, x.count);
        self.add(g, |g| dentries(g) + g.xattr(x.bytes), of_ext4);
    }
}

/// The figures of attributes.
fn xattrs(all: &[crate::node::Xattr]) -> Xattrs {
    // A namespace is one byte on the volume, so its name in full is an upper bound.
    let bytes = all.iter().map(|(n, v)| (4 + n.len() + v.len()).next_multiple_of(4)).sum();
    Xattrs { count: all.len(), bytes }
}
