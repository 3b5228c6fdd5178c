//! The operations of [`Vfs`] on a format other than F2FS, with blocks smaller than a page.

use crate::memfs::{BLOCK, mount};
use crate::{
    Cred, DeviceNumber, ErrorKind, FallocateFlags, File, FileType, NewInode, OpenFlags, RenameFlags,
    SeekTarget, SetAttr, Vfs, XattrFlags,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use tidegate_block::PAGE_SIZE;
use tidegate_rt::rng::Rng;
use tidegate_rt::{Nanos, sim, thread};

const ROOT: &Cred = &Cred::ROOT;
const PAGE: u64 = PAGE_SIZE as u64;

fn open(vfs: &Arc<Vfs>, path: &str) -> File {
    let flags = OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE;
    vfs.open_path(ROOT, path.as_bytes(), flags, 0o644).unwrap()
}

fn kind<T>(r: crate::Result<T>) -> ErrorKind {
    r.map(drop).unwrap_err().kind()
}

#[test]
fn names_are_made_moved_and_taken_away() {
    let (vfs, fs) = mount();
    let root = vfs.root().unwrap();
    let dir = vfs.mkdir(ROOT, &root, b"d", 0o755).unwrap();
    assert_eq!((root.nlink(), dir.nlink()), (3, 2));
    let f = vfs.create(ROOT, &dir, b"f", 0o644).unwrap();
    vfs.link(ROOT, &f, &root, b"g").unwrap();
    assert_eq!((f.nlink(), kind(vfs.create(ROOT, &root, b"g", 0o644))), (2, ErrorKind::Exists));
    vfs.symlink(ROOT, &root, b"s", b"d/f").unwrap();
    assert_eq!(vfs.resolve(ROOT, b"/s", true).unwrap().ino, f.ino);
    assert_eq!(kind(vfs.rmdir(ROOT, &root, b"d")), ErrorKind::NotEmpty);
    vfs.rename(ROOT, (&dir, b"f"), (&root, b"g2"), RenameFlags::empty()).unwrap();
    vfs.rename(ROOT, (&root, b"s"), (&dir, b"s"), RenameFlags::empty()).unwrap();
    let names = |d| vfs.entries(d).unwrap().into_iter().map(|e| e.name).collect::<Vec<_>>();
    assert!(names(&root).iter().any(|n| n == b"g2") && !names(&root).iter().any(|n| n == b"s"));
    vfs.unlink(ROOT, &dir, b"s").unwrap();
    vfs.rmdir(ROOT, &root, b"d").unwrap();
    vfs.unlink(ROOT, &root, b"g").unwrap();
    assert_eq!((root.nlink(), f.nlink(), kind(vfs.resolve(ROOT, b"/d", true))), (2, 1, ErrorKind::NotFound));
    vfs.setxattr(ROOT, &f, b"user.a", Some(b"1"), XattrFlags::CREATE).unwrap();
    let again = vfs.setxattr(ROOT, &f, b"user.a", Some(b"2"), XattrFlags::CREATE);
    assert_eq!((kind(again), vfs.getxattr(ROOT, &f, b"user.a").unwrap()), (ErrorKind::Exists, b"1".to_vec()));
    drop((f, dir));
    vfs.unlink(ROOT, &root, b"g2").unwrap();
    drop(root);
    vfs.unmount().unwrap();
    assert_eq!(fs.count(), 1, "what has no name is freed");
}

/// The format would keep only the low bits, which name another device.
#[test]
fn a_device_number_that_linux_has_not_is_refused() {
    let (vfs, _) = mount();
    let root = vfs.root().unwrap();
    for (major, minor, fits) in [(4095, 0xf_ffff, true), (4096, 1, false), (1, 1 << 20, false)] {
        for kind in [FileType::CharDevice, FileType::BlockDevice, FileType::Fifo] {
            let rdev = DeviceNumber { major, minor };
            let new = NewInode { rdev, ..vfs.new_inode(ROOT, kind, 0o600) };
            let made = vfs.make(ROOT, &root, format!("{kind:?}-{major}").as_bytes(), &new);
            let told = made.map(drop).map_err(|e| (e.kind(), e.what().contains(&major.to_string())));
            let refused = !fits && kind != FileType::Fifo;
            assert_eq!(
                told,
                if refused { Err((ErrorKind::InvalidArgument, true)) } else { Ok(()) },
                "{kind:?}"
            );
        }
    }
}

/// A capability is lost when the content or the owner changes, whichever user changes them.
#[test]
fn a_capability_goes_with_the_content_it_was_given_to() {
    const NAME: &[u8] = b"security.capability";
    let value = [&0x0200_0000u32.to_le_bytes()[..], &[1; 16]].concat();
    let (vfs, _) = mount();
    let f = open(&vfs, "/f");
    let inode = f.inode().clone();
    f.write_at(0, b"program").unwrap();
    let set = || vfs.setxattr(ROOT, &inode, NAME, Some(&value), XattrFlags::empty()).unwrap();
    let has = || vfs.getxattr(ROOT, &inode, NAME).is_ok();
    let attr = |set: SetAttr| vfs.setattr(ROOT, &inode, &set).unwrap();
    let changes: [(&str, &dyn Fn()); 6] = [
        ("write", &|| assert_eq!(f.write_at(3, b"x").unwrap(), 3)),
        ("truncate", &|| f.truncate(3).unwrap()),
        ("allocate", &|| f.fallocate(FallocateFlags::empty(), 0, 100).unwrap()),
        ("cut at opening", &|| drop(vfs.open(ROOT, &inode, OpenFlags::WRITE | OpenFlags::TRUNC).unwrap())),
        ("size", &|| attr(SetAttr { size: Some(1), ..SetAttr::default() })),
        ("owner", &|| attr(SetAttr { uid: Some(0), ..SetAttr::default() })),
    ];
    for (name, change) in changes {
        set();
        change();
        assert!(!has(), "{name}");
    }
    set();
    attr(SetAttr { mode: Some(0o700), ..SetAttr::default() });
    f.write_at(0, b"").unwrap();
    // Content that another program had cached may be older than the capability.
    let kept = vfs.open(ROOT, &inode, OpenFlags::WRITE | OpenFlags::NOCMTIME).unwrap();
    kept.write_at(0, b"late").unwrap();
    assert!(has() && vfs.remove_capability(&inode).unwrap() && !has());
    assert!(!vfs.remove_capability(&inode).unwrap());
}

/// A removed name is gone, though its inode cannot be freed.
#[test]
fn what_cannot_be_freed_has_lost_its_name() {
    let (vfs, fs) = mount();
    let root = vfs.root().unwrap();
    for name in [b"gone", b"over", b"from"] {
        vfs.create(ROOT, &root, name, 0o644).unwrap();
    }
    vfs.mkdir(ROOT, &root, b"dir", 0o755).unwrap();
    fs.stuck.store(true, SeqCst);
    vfs.unlink(ROOT, &root, b"gone").unwrap();
    vfs.rmdir(ROOT, &root, b"dir").unwrap();
    vfs.rename(ROOT, (&root, b"from"), (&root, b"over"), RenameFlags::empty()).unwrap();
    assert_eq!(kind(vfs.resolve(ROOT, b"/gone", true)), ErrorKind::NotFound);
    assert_eq!((vfs.bdi().not_freed(), fs.count()), (3, 5));
}

/// An open file keeps its content after its last name is gone, and is freed when it is closed.
#[test]
fn an_open_file_outlives_its_name() {
    let (vfs, fs) = mount();
    let f = open(&vfs, "/f");
    f.write_at(0, b"kept").unwrap();
    vfs.unlink(ROOT, &vfs.root().unwrap(), b"f").unwrap();
    let mut got = [0; 4];
    f.read_at(0, &mut got).unwrap();
    assert_eq!((&got, fs.count()), (b"kept", 2));
    drop(f);
    vfs.unmount().unwrap();
    assert_eq!(fs.count(), 1);
}

#[test]
fn holes_are_smaller_than_a_page() {
    let (vfs, fs) = mount();
    let f = open(&vfs, "/f");
    f.write_at(BLOCK, &[1; BLOCK as usize]).unwrap();
    f.write_at(6 * BLOCK, &[2; 10]).unwrap();
    f.fsync(false).unwrap();
    assert_eq!(fs.blocks(f.inode()), [1, 6]);
    let at = |pos, target| f.seek(pos, target);
    assert_eq!(at(0, SeekTarget::Data).unwrap(), BLOCK);
    assert_eq!(at(BLOCK + 3, SeekTarget::Data).unwrap(), BLOCK + 3, "the middle of a block");
    assert_eq!(at(BLOCK, SeekTarget::Hole).unwrap(), 2 * BLOCK);
    assert_eq!(at(2 * BLOCK, SeekTarget::Data).unwrap(), 6 * BLOCK);
    assert_eq!(at(6 * BLOCK, SeekTarget::Hole).unwrap(), 6 * BLOCK + 10, "the end");
    f.fallocate(FallocateFlags::KEEP_SIZE, 10 * BLOCK, 2 * BLOCK + 1).unwrap();
    assert_eq!((fs.blocks(f.inode()), f.size()), (vec![1, 6, 10, 11, 12], 6 * BLOCK + 10));
    vfs.unmount().unwrap();
}

/// Writes, truncations, holes, zeros and evictions, compared with a plain vector of bytes.
#[test]
fn bytes_are_what_a_vector_would_have() {
    for seed in 0..30 {
        let (vfs, _) = mount();
        let mut rng = Rng::new(seed);
        let mut models: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
        for step in 0..120_u64 {
            let name = rng.below(3);
            let (f, model) = (open(&vfs, &format!("/{name}")), models.entry(name).or_default());
            let (pos, len) = (rng.below(60_000), 1 + rng.below(20_000));
            let end = (pos + len) as usize;
            match rng.below(6) {
                0 => {
                    f.truncate(pos).unwrap();
                    model.resize(pos as usize, 0);
                }
                n @ (1 | 2) => {
                    let how = if n == 1 { FallocateFlags::PUNCH_HOLE } else { FallocateFlags::ZERO_RANGE };
                    f.fallocate(how | FallocateFlags::KEEP_SIZE, pos, len).unwrap();
                    let kept = model.len();
                    model[kept.min(pos as usize)..kept.min(end)].fill(0);
                }
                3 => f.fsync(false).unwrap(),
                _ => {
                    let data = vec![step as u8; len as usize];
                    f.write_at(pos, &data).unwrap();
                    model.resize(model.len().max(end), 0);
                    model[pos as usize..end].copy_from_slice(&data);
                }
            }
            if rng.one_in(4) {
                f.fsync(false).unwrap();
                f.forget_pages(0, u64::MAX);
            }
            let mut got = vec![0; model.len() + 1];
            assert_eq!(f.read_at(0, &mut got).unwrap(), model.len(), "seed {seed}, step {step}");
            assert!(got[..model.len()] == model[..], "seed {seed}, step {step}: other bytes");
        }
        vfs.unmount().unwrap();
    }
}

/// An append in several parts overwrites nothing that another thread appended meanwhile.
#[test]
fn appends_write_over_none() {
    const LARGE: usize = 3 << 20;
    for seed in 0..5 {
        sim::run(seed, 2, move || {
            let (vfs, _) = mount();
            open(&vfs, "/f");
            let append = |byte: u8, len: usize, times: usize| {
                let vfs = vfs.clone();
                thread::spawn("appender", move || {
                    let flags = OpenFlags::WRITE | OpenFlags::APPEND;
                    let f = vfs.open_path(ROOT, b"/f", flags, 0).unwrap();
                    (0..times).for_each(|_| _ = f.write_at(0, &vec![byte; len]).unwrap());
                })
            };
            let threads = [append(1, LARGE, 2), append(2, 4096, 200)];
            threads.into_iter().for_each(|t| t.unwrap().join());
            let f = open(&vfs, "/f");
            let mut all = vec![0; f.size() as usize];
            f.read_at(0, &mut all).unwrap();
            let of = |byte| all.iter().filter(|b| **b == byte).count();
            assert_eq!((of(1), of(2)), (2 * LARGE, 200 * 4096), "seed {seed}");
        });
    }
}

/// Renames within a directory lock two directories in it, and renames between these lock the same two.
#[test]
fn renames_of_and_between_two_directories_end() {
    for seed in 0..40 {
        // Threads switch between any two locks.
        let config = sim::Config { seed, cpus: 6, quantum: Nanos(0), jitter: 4, ..sim::Config::default() };
        let outcome = sim::run_with(&config, move || {
            let (vfs, _) = mount();
            let root = vfs.root().unwrap();
            let dirs = [b"c1", b"c2"].map(|name| vfs.mkdir(ROOT, &root, name, 0o755).unwrap());
            vfs.mkdir(ROOT, &dirs[1], b"x", 0o755).unwrap();
            let run = |what: Box<dyn Fn(&Vfs) + Send>| {
                let vfs = vfs.clone();
                thread::spawn("renamer", move || (0..60).for_each(|_| what(&vfs)))
            };
            let [c1, c2] = dirs;
            let (a, b) = (c1.clone(), c2.clone());
            let between = run(Box::new(move |v| {
                v.rename(ROOT, (&b, b"x"), (&a, b"x"), RenameFlags::empty()).unwrap();
                v.rename(ROOT, (&a, b"x"), (&b, b"x"), RenameFlags::empty()).unwrap();
            }));
            let of = run(Box::new(move |v| {
                // This format cannot exchange names, and says so with all locks held.
                let r = v.rename(ROOT, (&root, b"c1"), (&root, b"c2"), RenameFlags::EXCHANGE);
                assert_eq!(kind(r), ErrorKind::Unsupported);
            }));
            let beside = [b"y", b"z", b"w"].map(|name| {
                let c2 = c2.clone();
                run(Box::new(move |v| {
                    v.create(ROOT, &c2, name, 0o644).unwrap();
                    sim::charge(Nanos(1000));
                    v.unlink(ROOT, &c2, name).unwrap();
                }))
            });
            [between, of].into_iter().chain(beside).for_each(|t| t.unwrap().join());
        });
        assert!(outcome.is_ok(), "seed {seed}: {}", outcome.unwrap_err());
    }
}

/// A file that was open when its volume was unmounted fails with an error.
#[test]
fn an_unmounted_volume_takes_nothing() {
    let (vfs, _) = mount();
    let f = open(&vfs, "/f");
    f.write_at(0, b"x").unwrap();
    vfs.unmount().unwrap();
    let root = vfs.root();
    assert_eq!(kind(f.write_at(0, b"y")), ErrorKind::Stale);
    assert_eq!([kind(f.truncate(0)), kind(f.fsync(false)), kind(vfs.sync())], [ErrorKind::Stale; 3]);
    assert_eq!(kind(root.and_then(|root| vfs.mkdir(ROOT, &root, b"d", 0o755))), ErrorKind::Stale);
}

/// A page may have several blocks, and a hole takes those that it covers.
#[test]
fn a_hole_within_a_page_frees_blocks() {
    let (vfs, fs) = mount();
    let f = open(&vfs, "/f");
    let content = |f: &File| {
        let mut bytes = vec![1; 3 * PAGE as usize];
        assert_eq!(f.read_at(0, &mut bytes).unwrap(), bytes.len());
        bytes
    };
    let mut wanted = vec![7; 3 * PAGE as usize];
    f.write_at(0, &wanted).unwrap();
    f.fsync(false).unwrap();
    let mut blocks: Vec<u64> = (0..12).collect();
    // Within a page, over the end of one, and over a whole one.
    for bytes in [1000..3100, PAGE - 10..PAGE + BLOCK + 1, PAGE + 1..3 * PAGE - 1] {
        // A part of the bytes that go is dirty.
        f.write_at(bytes.start, &[9; 700]).unwrap();
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        f.fallocate(punch, bytes.start, bytes.end - bytes.start).unwrap();
        wanted[bytes.start as usize..bytes.end as usize].fill(0);
        assert!(content(&f) == wanted, "{bytes:?}");
        blocks.retain(|b| b * BLOCK < bytes.start || (b + 1) * BLOCK > bytes.end);
        assert_eq!(fs.blocks(f.inode()), blocks, "{bytes:?}");
    }
    f.inode().mapping.reclaim(false);
    assert!(content(&f) == wanted, "read anew");
    vfs.unmount().unwrap();
}

/// A clean page may leave the cache and come back at any time: a hole stays a hole all the same.
#[test]
fn a_hole_that_is_punched_stays_one_while_its_page_comes_and_goes() {
    for seed in 0..40 {
        // Threads switch between any two locks.
        let config = sim::Config { seed, quantum: Nanos(0), jitter: 4, ..sim::Config::default() };
        let outcome = sim::run_with(&config, move || {
            let (vfs, fs) = mount();
            let f = Arc::new(open(&vfs, "/f"));
            f.write_at(8 * PAGE, b"the end").unwrap();
            f.fsync(false).unwrap();
            let blocks = fs.blocks(f.inode());
            let reader = f.clone();
            let reader = thread::spawn("reader", move || {
                for _ in 0..100 {
                    reader.inode().mapping.reclaim(false);
                    reader.read_at(3 * PAGE, &mut [0]).unwrap();
                }
            });
            for _ in 0..100 {
                let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                f.fallocate(punch, 3 * PAGE, 100).unwrap();
                assert!(!f.inode().mapping.is_dirty(3), "seed {seed}: zeros are to be written to a hole");
            }
            reader.unwrap().join();
            f.fsync(false).unwrap();
            assert_eq!(fs.blocks(f.inode()), blocks, "seed {seed}");
            vfs.unmount().unwrap();
        });
        assert!(outcome.is_ok(), "seed {seed}: {}", outcome.unwrap_err());
    }
}

/// Its number may be another file's by then.
#[test]
fn a_freed_inode_is_not_changed() {
    let (vfs, _) = mount();
    let root = vfs.root().unwrap();
    let f = vfs.create(ROOT, &root, b"f", 0o644).unwrap();
    vfs.unlink(ROOT, &root, b"f").unwrap();
    let mode = SetAttr { mode: Some(0o777), ..SetAttr::default() };
    assert_eq!(kind(vfs.setattr(ROOT, &f, &mode)), ErrorKind::Stale);
    assert!(!vfs.touch_atime(&f).unwrap());
    drop((f, root));
    vfs.unmount().unwrap();
}

/// A directory that moves changes its own entry for its parent.
#[test]
fn a_directory_moves_only_where_it_may_be_written() {
    let (vfs, _) = mount();
    let root = vfs.root().unwrap();
    let user = Cred { uid: 1000, gid: 1000, groups: vec![] };
    let [a, b] = [b"a", b"b"].map(|name| {
        let dir = vfs.mkdir(ROOT, &root, name, 0o755).unwrap();
        let owner = SetAttr { uid: Some(1000), ..SetAttr::default() };
        vfs.setattr(ROOT, &dir, &owner).unwrap();
        dir
    });
    vfs.mkdir(ROOT, &a, b"d", 0o755).unwrap();
    vfs.mkdir(&user, &b, b"own", 0o755).unwrap();
    vfs.create(ROOT, &a, b"f", 0o644).unwrap();
    let (none, exchange) = (RenameFlags::empty(), RenameFlags::EXCHANGE);
    let moved = |from, to, flags| vfs.rename(&user, from, to, flags);
    assert_eq!(kind(moved((&a, b"d"), (&b, b"d"), none)), ErrorKind::PermissionDenied);
    assert_eq!(kind(moved((&b, b"own"), (&a, b"d"), exchange)), ErrorKind::PermissionDenied);
    moved((&a, b"d"), (&a, b"e"), none).unwrap();
    moved((&a, b"f"), (&b, b"f"), none).unwrap();
    moved((&b, b"own"), (&a, b"own"), none).unwrap();
    drop((a, b, root));
    vfs.unmount().unwrap();
}
