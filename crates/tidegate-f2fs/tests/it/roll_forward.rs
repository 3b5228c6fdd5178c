//! Nearly full volumes: what fsync left to roll-forward is recovered, whatever was freed or taken back
//! since the checkpoint.

use crate::common::volume;
use std::sync::Arc;
use tidegate_block::MemoryDevice;
use tidegate_f2fs::{F2fs, F2fsOptions};
use tidegate_vfs::*;
use volume::{Image, fsck, mount_with, template};

const ROOT: &Cred = &Cred::ROOT;
const RW: OpenFlags = OpenFlags::READ.union(OpenFlags::WRITE);
const PAGE: u64 = 4096;

fn lacking() -> bool {
    ["mkfs.f2fs", "fsck.f2fs"].iter().any(|o| tidegate_testing::oracle::skip_or_fail(o))
}

struct Volume {
    device: Arc<MemoryDevice>,
    fs: Arc<F2fs>,
    vfs: Arc<Vfs>,
}

impl Volume {
    fn new(mib: u64) -> Volume {
        let v = Self::open(template(mib, "").device());
        // The first fsync after opening takes a checkpoint.
        v.file("/first").fsync(false).unwrap();
        v
    }

    fn open(device: Arc<MemoryDevice>) -> Volume {
        let mount = MountOptions { no_periodic_writeback: true, ..Default::default() };
        let mut options = F2fsOptions::default();
        options.parse("background_gc=off").unwrap();
        let (fs, vfs) = mount_with(device.clone(), MemoryLimits::default(), options, mount).unwrap();
        Volume { device, fs, vfs }
    }

    /// As it comes up after the power failed now.
    fn after_crash(&self) -> Volume {
        Self::open(Image::of(&self.device).device())
    }

    fn file(&self, path: &str) -> File {
        self.vfs.open_path(ROOT, path.as_bytes(), RW | OpenFlags::CREATE, 0o644).unwrap()
    }

    fn unlink(&self, name: &str) {
        self.vfs.unlink(ROOT, &self.vfs.root().unwrap(), name.as_bytes()).unwrap();
    }

    fn free_pages(&self) -> u64 {
        self.vfs.statfs().blocks_available
    }

    fn checkpoints(&self) -> u64 {
        self.fs.stats().commits
    }

    /// Judged after a crash, with `look`, and as it is.
    fn finish(self, look: impl FnOnce(&Volume)) {
        let up = self.after_crash();
        look(&up);
        for v in [up, self] {
            v.vfs.unmount().unwrap();
            fsck(&v.device).unwrap();
        }
    }
}

#[test]
fn blocks_freed_since_the_checkpoint_are_no_room_for_roll_forward() {
    if lacking() {
        return;
    }
    let v = Volume::new(100);
    let most = v.file("/most");
    // Reserved, so that no segment becomes free when it goes, for which a checkpoint might be made.
    let pages = v.free_pages() * 49 / 50;
    most.fallocate(FallocateFlags::empty(), 0, pages * PAGE).unwrap();
    v.vfs.sync().unwrap();
    drop(most);
    v.unlink("most");
    let before = v.checkpoints();
    let small = v.file("/small");
    small.write_at(0, &[5; 4 * PAGE as usize]).unwrap();
    small.fsync(false).unwrap();
    assert_eq!(v.checkpoints(), before, "there is room for that one beside the other");
    drop(small);
    let new = v.file("/new");
    new.write_at(0, &vec![6; 5 << 20]).unwrap();
    new.fsync(false).unwrap();
    drop(new);
    v.finish(|up| {
        let mut page = [0; PAGE as usize];
        for (path, byte) in [("/small", 5), ("/new", 6)] {
            assert_eq!(up.file(path).read_at(2 * PAGE, &mut page).unwrap(), page.len(), "{path}");
            assert!(page.iter().all(|b| *b == byte), "{path}");
        }
        assert_eq!(up.file("/new").size(), 5 << 20);
    });
}

#[test]
fn reservations_in_the_chain_are_counted_together() {
    if lacking() {
        return;
    }
    let v = Volume::new(100);
    let pages = v.free_pages() * 3 / 5;
    let before = v.checkpoints();
    let a = v.file("/a");
    a.fallocate(FallocateFlags::empty(), 0, pages * PAGE).unwrap();
    a.fsync(false).unwrap();
    assert_eq!(v.checkpoints(), before, "there is room");
    drop(a);
    v.unlink("a");
    let b = v.file("/b");
    b.fallocate(FallocateFlags::empty(), 0, pages * PAGE).unwrap();
    b.fsync(false).unwrap();
    let blocks = b.inode().attr().blocks;
    drop(b);
    v.finish(|up| assert_eq!(up.file("/b").inode().attr().blocks, blocks));
}
