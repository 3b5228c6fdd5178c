//! Operations that run into damage half way: their changes are undone, and the volume goes on, as on Linux.

use crate::rig::*;
use std::path::Path;
use std::sync::Arc;
use tidegate_block::{Device, MemoryDevice, QueueLimits, RequestQueue};
use tidegate_ext4::{Ext4, Ext4Options};
use tidegate_vfs::*;

const ROOT: &Cred = &Cred::ROOT;

fn mount(device: &Arc<MemoryDevice>) -> Arc<Vfs> {
    let queue = Arc::new(RequestQueue::new(device.clone(), QueueLimits::default()));
    let bdi = Bdi::new(MemoryLimits::default());
    let fs = Ext4::open(queue, bdi.clone(), Ext4Options::default()).unwrap();
    Vfs::mount(fs, bdi, MountOptions { noatime: true, ..Default::default() }).unwrap()
}

fn bytes(device: &MemoryDevice) -> Vec<u8> {
    let mut all = vec![0; Device::size(device) as usize];
    device.read_at(0, &mut all);
    all
}

/// The number that debugfs prints.
fn number(image: &Path, command: &str) -> u64 {
    let said = must("debugfs", &["-R", command, image.to_str().unwrap()]);
    let last = said.split_whitespace().rev().find_map(|w| w.parse().ok());
    last.unwrap_or_else(|| panic!("{command}: {said}"))
}

/// A volume with a directory of several blocks, some files and a directory in another.
fn volume(dir: &Path) -> Vec<u8> {
    let image = dir.join("volume");
    // With other hashes, few of the names that a test makes may belong to the block that it damages.
    let hashes = "hash_seed=3f1c6d1e-5a0b-4c87-9f3e-2b9a7d44c1e5";
    mke2fs(&image, &["-t", "ext4", "-b", "1024", "-J", "size=1", "-E", hashes], "16M");
    let device = Arc::new(MemoryDevice::from_bytes(&std::fs::read(&image).unwrap()));
    let v = mount(&device);
    let root = v.root().unwrap();
    let full = v.mkdir(ROOT, &root, b"full", 0o755).unwrap();
    for n in 0..120 {
        v.create(ROOT, &full, format!("name-{n}").as_bytes(), 0o644).unwrap();
    }
    let other = v.mkdir(ROOT, &root, b"other", 0o755).unwrap();
    v.mkdir(ROOT, &other, b"sub", 0o755).unwrap();
    let f = v.create(ROOT, &other, b"file", 0o644).unwrap();
    v.open(ROOT, &f, OpenFlags::WRITE).unwrap().write_at(0, &[7; 100_000]).unwrap();
    drop((full, other, f, root));
    v.unmount().unwrap();
    bytes(&device)
}

fn lookup(v: &Arc<Vfs>, path: &str) -> Arc<Inode> {
    path.split('/').fold(v.root().unwrap(), |dir, name| v.lookup(&dir, name.as_bytes()).unwrap())
}

/// Damages a block, calls `f`, and checks the result with e2fsck once the damage is removed.
fn with_damage(dir: &Path, block: &str, f: impl FnOnce(&Arc<Vfs>)) {
    let whole = volume(dir);
    let image = dir.join("damaged");
    std::fs::write(&image, &whole).unwrap();
    let at = number(&image, block) as usize * 1024;
    let mut damaged = whole.clone();
    // A block of entries ends with its checksum.
    damaged[at + 1020..at + 1024].iter_mut().for_each(|b| *b ^= 0x55);
    let device = Arc::new(MemoryDevice::from_bytes(&damaged));
    let v = mount(&device);
    f(&v);
    assert_eq!(v.fs().read_only(), None, "the volume goes on");
    let late = v.create(ROOT, &lookup(&v, "other"), b"late", 0o644).unwrap();
    v.open(ROOT, &late, OpenFlags::WRITE).unwrap().write_at(0, &[9; 3000]).unwrap();
    drop(late);
    v.sync().unwrap();
    v.unmount().unwrap();
    let mut left = bytes(&device);
    assert_eq!(left[at..at + 1024], damaged[at..at + 1024], "what is damaged stays as it is");
    left[at..at + 1024].copy_from_slice(&whole[at..at + 1024]);
    std::fs::write(&image, left).unwrap();
    must_be_clean(&image);
    assert_eq!(bytes_of("debugfs", &["-R", "cat /other/late", image.to_str().unwrap()]), [9; 3000]);
}

#[test]
fn a_damaged_directory_takes_no_names_and_stops_nothing_else() {
    if skip() {
        return;
    }
    let dir = scratch();
    // The damage is in the last block of entries, or in the first, which leads to all.
    for block in ["bmap /full 2", "bmap /full 0"] {
        with_damage(dir.path(), block, |v| {
            let (full, other) = (lookup(v, "full"), lookup(v, "other"));
            let free = v.statfs();
            let mut failed = 0;
            for n in 0..40 {
                // The names are spread over the blocks.
                let name = format!("new-{n}");
                let made = match n % 4 {
                    0 => v.create(ROOT, &full, name.as_bytes(), 0o644).map(drop),
                    1 => v.mkdir(ROOT, &full, name.as_bytes(), 0o755).map(drop),
                    2 => v.link(ROOT, &lookup(v, "other/file"), &full, name.as_bytes()).map(drop),
                    _ => {
                        let flags = RenameFlags::empty();
                        let there = (&full, name.as_bytes());
                        let moved = v.rename(ROOT, (&other, b"file"), there, flags);
                        if moved.is_ok() {
                            v.rename(ROOT, there, (&other, b"file"), flags).unwrap();
                        }
                        moved.map(drop)
                    }
                };
                if let Err(e) = &made {
                    assert_eq!(e.kind(), ErrorKind::Corrupt, "{e}");
                    failed += 1;
                } else if n % 4 < 3 {
                    let r = match n % 4 {
                        1 => v.rmdir(ROOT, &full, name.as_bytes()),
                        _ => v.unlink(ROOT, &full, name.as_bytes()),
                    };
                    r.unwrap();
                }
            }
            assert!(failed > 3, "{failed}");
            assert_eq!((v.statfs().files_free, lookup(v, "other/file").nlink()), (free.files_free, 1));
        });
    }
}

#[test]
fn a_directory_without_a_parent_stays_where_it_is() {
    if skip() {
        return;
    }
    let dir = scratch();
    with_damage(dir.path(), "bmap /other/sub 0", |v| {
        let (root, other) = (v.root().unwrap(), lookup(v, "other"));
        let e = v.rename(ROOT, (&other, b"sub"), (&root, b"sub"), RenameFlags::empty()).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Corrupt, "{e}");
        let exchange = RenameFlags::EXCHANGE;
        assert!(v.rename(ROOT, (&other, b"sub"), (&root, b"full"), exchange).is_err());
        lookup(v, "other/sub");
    });
}

/// Blocks that are freed in a group with a damaged bitmap stay in use there, for e2fsck; the file is removed.
#[test]
fn a_damaged_bitmap_keeps_no_file() {
    if skip() {
        return;
    }
    let dir = scratch();
    let whole = volume(dir.path());
    let image = dir.path().join("bitmap");
    std::fs::write(&image, &whole).unwrap();
    let path = image.to_str().unwrap();
    let groups = must("dumpe2fs", &[path]);
    let first = number(&image, "bmap /other/file 0");
    let group = (first - 1) / 8192;
    let at = groups.split(&format!("Group {group}: ")).nth(1).unwrap();
    let at = at.split("Block bitmap at ").nth(1).unwrap();
    let at: usize = at.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap();
    let mut damaged = whole;
    damaged[at * 1024 + 900] ^= 0x10;
    let device = Arc::new(MemoryDevice::from_bytes(&damaged));
    let v = mount(&device);
    let (other, f) = (lookup(&v, "other"), lookup(&v, "other/file"));
    v.open(ROOT, &f, OpenFlags::WRITE).unwrap().truncate(10).unwrap();
    drop(f);
    v.unlink(ROOT, &other, b"file").unwrap();
    assert_eq!(v.fs().read_only(), None);
    v.create(ROOT, &other, b"late", 0o644).unwrap();
    drop(other);
    v.unmount().unwrap();
    std::fs::write(&image, bytes(&device)).unwrap();
    let said = mended_by_e2fsck(path);
    assert!(said.contains("differences"), "{said}");
    for not in ["Inode", "Entry", "Unattached", "ref count"] {
        assert!(!said.contains(not), "{said}");
    }
    must_be_clean(path);
}

/// A large directory is removed in as many changes as it needs.
#[test]
fn a_directory_larger_than_a_transaction_goes() {
    if skip() {
        return;
    }
    let dir = scratch();
    let image = dir.path().join("many");
    mke2fs(&image, &["-t", "ext4", "-b", "1024", "-J", "size=1", "-N", "40000"], "64M");
    let device = Arc::new(MemoryDevice::from_bytes(&std::fs::read(&image).unwrap()));
    let v = mount(&device);
    let root = v.root().unwrap();
    let d = v.mkdir(ROOT, &root, b"d", 0o755).unwrap();
    let spread = v.create(ROOT, &root, b"spread", 0o644).unwrap();
    let f = v.open(ROOT, &spread, OpenFlags::WRITE).unwrap();
    let name = |n: usize| format!("{n}-{}", "n".repeat(200)).into_bytes();
    let one = v.create(ROOT, &root, b"one", 0o644).unwrap();
    for n in 0..12_000 {
        v.link(ROOT, &one, &d, &name(n)).unwrap();
        if n % 40 == 0 {
            // Another file's blocks lie between the directory's.
            f.write_at(n as u64 * 1024, &[1; 1024]).unwrap();
            f.fsync(true).unwrap();
        }
    }
    assert!(d.size() > 3 << 20);
    for n in 0..12_000 {
        v.unlink(ROOT, &d, &name(n)).unwrap();
    }
    drop((d, f, spread, one));
    v.rmdir(ROOT, &root, b"d").unwrap();
    drop(root);
    v.unmount().unwrap();
    std::fs::write(&image, bytes(&device)).unwrap();
    must_be_clean(&image);
}
