//! Nodes on their way to a busy device must not make other threads wait.

use crate::file::write_io::{Grown, Sender};
use crate::format::raw::{ADDRS_PER_BLOCK, BLOCK_SIZE, I_NID_OFFSET, word};
use crate::format::units::Nid;
use crate::inode::{NodeId, fi};
use crate::node::dnode::Found;
use crate::testing::Open;
use crate::testing::hold::{Hold, a_while, held_volume, nothing_is_held};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use tidegate_block::{Device, Request};
use tidegate_rt::{device_wait, sim, thread};
use tidegate_vfs::{Cred, File, OpenFlags, Vfs, VolumeOps, WritebackControl, XattrFlags};

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
        open.fs.write_io.submit(Grown::All(Sender::Queue));
        let nodes = device.held.lock().len();
        assert!(nodes == 1 && open.fs.node_inode.mapping.is_writeback(node));
        f.write_at(8192, &[2; 4096]).unwrap();
        let again = f.clone();
        let fsync = thread::spawn("fsync", move || again.fsync(false).unwrap());
        a_while();
        // The fsync's data arrives, and then the fsync looks at the node.
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
        open.fs.write_io.submit(Grown::All(Sender::Queue));
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

/// The node is on its way in a bio which this batch fills: no other thread would send the bio.
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

/// Pages from one node of addresses to the next.
const EACH: u64 = ADDRS_PER_BLOCK as u64;
const NODES: u64 = 40;

/// A file with a page in each of many nodes, all of them on the volume; its inode's node is not on its way.
fn sparse_file(open: &Open) -> File {
    let how = OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE;
    let f = open.vfs.open_path(&Cred::ROOT, b"/f", how, 0o644).unwrap();
    (1..NODES).for_each(|n| assert!(f.write_at(n * EACH * BLOCK_SIZE as u64, &[1; 100]).is_ok()));
    open.vfs.sync().unwrap();
    f
}

/// The node with the address of a page.
fn node_at(open: &Open, f: &File, page: u64) -> Nid {
    match open.fs.find_dnode(f.inode(), page).unwrap() {
        Found::At(d) => d.nid,
        Found::Hole(_) => panic!("page {page} has no node"),
    }
}

/// Runs `change` while a node is on its way to a device that does not take it, then calls `look`. No lock
/// that checkpoints want may be held meanwhile.
fn change_beside(
    (device, open): &(Arc<Hold>, Open),
    node: Nid,
    change: impl FnOnce(&Vfs) + Send + 'static,
    look: impl FnOnce(),
) {
    open.fs.modify_node(node, |_| ()).unwrap();
    device.holds.store(true, SeqCst);
    open.fs.write_nodes(&mut WritebackControl::background(u64::MAX)).unwrap();
    open.fs.write_io.submit(Grown::All(Sender::Queue));
    let vfs = open.vfs.clone();
    let changes = thread::spawn("changes", move || change(&vfs));
    a_while();
    assert!(open.fs.node_inode.mapping.is_writeback(node.0.into()));
    nothing_is_held(open);
    look();
    device.let_go();
    changes.unwrap().join();
}

#[test]
fn no_lock_is_held_while_a_file_is_cut_whose_nodes_are_on_their_way() {
    sim::run(1, 2, || {
        let volume = held_volume();
        let f = Arc::new(sparse_file(&volume.1));
        let (theirs, middle) = (f.clone(), NODES / 2 * EACH);
        let node = node_at(&volume.1, &f, middle);
        let half = || {
            let pages = f.size() / BLOCK_SIZE as u64;
            assert!((middle..middle + EACH).contains(&pages), "it is cut as far as that node: {pages} pages");
        };
        change_beside(&volume, node, move |_| theirs.truncate(0).unwrap(), half);
        assert_eq!((f.size(), f.inode().attr().blocks), (0, 0));
        drop(f);
        volume.1.vfs.unmount().unwrap();
    });
}

/// The node on its way begins where the file is to end: it is empty when the truncation waits for it.
#[test]
fn a_file_that_is_cut_to_where_a_tree_begins_keeps_no_node_of_the_tree() {
    sim::run(1, 2, || {
        let volume = held_volume();
        let f = Arc::new(sparse_file(&volume.1));
        let start = fi(f.inode()).addrs_per_inode() as u64 + 2 * EACH;
        let (own, place) = (f.inode().nid(), I_NID_OFFSET / 4 + 2);
        let root = Nid(word(volume.1.fs.node_of(own, f.inode().ino.0).unwrap().bytes(), place));
        let theirs = f.clone();
        change_beside(&volume, root, move |_| theirs.truncate(start * BLOCK_SIZE as u64).unwrap(), || ());
        assert_eq!(
            volume.1.fs.counts.lock().valid_nodes,
            4,
            "those of the top directory and of the file, and two direct ones"
        );
        drop(f);
        volume.1.vfs.unmount().unwrap();
    });
}

#[test]
fn no_lock_is_held_while_a_file_goes_one_of_whose_nodes_is_on_its_way() {
    sim::run(1, 2, || {
        let volume = held_volume();
        let f = sparse_file(&volume.1);
        let node = node_at(&volume.1, &f, NODES / 2 * EACH);
        let unlink = |vfs: &Vfs| vfs.unlink(&Cred::ROOT, &vfs.root().unwrap(), b"f").unwrap();
        change_beside(&volume, node, move |vfs| (unlink(vfs), drop(f)).1, || ());
        assert_eq!(volume.1.fs.counts.lock().valid_nodes, 1, "the top directory's");
        volume.1.vfs.unmount().unwrap();
    });
}

#[test]
fn no_lock_is_held_while_attributes_go_whose_node_is_on_its_way() {
    sim::run(1, 2, || {
        let volume = held_volume();
        let f = Arc::new(sparse_file(&volume.1));
        let set = |vfs: &Vfs, f: &File, value: Option<&[u8]>| {
            vfs.setxattr(&Cred::ROOT, f.inode(), b"user.a", value, XattrFlags::empty()).unwrap();
        };
        set(&volume.1.vfs, &f, Some(&[1; 3000]));
        volume.1.vfs.sync().unwrap();
        let node = Nid(fi(f.inode()).xattr_nid.load(SeqCst));
        let theirs = f.clone();
        change_beside(&volume, node, move |vfs| set(vfs, &theirs, None), || ());
        assert!(volume.1.vfs.listxattr(&Cred::ROOT, f.inode()).unwrap().is_empty());
        drop(f);
        volume.1.vfs.unmount().unwrap();
    });
}
