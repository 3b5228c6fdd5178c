//! The effect of the positions of switches.

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

/// A device that holds back file data until the test lets it go.
struct Hold {
    inner: MemoryDevice,
    holds: AtomicBool,
    held: Mutex<Vec<Request>>,
}

/// A new volume on such a device.
fn holding(kind: &str) -> Arc<Hold> {
    holding_made_by(&["-t", kind, "-b", "4096"], "64M")
}

fn holding_made_by(options: &[&str], size: &str) -> Arc<Hold> {
    let dir = scratch();
    let image = dir.path().join("a.img");
    mke2fs(&image, options, size);
    let inner = MemoryDevice::from_bytes(&std::fs::read(&image).unwrap());
    Arc::new(Hold { inner, holds: AtomicBool::new(true), held: Mutex::new(&HELD, Vec::new()) })
}

fn mount(device: Arc<dyn Device>, options: &str) -> Arc<Vfs> {
    mount_behind(device, QueueLimits::default(), options)
}

fn mount_behind(device: Arc<dyn Device>, limits: QueueLimits, options: &str) -> Arc<Vfs> {
    let queue = Arc::new(RequestQueue::new(device, limits));
    let bdi = Bdi::new(MemoryLimits::default());
    let mut how = Ext4Options::default();
    options.split(',').filter(|o| !o.is_empty()).for_each(|o| assert!(how.set(o).unwrap()));
    let fs = Ext4::open(queue, bdi.clone(), how).unwrap();
    Vfs::mount(fs, bdi, MountOptions::default()).unwrap()
}

impl Hold {
    /// Lets the latest request go.
    fn let_last_go(&self) {
        let last = self.held.lock().pop().unwrap();
        self.inner.submit(last);
    }

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

/// Whether an fsync of one file ends while data of another is on its way whose place is in the same
/// transaction.
fn ends_before_data(kind: &str, options: &str) -> bool {
    let device = holding(kind);
    let v = mount(device.clone(), options);
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
    // An fsync that waits would never end; an fsync that does not wait has all the time it needs.
    let mut patience = if kind == "ext3" && how_ordered(options) { 20 } else { 3000 };
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
fn a_commit_waits_for_data_of_block_maps_unless_told() {
    if skip() {
        return;
    }
    for journal in ["jbd2", "pipelined"] {
        assert!(!ends_before_data("ext3", &format!("journal={journal},data=ordered")), "{journal}");
        assert!(ends_before_data("ext3", &format!("journal={journal},data=writeback")), "{journal}");
        // Extents read as zeros until their data has arrived.
        assert!(ends_before_data("ext4", &format!("journal={journal},data=ordered")), "{journal}");
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

/// The content of a file after a power cut at the commit of the transaction in which a program replaced it:
/// by another file's name, or by truncation.
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
        // Without the switch, nothing of the new content is there yet.
        assert_eq!(replaced("noauto_da_alloc", by_name), [0; 0], "by name: {by_name}");
    }
}

/// Data that arrives before earlier data of the file does not raise the size that a power cut leaves, until
/// an fsync promises everything.
#[test]
fn a_power_cut_leaves_no_size_ahead_of_its_data() {
    if skip() {
        return;
    }
    const LEN: usize = 4 << 20;
    let device = holding("ext4");
    let v = mount(device.clone(), "");
    let root = v.root().unwrap();
    let make = |name: &[u8]| {
        let inode = v.create(ROOT, &root, name, 0o644).unwrap();
        v.open(ROOT, &inode, OpenFlags::WRITE).unwrap()
    };
    let after_power_cut = || {
        let mut bytes = vec![0; device.info().size as usize];
        device.inner.read_at(0, &mut bytes);
        let v = mount(Arc::new(MemoryDevice::from_bytes(&bytes)), "ro");
        v.lookup(&v.root().unwrap(), b"a").unwrap().size()
    };
    let (a, b) = (make(b"a"), make(b"b"));
    a.write_at(0, &vec![7; LEN]).unwrap();
    v.fs().writepages(a.inode(), &mut WritebackControl::background(u64::MAX)).unwrap();
    v.bdi().submit_pending();
    let all = a.inode().mapping.nr_writeback();
    let runs = device.held.lock().len();
    device.let_last_go();
    let mut patience = 3000;
    while a.inode().mapping.nr_writeback() == all && patience > 0 {
        thread::sleep(std::time::Duration::from_millis(10));
        patience -= 1;
    }
    b.fsync(false).unwrap();
    let early = after_power_cut();
    device.let_go();
    assert!(runs > 1 && all == LEN as u64 / 4096);
    assert_eq!(early, 0);
    a.fsync(false).unwrap();
    assert_eq!(after_power_cut(), LEN as u64);
    drop((a, b));
    v.unmount().unwrap();
}

/// Blocks of a page that is on its way must stay in use until it has arrived, or it would overwrite their
/// next content.
#[test]
fn a_page_on_its_way_is_written_to_no_other_file() {
    if skip() {
        return;
    }
    for kind in ["ext4", "ext3"] {
        let device = holding_made_by(&["-t", kind, "-b", "1024", "-m", "0"], "8M");
        device.holds.store(false, SeqCst);
        let v = mount(device.clone(), "");
        let make = |v: &Arc<Vfs>, name: &[u8]| {
            let inode = v.create(ROOT, &v.root().unwrap(), name, 0o644).unwrap();
            v.open(ROOT, &inode, OpenFlags::WRITE).unwrap()
        };
        let a = make(&v, b"a");
        a.write_at(0, &[7; 4096]).unwrap();
        a.fsync(false).unwrap();
        device.holds.store(true, SeqCst);
        a.write_at(0, &[8; 4096]).unwrap();
        v.fs().writepages(a.inode(), &mut WritebackControl::background(u64::MAX)).unwrap();
        v.bdi().submit_pending();
        assert!(!device.held.lock().is_empty());
        device.holds.store(false, SeqCst);
        let (done, volume) = (Arc::new(AtomicBool::new(false)), v.clone());
        let ended = done.clone();
        let other = thread::spawn("other", move || {
            a.truncate(1).unwrap();
            // The commit of this fsync frees the blocks. A sync of the whole volume would wait for the page.
            make(&volume, b"c").fsync(false).unwrap();
            let b = make(&volume, b"b");
            let mut at = 0;
            while b.write_at(at, &[9; 1 << 16]).is_ok() {
                at += 1 << 16;
            }
            b.fsync(false).unwrap();
            ended.store(true, SeqCst);
        });
        let other = other.unwrap();
        let mut patience = 50;
        while !done.load(SeqCst) && patience > 0 {
            thread::sleep(std::time::Duration::from_millis(10));
            patience -= 1;
        }
        device.let_go();
        other.join();
        v.unmount().unwrap();
        let mut bytes = vec![0; device.info().size as usize];
        device.inner.read_at(0, &mut bytes);
        let v = mount(Arc::new(MemoryDevice::from_bytes(&bytes)), "ro");
        let b = v.lookup(&v.root().unwrap(), b"b").unwrap();
        let mut read = vec![0; b.size() as usize];
        v.open(ROOT, &b, OpenFlags::READ).unwrap().read_at(0, &mut read).unwrap();
        assert!(read.len() > 4 << 20 && read.iter().all(|b| *b == 9), "{kind}");
    }
}

/// Whether other threads can make changes while a pass over pages that have a place, the first of them
/// perhaps not, waits for a congested queue, and a commit has begun.
fn goes_on(position: &str, first_has_place: bool) -> bool {
    const PAGES: u64 = 256;
    let device = holding("ext4");
    device.holds.store(false, SeqCst);
    let limits = QueueLimits { nr_requests: 4, ..QueueLimits::default() };
    let v = mount_behind(device.clone(), limits, &format!("nomap_first={position}"));
    let make = |name: &[u8]| {
        let inode = v.create(ROOT, &v.root().unwrap(), name, 0o644).unwrap();
        v.open(ROOT, &inode, OpenFlags::WRITE).unwrap()
    };
    let (a, b, c) = (make(b"a"), make(b"b"), make(b"c"));
    let from = if first_has_place { 0 } else { 1 };
    a.write_at(from * 4096, &vec![7; ((PAGES - from) * 4096) as usize]).unwrap();
    a.fsync(false).unwrap();
    device.holds.store(true, SeqCst);
    for page in (0..PAGES).step_by(2) {
        a.write_at(page * 4096, &[8; 4096]).unwrap();
    }
    let (fs, inode) = (v.fs().clone(), a.inode().clone());
    let pass = thread::spawn("pass", move || {
        fs.writepages(&inode, &mut WritebackControl::background(u64::MAX)).unwrap();
    });
    let wait_until = |ready: &dyn Fn() -> bool, mut patience: u32| {
        while !ready() && patience > 0 {
            thread::sleep(std::time::Duration::from_millis(10));
            patience -= 1;
        }
        ready()
    };
    assert!(wait_until(&|| device.held.lock().len() == 4, 3000), "the queue is not full");
    let mode = |n: u32| SetAttr { mode: Some(0o600 + n % 8), ..Default::default() };
    v.setattr(ROOT, b.inode(), &mode(1)).unwrap();
    let syncer = thread::spawn("syncer", move || b.fsync(false).unwrap());
    let (done, volume) = (Arc::new(AtomicBool::new(false)), v.clone());
    let ended = done.clone();
    let other = thread::spawn("other", move || {
        for n in 0..100 {
            volume.setattr(ROOT, c.inode(), &mode(n)).unwrap();
            thread::sleep(std::time::Duration::from_millis(2));
        }
        ended.store(true, SeqCst);
    });
    let waits = position == "off" || position == "on" && !first_has_place;
    let went_on = wait_until(&|| done.load(SeqCst), if waits { 60 } else { 3000 });
    device.let_go();
    [pass, syncer, other].into_iter().for_each(|t| t.unwrap().join());
    drop(a);
    v.unmount().unwrap();
    went_on
}

#[test]
fn a_commit_waits_for_pages_that_are_sent_under_a_handle() {
    if skip() {
        return;
    }
    for (position, first_has_place, went_on) in [
        ("off", true, false),
        ("off", false, false),
        ("on", true, true),
        ("on", false, false),
        ("pipelined", true, true),
        ("pipelined", false, true),
    ] {
        assert_eq!(goes_on(position, first_has_place), went_on, "{position} {first_has_place}");
    }
}

/// A file that is made longer while its data is on its way has that size after a clean unmount, in whatever
/// order the data arrives.
#[test]
fn a_size_that_waits_for_data_is_stored_by_a_sync() {
    if skip() {
        return;
    }
    let device = holding("ext4");
    device.holds.store(false, SeqCst);
    let v = mount(device.clone(), "");
    let inode = v.create(ROOT, &v.root().unwrap(), b"a", 0o644).unwrap();
    let a = v.open(ROOT, &inode, OpenFlags::WRITE).unwrap();
    for page in [0, 3] {
        a.write_at(page * 4096, &[1; 4096]).unwrap();
    }
    a.fsync(false).unwrap();
    device.holds.store(true, SeqCst);
    // One page goes into a hole, and the last one is overwritten in place.
    for page in [1, 3] {
        a.write_at(page * 4096, &[2; 4096]).unwrap();
    }
    v.fs().writepages(a.inode(), &mut WritebackControl::background(u64::MAX)).unwrap();
    v.bdi().submit_pending();
    assert_eq!(device.held.lock().len(), 2);
    a.fallocate(FallocateFlags::empty(), 0, 1 << 20).unwrap();
    // The new block lies behind the others.
    device.let_last_go();
    let mut patience = 3000;
    while a.inode().mapping.nr_writeback() > 1 && patience > 0 {
        thread::sleep(std::time::Duration::from_millis(10));
        patience -= 1;
    }
    device.let_go();
    drop(a);
    v.unmount().unwrap();
    let mut bytes = vec![0; device.info().size as usize];
    device.inner.read_at(0, &mut bytes);
    let v = mount(Arc::new(MemoryDevice::from_bytes(&bytes)), "ro");
    assert_eq!(v.lookup(&v.root().unwrap(), b"a").unwrap().size(), 1 << 20);
}
