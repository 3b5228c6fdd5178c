//! Nodes on their way to a device that is busy keep nobody else waiting.

use crate::file::write_io::Sender;
use crate::format::units::Nid;
use crate::testing::Open;
use crate::testing::hold::{Hold, a_while, held_volume, nothing_is_held};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use tidegate_block::{Device, Request};
use tidegate_rt::{device_wait, sim, thread};
use tidegate_vfs::{Cred, OpenFlags, VolumeOps, WritebackControl};

/// A volume with more dirty nodes than its queue takes.
fn crowded() -> (Arc<Hold>, Open) {
    let (device, open) = held_volume();
    let top = open.vfs.root().unwrap();
    for n in 0..100 {
        drop(open.vfs.create(&Cred::ROOT, &top, format!("f{n}").as_bytes(), 0o644).unwrap());
    }
    device.holds.store(true, SeqCst);
    (device, open)
}

#[test]
fn no_lock_is_held_while_nodes_wait_for_a_congested_queue() {
    sim::run(1, 2, || {
        let (device, open) = crowded();
        let fs = open.fs.clone();
        let flusher = thread::spawn("flusher", move || {
            fs.write_nodes(&mut WritebackControl::background(u64::MAX)).unwrap();
        });
        a_while();
        assert!(open.fs.queue.stats().congested > 0);
        nothing_is_held(&open);
        device.let_go();
        flusher.unwrap().join();
        open.vfs.unmount().unwrap();
    });
}

#[test]
fn no_lock_is_held_while_an_fsync_waits_for_a_node_on_its_way() {
    sim::run(1, 2, || {
        let (device, open) = crowded();
        device.let_go();
        let how = OpenFlags::READ | OpenFlags::WRITE;
        let f = Arc::new(open.vfs.open_path(&Cred::ROOT, b"/f1", how, 0).unwrap());
        open.fs.commit(true).unwrap();
        f.write_at(0, &[1; 8192]).unwrap();
        device.holds.store(true, SeqCst);
        let node = f.inode().ino.0;
        open.fs.write_nodes(&mut WritebackControl::background(u64::MAX)).unwrap();
        open.fs.write_io.submit_all(Sender::Queue);
        let nodes = device.held.lock().len();
        assert!(nodes == 1 && open.fs.node_inode.mapping.is_writeback(node));
        f.write_at(8192, &[2; 4096]).unwrap();
        let again = f.clone();
        let fsync = thread::spawn("fsync", move || again.fsync(false).unwrap());
        a_while();
        // Its data arrives, and then it looks at the node.
        let data: Vec<Request> = device.held.lock().drain(nodes..).collect();
        assert!(!data.is_empty());
        data.into_iter().for_each(|rq| device.below.submit(rq));
        a_while();
        assert!(f.inode().mapping.nr_writeback() == 0 && open.fs.node_inode.mapping.is_writeback(node));
        nothing_is_held(&open);
        assert!(f.inode().rwsem.try_write().is_some(), "a writer of the file may go on");
        device.let_go();
        fsync.unwrap().join();
        open.vfs.unmount().unwrap();
    });
}

#[test]
fn no_lock_is_held_while_a_file_goes_whose_node_is_on_its_way() {
    sim::run(1, 2, || {
        let (device, open) = crowded();
        device.let_go();
        open.fs.commit(true).unwrap();
        let f = open.vfs.open_path(&Cred::ROOT, b"/f1", OpenFlags::READ | OpenFlags::WRITE, 0).unwrap();
        let node = f.inode().ino.0;
        f.write_at(0, &[1; 100]).unwrap();
        drop(f);
        device.holds.store(true, SeqCst);
        open.fs.write_nodes(&mut WritebackControl::background(u64::MAX)).unwrap();
        open.fs.write_io.submit_all(Sender::Queue);
        assert!(open.fs.node_inode.mapping.is_writeback(node));
        let vfs = open.vfs.clone();
        let unlink = thread::spawn("unlink", move || {
            let top = vfs.root().unwrap();
            vfs.unlink(&Cred::ROOT, &top, b"f1").unwrap();
        });
        a_while();
        assert!(open.fs.node_inode.mapping.is_writeback(node));
        nothing_is_held(&open);
        device.let_go();
        unlink.unwrap().join();
        open.vfs.unmount().unwrap();
    });
}

/// A node that is on its way in a bio which this batch fills: nobody else would send it.
#[test]
fn a_checkpoint_sends_what_it_waits_for() {
    sim::run(1, 2, || {
        let (device, open) = crowded();
        device.let_go();
        let fs = &open.fs;
        fs.commit(true).unwrap();
        let nid = |n: u32| {
            let f = open.vfs.open_path(&Cred::ROOT, format!("/f{n}").as_bytes(), OpenFlags::READ, 0).unwrap();
            Nid(f.inode().ino.0 as u32)
        };
        let last = nid(99);
        fs.modify_node(last, |_| ()).unwrap();
        fs.write_nodes(&mut WritebackControl::background(u64::MAX)).unwrap();
        (0..100).map(nid).for_each(|nid| fs.modify_node(nid, |_| ()).unwrap());
        assert!(fs.node_inode.mapping.is_writeback(last.0.into()), "it grows");
        let frozen = fs.cp_rwsem.write();
        let _leave = device_wait::permit("as a checkpoint has it");
        fs.sync_nodes().unwrap();
        drop(frozen);
        open.vfs.unmount().unwrap();
    });
}
