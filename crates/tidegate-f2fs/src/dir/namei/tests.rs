use super::*;
use crate::file::write_io::{Grown, Sender};
use crate::testing::hold::{a_while, held_volume, nothing_is_held};
use crate::testing::new_volume;
use tidegate_block::{Errno, Fault, Op, Rule};
use tidegate_rt::{sim, thread};
use tidegate_vfs::{Cred, FileSystem, WritebackControl};

/// The first block's NAT block cannot be read, or the first block cannot be written.
#[test]
fn a_first_block_that_fails_is_not_counted() {
    let open = new_volume();
    let nid = Nid(open.fs.sb.max_nid - 1);
    let blocks = || open.fs.counts.lock().valid_blocks;
    let before = blocks();
    for op in [Op::Read, Op::Write] {
        open.device.set([Rule::new(Fault::Fail(Errno::IO)).op(op)]);
        assert!(open.fs.place_first_block(nid, b"x").is_err(), "{op:?}");
        assert_eq!(blocks(), before, "{op:?}");
    }
    open.device.set([]);
    open.fs.place_first_block(nid, b"x").unwrap();
    assert_eq!(blocks(), before + 1);
}

#[test]
fn no_lock_is_held_while_a_block_that_becomes_empty_is_on_its_way() {
    sim::run(1, 2, || {
        let (device, open) = held_volume();
        let top = open.vfs.root().unwrap();
        let name = |n: u32| format!("f{n}").into_bytes();
        (0..600).for_each(|n| drop(open.vfs.create(&Cred::ROOT, &top, &name(n), 0o644).unwrap()));
        device.holds.store(true, SeqCst);
        FileSystem::writepages(&*open.fs, &top, &mut WritebackControl::background(u64::MAX)).unwrap();
        open.fs.write_io.submit(Grown::All(Sender::Queue));
        assert!(top.mapping.nr_writeback() > 1);
        let vfs = open.vfs.clone();
        let unlinks = thread::spawn("unlinks", move || {
            let top = vfs.root().unwrap();
            (0..600).for_each(|n| vfs.unlink(&Cred::ROOT, &top, &name(n)).unwrap());
        });
        a_while();
        nothing_is_held(&open);
        device.let_go();
        unlinks.unwrap().join();
        assert!(open.vfs.entries(&top).unwrap().is_empty());
        open.vfs.unmount().unwrap();
    });
}
