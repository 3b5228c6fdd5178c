//! Free space that is being discarded: it is usable again soon, and threads that need it wait.

use crate::common::volume::{fresh, fsck, open_rw};
use crate::rig::{Gate, skip};
use std::time::Duration;
use tidegate_block::Op;
use tidegate_rt::{clock, thread};
use tidegate_vfs::*;

const ROOT: &Cred = &Cred::ROOT;

/// A run that is being discarded is needed for data whose space was promised.
#[test]
fn data_that_was_promised_space_waits_for_a_discard() {
    if skip() {
        return;
    }
    for args in [&["-t", "ext4", "-b", "2048"][..], &["-t", "ext4", "-b", "2048", "-O", "^has_journal"]] {
        let below = fresh(16, args);
        let gate = Gate::new(below.clone(), |rq| rq.op == Op::Discard);
        let (fs, v) = open_rw(gate.clone(), MemoryLimits::default(), clock::realtime()).unwrap();
        let inode = v.create(ROOT, &v.root().unwrap(), b"f", 0o644).unwrap();
        let f = v.open(ROOT, &inode, OpenFlags::WRITE).unwrap();
        v.sync().unwrap();
        let trimmer = thread::spawn("trimmer", move || fs.trim(0..u64::MAX, 4 << 20)).unwrap();
        let begun = clock::now();
        while !gate.is_kept() {
            assert!(
                clock::now().since(begun).duration() < Duration::from_secs(20),
                "{args:?}: no discard came"
            );
            thread::sleep(Duration::from_millis(1));
        }
        // The file needs more than is free beside the run that is being discarded.
        let bytes = v.statfs().blocks_available * 2048 * 3 / 4;
        f.write_at(0, &vec![7; bytes as usize]).unwrap();
        let file = v.open(ROOT, &inode, OpenFlags::WRITE).unwrap();
        let writer = thread::spawn("writer", move || file.fsync(false)).unwrap();
        thread::sleep(Duration::from_millis(100));
        gate.let_go(Ok(()));
        let written = writer.join();
        assert!(written.is_ok(), "{args:?}: {written:?}");
        assert!(trimmer.join().unwrap() > 0);
        drop((f, inode));
        v.unmount().unwrap();
        drop(v);
        fsck(&below).unwrap();
    }
}
