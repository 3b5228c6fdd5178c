//! A directory's default ACL comes with everything that is made in it, or nothing is made.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use tidegate_block::{MemoryDevice, QueueLimits, RequestQueue};
use tidegate_f2fs::check::{CheckOptions, check};
use tidegate_f2fs::mkfs::{MkfsOptions, mkfs};
use tidegate_f2fs::{F2fs, F2fsOptions};
use tidegate_rt::sim::{self, Config};
use tidegate_rt::{Nanos, thread};
use tidegate_vfs::acl::{self, Acl, Entry, NO_ID};
use tidegate_vfs::*;

const ROOT: &Cred = &Cred::ROOT;
const RW: OpenFlags = OpenFlags::READ.union(OpenFlags::WRITE);

fn queue(device: &Arc<MemoryDevice>) -> Arc<RequestQueue> {
    Arc::new(RequestQueue::new(device.clone(), QueueLimits::default()))
}

fn mount(device: &Arc<MemoryDevice>) -> Arc<Vfs> {
    let bdi = Bdi::new(MemoryLimits::default());
    let fs = F2fs::open(queue(device), bdi.clone(), F2fsOptions::default()).unwrap();
    let options = MountOptions { no_periodic_writeback: true, ..Default::default() };
    Vfs::mount(fs, bdi, options).unwrap()
}

/// A list that names `users` users. More than about twenty do not fit into an inode.
fn list(users: u32) -> Vec<u8> {
    let plain = |tag, perm| Entry { tag, perm, id: NO_ID };
    let mut all = vec![plain(acl::USER_OBJ, 7)];
    all.extend((0..users).map(|n| Entry { tag: acl::USER, perm: 6, id: 1000 + n }));
    all.extend([plain(acl::GROUP_OBJ, 5), plain(acl::MASK, 7), plain(acl::OTHER, 0)]);
    Acl(all).to_xattr()
}

/// An empty volume with a directory that has a default ACL.
fn volume(users: u32) -> (Arc<MemoryDevice>, Arc<Vfs>, Arc<Inode>) {
    let device = Arc::new(MemoryDevice::new(64 << 20));
    mkfs(&queue(&device), &MkfsOptions::default()).unwrap();
    let v = mount(&device);
    let dir = v.mkdir(ROOT, &v.root().unwrap(), b"dir", 0o755).unwrap();
    v.setxattr(ROOT, &dir, acl::DEFAULT, Some(&list(users)), XattrFlags::empty()).unwrap();
    (device, v, dir)
}

/// Asserts that the inode has the ACL of its directory, narrowed to the mode it was made with.
fn has_acl(v: &Vfs, inode: &Inode, users: u32, what: &str) {
    let mut want = Acl::parse(&list(users)).unwrap();
    want.restrict(if inode.is_dir() { 0o750 } else { 0o640 }, true);
    assert!(v.getxattr(ROOT, inode, acl::ACCESS).unwrap() == want.to_xattr(), "{what}");
    assert_eq!(inode.attr().mode, want.mode(), "{what}");
    if inode.is_dir() {
        assert!(v.getxattr(ROOT, inode, acl::DEFAULT).unwrap() == list(users), "{what}");
    }
}

fn judge(device: &Arc<MemoryDevice>, what: &str) {
    let report = check(&queue(device), CheckOptions::default()).unwrap();
    assert!(report.is_clean(), "{what}: {:#?}", report.problems);
}

/// There is room for the inode, but not for its ACL.
#[test]
fn where_there_is_no_room_for_an_acl_nothing_is_made() {
    const USERS: u32 = 40;
    let (device, v, dir) = volume(USERS);
    let filler = v.open_path(ROOT, b"/filler", RW | OpenFlags::CREATE, 0o644).unwrap();
    let free = || v.statfs().blocks_available;
    let mut pages = 256;
    while pages > 0 {
        match filler.write_at(filler.size(), &vec![2; pages * 4096]) {
            Ok(_) => {}
            Err(e) if e.kind() == ErrorKind::NoSpace => pages /= 2,
            Err(e) => panic!("{e}"),
        }
    }
    filler.truncate(filler.size() - (free() == 0) as u64 * 4096).unwrap();
    assert_eq!(free(), 1);
    let files = v.statfs().files_free;
    let no_space = |r: Result<()>, what: &str| {
        assert_eq!(r.map_err(|e| e.kind()), Err(ErrorKind::NoSpace), "{what}");
        assert_eq!((free(), v.statfs().files_free), (1, files), "{what}");
    };
    no_space(v.create(ROOT, &dir, b"f", 0o640).map(drop), "file");
    no_space(v.mkdir(ROOT, &dir, b"d", 0o750).map(drop), "directory");
    let new = v.new_inode(ROOT, FileType::Regular, 0o640);
    no_space(v.tmpfile(ROOT, &dir, &new, RW).map(drop), "file without a name");
    assert_eq!(v.entries(&dir).unwrap(), []);

    filler.write_at(filler.size(), &[2; 4096]).unwrap();
    assert_eq!(free(), 0);
    let set = v.setxattr(ROOT, filler.inode(), acl::ACCESS, Some(&list(USERS)), XattrFlags::empty());
    assert_eq!(set.map_err(|e| e.kind()), Err(ErrorKind::NoSpace));
    assert_eq!(filler.inode().attr().mode, 0o644, "mode of an ACL that was not set");

    filler.truncate(filler.size() - 100 * 4096).unwrap();
    has_acl(&v, &v.create(ROOT, &dir, b"f", 0o640).unwrap(), USERS, "file");
    has_acl(&v, &v.mkdir(ROOT, &dir, b"d", 0o750).unwrap(), USERS, "directory");
    let tmp = v.tmpfile(ROOT, &dir, &new, RW).unwrap();
    v.link(ROOT, tmp.inode(), &dir, b"t").unwrap();
    drop((tmp, filler));
    v.unmount().unwrap();
    judge(&device, "in the end");
    let v = mount(&device);
    for name in [b"f", b"d", b"t"] {
        let inode = v.resolve(ROOT, &[b"/dir/", &name[..]].concat(), true).unwrap();
        has_acl(&v, &inode, USERS, &String::from_utf8_lossy(name));
    }
    v.unmount().unwrap();
}

/// Runs `change` on the directory of a volume beside a thread that syncs. Returns the state that a power cut
/// leaves after each sync.
fn cuts(seed: u64, users: u32, change: fn(&Vfs, &Arc<Inode>)) -> Vec<MemoryDevice> {
    let config = Config { seed, cpus: 3, quantum: Nanos(0), jitter: 16, ..Config::default() };
    let run = move || {
        let (device, v, dir) = volume(users);
        let stop = Arc::new(AtomicBool::new(false));
        let syncer = {
            let (v, stop) = (v.clone(), stop.clone());
            let body = move || {
                let mut cuts = Vec::new();
                while !stop.load(SeqCst) {
                    v.sync().unwrap();
                    cuts.push(device.copy());
                }
                cuts
            };
            thread::spawn("syncer", body).unwrap()
        };
        change(&v, &dir);
        stop.store(true, SeqCst);
        syncer.join()
    };
    sim::run_with(&config, run).unwrap_or_else(|d| panic!("seed {seed}: {d}")).value
}

/// Calls `look` with the directory of each state, mounted.
fn each_cut(
    seed: u64,
    users: u32,
    change: fn(&Vfs, &Arc<Inode>),
    mut look: impl FnMut(&Vfs, &Arc<Inode>, &str),
) {
    for (n, cut) in cuts(seed, users, change).into_iter().map(Arc::new).enumerate() {
        let what = format!("seed {seed}, cut {n}");
        let v = mount(&cut);
        look(&v, &v.resolve(ROOT, b"/dir", true).unwrap(), &what);
        v.unmount().unwrap();
        judge(&cut, &what);
    }
}

/// No checkpoint has a file or directory without its ACL, whether the ACL fits into the inode or not.
#[test]
fn a_power_cut_leaves_nothing_without_its_acl() {
    let change = |v: &Vfs, dir: &Arc<Inode>| {
        for n in 0..20 {
            let name = format!("{n}");
            match n % 2 {
                0 => v.create(ROOT, dir, name.as_bytes(), 0o640).unwrap(),
                _ => v.mkdir(ROOT, dir, name.as_bytes(), 0o750).unwrap(),
            };
        }
    };
    for (seed, users) in (0..40).zip([3, 40].into_iter().cycle()) {
        each_cut(seed, users, change, |v, dir, what| {
            for e in v.entries(dir).unwrap() {
                has_acl(v, &v.lookup(dir, &e.name).unwrap(), users, what);
            }
        });
    }
}

/// No checkpoint has a mode that differs from the access ACL's.
#[test]
fn a_power_cut_parts_no_mode_from_its_acl() {
    let change = |v: &Vfs, dir: &Arc<Inode>| {
        let set = |list: &[u8]| v.setxattr(ROOT, dir, acl::ACCESS, Some(list), XattrFlags::empty()).unwrap();
        for n in 0..20 {
            match n % 4 {
                0 => set(&list(3)),
                1 => set(&list(40)),
                n => v
                    .setattr(ROOT, dir, &SetAttr { mode: Some(0o700 >> (3 * n)), ..Default::default() })
                    .unwrap(),
            }
        }
    };
    let mut seen = 0;
    for seed in 0..40 {
        each_cut(seed, 3, change, |v, dir, what| match v.getxattr(ROOT, dir, acl::ACCESS) {
            Ok(list) => {
                assert_eq!(dir.attr().mode, Acl::parse(&list).unwrap().mode(), "{what}");
                seen += 1;
            }
            Err(e) => assert_eq!((e.kind(), dir.attr().mode), (ErrorKind::NoData, 0o755), "{what}"),
        });
    }
    assert!(seen > 20, "few cuts have an ACL: {seen}");
}
