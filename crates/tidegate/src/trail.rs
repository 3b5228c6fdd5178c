//! For walks down a volume: the path of each place, and the directories that were met.
//!
//! A tree can be as deep as the volume has inodes, so a walk does not keep the whole path for each level. A [`Trail`]
//! is a name and the trail of the directory above it, which all names in that directory share. In a damaged volume a
//! directory may be under two parents or below itself: [`Met`] ends a walk there.

use crate::error::Result;
use crate::volume::Volume;
use std::collections::HashSet;
use std::sync::Arc;
use tidegate_vfs::{Ino, Inode};

/// The path of a place in a volume, kept as its last name and the trail of the directory above.
#[derive(Clone, Debug)]
pub struct Trail(Option<Arc<Step>>);

#[derive(Debug)]
struct Step {
    above: Trail,
    /// The last name. For the first step, the path where the walk began.
    name: Vec<u8>,
}

impl Trail {
    /// Where a walk begins.
    pub fn new(path: &[u8]) -> Self {
        Trail(Some(Arc::new(Step { above: Trail(None), name: path.to_vec() })))
    }

    /// The place called `name` in this directory. It takes only the memory of the name, however deep the
    /// directory lies.
    pub fn below(&self, name: &[u8]) -> Self {
        Trail(Some(Arc::new(Step { above: self.clone(), name: name.to_vec() })))
    }

    /// The last name.
    pub fn name(&self) -> &[u8] {
        self.0.as_ref().map_or(b"", |s| &s.name)
    }

    /// The whole path.
    pub fn path(&self) -> Vec<u8> {
        let mut names = Vec::new();
        let mut at = &self.0;
        while let Some(step) = at {
            names.push(&step.name[..]);
            at = &step.above.0;
        }
        let mut path = Vec::with_capacity(names.iter().map(|n| n.len() + 1).sum());
        for (i, name) in names.into_iter().rev().enumerate() {
            if i > 0 && !path.is_empty() && !path.ends_with(b"/") {
                path.push(b'/');
            }
            path.extend_from_slice(name);
        }
        path
    }
}

/// Steps are dropped one after the other: a recursion as deep as the tree would overflow the stack.
impl Drop for Step {
    fn drop(&mut self) {
        let mut above = self.above.0.take();
        while let Some(mut step) = above.and_then(Arc::into_inner) {
            above = step.above.0.take();
        }
    }
}

/// The directories that a walk has entered. It takes some 20 bytes for each.
#[derive(Default)]
pub struct Met(HashSet<Ino>);

impl Met {
    /// Notes that the walk enters `dir`, which lies at `at`.
    ///
    /// # Errors
    /// `Corrupt` when `dir` was entered before: the walk might not end.
    pub fn enter(&mut self, volume: &Volume, dir: &Inode, at: &Trail) -> Result<()> {
        if self.0.insert(dir.ino) {
            return Ok(());
        }
        let what = format!("inode {}: a directory with two parents", dir.ino);
        Err(volume.error_at(&at.path(), tidegate_vfs::Error::corrupt(what)))
    }
}

#[cfg(test)]
mod tests {
    use super::Trail;

    #[test]
    fn a_trail_is_the_path_that_joins_its_names() {
        for (from, want) in [("", "a/b"), ("/", "/a/b"), ("/x", "/x/a/b"), ("x/", "x/a/b")] {
            let t = Trail::new(from.as_bytes()).below(b"a").below(b"b");
            assert_eq!(t.path(), want.as_bytes());
            assert_eq!(t.name(), b"b");
        }
        assert_eq!(Trail::new(b"/x").path(), b"/x");
    }

    #[test]
    fn a_trail_of_a_million_names_is_dropped() {
        let t = (0..1_000_000).fold(Trail::new(b"/"), |t, _| t.below(b"d"));
        let shared = t.clone();
        drop(t);
        assert_eq!(shared.path().len(), 2_000_000);
    }
}
