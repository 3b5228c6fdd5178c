//! Devices that fail: errors are reported, and nothing that was durable is lost.

use crate::common::volume::{fresh, fsck};
use crate::rig::{scratch, seed, skip};
use std::sync::Arc;
use tidegate_block::{
    BioFlags, Device, Errno, Fault, Faulty, MemoryDevice, Op, QueueLimits, RequestQueue, Rule,
};
use tidegate_ext4::{Ext4, Ext4Options};
use tidegate_testing::ext4::recovered;
use tidegate_testing::fill::Rng;
use tidegate_vfs::*;

const ROOT: &Cred = &Cred::ROOT;
/// The byte that fills free space.
const LEFT: u8 = 0xEE;

fn open(device: Arc<dyn Device>) -> Arc<Vfs> {
    let queue = Arc::new(RequestQueue::new(device, QueueLimits::default()));
    let bdi = Bdi::new(MemoryLimits::default());
    let fs = Ext4::open(queue, bdi.clone(), Ext4Options::default()).unwrap();
    Vfs::mount(fs, bdi, MountOptions::default()).unwrap()
}

fn make(v: &Arc<Vfs>, name: &[u8]) -> File {
    let inode = v.create(ROOT, &v.root().unwrap(), name, 0o644).unwrap();
    v.open(ROOT, &inode, OpenFlags::WRITE).unwrap()
}

/// A volume whose free blocks all have another file's content.
fn volume(kind: &str) -> Arc<MemoryDevice> {
    let device = fresh(16, &["-t", kind]);
    let v = open(device.clone());
    let f = make(&v, b"secret");
    let room = v.statfs().blocks_available * u64::from(v.statfs().block_size);
    let most = (room * 3 / 4) as usize;
    f.write_at(0, &vec![LEFT; most]).unwrap();
    f.fsync(false).unwrap();
    v.unlink(ROOT, &v.root().unwrap(), b"secret").unwrap();
    drop(f);
    v.unmount().unwrap();
    device
}

fn copy(device: &MemoryDevice) -> Arc<MemoryDevice> {
    let mut bytes = vec![0; device.info().size as usize];
    device.read_at(0, &mut bytes);
    Arc::new(MemoryDevice::from_bytes(&bytes))
}

/// Lost data is reported, and no file shows the old content of its blocks, whatever commits.
#[test]
fn lost_data_shows_nobody_elses() {
    if skip() {
        return;
    }
    for kind in ["ext4", "ext3"] {
        let device = volume(kind);
        let is_data = |rq: &tidegate_block::Request| !rq.flags.contains(BioFlags::META);
        let faulty = Faulty::new(device.clone(), []);
        let v = open(faulty.clone());
        let kept = make(&v, b"kept");
        kept.write_at(0, &[1; 9000]).unwrap();
        kept.fsync(false).unwrap();
        let lost = make(&v, b"lost");
        lost.write_at(0, &[2; 50_000]).unwrap();
        faulty.set([Rule::new(Fault::Fail(Errno::NOSPC)).op(Op::Write).when(is_data)]);
        assert!(lost.fsync(false).is_err(), "{kind}");
        // Other changes commit if blocks can be marked as unwritten.
        let other = v.create(ROOT, &v.root().unwrap(), b"other", 0o644);
        let other = other.and_then(|i| v.open(ROOT, &i, OpenFlags::WRITE)?.fsync(false));
        assert_eq!(other.is_ok(), kind == "ext4", "{kind}");
        let after = copy(&device);
        faulty.set([]);
        drop((kept, lost));
        let _ = v.unmount();
        let v = open(after);
        let root = v.root().unwrap();
        let mut bytes = vec![0; 60_000];
        let mut read = |name: &[u8]| -> Option<Vec<u8>> {
            let inode = v.lookup(&root, name).ok()?;
            let n = v.open(ROOT, &inode, OpenFlags::READ).unwrap().read_at(0, &mut bytes).unwrap();
            Some(bytes[..n].to_vec())
        };
        assert_eq!(read(b"kept"), Some(vec![1; 9000]), "{kind}");
        let lost = read(b"lost").unwrap_or_default();
        assert!(!lost.contains(&LEFT), "{kind}: it shows what was another's");
    }
}

/// Files are made, changed and fsynced while requests of one kind fail now and then. Data that an fsync
/// called durable is on the device at the end, and the volume is clean.
#[test]
fn what_is_fsynced_outlives_failures() {
    if skip() {
        return;
    }
    let seed = seed();
    let mut rng = Rng::new(seed);
    let dir = scratch();
    for round in 0..24 {
        let kind = ["ext4", "ext3", "ext4", "ext4"][(round + round / 4) % 4];
        let (op, flag, per_mille) = [
            (Op::Write, BioFlags::empty(), 15),
            (Op::Read, BioFlags::empty(), 60),
            (Op::Write, BioFlags::PREFLUSH, 40),
            (Op::Flush, BioFlags::empty(), 40),
        ][round % 4];
        let device = fresh(16, &["-t", kind, "-b", ["1024", "4096"][round / 2 % 2]]);
        let faulty = Faulty::new(device.clone(), []);
        let v = open(faulty.clone());
        let rule = Rule::new(Fault::Fail(Errno::IO)).op(op).when(move |rq| rq.flags.contains(flag));
        faulty.set([rule.chance(per_mille, rng.below(1 << 40))]);
        let promised = work(&v, &mut rng);
        let after = copy(&device);
        faulty.set([]);
        let _ = v.unmount();
        drop(v);
        let what = format!("seed {seed} round {round} {kind} {op:?} {flag:?}, {} failed", faulty.failed());
        println!("{what}, {} promised", promised.len());
        let v = open(after.clone());
        for (name, byte, len) in promised {
            let inode = v
                .lookup(&v.root().unwrap(), name.as_bytes())
                .unwrap_or_else(|e| panic!("{what}: {name}: {e}"));
            let mut bytes = vec![0; len + 1];
            let n = v.open(ROOT, &inode, OpenFlags::READ).unwrap().read_at(0, &mut bytes).unwrap();
            assert!(
                n == len && bytes[..n].iter().all(|b| *b == byte),
                "{what}: {name} has {n} bytes of {len}"
            );
        }
        let told = v.fs().read_only();
        v.unmount().unwrap();
        drop(v);
        match told {
            None => fsck(&after).unwrap_or_else(|e| panic!("{what}: {e}")),
            // The error is recorded, and e2fsck must check the volume; it finds nothing.
            Some(_) => {
                let image = dir.path().join("told.img");
                let mut bytes = vec![0; after.info().size as usize];
                after.read_at(0, &mut bytes);
                std::fs::write(&image, bytes).unwrap();
                recovered(&image).unwrap_or_else(|e| panic!("{what}: {e}"));
            }
        }
    }
}

/// Makes files until the volume takes no more, or there are many. Returns the files that an fsync called
/// durable, by name, byte and length. Other files are changed and removed.
fn work(v: &Arc<Vfs>, rng: &mut Rng) -> Vec<(String, u8, usize)> {
    let Ok(root) = v.root() else { return Vec::new() };
    let mut promised = Vec::new();
    for n in 0..150 {
        let (name, len) = (format!("f{n}"), 1 + rng.below(60_000) as usize);
        let byte = 1 + rng.below(200) as u8;
        let Ok(inode) = v.create(ROOT, &root, name.as_bytes(), 0o644) else { continue };
        let Ok(f) = v.open(ROOT, &inode, OpenFlags::WRITE) else { continue };
        if f.write_at(0, &vec![byte; len]).is_err() {
            continue;
        }
        match rng.below(6) {
            0 => drop(v.unlink(ROOT, &root, name.as_bytes())),
            1 => drop(f.truncate(rng.below(len as u64))),
            2 => drop(v.mkdir(ROOT, &root, format!("d{n}").as_bytes(), 0o755)),
            3 => drop(v.setxattr(ROOT, &inode, b"user.x", Some(&[byte; 300]), XattrFlags::empty())),
            _ if f.fsync(false).is_ok() => promised.push((name, byte, len)),
            _ => {}
        }
    }
    promised
}

/// A sync tries to write data again that the device did not take in the background, and then may call it
/// durable.
#[test]
fn data_that_failed_in_the_background_is_written_by_a_sync() {
    if skip() {
        return;
    }
    let data = |rq: &tidegate_block::Request| !rq.flags.contains(BioFlags::META);
    // Ext3 cannot mark blocks as unwritten: there the journal is aborted.
    for args in [&["-t", "ext4"][..], &["-t", "ext4", "-O", "^has_journal"]] {
        let device = fresh(32, args);
        let faulty = Faulty::new(device.clone(), []);
        let v = open_with_memory(faulty.clone());
        faulty.set([Rule::new(Fault::Fail(Errno::NOSPC)).op(Op::Write).when(data)]);
        let names: Vec<String> = (0..3).map(|n| format!("f{n}")).collect();
        for name in &names {
            make(&v, name.as_bytes()).write_at(0, &[7; 1 << 19]).unwrap();
        }
        for _ in 0..1000 {
            if faulty.failed() > 0 && v.bdi().writeback_bytes() == 0 {
                break;
            }
            tidegate_rt::thread::sleep(std::time::Duration::from_millis(10));
        }
        assert!(faulty.failed() > 0, "{args:?}: nothing was written in the background");
        faulty.set([]);
        v.sync().unwrap();
        assert_eq!(v.bdi().dirty_bytes(), 0, "{args:?}");
        let after = copy(&device);
        v.unmount().unwrap();
        for device in [after, device] {
            let v = open(device);
            let root = v.root().unwrap();
            let mut bytes = vec![0; 1 << 20];
            for name in &names {
                let inode = v.lookup(&root, name.as_bytes()).unwrap();
                let f = v.open(ROOT, &inode, OpenFlags::READ).unwrap();
                let n = f.read_at(0, &mut bytes).unwrap();
                assert!(bytes[..n] == [7; 1 << 19], "{args:?} {name}: {n} bytes");
            }
            v.unmount().unwrap();
        }
    }
}

/// If data cannot be written, it does not fill memory: a writer gets the error.
#[test]
fn a_writer_is_told_when_nothing_can_be_written() {
    if skip() {
        return;
    }
    let data = |rq: &tidegate_block::Request| !rq.flags.contains(BioFlags::META);
    for args in [&["-t", "ext4"][..], &["-t", "ext4", "-O", "^has_journal"]] {
        let faulty = Faulty::new(fresh(128, args), []);
        let v = open_with_memory(faulty.clone());
        faulty.set([Rule::new(Fault::Fail(Errno::IO)).op(Op::Write).when(data)]);
        let mut taken = 0;
        let told = (0..64).find_map(|n| {
            let r = make(&v, format!("f{n}").as_bytes()).write_at(0, &[7; 1 << 20]);
            taken += u64::from(r.is_ok());
            r.err()
        });
        assert_eq!(told.map(|e| e.kind()), Some(ErrorKind::Io), "{args:?}: {taken} MiB were taken");
        assert!(taken < 16, "{args:?}: {taken} MiB were taken");
        assert!(v.sync().is_err(), "{args:?}");
    }
}

/// A volume whose flusher begins at 1 MiB, and whose writers wait from 2 MiB on.
fn open_with_memory(device: Arc<dyn Device>) -> Arc<Vfs> {
    let queue = Arc::new(RequestQueue::new(device, QueueLimits::default()));
    let bdi = Bdi::new(MemoryLimits { cache: 8 << 20, dirty: 2 << 20, background: 1 << 20, inodes: 1000 });
    let fs = Ext4::open(queue, bdi.clone(), Ext4Options::default()).unwrap();
    Vfs::mount(fs, bdi, MountOptions::default()).unwrap()
}
