//! Synchronous bios (`REQ_SYNC`): bios that a thread waits for.

use crate::format::units::BlockAddr;
use crate::testing::{Open, new_volume_on};
use std::sync::Arc;
use tidegate_block::{BioFlags, MemoryDevice, Op, Record, Recorder};
use tidegate_vfs::{Cred, File, FileSystem, Inode, OpenFlags, WritebackControl};

/// The content of a block of the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Area {
    /// Checkpoint, SIT, NAT, SSA.
    Meta,
    Node,
    /// Files and directories.
    Data,
}

fn recorded_volume() -> (Arc<Recorder>, Open) {
    let device = Arc::new(Recorder::new(Arc::new(MemoryDevice::new(64 << 20))));
    let open = new_volume_on(device.clone());
    (device, open)
}

fn area(open: &Open, rq: &Record) -> Area {
    match rq.flags.contains(BioFlags::META) {
        _ if rq.sector < BlockAddr(open.fs.sb.main_blkaddr).sector() => Area::Meta,
        true => Area::Node,
        false => Area::Data,
    }
}

/// Whether all writes to an area were synchronous, rather than none. There must be a write.
fn synchronous(open: &Open, writes: &[Record], of: Area) -> bool {
    let to_area = writes.iter().filter(|rq| rq.op == Op::Write && area(open, rq) == of);
    let sync: Vec<bool> = to_area.map(|rq| rq.flags.contains(BioFlags::SYNC)).collect();
    let all = sync.first().copied();
    assert!(all.is_some() && sync.iter().all(|s| Some(*s) == all), "{of:?}: {sync:?}");
    all == Some(true)
}

fn file(open: &Open, path: &str) -> File {
    let how = OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE;
    open.vfs.open_path(&Cred::ROOT, path.as_bytes(), how, 0o644).unwrap()
}

/// Makes directories' blocks and nodes dirty.
fn change_names(open: &Open) {
    for n in 0..400 {
        drop(file(open, &format!("/a-name-of-a-file-{n}")));
    }
}

/// Writes an inode's pages in a pass that no thread waits for.
fn write_in_background(open: &Open, inode: &Arc<Inode>) {
    let pass = &mut WritebackControl::background(u64::MAX);
    FileSystem::writepages(&*open.fs, inode, pass).unwrap();
    assert!(pass.written > 0, "{} has dirty pages", inode.ino);
    open.vfs.bdi().submit_pending();
}

#[test]
fn all_that_a_checkpoint_writes_is_synchronous() {
    let (device, open) = recorded_volume();
    change_names(&open);
    device.take();
    open.fs.checkpoint(false).unwrap();
    let writes = device.take();
    for of in [Area::Meta, Area::Node, Area::Data] {
        assert!(synchronous(&open, &writes, of), "{of:?}");
    }
}

/// The flusher's writes, unlike a checkpoint's, are not synchronous: no thread waits for them.
#[test]
fn files_and_nodes_that_the_flusher_writes_are_not() {
    let (device, open) = recorded_volume();
    change_names(&open);
    let f = file(&open, "/f");
    f.write_at(0, &[1; 100 << 10]).unwrap();
    device.take();
    write_in_background(&open, f.inode());
    write_in_background(&open, &open.fs.node_inode);
    let writes = device.take();
    for of in [Area::Node, Area::Data] {
        assert!(!synchronous(&open, &writes, of), "{of:?}");
    }
}

/// The next checkpoint may find such a block on its way, and has operations frozen then.
#[test]
fn a_block_of_the_metadata_area_is_whoever_writes_it() {
    let (device, open) = recorded_volume();
    open.fs.meta.modify(open.fs.sb.ssa_blkaddr, |b| b[0] ^= 1).unwrap();
    device.take();
    write_in_background(&open, &open.fs.meta.inode);
    assert!(synchronous(&open, &device.take(), Area::Meta));
}
