//! `flush_merge`: one flush of the device for all fsyncs that wait for one.

use crate::bed::{Bed, PAGE, each_seed};
use std::sync::Arc;
use tidegate_block::{Fault, Op, Rule};
use tidegate_rt::thread;

const FILES: u64 = 8;

/// Flushes for one fsync of each of several files at once.
fn flushes(bed: &Arc<Bed>) -> u64 {
    let files: Vec<_> = (0..FILES).map(|n| bed.open(&format!("/{n}"))).collect();
    files.iter().for_each(|f| assert!(f.write_at(0, &[1; 2 * PAGE]).is_ok()));
    bed.fs.write_checkpoint(true).unwrap();
    bed.device.set([Rule::new(Fault::Late(std::time::Duration::from_millis(10))).op(Op::Flush)]);
    let before = bed.queue.stats().flushes;
    let fsync = |f: tidegate_vfs::File| {
        let body = move || {
            f.write_at(0, &[2; PAGE]).unwrap();
            f.fsync(false).unwrap();
        };
        thread::spawn("fsync", body).unwrap()
    };
    let all: Vec<_> = files.into_iter().map(fsync).collect();
    all.into_iter().for_each(thread::JoinHandle::join);
    bed.queue.stats().flushes - before
}

#[test]
fn fsyncs_share_flushes_where_they_may() {
    for n in each_seed(0..4, "flush_merge", flushes) {
        assert!((1..=FILES / 2).contains(&n), "{n} flushes for {FILES} fsyncs");
    }
    for n in each_seed(0..4, "noflush_merge", flushes) {
        assert!(n >= FILES, "{n} flushes for {FILES} fsyncs");
    }
    for n in each_seed(0..4, "fsync_mode=nobarrier", flushes) {
        assert_eq!(n, 0, "nobarrier flushes nothing");
    }
}
