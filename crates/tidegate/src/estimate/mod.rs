//! How many blocks a tree takes on a volume, told before it is written.
//!
//! It counts what F2FS will allocate: a node for each inode, data blocks of files too large to lie in
//! it, direct and indirect nodes, dentry blocks, a node for attributes that do not fit inline.
//!
//! | module | holds |
//! |---|---|
//! | [`blocks`], [`dentries`] | blocks of one file, of one directory |
//! | [`tree`], [`archive`] | adding up a directory tree, a tar |

pub(crate) mod archive;
pub(crate) mod blocks;
pub(crate) mod dentries;
pub(crate) mod tree;

use blocks::Geometry;
use dentries::Dentries;

/// What a tree holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Content {
    /// Files, links and special files.
    pub files: u64,
    /// Directories.
    pub dirs: u64,
    /// Bytes of content, holes not counted.
    pub bytes: u64,
    /// Blocks for all of it.
    pub blocks: u64,
}

impl Content {
    /// Both together.
    fn plus(&self, o: &Content) -> Content {
        Content {
            files: self.files + o.files,
            dirs: self.dirs + o.dirs,
            bytes: self.bytes + o.bytes,
            blocks: self.blocks + o.blocks,
        }
    }

    /// Adds a file of `size` bytes with data in `ranges` (bytes).
    fn file(&mut self, g: &Geometry, size: u64, ranges: &[(u64, u64)], xattr_bytes: usize) {
        self.files += 1;
        self.bytes += ranges.iter().map(|r| r.1).sum::<u64>();
        self.blocks += g.file(size, ranges) + g.xattr(xattr_bytes);
    }

    /// Adds something that lies in its inode: a device, a fifo.
    fn special(&mut self, g: &Geometry, xattr_bytes: usize) {
        self.files += 1;
        self.blocks += 1 + g.xattr(xattr_bytes);
    }

    /// Adds a directory.
    fn dir(&mut self, g: &Geometry, names: &Dentries, xattr_bytes: usize) {
        self.dirs += 1;
        self.blocks += names.blocks(g) + g.xattr(xattr_bytes);
    }
}

/// Bytes that attributes take, as [`Geometry::xattr`] counts them.
fn xattr_bytes(xattrs: &[crate::node::Xattr]) -> usize {
    // A namespace is one byte on the volume, so its name in full is an upper bound.
    xattrs.iter().map(|(n, v)| (4 + n.len() + v.len()).next_multiple_of(4)).sum()
}
