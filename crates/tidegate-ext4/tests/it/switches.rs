//! What the positions of switches do.

use crate::rig::{mke2fs, scratch, skip};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use tidegate_block::{
    BioFlags, Device, DeviceInfo, Errno, MemoryDevice, Op, QueueLimits, Request, RequestQueue,
};
use tidegate_ext4::{Ext4, Ext4Options};
use tidegate_rt::{LockClass, Mutex, thread};
use tidegate_vfs::*;

static HELD: LockClass = LockClass::new("held_data", 994);
const ROOT: &Cred = &Cred::ROOT;

/// A device that keeps file data back until it is let go.
struct Hold {
    inner: MemoryDevice,
    holds: AtomicBool,
    held: Mutex<Vec<Request>>,
}

impl Hold {
    fn let_go(&self) {
        self.holds.store(false, SeqCst);
        let held = std::mem::take(&mut *self.held.lock());
        held.into_iter().for_each(|rq| self.inner.submit(rq));
    }
}

impl Device for Hold {
    fn info(&self) -> DeviceInfo<'_> {
        self.inner.info()
    }
    fn execute(&self, rq: &mut Request) -> std::result::Result<(), Errno> {
        self.inner.execute(rq)
    }
    fn submit(&self, rq: Request) {
        let data = rq.op == Op::Write && !rq.flags.contains(BioFlags::META);
        if data && self.holds.load(SeqCst) {
            self.held.lock().push(rq);
        } else {
            self.inner.submit(rq);
        }
    }
}

/// Whether an fsync of one file ends while the data of another is on its way, which has its place in the same
/// transaction.
fn ends_before_data(options: &str) -> bool {
    let dir = scratch();
    let image = dir.path().join("a.img");
    mke2fs(&image, &["-t", "ext4", "-b", "4096"], "64M");
    let inner = MemoryDevice::from_bytes(&std::fs::read(&image).unwrap());
    let held = Mutex::new(&HELD, Vec::new());
    let device = Arc::new(Hold { inner, holds: AtomicBool::new(true), held });
    let queue = Arc::new(RequestQueue::new(device.clone(), QueueLimits::default()));
    let bdi = Bdi::new(MemoryLimits::default());
    let mut how = Ext4Options::default();
    options.split(',').for_each(|o| assert!(how.set(o).unwrap()));
    let fs = Ext4::open(queue, bdi.clone(), how).unwrap();
    let v = Vfs::mount(fs, bdi, MountOptions::default()).unwrap();
    let make = |name: &[u8]| {
        let inode = v.create(ROOT, &v.root().unwrap(), name, 0o644).unwrap();
        v.open(ROOT, &inode, OpenFlags::WRITE).unwrap()
    };
    let (a, b) = (make(b"a"), make(b"b"));
    a.write_at(0, &[7; 8192]).unwrap();
    v.fs().writepages(a.inode(), &mut WritebackControl::background(u64::MAX)).unwrap();
    v.bdi().submit_pending();
    let done = Arc::new(AtomicBool::new(false));
    let ended = done.clone();
    let syncer = thread::spawn("syncer", move || {
        b.fsync(false).unwrap();
        ended.store(true, SeqCst);
    });
    let syncer = syncer.unwrap();
    // One that waits waits for ever; another has all the time it needs.
    let mut patience = if how_ordered(options) { 20 } else { 3000 };
    while !done.load(SeqCst) && patience > 0 {
        thread::sleep(std::time::Duration::from_millis(10));
        patience -= 1;
    }
    let before = done.load(SeqCst);
    device.let_go();
    syncer.join();
    drop(a);
    v.unmount().unwrap();
    before
}

fn how_ordered(options: &str) -> bool {
    options.contains("data=ordered")
}

#[test]
fn a_commit_waits_for_data_unless_told() {
    if skip() {
        return;
    }
    for journal in ["jbd2", "pipelined"] {
        assert!(!ends_before_data(&format!("journal={journal},data=ordered")), "{journal}");
        assert!(ends_before_data(&format!("journal={journal},data=writeback")), "{journal}");
    }
}

#[test]
fn switches_are_turned_while_the_volume_is_in_use_but_for_its_journal() {
    if skip() {
        return;
    }
    let dir = scratch();
    let image = dir.path().join("a.img");
    mke2fs(&image, &["-t", "ext4"], "64M");
    let (v, fs) = crate::rig::open_with(&image, Ext4Options::default()).unwrap();
    fs.remount("data=writeback,commit=30").unwrap();
    fs.remount("journal=pipelined").unwrap();
    let e = fs.remount("journal=jbd2").unwrap_err().to_string();
    assert!(e.contains("a journal is as it was opened"), "{e}");
    let e = fs.remount("fsync_mode=strict").unwrap_err().to_string();
    assert!(e.contains("ext4 has no switch for option \"fsync_mode=strict\""), "{e}");
    v.unmount().unwrap();
}

/// The content of a file after a power cut that comes when the transaction has committed in which a program replaced it:
/// by another's name, or by cutting it.
fn replaced(options: &str, by_name: bool) -> Vec<u8> {
    let dir = scratch();
    let image = dir.path().join("a.img");
    mke2fs(&image, &["-t", "ext4"], "32M");
    let device = Arc::new(MemoryDevice::from_bytes(&std::fs::read(&image).unwrap()));
    let open = |device: Arc<MemoryDevice>| {
        let queue = Arc::new(RequestQueue::new(device, QueueLimits::default()));
        let bdi = Bdi::new(MemoryLimits::default());
        let mut how = Ext4Options::default();
        assert!(how.set(options).unwrap());
        let fs = Ext4::open(queue, bdi.clone(), how).unwrap();
        Vfs::mount(fs, bdi, MountOptions::default()).unwrap()
    };
    let v = open(device.clone());
    let root = v.root().unwrap();
    let put = |inode: &Arc<Inode>, flags: OpenFlags, content: &[u8]| {
        let f = v.open(ROOT, inode, OpenFlags::WRITE | flags).unwrap();
        f.write_at(0, content).unwrap();
        f
    };
    let old = v.create(ROOT, &root, b"file", 0o644).unwrap();
    put(&old, OpenFlags::empty(), &[1; 9000]).fsync(false).unwrap();
    if by_name {
        let new = v.create(ROOT, &root, b"new", 0o644).unwrap();
        drop(put(&new, OpenFlags::empty(), &[2; 9000]));
        v.rename(ROOT, (&root, b"new"), (&root, b"file"), RenameFlags::empty()).unwrap();
    } else {
        let f = v.open(ROOT, &old, OpenFlags::WRITE).unwrap();
        f.truncate(0).unwrap();
        f.write_at(0, &[2; 9000]).unwrap();
        drop(f);
        v.bdi().submit_pending();
        old.mapping.wait_writeback(0, u64::MAX);
    }
    let other = v.create(ROOT, &root, b"other", 0o644).unwrap();
    v.open(ROOT, &other, OpenFlags::WRITE).unwrap().fsync(false).unwrap();
    let mut bytes = vec![0; device.info().size as usize];
    let queue = RequestQueue::new(device, QueueLimits::default());
    for (n, page) in bytes.chunks_mut(4096).enumerate() {
        let sector = tidegate_block::Sector::from_bytes(n as u64 * 4096);
        page.copy_from_slice(&queue.read_wait(sector, 1, BioFlags::empty()).unwrap());
    }
    v.unmount().unwrap();
    let v = open(Arc::new(MemoryDevice::from_bytes(&bytes)));
    let file = v.lookup(&v.root().unwrap(), b"file").unwrap();
    let mut content = vec![0; 20_000];
    let n = v.open(ROOT, &file, OpenFlags::READ).unwrap().read_at(0, &mut content).unwrap();
    content.truncate(n);
    v.unmount().unwrap();
    content
}

#[test]
fn a_file_that_is_replaced_is_not_empty_after_a_power_cut() {
    if skip() {
        return;
    }
    for by_name in [true, false] {
        assert_eq!(replaced("auto_da_alloc", by_name), [2; 9000], "by name: {by_name}");
        // As it is without: nothing of the new one is there yet.
        assert_eq!(replaced("noauto_da_alloc", by_name), [0; 0], "by name: {by_name}");
    }
}
