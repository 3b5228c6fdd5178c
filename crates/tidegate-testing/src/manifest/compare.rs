//! Says in words how two manifests differ.

use std::collections::BTreeMap;
use std::fmt::Debug;

use clap::Args;

use super::{Entry, Kind, Manifest};

/// The parts that a comparison leaves out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Args)]
pub struct Options {
    /// Leave out modification times of directories.
    #[arg(long)]
    pub ignore_dir_mtime: bool,
    /// Leave out all modification times.
    #[arg(long)]
    pub ignore_mtime: bool,
    /// Compare modification times by whole seconds.
    #[arg(long)]
    pub ignore_nanoseconds: bool,
    /// Leave out the attributes of the root directory.
    #[arg(long)]
    pub ignore_root: bool,
    /// Leave out owner and group.
    #[arg(long)]
    pub ignore_owner: bool,
    /// Leave out extended attributes.
    #[arg(long)]
    pub ignore_xattrs: bool,
    /// Leave out link counts and link groups.
    #[arg(long)]
    pub ignore_links: bool,
    /// Leave out sockets.
    #[arg(long)]
    pub ignore_sockets: bool,
    /// Leave out the directory `lost+found`, which some makers add.
    #[arg(long)]
    pub ignore_lost_found: bool,
}

impl Options {
    fn wants(&self, entry: &Entry) -> bool {
        let lost = self.ignore_lost_found && entry.path == "lost+found";
        let socket = self.ignore_sockets && entry.kind == Kind::Socket;
        let root = self.ignore_root && entry.path == ".";
        !(lost || socket || root)
    }
}

/// The differences from `a` to `b`, one per line; none when they agree.
pub fn compare(a: &Manifest, b: &Manifest, options: &Options) -> Vec<String> {
    let index = |m: &'_ Manifest| -> BTreeMap<String, Entry> {
        m.entries.iter().filter(|e| options.wants(e)).map(|e| (e.path.clone(), e.clone())).collect()
    };
    let (left, right) = (index(a), index(b));
    let mut found = Vec::new();
    for (path, entry) in &left {
        match right.get(path) {
            None => found.push(format!("{path}: only in the first ({:?})", entry.kind)),
            Some(other) => entries(entry, other, options, &mut found),
        }
    }
    for (path, entry) in &right {
        if !left.contains_key(path) {
            found.push(format!("{path}: only in the second ({:?})", entry.kind));
        }
    }
    found
}

fn entries(a: &Entry, b: &Entry, options: &Options, found: &mut Vec<String>) {
    let path = &a.path;
    let mut differ = |what: &str, x: &dyn Debug, y: &dyn Debug| {
        let (x, y) = (format!("{x:?}"), format!("{y:?}"));
        if x != y {
            found.push(format!("{path}: {what} {x} against {y}"));
        }
    };
    differ("type", &a.kind, &b.kind);
    differ("mode", &format_args!("{:04o}", a.mode), &format_args!("{:04o}", b.mode));
    if !options.ignore_owner {
        differ("owner", &(a.uid, a.gid), &(b.uid, b.gid));
    }
    differ("size", &a.size, &b.size);
    let dir_skipped = options.ignore_dir_mtime && a.kind == Kind::Dir;
    if options.ignore_mtime || dir_skipped {
    } else if options.ignore_nanoseconds {
        differ("mtime", &a.mtime.0, &b.mtime.0);
    } else {
        differ("mtime", &a.mtime, &b.mtime);
    }
    if !options.ignore_links {
        differ("link count", &a.nlink, &b.nlink);
        differ("link group", &a.same_as, &b.same_as);
    }
    differ("device", &a.rdev, &b.rdev);
    differ("symlink target", &a.target, &b.target);
    differ("content", &a.crc32, &b.crc32);
    if !options.ignore_xattrs {
        for (name, value) in &a.xattrs {
            match b.xattrs.get(name) {
                None => differ("extended attribute", name, &"none"),
                Some(other) => differ(&format!("extended attribute {name}"), value, other),
            }
        }
        for name in b.xattrs.keys().filter(|n| !a.xattrs.contains_key(*n)) {
            differ("extended attribute", &"none", name);
        }
    }
}
