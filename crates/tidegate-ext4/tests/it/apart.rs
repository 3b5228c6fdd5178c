//! Sixteen writers, each in a directory of its own: the locks that they wait for are the journal's, held for a moment;
//! that of the orphan list, which a volume has once; and that of the pool that memory comes from.

use crate::rig::{mke2fs, must_be_clean, scratch, skip};
use std::collections::BTreeMap;
use std::sync::Arc;
use tidegate_block::{Device, MemoryDevice, QueueLimits, RequestQueue};
use tidegate_ext4::{Ext4, Ext4Options};
use tidegate_rt::{Nanos, lockstat, sim, thread};
use tidegate_vfs::*;

const ROOT: &Cred = &Cred::ROOT;
const WRITERS: u64 = 16;
const FILES: u64 = 12;

fn open(device: Arc<MemoryDevice>) -> Arc<Vfs> {
    let queue = Arc::new(RequestQueue::new(device, QueueLimits::default()));
    let bdi = Bdi::new(MemoryLimits::default());
    let fs = Ext4::open(queue, bdi.clone(), Ext4Options::default()).unwrap();
    Vfs::mount(fs, bdi, MountOptions::default()).unwrap()
}

/// Makes, writes, appends to, renames, cuts and deletes files of a directory, and has them on the volume.
fn work(v: &Arc<Vfs>, dir: &Arc<Inode>) {
    let how = OpenFlags::READ | OpenFlags::WRITE;
    for n in 0..FILES {
        let name = format!("file-{n}").into_bytes();
        let inode = v.create(ROOT, dir, &name, 0o644).unwrap();
        let f = v.open(ROOT, &inode, how).unwrap();
        f.write_at(0, &[n as u8; 20_000]).unwrap();
        v.fs().writepages(&inode, &mut WritebackControl::sync()).unwrap();
        f.write_at(20_000, &[n as u8; 5_000]).unwrap();
        match n % 4 {
            0 => v.unlink(ROOT, dir, &name).unwrap(),
            1 => f.truncate(3_000).unwrap(),
            2 => {
                let to = format!("moved-{n}").into_bytes();
                v.rename(ROOT, (dir, &name), (dir, &to), RenameFlags::empty()).unwrap();
            }
            _ => v.setxattr(ROOT, &inode, b"user.a", Some(&[1; 40]), XattrFlags::empty()).unwrap(),
        }
    }
}

/// The classes of locks that somebody waited for, and how often.
fn met() -> BTreeMap<&'static str, u64> {
    let dir = scratch();
    let image = dir.path().join("a.img");
    // A group for each, and more.
    mke2fs(&image, &["-t", "ext4", "-b", "1024"], "256M");
    let device = Arc::new(MemoryDevice::from_bytes(&std::fs::read(&image).unwrap()));
    let ours = device.clone();
    let config =
        sim::Config { cpus: WRITERS as usize, quantum: Nanos(0), jitter: 4, ..sim::Config::default() };
    let met = sim::run_with(&config, move || {
        let v = open(ours);
        let root = v.root().unwrap();
        let dirs: Vec<_> =
            (0..WRITERS).map(|n| v.mkdir(ROOT, &root, format!("d{n}").as_bytes(), 0o755).unwrap()).collect();
        v.sync().unwrap();
        let looks = lockstat::collect();
        let writer = |dir| {
            let v = v.clone();
            thread::spawn("writer", move || work(&v, &dir)).unwrap()
        };
        let writers: Vec<_> = dirs.into_iter().map(writer).collect();
        writers.into_iter().for_each(thread::JoinHandle::join);
        let waited = lockstat::snapshot().into_iter().map(|l| (l.class, l.all().contentions));
        let met = waited.filter(|m| m.1 > 0).collect();
        drop(looks);
        v.unmount().unwrap();
        met
    });
    let mut bytes = vec![0; device.size() as usize];
    device.read_at(0, &mut bytes);
    std::fs::write(&image, bytes).unwrap();
    must_be_clean(&image);
    met.unwrap().value
}

#[test]
fn writers_in_directories_of_their_own_meet_in_the_journal_alone() {
    if skip() {
        return;
    }
    let met = met();
    println!("{met:?}");
    // A file's own locks are waited for by its writer and the thread that marks its blocks.
    let own = ["ei->", "mapping->i_pages"];
    let prefixes = ["journal->", "transaction->", "jbd2->", "ext4->s_orphan_lock", "buf_pool"];
    let others: Vec<_> =
        met.iter().filter(|(class, _)| !own.iter().chain(&prefixes).any(|p| class.starts_with(p))).collect();
    assert!(others.is_empty(), "{others:?}");
}
