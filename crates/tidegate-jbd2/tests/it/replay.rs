//! Whole and torn logs give exactly their whole transactions.

use crate::image::{Bed, Chance, Seed, VOLUME, seeds};
use crate::writer::Writer;
use std::collections::BTreeMap;
use tidegate_jbd2::Tid;

#[test]
fn a_log_is_replayed() {
    for seed in seeds(0..100) {
        let _seed = Seed(seed);
        let mut chance = Chance::new(seed);
        let shape = chance.shape();
        let old = chance.0.bytes(shape.len as usize * shape.block_size);
        let w = chance.log(shape, 0..VOLUME);
        let bed = Bed::new(&w.log(&old, w.writes.len()), w.shape.block_size);
        let replay = bed.recover().unwrap();
        let (_, last) = w.states.last().unwrap();
        assert_eq!(&bed.found(&replay), last);
        let transactions = w.states.len() as u32 - 1;
        assert_eq!((replay.is_clean(), replay.stats().transactions), (false, transactions));
        let end = Tid(w.shape.tid.wrapping_add(transactions));
        assert_eq!((replay.tids(), replay.next_tid()), ((Tid(w.shape.tid), end), end.next()));
        write_out(&bed, last, end);
    }
}

/// Checks that the blocks are written as they were read, and that the log is clean then.
fn write_out(bed: &Bed, expected: &BTreeMap<u64, Vec<u8>>, end: Tid) {
    let replay = bed.recover().unwrap();
    replay.write_out(&bed.queue).unwrap();
    for at in 0..VOLUME {
        let mut b = vec![0; bed.block_size];
        bed.device.read_at(at * bed.block_size as u64, &mut b);
        assert!(expected.get(&at).map_or_else(|| b.iter().all(|b| *b == 0), |e| *e == b), "block {at}");
    }
    let after = bed.recover().unwrap();
    assert_eq!((after.is_clean(), after.blocks().count()), (true, 0));
    assert_eq!(after.tids(), (end.next(), end.next()));
}

/// The log is cut behind each of its writes, on top of an older log.
#[test]
fn a_torn_log_gives_its_whole_transactions() {
    for seed in seeds(0..24) {
        let _seed = Seed(seed);
        let mut chance = Chance::new(seed);
        let mut shape = chance.shape();
        shape.block_size = 1024;
        let mut older = shape.clone();
        older.tid = shape.tid.wrapping_sub(60);
        older.start = 1;
        let mut old = Writer::new(older);
        old.time -= 1000;
        while old.room() > 20 {
            let t = chance.transaction(shape.block_size, 0..VOLUME);
            old.transaction(&t);
            if old.cost(&t) > old.room() {
                break;
            }
        }
        let old = old.log(&[], old.writes.len());
        let w = chance.log(shape, 0..VOLUME);
        for writes in 0..=w.writes.len() {
            let bed = Bed::new(&w.log(&old, writes), w.shape.block_size);
            let replay = bed.recover().unwrap();
            let (_, expected) = w.states.iter().rfind(|(n, _)| *n <= writes).unwrap();
            assert_eq!(&bed.found(&replay), expected, "{writes} writes");
        }
    }
}

/// A record is valid even if the device kept only its first sector, as in the kernel.
#[test]
fn a_record_is_whole_by_its_first_sector() {
    let mut chance = Chance::new(3);
    let mut shape = chance.shape();
    (shape.sums, shape.block_size, shape.len, shape.start) = (crate::writer::Sums::V3, 4096, 40, 1);
    let mut w = Writer::new(shape);
    w.transaction(&chance.transaction(4096, 0..VOLUME));
    let (last, _) = *w.writes.last().map(|(at, b)| (*at, b)).as_ref().unwrap();
    let mut log = w.log(&[], w.writes.len());
    log[last as usize * 4096 + 512..][..3584].fill(7);
    let bed = Bed::new(&log, 4096);
    assert_eq!(bed.recover().unwrap().stats().transactions, 1);
    log[last as usize * 4096 + 40] = 1;
    let bed = Bed::new(&log, 4096);
    let replay = bed.recover().unwrap();
    assert_eq!((replay.stats().transactions, replay.failed_commit()), (0, Some(replay.tids().0)));
}
