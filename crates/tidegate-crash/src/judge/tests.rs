//! Trees that keep the promises, and altered copies of them: the judge names the broken promise.

use super::*;
use crate::ops::{Place, Step, Target};
use crate::run::{Manner, Switches, synced_by};
use crate::tape::Tape;
use std::sync::Arc;
use tidegate::detect::Format;
use tidegate_block::Blocks;
use tidegate_rt::rng::Rng;
use tidegate_vfs::Ino;

/// A directory, and two files in it.
const D: Place = Place(1);
const A: Place = Place(8);
const B: Place = Place(9);
const FILE: Target = Target::At(A);

/// A run of operations, numbered in order from 1 on.
fn run(format: Format, ops: &[CrashOp]) -> Recording {
    let mut model = Model::default();
    let (mut steps, mut synced) = (Vec::new(), Vec::new());
    for (n, op) in ops.iter().enumerate() {
        synced.push(synced_by(&model, op));
        let step = Step { serial: n as u32 + 1, op: op.clone() };
        model.apply(&step);
        steps.push(step);
    }
    let blocks = Arc::new(Blocks::of_size(1024));
    let n = ops.len() as u64;
    Recording {
        steps,
        spans: (0..n).map(|n| (n, n + 1)).collect(),
        synced,
        model,
        tape: Arc::new(Tape::new(&blocks, &Arc::new(vec![0; 8]), Vec::new())),
        end: n,
        full: false,
        manner: Manner { switches: Switches::any(&mut Rng::new(1), format), ..Manner::default() },
        others: Vec::new(),
    }
}

/// The tree that should be found after the first `n` operations.
fn tree(run: &Recording, n: usize) -> Tree {
    let mut model = Model::default();
    run.steps[..n].iter().for_each(|s| model.apply(s));
    let there = model.objects.iter().filter(|(id, o)| **id == ROOT || !o.names.now().is_empty());
    there.map(|(id, o)| (*id, found(*id, o))).collect()
}

fn found(id: Id, o: &Object) -> Found {
    let size = *o.size.now();
    let mut bytes = vec![0; if is_file(o) { size as usize } else { 0 }];
    for (index, page) in &o.pages {
        let at = *index as usize * PAGE;
        if let Some(page) = page.now().as_ref().filter(|_| at < bytes.len()) {
            let n = PAGE.min(bytes.len() - at);
            bytes[at..at + n].copy_from_slice(&page[..n]);
        }
    }
    let xattrs = o.xattrs.iter().filter_map(|(name, h)| Some((name.as_bytes().to_vec(), h.now().clone()?)));
    Found {
        ino: Ino(u64::from(id) + 2),
        kind: o.kind,
        names: o.names.now().clone(),
        mode: *o.mode.now(),
        gid: *o.gid.now(),
        atime: o.atime.now().unwrap_or(0),
        size,
        data: if is_file(o) { vec![(0, bytes)] } else { Vec::new() },
        xattrs: xattrs.collect(),
        target: o.target.clone(),
    }
}

/// The promise that a tree breaks when power fails at the end of a run.
fn broken(run: &Recording, tree: &Tree) -> Option<&'static str> {
    judge(tree, &run.model, &Promises::at(run, run.end)).err().map(|f| f.promise)
}

/// For both formats: operations that make a file of 5000 bytes with an attribute, and then `more`.
fn made(more: &[CrashOp]) -> [Recording; 2] {
    let first = [
        CrashOp::Mkdir { at: D },
        CrashOp::Create { at: A },
        CrashOp::Write { file: FILE, pos: 0, len: 5000 },
        CrashOp::SetXattr { at: A, name: 0, len: 20 },
        CrashOp::Sync,
    ];
    let ops = [&first, more].concat();
    [Format::F2fs, Format::Ext4].map(|f| run(f, &ops))
}

/// The state after the operations of [`made`].
const MADE: usize = 5;
/// The number of the file, and of its directory.
const OF_FILE: Id = 2;
const OF_DIR: Id = 1;

/// Alters the tree of [`made`] and checks that it breaks `promise`.
fn altered(promise: &str, how: impl Fn(&mut Tree)) {
    for run in made(&[]) {
        let mut tree = tree(&run, MADE);
        assert_eq!(broken(&run, &tree), None);
        how(&mut tree);
        assert_eq!(broken(&run, &tree), Some(promise));
    }
}

/// Alters the file.
fn file(tree: &mut Tree) -> &mut Found {
    tree.get_mut(&OF_FILE).unwrap()
}

#[test]
fn a_file_as_it_was_synced_is_all_there() {
    altered("P2", |t| {
        file(t).size = 4096;
        file(t).data[0].1.truncate(4096);
    });
    altered("P2", |t| {
        file(t).size = 6000;
        file(t).data[0].1.resize(6000, 0);
    });
    // One block of the page is from before the sync.
    altered("P2", |t| file(t).data[0].1[1024..2048].fill(0));
    altered("P2", |t| file(t).data.clear());
    altered("P4", |t| file(t).data[0].1[4999] ^= 1);
    altered("P4", |t| file(t).data[0].1.rotate_left(16));
}

#[test]
fn bytes_behind_what_was_ever_written_are_zeros() {
    let more = [CrashOp::Truncate { file: FILE, size: 20_000 }];
    for run in made(&more) {
        let mut tree = tree(&run, MADE + 1);
        assert_eq!(broken(&run, &tree), None);
        file(&mut tree).data[0].1[19_000] = 1;
        assert_eq!(broken(&run, &tree), Some("P4"));
    }
}

#[test]
fn attributes_are_of_the_sync_or_later() {
    altered("P2", |t| file(t).mode = 0o600);
    altered("P2", |t| file(t).gid = 1);
    altered("P2", |t| file(t).xattrs.clear());
    altered("P2", |t| drop(file(t).xattrs.insert(b"user.a".to_vec(), b"v".to_vec())));
    altered("P4", |t| drop(file(t).xattrs.insert(b"user.other".to_vec(), b"v".to_vec())));
    altered("P4", |t| file(t).kind = FileType::Symlink);
    // The attributes are from before an fsync that followed a change.
    let changes = [
        CrashOp::Chmod { at: A, mode: 0o600 },
        CrashOp::Chown { at: A, gid: 7 },
        CrashOp::Utimes { at: A, atime: 9 },
        CrashOp::RemoveXattr { at: A, name: 0 },
    ];
    let syncs = [
        (CrashOp::Fsync { file: FILE }, Some("P2")),
        (CrashOp::WriteSync { file: FILE, pos: 0, len: 0 }, Some("P2")),
        (CrashOp::Sync, Some("P2")),
        (CrashOp::Fdatasync { file: FILE }, None),
    ];
    for (change, (sync, promise)) in changes.iter().flat_map(|c| syncs.iter().map(move |s| (c, s))) {
        // Until it is set, the time of access may be anything.
        let first = CrashOp::Utimes { at: A, atime: 8 };
        for run in made(&[first, change.clone(), sync.clone()]) {
            let was = tree(&run, MADE + 1);
            assert_eq!(broken(&run, &was), *promise, "{change}, {sync}");
            assert_eq!(broken(&run, &tree(&run, MADE + 3)), None, "{change}, {sync}");
        }
    }
}

#[test]
fn names_are_of_the_sync_or_later_and_of_one_moment() {
    altered("P1", |t| drop(t.remove(&OF_FILE)));
    altered("P1", |t| file(t).names.clear());
    altered("P4", |t| assert!(file(t).names.insert((OF_DIR, b"never".to_vec()))));
    altered("P4", |t| {
        let other = file(t).clone();
        t.insert(77, other);
    });
    let rename = [CrashOp::Rename { from: A, to: B, exchange: false }];
    for run in made(&rename) {
        // Without a sync, the old name or the new name is there, but neither both nor none.
        assert_eq!(broken(&run, &tree(&run, MADE)), None);
        let mut tree = tree(&run, MADE + 1);
        assert_eq!(broken(&run, &tree), None);
        file(&mut tree).names.insert((OF_DIR, b"a".to_vec()));
        assert_eq!(broken(&run, &tree), Some("P3"));
        file(&mut tree).names.clear();
        assert_eq!(broken(&run, &tree), Some("P3"));
    }
    for run in made(&[CrashOp::Unlink { at: A }, CrashOp::FsyncDir { at: D }]) {
        assert_eq!(broken(&run, &tree(&run, MADE)), Some("P5"));
        assert_eq!(broken(&run, &tree(&run, MADE + 2)), None);
    }
}

#[test]
fn bytes_that_were_written_after_the_sync_may_be_there_or_not_in_whole_blocks() {
    let more = [CrashOp::Write { file: FILE, pos: 0, len: 4096 }];
    for run in made(&more) {
        let (old, mut tree) = (tree(&run, MADE), tree(&run, MADE + 1));
        assert_eq!(broken(&run, &old), None);
        assert_eq!(broken(&run, &tree), None);
        let before = old[&OF_FILE].data[0].1.clone();
        file(&mut tree).data[0].1[1024..2048].copy_from_slice(&before[1024..2048]);
        assert_eq!(broken(&run, &tree), None);
        file(&mut tree).data[0].1[2100..2200].copy_from_slice(&before[2100..2200]);
        assert_eq!(broken(&run, &tree), Some("P4"));
    }
}

/// The promises that a size of 9000 bytes breaks where the bytes behind the first 5000 are zeros.
fn with_zeros(ops: &[CrashOp]) -> [Option<&'static str>; 2] {
    made(ops).map(|run| {
        let mut tree = tree(&run, MADE);
        file(&mut tree).size = 9000;
        file(&mut tree).data[0].1.resize(9000, 0);
        broken(&run, &tree)
    })
}

#[test]
fn a_size_of_ext4_does_not_come_before_the_data_that_made_it() {
    let append = CrashOp::Write { file: FILE, pos: 5000, len: 4000 };
    assert_eq!(with_zeros(std::slice::from_ref(&append)), [None, Some("P4")]);
    // A part of the appended data is there by itself, with its size.
    let whole = CrashOp::Write { file: FILE, pos: 5000, len: 14_000 };
    assert_eq!(with_zeros(std::slice::from_ref(&whole)), [Some("P2"), Some("P4")]);
    let [_, run] = made(std::slice::from_ref(&whole));
    let mut part = tree(&run, MADE + 1);
    file(&mut part).size = 9000;
    file(&mut part).data[0].1.truncate(9000);
    assert_eq!(broken(&run, &part), None);
    // A truncation sets the size before the data written below it is there.
    let longer = CrashOp::Truncate { file: FILE, size: 9000 };
    let append_less = CrashOp::Write { file: FILE, pos: 5000, len: 500 };
    assert_eq!(with_zeros(&[append_less, longer]), [None, None]);
    // Zeros that an operation asked for.
    let longer = CrashOp::Truncate { file: FILE, size: 9000 };
    assert_eq!(with_zeros(std::slice::from_ref(&longer)), [None, None]);
    assert_eq!(with_zeros(&[longer, append.clone()]), [None, None]);
    let punch = CrashOp::Punch { file: FILE, pos: 5000, len: 4000 };
    assert_eq!(with_zeros(&[append, punch]), [None, None]);
}

/// The pages of the file after some operations: for each, the number of the operation that wrote it.
fn pages(ops: &[CrashOp]) -> Vec<u32> {
    let [_, run] = made(ops);
    let tree = tree(&run, run.steps.len());
    let version = |page: &[u8]| u32::from_le_bytes([page[4], page[5], page[6], page[7]]);
    tree[&OF_FILE].data[0].1.chunks(PAGE).map(version).collect()
}

#[test]
fn pages_move_with_ranges_that_come_and_go() {
    const P: u64 = PAGE as u64;
    let write = |page, count: u32| CrashOp::Write { file: FILE, pos: page * P, len: count * PAGE as u32 };
    // The pages are 3, 6, 7, 7, 8.
    let three = [write(1, 1), write(2, 2), write(4, 1)];
    let then = |op: &CrashOp| pages(&[&three, std::slice::from_ref(op)].concat());
    assert_eq!(pages(&three), [3, 6, 7, 7, 8]);
    assert_eq!(then(&CrashOp::Collapse { file: FILE, pos: P, len: 2 * P }), [3, 7, 8]);
    assert_eq!(then(&CrashOp::Insert { file: FILE, pos: P, len: 2 * P }), [3, 0, 0, 6, 7, 7, 8]);
    // A range up to the end of the file or at the end: neither operation is possible.
    assert_eq!(then(&CrashOp::Collapse { file: FILE, pos: P, len: 4 * P }), [3, 6, 7, 7, 8]);
    assert_eq!(then(&CrashOp::Insert { file: FILE, pos: 5 * P, len: P }), [3, 6, 7, 7, 8]);
    // The range that goes may be zeros before the rest moves; the rest may not be zeros.
    let [_, run] = made(&[&three[..], &[CrashOp::Collapse { file: FILE, pos: P, len: P }]].concat());
    for (page, promise) in [(1, None), (2, Some("P4")), (3, Some("P4"))] {
        let mut tree = tree(&run, MADE + 3);
        file(&mut tree).data[0].1[page * PAGE..][..PAGE].fill(0);
        assert_eq!(broken(&run, &tree), promise, "page {page}");
    }
    // The block of page 3 is now that of page 2, and is written in place before the commit with the move.
    let then = [CrashOp::Collapse { file: FILE, pos: P, len: P }, write(2, 1)];
    let [_, run] = made(&[&three[..], &then[..]].concat());
    let new = file(&mut tree(&run, MADE + 5)).data[0].1[2 * PAGE..3 * PAGE].to_vec();
    for (page, promise) in [(3, None), (4, Some("P4"))] {
        let mut tree = tree(&run, MADE + 3);
        file(&mut tree).data[0].1[page * PAGE..][..PAGE].copy_from_slice(&new);
        assert_eq!(broken(&run, &tree), promise, "page {page}");
    }
}
