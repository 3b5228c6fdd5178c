//! Volumes whose sections have several segments are filled, thinned out, overwritten and mounted again, and
//! fsck.f2fs judges them after each step.

use crate::util;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use tidegate_block::{QueueLimits, RequestQueue, file};
use tidegate_f2fs::mkfs::{MkfsOptions, mkfs};
use tidegate_vfs::*;
use util::{fsck, make_image_with, mount};

const ROOT: &Cred = &Cred::ROOT;
const BLOCK: usize = 4096;
const SIZE: u64 = 256 << 20;
const SEED: u64 = 0x5ec7;

/// Each file's blocks, by the byte that fills each block.
#[derive(Default)]
struct Model {
    files: BTreeMap<u32, Vec<u8>>,
    made: u32,
    random: u64,
}

impl Model {
    fn below(&mut self, n: u64) -> u64 {
        self.random = self.random.wrapping_mul(6364136223846793005).wrapping_add(1);
        (self.random >> 33) % n
    }

    fn some_file(&mut self) -> u32 {
        let n = self.below(self.files.len() as u64) as usize;
        *self.files.keys().nth(n).unwrap()
    }

    /// Makes new files, some of them large, until fewer than `left` blocks are free.
    fn fill(&mut self, v: &Arc<Vfs>, left: u64) {
        while v.statfs().blocks_available > left {
            let len = [1, 3, 20, 900][self.below(4) as usize] + self.below(10) as usize;
            let (name, byte) = (self.made, self.below(256) as u8);
            let f = open(v, name, OpenFlags::WRITE | OpenFlags::CREATE);
            f.write_at(0, &vec![byte; len * BLOCK]).unwrap();
            self.files.insert(name, vec![byte; len]);
            self.made += 1;
        }
    }

    /// Removes about one file in three.
    fn thin_out(&mut self, v: &Arc<Vfs>) {
        let top = v.root().unwrap();
        for name in self.files.keys().copied().collect::<Vec<_>>() {
            if self.below(3) == 0 {
                v.unlink(ROOT, &top, format!("f{name}").as_bytes()).unwrap();
                self.files.remove(&name);
            }
        }
    }

    /// Changes blocks here and there, and syncs some of the files.
    fn overwrite(&mut self, v: &Arc<Vfs>) {
        for _ in 0..3000 {
            let (name, byte) = (self.some_file(), self.below(256) as u8);
            let at = self.below(self.files[&name].len() as u64) as usize;
            let f = open(v, name, OpenFlags::WRITE);
            f.write_at((at * BLOCK) as u64, &[byte; BLOCK]).unwrap();
            self.files.get_mut(&name).unwrap()[at] = byte;
            if self.below(200) == 0 {
                f.fsync(false).unwrap();
            }
        }
    }

    fn compare(&self, v: &Arc<Vfs>) {
        assert_eq!(v.entries(&v.root().unwrap()).unwrap().len(), self.files.len());
        for (name, blocks) in &self.files {
            let f = open(v, *name, OpenFlags::READ);
            let mut is = vec![0; blocks.len() * BLOCK];
            assert_eq!((f.size(), f.read_at(0, &mut is).unwrap()), (is.len() as u64, is.len()), "f{name}");
            for (at, byte) in blocks.iter().enumerate() {
                let block = &is[at * BLOCK..][..BLOCK];
                assert!(block.iter().all(|b| b == byte), "block {at} of f{name}");
            }
        }
    }
}

fn open(v: &Arc<Vfs>, name: u32, flags: OpenFlags) -> File {
    v.open_path(ROOT, format!("/f{name}").as_bytes(), flags, 0o644).unwrap()
}

/// Mounts, does a step, unmounts, runs the checker, and compares the content.
fn step(path: &Path, model: &mut Model, what: impl FnOnce(&mut Model, &Arc<Vfs>)) {
    let v = mount(path);
    what(model, &v);
    v.unmount().unwrap();
    drop(v);
    fsck(path);
    let v = mount(path);
    model.compare(&v);
    v.unmount().unwrap();
}

fn go_through(path: &Path) {
    println!("seed {SEED:#x}");
    let mut model = Model { random: SEED, ..Model::default() };
    fsck(path);
    for _ in 0..3 {
        step(path, &mut model, |m, v| m.fill(v, 1000));
        step(path, &mut model, |m, v| m.overwrite(v));
        step(path, &mut model, |m, v| m.thin_out(v));
        step(path, &mut model, |m, v| {
            m.overwrite(v);
            m.fill(v, 8000);
            m.thin_out(v);
        });
    }
}

fn missing() -> bool {
    tidegate_testing::oracle::skip_or_fail("mkfs.f2fs") || tidegate_testing::oracle::skip_or_fail("fsck.f2fs")
}

#[test]
fn of_four_segments_by_mkfs_f2fs() {
    if missing() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    go_through(&make_image_with(dir.path(), SIZE, &["-s", "4"]));
}

#[test]
fn of_four_segments_by_our_mkfs() {
    if missing() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ours.img");
    std::fs::File::create(&path).unwrap().set_len(SIZE).unwrap();
    let device = file::open(&path, Default::default()).unwrap();
    let options = MkfsOptions { segs_per_sec: 4, uuid: Some([4; 16]), ..Default::default() };
    mkfs(&RequestQueue::new(device, QueueLimits::default()), &options).unwrap();
    go_through(&path);
}
