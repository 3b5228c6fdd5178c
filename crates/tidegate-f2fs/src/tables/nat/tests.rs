use super::*;
use crate::F2fs;
use crate::testing::{Open, new_volume, new_volume_on};
use std::sync::{OnceLock, Weak};
use tidegate_block::{Device, DeviceInfo, Errno, MemoryDevice, Op, Request};
use tidegate_rt::thread;
use tidegate_vfs::{Cred, FileSystem, FileType, OpenFlags, VolumeOps};

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
        let before = open.fs.stats().commits;
        for n in 0..most + 8 {
            make_and_remove(&open, named);
            if n % 512 == 0 {
                assert!(open.fs.nat.nr_dirty().0 <= most + 2);
            }
        }
        assert!(open.fs.stats().commits > before, "named: {named}");
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
    let before = open.fs.stats().commits;
    open.fs.balance().unwrap();
    assert_eq!(open.fs.stats().commits, before + 1);
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

/// Counts reads that are made while operations are frozen.
struct Watching {
    below: MemoryDevice,
    volume: OnceLock<Weak<F2fs>>,
    frozen: AtomicU32,
}

impl Device for Watching {
    fn info(&self) -> DeviceInfo<'_> {
        DeviceInfo {
            name: "watching",
            size: self.below.size(),
            read_only: false,
            backend: "memory",
            zones: None,
        }
    }

    fn execute(&self, rq: &mut Request) -> std::result::Result<(), Errno> {
        let volume = self.volume.get().filter(|_| rq.op == Op::Read).and_then(Weak::upgrade);
        if let Some(v) = volume {
            // The lock is tried in a thread of its own, which holds no lock of a higher rank.
            let frozen = move || v.cp_rwsem.try_read().is_none();
            let frozen = thread::spawn("look", frozen).map_err(|_| Errno::IO)?.join();
            self.frozen.fetch_add(frozen.into(), Relaxed);
        }
        self.below.execute(rq)
    }
}

#[test]
fn no_checkpoint_reads_the_table_while_operations_are_frozen() {
    let below = MemoryDevice::new(64 << 20);
    let device = Arc::new(Watching { below, volume: OnceLock::new(), frozen: AtomicU32::new(0) });
    let open = new_volume_on(device.clone());
    device.volume.set(Arc::downgrade(&open.fs)).unwrap();
    let top = open.vfs.root().unwrap();
    for n in 0..3 * PER_BLOCK {
        drop(open.vfs.create(ROOT, &top, format!("f{n}").as_bytes(), 0o644).unwrap());
    }
    let before = open.fs.stats().commits;
    let mapping = &open.fs.meta.inode.mapping;
    mapping.reclaim(false);
    assert_eq!(mapping.nr_pages(), mapping.nr_dirty(), "nothing that can be read again is in memory");
    open.vfs.sync().unwrap();
    assert_eq!((open.fs.stats().commits, device.frozen.load(Relaxed)), (before + 1, 0));
    open.vfs.unmount().unwrap();
}
