//! Volumes that we filled, damaged in sensitive places, and repaired: everything that was not hit is
//! unchanged, and the stock checker agrees.

use crate::util;
use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tidegate_block::{QueueLimits, RequestQueue, file};
use tidegate_f2fs::gate::{Checkpoint, Superblock};
use tidegate_f2fs::raw::*;
use tidegate_f2fs::repair::{Outcome, RepairOptions, RepairReport, repair};
use tidegate_vfs::*;
use util::{fsck, make_image, mount};

const ROOT: &Cred = &Cred::ROOT;
const RW: OpenFlags = OpenFlags::READ.union(OpenFlags::WRITE);
const SIZE: u64 = 128 << 20;
const FEATURES: &str = "extra_attr,inode_checksum,flexible_inline_xattr,inode_crtime,sb_checksum";

fn skip() -> bool {
    tidegate_testing::oracle::skip_or_fail("mkfs.f2fs") || tidegate_testing::oracle::skip_or_fail("fsck.f2fs")
}

fn name(n: u32) -> String {
    format!("file-number-{n:05}")
}

fn content(n: u32) -> Vec<u8> {
    n.to_le_bytes().repeat(1 + (n as usize * 53) % 3000)
}

/// A large directory, small ones, a file with direct and indirect nodes, links and attributes.
fn fill(v: &Arc<Vfs>, files: u32) {
    let top = v.root().unwrap();
    let big = v.mkdir(ROOT, &top, b"big", 0o755).unwrap();
    for n in 0..files {
        let inode = v.create(ROOT, &big, name(n).as_bytes(), 0o644).unwrap();
        v.open(ROOT, &inode, RW).unwrap().write_at(0, &content(n)).unwrap();
        if n % 50 == 0 {
            let dir = v.mkdir(ROOT, &top, format!("dir-{n}").as_bytes(), 0o755).unwrap();
            v.link(ROOT, &inode, &dir, b"linked").unwrap();
            v.symlink(ROOT, &dir, b"symlink", b"linked").unwrap();
            v.setxattr(ROOT, &inode, b"user.long", Some(&[7; 3000]), XattrFlags::empty()).unwrap();
        }
    }
    let inode = v.create(ROOT, &top, b"sparse", 0o600).unwrap();
    let f = v.open(ROOT, &inode, RW).unwrap();
    for n in 0..30u64 {
        f.write_at(n * (700 << 12), &[n as u8 + 1; 5000]).unwrap();
    }
}

/// Uses node numbers and frees them, so that they have another version when they are used next.
fn use_nids(v: &Arc<Vfs>, files: u32) {
    let top = v.root().unwrap();
    (0..files).for_each(|n| drop(v.create(ROOT, &top, name(n).as_bytes(), 0o644).unwrap()));
    v.sync().unwrap();
    (0..files).for_each(|n| v.unlink(ROOT, &top, name(n).as_bytes()).unwrap());
    drop(top);
    v.sync().unwrap();
}

/// Each file's content by its path; for a sparse file only its start.
fn contents(v: &Arc<Vfs>) -> BTreeMap<String, Vec<u8>> {
    let mut all = BTreeMap::new();
    let mut dirs = vec![(String::new(), v.root().unwrap())];
    while let Some((path, dir)) = dirs.pop() {
        for e in v.entries(&dir).unwrap() {
            let path = format!("{path}/{}", String::from_utf8_lossy(&e.name));
            let inode = v.lookup(&dir, &e.name).unwrap();
            let size = inode.attr().size.min(1 << 20) as usize;
            match inode.file_type {
                FileType::Directory => dirs.push((path, inode)),
                FileType::Symlink => drop(all.insert(path, v.readlink(&inode).unwrap())),
                _ => {
                    let mut content = vec![0; size];
                    v.open(ROOT, &inode, OpenFlags::READ).unwrap().read_at(0, &mut content).unwrap();
                    all.insert(path, content);
                }
            }
        }
    }
    all
}

struct Scene {
    _dir: tempfile::TempDir,
    path: PathBuf,
    before: BTreeMap<String, Vec<u8>>,
}

impl Scene {
    fn new(features: &str, files: u32) -> Scene {
        let dir = tempfile::tempdir().unwrap();
        let path = make_image(dir.path(), SIZE, features);
        Self::on(dir, path, files)
    }

    /// A scene whose node numbers were in use before.
    fn reused(features: &str, files: u32) -> Scene {
        let dir = tempfile::tempdir().unwrap();
        let path = make_image(dir.path(), SIZE, features);
        let v = mount(&path);
        use_nids(&v, files);
        v.unmount().unwrap();
        drop(v);
        Self::on(dir, path, files)
    }

    fn on(dir: tempfile::TempDir, path: PathBuf, files: u32) -> Scene {
        let v = mount(&path);
        fill(&v, files);
        let before = contents(&v);
        v.unmount().unwrap();
        drop(v);
        Scene { _dir: dir, path, before }
    }

    fn read(&self, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        std::fs::File::open(&self.path).unwrap().read_exact_at(&mut bytes, at).unwrap();
        bytes
    }

    fn write(&self, at: u64, bytes: &[u8]) {
        std::fs::File::options().write(true).open(&self.path).unwrap().write_all_at(bytes, at).unwrap();
    }

    fn block(&self, addr: u32) -> Vec<u8> {
        self.read(addr as u64 * BLOCK_SIZE as u64, BLOCK_SIZE)
    }

    fn superblock(&self) -> Superblock {
        Superblock::parse(&self.block(0), SIZE / BLOCK_SIZE as u64).unwrap()
    }

    fn checkpoint(&self) -> Checkpoint {
        Checkpoint::load(&self.superblock(), |n| Ok(self.block(n))).unwrap()
    }

    /// Blocks of the main area for which the predicate is true.
    fn find(&self, wanted: impl Fn(&[u8]) -> bool) -> Vec<u32> {
        let sb = self.superblock();
        let end = sb.main_blkaddr + sb.main_segments * BLOCKS_PER_SEG;
        (sb.main_blkaddr..end).filter(|n| wanted(&self.block(*n))).collect()
    }

    fn wipe(&self, blocks: impl IntoIterator<Item = u32>) {
        blocks.into_iter().for_each(|n| self.write(n as u64 * BLOCK_SIZE as u64, &[0; BLOCK_SIZE]));
    }

    /// Repairs the volume. It must be clean for us and for the stock checker, and clean in a second repair.
    fn repair(&self) -> (RepairReport, Vec<String>) {
        let mut told = Vec::new();
        let report = run(&self.path, &mut told);
        assert_eq!(report.outcome, Outcome::Corrected, "{:?} {:?}", report.notes, report.check.problems);
        fsck(&self.path);
        let again = run(&self.path, &mut Vec::new());
        assert_eq!((again.outcome, again.changes), (Outcome::Clean, 0));
        (report, told)
    }

    /// The content now, read by an engine that then writes to it, too.
    fn after(&self) -> BTreeMap<String, Vec<u8>> {
        let v = mount(&self.path);
        let after = contents(&v);
        let top = v.root().unwrap();
        let dir = v.mkdir(ROOT, &top, b"afterwards", 0o755).unwrap();
        for n in 0..50 {
            let inode = v.create(ROOT, &dir, name(n).as_bytes(), 0o600).unwrap();
            v.open(ROOT, &inode, RW).unwrap().write_at(0, &content(n)).unwrap();
        }
        v.unmount().unwrap();
        drop((v, top, dir));
        fsck(&self.path);
        let v = mount(&self.path);
        let now = contents(&v);
        assert!(after.iter().all(|(path, content)| now.get(path) == Some(content)));
        v.unmount().unwrap();
        after
    }
}

fn run(path: &Path, told: &mut Vec<String>) -> RepairReport {
    let queue =
        Arc::new(RequestQueue::new(file::open(path, Default::default()).unwrap(), QueueLimits::default()));
    repair(&queue, RepairOptions::default(), &mut |c| told.push(c.to_string())).unwrap()
}

fn assert_same(before: &BTreeMap<String, Vec<u8>>, after: &BTreeMap<String, Vec<u8>>) {
    let differs = |(path, content): &(&String, &Vec<u8>)| after.get(*path) != Some(*content);
    let wrong: Vec<_> = before.iter().filter(differs).map(|(path, _)| path).take(10).collect();
    assert!(
        wrong.is_empty() && before.len() == after.len(),
        "{wrong:?}, {} and {}",
        before.len(),
        after.len()
    );
}

#[test]
fn a_lost_nat_comes_back_from_the_nodes() {
    if skip() {
        return;
    }
    for features in ["", FEATURES] {
        let s = Scene::reused(features, 300);
        let sb = s.superblock();
        s.wipe(sb.nat_blkaddr..sb.ssa_blkaddr);
        let (report, told) = s.repair();
        assert!(report.changes > 300, "{told:?}");
        assert_same(&s.before, &s.after());
    }
}

#[test]
fn a_lost_sit_and_ssa_come_back_from_the_owners() {
    if skip() {
        return;
    }
    let s = Scene::new("", 300);
    let sb = s.superblock();
    // A segment never loses both: a pointer needs a witness.
    s.wipe(sb.ssa_blkaddr..sb.main_blkaddr);
    s.repair();
    assert_same(&s.before, &s.after());
    let s = Scene::new("", 300);
    s.wipe(sb.sit_blkaddr..sb.nat_blkaddr);
    s.repair();
    assert_same(&s.before, &s.after());
}

#[test]
fn a_lost_block_of_a_directory_fills_lost_found() {
    if skip() {
        return;
    }
    for features in ["", FEATURES] {
        let s = Scene::new(features, 2000);
        // A block with an entry's name belongs to the large directory.
        let holds = |b: &[u8]| b[30 + 11 * 214..].windows(12).filter(|w| w == b"file-number-").count() > 20;
        let blocks = s.find(holds);
        assert!(blocks.len() > 10);
        s.write(blocks[3] as u64 * BLOCK_SIZE as u64, &[0x5a; BLOCK_SIZE]);
        let (_, told) = s.repair();
        let after = s.after();
        let moved = after.keys().filter(|p| p.starts_with("/lost_found/ino-")).count();
        assert!(moved > 20, "{told:?}");
        let mut contents: Vec<_> = s.before.values().collect();
        let mut now: Vec<_> = after.values().collect();
        contents.sort();
        now.sort();
        assert!(contents == now, "{} files before, {} after", contents.len(), now.len());
    }
}

#[test]
fn wrong_hashes_and_places_are_put_right() {
    if skip() {
        return;
    }
    let s = Scene::new("", 2000);
    let holds = |b: &[u8]| b[30 + 11 * 214..].windows(12).filter(|w| w == b"file-number-").count() > 20;
    let blocks = s.find(holds);
    // Two blocks change places, so their entries are in the wrong bucket.
    let (a, b) = (blocks[2], blocks[blocks.len() - 3]);
    let (x, y) = (s.block(a), s.block(b));
    s.write(a as u64 * BLOCK_SIZE as u64, &y);
    s.write(b as u64 * BLOCK_SIZE as u64, &x);
    // In a third block, the hashes are wrong.
    for slot in (0..NR_DENTRY_IN_BLOCK).step_by(3) {
        s.write(blocks[5] as u64 * BLOCK_SIZE as u64 + 30 + 11 * slot as u64, &[0xa5; 4]);
    }
    let (_, told) = s.repair();
    assert!(told.iter().any(|t| t.contains("where its hash says")), "{told:?}");
    assert_same(&s.before, &s.after());
}

#[test]
fn what_was_fsynced_comes_back_before_the_repair() {
    if skip() {
        return;
    }
    for flags in [CpFlags::empty(), CpFlags::FSCK] {
        let s = Scene::new("", 100);
        let v = mount(&s.path);
        let top = v.root().unwrap();
        // One file is unlinked while open, and one is fsynced: the checkpoint has neither change.
        let gone = v.create(ROOT, &top, b"gone", 0o600).unwrap();
        let held = v.open(ROOT, &gone, RW).unwrap();
        v.sync().unwrap();
        v.unlink(ROOT, &top, b"gone").unwrap();
        v.sync().unwrap();
        let kept = v.create(ROOT, &top, b"kept", 0o600).unwrap();
        let f = v.open(ROOT, &kept, RW).unwrap();
        f.write_at(0, &content(77)).unwrap();
        f.fsync(false).unwrap();
        let cut = s.path.with_extension("cut");
        std::fs::copy(&s.path, &cut).unwrap();
        drop((held, f, gone, kept, top));
        v.unmount().unwrap();
        drop(v);
        std::fs::copy(&cut, &s.path).unwrap();
        hurt(&s, flags);
        let told = &mut Vec::new();
        let report = run(&s.path, told);
        assert_ne!(report.outcome, Outcome::Left, "{:?}", report.check.problems);
        fsck(&s.path);
        let mut before = s.before.clone();
        if flags.is_empty() {
            before.insert("/kept".into(), content(77));
        } // else its nodes are of a checkpoint with another checksum
        assert_same(&before, &s.after());
    }
}

/// Without a free segment, changed blocks go to gaps.
#[test]
fn a_full_volume_is_mended_too() {
    if skip() {
        return;
    }
    let mut s = Scene::new("", 200);
    let v = mount(&s.path);
    let top = v.root().unwrap();
    let full = (0..100).find_map(|n| {
        let inode = match v.create(ROOT, &top, format!("filler-{n}").as_bytes(), 0o600) {
            Ok(inode) => inode,
            Err(e) => return Some(e),
        };
        let file = v.open(ROOT, &inode, RW).unwrap();
        (0..16).find_map(|i| file.write_at(i << 20, &[n as u8; 1 << 20]).err())
    });
    assert_eq!(full.map(|e| e.kind()), Some(ErrorKind::NoSpace));
    s.before = contents(&v);
    drop(top);
    v.unmount().unwrap();
    drop(v);
    hurt(&s, CpFlags::empty());
    let (report, told) = s.repair();
    assert_eq!(report.changes, 1, "{told:?}");
    let v = mount(&s.path);
    assert_same(&s.before, &contents(&v));
    v.unmount().unwrap();
}

/// Sets flags of the checkpoint in use, and a wrong link count.
fn hurt(s: &Scene, flags: CpFlags) {
    let cp = s.checkpoint();
    for at in [0, cp.raw.cp_pack_total_block_count.get() - 1] {
        let mut head = s.block(cp.start + at);
        let place = std::mem::offset_of!(RawCheckpoint, ckpt_flags);
        head[place] |= flags.bits() as u8;
        let offset = cp.raw.checksum_offset.get() as usize;
        let crc = checkpoint_crc(&head, offset);
        head[offset..offset + 4].copy_from_slice(&crc.to_le_bytes());
        s.write((cp.start + at) as u64 * BLOCK_SIZE as u64, &head);
    }
    let named = name(7);
    let links = std::mem::offset_of!(RawInode, i_links) as u64;
    let of = std::mem::offset_of!(RawInode, i_name);
    for addr in s.find(|b| b[of..].starts_with(named.as_bytes())) {
        s.write(addr as u64 * BLOCK_SIZE as u64 + links, &[9]);
    }
}
