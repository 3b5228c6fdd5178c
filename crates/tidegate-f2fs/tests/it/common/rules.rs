//! Single rules: short histories, each with one right answer.

use crate::common::posix::acl;
use crate::common::volume::{self, FEATURES};
use crate::common::watch::within;
use std::sync::Arc;
use std::time::Duration;
use tidegate_block::MemoryDevice;
use tidegate_rt::Timespec;
use tidegate_vfs::*;

const ROOT: &Cred = &Cred::ROOT;
const RW: OpenFlags = OpenFlags::READ.union(OpenFlags::WRITE);

struct Volume {
    device: Arc<MemoryDevice>,
    vfs: Arc<Vfs>,
    limits: MemoryLimits,
    mounts: i64,
}

impl Volume {
    fn new(mib: u64) -> Volume {
        Self::with(mib, MemoryLimits::default())
    }

    fn with(mib: u64, limits: MemoryLimits) -> Volume {
        let device = volume::template(mib, FEATURES).device();
        let vfs = Self::mount(&device, limits, 0);
        Volume { device, vfs, limits, mounts: 0 }
    }

    fn mount(device: &Arc<MemoryDevice>, limits: MemoryLimits, mounts: i64) -> Arc<Vfs> {
        let time = Timespec { secs: 1_700_000_000 + mounts, nanos: 7 };
        volume::mount_rw(device.clone(), limits, time).unwrap()
    }

    fn remount(&mut self) {
        self.vfs.unmount().unwrap();
        self.again();
    }

    /// Leaves the volume as after a power cut right behind a sync.
    fn abandon(&mut self) {
        self.vfs.sync().unwrap();
        self.device = volume::Image::of(&self.device).device();
        self.again();
    }

    fn again(&mut self) {
        volume::fsck(&self.device).unwrap();
        self.mounts += 1;
        self.vfs = Self::mount(&self.device, self.limits, self.mounts);
    }

    fn root(&self) -> Arc<Inode> {
        self.vfs.root().unwrap()
    }

    fn file(&self, name: &str, mode: u32) -> Arc<Inode> {
        self.vfs.create(ROOT, &self.root(), name.as_bytes(), mode).unwrap()
    }

    fn find(&self, path: &str) -> Arc<Inode> {
        self.vfs.resolve(ROOT, path.as_bytes(), false).unwrap()
    }
}

fn ann() -> Cred {
    Cred { uid: 1000, gid: 1000, groups: vec![2000] }
}

fn skip() -> bool {
    tidegate_testing::oracle::skip_or_fail("mkfs.f2fs") || tidegate_testing::oracle::skip_or_fail("fsck.f2fs")
}

fn kind<T>(r: Result<T>) -> Option<ErrorKind> {
    r.err().map(|e| e.kind())
}

/// A node that came out of the NAT journal is changed after a checkpoint emptied the journal.
#[test]
fn a_node_outlives_its_journal_entry() {
    if skip() {
        return;
    }
    let mut v = Volume::new(100);
    drop(v.file("kept", 0o755));
    v.abandon();
    let kept = v.find("/kept");
    for n in 0..60 {
        v.file(&format!("other-{n}"), 0o600);
    }
    v.vfs.sync().unwrap();
    v.vfs.setattr(ROOT, &kept, &SetAttr { mode: Some(0o711), ..Default::default() }).unwrap();
    drop(kept);
    v.remount();
    assert_eq!(format!("{:o}", v.find("/kept").attr().mode), "711");
}

/// Makes many files, and after a sync changes each of them.
fn change_many(count: u32, limits: MemoryLimits) {
    let mut v = Volume::with(700, limits);
    let name = |n: u32| format!("file-{n}");
    for n in 0..count {
        v.file(&name(n), 0o600);
    }
    v.vfs.sync().unwrap();
    for n in 0..count {
        let inode = v.find(&name(n));
        v.vfs.setattr(ROOT, &inode, &SetAttr { uid: Some(n + 1), ..Default::default() }).unwrap();
    }
    v.remount();
    let lost = (0..count).filter(|n| v.find(&name(*n)).attr().uid != n + 1).count();
    assert_eq!(lost, 0, "changes lost");
}

/// The node table drops clean entries when it has many, but not entries of nodes that are still in memory.
#[test]
fn nodes_outlive_their_table_entries() {
    if skip() {
        return;
    }
    let limits = MemoryLimits { cache: 1 << 30, dirty: 1 << 30, background: 1 << 30, inodes: 100_000 };
    within(Duration::from_secs(30), "changing 70,000 files", move || change_many(70_000, limits));
}

/// A cache full of dirty nodes gets room by writing them, not by dropping nodes that were just read.
#[test]
fn more_dirty_nodes_than_the_cache_holds() {
    if skip() {
        return;
    }
    within(Duration::from_secs(60), "making 30,000 files", || change_many(30_000, MemoryLimits::default()));
}

#[test]
fn a_write_of_nothing_does_nothing() {
    if skip() {
        return;
    }
    let v = Volume::new(100);
    let inode = v.file("a", 0o600);
    let f = v.vfs.open(ROOT, &inode, RW).unwrap();
    f.write_at(100, b"").unwrap();
    assert_eq!(f.size(), 0);
    f.write_at(0, &[7; 10_000]).unwrap();
    f.write_at(20_000, b"").unwrap();
    assert_eq!(f.size(), 10_000);
}

#[test]
fn a_failed_setxattr_changes_nothing() {
    if skip() {
        return;
    }
    let mut v = Volume::new(100);
    drop(v.file("a", 0o600));
    v.remount();
    let inode = v.find("/a");
    let before = inode.attr().clone();
    let r = v.vfs.setxattr(ROOT, &inode, b"user.big", Some(&[1; 4500]), XattrFlags::empty());
    assert!(matches!(kind(r), Some(ErrorKind::NoSpace | ErrorKind::TooBig)));
    for n in 0..3 {
        let name = format!("user.{n}");
        let r = v.vfs.setxattr(ROOT, &inode, name.as_bytes(), Some(&[1; 3000]), XattrFlags::empty());
        assert_eq!(r.is_ok(), n == 0, "attribute {n}");
        v.vfs.setattr(ROOT, &inode, &SetAttr { ctime: Some(before.ctime), ..Default::default() }).unwrap();
    }
    let r = v.vfs.setxattr(ROOT, &inode, b"user.1", Some(&[1; 3000]), XattrFlags::empty());
    assert!(matches!(kind(r), Some(ErrorKind::NoSpace | ErrorKind::TooBig)));
    assert_eq!(inode.attr().ctime, before.ctime);
    assert_eq!(v.vfs.listxattr(ROOT, &inode).unwrap(), vec![b"user.0".to_vec()]);
}

/// open(2): a directory cannot be opened with O_CREAT.
#[test]
fn create_does_not_open_a_directory() {
    if skip() {
        return;
    }
    let v = Volume::new(100);
    v.vfs.mkdir(ROOT, &v.root(), b"dir", 0o755).unwrap();
    let r = v.vfs.open_path(ROOT, b"/dir", OpenFlags::READ | OpenFlags::CREATE, 0o600);
    assert_eq!(kind(r), Some(ErrorKind::IsADirectory));
}

/// open(2) with O_CREAT creates the file that a dangling link points to; with O_EXCL it does not follow the
/// link.
#[test]
fn create_follows_a_dangling_link() {
    if skip() {
        return;
    }
    let v = Volume::new(100);
    v.vfs.mkdir(ROOT, &v.root(), b"dir", 0o755).unwrap();
    v.vfs.symlink(ROOT, &v.root(), b"link", b"dir/made").unwrap();
    let create = RW | OpenFlags::CREATE;
    let r = v.vfs.open_path(ROOT, b"/link", create | OpenFlags::EXCL, 0o600);
    assert_eq!(kind(r), Some(ErrorKind::Exists));
    let f = v.vfs.open_path(ROOT, b"/link", create, 0o600).unwrap();
    assert_eq!(f.inode().ino, v.find("/dir/made").ino);
}

/// A directory without search permission does not tell whether a name exists.
#[test]
fn a_closed_directory_tells_no_names() {
    if skip() {
        return;
    }
    let v = Volume::new(100);
    let dir = v.vfs.mkdir(ROOT, &v.root(), b"closed", 0o700).unwrap();
    v.vfs.create(ROOT, &dir, b"secret", 0o600).unwrap();
    let flags = RW | OpenFlags::CREATE | OpenFlags::EXCL;
    for name in ["/closed/secret", "/closed/other"] {
        let r = v.vfs.open_path(&ann(), name.as_bytes(), flags, 0o600);
        assert_eq!(kind(r), Some(ErrorKind::PermissionDenied), "{name}");
    }
}

/// A caller without privileges clears the set-id bits by a change of content.
#[test]
fn content_changes_drop_set_id_bits() {
    if skip() {
        return;
    }
    let v = Volume::new(100);
    for (i, len) in [10, 10_000].into_iter().enumerate() {
        let inode = v.file(&format!("written-{i}"), 0o6777);
        let f = v.vfs.open(&ann(), &inode, RW).unwrap();
        f.write_at(0, &vec![1; len]).unwrap();
        assert_eq!(format!("{:o}", inode.attr().mode), "777", "a write of {len} bytes");
        let inode = v.file(&format!("cut-{i}"), 0o6777);
        let f = v.vfs.open(&ann(), &inode, RW).unwrap();
        f.truncate(len as u64).unwrap();
        assert_eq!(format!("{:o}", inode.attr().mode), "777", "a cut to {len} bytes");
        let inode = v.file(&format!("sized-{i}"), 0o6777);
        v.vfs.setattr(&ann(), &inode, &SetAttr { size: Some(len as u64), ..Default::default() }).unwrap();
        assert_eq!(format!("{:o}", inode.attr().mode), "777", "a size of {len} bytes");
    }
}

/// Only the owner may set arbitrary times with utimensat(2).
#[test]
fn only_the_owner_chooses_times() {
    if skip() {
        return;
    }
    let v = Volume::new(100);
    let inode = v.file("a", 0o666);
    let set = SetAttr { mtime: Some(Timespec { secs: 5, nanos: 0 }), ..Default::default() };
    assert_eq!(kind(v.vfs.setattr(&ann(), &inode, &set)), Some(ErrorKind::NotPermitted));
}

/// acl(5): the lists that are valid, as in posix_acl_valid().
#[test]
fn malformed_access_lists_are_refused() {
    if skip() {
        return;
    }
    let v = Volume::new(100);
    let inode = v.file("a", 0o640);
    const N: u32 = u32::MAX;
    let bad: [&[acl::Entry]; 8] = [
        &[(1, 6, N)],
        &[(1, 6, N), (4, 4, N)],
        &[(4, 4, N), (32, 0, N)],
        &[(1, 6, N), (2, 6, 1000), (4, 4, N), (32, 0, N)],
        &[(32, 0, N), (4, 4, N), (1, 6, N)],
        &[(1, 6, N), (1, 6, N), (4, 4, N), (32, 0, N)],
        &[(1, 6, N), (4, 4, N), (16, 7, N), (16, 7, N), (32, 0, N)],
        &[(1, 15, N), (4, 4, N), (32, 0, N)],
    ];
    for list in bad {
        let r = v.vfs.setxattr(ROOT, &inode, acl::ACCESS, Some(&acl::encode(list)), XattrFlags::empty());
        assert_eq!(kind(r), Some(ErrorKind::InvalidArgument), "{list:?}");
        assert_eq!(inode.attr().mode, 0o640, "{list:?}");
    }
}

/// A list without entries is no list: setting it removes the access list and leaves the mode.
#[test]
fn an_empty_access_list_is_none() {
    if skip() {
        return;
    }
    let v = Volume::new(100);
    let inode = v.file("a", 0o640);
    let set = |list: &[acl::Entry]| {
        v.vfs.setxattr(ROOT, &inode, acl::ACCESS, Some(&acl::encode(list)), XattrFlags::empty())
    };
    set(&acl::sample(1)).unwrap();
    let mode = inode.attr().mode;
    set(&[]).unwrap();
    assert_eq!(inode.attr().mode, mode);
    assert_eq!(kind(v.vfs.getxattr(ROOT, &inode, acl::ACCESS)), Some(ErrorKind::NoData));
}

/// POSIX.1e: one of the matching group entries must allow everything that is asked for.
#[test]
fn group_entries_do_not_add_up() {
    if skip() {
        return;
    }
    let v = Volume::new(100);
    let inode = v.file("a", 0o600);
    const N: u32 = u32::MAX;
    let list = [(1, 6, N), (4, 0, N), (8, 4, 1000), (8, 2, 2000), (16, 7, N), (32, 0, N)];
    v.vfs.setxattr(ROOT, &inode, acl::ACCESS, Some(&acl::encode(&list)), XattrFlags::empty()).unwrap();
    assert!(v.vfs.open(&ann(), &inode, OpenFlags::READ).is_ok());
    assert!(v.vfs.open(&ann(), &inode, OpenFlags::WRITE).is_ok());
    assert_eq!(kind(v.vfs.open(&ann(), &inode, RW)), Some(ErrorKind::PermissionDenied));
}

/// Linux accepts no attribute name of more than 255 bytes, its namespace included: Linux could list a longer
/// name, but neither read nor remove it.
#[test]
fn attribute_names_end_at_255_bytes() {
    if skip() {
        return;
    }
    let v = Volume::new(100);
    let inode = v.file("a", 0o600);
    let set = |len: usize| {
        let name = [b"user.", &vec![b'n'; len - 5][..]].concat();
        v.vfs.setxattr(ROOT, &inode, &name, Some(b"v"), XattrFlags::empty())
    };
    assert_eq!(kind(set(256)), Some(ErrorKind::Range));
    assert_eq!(kind(set(260)), Some(ErrorKind::Range));
    assert_eq!(kind(set(261)), Some(ErrorKind::Range));
    set(255).unwrap();
}
