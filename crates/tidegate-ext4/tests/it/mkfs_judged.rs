//! Volumes of our mkfs are judged: clean for e2fsck and for us, used by Linux and by our engine, and no
//! volume at all if mkfs was interrupted.

use crate::rig::*;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use tidegate_block::{Device, Errno, Fault, Faulty, MemoryDevice, Op, QueueLimits, RequestQueue, Rule, file};
use tidegate_ext4::check::{CheckOptions, check};
use tidegate_ext4::mkfs::{JournalSize, MkfsError, MkfsOptions, UNFINISHED, mkfs};
use tidegate_ext4::{Ext4Options, is_ext4};
use tidegate_rt::clock;
use tidegate_testing::temp::TempDir;

const MIB: u64 = 1 << 20;
/// The content of a device that was used before.
const STALE: u8 = 0xa7;

fn with(features: &str) -> MkfsOptions {
    let mut o = MkfsOptions::default();
    features.split(',').filter(|f| !f.is_empty()).for_each(|f| o.features.change(f).unwrap());
    o
}

fn queue(device: Arc<dyn Device>) -> Arc<RequestQueue> {
    Arc::new(RequestQueue::new(device, QueueLimits::default()))
}

fn open_file(path: &Path) -> Arc<RequestQueue> {
    queue(file::open(path, file::OpenOptions::default()).unwrap())
}

/// Asserts that e2fsck and our check find no problem.
fn assert_clean(image: &Path, of: &str) {
    let (clean, said) = checked_by_e2fsck(image);
    assert!(clean, "{of}: {said}");
    let found = check(&open_file(image), CheckOptions::default()).unwrap();
    assert!(found.is_clean() && found.notes.is_empty(), "{of}: {:?} {:?}", found.problems, found.notes);
}

#[test]
fn volumes_are_clean_and_used_by_linux_and_by_us() {
    if skip() {
        return;
    }
    let dir = scratch();
    let sets = [
        "",
        "orphan_file,metadata_csum_seed",
        "^has_journal",
        "^metadata_csum",
        "uninit_bg",
        "^64bit,^flex_bg,^resize_inode",
        "meta_bg,^resize_inode",
    ];
    for (n, features) in sets.into_iter().enumerate() {
        let image = dir.path().join(format!("{n}.img"));
        // Old content does no harm, whether tables are written or left to Linux.
        std::fs::write(&image, vec![STALE; 70 * MIB as usize]).unwrap();
        let o = MkfsOptions { discard: false, lazy_itable_init: n % 2 == 0, root_uid: 7, ..with(features) };
        mkfs(&open_file(&image), &o).unwrap();
        assert_clean(&image, features);
        let made = describe(&image);
        assert_eq!(describe_by_kernel(&image).expect("a volume that Linux knows"), made, "{features}");
        let (v, _) = open_to_write(&image);
        small_tree_in(&v);
        v.unmount().unwrap();
        drop(v);
        assert_clean(&image, features);
        let mounted = Mounted::new(&image, "").unwrap();
        for name in 0..2_000 {
            std::fs::write(mounted.path().join(format!("linux-{name}")), vec![1; name]).unwrap();
        }
        drop(mounted);
        assert_clean(&image, features);
        assert_eq!(describe(&image), describe_by_kernel(&image).unwrap(), "{features}");
    }
}

fn open_to_write(image: &Path) -> (Arc<tidegate_vfs::Vfs>, Arc<tidegate_ext4::Ext4>) {
    let bdi = tidegate_vfs::Bdi::new(tidegate_vfs::MemoryLimits::default());
    let options = Ext4Options::default();
    let fs = tidegate_ext4::Ext4::open(open_file(image), bdi.clone(), options).unwrap();
    let v = tidegate_vfs::Vfs::mount(fs.clone(), bdi, tidegate_vfs::MountOptions::default()).unwrap();
    (v, fs)
}

fn small_tree_in(v: &Arc<tidegate_vfs::Vfs>) {
    use tidegate_vfs::{Cred, FileType, NewInode, OpenFlags};
    let root = v.root().unwrap();
    for n in 0..700_u32 {
        let new = NewInode {
            file_type: if n % 7 == 0 { FileType::Directory } else { FileType::Regular },
            mode: 0o755,
            dir_flags: 0,
            umask: 0,
            uid: 0,
            gid: 0,
            rdev: Default::default(),
            target: b"",
            time: v.now(),
        };
        let inode = v.make(&Cred::ROOT, &root, format!("ours-{n}").as_bytes(), &new).unwrap();
        if !inode.is_dir() {
            let file = v.open(&Cred::ROOT, &inode, OpenFlags::WRITE).unwrap();
            file.write_at(0, &vec![n as u8; n as usize * 9]).unwrap();
        }
    }
}

#[test]
fn the_same_options_make_the_same_bytes() {
    let uuid = Some([7; 16]);
    let made = |uuid| {
        let device = Arc::new(MemoryDevice::new(16 * MIB));
        let time = tidegate_rt::Timespec { secs: 1_600_000_000, nanos: 0 };
        mkfs(&queue(device.clone()), &MkfsOptions { uuid, time, ..with("") }).unwrap();
        let mut bytes = vec![0; 16 * MIB as usize];
        let q = queue(device);
        for (n, piece) in bytes.chunks_mut(MIB as usize).enumerate() {
            let at = tidegate_block::Sector::from_bytes(n as u64 * MIB);
            piece.copy_from_slice(&q.read_wait(at, 256, tidegate_block::BioFlags::empty()).unwrap());
        }
        bytes
    };
    assert!(made(uuid) == made(uuid));
    assert!(made(None) != made(None));
}

#[test]
fn a_making_that_fails_leaves_no_volume() {
    // There is a volume before, and each write in turn is the first that fails.
    let mut failed = 0;
    for n in 0.. {
        let memory = Arc::new(MemoryDevice::new(8 * MIB));
        mkfs(&queue(memory.clone()), &with("")).unwrap();
        let rule = Rule::new(Fault::Fail(Errno::IO)).when(|rq| matches!(rq.op, Op::Write | Op::Flush));
        let faulty = Faulty::new(memory.clone(), [rule.which(n..u64::MAX)]);
        let made = mkfs(&queue(faulty), &with(""));
        let volume = is_ext4(&queue(memory.clone()));
        match made {
            Ok(_) => {
                assert!(volume);
                break;
            }
            Err(MkfsError::Io { .. }) => failed += 1,
            Err(e) => panic!("{e}"),
        }
        // The first write may leave the old volume; after the last, the new one may be complete though not
        // durable.
        if n > 0 && volume {
            assert!(mkfs_is_complete(&memory), "write {n} failed, and there is a volume");
        }
        let first = queue(memory).read_wait(tidegate_block::Sector(0), 1, tidegate_block::BioFlags::empty());
        assert!(volume || first.unwrap().starts_with(UNFINISHED));
    }
    assert!(failed > 10, "{failed}");
}

fn mkfs_is_complete(memory: &Arc<MemoryDevice>) -> bool {
    check(&queue(memory.clone()), CheckOptions::default()).unwrap().is_clean()
}

#[test]
fn what_cannot_be_made_is_told() {
    let told = |bytes, o: &MkfsOptions| {
        let memory: Arc<MemoryDevice> = Arc::new(MemoryDevice::new(bytes));
        mkfs(&queue(memory), o).unwrap_err().to_string()
    };
    let o = with("");
    let cases: [(u64, MkfsOptions, &str); 12] = [
        (16 << 10, o.clone(), "too small"),
        (MIB, with("^extent"), "extent"),
        (MIB, with("meta_bg"), "^resize_inode"),
        (MIB, with("^sparse_super"), "sparse_super"),
        (MIB, with("orphan_file,^has_journal"), "orphan_file needs a journal"),
        (MIB, with("^metadata_csum,metadata_csum_seed"), "metadata_csum_seed needs"),
        (MIB, MkfsOptions { block_size: Some(8192), ..o.clone() }, "choose 1024, 2048 or 4096"),
        (MIB, MkfsOptions { inode_size: 100, ..o.clone() }, "inodes of 100 bytes"),
        (MIB, MkfsOptions { inodes: Some(1 << 40), ..o.clone() }, "1099511627776 inodes"),
        (MIB, MkfsOptions { reserved_percent: 51.0, ..o.clone() }, "51 %"),
        (MIB, MkfsOptions { label: "seventeen bytes!!".into(), ..o.clone() }, "17 bytes is too long"),
        (64 * MIB, MkfsOptions { journal: JournalSize::Bytes(60 * MIB), ..o.clone() }, "does not fit"),
    ];
    for (bytes, options, why) in cases {
        let said = told(bytes, &options);
        assert!(said.contains(why), "{said}: {why}");
    }
    let e = with("").features.change("bigalloc").unwrap_err().to_string();
    assert_eq!(e, "bigalloc: not a feature that ext4 volumes can be made with");
}

#[test]
fn the_largest_volume_is_made_and_opened() {
    if skip() {
        return;
    }
    let Ok(dir) = TempDir::new_in(Path::new("/dev/shm"), "mkfs-largest") else { return };
    let image = dir.path().join("large.img");
    if File::create(&image).and_then(|f| f.set_len(16 << 40)).is_err() {
        println!("SKIPPED: no file of 16 TiB can be made here");
        return;
    }
    mkfs(&open_file(&image), &with("")).unwrap();
    let start = clock::now();
    let (v, _) = open_to_write(&image);
    println!("opened in {} us", (clock::now().0 - start.0) / 1000);
    small_tree_in(&v);
    v.unmount().unwrap();
    drop(v);
    assert_eq!(describe(&image).entries.len(), 702);
}
