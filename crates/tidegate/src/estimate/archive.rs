//! Adds up a tar.

use super::{Content, Geometry, Names, Xattrs, xattrs};
use crate::error::{Error, Result, Subject, show};
use crate::import::archive::clean;
use crate::tar::reader::{Input, Reader};
use std::collections::HashMap;
use std::io;
use tidegate_vfs::FileType;

/// The cost of a directory of the archive.
struct Dir {
    names: Names,
    xattrs: Xattrs,
}

/// Measures the tar called `name`. A file that occurs twice is counted twice.
///
/// # Errors
/// The part that cannot be read, or the fault of the archive.
pub fn measure(from: impl Input, name: &str, geometry: &Geometry) -> Result<Content> {
    let mut at = Vec::new();
    add_up(from, geometry, &mut at).map_err(|e| {
        let what = if at.is_empty() { name.into() } else { format!("{name}: at {}", show(&at)) };
        Error::Os(Subject::Named(what), e)
    })
}

fn add_up(from: impl Input, g: &Geometry, at: &mut Vec<u8>) -> io::Result<Content> {
    let mut reader = Reader::new(from);
    let mut content = Content::default();
    let mut dirs = Dirs { geometry: g, map: HashMap::new() };
    dirs.at(b"");
    while let Some(e) = reader.next_entry()? {
        at.clone_from(&e.path);
        // Paths that lead up are refused later, when the tar is imported.
        let path = clean(&e.path).unwrap_or_default();
        let own = xattrs(&e.meta.xattrs);
        if !e.hard_link && e.meta.kind == FileType::Directory {
            dirs.announce(&path);
            dirs.at(&path).xattrs = own;
            continue;
        }
        dirs.enter(&path);
        match e.meta.kind {
            _ if e.hard_link => content.files += 1,
            FileType::Regular => {
                let whole = [(0, e.size)];
                content.file(g, e.size, e.ranges.as_deref().unwrap_or(&whole), own);
            }
            FileType::Symlink => {
                content.symlink(g, e.link.len() as u64, own);
            }
            _ => content.special(g, own),
        }
    }
    for d in dirs.map.values() {
        content.dir(g, &d.names, d.xattrs);
    }
    Ok(content)
}

/// Directories by path.
struct Dirs<'a> {
    geometry: &'a Geometry,
    map: HashMap<Vec<u8>, Dir>,
}

impl Dirs<'_> {
    fn at(&mut self, path: &[u8]) -> &mut Dir {
        if !self.map.contains_key(path) {
            self.map
                .insert(path.to_vec(), Dir { names: Names::new(self.geometry), xattrs: Xattrs::default() });
        }
        self.map.get_mut(path).expect("it is there now")
    }

    /// Adds a directory, and the directories above it that have no entry of their own.
    fn announce(&mut self, path: &[u8]) {
        if !self.map.contains_key(path) {
            self.enter(path);
            self.at(path);
        }
    }

    /// Adds a name to its directory, and goes on upwards as long as directories are new.
    fn enter(&mut self, path: &[u8]) {
        let mut path = path;
        loop {
            let at = path.iter().rposition(|&b| b == b'/');
            let (parent, name) = (&path[..at.unwrap_or(0)], &path[at.map_or(0, |i| i + 1)..]);
            let known = self.map.contains_key(parent);
            self.at(parent).names.add(name);
            if known {
                return;
            }
            path = parent;
        }
    }
}
