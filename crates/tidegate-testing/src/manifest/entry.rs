//! The content of a manifest, and its form on disk.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// The type of an inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Dir,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A character device.
    Char,
    /// A block device.
    Block,
}

impl Kind {
    /// The type in the format bits of a `st_mode`.
    pub fn from_mode(mode: u32) -> Option<Kind> {
        Some(match mode & 0o170_000 {
            0o100_000 => Kind::File,
            0o040_000 => Kind::Dir,
            0o120_000 => Kind::Symlink,
            0o010_000 => Kind::Fifo,
            0o140_000 => Kind::Socket,
            0o020_000 => Kind::Char,
            0o060_000 => Kind::Block,
            _ => return None,
        })
    }
}

/// Seconds and nanoseconds since the epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Time(pub i64, pub u32);

/// One name of a tree.
///
/// Text fields for raw bytes are in the form of [`super::escape()`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Path from the root of the tree; the root itself is `.`.
    pub path: String,
    /// Type of the inode.
    pub kind: Kind,
    /// Permission bits with set-id and sticky bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Length of a file or symlink; `None` for a directory, whose size differs between implementations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Modification time.
    pub mtime: Time,
    /// Number of names of a non-directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nlink: Option<u64>,
    /// First name, in sort order, of an inode that has several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub same_as: Option<String>,
    /// Major and minor number of a device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rdev: Option<(u32, u32)>,
    /// Target of a symlink.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Hash of a file's content, see [`super::ContentHash`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crc32: Option<u32>,
    /// Extended attributes, values in hexadecimal.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub xattrs: BTreeMap<String, String>,
}

/// All names of a tree in order of their raw paths.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Manifest {
    /// The names.
    pub entries: Vec<Entry>,
}

impl Manifest {
    /// Reads the JSON-lines form.
    pub fn load(path: &Path) -> Result<Self> {
        let file = File::open(path).with_context(|| format!("opening {}", path.display()))?;
        let mut entries = Vec::new();
        for (n, line) in BufReader::new(file).lines().enumerate() {
            let line = line.with_context(|| format!("reading {}", path.display()))?;
            let entry = serde_json::from_str(&line)
                .with_context(|| format!("{}:{}: not a manifest entry", path.display(), n + 1))?;
            entries.push(entry);
        }
        Ok(Manifest { entries })
    }

    /// Writes the JSON-lines form to a file.
    pub fn save(&self, path: &Path) -> Result<()> {
        let file = File::create(path).with_context(|| format!("creating {}", path.display()))?;
        self.write(BufWriter::new(file)).with_context(|| format!("writing {}", path.display()))
    }

    /// Writes the JSON-lines form.
    pub fn write(&self, mut out: impl Write) -> Result<()> {
        for entry in &self.entries {
            serde_json::to_writer(&mut out, entry)?;
            out.write_all(b"\n")?;
        }
        out.flush()?;
        Ok(())
    }

    /// The entry at a path in escaped form.
    pub fn get(&self, path: &str) -> Option<&Entry> {
        self.entries.iter().find(|e| e.path == path)
    }
}

/// Collects entries in any order and turns inode numbers into link groups.
#[derive(Debug, Default)]
pub struct Builder {
    found: Vec<(Vec<u8>, u64, Entry)>,
}

impl Builder {
    /// A builder without entries.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an entry; `path` is the raw path, from which `entry.path` is set.
    ///
    /// An empty path stands for the root.
    pub fn push(&mut self, path: &[u8], ino: u64, mut entry: Entry) {
        let path = if path.is_empty() { b"." } else { path };
        entry.path = super::escape(path);
        self.found.push((path.to_vec(), ino, entry));
    }

    /// Sorts the entries and names the groups of hard links.
    pub fn finish(mut self) -> Manifest {
        self.found.sort_by(|a, b| a.0.cmp(&b.0));
        let mut first: HashMap<u64, String> = HashMap::new();
        let mut entries = Vec::with_capacity(self.found.len());
        for (_, ino, mut entry) in self.found {
            if entry.nlink.is_some_and(|n| n > 1) {
                entry.same_as = Some(first.entry(ino).or_insert_with(|| entry.path.clone()).clone());
            }
            entries.push(entry);
        }
        Manifest { entries }
    }
}
