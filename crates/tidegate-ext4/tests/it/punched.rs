//! Holes that reach the end of a file, compared with the host's kernel doing the same on a volume of its own:
//! the number of blocks that stay, preallocated blocks behind the end included.

use crate::changed::open_to_write;
use crate::rig::*;
use std::fs::OpenOptions;
use std::os::unix::fs::{FileExt, MetadataExt};
use tidegate_testing::fill::Rng;
use tidegate_vfs::*;

const ROOT: &Cred = &Cred::ROOT;
const KEEP_SIZE: u32 = 1;
const PUNCH: u32 = 3;

#[test]
fn holes_that_reach_the_end_of_a_file_free_what_linux_frees() {
    if skip() {
        return;
    }
    let seed = seed();
    let mut rng = Rng::new(seed);
    let dir = scratch();
    for kind in ["ext4", "ext3"] {
        let (own, theirs) =
            (dir.path().join(format!("own-{kind}")), dir.path().join(format!("kernel-{kind}")));
        for image in [&own, &theirs] {
            mke2fs(image, &["-t", kind, "-b", "4096"], "64M");
        }
        let kernel = Mounted::new(&theirs, "rw").unwrap();
        let v = open_to_write(&own);
        for n in 0..100 {
            let name = format!("f{n}");
            let inode = v.create(ROOT, &v.root().unwrap(), name.as_bytes(), 0o644).unwrap();
            let ours = v.open(ROOT, &inode, OpenFlags::READ | OpenFlags::WRITE).unwrap();
            let path = kernel.path().join(&name);
            let theirs = OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
            // The end is at the end of a page, or within one.
            let size = 1 + (rng.below(5) * 4096 + [4095, rng.below(4096)][rng.below(2) as usize]);
            let data = vec![1; size as usize];
            ours.write_at(0, &data).unwrap();
            theirs.write_all_at(&data, 0).unwrap();
            let allocate = |mode: u32, at: u64, len: u64| {
                let our = ours.fallocate(FallocateFlags::from_bits(mode).unwrap(), at, len);
                let how = rustix::fs::FallocateFlags::from_bits_retain(mode);
                assert_eq!(our.is_ok(), rustix::fs::fallocate(&theirs, how, at, len).is_ok());
            };
            allocate(KEEP_SIZE, 0, 16 * 4096);
            let (at, end) =
                (rng.below(size + 4096), size + [rng.below(3), rng.below(40_000)][rng.below(2) as usize]);
            let what = format!("seed {seed}, {kind}: {at}..{end} punched of {size} bytes");
            allocate(PUNCH, at, end.saturating_sub(at).max(1));
            ours.fsync(false).unwrap();
            theirs.sync_all().unwrap();
            assert_eq!(inode.attr().blocks, theirs.metadata().unwrap().blocks(), "{what}");
            let mut ours_now = data.clone();
            ours.read_at(0, &mut ours_now).unwrap();
            assert!(ours_now == std::fs::read(&path).unwrap(), "{what}");
        }
        v.unmount().unwrap();
        must_be_clean(&own);
    }
}
