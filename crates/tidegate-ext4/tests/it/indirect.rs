//! Files with block maps, compared with the host's kernel doing the same on a volume of its own: distant
//! writes, truncations, holes, and searches for data and holes.

use crate::changed::open_to_write;
use crate::rig::*;
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use tidegate_testing::fill::Rng;
use tidegate_vfs::*;

const ROOT: &Cred = &Cred::ROOT;
/// The mode of fallocate(2) that makes a hole.
pub const PUNCH: u32 = 3;
/// Files without extents refuse these operations: allocation, with zeros or without; removal and insertion of
/// ranges.
const REFUSED: [u32; 5] = [0, 1, 0x10, 8, 0x20];

/// A file of our engine and one of the kernel.
pub struct Pair {
    ours: File,
    theirs: std::fs::File,
}

/// A position in the direct numbers, or below one, two or three levels of blocks of numbers.
fn place(rng: &mut Rng, block: u64) -> u64 {
    let n = block / 4;
    let begins = [0, 12, 12 + n, 12 + n + n * n][rng.below(4) as usize];
    // The position is around the meeting of two levels, or up to a few blocks of numbers behind it.
    let span = [3, 40, 3 * n][rng.below(3) as usize];
    ((begins + rng.below(span)) * block + rng.below(2) * rng.below(block))
        .saturating_sub(rng.below(2) * block)
}

impl Pair {
    /// An empty file of that name on a volume of ours and on one of the kernel's.
    pub fn new(v: &Arc<Vfs>, kernel: &Mounted, name: &str) -> Pair {
        let inode = v.create(ROOT, &v.root().unwrap(), name.as_bytes(), 0o644).unwrap();
        let ours = v.open(ROOT, &inode, OpenFlags::READ | OpenFlags::WRITE).unwrap();
        let path = kernel.path().join(name);
        let theirs = OpenOptions::new().read(true).write(true).create_new(true).open(path).unwrap();
        Pair { ours, theirs }
    }

    pub fn write(&self, at: u64, data: &[u8]) {
        self.ours.write_at(at, data).unwrap();
        self.theirs.write_all_at(data, at).unwrap();
    }

    pub fn truncate(&self, size: u64) {
        self.ours.truncate(size).unwrap();
        self.theirs.set_len(size).unwrap();
    }

    pub fn fsync(&self) {
        self.ours.fsync(false).unwrap();
        self.theirs.sync_all().unwrap();
    }

    pub fn allocate(&self, mode: u32, at: u64, len: u64) {
        let our = self.ours.fallocate(FallocateFlags::from_bits(mode).unwrap(), at, len);
        let how = rustix::fs::FallocateFlags::from_bits_retain(mode);
        let their = rustix::fs::fallocate(&self.theirs, how, at, len);
        assert_eq!(our.is_ok(), their.is_ok(), "{mode:#x}: {our:?}, the kernel: {their:?}");
    }

    fn step(&self, rng: &mut Rng, block: u64, n: u64) -> String {
        let (at, len) = (place(rng, block), 1 + rng.below(60 * block));
        match rng.below(10) {
            0..=3 => {
                self.write(at, &vec![n as u8 % 250 + 1; len as usize]);
                format!("{len} bytes written at {at}")
            }
            4 => {
                self.truncate(at);
                format!("cut to {at}")
            }
            5..=7 => {
                let len = if rng.below(4) == 0 { block * block } else { len };
                self.allocate(PUNCH, at, len);
                format!("{len} bytes punched at {at}")
            }
            8 => {
                let mode = REFUSED[rng.below(5) as usize];
                self.allocate(mode, at / block * block, len.next_multiple_of(block));
                format!("mode {mode:#x} of {len} bytes at {at}")
            }
            _ => {
                self.fsync();
                "fsync".into()
            }
        }
    }

    /// Compares the places of data and holes.
    pub fn compare_seeks(&self, what: &str) {
        let (mut at, end) = (0, self.ours.size());
        while at < end {
            for target in [SeekTarget::Data, SeekTarget::Hole] {
                use rustix::fs::SeekFrom;
                let whence = if target == SeekTarget::Data { SeekFrom::Data(at) } else { SeekFrom::Hole(at) };
                let (our, their) = (self.ours.seek(at, target), rustix::fs::seek(&self.theirs, whence));
                assert_eq!(our.as_ref().ok(), their.as_ref().ok(), "{what}: {target:?} from {at}");
                at = our.unwrap_or(end);
            }
        }
    }

    /// Compares the bytes around all places where data may be, and these places when everything is on the device.
    pub fn compare(&self, what: &str) {
        assert_eq!(self.ours.size(), self.theirs.metadata().unwrap().len(), "{what}");
        let mut at = 0;
        while let Ok(data) = rustix::fs::seek(&self.theirs, rustix::fs::SeekFrom::Data(at)) {
            at = rustix::fs::seek(&self.theirs, rustix::fs::SeekFrom::Hole(data)).unwrap();
            let (mut our, mut their) = (vec![0; (at - data) as usize], vec![1; (at - data) as usize]);
            self.ours.read_at(data, &mut our).unwrap();
            self.theirs.read_exact_at(&mut their, data).unwrap();
            assert!(our == their, "{what}: bytes from {data} on");
        }
        let mut at = 0;
        while let Ok(data) = self.ours.seek(at, SeekTarget::Data) {
            at = self.ours.seek(data, SeekTarget::Hole).unwrap();
            let (mut our, mut their) = (vec![0; (at - data) as usize], vec![1; (at - data) as usize]);
            self.ours.read_at(data, &mut our).unwrap();
            self.theirs.read_exact_at(&mut their, data).unwrap();
            assert!(our == their, "{what}: our bytes from {data} on");
        }
        self.fsync();
        self.compare_seeks(what);
    }
}

#[test]
fn block_maps_change_as_on_linux() {
    if skip() {
        return;
    }
    let seed = seed();
    let mut rng = Rng::new(seed);
    let dir = scratch();
    for (n, (kind, block)) in
        [("ext3", 1024), ("ext3", 4096), ("ext2", 4096), ("ext2", 2048)].into_iter().enumerate()
    {
        let (own, theirs) = (dir.path().join(format!("own-{n}")), dir.path().join(format!("kernel-{n}")));
        for image in [&own, &theirs] {
            mke2fs(image, &["-t", kind, "-b", &block.to_string()], "96M");
        }
        let kernel = Mounted::new(&theirs, "rw").unwrap();
        let v = open_to_write(&own);
        for f in 0..4 {
            let name = format!("f{f}");
            let pair = Pair::new(&v, &kernel, &name);
            for step in 0..100 {
                let did = pair.step(&mut rng, block, step);
                pair.compare(&format!("seed {seed} {kind} {block} {name} step {step}: {did}"));
            }
            pair.ours.fsync(false).unwrap();
            let has_data = pair.ours.seek(0, SeekTarget::Data).is_ok();
            assert!(pair.ours.inode().attr().blocks > 0 || !has_data, "seed {seed} {kind} {block} {name}");
        }
        let what = format!("seed {seed} {kind} {block}");
        v.unmount().unwrap();
        drop(v);
        must_be_clean(&own);
        let ours = Mounted::new(&own, "ro").unwrap();
        for f in 0..4 {
            let open = |m: &Mounted| std::fs::File::open(m.path().join(format!("f{f}"))).unwrap();
            let (ours, theirs) = (open(&ours), open(&kernel));
            assert_eq!(ours.metadata().unwrap().len(), theirs.metadata().unwrap().len(), "{what}");
            let mut at = 0;
            while let Ok(data) = rustix::fs::seek(&ours, rustix::fs::SeekFrom::Data(at)) {
                at = rustix::fs::seek(&ours, rustix::fs::SeekFrom::Hole(data)).unwrap();
                let (mut our, mut their) = (vec![0; (at - data) as usize], vec![1; (at - data) as usize]);
                ours.read_exact_at(&mut our, data).unwrap();
                theirs.read_exact_at(&mut their, data).unwrap();
                assert!(our == their, "{what}: f{f} from {data} on, as the kernel reads it");
            }
        }
    }
}
