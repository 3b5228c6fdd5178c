//! A file system of numbered files for tests. Its work takes virtual time, and it logs the requests that it
//! got.

use crate::error::{ErrorKind, Result};
use crate::fs::*;
use crate::inode::Inode;
use crate::mapping::chunk::PageRun;
use crate::mapping::{DirtyRun, Tag, Taken};
use crate::types::*;
use crate::{Bdi, File, MemoryLimits, MountOptions, SyncWait, Vfs};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;
use tidegate_block::{PAGE_SIZE, PageBuf};
use tidegate_rt::{LockClass, Mutex, Nanos, Timespec, clock, thread};

static LOG: LockClass = LockClass::new("slow->log", 900);
static DISK: LockClass = LockClass::new("slow->disk", 901);

pub(crate) const MS: Duration = Duration::from_millis(1);
/// The number of pages of each file.
pub(crate) const PAGES: u64 = 16;

/// A request to the file system, or an event of its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// A pass over a file's dirty pages.
    Write { ino: u64, sync_all: bool },
    /// The write of a run of pages has ended, in success or not.
    Ended { ino: u64 },
    /// Pages are read.
    Read { ino: u64 },
    /// The work of an interval.
    Periodic,
}

/// The failures to come. Each number says how often.
#[derive(Default)]
pub(crate) struct Wrong {
    /// A run becomes dirty again after the device's time, without an error.
    pub given_back: AtomicU32,
    /// The device cannot write a run.
    pub failed: AtomicU32,
    /// A pass cannot submit.
    pub refused: AtomicU32,
    /// A pass takes a run, has no place for it, and makes it dirty again.
    pub misplaced: AtomicU32,
}

fn one_of(left: &AtomicU32) -> bool {
    left.fetch_update(SeqCst, SeqCst, |n| n.checked_sub(1)).is_ok()
}

/// The time that each request takes.
#[derive(Clone, Copy)]
pub(crate) struct Takes {
    /// The time of the device for a write of a run of pages.
    pub write: Duration,
    /// The time of the device for a read.
    pub read: Duration,
    /// The time of the file system to free blocks.
    pub free: Duration,
    /// Passes of WB_SYNC_NONE write nothing, as a file system may decide.
    pub skips: bool,
}

pub(crate) struct SlowFs {
    takes: Takes,
    device: Arc<SlowDevice>,
}

pub(crate) struct SlowDevice {
    pub wrong: Wrong,
    log: Mutex<Vec<(Nanos, What)>>,
    disk: Mutex<HashMap<(u64, u64), Vec<u8>>>,
}

impl SlowDevice {
    /// The events so far, each with its time.
    pub fn log(&self) -> Vec<(Nanos, What)> {
        self.log.lock().clone()
    }

    fn note(&self, what: What) {
        self.log.lock().push((clock::now(), what));
    }

    /// Fills a page of a file on the volume with one byte.
    pub fn put(&self, ino: u64, index: u64, byte: u8) {
        self.disk.lock().insert((ino, index), vec![byte; PAGE_SIZE]);
    }

    fn get(&self, ino: u64, index: u64, pages: usize) -> PageRun {
        self.note(What::Read { ino });
        let disk = self.disk.lock();
        let page = |i| disk.get(&(ino, i)).cloned().unwrap_or_else(|| vec![0; PAGE_SIZE]);
        let bytes: Vec<u8> = (index..index + pages as u64).flat_map(page).collect();
        PageRun { buf: Arc::new(PageBuf::from_slice(&bytes)), first: 0, pages }
    }

    fn end(&self, inode: &Arc<Inode>, run: &DirtyRun) {
        self.note(What::Ended { ino: inode.ino.0 });
        if one_of(&self.wrong.given_back) {
            inode.mapping.redirty(run.index, run.pages);
            return inode.mapping.bdi().mark_dirty(inode);
        }
        if one_of(&self.wrong.failed) {
            return inode.end_writeback(run.index, run.pages, Some(ErrorKind::Io));
        }
        let bytes: Vec<u8> = run
            .segments
            .iter()
            .flat_map(|s| s.buf[s.offset as usize..(s.offset + s.len) as usize].to_vec())
            .collect();
        for (index, page) in (run.index..).zip(bytes.chunks(PAGE_SIZE)) {
            self.disk.lock().insert((inode.ino.0, index), page.to_vec());
        }
        inode.mapping.end_writeback(run.index, run.pages, None);
    }
}

pub(crate) const TAKES: Takes = Takes {
    write: Duration::from_millis(10),
    read: Duration::from_millis(10),
    free: Duration::from_millis(10),
    skips: false,
};

/// A mounted volume without periodic write-back.
pub(crate) fn mount(sync_wait: SyncWait, takes: Takes) -> (Arc<Vfs>, Arc<SlowDevice>) {
    let options =
        MountOptions { noatime: true, no_periodic_writeback: true, sync_wait, ..MountOptions::default() };
    mount_with(MemoryLimits::default(), options, takes)
}

pub(crate) fn mount_with(
    limits: MemoryLimits,
    options: MountOptions,
    takes: Takes,
) -> (Arc<Vfs>, Arc<SlowDevice>) {
    let bdi = Bdi::new(limits);
    let (log, disk) = (Mutex::new(&LOG, Vec::new()), Mutex::new(&DISK, HashMap::new()));
    let device = Arc::new(SlowDevice { wrong: Wrong::default(), log, disk });
    let fs = Arc::new(SlowFs { takes, device: device.clone() });
    (Vfs::mount(fs, bdi, options).unwrap(), device)
}

/// Opens a file.
pub(crate) fn open(vfs: &Arc<Vfs>, ino: u64) -> File {
    let inode = vfs.iget(Ino(ino)).unwrap();
    vfs.open(&Cred::ROOT, &inode, OpenFlags::READ | OpenFlags::WRITE).unwrap()
}

/// Dirties the first `pages` pages of a file.
pub(crate) fn dirty(vfs: &Arc<Vfs>, ino: u64, pages: usize) -> Arc<Inode> {
    let f = open(vfs, ino);
    f.write_at(0, &vec![ino as u8; pages * PAGE_SIZE]).unwrap();
    f.inode().clone()
}

impl FileSystem for SlowFs {
    fn name(&self) -> &'static str {
        "slow"
    }
    fn root(&self) -> Ino {
        Ino(1)
    }
    fn read_only(&self) -> Option<crate::ReadOnly> {
        None
    }
    fn statfs(&self) -> StatFs {
        StatFs::default()
    }
    fn max_file_size(&self, _: &Inode) -> u64 {
        1 << 40
    }
    fn read_inode(&self, ino: Ino) -> Result<InodeParts> {
        let file_type = if ino == self.root() { FileType::Directory } else { FileType::Regular };
        let t = Timespec { secs: 1, nanos: 0 };
        let attr = Attr {
            file_type,
            mode: 0o644,
            uid: 0,
            gid: 0,
            nlink: 1,
            size: PAGES * PAGE_SIZE as u64,
            blocks: 8 * PAGES,
            atime: t,
            mtime: t,
            ctime: t,
            crtime: None,
            rdev: DeviceNumber::default(),
            generation: 0,
            flags: 0,
        };
        Ok(InodeParts { ino, attr, private: Box::new(()) })
    }
    fn lookup(&self, _: &Inode, _: &[u8]) -> Result<Option<Ino>> {
        Ok(None)
    }
    fn readdir(&self, _: &Inode, _: u64, _: &mut dyn FnMut(DirEntry) -> bool) -> Result<()> {
        Ok(())
    }
    fn create(&self, _: &Arc<Inode>, _: &[u8], _: &NewInode<'_>, _: &NewXattrs) -> Result<InodeParts> {
        Err(ErrorKind::Unsupported.into())
    }
    fn link(&self, _: &Arc<Inode>, _: &[u8], _: &Inode, _: Timespec) -> Result<()> {
        Err(ErrorKind::Unsupported.into())
    }
    fn unlink(&self, _: &Arc<Inode>, _: &[u8], _: &Inode, _: Timespec) -> Result<()> {
        Err(ErrorKind::Unsupported.into())
    }
    fn rename(&self, _: &Rename<'_>) -> Result<Option<Ino>> {
        Err(ErrorKind::Unsupported.into())
    }
    fn readlink(&self, _: &Inode) -> Result<Vec<u8>> {
        Err(ErrorKind::Unsupported.into())
    }
    fn update_inode(&self, _: &Arc<Inode>) -> Result<()> {
        Ok(())
    }
    fn getxattr(&self, _: &Inode, _: &[u8]) -> Result<Vec<u8>> {
        Err(ErrorKind::Unsupported.into())
    }
    fn setxattr(&self, _: &Inode, _: &[u8], _: Option<&[u8]>, _: XattrFlags, _: Timespec) -> Result<()> {
        Err(ErrorKind::Unsupported.into())
    }
    fn listxattr(&self, _: &Inode) -> Result<Vec<Vec<u8>>> {
        Ok(Vec::new())
    }

    /// A read returns the content at its beginning, as devices may do.
    fn read_pages(&self, inode: &Inode, index: u64, pages: usize) -> Result<Vec<PageRun>> {
        let run = self.device.get(inode.ino.0, index, pages);
        thread::sleep(self.takes.read);
        Ok(vec![run])
    }
    fn read_ahead(&self, inode: &Arc<Inode>, index: u64, pages: usize, done: ReadDone) {
        let (run, takes) = (self.device.get(inode.ino.0, index, pages), self.takes.read);
        let reads = move || {
            thread::sleep(takes);
            done(Ok(vec![run]));
        };
        thread::spawn("device", reads).unwrap();
    }
    fn reserve(&self, inode: &Arc<Inode>, _: Range<u64>, write: Option<&WriteEnd>) -> Result<()> {
        if let Some(write) = write {
            write.apply(&mut inode.attr());
        }
        Ok(())
    }
    fn write_inline(&self, _: &Inode, _: u64, _: &[u8], _: Option<Timespec>) -> Result<bool> {
        Ok(false)
    }
    fn writepages(&self, inode: &Arc<Inode>, wbc: &mut WritebackControl) -> Result<()> {
        self.device.note(What::Write { ino: inode.ino.0, sync_all: wbc.sync_all });
        if one_of(&self.device.wrong.refused) {
            return Err(ErrorKind::NoSpace.into());
        }
        if !wbc.sync_all && self.takes.skips {
            return Ok(());
        }
        if wbc.sync_all {
            inode.mapping.tag_towrite(wbc.start, wbc.end);
        }
        let tag = if wbc.sync_all { Tag::ToWrite } else { Tag::Dirty };
        loop {
            match inode.mapping.take_dirty(wbc.start, wbc.end, tag, usize::MAX) {
                Taken::Busy(i) if wbc.sync_all => inode.mapping.wait_writeback(i, i + 1),
                Taken::None | Taken::Busy(_) => return Ok(()),
                Taken::Run(run) => {
                    if one_of(&self.device.wrong.misplaced) {
                        inode.end_writeback(run.index, run.pages, Some(ErrorKind::NoSpace));
                        return Err(ErrorKind::NoSpace.into());
                    }
                    wbc.written += run.pages as u64;
                    let (device, inode, takes) = (self.device.clone(), inode.clone(), self.takes.write);
                    let writes = move || {
                        thread::sleep(takes);
                        device.end(&inode, &run);
                    };
                    thread::spawn("device", writes).unwrap();
                }
            }
        }
    }
    fn truncate(&self, inode: &Arc<Inode>, size: u64, _: Timespec) -> Result<()> {
        thread::sleep(self.takes.free);
        let (ino, end) = (inode.ino.0, size.div_ceil(PAGE_SIZE as u64));
        self.device.disk.lock().retain(|at, _| at.0 != ino || at.1 < end);
        inode.attr().size = size;
        Ok(())
    }
    fn block_size(&self) -> u64 {
        PAGE_SIZE as u64
    }
    fn bytes_at_once(&self) -> u64 {
        1 << 40
    }
    fn punch_hole(&self, inode: &Arc<Inode>, bytes: Range<u64>) -> Result<()> {
        thread::sleep(self.takes.free);
        let ino = inode.ino.0;
        let goes = |index: u64| bytes.contains(&(index * PAGE_SIZE as u64));
        self.device.disk.lock().retain(|at, _| at.0 != ino || !goes(at.1));
        Ok(())
    }
    fn preallocate(&self, _: &Arc<Inode>, _: Range<u64>) -> Result<()> {
        Ok(())
    }
    fn has_block(&self, inode: &Inode, pos: u64) -> Result<bool> {
        Ok(self.device.disk.lock().contains_key(&(inode.ino.0, pos / PAGE_SIZE as u64)))
    }
    fn seek(
        &self,
        _: &Inode,
        bytes: Range<u64>,
        _: SeekTarget,
        _: &dyn Fn(u64) -> bool,
    ) -> Result<Option<u64>> {
        Ok(Some(bytes.start))
    }
    fn fsync(&self, _: &Inode, _: bool) -> Result<()> {
        Ok(())
    }
    fn sync_fs(&self) -> Result<()> {
        Ok(())
    }
    fn evict_inode(&self, _: &Inode) -> Result<()> {
        Ok(())
    }
    fn balance(&self) -> Result<()> {
        Ok(())
    }
    fn periodic(&self) {
        self.device.note(What::Periodic);
    }
    fn unmount(&self) -> Result<()> {
        Ok(())
    }
}
