//! A file system in memory for tests, with blocks of 1 KiB, four to a page: names, attributes and data.
//!
//! An inode that left memory is read again from here, so a change that was not passed to the file system is lost, and
//! the test sees it.

use crate::error::{Error, ErrorKind, Result};
use crate::fs::*;
use crate::inode::Inode;
use crate::mapping::chunk::PageRun;
use crate::mapping::{Tag, Taken};
use crate::types::*;
use crate::{Bdi, MemoryLimits, MountOptions, Vfs};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use tidegate_block::{Errno, PAGE_SIZE, PageBuf};
use tidegate_rt::{LockClass, Mutex, Timespec};

static NODES: LockClass = LockClass::new("test->memfs", 900);

pub(crate) const BLOCK: u64 = 1024;
const PAGE: u64 = PAGE_SIZE as u64;

struct Node {
    attr: Attr,
    names: BTreeMap<Vec<u8>, u64>,
    parent: u64,
    target: Vec<u8>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    blocks: BTreeMap<u64, Vec<u8>>,
}

pub(crate) struct MemFs {
    nodes: Mutex<BTreeMap<u64, Node>>,
    /// No inode can be freed.
    pub(crate) stuck: AtomicBool,
}

/// A new volume, mounted.
pub(crate) fn mount() -> (Arc<Vfs>, Arc<MemFs>) {
    let root = NewInode {
        file_type: FileType::Directory,
        mode: 0o755,
        dir_flags: 0,
        umask: 0,
        uid: 0,
        gid: 0,
        rdev: DeviceNumber::default(),
        target: b"",
        time: Timespec { secs: 1, nanos: 0 },
    };
    let nodes = Mutex::new(&NODES, BTreeMap::from([(1, Node::new(&root, 1))]));
    let fs = Arc::new(MemFs { nodes, stuck: AtomicBool::new(false) });
    let bdi = Bdi::new(MemoryLimits { inodes: 4, ..MemoryLimits::default() });
    let options = MountOptions { no_periodic_writeback: true, noatime: true, ..MountOptions::default() };
    (Vfs::mount(fs.clone(), bdi, options).unwrap(), fs)
}

impl Node {
    fn new(new: &NewInode<'_>, parent: u64) -> Node {
        let dir = new.file_type == FileType::Directory;
        let attr = Attr {
            file_type: new.file_type,
            mode: new.mode & !new.umask,
            uid: new.uid,
            gid: new.gid,
            nlink: if dir { 2 } else { 1 },
            size: new.target.len() as u64,
            blocks: 0,
            atime: new.time,
            mtime: new.time,
            ctime: new.time,
            crtime: None,
            rdev: new.rdev,
            generation: 0,
            flags: 0,
        };
        let (names, xattrs, blocks) = Default::default();
        Node { attr, names, parent, target: new.target.to_vec(), xattrs, blocks }
    }
}

impl MemFs {
    /// Calls `f` with an existing node.
    fn with<R>(&self, inode: &Inode, f: impl FnOnce(&mut Node) -> R) -> R {
        f(self.nodes.lock().get_mut(&inode.ino.0).expect("an inode in memory has a node"))
    }

    /// The numbers of the blocks of a file that have bytes.
    pub(crate) fn blocks(&self, inode: &Inode) -> Vec<u64> {
        self.with(inode, |n| n.blocks.keys().copied().collect())
    }

    /// The number of nodes.
    pub(crate) fn count(&self) -> usize {
        self.nodes.lock().len()
    }

    fn store(&self, inode: &Inode) {
        let attr = inode.attr().clone();
        self.with(inode, |n| n.attr = attr);
    }

    /// Changes the link count of an inode and stores it.
    fn links(&self, inode: &Inode, by: i32, now: Timespec) {
        {
            let mut a = inode.attr();
            (a.nlink, a.ctime) = (a.nlink.saturating_add_signed(by), now);
        }
        self.store(inode);
    }

    fn touch(&self, dir: &Inode, now: Timespec) {
        dir.attr().mtime = now;
        self.links(dir, 0, now);
    }
}

impl FileSystem for MemFs {
    fn name(&self) -> &'static str {
        "mem"
    }
    fn root(&self) -> Ino {
        Ino(1)
    }
    fn read_only(&self) -> Option<crate::ReadOnly> {
        None
    }
    fn statfs(&self) -> StatFs {
        StatFs { block_size: BLOCK as u32, name_max: 255, ..StatFs::default() }
    }
    fn max_file_size(&self, _: &Inode) -> u64 {
        1 << 30
    }
    fn read_inode(&self, ino: Ino) -> Result<InodeParts> {
        let nodes = self.nodes.lock();
        let attr = nodes.get(&ino.0).ok_or(ErrorKind::Stale)?.attr.clone();
        Ok(InodeParts { ino, attr, private: Box::new(()) })
    }
    fn lookup(&self, dir: &Inode, name: &[u8]) -> Result<Option<Ino>> {
        let found = |n: &mut Node| if name == b".." { Some(n.parent) } else { n.names.get(name).copied() };
        Ok(self.with(dir, found).map(Ino))
    }
    fn readdir(&self, dir: &Inode, pos: u64, emit: &mut dyn FnMut(DirEntry) -> bool) -> Result<()> {
        let (names, parent) = self.with(dir, |n| (n.names.clone(), n.parent));
        let dots = [(b".".to_vec(), dir.ino.0), (b"..".to_vec(), parent)];
        for (i, (name, ino)) in dots.into_iter().chain(names).enumerate().skip(pos as usize) {
            if !emit(DirEntry { ino: Ino(ino), file_type: None, name, next: i as u64 + 1 }) {
                break;
            }
        }
        Ok(())
    }
    fn create(&self, dir: &Arc<Inode>, name: &[u8], new: &NewInode<'_>, _: &NewXattrs) -> Result<InodeParts> {
        let node = Node::new(new, dir.ino.0);
        let attr = node.attr.clone();
        let mut nodes = self.nodes.lock();
        let ino = nodes.last_key_value().map_or(1, |n| n.0 + 1);
        nodes.insert(ino, node);
        drop(nodes);
        self.with(dir, |n| n.names.insert(name.to_vec(), ino));
        self.links(dir, i32::from(new.file_type == FileType::Directory), new.time);
        self.touch(dir, new.time);
        Ok(InodeParts { ino: Ino(ino), attr, private: Box::new(()) })
    }
    fn link(&self, dir: &Arc<Inode>, name: &[u8], inode: &Inode, now: Timespec) -> Result<()> {
        self.with(dir, |n| n.names.insert(name.to_vec(), inode.ino.0));
        self.links(inode, 1, now);
        self.touch(dir, now);
        Ok(())
    }
    fn unlink(&self, dir: &Arc<Inode>, name: &[u8], inode: &Inode, now: Timespec) -> Result<()> {
        if self.with(inode, |n| !n.names.is_empty()) {
            return Err(ErrorKind::NotEmpty.into());
        }
        self.with(dir, |n| n.names.remove(name));
        self.links(inode, if inode.is_dir() { -2 } else { -1 }, now);
        self.links(dir, -i32::from(inode.is_dir()), now);
        self.touch(dir, now);
        Ok(())
    }
    fn rename(&self, r: &Rename<'_>) -> Result<Option<Ino>> {
        if r.exchange || r.whiteout.is_some() {
            return Err(ErrorKind::Unsupported.into());
        }
        if let Some(target) = r.target {
            self.unlink(r.new_dir, r.new_name, target, r.now)?;
        }
        self.with(r.old_dir, |n| n.names.remove(r.old_name));
        self.with(r.new_dir, |n| n.names.insert(r.new_name.to_vec(), r.inode.ino.0));
        if r.inode.is_dir() && r.old_dir.ino != r.new_dir.ino {
            self.with(r.inode, |n| n.parent = r.new_dir.ino.0);
            self.links(r.old_dir, -1, r.now);
            self.links(r.new_dir, 1, r.now);
        }
        self.touch(r.old_dir, r.now);
        self.touch(r.new_dir, r.now);
        self.links(r.inode, 0, r.now);
        Ok(None)
    }
    fn readlink(&self, inode: &Inode) -> Result<Vec<u8>> {
        Ok(self.with(inode, |n| n.target.clone()))
    }
    fn update_inode(&self, inode: &Arc<Inode>) -> Result<()> {
        self.store(inode);
        Ok(())
    }
    fn getxattr(&self, inode: &Inode, name: &[u8]) -> Result<Vec<u8>> {
        Ok(self.with(inode, |n| n.xattrs.get(name).cloned()).ok_or(ErrorKind::NoData)?)
    }
    fn setxattr(
        &self,
        inode: &Inode,
        name: &[u8],
        value: Option<&[u8]>,
        flags: XattrFlags,
        now: Timespec,
    ) -> Result<()> {
        let there = self.with(inode, |n| n.xattrs.contains_key(name));
        if there && flags.contains(XattrFlags::CREATE) {
            return Err(ErrorKind::Exists.into());
        }
        if !there && (value.is_none() || flags.contains(XattrFlags::REPLACE)) {
            return Err(ErrorKind::NoData.into());
        }
        self.with(inode, |n| match value {
            Some(v) => n.xattrs.insert(name.to_vec(), v.to_vec()),
            None => n.xattrs.remove(name),
        });
        self.links(inode, 0, now);
        Ok(())
    }
    fn listxattr(&self, inode: &Inode) -> Result<Vec<Vec<u8>>> {
        Ok(self.with(inode, |n| n.xattrs.keys().cloned().collect()))
    }
    fn read_pages(&self, inode: &Inode, index: u64, pages: usize) -> Result<Vec<PageRun>> {
        let blocks = index * PAGE / BLOCK..(index + pages as u64) * PAGE / BLOCK;
        let zeros = || vec![0; BLOCK as usize];
        let bytes: Vec<u8> = self
            .with(inode, |n| blocks.flat_map(|b| n.blocks.get(&b).cloned().unwrap_or_else(zeros)).collect());
        Ok(vec![PageRun { buf: Arc::new(PageBuf::from_slice(&bytes)), first: 0, pages }])
    }
    fn reserve(&self, inode: &Arc<Inode>, _: Range<u64>, write: Option<&WriteEnd>) -> Result<()> {
        if let Some(write) = write {
            write.apply(&mut inode.attr());
            self.store(inode);
        }
        Ok(())
    }
    fn write_inline(&self, _: &Inode, _: u64, _: &[u8], _: Option<Timespec>) -> Result<bool> {
        Ok(false)
    }
    /// Blocks of zeros are written as holes, so that holes are smaller than pages.
    fn writepages(&self, inode: &Arc<Inode>, wbc: &mut WritebackControl) -> Result<()> {
        while let Taken::Run(run) = inode.mapping.take_dirty(wbc.start, wbc.end, Tag::Dirty, usize::MAX) {
            let bytes =
                run.segments.iter().flat_map(|s| &s.buf[s.offset as usize..(s.offset + s.len) as usize]);
            let bytes: Vec<u8> = bytes.copied().collect();
            self.with(inode, |n| {
                for (b, data) in (run.index * PAGE / BLOCK..).zip(bytes.chunks(BLOCK as usize)) {
                    n.blocks.remove(&b);
                    if data.iter().any(|b| *b != 0) {
                        n.blocks.insert(b, data.to_vec());
                    }
                }
            });
            wbc.written += run.pages as u64;
            inode.mapping.end_writeback(run.index, run.pages, None);
        }
        Ok(())
    }
    fn truncate(&self, inode: &Arc<Inode>, size: u64, now: Timespec) -> Result<()> {
        self.with(inode, |n| n.blocks.retain(|b, _| b * BLOCK < size));
        {
            let mut a = inode.attr();
            (a.size, a.mtime, a.ctime) = (size, now, now);
        }
        self.store(inode);
        Ok(())
    }
    fn block_size(&self) -> u64 {
        BLOCK
    }
    fn bytes_at_once(&self) -> u64 {
        4 * PAGE
    }
    fn punch_hole(&self, inode: &Arc<Inode>, bytes: Range<u64>) -> Result<()> {
        assert!(bytes.start.is_multiple_of(BLOCK) && bytes.end.is_multiple_of(BLOCK), "{bytes:?}");
        for page in [bytes.start, bytes.end].into_iter().filter(|e| !e.is_multiple_of(PAGE)).map(|e| e / PAGE)
        {
            let unwritten = inode.mapping.next_unwritten(page, page + 1);
            assert_eq!(unwritten, None, "{bytes:?}: a write may go to a block that is free");
        }
        assert!(bytes.end - bytes.start <= self.bytes_at_once(), "{bytes:?}");
        self.with(inode, |n| n.blocks.retain(|b, _| !bytes.contains(&(b * BLOCK))));
        Ok(())
    }
    fn preallocate(&self, inode: &Arc<Inode>, bytes: Range<u64>) -> Result<()> {
        let blocks = bytes.start / BLOCK..bytes.end.div_ceil(BLOCK);
        self.with(inode, |n| {
            blocks.for_each(|b| _ = n.blocks.entry(b).or_insert_with(|| vec![0; BLOCK as usize]));
        });
        Ok(())
    }
    fn has_block(&self, inode: &Inode, pos: u64) -> Result<bool> {
        Ok(self.with(inode, |n| n.blocks.contains_key(&(pos / BLOCK))))
    }
    fn seek(
        &self,
        inode: &Inode,
        bytes: Range<u64>,
        target: SeekTarget,
        unwritten: &dyn Fn(u64) -> bool,
    ) -> Result<Option<u64>> {
        for block in bytes.start / BLOCK..bytes.end.div_ceil(BLOCK) {
            let data = self.has_block(inode, block * BLOCK)? || unwritten(block * BLOCK);
            if data == (target == SeekTarget::Data) {
                return Ok(Some((block * BLOCK).max(bytes.start)));
            }
        }
        Ok(None)
    }
    fn fsync(&self, inode: &Inode, _: bool) -> Result<()> {
        self.store(inode);
        Ok(())
    }
    fn sync_fs(&self) -> Result<()> {
        Ok(())
    }
    fn evict_inode(&self, inode: &Inode) -> Result<()> {
        if self.stuck.load(SeqCst) {
            return Err(Error::device(Errno::IO, "freeing an inode"));
        }
        self.nodes.lock().remove(&inode.ino.0);
        Ok(())
    }
    fn balance(&self) -> Result<()> {
        Ok(())
    }
    fn unmount(&self) -> Result<()> {
        Ok(())
    }
}
