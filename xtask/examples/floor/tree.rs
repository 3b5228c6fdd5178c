//! A server that only answers. Names and sizes are in memory; contents are dropped, or kept in memory, too,
//! for programs that read back their data. The time of a mount of it is the time of the protocol, the
//! transport and the kernel; no file system on them is faster.

use rustix::io::Errno;
use std::collections::HashMap;
use std::sync::Arc;
use tidegate::vfs::{Attr, DeviceNumber, FileType};
use tidegate_fuse::errno::Result;
use tidegate_fuse::server::{Entry, ROOT_NODE};
use tidegate_fuse::transport::TTL;
use tidegate_fuse::transport::dev::opcode::*;
use tidegate_fuse::transport::dev::wire::{Head, Reader, SetAttrIn, Writer};
use tidegate_fuse::transport::dev::{Answer, Answers, Outcome};
use tidegate_rt::{LockClass, Mutex, clock};

static TREE: LockClass = LockClass::new("floor->tree", 2);

struct Node {
    attr: Attr,
    /// Names in the order of their creation; a removed name leaves a gap.
    names: Vec<Option<(Vec<u8>, u64)>>,
    places: HashMap<Vec<u8>, usize>,
    contents: Vec<u8>,
}

/// All files. The number of a node is its index plus one.
pub struct Tree {
    nodes: Vec<Node>,
    keeps_contents: bool,
}

impl Tree {
    /// A tree that is an empty directory.
    pub fn new(keeps_contents: bool) -> Arc<Mutex<Tree>> {
        let mut tree = Tree { nodes: Vec::new(), keeps_contents };
        tree.add(FileType::Directory, 0o755, (0, 0));
        Arc::new(Mutex::new(&TREE, tree))
    }

    fn add(&mut self, file_type: FileType, mode: u32, owner: (u32, u32)) -> u64 {
        let now = clock::realtime();
        let attr = Attr {
            file_type,
            mode: mode & 0o7777,
            uid: owner.0,
            gid: owner.1,
            nlink: 1,
            size: 0,
            blocks: 0,
            atime: now,
            mtime: now,
            ctime: now,
            crtime: None,
            rdev: DeviceNumber::default(),
            generation: 0,
            flags: 0,
        };
        self.nodes.push(Node { attr, names: Vec::new(), places: HashMap::new(), contents: Vec::new() });
        self.nodes.len() as u64
    }

    fn node(&mut self, node: u64) -> Result<&mut Node> {
        (node as usize)
            .checked_sub(ROOT_NODE as usize)
            .and_then(|i| self.nodes.get_mut(i))
            .ok_or(Errno::STALE)
    }

    fn entry(&mut self, node: u64) -> Result<Entry> {
        Ok(Entry { node, ino: node, attr: self.node(node)?.attr.clone(), is_filling: false })
    }

    fn make(&mut self, h: &Head, name: &[u8], file_type: FileType, mode: u32) -> Result<Entry> {
        let node = self.add(file_type, mode, (h.uid, h.gid));
        self.link(h.node, name, node)?;
        self.entry(node)
    }

    fn link(&mut self, dir: u64, name: &[u8], node: u64) -> Result<()> {
        let dir = self.node(dir)?;
        dir.places.insert(name.to_vec(), dir.names.len());
        dir.names.push(Some((name.to_vec(), node)));
        Ok(())
    }

    /// Removes a name and returns its file.
    fn remove(&mut self, dir: u64, name: &[u8]) -> Result<u64> {
        let dir = self.node(dir)?;
        let at = dir.places.remove(name).ok_or(Errno::NOENT)?;
        dir.names[at].take().map(|(_, node)| node).ok_or(Errno::NOENT)
    }

    fn write(&mut self, node: u64, pos: u64, bytes: &[u8]) -> Result<()> {
        let keeps = self.keeps_contents;
        let node = self.node(node)?;
        let end = pos + bytes.len() as u64;
        node.attr.size = node.attr.size.max(end);
        if keeps {
            let room = node.contents.len().max(end as usize);
            node.contents.resize(room, 0);
            node.contents[pos as usize..end as usize].copy_from_slice(bytes);
        }
        Ok(())
    }

    /// Returns how many bytes of `to` the file fills.
    fn read(&mut self, node: u64, pos: u64, to: &mut [u8]) -> Result<usize> {
        let keeps = self.keeps_contents;
        let node = self.node(node)?;
        let n = to.len().min(node.attr.size.saturating_sub(pos) as usize);
        if keeps {
            let kept = node.contents.get(pos as usize..).unwrap_or_default();
            let kept = &kept[..kept.len().min(n)];
            to[..kept.len()].copy_from_slice(kept);
            to[kept.len()..n].fill(0);
        }
        Ok(n)
    }
}

/// A server that only answers.
pub struct Floor(pub Arc<Mutex<Tree>>);

impl Answers for Floor {
    fn outcome(&mut self, h: &Head, fixed: &[u8], data: &mut [u8], len: usize) -> Outcome {
        let rest = data.get(..len).ok_or(Errno::INVAL)?;
        let mut tree = self.0.lock();
        match h.opcode {
            FORGET | BATCH_FORGET | INTERRUPT => Ok(Answer::Nothing),
            WRITE => {
                let mut r = Reader(fixed);
                let (_, pos, size) = (r.u64()?, r.u64()?, r.u32()?);
                tree.write(h.node, pos, rest.get(..size as usize).ok_or(Errno::INVAL)?)?;
                with(|w| {
                    w.u32(size);
                    w.u32(0);
                })
            }
            READ => {
                let message = [fixed, rest].concat();
                let mut r = Reader(&message);
                let (_, pos, size) = (r.u64()?, r.u64()?, r.u32()? as usize);
                let room = size.min(data.len());
                tree.read(h.node, pos, &mut data[..room]).map(Answer::Buffer)
            }
            _ => {
                let message = [fixed, rest].concat();
                names(&mut tree, h, Reader(&message))
            }
        }
    }
}

/// Answers with what `put` writes.
fn with(put: impl FnOnce(&mut Writer)) -> Outcome {
    let mut w = Writer::default();
    put(&mut w);
    Ok(Answer::Bytes(w))
}

fn empty() -> Outcome {
    with(|_| ())
}

fn entry(x: &Entry) -> Outcome {
    with(|w| w.entry(x, TTL))
}

fn names(tree: &mut Tree, h: &Head, mut r: Reader<'_>) -> Outcome {
    match h.opcode {
        LOOKUP => {
            let name = r.name()?;
            let dir = tree.node(h.node)?;
            let found = dir.places.get(name).and_then(|at| dir.names[*at].as_ref()).map(|x| x.1);
            match found {
                Some(node) => entry(&tree.entry(node)?),
                None => with(|w| {
                    w.zeros(16);
                    w.u64(TTL.as_secs());
                    w.zeros(128 - 24);
                }),
            }
        }
        CREATE => {
            let (_, mode, umask, _) = (r.u32()?, r.u32()?, r.u32()?, r.u32()?);
            let x = tree.make(h, r.name()?, FileType::Regular, mode & !umask)?;
            with(|w| {
                w.entry(&x, TTL);
                w.opened(x.node);
            })
        }
        MKDIR => {
            let (mode, umask) = (r.u32()?, r.u32()?);
            entry(&tree.make(h, r.name()?, FileType::Directory, mode & !umask)?)
        }
        UNLINK | RMDIR => tree.remove(h.node, r.name()?).and_then(|_| empty()),
        RENAME | RENAME2 => {
            let dir = r.u64()?;
            r.skip(if h.opcode == RENAME2 { 8 } else { 0 })?;
            let (old, new) = (r.name()?, r.name()?);
            let node = tree.remove(h.node, old)?;
            let _ = tree.remove(dir, new);
            tree.link(dir, new, node)?;
            empty()
        }
        OPEN => with(|w| w.opened(h.node)),
        RELEASE | FSYNC | FSYNCDIR => empty(),
        READDIR | READDIRPLUS => {
            r.skip(8)?;
            let (pos, room) = (r.u64()?, r.u32()? as usize);
            readdir(tree, h, pos, room)
        }
        _ => attrs(tree, h, r),
    }
}

fn attrs(tree: &mut Tree, h: &Head, mut r: Reader<'_>) -> Outcome {
    match h.opcode {
        GETATTR => {
            let x = tree.entry(h.node)?;
            with(|w| w.attr_out(&x, TTL))
        }
        STATX => {
            let x = tree.entry(h.node)?;
            with(|w| w.statx(&x, TTL))
        }
        SETATTR => {
            set_attr(tree.node(h.node)?, &SetAttrIn::read(&mut r)?);
            let x = tree.entry(h.node)?;
            with(|w| w.attr_out(&x, TTL))
        }
        GETXATTR => Err(Errno::NODATA),
        // There are no attributes; a request without room for the list asks for its length.
        LISTXATTR if r.u32()? == 0 => with(|w| w.zeros(8)),
        LISTXATTR => empty(),
        STATFS => with(|w| {
            for v in [1 << 20, 1 << 19, 1 << 19, 1 << 20, 1 << 19] {
                w.u64(v);
            }
            for v in [4096, 255, 4096] {
                w.u32(v);
            }
            w.zeros(28);
        }),
        _ => Err(Errno::NOSYS),
    }
}

fn set_attr(node: &mut Node, x: &SetAttrIn) {
    let attr = &mut node.attr;
    if x.given(0) {
        attr.mode = x.mode & 0o7777;
    }
    if x.given(3) {
        attr.size = x.size;
        node.contents.truncate(x.size as usize);
    }
    for (bit, to, time) in [
        (4, &mut attr.atime, x.times[0]),
        (5, &mut attr.mtime, x.times[1]),
        (10, &mut attr.ctime, x.times[2]),
    ] {
        if x.given(bit) {
            *to = time;
        }
    }
}

fn readdir(tree: &mut Tree, h: &Head, pos: u64, room: usize) -> Outcome {
    let names: Vec<_> = tree.node(h.node)?.names.iter().skip(pos as usize).cloned().collect();
    let mut w = Writer::default();
    for (i, name) in names.into_iter().enumerate() {
        let Some((name, node)) = name else { continue };
        let (x, next) = (tree.entry(node)?, pos + i as u64 + 1);
        let kind = x.attr.file_type as u32;
        let fits = match h.opcode {
            READDIR => w.dirent(|_| (), node, next, kind, &name, room),
            _ => w.dirent(|w| w.entry(&x, TTL), node, next, kind, &name, room),
        };
        if !fits {
            break;
        }
    }
    Ok(Answer::Bytes(w))
}
