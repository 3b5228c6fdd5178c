//! Data that reaches the device before data that was sent earlier: a commit meanwhile leaves a volume that
//! e2fsck calls clean, and no size is ahead of its data.

use crate::common::volume::{fresh, fsck, open_rw};
use crate::rig::{Gate, skip};
use std::sync::Arc;
use std::time::Duration;
use tidegate_block::{BioFlags, Errno, MemoryDevice, Op};
use tidegate_rt::{clock, thread};
use tidegate_vfs::*;

const ROOT: &Cred = &Cred::ROOT;

fn send(v: &Vfs, file: &File) {
    v.fs().writepages(file.inode(), &mut WritebackControl::background(u64::MAX)).unwrap();
}

fn create(v: &Arc<Vfs>, name: &[u8]) -> File {
    let inode = v.create(ROOT, &v.root().unwrap(), name, 0o644).unwrap();
    v.open(ROOT, &inode, OpenFlags::READ | OpenFlags::WRITE).unwrap()
}

/// The size of the file after a power cut now.
fn size_after_a_cut(device: &MemoryDevice) -> std::result::Result<u64, String> {
    let cut = Arc::new(device.copy());
    fsck(&cut)?;
    let (_, v) = open_rw(cut, MemoryLimits::default(), clock::realtime()).unwrap();
    let size = v.lookup(&v.root().unwrap(), b"f").unwrap().size();
    v.unmount().unwrap();
    Ok(size)
}

/// Writes a page that the device holds back, and one behind it that the device takes, and commits. Checks the
/// state after a power cut then, and again after the first page has arrived or is lost.
fn overtaken(block: &str, fails: bool) {
    let below = fresh(32, &["-t", "ext4", "-b", block]);
    let gate = Gate::new(below.clone(), |rq| rq.op == Op::Write && !rq.flags.contains(BioFlags::META));
    let (_, v) = open_rw(gate.clone(), MemoryLimits::default(), clock::realtime()).unwrap();
    let (f, other) = (create(&v, b"f"), create(&v, b"other"));
    v.sync().unwrap();
    f.write_at(0, &[1; 4096]).unwrap();
    send(&v, &f);
    f.write_at(40_960, &[2; 5000]).unwrap();
    send(&v, &f);
    // The second page gets time to be marked, if that is allowed.
    thread::sleep(Duration::from_millis(200));
    other.write_at(0, b"other").unwrap();
    other.fsync(false).unwrap();
    let size_after_a_cut = || size_after_a_cut(&below);
    let on_the_way = size_after_a_cut();
    gate.let_go(if fails { Err(Errno::IO) } else { Ok(()) });
    assert_eq!(on_the_way, Ok(0), "{block}");
    if fails {
        assert_eq!(f.fsync(false).unwrap_err().kind(), ErrorKind::Io);
    }
    f.fsync(false).unwrap();
    assert_eq!(size_after_a_cut(), Ok(45_960), "{block}");
    let mut bytes = [0; 45_960];
    assert_eq!(f.read_at(0, &mut bytes).unwrap(), 45_960);
    assert!(bytes[..4096] == [1; 4096] && bytes[40_960..] == [2; 5000]);
    drop((f, other));
    v.unmount().unwrap();
    drop(v);
    fsck(&below).unwrap();
}

#[test]
fn data_behind_data_on_its_way_is_marked_with_it() {
    if skip() {
        return;
    }
    for block in ["1024", "2048", "4096"] {
        overtaken(block, false);
    }
}

#[test]
fn data_behind_data_that_was_lost_is_marked() {
    if skip() {
        return;
    }
    for block in ["1024", "4096"] {
        overtaken(block, true);
    }
}

#[test]
fn a_file_is_as_long_as_what_was_sent_of_it() {
    if skip() {
        return;
    }
    for block in ["1024", "4096"] {
        let device = fresh(32, &["-t", "ext4", "-b", block]);
        let (_, v) = open_rw(device.clone(), MemoryLimits::default(), clock::realtime()).unwrap();
        let (f, other) = (create(&v, b"f"), create(&v, b"other"));
        v.sync().unwrap();
        // There are two runs of pages; a pass has room for one.
        f.write_at(0, &[1; 4 * 4096]).unwrap();
        f.write_at(40_960, &[2; 5000]).unwrap();
        v.fs().writepages(f.inode(), &mut WritebackControl::background(1)).unwrap();
        v.bdi().submit_pending();
        f.inode().mapping.wait_writeback(0, u64::MAX);
        other.write_at(0, b"other").unwrap();
        other.fsync(false).unwrap();
        assert_eq!(size_after_a_cut(&device), Ok(4 * 4096), "{block}");
        drop((f, other));
        v.unmount().unwrap();
    }
}

#[test]
fn a_page_that_got_longer_on_its_way_makes_its_file_no_longer_than_it_was() {
    if skip() {
        return;
    }
    for block in ["1024", "4096"] {
        let below = fresh(32, &["-t", "ext4", "-b", block]);
        let gate = Gate::new(below.clone(), |rq| rq.op == Op::Write && !rq.flags.contains(BioFlags::META));
        let (_, v) = open_rw(gate.clone(), MemoryLimits::default(), clock::realtime()).unwrap();
        let (f, other) = (create(&v, b"f"), create(&v, b"other"));
        v.sync().unwrap();
        f.write_at(0, &[1; 2000]).unwrap();
        send(&v, &f);
        f.write_at(2000, &[2; 1000]).unwrap();
        gate.let_go(Ok(()));
        f.inode().mapping.wait_writeback(0, u64::MAX);
        other.write_at(0, b"other").unwrap();
        other.fsync(false).unwrap();
        assert_eq!(size_after_a_cut(&below), Ok(2000), "{block}");
        f.fsync(false).unwrap();
        assert_eq!(size_after_a_cut(&below), Ok(3000), "{block}");
        drop((f, other));
        v.unmount().unwrap();
    }
}
