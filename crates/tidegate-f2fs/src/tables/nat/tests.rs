use super::*;
use crate::testing::{Open, new_volume};
use tidegate_vfs::{Cred, FileSystem, FileType, OpenFlags};

const ROOT: &Cred = &Cred::ROOT;

/// Makes and removes a file, with a name or without.
fn make_and_remove(open: &Open, named: bool) {
    let (v, top) = (&open.vfs, open.vfs.root().unwrap());
    if named {
        drop(v.create(ROOT, &top, b"f", 0o644).unwrap());
        v.unlink(ROOT, &top, b"f").unwrap();
    } else {
        let new = v.new_inode(ROOT, FileType::Regular, 0o644);
        drop(v.tmpfile(ROOT, &top, &new, OpenFlags::WRITE).unwrap());
    }
}

#[test]
fn freed_ids_do_not_pile_up() {
    for named in [true, false] {
        let open = new_volume();
        let most = open.fs.sb.max_nid / 10;
        let before = open.fs.stats().checkpoints;
        for n in 0..most + 8 {
            make_and_remove(&open, named);
            if n % 512 == 0 {
                assert!(open.fs.nat.nr_dirty().0 <= most + 2);
            }
        }
        assert!(open.fs.stats().checkpoints > before, "named: {named}");
        let (dirty, freed) = open.fs.nat.nr_dirty();
        assert!(dirty.max(freed) < most, "named: {named}");
        open.vfs.unmount().unwrap();
    }
}

#[test]
fn the_last_ids_are_not_waited_for() {
    let open = new_volume();
    (0..10).for_each(|_| make_and_remove(&open, true));
    assert_eq!(open.fs.nat.nr_dirty().1, 10);
    let left = |n: u32| {
        open.fs.counts.lock().valid_nodes = open.fs.sb.max_nid - 4 - n;
        open.fs.excess_dirty_nats()
    };
    assert!(!left(20));
    assert!(left(19));
    let before = open.fs.stats().checkpoints;
    open.fs.balance().unwrap();
    assert_eq!(open.fs.stats().checkpoints, before + 1);
    assert!(!left(0));
}

#[test]
fn clean_entries_have_a_cap() {
    let open = new_volume();
    drop(open.vfs.create(ROOT, &open.vfs.root().unwrap(), b"f", 0o644).unwrap());
    let nat = &open.fs.nat;
    let changed = nat.with(|n| n.dirty.clone());
    for nid in 4..3 * MAX_CLEAN as u32 {
        nat.lookup(&open.fs.meta, Nid(nid)).unwrap();
    }
    assert!(nat.with(|n| n.entries.len()) <= MAX_CLEAN + changed.len());
    assert!(!changed.is_empty() && nat.with(|n| changed.iter().all(|c| n.entries.contains_key(c))));
    open.vfs.unmount().unwrap();
}
