//! The state generator by itself, on tapes made by hand.

use crate::state::{Amount, State, states};
use crate::tape::Tape;
use crate::zones::Pointers;
use std::collections::BTreeSet;
use std::sync::Arc;
use tidegate_block::{BioFlags, Blocks, Op, PAGE_SIZE, Record, Sector, ZoneSpec};
use tidegate_rt::rng::Rng;

const AMOUNT: Amount = Amount { boundaries: 50, prefixes: 50, subsets: 400 };

/// A recording of requests that are done one after the other: operation, flags, block, contents of its
/// blocks.
fn tape(requests: &[(Op, BioFlags, u32, &[u8])]) -> Tape {
    tape_of(8, requests)
}

/// Such a tape of a device with this many blocks.
fn tape_of(blocks: usize, requests: &[(Op, BioFlags, u32, &[u8])]) -> Tape {
    let records = requests.iter().enumerate().map(|(i, (op, flags, block, content))| Record {
        op: *op,
        flags: *flags,
        sector: Sector::from_bytes(*block as u64 * PAGE_SIZE as u64),
        bytes: (content.len() * PAGE_SIZE) as u64,
        data: content.iter().flat_map(|b| [*b; PAGE_SIZE]).collect(),
        submitted: 2 * i as u64,
        completed: Some(2 * i as u64 + 1),
    });
    Tape::new(&Arc::default(), &Arc::new(vec![0; blocks]), records.collect())
}

/// The contents that cuts between two events can leave, by the first byte of each block.
fn outcomes(tape: &Tape, from: u64, to: u64) -> BTreeSet<Vec<u8>> {
    let all = (1..20).flat_map(|seed| states(tape, &mut Rng::new(seed), AMOUNT, from, to));
    all.map(|s| content(tape, &s)).collect()
}

#[test]
#[should_panic(expected = "no whole blocks")]
fn a_write_of_less_than_a_block_is_not_dropped() {
    let record = Record {
        op: Op::Write,
        flags: NONE,
        sector: Sector(8),
        bytes: 512,
        data: vec![1; 512],
        submitted: 0,
        completed: Some(1),
    };
    Tape::new(&Arc::default(), &Arc::new(vec![0; 8]), vec![record]);
}

fn content(tape: &Tape, s: &State) -> Vec<u8> {
    s.table(tape).iter().map(|n| tape.blocks.get(*n)[0]).collect()
}

fn first(all: &BTreeSet<Vec<u8>>, n: usize) -> BTreeSet<Vec<u8>> {
    all.iter().map(|c| c[..n].to_vec()).collect()
}

const NONE: BioFlags = BioFlags::empty();
const FLUSH: (Op, BioFlags, u32, &[u8]) = (Op::Flush, NONE, 0, &[]);

#[test]
fn an_unflushed_write_can_be_missing_and_torn() {
    let t = tape(&[(Op::Write, NONE, 0, &[1, 2]), (Op::Write, NONE, 2, &[3])]);
    let found = first(&outcomes(&t, 4, 4), 3);
    let any = |a: u8, b: u8, c: u8| vec![a, b, c];
    let expected =
        [0, 1].iter().flat_map(|a| [0, 2].iter().flat_map(move |b| [0, 3].map(|c| any(*a, *b, c))));
    assert_eq!(found, expected.collect());
}

#[test]
fn a_flushed_write_is_never_missing() {
    let t = tape(&[(Op::Write, NONE, 0, &[1]), FLUSH, (Op::Write, NONE, 1, &[2])]);
    assert_eq!(first(&outcomes(&t, 4, 6), 2), [vec![1, 0], vec![1, 2]].into());
    // Until the flush is complete, the block may be missing.
    assert!(first(&outcomes(&t, 3, 3), 1).contains(&vec![0]));
}

#[test]
fn a_flush_does_not_cover_what_was_in_flight_when_it_began() {
    let mut t = tape(&[(Op::Write, NONE, 0, &[1]), FLUSH]);
    t.changes[0].completed = 2;
    (t.changes[1].submitted, t.changes[1].completed) = (1, 3);
    assert_eq!(first(&outcomes(&t, 4, 4), 1), [vec![0], vec![1]].into());
}

#[test]
fn fua_is_durable_alone_and_preflush_before_its_own_block() {
    let t = tape(&[(Op::Write, NONE, 0, &[1]), (Op::Write, BioFlags::FUA, 1, &[2])]);
    assert_eq!(first(&outcomes(&t, 4, 4), 2), [vec![0, 2], vec![1, 2]].into());
    let tail = BioFlags::PREFLUSH | BioFlags::FUA;
    let t = tape(&[(Op::Write, NONE, 0, &[1]), (Op::Write, tail, 1, &[2])]);
    assert_eq!(first(&outcomes(&t, 4, 4), 2), [vec![1, 2]].into());
    // In flight: the write itself is never there without the blocks that its flush covers.
    let found = first(&outcomes(&t, 3, 3), 2);
    assert_eq!(found, [vec![0, 0], vec![1, 0], vec![1, 2]].into());
}

#[test]
fn overlapping_writes_may_land_in_any_order_until_flushed() {
    let t = tape(&[(Op::Write, NONE, 0, &[1]), (Op::Write, NONE, 0, &[2]), FLUSH]);
    assert_eq!(first(&outcomes(&t, 4, 4), 1), [vec![0], vec![1], vec![2]].into());
    assert_eq!(first(&outcomes(&t, 6, 6), 1), [vec![2]].into());
}

#[test]
fn what_was_in_flight_with_a_durable_write_may_lie_on_top_of_it() {
    let fua = (Op::Write, BioFlags::FUA, 0, &[2][..]);
    let mut t = tape(&[(Op::Write, NONE, 0, &[1]), fua]);
    assert_eq!(first(&outcomes(&t, 4, 4), 1), [vec![2]].into());
    t.changes[0].completed = 3;
    (t.changes[1].submitted, t.changes[1].completed) = (1, 2);
    assert_eq!(first(&outcomes(&t, 4, 4), 1), [vec![1], vec![2]].into());
}

#[test]
fn a_write_in_flight_may_be_missing_behind_a_flush_or_there_before_it_ends() {
    let mut t = tape(&[(Op::Write, NONE, 0, &[1]), (Op::Write, NONE, 1, &[2]), FLUSH]);
    // The first request ends after the flush began, the second starts before that.
    (t.changes[0].completed, t.changes[1].submitted, t.changes[1].completed) = (9, 1, 2);
    (t.changes[2].submitted, t.changes[2].completed) = (3, 4);
    assert_eq!(first(&outcomes(&t, 5, 5), 2), [vec![0, 2], vec![1, 2]].into());
}

#[test]
fn an_unflushed_discard_reads_as_old_or_zero() {
    let discard = |n| (Op::Discard, NONE, n, &[0, 0][..]);
    let t = tape(&[(Op::Write, NONE, 0, &[1, 2]), FLUSH, discard(0)]);
    let found = first(&outcomes(&t, 6, 6), 2);
    assert_eq!(found, [vec![0, 0], vec![0, 2], vec![1, 0], vec![1, 2]].into());
}

#[test]
fn blocks_start_with_what_was_there() {
    let mut blocks = Blocks::default();
    let seven = blocks.push(&[7; PAGE_SIZE]);
    let t = Tape::new(&Arc::new(blocks), &Arc::new(vec![seven; 2]), Vec::new());
    let s = State { cut: 0, flushed: 0, present: Vec::new() };
    assert_eq!(content(&t, &s), [7, 7]);
}

/// A device of three zones of 8 blocks, 6 of which can be written. The first zone is conventional.
const ZONES: ZoneSpec =
    ZoneSpec { size: 8 << 12, capacity: 6 << 12, conventional: 1, max_open: 0, max_active: 0 };

/// The first bytes of a zone's blocks that were written, and its write pointer in blocks.
type Zone = (Vec<u8>, u64);

/// All that cuts between two events can leave of the two zones that are written in order.
fn zones_left(tape: &Tape, from: u64, to: u64) -> BTreeSet<[Zone; 2]> {
    let all = (1..20).flat_map(|seed| states(tape, &mut Rng::new(seed), AMOUNT, from, to));
    let left = |s: State| {
        let (table, zones) = s.medium(tape);
        let pointers = zones.unwrap();
        [1, 2].map(|n| {
            let blocks = &table[n * 8..n * 8 + 8];
            let bytes: Vec<u8> = blocks.iter().map(|b| tape.blocks.get(*b)[0]).collect();
            assert_eq!(bytes[6..], [0, 0], "beyond the capacity");
            (bytes[..6].to_vec(), pointers.at[n] / 4096 - n as u64 * 8)
        })
    };
    all.map(left).collect()
}

#[test]
fn a_zone_keeps_a_beginning_of_what_was_done_to_it() {
    let whole = [0; 8];
    fn write(block: u32, content: &[u8]) -> (Op, BioFlags, u32, &[u8]) {
        (Op::Write, NONE, block, content)
    }
    let before = Pointers { spec: ZONES, at: vec![0, 8 << 12, 16 << 12] };
    let t = tape_of(
        24,
        &[
            write(8, &[1]),
            write(9, &[2]),
            write(10, &[3]),
            FLUSH,
            write(16, &[7]),
            write(11, &[4, 5]),
            write(13, &[6]),
            (Op::ZoneReset, NONE, 8, &whole),
            (Op::ZoneFinish, NONE, 8, &whole),
        ],
    )
    .on(&Some(Arc::new(before)));
    let written = |n: u8| {
        let blocks = (1..=6).map(|b| if b <= n { b } else { 0 });
        (blocks.collect::<Vec<u8>>(), u64::from(n))
    };
    let (reset, finished) = ((vec![0; 6], 0), (vec![0; 6], 6));
    // The write to the other zone is independent.
    let beside = |zones: Vec<Zone>, other: &[u8]| -> BTreeSet<[Zone; 2]> {
        let other =
            other.iter().map(|n| (if *n > 0 { vec![7, 0, 0, 0, 0, 0] } else { vec![0; 6] }, u64::from(*n)));
        other.flat_map(|o| zones.iter().map(move |z| [z.clone(), o.clone()])).collect()
    };
    let of = |range: std::ops::RangeInclusive<u8>| range.map(written).collect::<Vec<_>>();
    assert_eq!(zones_left(&t, 6, 6), beside(of(0..=3), &[0]), "before the flush");
    assert_eq!(zones_left(&t, 8, 8), beside(of(3..=3), &[0]), "behind it");
    assert_eq!(zones_left(&t, 14, 14), beside(of(3..=6), &[0, 1]), "before the reset");
    assert_eq!(
        zones_left(&t, 16, 16),
        beside([of(3..=6), vec![reset.clone()]].concat(), &[0, 1]),
        "behind it"
    );
    let all = [of(3..=6), vec![reset, finished]].concat();
    assert_eq!(zones_left(&t, 17, 18), beside(all, &[0, 1]), "at the end");
}
