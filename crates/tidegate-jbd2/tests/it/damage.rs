//! Damaged logs: recovery returns an error or a result, never panics or loops, and with crc32c never returns
//! a wrong block.

use crate::image::{Bed, Chance, Seed, VOLUME, seeds};
use crate::writer::{MAGIC, Sums, Transaction, Writer};
use tidegate_jbd2::{FsBlock, Log, Run, recover, salvage};
use tidegate_vfs::{At, Error, ErrorKind};

#[test]
fn a_damaged_log_with_crc32c_gives_whole_transactions_or_an_error() {
    let (mut errors, mut results) = (0, 0);
    for seed in seeds(0..500) {
        let _seed = Seed(seed);
        let mut chance = Chance::new(seed);
        let mut shape = chance.shape();
        (shape.sums, shape.block_size) = (Sums::V3, 1024);
        let w = chance.log(shape, 0..VOLUME);
        let mut log = w.log(&[], w.writes.len());
        for _ in 0..1 + chance.below(3) {
            let at = match chance.one_in(10) {
                true => chance.below(1024),
                false => chance.below(log.len() as u64 - 1024) + 1024,
            };
            log[at as usize] ^= 1 << chance.below(8);
        }
        let bed = Bed::new(&log, 1024);
        match bed.recover() {
            Ok(replay) => {
                results += 1;
                let found = bed.found(&replay);
                assert!(w.states.iter().any(|(_, s)| *s == found), "no state of the volume");
            }
            Err(e) => {
                errors += 1;
                assert!(matches!(e.kind(), ErrorKind::Corrupt | ErrorKind::Unsupported), "{e}");
                assert!(e.places().next().is_some(), "{e} does not say where");
                left(&bed, &w, &e);
            }
        }
    }
    assert!(errors > 0 && results > 0 || std::env::var_os("TIDEGATE_SEED").is_some());
}

/// The part of a refused log that a repair gets: unchanged blocks, and the reason of the refusal.
fn left(bed: &Bed, w: &Writer, why: &Error) {
    let Ok((replay, damage)) = salvage(bed.log.clone(), VOLUME) else {
        assert_eq!(why.places().next(), Some(&At::The("journal superblock (log block 0)")), "{why}");
        return;
    };
    assert_eq!(damage.first(), Some(why));
    for (at, bytes) in bed.found(&replay) {
        assert!(w.states.iter().any(|(_, s)| s.get(&at) == Some(&bytes)), "block {at}");
    }
}

/// Blocks of any kind with plausible numbers, and arbitrary bytes behind their headers.
#[test]
fn a_log_of_garbage_ends() {
    for seed in seeds(0..500) {
        let _seed = Seed(seed);
        let mut chance = Chance::new(seed);
        let mut shape = chance.shape();
        shape.block_size = 1024;
        let tid = shape.tid;
        let w = chance.log(shape, 0..VOLUME);
        let mut log = w.log(&[], 0);
        let dense = chance.one_in(2);
        for block in log.chunks_mut(1024).skip(1) {
            chance.0.fill(block);
            if dense {
                // The flag of the last tag is cleared in all tags.
                block.iter_mut().for_each(|b| *b &= 2);
            }
            let kind = [1, 1, 5, 2, 7][chance.below(if dense { 1 } else { 5 }) as usize];
            let header = [MAGIC, kind, tid.wrapping_add(chance.below(2) as u32)];
            for (to, n) in block.chunks_mut(4).zip(header) {
                to.copy_from_slice(&n.to_be_bytes());
            }
        }
        let bed = Bed::new(&log, 1024);
        let (found, salvaged) = (bed.recover(), salvage(bed.log.clone(), VOLUME).unwrap());
        assert_eq!(found.is_ok(), salvaged.1.is_empty());
    }
}

/// A superblock of arbitrary bytes, and a sound one with some bytes changed.
#[test]
fn a_superblock_of_garbage_is_refused() {
    for seed in seeds(0..500) {
        let _seed = Seed(seed);
        let mut chance = Chance::new(seed);
        let mut shape = chance.shape();
        (shape.sums, shape.block_size) = (Sums::None, 1024);
        let w = chance.log(shape, 0..VOLUME);
        let mut log = w.log(&[], w.writes.len());
        for _ in 0..1 + chance.below(4) {
            let at = 4 * (1 + chance.below(24)) as usize;
            let n = *chance.0.pick(&[0, 1, 2, 3, 40, 255, 1 << 20, u32::MAX - 1, u32::MAX]);
            log[at..at + 4].copy_from_slice(&n.to_be_bytes());
        }
        let bed = Bed::new(&log, 1024);
        if let Ok(replay) = bed.recover() {
            let _ = replay.fast_commits().count();
            let _ = replay.write_out(&bed.queue);
        }
    }
}

/// A device's block is one block of the log, and a block of the volume is requested in its own size.
#[test]
fn blocks_are_met_once_and_whole() {
    let mut chance = Chance::new(5);
    let mut shape = chance.shape();
    shape.block_size = 4096;
    let mut w = Writer::new(shape);
    let t = Transaction { blocks: vec![(3, chance.block(4096))], revokes: Vec::new() };
    w.transaction(&t);
    let bed = Bed::new(&w.log(&[], w.writes.len()), 4096);
    let replay = bed.recover().unwrap();
    let e = replay.read(FsBlock(3), &mut [0; 1024]).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::InvalidArgument, "{e}");

    let run = |first, len| Run { first: FsBlock(first), len };
    for (runs, whole) in [
        ([run(8, 4), run(4, 4), run(12, 1)], true),
        ([run(8, 4), run(4, 5), run(20, 1)], false),
        ([run(8, 4), run(30, 4), run(9, 1)], false),
    ] {
        let log = Log::new(bed.queue.clone(), 4096, runs);
        let told = log.err().map(|e| e.to_string()).unwrap_or_default();
        assert!(if whole { told.is_empty() } else { told.contains("lies in the blocks of") }, "{told}");
    }
}

/// Three transactions of one block each, from log block 1 on, in a log of 40 blocks of 4 KiB, the size of one
/// read.
fn three() -> (Writer, Bed) {
    let mut chance = Chance::new(6);
    let mut shape = chance.shape();
    (shape.sums, shape.block_size, shape.len, shape.start) = (Sums::V3, 4096, 40, 1);
    let mut w = Writer::new(shape);
    for block in 3..6 {
        w.transaction(&Transaction { blocks: vec![(block, chance.block(4096))], revokes: Vec::new() });
    }
    let bed = Bed::new(&w.log(&[], w.writes.len()), 4096);
    assert_eq!(w.writes.last().unwrap().0, 9);
    (w, bed)
}

/// Recovery reads the block behind the last transaction, but no later ones.
#[test]
fn blocks_that_recovery_does_not_need_may_be_unreadable() {
    let (w, bed) = three();
    let replay = recover(bed.unreadable(&[11, 12, 20]), VOLUME).unwrap();
    assert_eq!(bed.found(&replay), w.states[3].1);
    assert_eq!(recover(bed.unreadable(&[4]), VOLUME).err().unwrap().kind(), ErrorKind::Io);
}

/// Whole transactions remain behind the damage: new transactions get numbers that none of them has.
#[test]
fn a_log_that_is_cut_short_uses_no_number_again() {
    let (w, bed) = three();
    let mut damaged = w.log(&[], w.writes.len());
    damaged[4 * 4096 + 12] ^= 1;
    for (log, kind) in
        [(Bed::new(&damaged, 4096).log, ErrorKind::Corrupt), (bed.unreadable(&[4]), ErrorKind::Io)]
    {
        let (replay, damage) = salvage(log, VOLUME).unwrap();
        assert_eq!(damage.first().map(Error::kind), Some(kind));
        assert_eq!((replay.stats().transactions, bed.found(&replay)), (1, w.states[1].1.clone()));
        let numbers = replay.next_tid().0.wrapping_sub(replay.tids().0.0);
        assert!(numbers >= 40, "{numbers}");
    }
}
